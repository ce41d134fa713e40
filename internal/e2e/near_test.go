package e2e

// Values that are kept in Ringside are never older than they may be.

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"ringside/proxy/live/routes"
)

// nearHistory is what was written to one key, whose values are 1, 2, 3 …, and what was
// read of it.
type nearHistory struct {
	began, ended []time.Duration // of the write of each value, from 0 on; ended is 0 while it is under way
	reads        []nearRead
}

type nearRead struct {
	began, ended time.Duration
	value        int // 0: none
}

// worst is by how much a value was too old at most that a read has got: the time from
// the end of the write that replaced it to the beginning of the read.
func (h *nearHistory) worst(t *testing.T) (age time.Duration) {
	for _, r := range h.reads {
		switch next := r.value + 1; {
		case r.value > 0 && (r.value > len(h.began) || h.began[r.value-1] > r.ended):
			t.Errorf("%d was read before it was written", r.value)
		case next <= len(h.ended) && h.ended[next-1] > 0:
			age = max(age, r.began-h.ended[next-1])
		}
	}
	return age
}

// TestNear lets one Ringside keep values while others write: past it, which reads may
// see a ttl late, and through it, which they must see at once.
func TestNear(t *testing.T) {
	const ttl, length = 2 * time.Second, 9 * time.Second
	servers := startMemcacheds(t, 2)
	pools := fmt.Sprintf("pools: {main: {distribution: ketama, servers: [%q, %q]}}\n", servers[0].address, servers[1].address)
	keeper := startRingside(t, drivers()[0], pools+fmt.Sprintf("routes: [{pool: main, near: {ttl: %v, keys: all}}]\nengine: {loops: 2}\n", ttl))
	other := startRingside(t, drivers()[0], pools)

	start := time.Now()
	histories := map[string]*nearHistory{}
	var mu sync.Mutex // of histories
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
				time.Sleep(time.Duration(5+20*(value%3)) * time.Millisecond) // how often does not matter
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
	// The page and the terminal say what is kept while it is asked for.
	b := startBrowser(t, 1440, 900)
	b.open(t, "http://"+keeper.admin+"/")
	b.do(t, "document.getElementById('guards').hidden = false; document.getElementById('guards').scrollIntoView()")
	b.until(t, `parseFloat(document.querySelector("#near tbody td:nth-child(2)")?.textContent) > 0`)
	b.shot(t, "near")
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	var is struct {
		Routes struct{ Near []routes.NearLine }
	}
	if err := json.Unmarshal([]byte(tool(t, binary, "top", "--admin", keeper.admin, "--once", "--json", "--for", "500ms")), &is); err != nil {
		t.Fatal(err)
	}
	if n := is.Routes.Near; len(n) != 1 || n[0].Hits <= 0 || n[0].Share == nil || n[0].Age == nil || *n[0].Age > float64(ttl.Milliseconds()) || n[0].Bytes == 0 {
		t.Errorf("of what is kept is told %+v", n)
	}
	if text := tool(t, binary, "top", "--admin", keeper.admin, "--once", "--for", "300ms"); !strings.Contains(text, " NEAR  other keys ") {
		t.Errorf("ringside top tells nothing of it:\n%s", text)
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
			t.Errorf("%s: a value was %v late, %v is the most", key, age, may)
		}
	}
	if hits := keeper.metric(t, `ringside_near_keys_total{listener="`+keeper.address+`",pool="main",result="hit",route=""}`); hits == 0 {
		t.Error("nothing was given out that was kept")
	}
}
