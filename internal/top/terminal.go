package top

// This file reads the size of the terminal, and single key presses.

import (
	"os"
	"syscall"

	"golang.org/x/term"
)

// Size returns the size of the terminal in columns and lines. It returns 80 and 24 if the size is
// unknown.
func Size(f *os.File) (width, height int) {
	if width, height, err := term.GetSize(int(f.Fd())); err == nil && width > 0 && height > 0 {
		return width, height
	}
	return 80, 24
}

// IsTerminal reports whether f is a terminal.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// raw changes the terminal f so that a read returns each key at once, without echo. back undoes the
// change.
func raw(f *os.File) (back func(), err error) {
	was, err := term.MakeRaw(int(f.Fd()))
	return func() { term.Restore(int(f.Fd()), was) }, err
}

// resized is SIGWINCH, which the kernel sends when the size of the terminal changes.
const resized = syscall.Signal(28)
