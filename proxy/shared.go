package proxy

// This file detects servers on which instances disagree: package health/roll, its
// second item. Either another instance ejects a server by a pool that this instance
// does not have. Or only one of the two instances ejects it.

import (
	"bytes"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"ringside/proxy/event"
	"ringside/proxy/health"
	"ringside/proxy/health/roll"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// AskPools asks each server that is up which pools eject it, and writes the pools of
// this process there. A process that does not eject the server writes only after it has
// seen that another one does, so a proxy in mode fail_fast usually writes nothing.
// AskPools does not wait for the replies. It skips servers whose release is unknown or
// has no meta commands.
func (p *Proxy) AskPools() {
	if len(p.Engines()) == 0 {
		return
	}
	p.keeperLoop().Post(func(e *Engine) {
		maps.DeleteFunc(e.shared, func(at string, _ *roll.Pools) bool { return e.ByAddress[at] == nil })
		for _, srv := range e.List {
			if srv.Release.Features()&wire.Metas != 0 && !srv.Down && !srv.Draining() {
				q := &poolsErrand{e: e, server: srv}
				q.ask(poolsRead, health.MetaGet(health.Pools))
			}
		}
	})
}

// serverAt returns a name of a server that is the same in all pools.
func serverAt(t table.Target) string { return t.Network + " " + t.Address }

// poolsErrand reads and writes one item on a server, in which instances list the pools that
// eject the server. It is an upstream.Asker.
type poolsErrand struct {
	e      *Engine
	server *upstream.Server
	tries  int // number of rounds of reading and writing so far
}

// IDs of the requests of a poolsErrand.
const (
	poolsRead = iota
	poolsWritten
)

// Pings marks the errand as an upstream.pinger: a server without meta commands gets
// version instead.
func (q *poolsErrand) Pings() {}

func (q *poolsErrand) ask(id int, line []byte) {
	if c := q.server.Conns[0]; !c.InternalFull() {
		q.e.Ask(c, q, id, q.server.OwnTimeouts(q.server.Greeting), line, true)
	}
}

func (q *poolsErrand) Answered(id int, r *upstream.Result) {
	switch {
	case r.Bytes == nil || q.server.Draining():
	case id == poolsRead:
		q.read(r.Bytes)
	case q.tries < roll.Tries && !bytes.HasPrefix(r.Bytes, []byte("HD")): // the write failed, because another instance has written the item in between
		q.ask(poolsRead, health.MetaGet(health.Pools))
	}
}

// read evaluates answer, the item in which instances list the pools that eject a server. It
// writes the item again if this process ejects the server, or if another process does and must
// learn which pools of this process contain it.
func (q *poolsErrand) read(answer []byte) {
	value, cas, ok := health.MetaValue(answer)
	if !ok && !health.IsMetaMiss(answer) {
		return
	}
	e, at := q.e, serverAt(q.server.Target)
	own, ejects := e.Shared.poolsOf(at)
	is := e.shared[at]
	if is == nil {
		is = &roll.Pools{}
	}
	before := conflicts(is, ejects)
	if q.tries == 0 {
		is.NextRound()
	}
	is.Hear(value, own)
	now := conflicts(is, ejects)
	e.logShared(q.server, before, now)
	if e.shared[at] = is; is.Empty() {
		delete(e.shared, at)
	}
	if q.tries++; len(own) > 0 && (ejects || len(now) > 0) {
		q.ask(poolsWritten, health.MetaPut(health.Pools, is.Item(own), cas, roll.Life))
	}
}

// poolsOf returns the sorted names of the pools by which this process ejects a server.
// If there are none it returns the pools that contain the server, with the prefix
// roll.Keeps.
func (p *Proxy) poolsOf(at string) (names []string, ejects bool) {
	has := func(list []table.Target) bool {
		return slices.ContainsFunc(list, func(m table.Target) bool { return serverAt(m) == at })
	}
	for _, w := range p.Agents() {
		if has(w.Servers) {
			names, ejects = append(names, w.Pool), true
		}
	}
	if !ejects {
		for _, pool := range p.Table().Pools {
			if has(pool.Servers) {
				names = append(names, roll.Keeps+pool.Name)
			}
		}
	}
	slices.Sort(names)
	return names, ejects
}

// conflicts returns the pools of other instances that treat a server differently from this
// instance, which ejects it or not. If this instance does not eject the server, a pool of
// another instance that does not eject it either is no conflict.
func conflicts(is *roll.Pools, ejects bool) []string {
	return slices.DeleteFunc(is.Others(), func(name string) bool { return !ejects && strings.HasPrefix(name, roll.Keeps) })
}

// logShared logs the conflicts in the list `now` that are new, and those in the list
// `before` that have ended.
func (e *Engine) logShared(srv *upstream.Server, before, now []string) {
	var own []string
	for _, pool := range e.Shared.Table().Pools {
		if slices.ContainsFunc(pool.Servers, func(t table.Target) bool { return serverAt(t) == serverAt(srv.Target) }) {
			own = append(own, pool.Name)
		}
	}
	log := func(reports event.Event, level slog.Level, other, what string, more ...any) {
		other = strings.TrimPrefix(other, roll.Keeps)
		e.LogLimited(level, srv.Label()+" "+other, what, append([]any{reports.Attr(), "server", srv.Target.Name, "address", srv.Address(), "pools", own, "other", other}, more...)...)
	}
	for _, other := range now {
		switch {
		case slices.Contains(before, other):
		case strings.HasPrefix(other, roll.Keeps):
			log(event.KeptElsewhere, slog.LevelWarn, other, "another instance has a server in a pool that does not eject it; this instance ejects it",
				"why", "this instance flushes the server when it returns, and with it the data of that pool: give all instances the same pools, or each pool its own servers")
		default:
			log(event.EjectedElsewhere, slog.LevelWarn, other, "another instance ejects a server; no pool of this instance does",
				"why", "the other instance flushes the server when it returns, and with it the data of these pools: give all instances the same pools, or each pool its own servers")
		}
	}
	for _, other := range before {
		switch {
		case slices.Contains(now, other):
		case strings.HasPrefix(other, roll.Keeps):
			log(event.KeptNowhere, slog.LevelInfo, other, "no other instance has the server in a pool that does not eject it any more")
		default:
			log(event.EjectedNowhere, slog.LevelInfo, other, "no other instance ejects the server any more")
		}
	}
}

// addShared adds the servers on which other instances disagree.
func (e *Engine) addShared(into *stats.Snapshot) {
	if len(e.shared) == 0 {
		return
	}
	for _, pool := range e.Shared.Table().Pools {
		for _, t := range pool.Servers {
			if is := e.shared[serverAt(t)]; is != nil {
				_, ejects := e.Shared.poolsOf(serverAt(t))
				for _, other := range conflicts(is, ejects) {
					name, keeps := strings.CutPrefix(other, roll.Keeps)
					into.Shared = append(into.Shared, stats.Shared{Pool: pool.Name, Server: t.Name, Other: name, Keeps: keeps})
				}
			}
		}
	}
}
