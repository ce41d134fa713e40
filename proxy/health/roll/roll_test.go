package roll

import (
	"fmt"
	"strings"
	"testing"
)

func item(t *testing.T, c *Call, self Instance, chance uint64) []byte {
	t.Helper()
	b, ok := c.Item(self, chance)
	if !ok {
		t.Fatal("nothing is to be written")
	}
	return b
}

// TestItem checks that an item returns the entries that were written, whatever bytes
// names contain, and that an entry has about 60 bytes.
func TestItem(t *testing.T) {
	var a, b Call
	e := Instance{ID: 1 << 63, Name: "web-7=x,\x00\xff %41<b>", Version: "v1.2.3", Config: 1<<64 - 1, Suspects: "s1 s2", Lacks: "s3", Copies: 1<<64 - 1, Round: 7}
	b.Hear(item(t, &a, e, 0), 5)
	if got := b.Here(); len(got) != 1 || got[0] != e || b.Bad != 0 {
		t.Errorf("heard %+v, %d bad", got, b.Bad)
	}
	usual := Instance{ID: 1 << 60, Name: "cache-proxy-17/4711", Version: "v1.12.3", Config: 1 << 60, Round: 1e6}
	if n := len(usual.append(nil)); n > 70 {
		t.Errorf("an entry takes %d bytes", n)
	}
	long := Instance{ID: 2, Name: strings.Repeat("n", 1000), Version: strings.Repeat("v", 1000), Suspects: strings.Repeat("s ", 1000)}
	b.Hear(item(t, &a, long, 0), 5)
	if got := b.Here(); len(got) != 2 || got[0].Name != long.Name[:mostName] || got[0].Version != long.Version[:mostText] || got[0].Suspects != long.Suspects[:mostNames] {
		t.Errorf("heard %+v", got)
	}
}

// TestGarbage checks that invalid items and entries are counted and skipped.
func TestGarbage(t *testing.T) {
	const good = "1=a,v,2,3"
	for _, test := range []struct {
		item      string
		here, bad int
	}{
		{"", 0, 1}, {"rs1 " + good, 0, 1}, {"rc1", 0, 0}, {"rc1 " + good, 1, 0}, {"rc1 " + good + " ", 1, 1}, {"rc1  " + good, 1, 1},
		{"rc1 " + good + " x", 1, 1}, {"rc1 =a,v,2,3", 0, 1}, {"rc1 1=a,v,2", 0, 1}, {"rc1 1=a,v,2,3,s,t,u,v", 0, 1}, {"rc1 1=a,v,2,3,s,t,-", 0, 1}, {"rc1 1=a,v,2,3,,,u", 1, 0}, {"rc1 1=a,v,-2,3", 0, 1},
		{"rc1 1=%4,v,2,3", 0, 1}, {"rc1 1=%zz,v,2,3", 0, 1}, {"rc1 1=" + strings.Repeat("n", mostName+1) + ",v,2,3", 0, 1}, {"rc1 1=,,2,3", 1, 0},
		{"rc1 zzzzzzzzzzzzzzzzzzzz=a,v,2,3", 0, 1}, {"rc1 " + good + strings.Repeat(" ", MostBytes), 0, 1}, {"rc1 9=me,v,2,99", 0, 0},
	} {
		var c Call
		c.Hear([]byte(test.item), 9)
		if got := len(c.Here()); got != test.here || c.Bad != test.bad {
			t.Errorf("%.60q: %d here, %d bad, want %d, %d", test.item, got, c.Bad, test.here, test.bad)
		}
	}
}

func FuzzHear(f *testing.F) {
	f.Add([]byte("rc1 1=a,v,2,3 2=%41,v,2,3,s1%20s2"))
	f.Fuzz(func(t *testing.T, value []byte) {
		var c, d Call
		c.Hear(value, 9)
		here := c.Here()
		if len(here) > Most {
			t.Fatalf("%d are heard", len(here))
		}
		if b, ok := c.Item(Instance{ID: 9}, 0); ok {
			d.Hear(b, 9)
			if d.Bad > 0 {
				t.Fatalf("%q was written, which can't be read", b)
			}
		}
	})
}

// TestSilence checks that an instance is gone if its entry does not grow for three
// rounds, even if others write it back, until it grows again.
func TestSilence(t *testing.T) {
	var c, late Call
	old := []byte("rc1 1=a,v,2,3")
	for round := range 9 {
		c.NextRound()
		c.Hear(old, 9)
		if here := len(c.Here()) == 1; here != (round < 4) {
			t.Errorf("after %d rounds: here %v", round, here)
		}
	}
	late.Hear(item(t, &c, Instance{ID: 9}, 0), 8)
	if got := late.Here(); len(got) != 1 || got[0].ID != 9 {
		t.Errorf("who is gone is written: %+v", got)
	}
	c.Hear([]byte("rc1 1=a,v,2,2"), 9)
	if len(c.Here()) != 0 {
		t.Error("an older entry brings him back")
	}
	c.Hear([]byte("rc1 1=a,v,2,4"), 9)
	if len(c.Here()) != 1 {
		t.Error("he is back, and is not here")
	}
}

// TestMany checks that an item has at most 200 entries, and that an instance without an
// entry in a full item sometimes replaces another one.
func TestMany(t *testing.T) {
	var c Call
	text := magic
	for i := range Most {
		text += fmt.Sprintf(" %s=n%d,v,2,3", fmt.Sprint(i+100), i)
	}
	c.Hear([]byte(text), 9)
	if _, ok := c.Item(Instance{ID: 9}, 1); ok {
		t.Error("a full item is written each time")
	}
	var d Call
	b := item(t, &c, Instance{ID: 9, Name: "me"}, 20)
	d.Hear(b, 1)
	if n := len(d.Here()); n != Most || d.Bad != 0 {
		t.Errorf("%d entries, %d bad", n, d.Bad)
	}
	c.Hear(b, 9)
	if _, ok := c.Item(Instance{ID: 9}, 1); !ok {
		t.Error("who is in the item does not say so any more")
	}
	for i := range 5 * Most {
		c.Hear(fmt.Appendf(nil, "rc1 %d=x,v,2,3", 10000+i), 9)
	}
	if n := len(c.heard); n > 2*Most {
		t.Errorf("%d are remembered", n)
	}
}
