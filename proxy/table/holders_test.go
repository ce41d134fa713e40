package table

// Tests of which servers can keep replicas of the same key.

import (
	"fmt"
	"testing"

	"ringside/replicate"
)

func TestMembers(t *testing.T) {
	const hosts, alone = "aabcdd", "012345" // for each server, its host or zone; no two replicas of a key may be on the same one
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
		{alone, replicate.All, []int{1, 0, 2}, "[1 0 2]"},
		{alone, 99, []int{0, 1, 2, 3, 4, 5}, "[0 1 2 3 4 5]"},
	} {
		got := members(nil, func(i int) int {
			if i < len(test.order) {
				return test.order[i]
			}
			return -1
		}, test.n, func(a, b int) bool { return test.apart[a] == test.apart[b] })
		if fmt.Sprint(got) != test.want {
			t.Errorf("apart %s, %d of %v: %v, not %s", test.apart, test.n, test.order, got, test.want)
		}
	}
	many := members(nil, func(i int) int { return i }, replicate.All, func(a, b int) bool { return false })
	if len(many) != replicate.Max {
		t.Errorf("of an endless pool %d members", len(many))
	}
	room := make([]int, 0, replicate.Max)
	order, same := func(i int) int { return i }, func(a, b int) bool { return a/2 == b/2 }
	if n := testing.AllocsPerRun(100, func() { members(room[:0], order, 3, same) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
