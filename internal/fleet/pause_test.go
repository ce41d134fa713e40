package fleet

// What may not be done while a handover pauses.

import (
	"testing"

	"ringside/proxy/table"
)

// In the pause other proxies may be moving keys already. So nothing brings a key back to
// where it is held by the table of before: a touch neither, which copies a key to a holder
// that has lost it.
func TestPause(t *testing.T) {
	f := newFleet(scenario{sidecars: 1, apps: 1, servers: 4, strict: true, copies: twice, mode: table.Rehash}, 1, false)
	f.quiet = true
	a, k := f.apps[0], f.values[0]
	for _, k = range f.values {
		if hash([]byte(k.name))/4%4 == 1 { // other servers are to have it
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
	for a.op != nil { // its deadline comes before the end of the pause
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
