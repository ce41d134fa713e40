package fleet

// Faults of several steps: something happens before something else has ended.

import (
	"bytes"
	"fmt"
	"slices"

	"ringside/proxy/health"
	"ringside/proxy/health/resize"
	"ringside/proxy/table"
)

// plot is such a fault. i is a random server for it.
type plot func(f *fleet, i int)

var plots = map[string]plot{
	// No fault: violations must not occur without one either; only the timing varies.
	"nothing": func(f *fleet, _ int) { f.lasts(5 * second) },

	// Too short for an ejection.
	"blink": func(f *fleet, i int) {
		if f.one(2) {
			f.lasts(f.killFor(i, 200*milli, 400*milli))
		} else {
			f.lasts(f.hangFor(i, 500*milli, 900*milli))
		}
	},

	// Two rounds of rolling restarts.
	"roll": func(f *fleet, i int) { f.roll(i, 0, false) },

	// The same. Every second restart is so short that the server starts empty.
	"roll, some empty": func(f *fleet, i int) { f.roll(i, 0, true) },

	// The same, and in between a proxy is restarted.
	"roll, some empty, restart": func(f *fleet, i int) { f.roll(i, 1, true) },

	// The same, and in between a proxy is restarted.
	"roll, restart": func(f *fleet, i int) { f.roll(i, 1, false) },

	// The same, and after half of the servers a proxy is restarted.
	"roll, restarts": func(f *fleet, i int) { f.roll(i, f.servers, false) },

	// A server is flushed. Before it is filled, a proxy is restarted, and another server.
	"flush, restart both": func(f *fleet, i int) {
		f.lasts(15 * second)
		back := f.killFor(i, 4*second, 5*second)
		f.after(back+f.between(5*second, 8*second), func() {
			s := f.someone()
			if s.dead {
				return
			}
			s.restart(100 * milli)
			f.after(f.between(1200*milli, 3*second), func() { f.lasts(f.killFor(f.other(i), 3*second, 5*second)) })
		})
	},

	// A server restarts empty. Before it is filled, another one hangs.
	"kill, hang": func(f *fleet, i int) {
		back := f.killFor(i, 200*milli, 1200*milli)
		f.lasts(back + 2*second)
		f.after(back+100*milli+f.upTo(2*second), func() { f.lasts(f.hangFor(f.other(i), 2*second, 4*second)) })
	},

	// A server hangs. When it resumes, and executes the waiting requests and their late
	// deletes, another one restarts empty.
	"hang, kill": func(f *fleet, i int) {
		long := f.hangFor(i, 300*milli, 600*milli)
		f.after(long+f.upTo(100*milli), func() { f.lasts(f.killFor(f.other(i), 100*milli, 300*milli)) })
		f.lasts(long + 100*milli)
	},

	// A server is down, and the others hang again and again.
	"kill, hangs": func(f *fleet, i int) {
		f.lasts(f.killFor(i, 6*second, 7*second))
		for at := 2 * second; at < 6*second; at += second {
			f.after(at, func() { f.hangFor(f.other(i), 250*milli, 500*milli) })
		}
	},

	// Servers hang one after the other.
	"hangs": func(f *fleet, i int) {
		var next func(left int)
		next = func(left int) {
			long := f.hangFor(i, 300*milli, 2500*milli)
			f.lasts(long)
			if left > 1 {
				i = f.other(i)
				f.after(long+f.upTo(500*milli), func() { next(left - 1) })
			}
		}
		next(4)
	},

	// A server hangs and must be ejected: the others have everything that was
	// acknowledged.
	"hang on": func(f *fleet, i int) {
		long := f.hangFor(i, 12*second, 13*second)
		f.lasts(long)
		f.after(8*second, func() {
			for _, s := range f.sidecars {
				if health.PhaseOf(s.members[i].Number) == health.In {
					f.harmed(stays, "", "p%d has s%d in after it was silent for 8 s", s.id, i)
				}
			}
		})
	},

	// All servers hang at once.
	"hang all": func(f *fleet, _ int) {
		for j := range f.nodes {
			f.lasts(f.hangFor(j, 250*milli, 500*milli))
		}
	},

	// A proxy pauses in the middle of an unlock, until the tombstones of the unlock
	// have expired and other clients have had the lock.
	"unlock, pause": func(f *fleet, i int) {
		s := f.sidecars[i%len(f.sidecars)]
		limit := f.now + second
		var seek func()
		seek = func() {
			unlocks := slices.ContainsFunc(f.apps, func(a *app) bool { return a.s == s && a.op != nil && a.op.kind == "unlock" })
			switch {
			case unlocks:
				f.note("", "FAULT pause: p%d", s.id)
				s.pause()
				f.after(f.between(5*second, 6*second), s.resume)
			case f.now < limit:
				f.after(f.upTo(milli), seek)
			}
		}
		seek()
		f.lasts(8 * second)
	},

	// A server evicts half of the clients' values.
	"evict": func(f *fleet, i int) {
		f.evict(i)
		f.lasts(second)
	},
	"evict, hang": func(f *fleet, i int) {
		f.evict(i)
		f.after(f.upTo(50*milli), func() { f.lasts(f.hangFor(f.other(i), 500*milli, 900*milli)) })
		f.lasts(second)
	},

	// An operator takes a server out and restores it. Right before that, clients read
	// there what another server has evicted. Right after it, other clients delete these
	// keys and wait.
	"evict, drain": func(f *fleet, i int) {
		leaves, s := f.nodes[(i+1)%f.servers], f.sidecars[0]
		f.evict(i)
		f.evict(i)
		ask := func(from int, of func(a *app, k *fkey) *op) {
			for j, k := range f.values {
				a := f.apps[from+j]
				a.todo = append(a.todo, func() *op { return of(a, k) })
			}
		}
		ask(0, (*app).getOf)
		f.after(20*milli, func() {
			s.order("main", leaves, health.Drain)
			ask(len(f.values), (*app).removeOf)
		})
		f.after(3*second, func() { s.order("main", leaves, health.Restore) })
		f.lasts(3 * second)
	},

	// An operator takes a server out of the other pool and restores it. It is flushed,
	// and another server may hang before it is filled.
	"drain beside, hang": func(f *fleet, i int) {
		back := f.drainBeside(i)
		f.after(back+f.upTo(5*second), func() { f.lasts(f.hangFor(f.other(i), 2*second, 4*second)) })
		f.lasts(back + 5*second)
	},
	"drain, hang beside": func(f *fleet, i int) {
		f.sidecars[0].order("main", f.nodes[i], health.Drain)
		f.after(2*second, func() { f.lasts(f.hangFor(f.other(i), 2*second, 4*second)) })
		f.after(8*second, func() { f.sidecars[0].order("main", f.nodes[i], health.Restore) })
		f.lasts(8 * second)
	},

	// A server restarts at once and counts its cas from one.
	"bounce": func(f *fleet, i int) { f.lasts(f.killFor(i, 10*milli, 40*milli)) },

	// One proxy reaches only one server, and the others all but that one.
	"split": func(f *fleet, i int) {
		long := f.between(10*second, 12*second)
		for j, row := range f.paths {
			for k, p := range row {
				if (j == 0) != (k == i) {
					p.cutOff()
					f.after(long, p.heal)
				}
			}
		}
		f.lasts(long)
	},

	// The first server is drained at a proxy, ends when that proxy shows it as out, and is empty at another address. Then it is restored.
	"drain, replace": func(f *fleet, _ int) { f.replaceDrained() },

	// The same, and proxies are suspended meanwhile.
	"drain, replace, pauses": func(f *fleet, _ int) {
		f.replaceDrained()
		for range 4 {
			s, at := f.someone(), f.upTo(5*second)
			f.after(at, func() {
				if !s.dead && !s.paused {
					s.pause()
					f.after(f.between(300*milli, 1500*milli), s.resume)
				}
			})
		}
	},

	// An operator drains a server at the last proxy, and restores it.
	"drain at the last": func(f *fleet, i int) {
		s := f.sidecars[len(f.sidecars)-1]
		s.order("main", f.nodes[i], health.Drain)
		long := f.between(7*second, 9*second)
		f.after(long, func() { s.order("main", f.nodes[i], health.Restore) })
		f.lasts(long)
	},

	// A proxy is cut off from all servers. The packets it has sent arrive late.
	"isolate": func(f *fleet, i int) {
		s := f.sidecars[i%len(f.sidecars)]
		long := f.between(500*milli, 3*second)
		f.note("", "FAULT isolate: p%d, until %.4f", s.id, sec(f.now+long))
		for _, p := range f.paths[s.id] {
			p.cutOff()
			p.keeps = true
			f.after(long, p.heal)
		}
		f.lasts(long + 2*second)
	},

	// A server is cut off, and the others have reached the same cas numbers.
	"even, cut": func(f *fleet, i int) {
		for last := f.nodes[i].cas(); f.nodes[1-i].cas() < last; {
		}
		long := f.between(3*second, 5*second)
		for j := range f.sidecars {
			p := f.paths[j][i]
			p.cutOff()
			f.after(long, p.heal)
		}
		f.lasts(long)
	},

	// A proxy ends while its clients rebuild evicted values.
	"evict, restart": func(f *fleet, i int) {
		for j := range f.nodes {
			f.evict(j)
		}
		s := f.sidecars[i%len(f.sidecars)]
		f.after(f.upTo(200*milli), func() {
			if !s.dead {
				s.restart(300 * milli)
			}
		})
		f.lasts(second)
	},

	// A server ends and another one starts at its address. The new one has run for long
	// and has different values under the same keys.
	"stranger": func(f *fleet, i int) { f.strangerAt(i, 50*milli, 300*milli) },
	"strangers": func(f *fleet, i int) {
		f.strangerAt(i, 50*milli, 300*milli)
		f.strangerAt(f.other(i), 50*milli, 300*milli)
	},
	"stranger at once": func(f *fleet, i int) { f.strangerAt(i, milli, 10*milli) }, // no connection is refused
	"stranger, hang": func(f *fleet, i int) {
		f.strangerAt(i, 50*milli, 300*milli)
		f.after(f.upTo(second), func() { f.lasts(f.hangFor(f.other(i), 250*milli, 5*second)) })
	},

	// A server is removed from the configuration and added again.
	"reload": func(f *fleet, i int) {
		f.reload(func(l *layout) { l.gone = i })
		back := 2*second + f.upTo(3*second)
		f.after(back, func() { f.reload(func(l *layout) { l.gone = -1 }) })
		f.lasts(back + second)
	},

	// A server is removed from the configuration while it is out, or begins to return. One proxy gets that
	// configuration much earlier than the others. In between, the server replies again.
	"hang, take out, the others later": func(f *fleet, i int) {
		at := f.between(5*second, 6*second)
		f.after(at, func() { f.takeOutFirst(i) })
		f.hangFor(i, at, at+second)
		f.lasts(at + 4*moving)
	},
	"take out, the others later": func(f *fleet, i int) {
		f.takeOutFirst(i)
		f.lasts(4 * moving)
	},
	"hang, return, take out, the others later": func(f *fleet, i int) {
		at := f.hangFor(i, 5*second, 6*second) + f.upTo(3*second)
		f.after(at, func() { f.takeOutFirst(i) })
		f.lasts(at + 4*moving)
	},

	// The first proxy puts the server back soon.
	"take out, put back": func(f *fleet, i int) {
		f.takeOutFirst(i)
		f.after(f.upTo(second), func() { f.reload(func(l *layout) { l.gone = -1 }) })
		f.lasts(4 * moving)
	},

	// Weights change. Later a server is removed from the configuration.
	"reweigh, take out": func(f *fleet, i int) {
		f.reload(reweigh)
		at := f.between(5*second, moving)
		f.after(at, func() { f.reload(func(l *layout) { l.gone = i }) })
		f.lasts(at + 4*moving)
	},

	// A server is removed from the configuration. Before all keys have moved, another
	// one hangs.
	"take out, hang": func(f *fleet, i int) {
		f.reload(func(l *layout) { l.gone = i })
		at := f.upTo(moving)
		f.after(at, func() { f.lasts(f.hangFor(f.other(i), 2*second, 4*second)) })
		f.lasts(at + second)
	},

	// Weights change while a server is down, which restarts empty.
	"reweigh": func(f *fleet, i int) {
		back := f.killFor(i, 4*second, 6*second)
		f.after(2*second+f.upTo(second), func() { f.reload(reweigh) })
		f.lasts(back)
	},

	// Weights change. Before all keys have moved, a server restarts empty, or hangs.
	"reweigh, kill": func(f *fleet, i int) {
		f.reload(reweigh)
		at := f.upTo(moving)
		f.after(at, func() { f.lasts(f.killFor(i, 200*milli, 5*second)) })
		f.lasts(at + second)
	},
	"reweigh, hang": func(f *fleet, i int) {
		f.reload(reweigh)
		at := f.upTo(moving)
		f.after(at, func() { f.lasts(f.hangFor(i, 200*milli, 3*second)) })
		f.lasts(at + second)
	},

	// Weights change. Before all keys have moved, proxies crash, and are started again at once. Later weights change back, so
	// that keys return to servers where they may have been left.
	"reweigh, crash": func(f *fleet, i int) {
		f.reload(reweigh)
		for _, s := range f.sidecars {
			if f.one(2) || s.id == 0 {
				f.after(f.between(600*milli, moving*3/2), func() { s.restart(50 * milli) })
			}
		}
		at := f.between(5*moving/2, 3*moving)
		f.after(at, func() { f.reload(reweigh) })
		f.lasts(at + second)
	},

	// Weights change, and change back while keys are about to move. Of two proxies, the second reload removes server i instead. The second reload is delayed. Meanwhile proxies crash, and are started
	// again with its configuration. Later weights change once more, so that keys return to servers where they may have been left.
	"reweigh, back, crash": func(f *fleet, i int) {
		f.reload(reweigh)
		var back func()
		back = func() {
			for _, s := range f.sidecars {
				if s.snapshot().Unsettled == 0 {
					f.after(20*milli, back)
					return
				}
			}
			further := reweigh
			if len(f.sidecars) == 2 {
				further = func(l *layout) { l.gone = i }
			}
			f.after(f.upTo(4*second), func() {
				f.reload(further)
				for _, s := range f.sidecars {
					if f.one(2) || s.id == 0 {
						f.after(f.upTo(500*milli), func() { s.restart(50 * milli) })
					}
				}
			})
		}
		f.after(second, back)
		at := f.between(5*moving, 6*moving)
		f.after(at, func() {
			f.reload(func(l *layout) { l.reweighed, l.gone = !l.reweighed, -1 })
		})
		f.lasts(at + second)
	},

	// Weights change, and change back after all keys have moved.
	"reweigh twice": func(f *fleet, i int) {
		f.reload(reweigh)
		at := f.between(2*moving, 3*moving)
		f.after(at, func() { f.reload(reweigh) })
		f.lasts(at + second)
	},

	// The configuration changes while a server is out that still has its values.
	"hang, weights and mode": func(f *fleet, i int) {
		f.outageWith(i, func(l *layout) { l.reweighed, l.plain = true, true })
	},
	"hang, mode, weights": func(f *fleet, i int) {
		f.outageWith(i, func(l *layout) { l.plain = true }, reweigh)
	},
	"hang, take out another and mode": func(f *fleet, i int) {
		f.outageWith(i, func(l *layout) { l.gone, l.plain = f.other(i), true })
	},
	"hang, take out, put back and mode": func(f *fleet, i int) {
		f.outageWith(i, func(l *layout) { l.gone = i }, func(l *layout) { l.gone, l.plain = -1, true })
	},
	"hang, rename": func(f *fleet, i int) {
		f.outageWith(i, func(l *layout) { l.renamed = true })
	},
	"hang, rename and mode": func(f *fleet, i int) {
		f.outageWith(i, func(l *layout) { l.renamed, l.plain = true, true })
	},
	"hang, rename, rename back": func(f *fleet, i int) {
		f.outageWith(i, func(l *layout) { l.renamed = true }, func(l *layout) { l.renamed = false })
	},
	"hang, rename server": func(f *fleet, i int) {
		f.outageWith(i, func(l *layout) { l.aliased = i + 1 })
	},
	"hang, rename server and mode": func(f *fleet, i int) {
		f.outageWith(i, func(l *layout) { l.aliased, l.plain = i+1, true })
	},
	"hang, mode": func(f *fleet, i int) {
		f.outageWith(i, func(l *layout) { l.plain = true })
	},

	// The pool had the other name before, and an outage then.
	"hang, rename, hang, rename": func(f *fleet, i int) {
		f.reload(func(l *layout) { l.renamed = true })
		f.after(3*second, func() { f.hangFor(i, 5*second, 6*second) })
		f.after(40*second, func() { f.reload(func(l *layout) { l.renamed = false }) })
		f.after(50*second, func() { f.outageWith(i, func(l *layout) { l.renamed = true }) })
		f.lasts(60 * second)
	},

	// The list of servers changes, and changes back after all instances use it.
	"resize": func(f *fleet, i int) {
		f.reload(func(l *layout) { l.gone = i })
		at := f.between(moving, 2*moving)
		f.after(at, func() { f.reload(func(l *layout) { l.gone = -1 }) })
		f.lasts(at + f.settles())
	},
	"resize, weights": func(f *fleet, i int) {
		f.reload(reweigh)
		at := f.upTo(2 * moving)
		f.after(at, func() { f.reload(reweigh) })
		f.lasts(at + f.settles())
	},
	"resize, hang": func(f *fleet, i int) {
		f.reload(func(l *layout) { l.gone = i })
		at := f.between(moving, 2*moving)
		f.after(f.upTo(moving), func() { f.hangFor(f.other(i), 200*milli, 3*second) })
		f.after(at, func() { f.reload(func(l *layout) { l.gone = -1 }) })
		f.lasts(at + f.settles())
	},
	"resize, kill": func(f *fleet, i int) {
		f.reload(reweigh)
		at := f.between(moving, 3*moving)
		f.after(f.upTo(moving), func() { f.killFor(i, 200*milli, 3*second) })
		f.after(at, func() { f.reload(reweigh) })
		f.lasts(at + f.settles())
	},

	// A server hangs for so long that it is ejected in mode fail_fast, too.
	"resize, long hang": func(f *fleet, i int) {
		f.reload(reweigh)
		begin := f.between(moving/2, 2*moving)
		f.after(begin, func() { f.hangFor(i, 62*second, 80*second) })
		at := begin + f.between(80*second, 100*second)
		f.after(at, func() { f.reload(reweigh) })
		f.lasts(at + f.settles())
	},

	// The list of servers changes. One instance is restarted with it, and the others are reloaded much
	// later.
	"resize, restart": func(f *fleet, i int) {
		at := int64(0)
		for _, gone := range []int{i, -1} {
			f.after(at, func() {
				f.gone = gone
				f.edition++
				first := f.someone()
				f.note("", "RELOAD %+v", f.layout)
				first.restart(50 * milli)
				for _, s := range f.sidecars {
					if s != first {
						f.after(f.upTo(moving), s.reload)
					}
				}
			})
			f.lasts(at + moving + f.settles())
			at += f.between(2*moving, 4*moving)
		}
	},

	// The list of servers changes. In the middle of the change it changes again, and some instances are
	// restarted with the third list.
	"resize, third": func(f *fleet, i int) {
		f.reload(func(l *layout) { l.gone = i })
		at := f.between(moving/2, 2*moving)
		f.after(at, func() {
			reweigh(&f.layout)
			f.edition++
			f.note("", "RESTARTS with %+v", f.layout)
			known := f.rand.IntN(len(f.sidecars))
			for j, s := range f.sidecars {
				if j == known || f.rand.IntN(3) == 0 {
					f.after(f.upTo(second), s.reload)
				} else {
					f.after(f.upTo(second), func() { s.restart(50 * milli) })
				}
			}
		})
		f.lasts(at + 2*f.settles())
	},

	// The list of servers changes. When the first instance begins to move keys, another one gets the former list back,
	// or a third one. The others get the same one later.
	"resize, back": func(f *fleet, i int) {
		f.reload(func(l *layout) { l.gone = i })
		third := f.rand.IntN(3) == 0
		f.lasts(4*moving + 2*f.settles())
		var wait func()
		wait = func() {
			begun, other := false, f.sidecars[0]
			for _, s := range f.sidecars {
				for _, w := range s.p.Agents() {
					if w.View.Resize().Stage() == resize.Stable {
						other = s
					} else {
						begun = true
					}
				}
			}
			if !begun {
				f.after(milli, wait)
				return
			}
			if f.gone = -1; third {
				reweigh(&f.layout)
			}
			f.edition++
			f.note("", "BACK %+v", f.layout)
			other.reload()
			for _, s := range f.sidecars {
				if s != other {
					f.after(f.upTo(2*moving), s.reload)
				}
			}
		}
		f.after(second, wait)
	},

	// The list of servers changes, and changes back while keys move, up to three times.
	"resize, turn":          func(f *fleet, i int) { f.turn(i, func() {}) },
	"resize, turn, hang":    func(f *fleet, i int) { f.turn(i, func() { f.hangFor(f.rand.IntN(f.servers), 200*milli, 3*second) }) },
	"resize, turn, kill":    func(f *fleet, i int) { f.turn(i, func() { f.killFor(f.rand.IntN(f.servers), 200*milli, 3*second) }) },
	"resize, turn, restart": func(f *fleet, i int) { f.turn(i, func() { f.someone().restart(f.between(50*milli, 2*second)) }) },
	"resize, turn, pause": func(f *fleet, i int) {
		f.turn(i, func() {
			s := f.someone()
			f.note("", "PAUSE p%d", s.id)
			s.pause()
			f.after(f.between(200*milli, 6*second), s.resume)
		})
	},

	// The pool stops to fill from the other one, and goes on later. Instances are reloaded seconds apart.
	"stop fill": func(f *fleet, i int) { f.stopFill(func() {}) },
	"stop fill, hang": func(f *fleet, i int) {
		f.stopFill(func() { f.hangFor(f.rand.IntN(len(f.nodes)), 200*milli, 3*second) })
	},

	// All servers are replaced, and then replaced by the first ones. Instances are restarted or reloaded with the
	// new list and the former one, one after the other.
	"replace": func(f *fleet, i int) { f.replaceAll(func() {}) },
	"replace, hang": func(f *fleet, i int) {
		f.replaceAll(func() { f.hangFor(f.rand.IntN(len(f.nodes)), 200*milli, 3*second) })
	},
	"replace, kill": func(f *fleet, i int) {
		f.replaceAll(func() { f.killFor(f.rand.IntN(len(f.nodes)), 200*milli, 3*second) })
	},

	// A server keeps its name and gets another address, and then a third one, or its former one. One of the servers at these
	// addresses fails meanwhile. An instance may be restarted, and may know the former list (warm_from).
	"readdress, kill": func(f *fleet, i int) {
		f.readdress(func(l *layout) { l.at = 1 }, func() { f.killFor(i, 200*milli, 8*second) })
	},
	"readdress, hang": func(f *fleet, i int) {
		f.readdress(func(l *layout) { l.at = 1 }, func() { f.hangFor(i, 200*milli, 8*second) })
	},

	// Two servers exchange their names.
	"swap": func(f *fleet, i int) {
		f.readdress(func(l *layout) { l.swapped = true }, func() { f.hangFor(i, 200*milli, 8*second) })
	},

	// Keys get fewer replicas, and then more again.
	"fewer": func(f *fleet, i int) {
		f.reload(func(l *layout) { l.fewer = true })
		at := f.between(moving, 2*moving)
		f.after(at, func() { f.reload(func(l *layout) { l.fewer = false }) })
		f.after(at+f.upTo(moving), func() { f.lasts(f.killFor(i, 200*milli, 5*second)) })
		f.lasts(at + moving)
	},

	// The same, but no server fails. Each time, one proxy gets that configuration some seconds before the others.
	"fewer, the others later": func(f *fleet, i int) {
		f.fewerFirst(0, moving/3)
	},

	// The same, but the others get it so late that only the list of instances shows the difference.
	"fewer, the others much later": func(f *fleet, i int) {
		f.fewerFirst(moving/2, 2*moving)
	},
}

// outageWith lets a server hang until it is out, and applies changes to the configuration
// meanwhile. The server goes on some time after the last one.
func (f *fleet) outageWith(i int, changes ...func(l *layout)) {
	at := f.between(5*second, 6*second)
	for _, change := range changes {
		f.after(at, func() { f.reload(change) })
		at += f.between(600*milli, 3*second)
	}
	f.lasts(f.hangFor(i, at, at+second))
}

// stopFill sets the rate of the pool that fills to 0, and later back, three times: see the plot "stop fill".
func (f *fleet) stopFill(fault func()) {
	at := int64(0)
	for range 6 {
		f.after(at, func() {
			f.unread = !f.unread
			f.edition++
			f.note("", "RELOAD %+v", f.layout)
			for _, s := range f.sidecars {
				f.after(f.upTo(2*second), s.reload)
			}
		})
		f.after(at+f.upTo(3*second), fault)
		at += f.between(500*milli, 6*second)
	}
	f.lasts(at + 6*second)
}

// replaceAll replaces all servers, and then replaces them by the first ones: see the plot "replace". fault causes a
// fault, once for each change.
func (f *fleet) replaceAll(fault func()) {
	at := int64(0)
	for _, replaced := range []bool{true, false} {
		f.after(at, func() {
			f.replaced = replaced
			f.edition++
			f.note("", "REPLACE %+v", f.layout)
			f.after(f.upTo(5*moving), fault)
			for _, s := range f.sidecars {
				f.after(f.upTo(2*moving), func() {
					if f.one(3) {
						s.reload()
						return
					}
					s.restart(50 * milli)
				})
			}
			if f.one(2) { // one is restarted while keys move
				f.after(2*moving+f.upTo(3*moving), func() { f.someone().restart(50 * milli) })
			}
		})
		f.lasts(at + 2*moving + f.settles())
		at += f.between(4*moving, 8*moving)
	}
}

// readdress applies a change to the configuration, and later takes it back or gives the first server another address.
// fault causes a fault, once for each change.
func (f *fleet) readdress(change func(l *layout), fault func()) {
	at := int64(0)
	for range 2 {
		f.after(at, func() {
			f.reload(func(l *layout) {
				was := l.at
				if change(l); f.one(2) {
					l.from = 1 + was
				}
				if l.from == 1+l.at || l.swapped {
					l.from = 0
				}
			})
			if change = func(l *layout) { l.swapped, l.at = false, 0 }; f.one(2) {
				change = func(l *layout) { l.swapped, l.at = false, 2 }
			}
			f.after(f.upTo(3*moving), fault)
			if f.one(2) {
				f.after(moving/2+f.upTo(3*moving), func() { f.someone().restart(50 * milli) })
			}
		})
		f.lasts(at + 3*f.settles()) // an instance that is restarted does not know the list in force, so each stage lasts longer
		at += f.between(moving, 6*moving)
	}
}

// moving is the approximate time until keys have moved after a reload.
const moving = 9 * second

// settles returns how long a change of the list of servers may last, and another one that waits for it.
func (f *fleet) settles() int64 {
	if f.resize == table.ResizeWarm {
		return 7 * moving
	}
	return 2 * moving
}

// takeOutFirst removes server i from the configuration. One proxy gets that configuration much earlier
// than the others.
func (f *fleet) takeOutFirst(i int) {
	f.reloadFirst(func(l *layout) { l.gone = i }, 2*moving, 3*moving)
}

// fewerFirst gives keys fewer replicas, and more again when they have moved. One proxy gets each configuration earlier than the others, by a
// time between from and to.
func (f *fleet) fewerFirst(from, to int64) {
	f.reloadFirst(func(l *layout) { l.fewer = true }, from, to)
	at := to + f.between(3*moving/2, 3*moving)
	f.after(at, func() { f.reloadFirst(func(l *layout) { l.fewer = false }, from, to) })
	f.lasts(at + to + 3*moving)
}

// reloadFirst gives all proxies another configuration. One proxy gets it earlier than the others, by a time between from and to.
func (f *fleet) reloadFirst(change func(l *layout), from, to int64) {
	change(&f.layout)
	f.edition++
	first := f.someone()
	f.note("", "RELOAD p%d with %+v", first.id, f.layout)
	first.reload()
	for _, s := range f.sidecars {
		if s != first {
			f.after(from+f.upTo(to-from), s.reload)
		}
	}
}

// turn removes server i, or changes the weights, or replaces all servers (scenario.others). Whenever keys move, that is taken back, up to
// three times. Instances are reloaded up to a second apart, or up to three. The function fault is called at some time.
func (f *fleet) turn(i int, fault func()) {
	weights, apart := f.one(2), second
	if f.others {
		apart = 3 * second
	}
	left, first, waits := 2+f.rand.IntN(3), true, false
	lasts := f.now + int64(left)*3*moving
	f.lasts(lasts - f.now + 2*f.settles())
	var look func()
	look = func() {
		is := resize.Status{}
		for _, s := range f.sidecars {
			for _, w := range s.p.Agents() {
				is.State = resize.Merge(is.State, w.View.Resize().State)
				if is := w.View.Resize(); is.Serves() == resize.Turning || is.Reversed() {
					f.turned = 1
				}
			}
		}
		switch {
		case left > 0 && (is.Stage() == resize.Pause || first) && !waits:
			first, waits = false, true
			f.after(f.upTo(2*second), func() {
				switch {
				case f.others:
					f.replaced = !f.replaced
				case weights:
					reweigh(&f.layout)
				case f.gone == i:
					f.gone = -1
				default:
					f.gone = i
				}
				left--
				f.edition++
				f.note("", "RELOAD %+v", f.layout)
				for _, s := range f.sidecars {
					f.after(f.upTo(apart), s.reload)
				}
			})
		case is.Stage() != resize.Pause:
			waits = false
		}
		if f.now < lasts {
			f.after(100*milli, look)
		}
	}
	look()
	f.after(f.upTo(2*moving), fault)
}

func reweigh(l *layout) { l.reweighed = !l.reweighed }

// lasts records that a fault lasts for d.
func (f *fleet) lasts(d int64) { f.trouble = max(f.trouble, f.now+d) }

// between returns a random time between least and most.
func (f *fleet) between(least, most int64) int64 { return least + f.upTo(most-least) }

// other returns a random server that is not i.
func (f *fleet) other(i int) int { return (i + 1 + f.rand.IntN(f.servers-1)) % f.servers }

// someone returns a random proxy.
func (f *fleet) someone() *sidecar { return f.sidecars[f.rand.IntN(len(f.sidecars))] }

func (f *fleet) hangFor(i int, least, most int64) (long int64) {
	long = f.between(least, most)
	f.note("", "FAULT hang: s%d, until %.4f", i, sec(f.now+long))
	f.nodes[i].hang(f.now + long)
	return long
}

func (f *fleet) killFor(i int, least, most int64) (long int64) {
	long = f.between(least, most)
	if n := f.nodes[i]; n.up {
		f.note("", "FAULT kill: s%d, until %.4f", i, sec(f.now+long))
		n.die()
		f.after(long, n.start)
	}
	return long
}

// roll restarts each server twice, from server i on. Each restart begins a second after the one before
// has ended. In between, a proxy is restarted the given number of times. If empty is set, every second
// server starts empty: memcached loses its items if its clock, in seconds, shows the time of the stop.
func (f *fleet) roll(i, restarts int, empty bool) {
	left := 2 * f.servers
	again := f.rand.Perm(left)[:restarts]
	var next func()
	next = func() {
		var long int64
		switch {
		case !empty:
			long = f.killFor(i, 100*milli, 2500*milli)
		case left%2 == 0:
			long = f.killFor(i, second, 2500*milli)
		default:
			long = f.killFor(i, 10*milli, 900*milli)
			f.nodes[i].left = nil
		}
		f.lasts(long + 2*second)
		if left--; slices.Contains(again, left) {
			f.after(long+f.upTo(second), func() {
				if s := f.someone(); !s.dead {
					s.restart(f.between(100*milli, 900*milli))
				}
			})
		}
		if i = (i + 1) % f.servers; left > 0 {
			f.after(long+second, next)
		}
	}
	next()
}

// replaceDrained drains the first server, ends it as soon as one proxy shows it as out, and gives its name an empty server
// at another address.
func (f *fleet) replaceDrained() {
	s, n := f.someone(), f.nodes[0]
	if f.layout.at > 0 {
		n = f.nodes[f.servers+f.layout.at-1]
	}
	s.order("main", f.nodes[0], health.Drain)
	var look func()
	look = func() {
		f.lasts(second)
		if s.snapshot().Phases[0].Phase != health.Out {
			f.after(100*milli, look)
			return
		}
		n.die()
		f.reload(func(l *layout) { l.at = l.at%f.spare + 1 })
		if next := f.nodes[f.servers+f.layout.at-1]; !next.up {
			next.start()
		}
		f.after(f.between(600*milli, 1500*milli), func() { s.order("main", f.nodes[0], health.Restore) })
		f.lasts(2 * second)
	}
	f.after(100*milli, look)
	f.lasts(second)
}

// drainBeside drains a server in the other pool. It returns the time after which the
// server is restored.
func (f *fleet) drainBeside(i int) (back int64) {
	back = f.between(2*second, 3*second)
	f.sidecars[0].order("beside", f.nodes[i], health.Drain)
	f.after(back, func() { f.sidecars[0].order("beside", f.nodes[i], health.Restore) })
	return back
}

// strangerAt ends a server and starts another one at its address. The new one has
// different values, and may have the view record of a pool with the same name.
func (f *fleet) strangerAt(i int, least, most int64) {
	back := f.killFor(i, least, most)
	f.nodes[i].left = nil
	record := f.nodes[f.other(i)].record()
	f.after(back, func() {
		n := f.nodes[i]
		n.began -= 3600 * second
		line := n.store.Line()
		for _, k := range f.values {
			line.Do([]byte("set " + k.name + " 0 0 8\r\nstranger\r\n"))
		}
		if f.one(2) {
			line.Do(fmt.Appendf(nil, "set %s 0 0 %d\r\n%s\r\n", viewKey, len(record), record))
		}
	})
	f.lasts(back)
}

// record returns the view record on a server, if it has one.
func (n *node) record() []byte {
	if !n.up {
		return nil
	}
	_, value, _ := bytes.Cut(n.store.Line().Do([]byte("mg "+viewKey+" v\r\n")), []byte("\r\n"))
	return bytes.TrimSuffix(value, []byte("\r\n"))
}

// cas creates an item and returns its cas.
func (n *node) cas() (last int) {
	fmt.Sscanf(string(n.store.Line().Do([]byte("ms even 0 c\r\n\r\n"))), "HD c%d", &last)
	return last
}

// evict makes a server drop half of the clients' values.
func (f *fleet) evict(i int) {
	n := f.nodes[i]
	if !n.up {
		return
	}
	f.note("", "FAULT evict: s%d", i)
	line := n.store.Line()
	for _, k := range slices.Concat(f.values, f.logged) {
		if f.one(2) {
			line.Do([]byte("delete " + k.name + "\r\n"))
		}
	}
}
