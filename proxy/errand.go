package proxy

// This file asks servers for their stats for the admin pages and for the analysis of
// misses.

import (
	"bytes"
	"slices"
	"strconv"

	"ringside/proxy/table"
	"ringside/proxy/upstream"
	"ringside/proxy/watch/missreason"
	"ringside/proxy/wire"
)

// statsConn is the number of the dedicated connection for stats. The replies are rare
// and long, and must not delay a client's request.
const statsConn = 1 << 30

// AskStats asks a server for the stats with the names in `what`, and calls done with the
// replies in the same order, or with the reason why they are missing. done runs on the loop
// that runs the keepers. A server that is down, or that an operator has drained, is not asked.
func (p *Proxy) AskStats(t table.Target, what []string, done func(answers [][]byte, why string)) {
	if len(p.Engines()) == 0 {
		done(nil, "no loop runs yet")
		return
	}
	p.keeperLoop().Post(func(e *Engine) {
		srv := e.ByAddress[t.Network+" "+t.Address]
		switch {
		case srv == nil:
			done(nil, "it is not in a pool any more")
			return
		case srv.Draining():
			done(nil, "drained by an operator")
			return
		case srv.Down:
			done(nil, srv.Why)
			return
		}
		c := srv.DedicatedConn(statsConn)
		if c.Length > 0 {
			done(nil, "it has not answered what it was asked before")
			return
		}
		q := &statsErrand{e: e, server: srv, what: what, answers: make([][]byte, len(what)), missing: len(what), done: done}
		for i, name := range what {
			line := append([]byte("stats "), name...)
			e.Ask(c, q, i, srv.OwnTimeouts(srv.Greeting), append(bytes.TrimRight(line, " "), wire.CRLF...), true)
		}
	})
}

// EndStats closes the connections that AskStats opened.
func (p *Proxy) EndStats() {
	if len(p.Engines()) == 0 {
		return
	}
	p.keeperLoop().Post(func(e *Engine) {
		for _, srv := range e.List {
			srv.CloseDedicated(statsConn)
		}
	})
}

// statsErrand collects the replies of one server to stats requests of Ringside itself. It is an
// upstream.Asker.
type statsErrand struct {
	e       *Engine
	server  *upstream.Server
	what    []string
	answers [][]byte
	missing int
	why     string // reason of the first failed request
	done    func([][]byte, string)
}

func (q *statsErrand) Answered(id int, r *upstream.Result) {
	switch {
	case bytes.HasSuffix(r.Bytes, wire.EndLine):
		q.answers[id] = bytes.Clone(r.Bytes)
	case q.why == "" && r.Why != "":
		q.why = r.Why
	case q.why == "":
		q.why = "it answers with an error"
	}
	if q.missing--; q.missing > 0 {
		return
	}
	if q.why != "" {
		q.answers = nil
	}
	if i := slices.Index(q.what, ""); i >= 0 && q.answers != nil {
		q.e.counted(q.server, q.answers[i])
	}
	q.done(q.answers, q.why)
}

// counted passes the numbers of evictions and flushes, from the reply of srv to stats, to the
// book, which explains misses.
func (e *Engine) counted(srv *upstream.Server, answer []byte) {
	b := e.Shared.book.Load()
	if b == nil {
		return
	}
	evictions, err := strconv.ParseUint(wire.StatOf(answer, "evictions"), 10, 64)
	flushes, wrong := strconv.ParseUint(wire.StatOf(answer, "cmd_flush"), 10, 64)
	if err == nil && wrong == nil {
		b.Recorder.Counted(e.Now, srv.Number, missreason.Counters{Evictions: evictions, Flushes: flushes})
	}
}

// CountersToRead returns the addresses of servers that should be asked for their stats,
// because values are missing there for an unknown reason. AskStats passes the replies
// to the book, which explains misses.
func (p *Proxy) CountersToRead() []string {
	if b := p.book.Load(); b != nil {
		return b.CountersToRead()
	}
	return nil
}
