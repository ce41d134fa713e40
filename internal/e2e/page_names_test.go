package e2e

// This file tests the page with long names, many routes and small screens, and its
// accessibility to users without sight or without a mouse.

import (
	"fmt"
	"strings"
	"testing"

	"ringside/internal/testenv"
)

func TestPageOfLongNames(t *testing.T) {
	testenv.OnlyFull(t, "TestPage covers the page")
	t.Parallel()
	const (
		pool   = "sessions.of-the-shop.eu-central-1.production.second-generation"
		server = "the-cache-in-the-cellar-of-the-second-house.eu-central-1.example.com"
		routes = 40
	)
	six, four, other := startMemcachedAt(t, "::1"), startMemcached(t), startMemcached(t)
	var b strings.Builder
	fmt.Fprintf(&b, "pools:\n  %s:\n    distribution: ketama-points\n    failover: {mode: rehash, eject_after: {refused: 1s, silent: 1m}, ping: 500ms, lease: 10s}\n", pool)
	fmt.Fprintf(&b, "    servers: [%q, %q, {name: %s, address: %q}]\n", six.address, four.address, server, other.address)
	b.WriteString("  small: {distribution: jump, servers: [" + fmt.Sprintf("%q", startMemcached(t).address) + "]}\nroutes:\n")
	for i := range routes {
		fmt.Fprintf(&b, "  - {prefix: \"r%d:\", pool: %s, guard: true}\n", i, pool)
	}
	fmt.Fprintf(&b, "  - {prefix: \"small:\", pool: small}\n  - {pool: %s}\n", pool)
	r := startRingside(t, "epoll", b.String())
	c := dial(t, r.address)
	for i := range routes {
		c.misses(fmt.Sprintf("r%d:missing", i))
	}
	someLoad(t, r.address, 4)
	p := startBrowser(t, 1440, 900)
	p.open(t, "http://"+r.admin+"/")
	p.says(t, "#health p", "requests/s to all pools")
	fits := func(width int) {
		t.Helper()
		p.size(t, width, 800)
		p.until(t, fmt.Sprintf("document.documentElement.scrollWidth <= %d && document.getElementById('theme').getBoundingClientRect().right <= %d", width, width))
		p.until(t, "document.getElementById('reason').scrollWidth <= document.getElementById('reason').clientWidth")
	}
	p.do(t, "document.getElementById('key').focus()")
	p.keys(t, "user:17"+keyEnter)
	p.says(t, "#reason", server)
	for _, width := range []int{1440, 1280, 1000, 390, 320} {
		fits(width)
		p.until(t, "document.querySelector('#stable .a-dots button').getBoundingClientRect().right < 4 + document.getElementById('stable').getBoundingClientRect().right")
	}
	p.shot(t, "long-names-320")
	p.size(t, 1440, 900)

	// Addresses are not truncated, because they differ at their end.
	p.until(t, `[...document.querySelectorAll("#stable .a-name b")].filter(x => /:[0-9]+$/.test(x.textContent)).every(x => x.scrollWidth <= x.clientWidth)`)

	// The page lists the busiest routes, and says how many there are.
	p.do(t, "document.getElementById('why').scrollIntoView()")
	p.until(t, "document.querySelectorAll('#whys tbody tr').length === 12 && document.querySelectorAll('#guard tbody tr').length === 12")
	p.says(t, "#guardwhat", fmt.Sprintf("12 of %d routes", routes))

	// A text alternative describes the ring.
	p.do(t, "document.getElementById('ring').scrollIntoView()")
	for _, want := range []string{server, six.address, "of the keys"} {
		p.until(t, fmt.Sprintf("document.getElementById('ringcanvas').getAttribute('aria-label').includes(%q)", want))
	}
	p.until(t, "document.getElementById('strip').getAttribute('aria-label').startsWith('Servers of user:17')")
	p.until(t, "document.getElementById('slabbig').querySelector('svg').getAttribute('aria-label').includes('held')")

	// The reason why a server is out, and the next step, are reachable by keyboard.
	four.Kill()
	p.says(t, "#health h1", four.address+" is out")
	p.says(t, "#health p", "Start memcached there")
	p.until(t, "document.getElementById('ringcanvas').getAttribute('aria-label').includes(' of the keys, out')")
	p.do(t, "document.querySelectorAll('#stable .dots')[1].focus()")
	p.keys(t, keyEnter)
	p.says(t, "#menuwhy", "connection refused")
	p.says(t, "#menuwhy", "Next: RETURN, when it answers")
	p.until(t, "document.querySelector('#menu [role=menu]').getAttribute('aria-describedby') === 'menuwhy'")
	p.shot(t, "long-names-menu")
	p.keys(t, keyEscape)

	p.do(t, "document.getElementById('pool').value = 'small'; document.getElementById('pool').dispatchEvent(new Event('change'))")
	p.says(t, "#ringwhat", "1 bucket")
}
