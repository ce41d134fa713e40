package e2e

// This file checks limits.memory against the kernel's figures for the process.

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"ringside/internal/testenv"
)

// storm is a load that makes Ringside buffer far more than it may: many clients that all
// send the same requests and read all replies, or none.
type storm struct {
	name    string
	memory  int // limits.memory in MiB; 0: 256, or a quarter of it and of the clients outside of the full tier
	config  func(servers []*memcached) string
	stop    bool // stop the first server
	values  int  // number of values stored before, of size bytes each
	size    int
	clients int
	sends   func(keys []string) string // keys: the stored ones; with stop, those on the stopped server
	reads   bool
	until   func(t testing.TB, servers []*memcached) bool // reports that the load had its effect; nil: wait until everything is sent
}

// patient are timeouts for slow servers.
const patient = "timeouts: {connect: 60s, request: 60s, deadline: 60s}"

func slow(servers []*memcached) string { return front(servers, patient) }

// twoCopies configures two replicas of each key, and a failover that ejects no server.
func twoCopies(servers []*memcached) string {
	return front(servers, patient, "failover: {lease: 250s, ping: 60s}") + "routes: [{pool: main, replicas: 2, replicas_on: server}]\n"
}

func manySets(keys []string) string {
	var all strings.Builder
	value := strings.Repeat("v", 16_000) // below the size at which values are forwarded without a copy
	for i := range 500 {
		fmt.Fprintf(&all, "set %s 0 0 %d\r\n%s\r\n", keys[i%len(keys)], len(value), value)
	}
	return all.String()
}

// settled reports whether the servers had hits before, but none in the last two seconds.
// Ringside has then stopped requesting values for clients that do not read.
func settled(t testing.TB, servers []*memcached) bool {
	hits := func() (sum int) {
		for _, s := range servers {
			n, err := s.hits()
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
		return sum
	}
	before := hits()
	time.Sleep(2 * time.Second)
	return before > 0 && hits() == before
}

func (m *memcached) hits() (n int, err error) {
	c, err := dialError(m.address)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	io.WriteString(c, "stats\r\nquit\r\n")
	all, err := io.ReadAll(c)
	if at := regexp.MustCompile(`STAT get_hits (\d+)`).FindSubmatch(all); at != nil {
		return strconv.Atoi(string(at[1]))
	}
	return 0, err
}

var storms = []storm{
	{
		name: "sets to a stopped server", config: slow, stop: true, reads: true,
		clients: 100, sends: manySets,
	},
	{
		name: "gets from a stopped server", stop: true, reads: true,
		config:  func(servers []*memcached) string { return front(servers, patient, "queue: 10000000") },
		memory:  64,
		clients: 150, sends: func(keys []string) string { return strings.Repeat("get "+keys[0]+"\r\n", 4000) },
	},
	{
		name: "sets to two replicas with a stopped server", config: twoCopies, stop: true, reads: true,
		clients: 100, sends: manySets,
	},
	{
		name: "reads of many keys from two replicas with a stopped server", config: twoCopies, stop: true, reads: true,
		memory:  64,
		clients: 20, sends: func(keys []string) string {
			return strings.Repeat("get"+strings.Repeat(" "+strings.Join(keys, " "), 1000/len(keys))+"\r\n", 5)
		},
	},
	{
		name: "large values to clients that do not read", config: slow,
		values: 20, size: 1 << 20, clients: 60,
		sends: func(keys []string) string { return "get " + strings.Join(keys, "\r\nget ") + "\r\n" },
		until: settled,
	},
	{
		name: "reads of many values by clients that do not read", config: slow,
		values: 100, size: 10_000, clients: 100,
		sends: func(keys []string) string { return strings.Repeat("get "+strings.Join(keys, " ")+"\r\n", 20) },
		until: settled,
	},
	{
		name: "values in order to clients that do not read",
		config: func(servers []*memcached) string {
			return front(servers, patient, "multiget_order: request")
		},
		values: 100, size: 10_000, clients: 100,
		sends: func(keys []string) string { return strings.Repeat("get "+strings.Join(keys, " ")+"\r\n", 20) },
		until: settled,
	},
}

// TestMemoryBound checks that resident memory stays within the bound in the example file,
// whatever clients and servers do, and that Ringside continues to serve.
func TestMemoryBound(t *testing.T) {
	t.Parallel()
	for _, driver := range drivers() {
		for _, storm := range storms {
			t.Run(storm.name+"/"+driver, func(t *testing.T) { storm.play(t, driver) })
		}
	}
}

func (s *storm) play(t testing.TB, driver string) {
	limit, clients := cmp.Or(s.memory, 256)<<20, s.clients
	if s.memory == 0 && !testenv.Full() {
		limit, clients = limit/4, clients/4
	}
	mayReside := limit + limit/4 + 64<<20 // the container size that the example file recommends
	servers := startMemcacheds(t, 2)
	binary, err := buildPlain()
	if err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t, ownHost())
	r, err := runRingside(t, driver, []string{address}, fmt.Sprintf("listen: %s\n%slimits: {memory: %d}\n", address, s.config(servers), limit), binary)
	if err != nil {
		t.Fatal(err)
	}
	client := dial(t, r.address)
	keys := names("key", max(s.values, 100))
	for _, key := range keys {
		client.store(key, strings.Repeat("v", max(s.size, 1)))
	}
	if s.stop {
		found, _ := dial(t, servers[0].address).get(keys...)
		keys = slices.Sorted(maps.Keys(found))
		servers[0].pause(t)
	}
	request := []byte(s.sends(keys))
	var sent sync.WaitGroup
	for range clients {
		c, err := dialError(r.address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if s.reads {
			go io.Copy(io.Discard, c)
		} else {
			c.(*net.TCPConn).SetReadBuffer(4 << 10)
		}
		sent.Go(func() {
			c.SetDeadline(time.Now().Add(patience))
			c.Write(request) // the connection may be closed
		})
	}
	all := make(chan struct{})
	go func() { sent.Wait(); close(all) }()
	// With a stopped server, Ringside may not read all requests. The load has then had
	// its effect when memory no longer grows.
	since, was := time.Now(), 0
	eventually(t, "all is sent, or no more is read", func() bool {
		if is := r.memory(t, "VmHWM"); is > was {
			since, was = time.Now(), is
		}
		select {
		case <-all:
			return true
		default:
			return s.stop && time.Since(since) > 3*time.Second
		}
	})
	if s.until != nil {
		eventually(t, "the load has had its effect", func() bool { return s.until(t, servers) })
	}
	if s.stop {
		servers[0].resume(t)
	}
	other := dial(t, r.address)
	eventually(t, "others are served", func() bool { return other.set("other", "1") == "STORED" })
	eventually(t, "others read what they have written", func() bool { // a rejected read shows as a miss
		found, end := other.get("other")
		return found["other"] == "1" && end == "END"
	})
	most := r.memory(t, "VmHWM")
	t.Logf("at most %d MiB were resident, now %d MiB; %d MiB are allowed", most>>20, r.memory(t, "VmRSS")>>20, mayReside>>20)
	for _, what := range []string{`ringside_client_connections_closed_total{reason="memory"}`, "ringside_values_refused_total"} {
		t.Logf("%s: %v", what, r.metric(t, what))
	}
	if most > mayReside {
		t.Errorf("%d MiB were resident", most>>20)
	}
}

// memory returns one line of /proc/PID/status of p, in bytes.
func (p *process) memory(t testing.TB, line string) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(line + `:\s+(\d+) kB`).FindSubmatch(status)
	if found == nil {
		t.Fatalf("no %s in %s", line, status)
	}
	n, _ := strconv.Atoi(string(found[1]))
	return n << 10
}
