package fleet

// The fleet's faults, and the parts of the protocol that can be left out.

import (
	"bytes"
	"regexp"
	"strings"

	"ringside/proxy/guard"
	"ringside/proxy/health"
	"ringside/proxy/health/divert"
)

// fault draws one, and when it ends.
func (f *fleet) fault() {
	kind := f.faults[f.rand.IntN(len(f.faults))]
	i := f.rand.IntN(len(f.nodes))
	if f.aimed {
		i = 0
	}
	if plot := plots[kind]; plot != nil {
		f.note("", "PLOT %s: s%d", kind, i)
		plot(f, i)
		return
	}
	n, s := f.nodes[i], f.sidecars[f.rand.IntN(len(f.sidecars))]
	lasts := f.upTo(6 * second)
	if f.aimed {
		lasts = second + f.upTo(4*second)
	}
	if f.brief || !f.aimed && f.one(3) {
		lasts = f.upTo(second)
	}
	until := f.now + lasts
	f.trouble = max(f.trouble, until)
	f.note("", "FAULT %s: s%d, p%d, until %.4f", kind, i, s.id, sec(until))
	each := func(which func(j int) bool, begin, end func(p *path)) {
		for j := range f.sidecars {
			if which(j) {
				p := f.paths[j][i]
				begin(p)
				f.at(until, func() { end(p) })
			}
		}
	}
	all := func(int) bool { return true }
	some := func(j int) bool { return f.sidecars[j] == s || f.one(3) }
	switch kind {
	case "cut": // from everybody
		each(all, (*path).cutOff, (*path).heal)
	case "links": // from some
		each(some, (*path).cutOff, (*path).heal)
	case "slow":
		by := f.upTo(slowed)
		each(some, func(p *path) { p.slow += by }, func(p *path) { p.slow -= by })
	case "hang":
		n.hang(until)
	case "kill":
		if !n.up {
			return
		}
		n.die()
		f.at(until, n.start)
	case "lose": // its record
		if n.up && !n.hung {
			n.store.Line().Do([]byte("delete " + viewKey + "\r\n"))
		}
	case "flush": // by a client, some time during another fault or what follows
		at := f.now + f.upTo(9*second)
		f.trouble = max(f.trouble, at+second)
		f.at(at, func() {
			a := f.apps[f.rand.IntN(len(f.apps))]
			a.todo = append(a.todo, a.flush)
		})
		f.fault()
	case "drain": // a person wants a server out, and back
		order := health.Drain
		if f.one(2) {
			order = health.Down
		}
		s.order("main", n, order)
		f.at(until, func() {
			for _, o := range f.sidecars { // who was told last may have died
				o.order("main", n, health.Restore)
			}
		})
	case "restart": // a proxy
		if s.dead {
			return
		}
		s.die()
		f.at(until, s.start)
	case "pause": // a proxy
		if s.dead || s.paused {
			return
		}
		s.pause()
		f.at(until, func() {
			if !s.dead && s.paused {
				s.resume()
			}
		})
	default:
		panic(kind)
	}
}

// slowed is the longest way of a packet on a slow path: more than a request may
// take.
const slowed = 300 * milli

// viewKey is where the record of the pool is.
const viewKey = divert.Reserved + "_view__:main"

// ablations leave out one part of the protocol each: most at the servers, where
// a request of that part is answered and not carried out.
type ablations struct {
	health.Ablation
	dual    bool // no dual writes: the second server does not delete
	late    bool // no delete behind late sets
	sameKey bool // diverted keys don't tell outages apart
	guard   guard.Ablation
	spoiled spoiler
}

func (a *ablations) any() bool { return *a != ablations{} }

// removal is how clients delete: so that late deletes (delete) and second deletes (md)
// can be told apart.
func (a *ablations) removal() string {
	if a.late {
		return "md %s\r\n"
	}
	return "delete %s\r\n"
}

// answer is that to a request that is not carried out; nil if it is.
func (a *ablations) answer(request []byte) []byte {
	switch {
	case a.dual && bytes.HasPrefix(request, []byte("md ")):
		answer := "HD"
		words := strings.Fields(string(request))
		for _, flag := range words[2:] {
			switch {
			case flag[0] == 'O':
				answer += " " + flag
			case flag == "k":
				answer += " k" + words[1]
			}
		}
		return []byte(answer + "\r\n")
	case a.late && bytes.HasPrefix(request, []byte("delete ")):
		return []byte("DELETED\r\n")
	}
	return nil
}

// change is the request as the server gets it.
func (a *ablations) change(request []byte) []byte {
	if request = a.spoiled.spoil(request); !a.sameKey {
		return request
	}
	return diverted.ReplaceAll(request, []byte(" "+oneOutage+"$2"))
}

// restore puts the names of request back into its answer: a Ringside checks that an answer
// names the key that was asked for.
func (a *ablations) restore(request, answer []byte) []byte {
	if !a.sameKey {
		return answer
	}
	for _, name := range diverted.FindAllSubmatch(request, -1) {
		for _, end := range []string{" ", "\r"} {
			answer = bytes.ReplaceAll(answer, []byte(oneOutage+string(name[2])+end), []byte(string(name[1])+string(name[2])+end))
		}
	}
	return answer
}

// diverted finds names of diverted keys in a request: their number, and the rest.
var diverted = regexp.MustCompile(` (` + divert.Reserved + `~[0-9a-z]+~)(\S+)`)

// oneOutage begins the names of all diverted keys when they don't tell outages apart.
const oneOutage = divert.Reserved + "~0~"
