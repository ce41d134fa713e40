package health

// The clients of the simulation. Each proxy reads and writes keys as its phases
// require, and a judge checks every reply.

import (
	"cmp"
	"fmt"
	"strconv"

	"ringside/proxy/health/divert"
)

// keyState is what the judge knows about a key.
type keyState struct {
	name  string
	floor int64 // the latest start of an acknowledged write
}

// write is a mutation; its index is the value that it writes.
type write struct {
	key      *keyState
	invoked  int64
	answered int64 // 0: not yet answered
}

func (w *world) startClients() {
	for i := range hot + cold {
		w.keys = append(w.keys, &keyState{name: fmt.Sprintf("k%d", i)})
	}
	for _, p := range w.proxies {
		w.client(p)
	}
}

// Half of all requests use a few hot keys, the others many cold keys. Only cold keys
// have data left over from earlier phases.
const hot, cold = 6, 300

// client runs one operation after another.
func (w *world) client(p *proxy) {
	pace := cmp.Or(w.pace, 20*ms)
	w.after(pace/2+w.rand.Int64N(pace), func() {
		w.client(p)
		if p.dead {
			return
		}
		key, writes := w.keys[w.rand.IntN(hot)], 4
		if w.rand.IntN(2) == 0 {
			key, writes = w.keys[hot+w.rand.IntN(cold)], 1
		}
		switch draw := w.rand.IntN(10); {
		case draw < writes:
			w.mutate(p, key, false)
		case draw >= 8:
			w.mutate(p, key, true)
		default:
			w.read(p, key)
		}
	})
}

// route computes the route of key: its own server comes first, then the next servers or
// the gutter's.
func (w *world) route(p *proxy, key *keyState) Route {
	var path Path
	own := int(key.name[len(key.name)-1]) % w.pool
	done := path.Add(own, p.k.Verdict(own).N, p.k.Renamed(own))
	if w.gutter == 0 {
		for j := 1; j < w.pool && !done; j++ {
			s := (own + j) % w.pool
			done = path.Add(s, p.k.Verdict(s).N, p.k.Renamed(s))
		}
	}
	for j := 0; j < w.gutter && !done; j++ {
		s := w.pool + (own+j)%w.gutter
		done = path.Add(s, p.k.Verdict(s).N, p.k.Renamed(s))
	}
	return path.Route()
}

func (w *world) keyAt(key *keyState, place Place) string {
	number := place.Number
	if w.sameKey && place.Diverted {
		number = 1
	}
	return string(divert.AppendKey(nil, number, []byte(key.name)))
}

// usable reports whether a server may be used now, and checks the keeper's verdict.
func (w *world) usable(p *proxy, server int) bool {
	v := p.k.Verdict(server)
	if v.Suspect || w.now >= v.ValidUntil {
		return false
	}
	if w.set.Strict && p.k.strict() {
		w.checkLeases(p, server)
	}
	return true
}

// checkLeases fails if proxy p does not have the leases that it needs to use server.
func (w *world) checkLeases(p *proxy, server int) {
	have := 0
	for i := range w.nodes {
		if w.now < p.pinged[i]+int64(w.set.Lease) {
			have++
		}
	}
	need := len(w.nodes)/2 + 1
	if len(w.nodes) == 2 && PhaseOf(p.k.Verdict(1-server).N) == Out {
		need = 1
	}
	if have < need || w.now >= p.pinged[server]+int64(w.set.Lease) {
		w.fail("p%d serves from server %d with %d leases", p.id, server, have)
	}
}

// part is what an operation does on one server.
type part struct {
	place Place
	do    func(*node) string
	undo  func(*node) // of a mutation
}

// all sends the parts and reports whether all succeeded and may be acknowledged.
func (w *world) all(p *proxy, parts []part, done func(ok bool, answers []string)) {
	for _, x := range parts {
		if !w.usable(p, x.place.Server) {
			done(false, nil)
			return
		}
	}
	gen := p.k.Gen()
	left, ok := len(parts), true
	answers := make([]string, len(parts))
	for i, x := range parts {
		timedOut := false
		one := func(good bool) {
			ok = ok && good
			left--
			if left > 0 {
				return
			}
			for _, y := range parts {
				ok = ok && w.now < p.k.Verdict(y.place.Server).ValidUntil
			}
			ok = ok && p.k.Gen() == gen
			if !ok {
				w.undo(p, parts)
			}
			done(ok, answers)
		}
		w.send(p, x.place.Server, 0,
			func(n *node) string {
				answer := x.do(n)
				if timedOut && x.undo != nil {
					x.undo(n) // it was queued right after the request
				}
				return answer
			},
			func(answer string) {
				answers[i] = answer
				one(true)
			},
			func(bool) {
				timedOut = true
				one(false)
			})
	}
}

// undo deletes values that were stored but must not be acknowledged.
func (w *world) undo(p *proxy, parts []part) {
	for _, x := range parts {
		if x.undo != nil {
			w.send(p, x.place.Server, 0, func(n *node) string { x.undo(n); return "" }, func(string) {}, func(bool) {})
		}
	}
}

func (w *world) mutate(p *proxy, key *keyState, remove bool) {
	r := w.route(p, key)
	this := w.begin(key)
	var parts []part
	put := func(place Place) {
		name := w.keyAt(key, place)
		drop := func(n *node) { delete(n.items, name) }
		if remove {
			parts = append(parts, part{place: place, do: func(n *node) string { drop(n); return "" }})
			return
		}
		parts = append(parts, part{place: place, undo: drop, do: func(n *node) string {
			n.set(name, strconv.Itoa(this), 0, w.now)
			return ""
		}})
	}
	drop := func(place Place) {
		if w.single {
			return
		}
		name := w.keyAt(key, place)
		parts = append(parts, part{place: place, do: func(n *node) string { delete(n.items, name); return "" }})
	}
	switch r.Role {
	case In:
		put(r.First)
	case Returning:
		put(r.Interim)
		drop(r.First)
	case Warming, Settling:
		put(r.First)
		drop(r.Interim)
	case Leaving:
		w.end(this, false)
		return
	}
	w.all(p, parts, func(ok bool, _ []string) { w.end(this, ok) })
}

func (w *world) begin(key *keyState) int {
	w.writes = append(w.writes, write{key: key, invoked: w.now})
	return len(w.writes) - 1
}

func (w *world) end(this int, acked bool) {
	x := &w.writes[this]
	x.answered = w.now
	if acked {
		x.key.floor = max(x.key.floor, x.invoked)
	}
}

func (w *world) read(p *proxy, key *keyState) {
	r := w.route(p, key)
	floor := key.floor
	w.gets++
	get := func(place Place, then func(value string)) {
		name := w.keyAt(key, place)
		w.all(p, []part{{place: place, do: func(n *node) string {
			it, _ := n.get(name, w.now)
			return it.value
		}}}, func(ok bool, answers []string) {
			if ok {
				then(answers[0])
			}
		})
	}
	judge := func(value string) {
		if value != "" {
			w.judge(p, key, r, value, floor)
		}
	}
	switch r.Role {
	case In, Settling:
		get(r.First, judge)
	case Returning:
		get(r.Interim, judge)
	case Warming:
		gen := p.k.Gen()
		get(r.First, func(value string) {
			if value == "" && p.k.Gen() == gen {
				get(r.Interim, judge)
			} else {
				judge(value)
			}
		})
	}
}

// judge checks whether a value is stale. It is stale if its write had been answered
// before another write began that was acknowledged before the get.
func (w *world) judge(p *proxy, key *keyState, r Route, value string, floor int64) {
	w.hits++
	n, err := strconv.Atoi(value)
	if err != nil {
		w.fail("p%d read %q", p.id, value)
	}
	x := w.writes[n]
	if x.key != key {
		w.fail("p%d read %s and got a value of %s", p.id, key.name, x.key.name)
	}
	if x.answered != 0 && x.answered < floor {
		w.note("STALE p%d %s route %+v", p.id, key.name, r)
		w.stale = append(w.stale, fmt.Sprintf("p%d %s, at %.3f: written at %.3f, answered at %.3f, newer acknowledged write at %.3f",
			p.id, key.name, float64(w.now)/1e9, float64(x.invoked)/1e9, float64(x.answered)/1e9, float64(floor)/1e9))
	}
}
