package fleet

// The fleet's faults, and the parts of the protocol that can be disabled.

import (
	"bytes"
	"regexp"
	"strings"

	"ringside/proxy/ablation"
	"ringside/proxy/health"
	"ringside/proxy/health/divert"
)

// fault starts a random fault and schedules its end.
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
	n, s := f.nodes[i], f.someone()
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
	case "cut": // from all proxies
		each(all, (*path).cutOff, (*path).heal)
	case "links": // from some proxies
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
	case "lose": // loses its view record
		if n.up && !n.hung {
			n.store.Line().Do([]byte("delete " + viewKey + "\r\n"))
		}
	case "garble": // its view record can't be read
		if n.up && !n.hung {
			n.store.Line().Do([]byte("set " + viewKey + " 0 0 18\r\nrs2 something else\r\n"))
		}
	case "alone": // a proxy reaches only this server
		for j, p := range f.paths[s.id] {
			if j != i {
				p.cutOff()
				f.at(until, p.heal)
			}
		}
	case "stop": // of a proxy, which completes the commands that it has received
		s.stop()
	case "silence":
		f.silence()
	case "stuck", "garbage", "stray":
		f.badServer(kind, s, i, until)
	case "flush": // by a client, at some time during another fault or after it
		at := f.now + f.upTo(9*second)
		f.trouble = max(f.trouble, at+second)
		f.at(at, func() {
			a := f.apps[f.rand.IntN(len(f.apps))]
			a.todo = append(a.todo, a.flush)
		})
		f.fault()
	case "drain": // an operator drains a server and restores it
		order := health.Drain
		if f.one(2) {
			order = health.Down
		}
		s.order("main", n, order)
		f.at(until, func() {
			for _, o := range f.sidecars { // the proxy that got the override may have died
				o.order("main", n, health.Restore)
			}
		})
	case "restart": // of a proxy
		if s.dead {
			return
		}
		s.die()
		f.at(until, s.start)
	case "pause": // of a proxy
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

// slowed is the maximum additional delay of a packet on a slow path: longer than the
// request timeout.
const slowed = 300 * milli

// viewKey is the key of the pool's view record.
const viewKey = divert.Reserved + "_view__:main"

// ablations disable one part of the protocol each. Most do so at the servers: a request
// of that part gets a reply but is not executed.
type ablations struct {
	ablation.Set
	dual    bool // no dual writes: the second server does not delete
	late    bool // no delete after late sets
	sameKey bool // diverted keys of different outages have the same name
	former  bool // an instance that starts does not know the former servers
	items   bool // server lists are not stored on the servers
	spoiled spoiler
}

func (a *ablations) any() bool { return *a != ablations{} }

// removal returns the clients' delete command, chosen so that late deletes (delete)
// differ from second deletes (md).
func (a *ablations) removal() string {
	if a.late {
		return "md %s\r\n"
	}
	return "delete %s\r\n"
}

// answer returns the reply to a request that is not executed, or nil if it is executed.
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

// change returns the request as the server receives it.
func (a *ablations) change(request []byte) []byte {
	if request = a.spoiled.spoil(request); !a.sameKey {
		return request
	}
	return diverted.ReplaceAll(request, []byte(" "+oneOutage+"$2"))
}

// restore puts the names in request back into its reply, because an engine checks that
// a reply names the requested key.
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

// diverted matches names of diverted keys in a request: their number, and the rest.
var diverted = regexp.MustCompile(` (` + divert.Reserved + `~[0-9a-z]+~)(\S+)`)

// oneOutage is the prefix of all diverted keys if outages are not distinguished.
const oneOutage = divert.Reserved + "~0~"
