package proxy

// This file implements the commands that are sent to every server behind a listener:
// flush_all, cache_memlimit and version.

import (
	"bytes"
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"ringside/proxy/client"
	"ringside/proxy/health"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// askAll sends line to every server behind s's listener, once each. g combines the replies to
// one reply for the client.
func (e *Engine) askAll(s *client.Session, line []byte, g client.Gather) {
	e.askThose(s, line, g, e.listener(s).Each)
}

// askThose sends line to the servers that the parameter `each` enumerates. If a server has a
// refusal, or no usable connection, the line is not sent to it, and g gets the reason instead.
// Each server counts like one key against the work that the client may cause in this wakeup (its
// turn).
func (e *Engine) askThose(s *client.Session, line []byte, g client.Gather, each func(func(srv *upstream.Server, p *table.Pool, refusal string))) {
	if e.listener(s).Unknown() {
		e.local(s, e.quietly(answerUnknown), stats.Unavailable)
		return
	}
	x := e.NewExchange(s)
	x.Gather = g
	if e.near.On && e.Req.Op == wire.FlushAll {
		e.near.lookupOf(x).WritesAll()
	}
	asked, needs := 0, e.Req.Needs()
	send := func() {
		each(func(srv *upstream.Server, p *table.Pool, why string) {
			asked++
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
			if m, ok := g.(*statsMerge); ok && m.keys {
				c = srv.DedicatedConn(listingConn)
				c.Untrusted = true
				a.To = &listingPart{a.To.(*client.Part), e}
				e.listings++
			}
			c.Enqueue(a, &p.Timeouts, needs, line)
		})
	}
	if f, ok := g.(*unanimous); ok && f.twice {
		each(func(*upstream.Server, *table.Pool, string) { f.first++ })
		line, f.again = bytes.Clone(line), send
	}
	send()
	s.UseTurn(max(0, asked-1))
	x.AddWork(max(0, asked-1))
	x.FinishOne()
}

var (
	answerOutdated       = wire.AppendServerError(nil, routing.Outdated)
	answerUnknown        = wire.AppendServerError(nil, routing.Unknown)
	answerFlushDenied    = []byte("CLIENT_ERROR flush_all not allowed\r\n") // the error of memcached -F
	answerFlushDelayed   = []byte("CLIENT_ERROR flush_all with a delay is not possible where keys have replicas; send it without a delay later\r\n")
	answerMemlimitDenied = []byte("CLIENT_ERROR cache_memlimit not allowed\r\n")
)

// limitMemory sets the memory limit of every server. It is denied where flush_all is
// denied, because a low limit also empties a server.
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

// flushAll empties every server. If one server can't be emptied the client gets an
// error, because the old values there survive. A server that is out is skipped by an
// immediate flush: it is flushed anyway before it serves reads again. Its substitute
// servers are flushed.
//
// A flush with a delay is rejected if a pool has replicas. A server that restarts, or is flushed
// because it was out, forgets the pending flush. It would give the old values back to the servers
// that have carried the flush out.
func (e *Engine) flushAll(s *client.Session, raw []byte) {
	r := &e.Req
	if e.listener(s).DeniesFlush() {
		e.local(s, e.quietly(answerFlushDenied), stats.ClientFault)
		return
	}
	if e.listener(s).Outdated() {
		e.local(s, e.quietly(answerOutdated), stats.Unavailable)
		return
	}
	after := int32(wire.Signed(r.Exptime.Of(raw))) // memcached uses the low 32 bits
	if after > 0 && e.listener(s).HasReplicas(e.gen.Table) {
		e.local(s, e.quietly(answerFlushDelayed), stats.ClientFault)
		return
	}
	line := append(e.EncodedKey[:0], "flush_all"...)
	if r.Exptime.Len() > 0 {
		line = strconv.AppendInt(append(line, ' '), int64(after), 10)
	}
	e.EncodedKey = append(line, wire.CRLF...)
	each, delay := e.listener(s).Each, int64(0)
	if after == 0 { // an immediate flush skips a server that is out; a delayed one does not, because the server may have rejoined by then
		each = e.listener(s).EachInUse
	} else if b := e.Shared.book.Load(); b != nil {
		delay = int64(b.TTL(e.Now, []byte(strconv.Itoa(int(after))))) * int64(time.Second)
	}
	e.askThose(s, e.EncodedKey, &unanimous{e: e, want: wire.AnswerOK, not: "not flushed", flush: true, twice: e.listener(s).KeysMove(), at: e.Now + delay, quiet: r.Flags&wire.Quiet != 0}, each)
}

// unanimous collects the replies to a command that every server must carry out. The
// command succeeds if every server replies with want.
type unanimous struct {
	e     *Engine
	want  string   // the reply that means that a server has carried the command out
	not   string   // for the error text: the state of a server that has not carried the command out, such as "not flushed"
	quiet bool     // the client sent noreply, and gets neither a reply nor an error
	flush bool     // the command is flush_all: it also deletes the view records on the servers
	at    int64    // when the flush takes effect, in nanoseconds on the loop's clock
	asked int      // number of replies
	twice bool     // keys move between servers: when all servers have replied, the command is sent to all once more, because a key may have moved to a server behind its flush
	first int      // number of servers, if twice is set
	again func()   // sends the command once more; nil: not needed, or done
	bad   []string // one reason for each server that has not carried the command out
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
	if f.again != nil && f.asked == f.first {
		again := f.again
		f.again = nil
		again()
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

// tellVersion answers version with the lowest version of the servers behind s, in that
// server's own words: a client may use only what all servers support. Servers with an
// unknown version are asked first. A server that does not answer is ignored. If no
// version is known the client gets an error.
func (e *Engine) tellVersion(s *client.Session) {
	v := &versions{}
	known := !e.listener(s).Unknown()
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

// versions collects the replies to the version command that Ringside sends to its servers. The
// server connection parses each reply and records the version in its Server; versions reads it
// there. This also works if a reload has removed the server before the reply arrives.
type versions struct {
	low *upstream.Server // a server with the lowest known version; nil: none is known
	why string           // reason of the first server that did not reply; empty: all replied
}

// hear records srv if its version is known and the lowest so far.
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
		return wire.AppendServerError(dst, "no server has reported its version: "+v.why), stats.Unavailable
	}
	return fmt.Appendf(dst, "VERSION %s\r\n", v.low.Version), stats.Okay
}
