package tags_test

import (
	"fmt"
	"strings"
	"testing"

	"ringside/proxy/conversation"
)

// TestFlood checks that invalidations wait while too many of Ringside's own requests wait for a server, and that all of them
// are carried out when it replies.
func TestFlood(t *testing.T) {
	const all, each = 600, 8 // each: number of commands of a client
	s := conversation.New(t)
	s.Line("pool main servers=s1")
	s.Line("route - main tags=suffix,a{n}>x")
	for i := range all {
		s.Line(fmt.Sprintf("c%d > delete tag:t%d", i/each, i))
	}
	for left, round := all, 0; left > 0; round++ {
		got := &s.Endpoints["s1"].Got
		n := strings.Count(got.String(), "md __rs_t:")
		if got.Reset(); n == 0 || n > 512 || round == 0 && n == all {
			t.Fatalf("in round %d, %d of %d invalidations are sent", round, n, left)
		}
		left -= n
		s.Line("s1 > " + strings.TrimSuffix(strings.Repeat(`HD\r\nHD\r\n`, n), `\r\n`))
		s.Line("wait 20ms")
	}
	for i := range all / each {
		if got, want := s.Endpoints[fmt.Sprint("c", i)].Got.String(), strings.Repeat("DELETED\r\n", each); got != want {
			t.Errorf("client %d has got %q", i, got)
		}
	}
}
