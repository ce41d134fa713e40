//go:build unix

package discover

import (
	"path/filepath"
	"syscall"
	"testing"
)

// fifo returns the path of a named pipe. To open it blocks as long as no process writes to it.
func fifo(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
