package e2e

// This file attacks keys with replicas: several instances, every command, servers that
// die, hang or become unreachable, and delayed packets. A broken promise of replication
// is printed with the history of its key.

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"ringside/internal/testenv"
)

// goal holds the counts that an assault must reach before it ends. Without any of them
// set, an assault is short.
var goal = struct{ deletes, appends, faults *int64 }{
	flag.Int64("deletes", 0, "deletes that each assault on copies wants answered"),
	flag.Int64("appends", 0, "appends that each assault on copies wants answered"),
	flag.Int64("faults", 0, "faults that an assault on copies with faults makes"),
}

func lengthy() bool { return *goal.deletes+*goal.appends+*goal.faults > 0 }

// assault is one way to attack replicas.
type assault struct {
	name   string
	driver string
	fronts int
	faults []string // faults to choose from; nil: only delayed packets
	moves  bool     // faults change server weights; in the full tier, an assault runs all of them in turn
	short  bool     // runs in every tier
	mixed  bool     // every second front is of the previous release
}

var assaults = []assault{
	{"late packets", "epoll", 2, nil, false, true, false},
	{"faults", "portable", 2, []string{"kill", "hang", "black hole", "kill, hang"}, false, false, false},
	{"faults, three ringsides", "epoll", 3, []string{"kill", "hang", "black hole", "kill, hang"}, false, true, false},
	{"weights", "epoll", 2, []string{"weights, there and back", "weights, hang", "weights, kill", "weights thrice"}, true, true, false},
	{"weights, three ringsides", "portable", 3, []string{"weights, there and back", "weights, hang", "weights, kill", "weights thrice"}, true, false, false}}

// TestAttacksOnCopies runs every assault. The default tier runs only those marked short,
// with fewer faults.
func TestAttacksOnCopies(t *testing.T) {
	t.Parallel()
	for _, a := range assaults {
		if !a.short && !testenv.Full() && !lengthy() {
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			rounds(t, testTolerance, func(t testing.TB) { a.play(t, seeded(t)) })
		})
	}
}

// play runs the assault in rounds. Each round uses its own keys.
func (a assault) play(t testing.TB, random *rand.Rand) {
	servers := startMemcacheds(t, 3)
	last := len(servers) - 1
	late := startForwarder(t, servers[last].address, true, random.Uint64())
	seen := slices.Clone(servers)
	seen[last] = &memcached{address: late}
	pool := []string{"timeouts: {connect: 1s, request: 500ms, deadline: 5s}"}
	if a.moves { // a handover needs about 26 pings
		pool = []string{"timeouts: {connect: 1s, request: 500ms, deadline: 1s}", "failover: {ping: 125ms}"}
	}
	settings := func(weights ...int) string {
		return weighed(seen, weights, pool...) +
			"routes:\n  - {pool: main, preset: sessions, replicas_on: server}\n"
	}
	weights := []int{1, 1, 1}
	var fronts []*ringside
	if a.mixed {
		fronts = startMixed(t, a.driver, a.fronts, settings(weights...))
		defer understands(t, fronts...)
	}
	for len(fronts) < a.fronts {
		fronts = append(fronts, startRingside(t, a.driver, settings(weights...)))
	}
	total, faults, broken := map[string]int64{}, map[string]int{}, map[byte]int{}
	var left, back, early int64
	for round, done := 0, false; !done; round++ {
		m := mix{prefix: fmt.Sprintf("%d.", round), kinds: "dvdalncra", alone: "vdr", think: 6 * time.Millisecond}
		h := startClientele(t, fronts, m, random.Uint64())
		h.settings, h.weights = settings, weights
		if a.faults == nil {
			h.more(t, 3000)
		}
		for i, next := range random.Perm(max(len(a.faults), 1)) {
			if a.faults == nil || !lengthy() && i == 2 && !(a.moves && testenv.Full()) {
				break
			}
			kind := a.faults[random.IntN(len(a.faults))]
			if a.moves && !lengthy() {
				kind = a.faults[next]
			}
			faults[h.harm(t, kind, servers, late, random)]++
		}
		h.halt()
		if h.trouble != nil {
			t.Error(h.trouble)
		}
		for _, b := range h.breaches() {
			broken[b.kind]++
			h.report(t, a, round, b)
		}
		weights = h.weights
		left += h.leftOut.Load()
		back += h.takenBack.Load()
		early += h.early.Load()
		for op, n := range h.done {
			total[op] += n.Load()
		}
		n := int64(0)
		for _, times := range faults {
			n += int64(times)
		}
		done = total["delete"] >= *goal.deletes && total["append"] >= *goal.appends && (a.faults == nil || n >= *goal.faults)
		if done || round%10 == 9 {
			t.Logf("%d rounds: answered %v; faults %v; keys broken, by kind: %v; %d late reads left out, %d keys with reads of what was not answered yet, %d numbers read that were taken back without an answer", round+1, total, faults, kindsOf(broken), left, early, back)
		}
		if t.Failed() && !lengthy() {
			return
		}
	}
}

func kindsOf(broken map[byte]int) map[string]int {
	all := map[string]int{}
	for kind, n := range broken {
		all[string(kind)] = n
	}
	return all
}

// report fails the test with the history of a breach and the faults of its round.
func (h *clientele) report(t testing.TB, a assault, round int, b breach) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	t.Errorf("%s, round %d: %s  faults of the round:\n    %s", a.name, round, b.trace, strings.Join(h.harms, "\n    "))
}

// lasts draws a random duration up to limit. Short ones are more likely.
func lasts(random *rand.Rand, limit time.Duration) time.Duration {
	const least = 300 * time.Millisecond
	if !lengthy() {
		limit = 1500 * time.Millisecond
	}
	return time.Duration(float64(least) * math.Pow(float64(limit)/float64(least), random.Float64()))
}

// harm injects one fault. It then waits until every server is in and no key has only one
// replica: see twofold. It returns the kind of the fault.
func (h *clientele) harm(t testing.TB, kind string, servers []*memcached, late string, random *rand.Rand) string {
	t.Helper()
	h.more(t, 500)
	a := random.IntN(len(servers))
	b := (a + 1 + random.IntN(len(servers)-1)) % len(servers)
	began := h.now()
	kill := func(i int) {
		servers[i].Kill()
		time.Sleep(lasts(random, 10*time.Second))
		servers[i].restart(t)
	}
	hang := func(i int) {
		servers[i].pause(t)
		time.Sleep(lasts(random, 20*time.Second))
		h.late(t, func() { servers[i].resume(t) })
	}
	switch kind {
	case "kill":
		kill(a)
	case "hang":
		hang(a)
	case "black hole":
		at := servers[a].address
		if a == len(servers)-1 {
			at = late
		}
		for _, r := range h.fronts {
			r.steer(t, "POST", "/control/faults", asJSON(t, map[string]any{"server": at, "kind": "partition"}))
		}
		time.Sleep(lasts(random, 10*time.Second))
		h.late(t, func() {
			for _, r := range h.fronts {
				r.lift(t)
			}
		})
	case "kill, hang":
		kill(a)
		hang(b)
	case "weights, kill", "weights, hang":
		h.reweigh(t, random, h.otherWeights(random))
		within(random, handoverTime)
		if kind == "weights, kill" {
			kill(a)
		} else {
			hang(a)
		}
		h.moved(t)
	case "weights, there and back":
		before := h.weights
		h.reweigh(t, random, h.otherWeights(random))
		if random.IntN(2) == 0 {
			h.moved(t)
		} else { // before all keys have moved
			within(random, handoverTime)
		}
		h.reweigh(t, random, before)
		h.moved(t)
	case "weights thrice": // each change starts before the previous one has finished
		for range 3 {
			h.reweigh(t, random, h.otherWeights(random))
			within(random, handoverTime)
		}
		h.moved(t)
	}
	h.mu.Lock()
	h.harms = append(h.harms, fmt.Sprintf("%v to %v: %s, servers %s and %s", time.Duration(began), time.Duration(h.now()), kind, servers[a].address, servers[b].address))
	h.mu.Unlock()
	h.twofold(t, servers)
	return kind
}

// handoverTime is about how long a reload needs to move all keys.
const handoverTime = 5 * time.Second

// weighed returns front's configuration with a weight for each server.
func weighed(servers []*memcached, weights []int, more ...string) string {
	text := front(servers, more...)
	for i, weight := range weights {
		at := fmt.Sprintf("      - %q\n", listenText(servers[i].address))
		text = strings.Replace(text, at, fmt.Sprintf("      - {address: %q, weight: %d}\n", listenText(servers[i].address), weight), 1)
	}
	return text
}

// otherWeights draws weights that differ from the current ones.
func (h *clientele) otherWeights(random *rand.Rand) []int {
	all := [][]int{{1, 1, 1}, {10, 1, 1}, {1, 10, 1}, {1, 1, 10}}
	all = slices.DeleteFunc(all, func(w []int) bool { return slices.Equal(w, h.weights) })
	return all[random.IntN(len(all))]
}

// reweigh reloads one front after the other with new weights.
func (h *clientele) reweigh(t testing.TB, random *rand.Rand, weights []int) {
	t.Helper()
	h.weights = weights
	h.mu.Lock()
	h.harms = append(h.harms, fmt.Sprintf("%v: weights %v", time.Duration(h.now()), weights))
	h.mu.Unlock()
	for _, i := range random.Perm(len(h.fronts)) {
		r := h.fronts[i]
		before := r.metric(t, reloadsDone)
		r.reload(t, h.settings(weights...))
		r.reloaded(t, reloadsDone, before)
		within(random, handoverTime/4)
	}
}

// within sleeps for a random time below limit.
func within(random *rand.Rand, limit time.Duration) {
	time.Sleep(time.Duration(random.Int64N(int64(limit))))
}

// moved waits until every front has moved all its keys. From then on, no front reads from
// the former servers.
func (h *clientele) moved(t testing.TB) {
	t.Helper()
	eventually(t, "keys are where the reload wants them", func() bool {
		return !slices.ContainsFunc(h.fronts, func(r *ringside) bool {
			log := r.Output()
			return strings.LastIndex(log, "replicated keys have all moved") < strings.LastIndex(log, "replicated keys move to other servers")
		})
	})
}

// late calls resume and waits until the requests that the server executes late are
// undone. It records that interval in lately.
func (h *clientele) late(t testing.TB, resume func()) {
	t.Helper()
	before := h.now()
	resume()
	undone(t, h.fronts)
	h.lately = append(h.lately, [2]int64{before, h.now()})
}

func asJSON(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// twofold waits until all servers are in and no live key has only one replica. Only then
// may a fault erase the memory of a server. A key must not be on a third server either,
// because that value could be read again later. Whether two replicas agree is checked by
// the history checker.
func (h *clientele) twofold(t testing.TB, servers []*memcached) {
	t.Helper()
	conns := make([]*conn, len(servers))
	for i, s := range servers {
		conns[i] = dial(t, s.address)
		defer conns[i].Close()
	}
	h.mu.Lock()
	keys := slices.Clone(h.live)
	h.mu.Unlock()
	for end := time.Now().Add(2 * patience); ; time.Sleep(20 * time.Millisecond) {
		keys = slices.DeleteFunc(keys, func(k *track) bool {
			copies := 0
			for _, c := range conns {
				if found, _ := c.get(k.key); len(found) > 0 {
					copies++
				}
			}
			return copies != 1 && copies <= 2 || k.left.Load() <= 0
		})
		calm := !slices.ContainsFunc(h.fronts, func(r *ringside) bool { return !r.calm() })
		switch {
		case calm && len(keys) == 0:
			return
		case time.Now().After(end) && !calm:
			t.Fatal("a server is suspect or not in, and all are well")
		case time.Now().After(end):
			// These keys were not repaired. Stop using them, and report them in breaches.
			for _, k := range keys {
				k.left.Store(-1)
				h.mu.Lock()
				h.unmended = append(h.unmended, k)
				h.mu.Unlock()
			}
			return
		}
	}
}

// startForwarder listens in front of a server. It delays one of every 50 pieces of data
// from the server by 200 ms, and with it all later data on that connection. If requests
// is set, it delays data to the server in the same way.
func startForwarder(t testing.TB, to string, requests bool, seed uint64) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(ownHost(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	carry := func(from, to *net.TCPConn, late bool, random *rand.Rand) {
		defer to.Close()
		defer from.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := from.Read(buf)
			if err != nil {
				return
			}
			if late && random.IntN(50) == 0 {
				time.Sleep(200 * time.Millisecond)
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
	}
	go func() {
		for n := seed; ; n += 2 {
			c, err := l.Accept()
			if err != nil {
				return
			}
			client := c.(*net.TCPConn)
			s, err := net.Dial("tcp", to)
			if err != nil {
				client.SetLinger(0)
				client.Close()
				continue
			}
			server := s.(*net.TCPConn)
			go carry(client, server, requests, rand.New(rand.NewPCG(n, 1)))
			go carry(server, client, true, rand.New(rand.NewPCG(n+1, 1)))
		}
	}()
	return l.Addr().String()
}
