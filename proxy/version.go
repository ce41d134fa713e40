package proxy

// What clients are told of the servers' version.

import (
	"cmp"
	"fmt"

	"ringside/proxy/wire"
)

// tellVersion answers version: with the lowest of the servers behind s, for a
// client may only use what all of them know, in that server's own words. Those
// that have never told theirs are asked; one that doesn't answer is left out,
// and when none has ever told the client gets an error.
func (e *Engine) tellVersion(s *Session) {
	known := true
	silent := func(f func(srv *Server, p *Pool, refusal string)) {
		e.listener(s).each(func(srv *Server, p *Pool, refusal string) {
			if srv.release == (wire.Release{}) {
				f(srv, p, refusal)
			}
		})
	}
	silent(func(*Server, *Pool, string) { known = false })
	v := &versions{lst: e.listener(s)}
	if !known {
		e.askThose(s, askVersion, v, silent)
		return
	}
	e.line, _ = v.answer(e.line[:0])
	e.local(s, e.line, Okay)
}

// versions gathers what servers say to version. Their connections learn it.
type versions struct {
	lst *listener
	why string // of the first that did not say it
}

func (v *versions) add(_ *Server, _ []byte, failed string) { v.why = cmp.Or(v.why, failed) }

func (v *versions) answer(dst []byte) ([]byte, Outcome) {
	var low *Server
	v.lst.each(func(srv *Server, _ *Pool, _ string) {
		if srv.release != (wire.Release{}) && (low == nil || srv.release.Older(low.release)) {
			low = srv
		}
	})
	if low == nil {
		return wire.AppendServerError(dst, "no server has told its version: "+v.why), Unavailable
	}
	return fmt.Appendf(dst, "VERSION %s\r\n", low.version), Okay
}
