package fleet

// Tests of what must not be done during the pause of a handover.

import (
	"testing"

	"ringside/proxy/table"
)

// TestPause checks that no command restores a key to its former owner during the pause,
// because other proxies may be moving keys already. This includes touch, which copies a
// key to a replica that has lost it.
func TestPause(t *testing.T) {
	f := newFleet(scenario{sidecars: 1, apps: 1, servers: 4, strict: true, copies: twice, mode: table.Rehash}, 1, false)
	f.quiet = true
	a, k := f.apps[0], f.values[0]
	for _, k = range f.values {
		if hash([]byte(k.name))/4%4 == 1 { // it will have other servers
			break
		}
	}
	ask := func(o *op) {
		a.todo = append(a.todo, func() *op { return o })
		a.next()
	}
	f.settle("at the start", 30*second)
	ask(a.store(k, "set"))
	f.run(f.now + second)
	f.reload(reweigh)
	for end := f.now + 30*second; f.sidecars[0].snapshot().Unsettled == 0 && f.now < end; {
		f.run(f.now + 10*milli)
	}
	f.nodes[hash([]byte(k.name))%4].store.Line().Do([]byte("delete " + k.name + "\r\n"))
	ask(a.gatOf(k))
	for a.op != nil { // its deadline is before the end of the pause
		f.run(f.now + 10*milli)
	}
	if n := len(k.fills); n > 0 {
		t.Errorf("%d copies were made in the pause", n)
	}
	f.settle("after the reload", settleLimit)
	ask(a.gatOf(k))
	f.run(f.now + second)
	if f.broken != "" || f.hits != 1 || len(k.fills) == 0 {
		t.Errorf("%s; then %d hits, %d copies", f.broken, f.hits, len(k.fills))
	}
}

// TestReadOverPause checks a read that starts during the pause and ends after it. The
// read has asked a former replica, which has lost the key by then. The read must not
// restore the key there. Another proxy that has already moved the key from that replica
// does not check it again, so its delete would not remove the restored value.
func TestReadOverPause(t *testing.T) {
	seeds := uint64(8)
	if testing.Short() {
		seeds = 1
	}
	for name, read := range map[string]func(*app, *fkey) *op{"get": (*app).getOf, "gets": (*app).getsOf} {
		t.Run(name, func(t *testing.T) {
			for seed := range seeds {
				readOverPause(t, seed, read)
			}
		})
	}
}

func readOverPause(t *testing.T, seed uint64, read func(*app, *fkey) *op) {
	f := newFleet(scenario{sidecars: 2, apps: 1, servers: 4, strict: true, copies: twice, mode: table.Rehash, request: patient, exact: true}, seed, false)
	f.quiet = true
	near, far, k := f.apps[1], f.apps[0], f.values[0]
	for _, k = range f.values {
		if hash([]byte(k.name))/4%4 == 2 { // its first replica will lose it, and its second one becomes the first
			break
		}
	}
	ask := func(a *app, o *op) {
		a.todo = append(a.todo, func() *op { return o })
		a.next()
	}
	f.settle("at the start", 30*second)
	ask(near, near.store(k, "set"))
	f.run(f.now + second)
	f.paths[0][hash([]byte(k.name))%4].slow = 100 * milli
	f.reload(reweigh)
	for since, end := f.now, f.now+60*second; f.now < since+second && f.now < end; f.run(f.now + 10*milli) {
		if f.sidecars[1].snapshot().Unsettled == 0 { // or all must wait again
			since = f.now
		}
	}
	for stored, end := k.acked, f.now+60*second; (k.acked == stored || f.now < k.acked+50*milli) && f.now < end; f.run(f.now + milli) {
		if near.op == nil && k.acked == stored { // it waits for the end of the pause
			ask(near, near.store(k, "set"))
		}
		if far.op == nil {
			ask(far, read(far, k))
		}
	}
	f.run(f.now + second)
	ask(near, near.removeOf(k))
	f.run(f.now + second)
	ask(far, far.getOf(k))
	f.run(f.now + second)
	if f.broken != "" {
		t.Errorf("seed %d: %s", seed, f.broken)
	}
}

// TestRemovedByOne checks a reload of one proxy of two that removes a server, and its reload back to the first
// list. The handover to the other list never begins, so both proxies write all replicas by the first list when the server has
// rejoined.
func TestRemovedByOne(t *testing.T) {
	seeds := uint64(4)
	if hurried() {
		seeds = 1
	}
	for seed := range seeds {
		f := newFleet(scenario{sidecars: 2, servers: 4, strict: true, copies: twice, mode: table.Rehash, exact: true}, seed, false)
		f.settle("at the start", 30*second)
		for _, gone := range []int{3, -1} {
			f.gone = gone
			f.edition++
			f.sidecars[1].reload()
			f.run(f.now + 32*second)
		}
		if f.broken != "" {
			t.Errorf("seed %d: %s", seed, f.broken)
		}
	}
}
