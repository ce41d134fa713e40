package e2e

// This file tests how the page and ringside top show guards, tags and replicas.

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"ringside/internal/testenv"
)

func TestRoutesSeen(t *testing.T) {
	testenv.OnlyFull(t, "proxy/live covers what is told of routes")
	t.Parallel()
	servers := startMemcacheds(t, 3)
	var addresses []string
	for _, s := range servers {
		addresses = append(addresses, s.address)
	}
	// A server that is killed is ejected soon; a slow one is not.
	pool := strings.Replace(pageFront(addresses...), "eject_after: 1s", "eject_after: {refused: 1s, silent: 1m}", 1)
	r := startRingside(t, "auto", pool+`routes:
  - {prefix: "<b>p", pool: main, guard: {`+patientGuard+`}}
  - {prefix: "t:", pool: main, tags: true}
  - {prefix: "c:", pool: main, replicas: 2, replicas_on: server, repair: 1}
  - {pool: main}
`)
	b := startBrowser(t, 1440, 900)
	b.open(t, "http://"+r.admin+"/")
	b.until(t, "!document.getElementById('guards').hidden")

	// One client rebuilds, and another one waits and so saves a rebuild.
	c, d := dial(t, r.address), dial(t, r.address)
	c.misses("<b>p1")
	d.send("get <b>p1\r\n")
	eventually(t, "one waits", func() bool { return r.count(t, "ringside_guard_waiting") == 1 })
	c.store("<b>p1", "made")
	d.expect("VALUE <b>p1 0 4\r\nmade\r\nEND\r\n")
	b.do(t, "document.getElementById('guards').scrollIntoView()")
	b.says(t, "#guardwhat", "1 rebuild saved since the start")
	b.says(t, "#guard", "<b>p")
	if n := eval[int](t, b, "document.querySelectorAll('#guard b').length"); n != 0 {
		t.Error("a route has become a part of the page")
	}

	// A client invalidates a tag.
	c.store("t:1;tags=a", "x")
	c.ask("delete tag:a", "DELETED")
	b.says(t, "#tagwhat", "1 invalidation by this instance")
	b.says(t, "#lacks", "No server lacks replicas")

	// A server restarts empty and is refilled with one key a second.
	const keys = 4000 // enough for a refill that lasts far longer than the test
	for i := range keys {
		c.store(fmt.Sprint("c:", i), "x")
	}
	servers[1].Kill()
	b.says(t, "#health h1", "s1 is out")
	servers[1].restart(t)
	b.says(t, "#health h1", "All 3 servers serve")
	b.says(t, "#lacks", "s1 is empty until it is filled")
	b.do(t, "document.getElementById('why').scrollIntoView()")
	b.says(t, "#whys", "never") // the reason why the keys missed
	b.shot(t, "routes")
	for _, width := range []int{390, 1440} {
		b.size(t, width, 900)
		b.until(t, fmt.Sprintf("document.documentElement.scrollWidth <= %d", width))
	}

	// The page shows the servers of a replicated key, also while one of them is refilled.
	b.do(t, "document.getElementById('key').value = ''")
	b.do(t, "document.getElementById('key').focus()")
	b.keys(t, "c:1"+keyEnter)
	b.says(t, "#reason", "keeps 2 replicas")

	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	var is struct {
		Routes struct {
			Guards        []struct{ Ever, Waiting int }
			Invalidations struct{ Ever int }
			Lacks         []struct {
				Server int
				Text   string
			}
		}
	}
	text, _ := r.top(t, "--json", "--for", "200ms")
	if err := json.Unmarshal([]byte(text), &is); err != nil {
		t.Fatal(err)
	}
	if w := is.Routes; len(w.Guards) != 2 || w.Guards[0].Ever != 1 || w.Invalidations.Ever != 1 || len(w.Lacks) != 1 || w.Lacks[0].Server != 1 {
		t.Errorf("ringside top tells %+v", w)
	}
	x := startTerminal(t, 120, 60, nil, binary, "top", "--admin", r.admin)
	x.shows(t, "LACKS s1 is empty until it is filled", "GUARD <b>p", "TAGS  t:", "REPLICAS")
	eventually(t, "no server is said not to answer", func() bool { return !strings.Contains(x.screen(), "no answer") })
}
