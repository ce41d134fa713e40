//go:build !linux

package top

// This file is for systems on which single key presses are not supported. Only the option --once
// works there.

import (
	"errors"
	"os"
	"syscall"
)

// Size returns 80 columns and 24 lines, because the real size is unknown on this system.
func Size(*os.File) (width, height int) { return 80, 24 }

// IsTerminal reports whether f is a terminal that Run can use. On this system no terminal is.
func IsTerminal(*os.File) bool { return false }

func raw(*os.File) (func(), error) {
	return nil, errors.New("this needs Linux; --once works anywhere")
}

const resized = syscall.Signal(28)
