package proxy

// What clients are told of the servers' version.

import (
	"fmt"

	"ringside/proxy/wire"
)

// fallbackRelease is what clients are told before any server has told its
// own: old enough that no client expects what a server might not have.
var fallbackRelease = wire.Release{Major: 1, Minor: 6, Patch: 18}

// versionLine is the lowest version among the servers behind s: a client may
// only use what all of them know.
func (e *Engine) versionLine(s *Session) []byte {
	var low wire.Release
	e.listener(s).each(func(srv *Server, _ *Pool, _ string) {
		if r := srv.version; r != (wire.Release{}) && (low == wire.Release{} || r.Older(low)) {
			low = r
		}
	})
	if low == (wire.Release{}) {
		low = fallbackRelease
	}
	e.line = fmt.Appendf(e.line[:0], "VERSION %v\r\n", low)
	return e.line
}
