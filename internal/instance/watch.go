package instance

// This file detects changes of the configuration file, for the setting `watch: on`.

import (
	"io/fs"
	"os"
	"time"
)

// fileWatch detects changes of the file at a path. It polls, with one stat per second. A
// poll follows all symbolic links as they are now, for example after Kubernetes has
// replaced the link of a parent directory. It also finds changes that another machine has
// made on a shared file system. inotify would need a watch on each parent directory, and
// finds no changes by other machines.
type fileWatch struct {
	path string
	read fs.FileInfo // state of the file when it was last read as configuration; nil: it did not exist
	seen fs.FileInfo // state of the file at the previous poll; nil: it did not exist
}

// lookEvery is the time between two polls. A changed file must also stay unchanged for
// this time before it is read. Otherwise, a file that is written in several steps could
// be read incomplete.
const lookEvery = time.Second

// stat returns the current state of the file, or nil if it does not exist.
func (w *fileWatch) stat() fs.FileInfo {
	is, err := os.Stat(w.path)
	if err != nil {
		return nil
	}
	return is
}

// reading records the state of the file at the time when it is read as configuration.
func (w *fileWatch) reading() { w.read = w.stat() }

// changed reports whether the file differs from what was last read as configuration, and
// has not changed since the previous poll. A missing file does not count as a change: it
// is probably being replaced. If it stays missing, the next start reports that.
func (w *fileWatch) changed() bool {
	is := w.stat()
	still := is != nil && sameFile(is, w.seen)
	w.seen = is
	return still && !sameFile(is, w.read)
}

func sameFile(a, b fs.FileInfo) bool {
	return b != nil && os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}
