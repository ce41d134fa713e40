package ports

import (
	"fmt"
	"net"
	"slices"
	"testing"
)

// TestFree checks that ports differ as long as they are reserved, and that a server can listen on each of them.
func TestFree(t *testing.T) {
	var all []int
	for range 20 {
		some, release, err := Free(10)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(release)
		all = append(all, some...)
	}
	slices.Sort(all)
	if n := len(slices.Compact(slices.Clone(all))); n != 200 {
		t.Errorf("200 ports, %d of them different", n)
	}
	for _, port := range all[:10] {
		for _, host := range []string{"127.0.0.1", "0.0.0.0"} {
			l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", host, port))
			if err != nil {
				t.Fatal(err)
			}
			l.Close()
		}
	}
}
