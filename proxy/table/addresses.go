package table

// Server names with several addresses.

import (
	"net/netip"
	"slices"
	"strings"
)

// AmbiguousAddresses returns the addresses of one family if addrs, to which one server name
// resolves, has several of it; else "". Instances that resolve the name may then connect to
// different servers under one name, and read and write different data. One address of each
// family is one host.
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
