package instance

// This file detects changes of the configuration file, for watch: on.

import (
	"io/fs"
	"os"
	"time"
)

// fileWatch detects that the file at a path has changed. It polls, which costs one stat
// per second. Polling follows all symbolic links in their current state (Kubernetes
// swaps the link of a parent directory). It also detects changes by another machine on
// a shared file system. inotify would need a watch on each parent directory, and
// detects neither.
type fileWatch struct {
	path string
	read fs.FileInfo // state when it was read last; nil: no file
	seen fs.FileInfo // state at the previous look
}

// lookEvery is the polling interval. It is also how long a file must stay unchanged, so
// that a file that is written in several steps, or together with others, is complete.
const lookEvery = time.Second

// stat returns the state of the file at the path, or nil if there is none.
func (w *fileWatch) stat() fs.FileInfo {
	is, err := os.Stat(w.path)
	if err != nil {
		return nil
	}
	return is
}

// reading records that the file is being read now.
func (w *fileWatch) reading() { w.read = w.stat() }

// changed reports whether the file differs from the one that was read last, and has not
// changed since the previous look. A missing file does not count as a change. Either it
// is being replaced, or the mistake will show at the next start.
func (w *fileWatch) changed() bool {
	is := w.stat()
	still := is != nil && sameFile(is, w.seen)
	w.seen = is
	return still && !sameFile(is, w.read)
}

func sameFile(a, b fs.FileInfo) bool {
	return b != nil && os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}
