//go:build !linux

package top

// Systems on which single key presses are not supported. --once works there.

import (
	"errors"
	"os"
	"syscall"
)

// Size returns a default size, in columns and lines.
func Size(*os.File) (width, height int) { return 80, 24 }

// IsTerminal reports whether f is a terminal that Run can use.
func IsTerminal(*os.File) bool { return false }

func raw(*os.File) (func(), error) {
	return nil, errors.New("this needs Linux; --once works anywhere")
}

const resized = syscall.Signal(28)
