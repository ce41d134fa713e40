package e2e

// This file tests the page of pools without points on a ring: modulo and jump.

import (
	"encoding/json"
	"strings"
	"testing"

	"ringside/internal/testenv"
)

// TestPageOfKinds enters a key on the page of a modulo pool and of a jump pool, before
// and after its owner is out. It compares the result with ringside route. One server has
// a long name.
func TestPageOfKinds(t *testing.T) {
	testenv.OnlyFull(t, "TestPage covers the page")
	t.Parallel()
	for _, kind := range []string{"modulo-crc32", "jump"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			servers := startMemcacheds(t, 3)
			config := strings.ReplaceAll(pageFront(servers[0].address, servers[1].address, servers[2].address), "ketama-points", kind)
			config = strings.ReplaceAll(config, "name: s2", "name: the-cache-in-the-cellar-of-the-second-house")
			r := startRingside(t, "epoll", config)
			someLoad(t, r.address, 4)
			hotLoad(t, r.address, "home:top", "home:new")
			b := startBrowser(t, 1440, 900)
			b.open(t, "http://"+r.admin+"/")
			b.says(t, "#health h1", "All 3 servers serve")
			binary, err := build()
			if err != nil {
				t.Fatal(err)
			}
			var is struct {
				Hash, Owner string
			}
			if err := json.Unmarshal([]byte(tool(t, binary, "route", "-c", r.file, "--json", "home:top")), &is); err != nil {
				t.Fatal(err)
			}
			b.do(t, "document.getElementById('key').focus()")
			b.keys(t, "home:top"+keyEnter)
			b.says(t, "#reason", is.Owner)
			b.says(t, "#reason", is.Hash)
			b.shot(t, kind+"-route")
			for i, name := range []string{"s0", "s1", "the-cache-in-the-cellar-of-the-second-house"} {
				if name == is.Owner {
					servers[i].Kill()
				}
			}
			b.says(t, "#health h1", is.Owner+" is out")
			b.says(t, "#reason", "is out, so now")
			b.do(t, "document.getElementById('keys').scrollIntoView()")
			b.says(t, "#hot tbody", "home:top")
			b.shot(t, kind+"-out")
			b.size(t, 390, 844)
			b.until(t, "document.documentElement.scrollWidth <= 390")
			b.shot(t, kind+"-phone")
		})
	}
}
