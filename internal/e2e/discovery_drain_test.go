package e2e

// This file runs the hooks of docs/discovery.md, which drain a pod before it ends.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"ringside/internal/testenv"
)

// TestPodsDrainBeforeTheyEnd replaces pods one after the other, as fast as the hooks of the page allow, under
// load through two instances. Each pod ends with all its data, and returns empty at another address. No value
// is lost, and no get returns an older one.
func TestPodsDrainBeforeTheyEnd(t *testing.T) {
	t.Parallel()
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/discovery.md")
	if err != nil {
		t.Fatal(err)
	}
	hooks := map[string]string{}
	for _, m := range regexp.MustCompile(`(preStop|postStart): \{exec: \{command: \[sh, -c, '(.*)'\]\}\}`).FindAllStringSubmatch(string(page), -1) {
		hooks[m[1]] = strings.NewReplacer(`"$POD.mc.prod.svc.cluster.local.:11211"`, `"$POD"`, "ringside-admin:9151", `"$ADMIN"`, "ringside server", `"$RINGSIDE" server`).Replace(m[2])
	}
	list := filepath.Join(t.TempDir(), "servers")
	servers := startMemcacheds(t, 3)
	publish := func() {
		var b strings.Builder
		for i, s := range servers {
			fmt.Fprintf(&b, "%s name=mc-%d\n", s.address, i)
		}
		if err := os.WriteFile(list+".new", []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(list+".new", list); err != nil {
			t.Fatal(err)
		}
	}
	publish()
	config := fmt.Sprintf(`pools:
  main:
    distribution: ketama-points
    get_errors: error # a read without a lease is no lost value
    timeouts: {connect: 1s, request: 1s, deadline: 20s}
    failover: {mode: rehash, ping: 100ms, lease: 600ms, consistency: strict}
    servers: {discover: "file+%s", every: 1s, keep: 10m}
routes: [{pool: main, replicas: 2}]
`, list)
	var instances [2]*ringside
	var clients [2]*memcache.Client
	for i := range instances {
		instances[i] = startRingside(t, "auto", config)
		clients[i] = testenv.Client(t, instances[i].address)
	}
	set := func(through int, key string, n int) error {
		return clients[through].Set(&memcache.Item{Key: key, Value: []byte(strconv.Itoa(n))})
	}
	keys := names("key", 200)
	eventually(t, "all values are stored", func() bool {
		for _, key := range keys {
			if set(0, key, 0) != nil {
				return false
			}
		}
		return true
	})
	var lost, stale, sets, failed int
	last := map[string]int{} // the number that each key has; negative: not known, because a set failed
	look := func(through int, key string) {
		it, err := clients[through].Get(key)
		switch n := last[key]; {
		case errors.Is(err, memcache.ErrCacheMiss):
			lost++
		case err == nil && n >= 0 && string(it.Value) != strconv.Itoa(n):
			stale++
		}
	}
	end, ended := make(chan struct{}), sync.WaitGroup{}
	ended.Go(func() {
		for n := 1; ; n++ {
			for i, key := range keys {
				select {
				case <-end:
					if sets >= 100 { // a slow machine
						return
					}
				default:
				}
				if i%4 == 0 { // the others are only read
					sets++
					if last[key] = n; set(n%2, key, n) != nil {
						last[key] = -1
						failed++
					}
				}
				look((n+1)%2, key)
				time.Sleep(time.Millisecond) // the load shall not slow down other tests
			}
		}
	})
	rounds := 2
	if testenv.Full() {
		rounds = 9
	}
	for round := range rounds {
		pod, through := round%3, instances[round%2]
		hook := func(name string) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			c := exec.CommandContext(ctx, "sh", "-c", hooks[name])
			c.Env = append(os.Environ(), fmt.Sprint("POD=mc-", pod), "ADMIN="+through.admin, "RINGSIDE="+binary)
			if out, err := c.CombinedOutput(); err != nil {
				t.Fatalf("%s of mc-%d: %v\n%s", name, pod, err, out)
			}
		}
		hook("preStop")
		servers[pod].Kill()
		if round == rounds-1 {
			break // the other servers have all values
		}
		servers[pod] = startMemcached(t)
		publish()
		hook("postStart")
	}
	close(end)
	ended.Wait()
	for _, key := range keys {
		look(0, key)
		look(1, key)
	}
	t.Logf("%d sets, of which %d failed", sets, failed)
	if lost+stale > 0 {
		t.Errorf("%d values are lost, %d are stale", lost, stale)
	}
}
