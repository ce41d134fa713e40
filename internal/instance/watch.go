package instance

// This file reads the configuration file, and detects its changes for the setting `watch: on`.

import (
	"io/fs"
	"os"
	"time"

	"ringside/config"
)

// fileWatch detects changes of the configuration file at a path, and of the files that it names: those of
// variables ${file:…}, certificates, keys, CAs and passwords. A file that was rejected is followed like
// one that is in force, because a change of a file that it names can correct it. fileWatch polls, with
// one stat of each file per second. A poll follows all symbolic links as they are now, for
// example after Kubernetes has replaced the link of a parent directory. It also finds changes that another machine has made on a shared file
// system. inotify would need a watch on each parent directory, and finds no changes by
// other machines.
type fileWatch struct {
	path string
	read map[string]fs.FileInfo // by path, the state of each file when it was last read as configuration; nil: it did not exist
	seen map[string]fs.FileInfo // by path, the state of each file at the previous poll; nil: it did not exist
}

// lookEvery is the time between two polls. A changed file must also stay unchanged for
// this time before it is read. Otherwise, a file that is written in several steps could
// be read incomplete.
const lookEvery = time.Second

// stateOf returns the current state of the file at path, or nil if it does not exist.
func stateOf(path string) fs.FileInfo {
	is, _ := os.Stat(path)
	return is
}

// reading records the state of all files at the time when they are read as configuration.
func (w *fileWatch) reading() {
	if w.read == nil {
		w.read = map[string]fs.FileInfo{w.path: nil}
	}
	for path := range w.read {
		w.read[path] = stateOf(path)
	}
}

// load reads the configuration. It records which files it names.
func (w *fileWatch) load() (*config.File, error) {
	w.read = nil
	w.reading()
	return config.Load(w.path, w.variables())
}

// variables returns the variables of this process. It records which files the configuration names.
func (w *fileWatch) variables() config.Variables {
	from := config.Environment()
	from.Reads = func(path string) { w.read[path] = stateOf(path) }
	return from
}

// changed reports whether a file differs from what was last read as configuration, and no
// file has changed since the previous poll. A missing file does not count as a change: it
// is probably being replaced. If it stays missing, the next reload or start reports that.
func (w *fileWatch) changed() bool {
	still, differs, seen := true, false, map[string]fs.FileInfo{}
	for path, read := range w.read {
		is := stateOf(path)
		if is == nil {
			was, polled := w.seen[path]
			still = still && (read == nil || polled && was == nil)
			seen[path] = nil
			continue
		}
		still = still && sameFile(is, w.seen[path])
		differs = differs || !sameFile(is, read)
		seen[path] = is
	}
	w.seen = seen
	return still && differs
}

func sameFile(a, b fs.FileInfo) bool {
	return b != nil && os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}
