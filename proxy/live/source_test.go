package live

import (
	"strings"
	"testing"

	"ringside/proxy/table"
)

func TestSourcesInHealth(t *testing.T) {
	sources := []Source{
		{Pool: "other", Source: "dns+x:1", Servers: 1, State: "failing", Problem: "no such host"},
		{Pool: "main", Source: "dns+a:1", Servers: 1, State: "ok"},
		{Pool: "main", Source: "dns+b:1", Servers: 2, State: "failing", Problem: "no such host"},
		{Pool: "main", Source: "dns+c:1", Servers: 2, State: "held", Problem: "it would remove 3 of 4 servers; max_change allows 2. ringside reload --accept accepts it"},
		{Pool: "main", Source: "dns+d:1", State: "failing", Problem: "timeout"},
	}
	h := Health{Level: Good, Title: "All is well", Text: "Clients are served."}
	h.warnOfSources(sources[:2], "main")
	if h.Level != Good {
		t.Error(h)
	}
	h.warnOfSources(sources, "main")
	const title, want = "The source dns+b:1 fails, so its servers stay as they are: no such host", "All is well. Clients are served." +
		" The answer of dns+c:1 is not applied: it would remove 3 of 4 servers; max_change allows 2. ringside reload --accept accepts it." +
		" The source dns+d:1 has not given its servers yet: timeout."
	if h.Level != Warn || h.Title != title || h.Text != want {
		t.Errorf("%s %s", h.Level, h.Text)
	}
	if h := healthOf(&Tick{}, &table.Pool{Name: "main", Unknown: true}); h.Level != Bad || !strings.Contains(h.Title, "not known") {
		t.Error(h)
	}
}
