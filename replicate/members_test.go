package replicate

// Where copies may be, and what is remembered about keys.

import (
	"fmt"
	"testing"
)

func TestMembers(t *testing.T) {
	places := []Place{{"a", "x"}, {"a", "y"}, {"b", "x"}, {"c", "y"}, {"d", ""}, {"d", "z"}}
	for _, test := range []struct {
		apart Apart
		n     int
		order []int
		want  string
	}{
		{Hosts, 2, []int{0, 1, 2, 3}, "[0 2]"},
		{Servers, 2, []int{0, 1, 2, 3}, "[0 1]"},
		{Zones, 2, []int{0, 2, 3, 1}, "[0 3]"},
		{Zones, 3, []int{0, 2, 3, 1}, "[0 3]"},
		{Zones, 3, []int{4, 5, 0, 1}, "[4 0 1]"},
		{Hosts, 1, []int{3, 2}, "[3]"},
		{Hosts, 3, []int{2, 2, 2, 3}, "[2 3]"},
		{Servers, All, []int{1, 0, 2}, "[1 0 2]"},
		{Servers, 99, []int{0, 1, 2, 3, 4, 5}, "[0 1 2 3 4 5]"},
	} {
		got := Members(nil, func(i int) int {
			if i < len(test.order) {
				return test.order[i]
			}
			return -1
		}, test.n, func(a, b int) bool { return test.apart.Same(places[a], places[b]) })
		if fmt.Sprint(got) != test.want {
			t.Errorf("apart %d, %d of %v: %v, not %s", test.apart, test.n, test.order, got, test.want)
		}
	}
	many := Members(nil, func(i int) int { return i }, All, func(a, b int) bool { return false })
	if len(many) != Max {
		t.Errorf("of an endless pool %d members", len(many))
	}
	room := make([]int, 0, Max)
	order, same := func(i int) int { return i }, func(a, b int) bool { return a/2 == b/2 }
	if n := testing.AllocsPerRun(100, func() { Members(room[:0], order, 3, same) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestCheck(t *testing.T) {
	oneHost := []Place{{"a", ""}, {"a", ""}, {"a", ""}}
	oneZone := []Place{{"a", "x"}, {"b", "x"}}
	zones := []Place{{"a", "x"}, {"b", "y"}, {"b", "x"}}
	for _, test := range []struct {
		p       Policy
		servers []Place
		want    string
	}{
		{Policy{}, nil, ""},
		{Policy{Copies: 1}, oneHost, ""},
		{Policy{Copies: 2}, zones, ""},
		{Policy{Copies: 2, Apart: Zones}, zones, ""},
		{Policy{Copies: All, Apart: Zones}, oneHost, ""},
		{Policy{Copies: 2, Apart: Servers}, oneHost, ""},
		{Policy{Copies: -2}, zones, "-2 copies: must be 1 to 8, or all"},
		{Policy{Copies: 9}, zones, "9 copies: at most 8 are possible"},
		{Policy{Copies: All}, make([]Place, 9), "pool main has 9 servers: at most 8 copies are possible, so not all"},
		{Policy{Copies: 4, Apart: Servers}, oneHost, "only 3 servers in pool main: not enough for 4 copies"},
		{Policy{Copies: 2}, oneHost, "only 1 host in pool main: 2 copies need copies_on: server"},
		{Policy{Copies: 2, Apart: Zones}, oneZone, "only 1 zone in pool main: 2 copies need copies_on: host"},
		{Policy{Copies: 3, Apart: Zones}, zones, "only 2 zones in pool main: 3 copies need copies_on: server"},
		{Policy{Copies: 2, Apart: Zones}, []Place{{"a", ""}, {"b", "x"}}, "server a of pool main has no zone: copies_on: zone needs one for each, or use copies_on: host"},
	} {
		got := ""
		if err := test.p.Check("main", test.servers); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%+v: %q, not %q", test.p, got, test.want)
		}
	}
}

func TestDirtyKeys(t *testing.T) {
	d := NewDirtyKeys(2)
	if d.Has(1) || !d.Add(1) || !d.Add(2) || !d.Add(1) || d.Len() != 2 {
		t.Fatal("two keys fit, once each")
	}
	if !d.Has(1) || d.Has(3) {
		t.Fatal("1 is dirty, 3 is not")
	}
	d.Remove(1)
	if d.Has(1) || !d.Add(3) {
		t.Fatal("a repaired key makes room")
	}
	if d.Add(4) || !d.Has(4) || !d.Has(99) || d.Add(2) {
		t.Fatal("after an overflow all keys are dirty")
	}
	d.Remove(2)
	if d.Add(5) || !d.Has(2) {
		t.Fatal("and stay so")
	}
	d.Clear()
	if d.Has(4) || d.Len() != 0 || !d.Add(4) {
		t.Fatal("until the server is flushed")
	}
}

func TestIdentityIsTheSameEverywhere(t *testing.T) {
	if got := Identity("tcp a:11211", []byte("key"), 1700000000, 42, 3); got != 0x7229dc158249abf0 {
		t.Errorf("%#x", got)
	}
}

func TestTokens(t *testing.T) {
	of := func(address, key string, n ...uint64) uint64 { return Identity(address, []byte(key), n...) }
	own := of("tcp a:11211", "k", 7, 8, 1)
	others := []uint64{of("tcp b:11211", "k", 7, 8, 1), of("tcp a:11211", "l", 7, 8, 1), of("tcp a:11211", "", 7, 8, 1), of("tcp a:1121", "1k", 7, 8, 1),
		of("tcp a:11211", "k", 8, 8, 1), of("tcp a:11211", "k", 7, 9, 1), of("tcp a:11211", "k", 7, 8, 2), of("tcp a:11211", "k", 8, 7, 1)}
	for _, cas := range []uint64{0, 1, 12345, 1<<52 - 1} {
		token := Seal(cas, own)
		if Open(token, own) != cas || token>>52 != 0 {
			t.Errorf("%d sealed as %d opens as %d", cas, token, Open(token, own))
		}
		for i, other := range others {
			if got := Open(token, other); got < 1<<32 || got == cas {
				t.Errorf("%d opened by %d is %d: could be a cas of its own", cas, i, got)
			}
		}
		// Failover's tag lies above and may be put on and taken off around it.
		const tag = 0xabc << 52
		if Open(token|tag, own) != cas|tag {
			t.Errorf("the tag of %x is not kept", token|tag)
		}
	}
}
