package table

import (
	"testing"

	"ringside/ring"
)

// TestSuccessor reloads a pool while its keys move to the list Next. The new file has a third list and mode plain. While
// keys move, they must be served by the first and by the second list. The instances change to the third one together, too, and mode
// plain applies then.
func TestSuccessor(t *testing.T) {
	list := func(name string, servers ...string) *List {
		l := &List{Place: ring.Placement{Fingerprint: name}}
		for _, s := range servers {
			l.Servers = append(l.Servers, Target{Network: "tcp", Address: s})
		}
		return l
	}
	first, second, third := list("first", "a", "b"), list("second", "a", "b", "c"), list("third", "a", "b", "c", "d")
	pool := func(l *List, mode ResizeMode) *Pool {
		p := &Pool{Name: "main", Resize: mode}
		p.use(l)
		return p
	}
	old, file := pool(first, ResizeWarm), pool(third, ResizePlain)
	old.Next = second
	reloaded := &Table{Pools: []*Pool{file}}
	reloaded.Hold(&Table{Pools: []*Pool{old}}, func(*Pool) (holds, moving, begins bool) { return true, true, false })
	p := reloaded.Pools[0]
	if p.List().Print() != first.Print() || p.Successor().List().Print() != second.Print() || len(p.Successor().Servers) != 3 {
		t.Errorf("while keys move: %v and %v", p.Servers, p.Successor().Servers)
	}
	due := func(*Pool) (due, drops bool) { return true, false }
	between := reloaded.Advance(due)
	if p := between.Pools[0]; p.List().Print() != second.Print() || p.Next.Print() != third.Print() || p.Later != nil || p.Resize != ResizeWarm {
		t.Errorf("after the first change: %v, mode %v", p.Servers, p.Resize)
	}
	if p := between.Advance(due).Pools[0]; p.List().Print() != third.Print() || p.Next != nil || p.Later != nil || p.Resize != ResizePlain {
		t.Errorf("at the end: %v, mode %v", p.Servers, p.Resize)
	}
}
