package table

import (
	"net/netip"
	"testing"
)

func TestAmbiguousAddresses(t *testing.T) {
	for _, c := range []struct {
		addrs []string
		want  string
	}{
		{nil, ""},
		{[]string{"127.0.0.1", "::1"}, ""},
		{[]string{"10.0.0.1", "::ffff:10.0.0.1", "10.0.0.1"}, ""},
		{[]string{"10.0.0.2", "10.0.0.1", "fd00::1"}, "10.0.0.1, 10.0.0.2"},
		{[]string{"fd00::2", "10.0.0.1", "fd00::1"}, "fd00::1, fd00::2"},
	} {
		var addrs []netip.Addr
		for _, a := range c.addrs {
			addrs = append(addrs, netip.MustParseAddr(a))
		}
		if got := AmbiguousAddresses(addrs); got != c.want {
			t.Errorf("%v: %q, want %q", c.addrs, got, c.want)
		}
	}
}
