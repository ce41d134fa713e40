//go:build linux

package bench

// This file lists the scenarios, and the load of each.

import (
	"fmt"
	"slices"
	"strings"

	"ringside/internal/bench/load"
)

// scenario describes the measurement of one row of the report.
type scenario struct {
	id, name string
	work     load.Workload

	replicas bool // Ringside keeps two replicas of each key, so that its total cost cannot be compared with that of direct clients
	socket   bool // the load connects to the proxy over a unix socket
	filled   bool // the keys are already written, so the load does not write them first
}

// work returns the usual workload: reads and writes of single keys. Most scenarios change one
// property of it with the function `change`.
func work(conns, depth int, change ...func(*load.Workload)) load.Workload {
	w := load.Workload{Conns: conns, Depth: depth, Keys: 1, Value: 100, KeySize: 20, Count: 10000, Reads: 90}
	for _, c := range change {
		c(&w)
	}
	return w
}

func visits(w *load.Workload) { w.Reads, w.Visit = 100, 5 }

var scenarios = []scenario{
	{id: "a", name: "50 connections", work: work(50, 1)},
	{id: "b", name: "1 connection", work: work(1, 1)},
	{id: "c", name: "50 connections, pipeline of 16", work: work(50, 16)},
	{id: "d", name: "1,000 connections", work: work(1000, 1)},
	{id: "e", name: "50 connections, multi-get of 20", work: work(50, 1, func(w *load.Workload) { w.Keys = 20 })},
	{id: "f", name: "50 connections, values of 64 KiB", work: work(50, 1, func(w *load.Workload) { w.Value, w.Count = 64<<10, 1000 })},
	{id: "g", name: "200 connections, values of 1 KiB, 50 % writes", work: work(200, 1, func(w *load.Workload) { w.Value, w.Reads = 1<<10, 50 })},
	{id: "h", name: "50 connections, paced at 40,000 a second", work: work(50, 1, func(w *load.Workload) { w.Rate = 40000 })},
	{id: "j", name: "50 connections, two copies of each key at Ringside", work: work(50, 1), replicas: true},
	{id: "p", name: "50 clients that come and go, a request is a visit: connect, 5 gets, close", work: work(50, 1, visits)},
	{id: "s", name: "scenario p over a unix socket", work: work(50, 1, visits), socket: true},
}

// ScenarioList describes the scenarios, one per line.
func ScenarioList() string {
	var b strings.Builder
	for _, s := range scenarios {
		fmt.Fprintf(&b, "  %s  %s\n", s.id, s.name)
	}
	return b.String()
}

// AllScenarios are the letters of all scenarios.
func AllScenarios() (letters string) {
	for _, s := range scenarios {
		letters += s.id
	}
	return letters
}

// pickScenarios returns the scenarios with the given letters. If rate is not 0, scenarios with a
// fixed rate have that rate.
func pickScenarios(letters string, rate float64) (picked []scenario, err error) {
	for _, letter := range letters {
		i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.id == string(letter) })
		if i < 0 {
			return nil, fmt.Errorf("no scenario %q: use letters of %s", letter, AllScenarios())
		}
		s := scenarios[i]
		if s.work.Rate > 0 && rate > 0 {
			s.work.Rate, s.name = rate, fmt.Sprintf("%d connections, paced at %.0f a second", s.work.Conns, rate)
		}
		picked = append(picked, s)
	}
	return picked, nil
}
