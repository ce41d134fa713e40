package e2e

// This file tests the reasons for misses and the cost of misses, in ringside top and in
// the metrics.

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestWhyKeysMiss makes keys of a memcached disappear in every way, and compares the
// reported reasons with the real ones.
func TestWhyKeysMiss(t *testing.T) {
	t.Parallel()
	servers := []*memcached{startMemcached(t, "-m", "8")}
	r := startRingside(t, "auto", front(servers))
	c := dial(t, r.address)
	value := strings.Repeat("v", 10_000)
	const many = 50
	truth := map[string]int{}
	ended := func(reason, prefix string) {
		missed := 0
		for i := range many {
			if found, _ := c.get(fmt.Sprint(prefix, i)); len(found) == 0 {
				missed++
			}
		}
		if truth[reason] += missed; missed < many {
			t.Errorf("%d of %d are there still, and should be %s", many-missed, many, reason)
		}
	}
	each := func(prefix string, ttl int) {
		for i := range many {
			c.ask(fmt.Sprintf("set %s%d 0 %d %d\r\n%s", prefix, i, ttl, len(value), value), "STORED")
		}
	}
	evict := func() {
		for i := range 1000 { // more than fits into memory
			c.store(fmt.Sprint("more:", i), value)
		}
	}
	// While keys miss for no known reason, Ringside reads a server's counts every five
	// seconds. It reports a miss as evicted if the count of evictions has grown since the
	// key was stored. So the test reads other keys until Ringside has seen that.
	const evicted = `ringside_miss_reasons_total{reason="evicted",route=""}`
	each("v:", 0)
	read := 0
	eventually(t, "the server's count of evictions has moved", func() bool {
		if read%100 == 0 { // makes the first keys disappear
			evict()
		}
		c.get(fmt.Sprint("more:", read%100))
		read++
		_, page := r.page(t, "/metrics")
		return strings.Contains(page, evicted)
	})
	before := map[string]int{"evicted": int(r.metric(t, evicted))}
	ended("evicted", "v:")
	each("e:", 1)
	ended("never", "n:")
	each("d:", 0)
	for i := range many {
		c.ask(fmt.Sprint("delete d:", i), "DELETED")
	}
	ended("deleted", "d:")
	eventually(t, "all have expired", func() bool {
		found, _ := c.get(fmt.Sprint("e:", many-1))
		return len(found) == 0
	})
	truth["expired"]++
	time.Sleep(1100 * time.Millisecond) // the server counts whole seconds, so a key may expire up to a second early
	ended("expired", "e:")
	each("f:", 0)
	c.ask("flush_all", "OK")
	ended("flushed", "f:")

	all, right := 0, 0
	for reason, n := range truth {
		told := int(r.metric(t, fmt.Sprintf("ringside_miss_reasons_total{reason=%q,route=%q}", reason, ""))) - before[reason]
		t.Logf("%s: %d told of %d", reason, told, n)
		all, right = all+n, right+min(n, told)
	}
	if right*100 < all*95 {
		t.Errorf("%d of %d are right", right, all)
	}

	for i := range many { // rebuild each key
		c.ask(fmt.Sprintf("set n:%d 0 0 1\r\nx", i), "STORED")
		c.holds(fmt.Sprint("n:", i), "x")
	}
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	var is struct {
		Why struct {
			Routes, Prefixes []struct {
				Name string
				Why  map[string]float64
				P99  *float64 `json:"p99_ms"`
			}
		}
	}
	eventually(t, "ringside top tells why keys missed", func() bool {
		if err := json.Unmarshal([]byte(tool(t, binary, "top", "--admin", r.admin, "--once", "--json", "--for", "200ms")), &is); err != nil {
			t.Fatal(err)
		}
		w := is.Why
		return len(w.Routes) == 1 && w.Routes[0].Why["evicted"] > 0 && w.Routes[0].P99 != nil && len(w.Prefixes) >= 5
	})
	eventually(t, "ringside top shows it", func() bool {
		return strings.Contains(tool(t, binary, "top", "--admin", r.admin, "--once", "--for", "200ms"), "WHY other keys")
	})
}

// TestWhatMissesCost has clients rebuild values that take 10, 100 and 1,000 ms. It
// compares the times in ringside top with those that the clients measured.
func TestWhatMissesCost(t *testing.T) {
	t.Parallel()
	// A starved loop reads the clock late, so its times are wrong by as much.
	rounds(t, 20*time.Millisecond, measureMisses)
}

func measureMisses(t testing.TB) {
	r := startRingside(t, "auto", front(startMemcacheds(t, 2)))
	type origin struct {
		prefix string
		cost   time.Duration
		times  int
		took   [2][]float64 // seconds from the miss to the set: [0] excludes the round trips of the get and of the set, [1] includes both
	}
	origins := []*origin{{"fast:", 10 * time.Millisecond, 100, [2][]float64{}}, {"usual:", 100 * time.Millisecond, 40, [2][]float64{}}, {"slow:", time.Second, 4, [2][]float64{}}}
	var all sync.WaitGroup
	for _, o := range origins {
		c := dial(t, r.address)
		all.Add(1)
		go func() {
			defer all.Done()
			for i := range o.times {
				key := fmt.Sprint(o.prefix, i)
				asked := time.Now()
				c.misses(key)
				missed := time.Now()
				time.Sleep(o.cost)
				made := time.Now()
				c.store(key, "made")
				o.took[0], o.took[1] = append(o.took[0], made.Sub(missed).Seconds()), append(o.took[1], time.Since(asked).Seconds())
				c.holds(key, "made")
			}
		}()
	}
	all.Wait()
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	var is struct {
		Why struct {
			Prefixes []struct {
				Name []byte
				P50  float64 `json:"p50_ms"`
				P99  float64 `json:"p99_ms"`
			}
		}
	}
	if err := json.Unmarshal([]byte(tool(t, binary, "top", "--admin", r.admin, "--once", "--json", "--for", "200ms")), &is); err != nil {
		t.Fatal(err)
	}
	told := 0
	for _, o := range origins {
		for _, list := range o.took {
			slices.Sort(list)
		}
		for _, p := range is.Why.Prefixes {
			if string(p.Name) != o.prefix {
				continue
			}
			told++
			least, most := 1000*o.took[0][o.times/2-1], 1000*o.took[1][o.times/2]
			t.Logf("%s p50 %.1f ms told, %.1f to %.1f measured; p99 %.1f told, %.1f to %.1f the longest", o.prefix, p.P50, least, most,
				p.P99, 1000*o.took[0][o.times-1], 1000*o.took[1][o.times-1])
			if p.P50 < .9*least || p.P50 > 1.1*most {
				t.Errorf("%s: p50 is not within a tenth", o.prefix)
			}
			if longest := 1000 * o.took[1][o.times-1]; p.P99 > 1.1*longest || p.P99 < p.P50 {
				t.Errorf("%s: a p99 of %.1f ms, the longest took %.1f", o.prefix, p.P99, longest)
			}
		}
	}
	if told != len(origins) {
		t.Errorf("told of %+v", is.Why.Prefixes)
	}
}
