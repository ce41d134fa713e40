//go:build !linux

package instance

// Elsewhere than Linux there is no socket that only two processes know.

import (
	"errors"
	"os"
)

var errNoHandover = errors.New("a take-over needs Linux")

type handoverSocket struct{}

func (*handoverSocket) offer(func() ([]string, []*os.File, error), func(done func())) (string, error) {
	return "", errNoHandover
}

func take(string) (*takeover, error) { return nil, errNoHandover }

func (t *takeover) ready() error { return errNoHandover }
