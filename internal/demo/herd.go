package demo

// This file implements ringside demo --herd. It shows how many rebuilds a guard saves,
// for clients that know only get and set.

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"ringside/internal/cli"
)

const (
	herdClients = 50
	herdExpiry  = 2 * time.Second
	herdRebuild = 300 * time.Millisecond // duration of a rebuild of the page by a client
	herdTime    = 8 * time.Second

	herdPlain   = "plain:"   // prefix of keys without a guard
	herdGuarded = "guarded:" // prefix of keys with a guard; herdRoute has the route for this prefix
)

// herdRoute is the route with a guard, in YAML, for the keys with the guarded prefix.
const herdRoute = "  - {prefix: \"" + herdGuarded + "\", pool: main, guard: {wait: 1s}}\n"

// herd is a group of clients that all read the same page, with counters of their requests.
type herd struct {
	key      string
	rebuilds atomic.Int64
	at       atomic.Int64 // number of clients that are rebuilding the page now
	most     atomic.Int64
	gets     atomic.Int64
}

// herdCounts has the counts of one group of clients that read the same page.
type herdCounts struct {
	Rebuilds int64 `json:"pages_made"`
	AtOnce   int64 `json:"at_the_same_time"` // largest number of clients that rebuilt the page at the same time
	Gets     int64 `json:"pages_read"`
}

func (h *herd) counts() herdCounts {
	return herdCounts{h.rebuilds.Load(), h.most.Load(), h.gets.Load()}
}

// showHerds runs two groups of clients at the same time. One group reads a page without a guard,
// and the other reads a page with a guard. It prints the counts of both.
func showHerds(address string, out io.Writer, asJSON bool) error {
	text := out
	if asJSON {
		text = io.Discard
	}
	fmt.Fprintf(text, "%d clients read one page for %v; it expires after %v, and a rebuild takes %v.\nAt the same time, %d other clients read another page, on a route with a guard.\n\n",
		herdClients, herdTime, herdExpiry, herdRebuild, herdClients)
	plain, guarded := &herd{key: herdPlain + "page"}, &herd{key: herdGuarded + "page"}
	until := time.Now().Add(herdTime)
	errs := make([]error, 2*herdClients)
	var all sync.WaitGroup
	for i := range errs {
		h := []*herd{plain, guarded}[i%2]
		all.Go(func() { errs[i] = h.read(address, until) })
	}
	all.Wait()
	if err := cmp.Or(errs...); err != nil {
		return err
	}
	if asJSON {
		return cli.NewEncoder(out).Encode(map[string]herdCounts{"without_guard": plain.counts(), "with_guard": guarded.counts()})
	}
	fmt.Fprintf(out, "                 without a guard   with one\n")
	without, with := plain.counts(), guarded.counts()
	for _, row := range []struct {
		name          string
		without, with int64
	}{
		{"pages rebuilt", without.Rebuilds, with.Rebuilds},
		{"at the same time", without.AtOnce, with.AtOnce},
		{"pages read", without.Gets, with.Gets},
	} {
		fmt.Fprintf(out, "%-16s %15d %10d\n", row.name, row.without, row.with)
	}
	fmt.Fprintf(out, "\nThe configuration of the guard:\n\n  routes:\n  %s", herdRoute)
	return nil
}

// read runs one client until the given time. The client gets the page, and rebuilds it after a
// miss.
func (h *herd) read(address string, until time.Time) error {
	c := newClient(address)
	defer c.Close()
	for time.Now().Before(until) {
		_, err := c.Get(h.key)
		h.gets.Add(1)
		switch {
		case err == nil:
			time.Sleep(10 * time.Millisecond)
		case errors.Is(err, memcache.ErrCacheMiss):
			now := h.at.Add(1)
			for most := h.most.Load(); now > most && !h.most.CompareAndSwap(most, now); most = h.most.Load() {
			}
			h.rebuilds.Add(1)
			time.Sleep(herdRebuild)
			h.at.Add(-1)
			if err := c.Set(&memcache.Item{Key: h.key, Value: []byte("page"), Expiration: int32(herdExpiry / time.Second)}); err != nil {
				return err
			}
		default:
			return err
		}
	}
	return nil
}
