package tracefile

// This file contains one trace file: appending lines to it, and renaming it when it is full.

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// file is an open trace file, to which lines are appended.
type file struct {
	path string
	max  int64
	keep int

	f    *os.File
	is   fs.FileInfo // identity of the open file; it shows when another program has moved the file away from path
	size int64
}

// openFile opens or creates the trace file at path. most is its maximum size in bytes. keep is
// the number of renamed files that are kept.
func openFile(path string, most int64, keep int) (*file, error) {
	f := &file{path: path, max: most, keep: keep}
	return f, f.open()
}

func (f *file) open() error {
	// Without O_NONBLOCK, opening a pipe without a reader would block. A symbolic link is not
	// followed: anyone with access to the directory could otherwise choose the file to which
	// lines are appended.
	to, err := os.OpenFile(f.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NONBLOCK|noFollow, 0o600)
	if errors.Is(err, syscall.ELOOP) {
		return f.regular(nil)
	}
	if err != nil {
		return err
	}
	is, err := to.Stat()
	if err == nil {
		err = f.regular(is)
	}
	if err != nil {
		to.Close()
		return err
	}
	f.f, f.is, f.size = to, is, is.Size()
	return nil
}

// regular returns an error unless `is` describes a regular file. For a symbolic link, the caller
// passes nil, which is an error too.
func (f *file) regular(is fs.FileInfo) error {
	if is == nil || !is.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file: name another one", f.path)
	}
	return nil
}

// look returns the error that the method open would return, as far as it can be found without
// creating the file.
func (f *file) look() error {
	is, err := os.Lstat(f.path)
	if err == nil {
		return f.regular(is)
	}
	_, err = os.Stat(filepath.Dir(f.path))
	return err
}

// write appends lines to the file. Each line is written as a whole into one file, even if the
// file is renamed in between.
func (f *file) write(lines [][]byte) error {
	if now, err := os.Lstat(f.path); err != nil || !os.SameFile(now, f.is) { // another program has moved or removed the file
		f.f.Close()
		if err := f.open(); err != nil {
			return err
		}
	}
	var together []byte
	flush := func() error {
		n, err := f.f.Write(together)
		f.size += int64(n)
		together = together[:0]
		return err
	}
	for _, line := range lines {
		if at := f.size + int64(len(together)); at > 0 && at+int64(len(line)) > f.max {
			if err := flush(); err != nil {
				return err
			}
			if err := f.rotate(); err != nil {
				return err
			}
		}
		together = append(together, line...)
	}
	return flush()
}

// rotate renames the trace file and the renamed files before it, and creates a new trace file.
func (f *file) rotate() error {
	f.f.Close()
	name := func(n int) string {
		if n == 0 {
			return f.path
		}
		return fmt.Sprint(f.path, ".", n)
	}
	if f.keep == 0 {
		if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for n := f.keep; n > 0; n-- { // rename the oldest file first, over the one that is not kept
		if err := os.Rename(name(n-1), name(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return f.open()
}

func (f *file) close() error { return f.f.Close() }
