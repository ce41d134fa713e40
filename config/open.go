package config

// Reading files that a person names.

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// errNotRegular is the error of a path that is no regular file.
var errNotRegular = errors.New("it is no regular file")

// ReadFile returns the content of the regular file at path, of which it reads at most limit
// bytes. Pipes, devices and sockets are refused: reading one may block, and with it all
// later reloads.
func ReadFile(path string, limit int64) ([]byte, error) {
	data, _, err := readRegular(path, limit)
	return data, err
}

func readRegular(path string, limit int64) ([]byte, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|nonBlocking, 0) // a pipe without a writer would block
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() && !info.IsDir() { // reading a directory says so
		return nil, nil, &fs.PathError{Op: "read", Path: path, Err: errNotRegular}
	}
	data, err := io.ReadAll(io.LimitReader(f, limit))
	return data, info, err
}
