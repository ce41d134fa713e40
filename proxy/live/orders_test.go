package live

import (
	"strings"
	"testing"

	"ringside/proxy/table"
)

// TestQuestions checks what an operator is told before a server is drained or restored, by
// the failover of its pool and the replicas of its routes.
func TestQuestions(t *testing.T) {
	server := TopoServer{Name: "b", Share: .25}
	for _, c := range []struct {
		mode           table.Mode
		replicas       []int
		drain, restore string
	}{
		{table.FailFast, []int{1}, "requests/s, miss, and writes to them fail, until it is restored. It keeps its items.", "with its old values"},
		{table.Rehash, []int{1}, "requests/s, move to other servers and miss once each. Restore brings it back, flushed.", "Each of them misses once."},
		{table.Rehash, []int{2, 1}, "where they have some; the others move to other servers and miss once each. Restore brings it back, flushed.", "Each that has no other replica misses once."},
		{table.FailFast, []int{2}, "are served by their other replicas. Restore brings it back, flushed.", "Their other replicas serve them meanwhile."},
	} {
		of := &Topo{Failover: c.mode.String()}
		for _, n := range c.replicas {
			of.Routes = append(of.Routes, TopoRoute{Replicas: n})
		}
		title, text := of.questions("miss, and writes to them fail")["drain"].About(&server, 1200)
		if title != "Drain b?" || !strings.HasPrefix(text, "Its 25.0 % of the keys, now 1,200 ") || !strings.HasSuffix(text, c.drain) {
			t.Errorf("%v %v: %s %s", c.mode, c.replicas, title, text)
		}
		if _, text = of.questions("miss, and writes to them fail")["restore"].About(&server, 0); !strings.Contains(text, c.restore) || !strings.Contains(text, "25.0 % of the keys") {
			t.Errorf("%v %v: %s", c.mode, c.replicas, text)
		}
	}
}
