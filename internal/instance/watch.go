package instance

// watch: on, for the configuration file.

import (
	"io/fs"
	"os"
	"time"
)

// A fileWatch notices that another file stands at a path. It looks: that costs
// one stat a second, follows whatever links lead there as they are at that
// moment (Kubernetes swaps the link of a directory above), and sees also what
// another machine writes to a shared directory; inotify would need a watch on
// each directory of the way, and tells of neither.
type fileWatch struct {
	path string
	read fs.FileInfo // what stood there when it was read last; nil: nothing
	seen fs.FileInfo // what stood there at the last look
}

// lookEvery is also how long a file must stay as it is: who writes it in several
// steps, or puts it together with others, is done by then.
const lookEvery = time.Second

// look returns what stands at the path, nil if there is nothing.
func (w *fileWatch) look() fs.FileInfo {
	is, err := os.Stat(w.path)
	if err != nil {
		return nil
	}
	return is
}

// reading notes that the file is read now.
func (w *fileWatch) reading() { w.read = w.look() }

// changed reports whether another file stands there than was read last, and has
// been as it is since the last look. Where nothing stands there is nothing to
// read: something is being put in its place, or the mistake shows at the next
// start.
func (w *fileWatch) changed() bool {
	is := w.look()
	still := is != nil && sameFile(is, w.seen)
	w.seen = is
	return still && !sameFile(is, w.read)
}

func sameFile(a, b fs.FileInfo) bool {
	return b != nil && os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}
