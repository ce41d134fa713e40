package testenv

// This file starts the ringside binary for the tests of recipes, as a proxy for memcached
// servers. It also queries the states of the servers.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/bradfitz/gomemcache/memcache"
)

// Ringside is a running ringside binary, a proxy for some servers.
type Ringside struct {
	Address string
	admin   string
	file    string
	*Process
}

// binary builds the ringside binary at its first call, and returns the path of the binary.
var binary = sync.OnceValues(func() (path string, err error) {
	if built, err = os.MkdirTemp("", "ringside-test"); err != nil {
		return "", err
	}
	return Build(built, false)
})

var built string // the directory of the binary; empty: none was built

// Binary returns the path of the ringside binary, which it builds at its first call. Clean
// removes the binary.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Clean removes the binary that Binary has built. The function TestMain of a package calls it at
// the end.
func Clean() {
	if built != "" {
		os.RemoveAll(built)
	}
}

// Two is the prefix of the keys that have two replicas. All other keys have one replica.
const Two = "two:"

// StartRingside starts an instance with one pool of the given servers. The keys of an ejected
// server move to the other servers.
func StartRingside(t testing.TB, servers []*Memcached) *Ringside {
	t.Helper()
	for try := 0; ; try++ {
		r := &Ringside{Address: FreeAddress(t, OwnHost()), admin: FreeAddress(t, OwnHost()), file: filepath.Join(t.TempDir(), "ringside.yaml")}
		config := fmt.Sprintf(`listen: %s
admin: %s
pools:
  main:
    distribution: ketama-points
    timeouts: {connect: 20s, request: 20s, deadline: 60s}
    failover: {mode: rehash, ping: 100ms, lease: 10s, eject_after: {refused: 300ms, silent: 1m}}
    servers:
`, r.Address, r.admin)
		for _, m := range servers {
			config += fmt.Sprintf("      - %s\n", m.Address)
		}
		config += fmt.Sprintf("routes:\n  - {prefix: %q, pool: main, replicas: 2, replicas_on: server}\n  - {pool: main}\n", Two)
		if err := os.WriteFile(r.file, []byte(config), 0o644); err != nil {
			t.Fatal(err)
		}
		r.Process = Start(t, Binary(t), "serve", "-c", r.file)
		err := r.Ready(r.Address)
		if err == nil {
			t.Cleanup(func() {
				if sign := r.Crashed(); sign != "" {
					t.Errorf("ringside wrote %q", sign)
				}
			})
			return r
		} else if try == 3 || !strings.Contains(err.Error(), "address already in use") {
			t.Fatal(err)
		}
	}
}

// Route returns the output of the command `ringside route` for keys.
func (r *Ringside) Route(t testing.TB, keys ...string) string {
	t.Helper()
	out, err := exec.Command(Binary(t), append([]string{"route", "-c", r.file, "--json"}, keys...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("ringside route: %v\n%s", err, out)
	}
	return string(out)
}

// Calm waits until every server is up, is in phase IN, and is not suspect.
func (r *Ringside) Calm(t testing.TB) {
	t.Helper()
	Eventually(t, "every server is in", func() bool {
		for _, s := range r.servers(t) {
			if s.State != "up" || s.Failover == nil || s.Failover.Phase != "IN" || s.Failover.Suspect {
				return false
			}
		}
		return true
	})
}

// Out waits until the server m is ejected (phase OUT).
func (r *Ringside) Out(t testing.TB, m *Memcached) {
	t.Helper()
	Eventually(t, "the server is out", func() bool {
		for _, s := range r.servers(t) {
			if s.Address == m.Address && s.Failover != nil && s.Failover.Phase == "OUT" {
				return true
			}
		}
		return false
	})
}

type serverState struct {
	Address  string
	State    string
	Failover *struct {
		Phase   string
		Suspect bool
	}
}

func (r *Ringside) servers(t testing.TB) []serverState {
	t.Helper()
	client := http.Client{Timeout: Patience}
	answer, err := client.Get("http://" + r.admin + "/control/servers")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var all struct{ Servers []serverState }
	if err := json.NewDecoder(answer.Body).Decode(&all); err != nil {
		t.Fatal(err)
	}
	return all.Servers
}

// Copied waits until each key that should have two replicas was found on two servers. After that,
// one of the servers may fail. Keys may change during the wait. A key is checked until it was
// found on two servers once, or is gone.
func Copied(t testing.TB, servers []*Memcached) {
	t.Helper()
	right := map[string]bool{}
	Eventually(t, "each key has its copies", func() bool {
		on := map[string]int{}
		for _, m := range servers {
			for _, key := range m.keys(t) {
				on[key]++
			}
		}
		wrong := 0
		for key, n := range on {
			right[key] = right[key] || n == 2
			if !right[key] {
				wrong++
			}
		}
		return wrong == 0
	})
}

// keys returns the keys on the server m that begin with the prefix Two. Each such key should have
// a replica on two servers.
func (m *Memcached) keys(t testing.TB) (keys []string) {
	t.Helper()
	c, err := Dial(m.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "lru_crawler metadump all\r\n")
	var all []byte
	for buf := make([]byte, 64<<10); !bytes.HasSuffix(all, []byte("END\r\n")); {
		n, err := c.Read(buf)
		if all = append(all, buf[:n]...); err != nil {
			t.Fatalf("%v after %q", err, all)
		}
	}
	for line := range strings.Lines(string(all)) {
		if key, ok := strings.CutPrefix(line, "key="+strings.ReplaceAll(Two, ":", "%3A")); ok {
			key, _, _ = strings.Cut(key, " ")
			keys = append(keys, key)
		}
	}
	return keys
}

// Client returns a gomemcache client for an address. The client's timeout is longer than the
// deadline of Ringside.
func Client(t testing.TB, address string) *memcache.Client {
	c := memcache.New(address)
	c.Timeout, c.MaxIdleConns = Patience, 64
	t.Cleanup(func() { c.Close() })
	return c
}
