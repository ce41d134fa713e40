package instance

// This file detects changes of the configuration file, for the setting `watch: on`.

import (
	"io/fs"
	"os"
	"slices"
	"time"

	"ringside/config"
)

// fileWatch detects changes of the file at a path, and of the certificates that it names. It polls, with one stat per second. A
// poll follows all symbolic links as they are now, for example after Kubernetes has
// replaced the link of a parent directory. It also finds changes that another machine has
// made on a shared file system. inotify would need a watch on each parent directory, and
// finds no changes by other machines.
type fileWatch struct {
	path string
	also []string      // paths of the files that the configuration in force names: certificates, keys, CAs
	read []fs.FileInfo // states of the file and of those in also when it was last read as configuration; nil: it did not exist
	seen []fs.FileInfo // states at the previous poll
}

// lookEvery is the time between two polls. A changed file must also stay unchanged for
// this time before it is read. Otherwise, a file that is written in several steps could
// be read incomplete.
const lookEvery = time.Second

// stat returns the current states of the file and of those in also. The state of a file that does not
// exist is nil.
func (w *fileWatch) stat() (all []fs.FileInfo) {
	for _, path := range append([]string{w.path}, w.also...) {
		is, err := os.Stat(path)
		if err != nil {
			is = nil
		}
		all = append(all, is)
	}
	return all
}

// reading records the states of the files at the time when they are read as configuration.
func (w *fileWatch) reading() { w.read = w.stat() }

// adopted records the files that the configuration in force names, in the states in which they were read.
func (w *fileWatch) adopted(f *config.File) {
	if len(w.read) == 0 { // there is no file
		return
	}
	w.also, w.read, w.seen = nil, w.read[:1:1], nil
	for _, named := range f.Named {
		w.also, w.read = append(w.also, named.Path), append(w.read, named.Info)
	}
}

// changed reports whether the file differs from what was last read as configuration, and
// has not changed since the previous poll. The same holds for the files that the
// configuration names. A missing file does not count as a change: it
// is probably being replaced. If it stays missing, the next start reports that.
func (w *fileWatch) changed() bool {
	is := w.stat()
	still := !slices.Contains(is, nil) && slices.EqualFunc(is, w.seen, sameFile)
	w.seen = is
	return still && !slices.EqualFunc(is, w.read, sameFile)
}

func sameFile(a, b fs.FileInfo) bool {
	return b != nil && os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}
