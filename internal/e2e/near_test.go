package e2e

// This file checks that values from the near cache are never older than allowed.

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"ringside/internal/testenv"
	"ringside/proxy/live"
)

// nearHistory records the writes and reads of one key. Its values are 1, 2, 3 and so on.
type nearHistory struct {
	began, ended []time.Duration // of the write of each value; the slices start with value 1; ended is 0 while a write is in progress
	reads        []nearRead
}

type nearRead struct {
	began, ended time.Duration
	value        int // 0: a miss
}

// worst returns the largest staleness of a read: the time from the end of the write that
// replaced the value to the beginning of the read.
func (h *nearHistory) worst(t testing.TB) (age time.Duration) {
	for _, r := range h.reads {
		switch next := r.value + 1; {
		case r.value > 0 && (r.value > len(h.began) || h.began[r.value-1] > r.ended):
			certain(t)
			t.Errorf("%d was read before it was written", r.value)
		case next <= len(h.ended) && h.ended[next-1] > 0:
			age = max(age, r.began-h.ended[next-1])
		}
	}
	return age
}

// startNear runs one ringside with a near cache, where entries live for ttl, and one
// without.
func startNear(t testing.TB, ttl time.Duration) (keeper, other *ringside) {
	t.Helper()
	pool := front(startMemcacheds(t, 2))
	keeper = startRingside(t, drivers()[0], pool+fmt.Sprintf("routes: [{pool: main, near: {ttl: %v, keys: all}}]\nengine: {loops: 2}\n", ttl))
	return keeper, startRingside(t, drivers()[0], pool)
}

// TestNear runs an instance with a near cache. Writes through another instance may be
// seen a ttl late. Writes through the same instance must be seen at once.
func TestNear(t *testing.T) {
	t.Parallel()
	length := 4 * time.Second
	if testenv.Full() {
		length = 9 * time.Second
	}
	// A loop that is starved between reading the clock and its reply returns a value that
	// much later.
	rounds(t, 20*time.Millisecond, func(t testing.TB) { playNear(t, time.Second, length) })
}

func playNear(t testing.TB, ttl, length time.Duration) {
	keeper, other := startNear(t, ttl)
	start := time.Now()
	histories := map[string]*nearHistory{}
	var mu sync.Mutex // guards the histories
	var writers, readers sync.WaitGroup
	stop := make(chan struct{})
	for i := range 4 {
		key, at := fmt.Sprintf("key%d", i), other
		if i >= 2 {
			at = keeper
		}
		h := new(nearHistory)
		histories[key] = h
		c := dial(t, at.address)
		writers.Go(func() {
			for value := 1; time.Since(start) < length; value++ {
				text := fmt.Sprint(value)
				mu.Lock()
				h.began, h.ended = append(h.began, time.Since(start)), append(h.ended, 0)
				mu.Unlock()
				c.ask(fmt.Sprintf("set %s 0 0 %d\r\n%s", key, len(text), text), "STORED")
				mu.Lock()
				h.ended[value-1] = time.Since(start)
				mu.Unlock()
				time.Sleep(time.Duration(5+20*(value%3)) * time.Millisecond) // the write rate does not matter
			}
		})
		for range 3 {
			c := dial(t, keeper.address)
			readers.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Millisecond):
					}
					r := nearRead{began: time.Since(start)}
					c.send("get " + key + "\r\n")
					if line := c.line(); strings.HasPrefix(line, "VALUE") {
						fmt.Sscan(c.line(), &r.value)
						c.line()
					}
					r.ended = time.Since(start)
					mu.Lock()
					h.reads = append(h.reads, r)
					mu.Unlock()
				}
			})
		}
	}
	writers.Wait()
	close(stop)
	readers.Wait()
	for i := range 4 {
		key := fmt.Sprintf("key%d", i)
		h := histories[key]
		age, may := h.worst(t), ttl
		if i >= 2 {
			may = 0
		}
		t.Logf("%s: %d writes, %d reads, the oldest value was %v late", key, len(h.began), len(h.reads), age)
		if age > may {
			if may == 0 {
				certain(t)
			}
			t.Errorf("%s: a value was %v late, %v is the most", key, age, may)
		}
	}
	if hits := keeper.metric(t, `ringside_near_keys_total{listener="`+keeper.address+`",pool="main",result="hit",route=""}`); hits == 0 {
		t.Error("nothing was given out that was kept")
	}
}

// TestNearSeen checks that the page and ringside top show the near cache while clients
// read from it.
func TestNearSeen(t *testing.T) {
	testenv.OnlyFull(t, "TestNear covers the counts, TestPage the page")
	t.Parallel()
	const ttl = 2 * time.Second
	keeper, _ := startNear(t, ttl)
	c := dial(t, keeper.address)
	c.store("key", "value")
	stop := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				c.holds("key", "value")
			}
		}
	})
	defer func() { close(stop); reader.Wait() }()

	b := startBrowser(t, 1440, 900)
	b.open(t, "http://"+keeper.admin+"/")
	b.do(t, "document.getElementById('guards').hidden = false; document.getElementById('guards').scrollIntoView()")
	b.until(t, `parseFloat(document.querySelector("#near tbody td:nth-child(2)")?.textContent) > 0`)
	b.shot(t, "near")
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "ringside top tells of what is kept", func() bool {
		var is struct {
			Routes struct{ Near []live.NearLine }
		}
		if err := json.Unmarshal([]byte(tool(t, binary, "top", "--admin", keeper.admin, "--once", "--json", "--for", "500ms")), &is); err != nil {
			t.Fatal(err)
		}
		n := is.Routes.Near
		return len(n) == 1 && n[0].Hits > 0 && n[0].Share != nil && n[0].Age != nil && *n[0].Age <= float64(ttl.Milliseconds()) && n[0].Bytes > 0
	})
	eventually(t, "ringside top shows it", func() bool {
		return strings.Contains(tool(t, binary, "top", "--admin", keeper.admin, "--once", "--for", "300ms"), " NEAR  other keys ")
	})
}
