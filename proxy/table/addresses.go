package table

// This file detects server names with several addresses.

import (
	"net/netip"
	"slices"
	"strings"
)

// AmbiguousAddresses checks addrs, the addresses that one server name resolves to. If several
// of them belong to one family (IPv4 or IPv6), it returns these, else "". With several,
// instances may connect to different servers under one name, and read and write different
// data. One address of each family is taken for one host.
func AmbiguousAddresses(addrs []netip.Addr) string {
	for _, is4 := range []bool{true, false} {
		var texts []string
		for _, a := range addrs {
			if a = a.Unmap(); a.Is4() == is4 && !slices.Contains(texts, a.String()) {
				texts = append(texts, a.String())
			}
		}
		if slices.Sort(texts); len(texts) > 1 {
			return strings.Join(texts, ", ")
		}
	}
	return ""
}
