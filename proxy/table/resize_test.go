package table

import (
	"hash/fnv"
	"slices"
	"strings"
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

// TestMovesOfFurtherChange reloads a pool while it changes to a server more. If that change ends in any case, a file without the server
// moves keys back in a further change: the reply says so, and the share of its keys counts. So it does with a third list.
func TestMovesOfFurtherChange(t *testing.T) {
	hash := func(key []byte) uint64 {
		h := fnv.New64a()
		h.Write(key)
		return h.Sum64()
	}
	table := func(servers ...string) *Table {
		targets := []Target{}
		for _, s := range servers {
			targets = append(targets, Target{Name: s, Network: "tcp", Address: s})
		}
		order := make([]int, len(servers))
		for i := range order {
			order[i] = i
		}
		return &Table{Pools: []*Pool{{Name: "main", Resize: ResizeWarm, Servers: targets, Place: ring.Placement{Ring: ring.NewJump(order), Hash: hash, Fingerprint: strings.Join(servers, "")}}}}
	}
	reload := func(old, is *Table, moves bool) *Table {
		is.Hold(old, func(*Pool) (bool, bool, bool) { return true, moves, false })
		return is
	}
	changes := reload(table("a"), table("a", "b"), false)
	back := reload(changes, table("a"), true)
	for _, c := range []struct {
		name        string
		from        *Table
		to          []string
		ends        bool
		least, most float64
		due         bool
		says        string
	}{
		{"taken back", changes, []string{"a"}, false, 0, 0, false, "the change of its servers is taken back; keys that have moved already move back when all instances have this configuration"},
		{"taken back at the end", changes, []string{"a"}, true, .4, .6, false, "the change of its servers is about to end; when it has ended, the keys move back in a further change, when all instances have this configuration"},
		{"the same", changes, []string{"a", "b"}, false, .4, .6, true, "the change of its servers has not ended"},
		{"the same at the end", changes, []string{"a", "b"}, true, 0, 0, true, "the change of its servers has not ended"},
		{"a third list", changes, []string{"a", "b", "c"}, true, .3, .4, false, "keys move with their values"},
		{"taken back twice", back, []string{"a"}, true, .4, .6, true, "the change of its servers has not ended"},
		{"the list to which keys move, again", back, []string{"a", "b"}, true, 0, 0, false, "keys move with their values"},
	} {
		ends := func(*Pool) bool { return c.ends }
		moves, _ := c.from.MovesTo(table(c.to...), ends)
		if is := moves[0].Share; is < c.least || is > c.most || moves[0].Due != c.due {
			t.Errorf("%s: %.3f of the keys move, due: %v", c.name, is, moves[0].Due)
		}
		if says := table(c.to...).Resizes(c.from, ends); !slices.ContainsFunc(says, func(s string) bool { return strings.HasPrefix(s, "pool main: "+c.says) }) {
			t.Errorf("%s: %q", c.name, says)
		}
	}
}
