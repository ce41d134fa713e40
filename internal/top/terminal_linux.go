package top

// This file reads the size of the terminal, and single key presses.

import (
	"os"

	"golang.org/x/sys/unix"
)

// Size returns the size of the terminal in columns and lines. It returns 80 and 24 if the size is
// unknown.
func Size(f *os.File) (width, height int) {
	if w, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && w.Col > 0 && w.Row > 0 {
		return int(w.Col), int(w.Row)
	}
	return 80, 24
}

// IsTerminal reports whether f is a terminal.
func IsTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// raw changes the terminal f so that a read returns each key at once, without echo. back undoes the
// change.
func raw(f *os.File) (back func(), err error) {
	was, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		return nil, err
	}
	is := *was
	is.Iflag &^= unix.ICRNL | unix.IXON
	is.Lflag &^= unix.ECHO | unix.ICANON | unix.ISIG | unix.IEXTEN
	is.Cc[unix.VMIN], is.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, &is); err != nil {
		return nil, err
	}
	return func() { unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, was) }, nil
}

// resized is the signal that the kernel sends when the size of the terminal changes.
const resized = unix.SIGWINCH
