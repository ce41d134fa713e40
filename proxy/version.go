package proxy

// What clients are told of the servers' version.

import (
	"cmp"
	"fmt"

	"ringside/proxy/client"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// tellVersion answers version: with the lowest of the servers behind s, for a
// client may only use what all of them know, in that server's own words. Those
// that have never told theirs are asked; one that doesn't answer is left out,
// and when none has ever told the client gets an error.
func (e *Engine) tellVersion(s *client.Session) {
	known := true
	silent := func(f func(srv *upstream.Server, p *table.Pool, refusal string)) {
		e.listener(s).Each(func(srv *upstream.Server, p *table.Pool, refusal string) {
			if srv.Release == (wire.Release{}) {
				f(srv, p, refusal)
			}
		})
	}
	silent(func(*upstream.Server, *table.Pool, string) { known = false })
	v := &versions{lst: e.listener(s)}
	if !known {
		e.askThose(s, upstream.AskVersion, v, silent)
		return
	}
	e.Line, _ = v.Answer(e.Line[:0])
	e.local(s, e.Line, stats.Okay)
}

// versions gathers what servers say to version. Their connections learn it.
type versions struct {
	lst *routing.Listener
	why string // of the first that did not say it
}

func (v *versions) Add(_ *upstream.Server, _ []byte, failed string) { v.why = cmp.Or(v.why, failed) }

func (v *versions) Answer(dst []byte) ([]byte, stats.Outcome) {
	var low *upstream.Server
	v.lst.Each(func(srv *upstream.Server, _ *table.Pool, _ string) {
		if srv.Release != (wire.Release{}) && (low == nil || srv.Release.Older(low.Release)) {
			low = srv
		}
	})
	if low == nil {
		return wire.AppendServerError(dst, "no server has told its version: "+v.why), stats.Unavailable
	}
	return fmt.Appendf(dst, "VERSION %s\r\n", low.Version), stats.Okay
}
