package roll

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// server is one server with the item, which several instances read and write in turn.
type server struct{ item []byte }

// round is a round of an instance that ejects the server by the pools own. An instance
// without such a pool only reads.
func (s *server) round(p *Pools, own ...string) {
	p.NextRound()
	p.Hear(s.item, own)
	if len(own) > 0 {
		s.item = p.Item(own)
	}
}

func others(t *testing.T, what string, p *Pools, want ...string) {
	t.Helper()
	if got := p.Others(); !slices.Equal(got, want) {
		t.Errorf("%s: others are %q, want %q", what, got, want)
	}
}

// TestPools checks that instances with the same pool do not report each other. An
// instance with another pool, and one without ejection, must report the pools that they
// lack after two rounds.
func TestPools(t *testing.T) {
	var s server
	var first, second, foreign, reader Pools
	all := func() {
		s.round(&first, "a")
		s.round(&second, "a")
		s.round(&foreign, "b, \x00c")
		s.round(&reader)
	}
	all()
	others(t, "read once", &reader)
	all()
	for range 10 {
		all()
		others(t, "first", &first, "b, \x00c")
		others(t, "second", &second, "b, \x00c")
		others(t, "foreign", &foreign, "a")
		others(t, "reader", &reader, "a", "b, \x00c")
	}

	// A flush removes the item, but does not change what instances know.
	s.item = nil
	all()
	others(t, "after a flush", &reader, "a", "b, \x00c")

	// A reload gives all instances the same pool, so the other entry is not written any
	// more.
	for range silent + 2 {
		s.round(&first, "a")
		s.round(&foreign, "a")
		s.round(&reader)
	}
	others(t, "first, after the reload", &first)
	others(t, "foreign, after the reload", &foreign)
	others(t, "reader, after the reload", &reader, "a")
	if text := string(s.item); strings.Contains(text, "b") {
		t.Errorf("an entry that does not grow is still there: %q", text)
	}
}

// TestPoolsOfReload checks that an instance does not report its own old entry after its
// pool was renamed.
func TestPoolsOfReload(t *testing.T) {
	var s server
	var p Pools
	for range 3 {
		s.round(&p, "a")
	}
	for range 3 {
		s.round(&p, "b")
		others(t, "after a reload", &p)
	}
}

// TestPoolsGarbage checks that an invalid item counts as empty and invalid entries are
// skipped, and that the number and length of entries are limited.
func TestPoolsGarbage(t *testing.T) {
	long := strings.Repeat("n", mostName+1)
	for _, test := range []struct {
		item string
		want int
	}{
		{"", 0}, {"rp1", 0}, {"rp2 a=1", 0}, {"rp1 a=1", 1}, {"rp1 a=1 ", 1}, {"rp1  a=1", 1}, {"rp1 a", 0}, {"rp1 a=", 0}, {"rp1 =1", 0}, {"rp1 a=-1", 0}, {"rp1 a=1=2", 0},
		{"rp1 %4=1", 0}, {"rp1 %zz=1", 0}, {"rp1 %00%FF=1", 1}, {"rp1 a=1 a=2", 1}, {"rp1 " + long + "=1", 0}, {"rp1 " + long[1:] + "=1", 1}, {"rp1 a=zzzzzzzzzzzzzzzzzzzz", 0},
		{"rp1 a=1" + strings.Repeat(" ", mostPoolBytes), 0}, {"\x00rp1 a=1", 0},
	} {
		var p Pools
		p.Hear([]byte(test.item), nil)
		if got := len(p.others); got != test.want {
			t.Errorf("%.60q: %d entries, want %d", test.item, got, test.want)
		}
	}

	var p Pools
	for i := range 10 * MostPools {
		text := poolsMagic
		for j := range 2 * MostPools {
			text += fmt.Sprintf(" %d-%d=%d", i, j, i)
		}
		p.Hear([]byte(text), nil)
		if len(p.read) > MostPools || len(p.others) > 2*MostPools {
			t.Fatalf("%d entries are read, %d remembered", len(p.read), len(p.others))
		}
	}
	item := p.Item([]string{"own", strings.Repeat("o", 1000)})
	if n := len(parsePools(item)); n > MostPools || !strings.HasPrefix(string(item), "rp1 own=1 ooo") {
		t.Errorf("%d entries are written: %.40q", n, item)
	}
	var own []string
	for i := range 2 * MostPools {
		own = append(own, strings.Repeat("\xff", mostName-3)+fmt.Sprint(100+i))
	}
	if item := p.Item(own); len(item) > mostPoolBytes || len(parsePools(item)) != MostPools {
		t.Errorf("an item of own pools has %d bytes, %d entries", len(item), len(parsePools(item)))
	}
}

func FuzzPools(f *testing.F) {
	f.Add([]byte("rp1 a=1 %41=z"))
	f.Fuzz(func(t *testing.T, value []byte) {
		var p Pools
		for range 2 {
			p.NextRound()
			p.Hear(value, []string{"own"})
			if names := p.Others(); len(names) > 0 {
				t.Fatalf("%q are told by one item", names)
			}
		}
		item := p.Item([]string{"own"})
		if list := parsePools(item); len(list) == 0 || list[0].name != "own" || len(list) > MostPools {
			t.Fatalf("%q was written", item)
		}
	})
}
