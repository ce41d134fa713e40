package proxy

// Commands for every server behind a listener: flush_all, cache_memlimit, version.

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"ringside/proxy/client"
	"ringside/proxy/health"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// askAll sends line to every server behind s's listener, once each, and lets
// g make the answer.
func (e *Engine) askAll(s *client.Session, line []byte, g client.Gather) {
	e.askThose(s, line, g, e.listener(s).Each)
}

// askThose sends line to the servers that each names.
func (e *Engine) askThose(s *client.Session, line []byte, g client.Gather, each func(func(srv *upstream.Server, p *table.Pool, refusal string))) {
	x := e.NewExchange(s)
	x.Gather = g
	if e.near.On && e.Req.Op == wire.FlushAll {
		e.near.Stake(x).WritesAll()
	}
	each(func(srv *upstream.Server, p *table.Pool, why string) {
		var c *upstream.Conn
		if why == "" {
			c, why, _ = srv.Pick(s.ID, false)
		}
		if c == nil {
			g.Add(srv, nil, why)
			return
		}
		a := x.GatherAttempt()
		a.Dialect = wire.Text
		c.Enqueue(a, &p.Timeouts, e.Req.Needs(), line)
	})
	x.FinishOne()
}

var (
	answerFlushDenied    = []byte("CLIENT_ERROR flush_all not allowed\r\n") // what memcached -F says
	answerMemlimitDenied = []byte("CLIENT_ERROR cache_memlimit not allowed\r\n")
)

// limitMemory gives every server another memory limit. Where clients may not
// empty the servers they may not do that either: with a low limit it is the same.
func (e *Engine) limitMemory(s *client.Session, raw []byte) {
	r := &e.Req
	if e.listener(s).DeniesFlush() {
		e.local(s, e.quietly(answerMemlimitDenied), stats.ClientFault)
		return
	}
	line := append(append(e.EncodedKey[:0], "cache_memlimit "...), r.Args.Of(raw)...)
	e.EncodedKey = append(line, wire.CRLF...)
	e.askAll(s, e.EncodedKey, &unanimous{e: e, want: wire.AnswerOK, not: "without the new limit", quiet: r.Flags&wire.Quiet != 0})
}

// flushAll empties every server. One that could not be emptied is an error:
// its old values live on. One that is out needs no flush now, for it gets one
// before anybody reads from it; those that stand in for it need one.
func (e *Engine) flushAll(s *client.Session, raw []byte) {
	r := &e.Req
	if e.listener(s).DeniesFlush() {
		e.local(s, e.quietly(answerFlushDenied), stats.ClientFault)
		return
	}
	line := append(e.EncodedKey[:0], "flush_all"...)
	if r.Exptime.Len() > 0 {
		line = append(append(line, ' '), r.Exptime.Of(raw)...)
	}
	e.EncodedKey = append(line, wire.CRLF...)
	each, delay := e.listener(s).Each, int64(0)
	if at := r.Exptime.Of(raw); len(at) == 0 || string(at) == "0" { // not at a time when it may be back
		each = e.listener(s).EachInUse
	} else if b := e.Shared.book.Load(); b != nil {
		delay = int64(b.TTL(e.Now, at)) * int64(time.Second)
	}
	e.askThose(s, e.EncodedKey, &unanimous{e: e, want: wire.AnswerOK, not: "not flushed", flush: true, at: e.Now + delay, quiet: r.Flags&wire.Quiet != 0}, each)
}

// unanimous gathers the answers to a command that every server must carry out: it is
// done if all of them say so.
type unanimous struct {
	e     *Engine
	want  string   // what a server says that did it
	not   string   // what the others are, for people
	quiet bool     // noreply
	flush bool     // it is a flush_all: the view records of the servers are gone, too
	at    int64    // when it takes effect
	asked int      // servers
	bad   []string // why each of the others did not
}

func (f *unanimous) Add(srv *upstream.Server, answer []byte, failed string) {
	f.asked++
	switch {
	case failed != "":
		f.bad = append(f.bad, failed)
	case string(answer) != f.want:
		f.bad = append(f.bad, fmt.Sprintf("server %s: %s", srv.Label(), strings.TrimSpace(string(answer))))
	case f.flush:
		f.e.Notify(srv, (*health.Keeper).Flushed)
		f.e.lost(srv, f.at, true)
	}
}

func (f *unanimous) Answer(dst []byte) ([]byte, stats.Outcome) {
	switch {
	case len(f.bad) == 0 && f.quiet:
		return dst, stats.Okay
	case len(f.bad) == 0:
		return append(dst, f.want...), stats.Okay
	case f.quiet:
		return dst, stats.ServerFault
	}
	return wire.AppendServerError(dst, fmt.Sprintf("%d of %d servers %s: %s", len(f.bad), f.asked, f.not, strings.Join(f.bad, "; "))), stats.ServerFault
}

// tellVersion answers version: with the lowest of the servers behind s, for a
// client may only use what all of them know, in that server's own words. Those
// that have never told theirs are asked; one that doesn't answer is left out,
// and when none has ever told the client gets an error.
func (e *Engine) tellVersion(s *client.Session) {
	v := &versions{}
	known := true
	e.listener(s).Each(func(srv *upstream.Server, _ *table.Pool, _ string) {
		v.hear(srv)
		known = known && srv.Release != wire.Release{}
	})
	if known {
		e.Line, _ = v.Answer(e.Line[:0])
		e.local(s, e.Line, stats.Okay)
		return
	}
	e.askThose(s, upstream.AskVersion, v, func(f func(srv *upstream.Server, p *table.Pool, refusal string)) {
		e.listener(s).Each(func(srv *upstream.Server, p *table.Pool, refusal string) {
			if srv.Release == (wire.Release{}) {
				f(srv, p, refusal)
			}
		})
	})
}

// versions gathers what servers say to version. Their connections learn it. A reload
// may have taken the servers away before the answer.
type versions struct {
	low *upstream.Server // of those that have told theirs, one with the lowest
	why string           // of the first that did not say it
}

// hear takes a server into account if it has told its version.
func (v *versions) hear(srv *upstream.Server) {
	if srv.Release != (wire.Release{}) && (v.low == nil || srv.Release.Older(v.low.Release)) {
		v.low = srv
	}
}

func (v *versions) Add(srv *upstream.Server, _ []byte, failed string) {
	v.why = cmp.Or(v.why, failed)
	v.hear(srv)
}

func (v *versions) Answer(dst []byte) ([]byte, stats.Outcome) {
	if v.low == nil {
		return wire.AppendServerError(dst, "no server has told its version: "+v.why), stats.Unavailable
	}
	return fmt.Appendf(dst, "VERSION %s\r\n", v.low.Version), stats.Okay
}
