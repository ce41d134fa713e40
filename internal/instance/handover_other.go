//go:build !linux

package instance

// Other systems than Linux have no abstract Unix sockets, so they do not support a
// take-over.

import (
	"errors"
	"os"
)

var errNoHandover = errors.New("a take-over needs Linux")

type handoverSocket struct{}

func (*handoverSocket) offer(func() ([]string, []*os.File, error), func(done func())) (string, error) {
	return "", errNoHandover
}

func (*handoverSocket) end() (given bool) { return false }

func take(string) (*takeover, error) { return nil, errNoHandover }

func (t *takeover) ready(<-chan os.Signal, func()) error { return errNoHandover }
