package replicate

// Where copies may be, and the tokens of their cas.

import (
	"fmt"
	"testing"
)

func TestMembers(t *testing.T) {
	const hosts, alone = "aabcdd", "012345" // of each server, what it must not share
	for _, test := range []struct {
		apart string
		n     int
		order []int
		want  string
	}{
		{hosts, 2, []int{0, 1, 2, 3}, "[0 2]"},
		{alone, 2, []int{0, 1, 2, 3}, "[0 1]"},
		{hosts, 3, []int{4, 5, 0, 1}, "[4 0]"},
		{hosts, 1, []int{3, 2}, "[3]"},
		{hosts, 3, []int{2, 2, 2, 3}, "[2 3]"},
		{alone, All, []int{1, 0, 2}, "[1 0 2]"},
		{alone, 99, []int{0, 1, 2, 3, 4, 5}, "[0 1 2 3 4 5]"},
	} {
		got := Members(nil, func(i int) int {
			if i < len(test.order) {
				return test.order[i]
			}
			return -1
		}, test.n, func(a, b int) bool { return test.apart[a] == test.apart[b] })
		if fmt.Sprint(got) != test.want {
			t.Errorf("apart %s, %d of %v: %v, not %s", test.apart, test.n, test.order, got, test.want)
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
