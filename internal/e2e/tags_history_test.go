package e2e

// This file tests tags under many faults at once: it checks each value read against the
// invalidations.

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ringside/proxy/ablation"
	"ringside/proxy/tags/stamp"
)

// tagHistory records what clients of several instances read and invalidated.
type tagHistory struct {
	addresses []string // of the instances
	servers   []*memcached
	rounds    int // of each client
	begun     atomic.Int64

	origin, least                             [historyTags]atomic.Int64 // version in the database; lowest version that may be read
	read, missed, stored, invalidated, failed atomic.Int64

	mu    sync.Mutex
	stale []string // descriptions of outdated values that were read
}

const (
	historyTags    = 12
	historyKeys    = 24
	historyClients = 16
)

// historyRoute derives one tag of the keys p{n} from the key.
const historyRoute = `guard: {wait: off, sets: after_miss}, tags: {patterns: [{match: "p{n}", tags: ["t{n}"]}]}`

// TestTagsHistory checks that no read returns an outdated value. A value is outdated if
// one of its tags was invalidated after it was built, and that invalidation was
// acknowledged before the read.
func TestTagsHistory(t *testing.T) {
	t.Parallel()
	h := &tagHistory{servers: startMemcacheds(t, 3), rounds: 120}
	for range 4 {
		h.addresses = append(h.addresses, startRingside(t, "auto", tagRoute(h.servers, historyRoute)).address)
	}
	h.play(t)
	for _, s := range h.stale {
		t.Error(s)
	}
	if h.read.Load() < 100 || h.invalidated.Load() < 250 {
		t.Error("too little was read, or invalidated, to show anything")
	}
}

// TestTagsHistoryMutant switches off the rule that a value gets the tag versions of its
// miss. Clients must then read an outdated value.
func TestTagsHistoryMutant(t *testing.T) {
	t.Parallel()
	h := &tagHistory{servers: startMemcacheds(t, 3), rounds: 60}
	for range 4 {
		h.addresses = append(h.addresses, serveInside(t, tagRoute(h.servers, historyRoute), ablation.Set{Stamp: true, Order: true}))
	}
	// Without overlapping clients no value is outdated, so they run again.
	for end := time.Now().Add(patience); len(h.stale) == 0; {
		if h.play(t); time.Now().After(end) {
			t.Fatal("no value was too old: nothing shows what the rule is for")
		}
	}
	t.Logf("%d values were too old: %s", len(h.stale), h.stale[0])
}

// play runs all clients, and the faults of the servers at the same time.
func (h *tagHistory) play(t testing.TB) {
	t.Helper()
	var all, chaos sync.WaitGroup
	for i := range historyClients {
		all.Go(func() { h.client(t, rand.New(rand.NewPCG(13, uint64(i)))) })
	}
	var done atomic.Bool
	chaos.Go(func() { h.trouble(t, &done) })
	all.Wait()
	done.Store(true)
	chaos.Wait()
	t.Logf("%d values read, %d misses, %d sets, %d invalidations, %d not acknowledged", h.read.Load(), h.missed.Load(), h.stored.Load(), h.invalidated.Load(), h.failed.Load())
}

// client reads and rebuilds values, and invalidates tags.
func (h *tagHistory) client(t testing.TB, random *rand.Rand) {
	connect := func() *conn { return dial(t, h.addresses[random.IntN(len(h.addresses))]) }
	c := connect()
	for range h.rounds {
		h.begun.Add(1)
		switch n := random.IntN(100); {
		case n < 1:
			c.Close()
			c = connect()
		case n < 20:
			h.invalidate(c, random.IntN(historyTags))
		default:
			h.use(c, random, random.IntN(historyKeys))
		}
	}
}

// invalidate changes the database, and sends the invalidation until all servers
// acknowledge it.
func (h *tagHistory) invalidate(c *conn, tag int) {
	v := h.origin[tag].Add(1)
	for end := time.Now().Add(patience); c.question(fmt.Sprint("delete tag:t", tag)) != "DELETED"; time.Sleep(5 * time.Millisecond) {
		if h.failed.Add(1); time.Now().After(end) {
			c.t.Errorf("t%d can't be invalidated", tag)
			return
		}
	}
	h.invalidated.Add(1)
	for old := h.least[tag].Load(); old < v && !h.least[tag].CompareAndSwap(old, v); old = h.least[tag].Load() {
	}
}

// use reads a value, or rebuilds it from three tags.
func (h *tagHistory) use(c *conn, random *rand.Rand, k int) {
	of := [3]int{k % historyTags, (k + 1) % historyTags, (k + 3) % historyTags}
	key, suffix := fmt.Sprint("k", k), fmt.Sprintf(";tags=t%d,t%d,t%d", of[0], of[1], of[2])
	if k%2 == 0 { // the first tag is derived from the key
		key, suffix = fmt.Sprint("p", of[0]), fmt.Sprintf(";tags=t%d,t%d", of[1], of[2])
	}
	var atLeast, now [3]int64
	for i, tag := range of {
		atLeast[i] = h.least[tag].Load()
	}
	asked := key
	if random.IntN(4) == 0 { // the get contains the tags too
		asked += suffix
	}
	got, _ := c.get(asked)
	if value, hit := got[key]; hit {
		h.read.Add(1)
		for i, text := range strings.Split(value, ",") {
			if v, err := strconv.ParseInt(text, 10, 64); err != nil || v < atLeast[i] {
				h.mu.Lock()
				h.stale = append(h.stale, fmt.Sprintf("%s is %q, and t%d was invalidated at %d", key, value, of[i], atLeast[i]))
				h.mu.Unlock()
			}
		}
		return
	}
	h.missed.Add(1)
	for i, tag := range of {
		now[i] = h.origin[tag].Load()
	}
	time.Sleep(time.Duration(random.IntN(5000)) * time.Microsecond)
	if c.set(key+suffix, fmt.Sprintf("%d,%d,%d", now[0], now[1], now[2])) == "STORED" {
		h.stored.Add(1)
	}
}

// troubleEvery is the number of client rounds between two faults.
const troubleEvery = 100

// trouble kills and flushes servers and deletes tags, until done.
func (h *tagHistory) trouble(t testing.TB, done *atomic.Bool) {
	random := rand.New(rand.NewPCG(13, 1000))
	for i := h.begun.Load() / troubleEvery; !done.Load(); {
		if h.begun.Load() < (i+1)*troubleEvery {
			time.Sleep(time.Millisecond)
			continue
		}
		i++
		s := h.servers[random.IntN(len(h.servers))]
		if i%4 == 3 { // the server restarts empty, and its cas tokens start at one again
			s.Kill()
			s.restart(t)
			continue
		}
		conn, err := dialError(s.address)
		if err != nil {
			continue
		}
		lose := "flush_all\r\n"
		if i%4 != 1 { // delete each tag and bucket
			lose = ""
			for n := range historyTags {
				tag := stamp.In("").Tag(fmt.Append(nil, "t", n))
				lose += fmt.Sprintf("delete %s noreply\r\ndelete %s noreply\r\n", tag.AppendKey(nil), tag.AppendBucket(nil))
			}
		}
		conn.Write([]byte(lose))
		conn.Close()
	}
}
