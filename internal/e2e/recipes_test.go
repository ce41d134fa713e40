package e2e

// This file tests two typical applications while a server is killed and restarted:
// programs in two languages that share a value, and a site with sessions.

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ringside/internal/testenv"
)

// quick are settings of a pool that soon ejects a server which refuses connections, but
// waits long for one that gets no CPU.
var quick = []string{
	"timeouts: {connect: 60s, request: 60s, deadline: 100s}",
	"failover: {mode: rehash, ping: 100ms, lease: 10s, eject_after: {refused: 300ms, silent: 1m}}",
}

// spoken is one output line of the writer or of a reader.
type spoken struct {
	what, key   string
	n           int
	began, done int64
}

func spokenBy(t *testing.T, p *process) (all []spoken) {
	t.Helper()
	for line := range strings.Lines(p.Output()) {
		var s spoken
		if n, _ := fmt.Sscan(line, &s.what, &s.key, &s.n, &s.began, &s.done); n == 5 {
			all = append(all, s)
		}
	}
	return all
}

// TestBroadcast has a Python program write a number every period, which PHP programs
// read. A number read must not be older than the last acknowledged one. It must also be
// at most two periods old, because one write may be in progress and one may have failed.
// With two replicas it must never be missing.
func TestBroadcast(t *testing.T) {
	testenv.OnlyFull(t, "TestSite has programs of several processes while servers die")
	eachDriver(t, func(t *testing.T, driver string) {
		servers := startMemcacheds(t, 3)
		r := startRingside(t, driver, strings.Replace(front(servers, quick...), "ketama", "ketama-points", 1)+`
routes:
  - {prefix: "live:", pool: main, replicas: 2, replicas_on: server}
  - {pool: main}
`)
		keys := []string{"live:viewers", "viewers"}
		writer := startIn(t, "testdata", "/usr/bin/python3", append([]string{"recipes/broadcast.py", r.address, "0.1"}, keys...)...)
		writer.logged(t, `ok viewers 1 `)
		readers := []*process{writer}
		for range 3 {
			readers = append(readers, startIn(t, "testdata", "php", append([]string{"recipes/viewers.php", r.address}, keys...)...))
		}
		more := func() {
			for _, p := range readers {
				for _, key := range keys {
					goal := strings.Count(p.Output(), "ok "+key) + 5
					eventually(t, p.Name+" goes on", func() bool { return strings.Count(p.Output(), "ok "+key) >= goal })
				}
			}
			whole(t, []*ringside{r}, servers, keys[:1], func(string) bool { return true })
		}
		// Each server dies once, including the only one that holds the key without
		// replicas.
		for _, m := range servers {
			more()
			m.Kill()
			r.logged(t, `server=`+m.address+` from=\S+ to=OUT`)
			m.restart(t)
		}
		more()
		for _, p := range readers {
			p.signal(t, syscall.SIGTERM)
			if status := p.wait(t); status != 0 {
				t.Errorf("%s ended with status %d", p.Name, status)
			}
		}
		written := spokenBy(t, writer)
		for _, key := range keys {
			ofKey := slices.DeleteFunc(slices.Clone(written), func(s spoken) bool { return s.key != key })
			count := map[string]int{}
			for _, p := range readers[1:] {
				for _, s := range spokenBy(t, p) {
					if s.key != key {
						continue
					}
					if count[s.what]++; s.what == "error" || s.what == "miss" && key == "viewers" {
						continue
					}
					begun, acknowledged := 0, 0
					for _, w := range ofKey {
						if w.began < s.began {
							begun = w.n
						}
						if w.done < s.began && w.what == "ok" {
							acknowledged = w.n
						}
					}
					if s.n < acknowledged || s.n < begun-2 {
						t.Errorf("%s: %d was read after %d was acknowledged, %d had begun (%s)", key, s.n, acknowledged, begun, s.what)
					}
				}
			}
			t.Logf("%s: %d writes, reads: %v", key, len(ofKey), count)
		}
	})
}

// TestSite runs a site of three frontends that counts each visitor's visits in a session,
// while each server in turn is killed and restarted.
func TestSite(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		servers := startMemcacheds(t, 3)
		r := startRingside(t, driver, front(servers, "timeouts: {connect: 1s, request: 500ms, deadline: 5s}", "failover: {eject_after: {refused: 50ms, silent: 1m}}")+`
routes:
  - {prefix: "memc.sess.key.", pool: main, preset: sessions, replicas_on: server}
`)
		var sites []string
		for range 3 {
			address := freeAddress(t, ownHost())
			start(t, "env", "-C", "testdata/recipes", "RINGSIDE="+r.address, need(t, "php"), "-q", "-S", address, "site.php")
			sites = append(sites, "http://"+address+"/")
		}
		for _, site := range sites {
			eventually(t, "the site answers", func() bool {
				answer, err := http.Get(site)
				if err == nil {
					answer.Body.Close()
				}
				return err == nil && answer.StatusCode == http.StatusOK
			})
		}
		began := time.Now()
		now := func() int64 { return int64(time.Since(began)) }
		var mu sync.Mutex
		var tries []try
		ids := map[string]string{} // session id, by visitor
		visits := func(visitor string) (n int) {
			mu.Lock()
			defer mu.Unlock()
			for _, y := range tries {
				if y.session == visitor && y.what == "ok" {
					n++
				}
			}
			return n
		}
		stop := make(chan bool)
		var all sync.WaitGroup
		visitors := names("visitor", 6)
		for i, visitor := range visitors {
			client := &http.Client{Timeout: 2 * patience}
			all.Go(func() {
				for k := i; ; k++ {
					select {
					case <-stop:
						return
					case <-time.After(50 * time.Millisecond): // a visit starts PHP, which costs CPU time
					}
					y := visit(client, sites[k%len(sites)], visitor, ids, &mu, now)
					mu.Lock()
					tries = append(tries, y)
					mu.Unlock()
				}
			})
		}
		halt := sync.OnceFunc(func() { close(stop); all.Wait() })
		t.Cleanup(halt)
		more := func() {
			for _, v := range visitors {
				goal := visits(v) + 5
				eventually(t, "visits of "+v, func() bool { return visits(v) >= goal })
			}
			var keys []string
			mu.Lock()
			for _, id := range ids {
				keys = append(keys, "memc.sess.key."+id)
			}
			mu.Unlock()
			whole(t, []*ringside{r}, servers, keys, func(string) bool { return true })
		}
		for i, m := range servers {
			more()
			m.Kill()
			if i == 0 { // this outage lasts until the server is ejected
				r.logged(t, `server=`+m.address+` from=\S+ to=OUT`)
			}
			m.restart(t)
		}
		more()
		halt()
		judge(t, "site", visitors, tries)
	})
}

// visit is one request of a visitor, who uses the same cookie at all frontends.
func visit(client *http.Client, site, visitor string, ids map[string]string, mu *sync.Mutex, now func() int64) (y try) {
	y = try{what: "error", session: visitor, began: now()}
	defer func() { y.read, y.done = now(), now() }()
	request, err := http.NewRequest(http.MethodGet, site, nil)
	if err != nil {
		return y
	}
	mu.Lock()
	id := ids[visitor]
	mu.Unlock()
	if id != "" {
		request.AddCookie(&http.Cookie{Name: "PHPSESSID", Value: id})
	}
	answer, err := client.Do(request)
	if err != nil {
		return y
	}
	defer answer.Body.Close()
	for _, c := range answer.Cookies() {
		if c.Name == "PHPSESSID" {
			mu.Lock()
			ids[visitor] = c.Value
			mu.Unlock()
		}
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return y
	}
	f := strings.Fields(string(body))
	if len(f) >= 2 && (f[0] == "ok" || f[0] == "error") {
		y.what = f[0]
		y.n, _ = strconv.Atoi(f[1])
	}
	return y
}
