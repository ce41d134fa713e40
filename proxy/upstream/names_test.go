package upstream

import (
	"slices"
	"testing"

	"ringside/proxy/table"
)

// TestMissing checks which keys of a read of many had no VALUE, for several orders of replies.
func TestMissing(t *testing.T) {
	for _, c := range []struct {
		values  []string
		awaited bool // the last VALUE is reported by Missing, not by FitsText
		missing []string
	}{
		{nil, false, []string{"a", "bb", "a", "ccc"}},
		{[]string{"bb"}, false, []string{"a", "a", "ccc"}},
		{[]string{"a", "a"}, false, []string{"bb", "ccc"}},
		{[]string{"a", "bb"}, true, []string{"ccc"}},
		{[]string{"a", "bb", "a"}, true, nil},
		{[]string{"a", "bb", "a", "ccc"}, false, nil},
	} {
		var a Names
		for _, n := range []int{1, 2, 1, 3} {
			a.AddLength(n)
		}
		a.At = int32(len("get"))
		a.SetLine(append(a.Room(), "get a bb a ccc"...))
		for _, v := range c.values {
			if !a.FitsText([]byte(v)) {
				t.Fatalf("%q is not awaited", v)
			}
		}
		var missing []string
		a.Missing(c.awaited, func(key []byte) { missing = append(missing, string(key)) })
		if !slices.Equal(missing, c.missing) {
			t.Errorf("values %q: missing %q, want %q", c.values, missing, c.missing)
		}
	}
}

// TestAddress checks that logs have the address to which Ringside connects.
func TestAddress(t *testing.T) {
	srv := &Server{e: &Servers{}, Target: table.Target{Network: "tcp", Address: "mc-0@main:0"}}
	if got := srv.Address(); got != "mc-0@main:0" {
		t.Errorf("not located: %s", got)
	}
	srv.e.Where = func(network, address string) string { return network + " for " + address }
	if got := srv.Address(); got != "tcp for mc-0@main:0" {
		t.Errorf("located: %s", got)
	}
}
