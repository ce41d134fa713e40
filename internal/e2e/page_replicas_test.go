package e2e

// This file tests the confirmation of an override on the page, where keys have replicas.

import (
	"testing"

	"ringside/internal/testenv"
)

// TestPageOfCopies drains a server of replicated keys on the page. The page must say what
// happens to them, and must refuse to drain the other server too.
func TestPageOfCopies(t *testing.T) {
	testenv.OnlyFull(t, "TestPage covers the page")
	t.Parallel()
	for _, c := range []struct{ what, routes, says string }{
		{"some", "routes: [{prefix: 's:', pool: main, replicas: 2, replicas_on: server}, {pool: main}]", "are served by their other replicas, where they have some; the others m"},
		{"all", "routes: [{pool: main, replicas: 2, replicas_on: server}]", "are served by their other replicas. Restore brings it back, flushed."},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			servers := startMemcacheds(t, 2)
			r := startRingside(t, "epoll", pageFront(servers[0].address, servers[1].address)+c.routes+"\n")
			b := startBrowser(t, 1440, 900)
			b.open(t, "http://"+r.admin+"/")
			drain := func(name string) {
				b.says(t, "#stable .sbody", name)
				b.do(t, "[...document.querySelectorAll('#stable .srow')].find(x => x.querySelector('.dots') && x.querySelector('.a-name').textContent.startsWith('"+name+"')).querySelector('.dots').focus()")
				b.keys(t, keyEnter)
				b.until(t, "!document.getElementById('menu').hidden")
				b.keys(t, keyEnter)
				b.says(t, "#ask h2", "Drain "+name+"?")
				b.says(t, "#ask p", c.says)
				b.keys(t, keyTab+keyEnter)
			}
			b.says(t, "#health h1", "2 servers are ready")
			drain("s0")
			b.says(t, "#health h1", "s0 is drained")
			drain("s1")
			b.says(t, "#ask p", "s1 may have the only usable replica of keys of pool main")
		})
	}
}
