//go:build !linux

package top

// The terminal where its keys can't be had one by one: --once works there.

import (
	"errors"
	"os"
	"syscall"
)

// Size is the terminal's, as columns and lines.
func Size(*os.File) (width, height int) { return 80, 24 }

// IsTerminal says whether f is a terminal that Run can use.
func IsTerminal(*os.File) bool { return false }

func raw(*os.File) (func(), error) {
	return nil, errors.New("this needs Linux; --once works anywhere")
}

const resized = syscall.Signal(28)
