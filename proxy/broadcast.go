package proxy

// Commands for every server behind a listener: flush_all, cache_memlimit.

import (
	"fmt"
	"strings"

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
	e.EncodedKey = append(line, wire.LineEnd...)
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
	e.EncodedKey = append(line, wire.LineEnd...)
	each := e.listener(s).Each
	if at := r.Exptime.Of(raw); len(at) == 0 || string(at) == "0" { // not at a time when it may be back
		each = e.listener(s).EachInUse
	}
	e.askThose(s, e.EncodedKey, &unanimous{e: e, want: wire.AnswerOK, not: "not flushed", flush: true, quiet: r.Flags&wire.Quiet != 0}, each)
}

// unanimous gathers the answers to a command that every server must carry out: it is
// done if all of them say so.
type unanimous struct {
	e     *Engine
	want  string   // what a server says that did it
	not   string   // what the others are, for people
	quiet bool     // noreply
	flush bool     // it is a flush_all: the view records of the servers are gone, too
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
