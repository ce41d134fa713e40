package proxy

// Commands for every server behind a listener: flush_all, cache_memlimit.

import (
	"fmt"
	"strings"

	"ringside/proxy/health"
	"ringside/proxy/wire"
)

// askAll sends line to every server behind s's listener, once each, and lets
// g make the answer.
func (e *Engine) askAll(s *Session, line []byte, g gather) {
	e.askThose(s, line, g, e.listener(s).each)
}

// askThose sends line to the servers that each names.
func (e *Engine) askThose(s *Session, line []byte, g gather, each func(func(srv *Server, p *Pool, refusal string))) {
	x := e.newExchange(s)
	x.gather = g
	each(func(srv *Server, p *Pool, why string) {
		var c *Conn
		if why == "" {
			c, why, _ = srv.pick(s.id, false)
		}
		if c == nil {
			g.add(srv, nil, why)
			return
		}
		a := x.gatherAttempt()
		a.dialect = wire.Text
		c.begin(a, &p.Timeouts)
		c.want(a, e.req.Needs())
		c.out.append(&e.pool, line)
		c.give(a, len(line))
	})
	x.done()
}

var (
	answerFlushDenied    = []byte("CLIENT_ERROR flush_all not allowed\r\n") // what memcached -F says
	answerMemlimitDenied = []byte("CLIENT_ERROR cache_memlimit not allowed\r\n")
)

// limitMemory gives every server another memory limit. Where clients may not
// empty the servers they may not do that either: with a low limit it is the same.
func (e *Engine) limitMemory(s *Session, raw []byte) {
	r := &e.req
	if e.listener(s).deniesFlush() {
		e.local(s, e.quietly(answerMemlimitDenied), ClientFault)
		return
	}
	line := append(append(e.key2[:0], "cache_memlimit "...), r.Args.Of(raw)...)
	e.key2 = append(line, wire.LineEnd...)
	e.askAll(s, e.key2, &obeyed{e: e, want: wire.AnswerOK, not: "without the new limit", quiet: r.Flags&wire.Quiet != 0})
}

// flushAll empties every server. One that could not be emptied is an error:
// its old values live on. One that is out needs no flush now, for it gets one
// before anybody reads from it; those that stand in for it need one.
func (e *Engine) flushAll(s *Session, raw []byte) {
	r := &e.req
	if e.listener(s).deniesFlush() {
		e.local(s, e.quietly(answerFlushDenied), ClientFault)
		return
	}
	line := append(e.key2[:0], "flush_all"...)
	if r.Exptime.Len() > 0 {
		line = append(append(line, ' '), r.Exptime.Of(raw)...)
	}
	e.key2 = append(line, wire.LineEnd...)
	each := e.listener(s).each
	if at := r.Exptime.Of(raw); len(at) == 0 || string(at) == "0" { // not at a time when it may be back
		each = e.listener(s).eachInUse
	}
	e.askThose(s, e.key2, &obeyed{e: e, want: wire.AnswerOK, not: "not flushed", flush: true, quiet: r.Flags&wire.Quiet != 0}, each)
}

// obeyed gathers the answers to an order: done only if every server says so.
type obeyed struct {
	e     *Engine
	want  string // what a server says that did
	not   string // what the others are, for people
	quiet bool
	flush bool // then the servers' view records are gone, too
	asked int
	bad   []string
}

func (f *obeyed) add(srv *Server, answer []byte, failed string) {
	f.asked++
	switch {
	case failed != "":
		f.bad = append(f.bad, failed)
	case string(answer) != f.want:
		f.bad = append(f.bad, fmt.Sprintf("server %s: %s", srv.label(), strings.TrimSpace(string(answer))))
	case f.flush:
		f.e.tell(srv, (*health.Keeper).Emptied)
	}
}

func (f *obeyed) answer(dst []byte) ([]byte, Outcome) {
	switch {
	case len(f.bad) == 0 && f.quiet:
		return dst, Okay
	case len(f.bad) == 0:
		return append(dst, f.want...), Okay
	case f.quiet:
		return dst, ServerFault
	}
	return wire.AppendServerError(dst, fmt.Sprintf("%d of %d servers %s: %s", len(f.bad), f.asked, f.not, strings.Join(f.bad, "; "))), ServerFault
}
