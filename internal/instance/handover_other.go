//go:build !linux

package instance

// On systems other than Linux, a take-over is not supported, because they have no
// abstract unix sockets.

import (
	"errors"
	"os"

	"ringside/proxy/secure"
)

var errNoHandover = errors.New("a take-over needs Linux")

type handoverSocket struct{ tickets *secure.Tickets }

func (*handoverSocket) offer(func() ([]string, []*os.File, error), func(done func())) (string, error) {
	return "", errNoHandover
}

func (*handoverSocket) end() (given bool) { return false }

func take(string) (*takeover, error) { return nil, errNoHandover }

func (t *takeover) ready(<-chan os.Signal, func()) error { return errNoHandover }
