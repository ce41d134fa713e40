package config

// This file reads files at paths that the user has set.

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// errNotRegular is the error for a path that is not a regular file.
var errNotRegular = errors.New("it is not a regular file")

// ReadFile returns at most limit bytes of the regular file at path. It rejects pipes, devices and
// sockets. Reading one of them can block, and then no later reload would be possible.
func ReadFile(path string, limit int64) ([]byte, error) {
	data, _, err := readRegular(path, limit)
	return data, err
}

func readRegular(path string, limit int64) ([]byte, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|nonBlocking, 0) // nonBlocking, because opening a pipe that has no writer would block
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() && !info.IsDir() { // a directory passes this check, because reading it returns a clear error
		return nil, nil, &fs.PathError{Op: "read", Path: path, Err: errNotRegular}
	}
	data, err := io.ReadAll(io.LimitReader(f, limit))
	return data, info, err
}
