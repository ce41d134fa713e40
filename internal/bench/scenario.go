//go:build linux

package bench

// This file lists the scenarios, and the load of each.

import (
	"fmt"
	"strings"

	"ringside/internal/bench/load"
)

// scenario describes the measurement of one row of the report. The exported fields are copied to
// the Result.
type scenario struct {
	ID   string
	Name string
	Base string // the peer with which the other peers are compared
	Work load.Workload

	routes    string                  // routes of Ringside's configuration; empty: one route without settings
	socket    bool                    // the load connects to the proxy over a unix socket
	slow      *Server                 // the server that delays replies, with the delays; nil: no delays
	hoard     bool                    // true if other clients send large requests at the same time and read no replies
	cut       bool                    // true if the measurement ends at the planned time, even if some requests have no reply yet
	only      string                  // name of the only peer that runs the scenario; empty: all peers run it
	floor     bool                    // true if the scenario also runs on plain memcached although only is set
	filled    bool                    // the keys are already written, so the load does not write them first
	check     func(load.Result) error // additional check of the result; nil: none
	monitored bool                    // true if the scenario runs once with each kind of monitoring in the list monitors
	monitor
}

// text returns the usual workload: reads and writes of single keys in the text protocol. It is the
// workload of scenario a; most other scenarios change one property of it.
func text(conns, depth int) load.Workload {
	return load.Workload{Conns: conns, Depth: depth, Keys: 1, Value: 100, KeySize: 20, Count: 10000, Reads: 90}
}

// textWith returns the usual text workload after change has modified it.
func textWith(conns, depth int, change func(*load.Workload)) load.Workload {
	w := text(conns, depth)
	change(&w)
	return w
}

// UsualScenarios are the letters of the scenarios that run by default. Scenario k is not among
// them, because nutcracker sends no replies in it, so the run fails.
const UsualScenarios = "abcdefghijlmnopqrstu"

// ScenarioList describes the scenarios, one per line.
func ScenarioList() string {
	var b strings.Builder
	for _, s := range scenarios() {
		fmt.Fprintf(&b, "  %s  %s\n", s.ID, s.Name)
	}
	return b.String()
}

// Suffixes of a peer's name in the result of a second run, which is there for comparison. The
// second run uses the text protocol, or omits the settings of the route.
const (
	inText    = ", text"
	unguarded = ", no guard"
	notNear   = ", not near"
)

// monitor is a way in which users monitor Ringside while a load runs.
type monitor struct {
	behind string   // suffix of the name of the peer in the report
	admin  string   // settings of Ringside's admin interface, in YAML; empty: the defaults
	asks   []string // paths of the admin interface that stay open for reading during the load
}

// blind is the suffix of a peer's name for runs in which Ringside records neither hot keys nor miss
// reasons.
const blind = ", no hot keys, no misses"

// monitors are ways of monitoring, from no monitoring to live traces. Their costs are compared.
var monitors = []monitor{
	{behind: blind, admin: "hot: false, misses: false"},
	{},
	{behind: ", page open", asks: []string{"/api/stream"}},
	{behind: ", page open, 1 % of the keys traced", asks: []string{"/api/stream", "/api/trace?pattern=*42"}},
}

// nearRoutes configures one route with the near cache for all keys. Values stay in the near cache
// for the default time.
const nearRoutes = "{pool: main, near: {keys: all}}"

// guardedRoutes enables the guard for all keys that the load writes. The load's last read is of a
// key that is never written (fenceKey), and the guard is off for that key.
const guardedRoutes = "{prefix: k, pool: main, guard: true}, {pool: main}"

// taggedRoutes configures a route with the guard and with a tag for each value.
const taggedRoutes = "{prefix: k, pool: main, guard: true, tags: {patterns: [{match: 'k{id}', tags: ['page:{id}']}]}}, {pool: main}"

func scenarios() []scenario {
	return []scenario{
		{ID: "a", Name: "50 connections", Base: "nutcracker", Work: text(50, 1)},
		{ID: "b", Name: "1 connection", Base: "nutcracker", Work: text(1, 1)},
		{ID: "c", Name: "50 connections, pipeline of 16", Base: "nutcracker", Work: text(50, 16)},
		{ID: "d", Name: "1,000 connections", Base: "nutcracker", Work: text(1000, 1)},
		{ID: "e", Name: "50 connections, multi-get of 20", Base: "nutcracker", Work: textWith(50, 1, func(w *load.Workload) { w.Keys = 20 })},
		{ID: "f", Name: "50 connections, values of 64 KiB", Base: "nutcracker", Work: textWith(50, 1, func(w *load.Workload) { w.Value, w.Count = 64<<10, 1000 })},
		{ID: "g", Name: "200 connections, values of 1 KiB, 50 % writes", Base: "nutcracker", Work: textWith(200, 1, func(w *load.Workload) { w.Value, w.Reads = 1<<10, 50 })},
		{ID: "h", Name: "50 connections, paced at 40,000 a second", Base: "nutcracker", Work: textWith(50, 1, func(w *load.Workload) { w.Rate = 40000 })},
		{ID: "i", Name: "50 connections, quiet meta batches of 50", Base: "memcached", Work: textWith(50, 1, func(w *load.Workload) { w.Quiet = 50 })},
		{ID: "j", Name: "50 connections, two copies of each key at Ringside", Base: "nutcracker", Work: text(50, 1), routes: "{pool: main, replicas: 2, replicas_on: server}"},
		// This load has a fixed rate of requests. With a closed loop, a peer that does not reply
		// would receive fewer requests.
		{ID: "k", Name: "3 connections paced at 300 a second, beside 200 that ask for 20 values of 1 MB and read nothing", Base: "nutcracker", Work: textWith(3, 1, func(w *load.Workload) { w.Lossy, w.Rate = true, 300 }), hoard: true},
		{ID: "l", Name: "50 connections, binary protocol", Base: "ringside" + inText, Work: textWith(50, 1, func(w *load.Workload) { w.Binary = true })},
		{ID: "m", Name: "50 connections, binary protocol, quiet multi-get of 20", Base: "ringside" + inText, Work: textWith(50, 1, func(w *load.Workload) { w.Binary, w.Keys = true, 20 })},
		{ID: "n", Name: "50 connections, reads of a guarded route", Base: "ringside" + unguarded, Work: textWith(50, 1, func(w *load.Workload) { w.Reads = 100 }), routes: guardedRoutes, only: "ringside"},
		{ID: "o", Name: "50 connections, pipeline of 16, reads of a guarded route", Base: "ringside" + unguarded, Work: textWith(50, 16, func(w *load.Workload) { w.Reads = 100 }), routes: guardedRoutes, only: "ringside"},
		{ID: "p", Name: "50 clients that come and go, a request is a visit: connect, 5 gets, close", Base: "nutcracker", Work: textWith(50, 1, func(w *load.Workload) { w.Reads, w.Visit = 100, 5 })},
		{ID: "q", Name: "50 connections, reads of one key that is kept near", Base: "ringside" + notNear, Work: textWith(50, 1, func(w *load.Workload) { w.Reads, w.Count = 100, 1 }), routes: nearRoutes, only: "ringside", floor: true},
		{ID: "r", Name: "50 connections, pipeline of 16, reads of one key that is kept near", Base: "ringside" + notNear, Work: textWith(50, 16, func(w *load.Workload) { w.Reads, w.Count = 100, 1 }), routes: nearRoutes, only: "ringside", floor: true},
		{ID: "s", Name: "50 connections, reads of a guarded route with tags", Base: "ringside" + unguarded, Work: textWith(50, 1, func(w *load.Workload) { w.Reads = 100 }), routes: taggedRoutes, only: "ringside"},
		{ID: "t", Name: "50 connections, looked at", Base: "ringside" + blind, Work: text(50, 1), monitored: true, only: "ringside"},
		{ID: "u", Name: "50 connections, paced at 10,000 a second, looked at", Base: "ringside" + blind, Work: textWith(50, 1, func(w *load.Workload) { w.Rate = 10000 }), monitored: true, only: "ringside"},
	}
}

// memoryScenarios returns the scenarios that measure a proxy's memory, not its CPU time.
func memoryScenarios() []scenario {
	idle, crowd, pipeline, multiget := text(1000, 1), text(5000, 1), text(1000, 16), text(1000, 1)
	idle.Idle, crowd.Idle = true, true
	multiget.Keys = 20
	return []scenario{
		{ID: "idle", Name: "1,000 connections, idle", Work: idle},
		{ID: "pipeline", Name: "1,000 connections, pipeline of 16", Work: pipeline},
		{ID: "multiget", Name: "1,000 connections, multi-get of 20", Work: multiget},
		{ID: "crowd", Name: "5,000 connections, idle", Work: crowd},
	}
}

func pickScenarios(letters string) ([]scenario, error) {
	var picked []scenario
	var all string
	for _, s := range scenarios() {
		all += s.ID
		if strings.Contains(letters, s.ID) {
			picked = append(picked, s)
		}
	}
	for _, letter := range letters {
		if !strings.ContainsRune(all, letter) {
			return nil, fmt.Errorf("no scenario %q: use letters of %s", letter, all)
		}
	}
	return picked, nil
}

// fits reports whether p can serve the scenario's load, and whether the result is meaningful.
func (s scenario) fits(p *Peer) bool {
	switch {
	case s.Work.Quiet > 0 && !p.SpeaksMeta, s.Work.Binary && !p.SpeaksBinary:
		return false
	case s.only != "":
		return s.only == p.Name || s.floor && p.Name == "memcached"
	case p.Direct: // the peer direct stores one replica of each key, so it cannot be compared if Ringside keeps two
		return strings.HasPrefix(s.Base, "nutcracker") && s.routes == "" && !s.hoard && !s.Work.Lossy
	}
	return !s.hoard || p.Name != "memcached"
}

// calm returns the scenario with a forwarder in front of the first server that delays nothing.
func (s scenario) calm() scenario {
	s.slow = new(Server)
	return s
}
