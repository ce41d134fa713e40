package e2e

// This file runs an instance that discovers its servers by DNS, in a network namespace with its own
// resolv.conf.

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"ringside/internal/testenv"
)

// dnsZone is the environment variable with the path of the zone file of a DNS server. TestMain runs that
// server instead of tests.
const dnsZone = "RINGSIDE_E2E_DNS"

// serveDNS is a DNS server on 127.0.0.53. Each line of the zone file is "NAME TYPE VALUE". A file with the
// word SERVFAIL fails all queries.
func serveDNS(path string) error {
	answer := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(q)
		m.RecursionAvailable = true
		text, _ := os.ReadFile(path)
		if m.Rcode = dns.RcodeNameError; strings.HasPrefix(string(text), "SERVFAIL") {
			m.Rcode = dns.RcodeServerFailure
		}
		for line := range strings.Lines(string(text)) {
			f := strings.SplitN(strings.TrimSpace(line), " ", 3)
			if len(f) < 3 || !strings.EqualFold(f[0], q.Question[0].Name) {
				continue
			}
			m.Rcode = dns.RcodeSuccess
			if r, err := dns.NewRR(fmt.Sprintf("%s 5 IN %s %s", f[0], f[1], f[2])); err == nil && f[1] == dns.TypeToString[q.Question[0].Qtype] {
				m.Answer = append(m.Answer, r)
			}
		}
		if w.LocalAddr().Network() == "udp" {
			m.Truncate(dns.MinMsgSize)
		}
		w.WriteMsg(m)
	})
	ended := make(chan error)
	for _, network := range []string{"udp", "tcp"} {
		go func() {
			ended <- (&dns.Server{Addr: "127.0.0.53:53", Net: network, Handler: answer}).ListenAndServe()
		}()
	}
	return <-ended
}

// pods are the memcached processes of a StatefulSet, in a network namespace with a DNS server.
type pods struct {
	in   *namespace
	zone string
	at   map[string]string // address by name
	runs map[string]*process
}

// run starts a program in the namespace.
func (p *pods) run(t testing.TB, program string, args ...string) *process {
	t.Helper()
	return start(t, p.in.enter[0], append(append(p.in.enter[1:len(p.in.enter):len(p.in.enter)], need(t, program)), args...)...)
}

// start starts a pod, and waits until it replies.
func (p *pods) start(t testing.TB, name, ip string) {
	t.Helper()
	p.at[name] = ip
	p.runs[name] = p.run(t, "memcached", "-u", "root", "-U", "0", "-m", "64", "-l", ip)
}

// publish writes the zone.
func (p *pods) publish(t testing.TB) {
	t.Helper()
	var b strings.Builder
	for name, ip := range p.at {
		fmt.Fprintf(&b, "_memcached._tcp.mc.prod.svc.cluster.local. SRV 0 0 11211 %s.mc.prod.svc.cluster.local.\n%s.mc.prod.svc.cluster.local. A %s\n", name, name, ip)
	}
	p.write(t, b.String())
}

func (p *pods) write(t testing.TB, text string) {
	t.Helper()
	if err := os.WriteFile(p.zone+".new", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(p.zone+".new", p.zone); err != nil {
		t.Fatal(err)
	}
}

// TestDiscoveryByDNS restarts a pod with another address: no key moves, and the refused connection is enough
// to find it. It adds a pod, and then lets DNS fail, which changes nothing.
func TestDiscoveryByDNS(t *testing.T) {
	t.Parallel()
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	in, _ := startFirstNamespace(t)
	dir := shortDir(t)
	p := &pods{in: in, zone: filepath.Join(dir, "zone"), at: map[string]string{}, runs: map[string]*process{}}
	for i := range 3 {
		p.start(t, fmt.Sprint("mc-", i), fmt.Sprintf("127.0.1.%d", i+1))
	}
	p.publish(t)
	server := exec.Command(in.enter[0], append(in.enter[1:len(in.enter):len(in.enter)], os.Args[0])...)
	server.Env = append(os.Environ(), dnsZone+"="+p.zone)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Process.Kill(); server.Wait() })
	resolv := filepath.Join(dir, "resolv.conf")
	if err := os.WriteFile(resolv, []byte("nameserver 127.0.0.53\noptions timeout:1 attempts:2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	r := &ringside{address: socket, admin: "127.0.0.1:9151", file: filepath.Join(dir, "ringside.yaml"), driver: defaultDriver}
	r.write(t, fmt.Sprintf(`listen: unix:%s
pools:
  main:
    distribution: ketama-points
    failover: {mode: fail_fast}
    servers: {discover: "dnssrvnoa+_memcached._tcp.mc.prod.svc.cluster.local", every: 1s, keep: 10m}
`, socket))
	command := append(in.enter[:len(in.enter):len(in.enter)], "unshare", "--mount", "sh", "-c", fmt.Sprintf("mount --bind %s /etc/resolv.conf && exec \"$@\"", resolv), "-", binary)
	if err := r.serve(t, []string{socket}, command...); err != nil {
		t.Fatal(err)
	}
	c := dial(t, socket)
	eventually(t, "the servers are known", func() bool { return strings.HasPrefix(c.question("delete key"), "NOT_FOUND") })
	all := names("key", 60)
	write := func() (failed int) {
		for _, key := range all {
			if c.question("set "+key+" 0 0 1\r\nx") != "STORED" {
				failed++
			}
		}
		return failed
	}
	// holders returns the pod that has each key.
	holders := func() map[string]string {
		is := map[string]string{}
		for name, ip := range p.at {
			get := fmt.Sprintf("exec 3<>/dev/tcp/%s/11211; printf 'get %s\\r\\nquit\\r\\n' >&3; cat <&3", ip, strings.Join(all, " "))
			out, err := exec.Command(in.enter[0], append(in.enter[1:len(in.enter):len(in.enter)], "bash", "-c", get)...).Output()
			if err != nil {
				t.Fatal(err)
			}
			for _, key := range all {
				if strings.Contains(string(out), "VALUE "+key+" ") {
					is[key] += name
				}
			}
		}
		return is
	}
	if n := write(); n > 0 {
		t.Fatalf("%d writes failed", n)
	}
	before := holders()
	p.runs["mc-1"].Kill()
	p.start(t, "mc-1", "127.0.1.9")
	p.publish(t)
	eventually(t, "the pod that has restarted is used", func() bool { return write() == 0 })
	after := holders()
	for _, key := range all {
		if before[key] != after[key] || before[key] == "" {
			t.Errorf("%s was on %q and is on %q", key, before[key], after[key])
		}
	}
	p.start(t, "mc-3", "127.0.1.4")
	p.publish(t)
	eventually(t, "the new pod is a server", func() bool { return strings.Contains(r.Output(), "+server mc-3.mc.prod.svc.cluster.local.:11211") })
	eventually(t, "the new pod is used", func() bool { return write() == 0 })
	p.write(t, "SERVFAIL")
	eventually(t, "the failure is logged", func() bool { return strings.Contains(r.Output(), "the servers of a source stay as they are") })
	p.write(t, "")
	if n := write(); n > 0 {
		t.Errorf("while DNS fails, %d writes failed", n)
	}
	if n := strings.Count(r.Output(), "-server"); n > 0 {
		t.Errorf("%d servers were removed:\n%s", n, r.Output())
	}
}

// readings counts the gets of the load of TestScaling.
type readings struct{ hits, misses, stale, sets atomic.Int64 }

// TestScaling scales a pool from three to six servers and back while three instances follow the list of its
// source, under load. With `resize`, no get returns a value that was replaced before. Clients set a key that
// misses, as caches are used. All keys are stored at the beginning, and none is deleted or expires. So with
// mode warm, at least 95 % of all gets hit. The test logs the hit rates.
func TestScaling(t *testing.T) {
	testenv.OnlyFull(t, "the simulation tests changes of servers, and TestListsChange those of sources; this test needs seconds of load and pings")
	t.Parallel()
	for _, mode := range []string{"flush", "warm"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			scaling(t, mode)
		})
	}
}

// scaling runs TestScaling with a mode of resize.
func scaling(t *testing.T, mode string) {
	const workers, keys = 4, 500
	servers := startMemcacheds(t, 6)
	path := filepath.Join(t.TempDir(), "servers")
	list := func(n int) {
		t.Helper()
		var b strings.Builder
		for i, s := range servers[:n] {
			fmt.Fprintf(&b, "%s name=mc-%d\n", s.address, i)
		}
		if err := os.WriteFile(path+".new", []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	list(3)
	pool := fmt.Sprintf(`pools:
  main:
    distribution: ketama-points
    resize: {mode: %s}
    failover: {mode: rehash, ping: 100ms, lease: 10s, eject_after: {refused: 10s, silent: 1m}}
    servers: {discover: "file+%s", keep: off, max_change: 100%%}
`, mode, path)
	var instances []*ringside
	for range 3 {
		instances = append(instances, startRingside(t, "auto", pool))
	}
	var now atomic.Pointer[readings]
	now.Store(&readings{})
	var filled, all sync.WaitGroup
	var stop atomic.Bool
	defer func() { stop.Store(true); all.Wait() }()
	filled.Add(workers)
	for w := range workers {
		var conns []*conn
		for _, r := range instances {
			conns = append(conns, dial(t, r.address))
		}
		random := rand.New(rand.NewPCG(uint64(w), 1))
		all.Go(func() {
			value := make([]int, keys)
			set := func(i int) {
				for c := conns[random.IntN(3)]; c.set(fmt.Sprintf("k%d:%d", w, i), strconv.Itoa(value[i])) != "STORED" && !stop.Load(); {
					time.Sleep(10 * time.Millisecond)
				}
			}
			for i := range keys {
				set(i)
			}
			for filled.Done(); !stop.Load(); time.Sleep(time.Millisecond) {
				i, is := random.IntN(keys), now.Load()
				if random.IntN(10) == 0 {
					value[i]++
					is.sets.Add(1)
					set(i)
				}
				key := fmt.Sprintf("k%d:%d", w, i)
				found, _ := conns[random.IntN(3)].get(key)
				switch v, hit := found[key]; {
				case !hit:
					is.misses.Add(1)
					set(i)
				case v != strconv.Itoa(value[i]):
					is.stale.Add(1)
				default:
					is.hits.Add(1)
				}
			}
		})
	}
	filled.Wait()
	// scale changes the servers, waits until all instances use them, and then for as many gets as there are keys.
	scale := func(n, changes int) {
		t.Helper()
		is := &readings{}
		now.Store(is)
		list(n)
		for _, r := range instances {
			eventually(t, "an instance uses the new servers", func() bool { return strings.Count(r.Output(), "to=resized") >= changes })
		}
		during := is.hits.Load() + is.misses.Load()
		eventually(t, "clients have read", func() bool { return is.hits.Load()+is.misses.Load() > during+workers*keys })
		hits, misses := is.hits.Load(), is.misses.Load()
		t.Logf("%d servers: %d gets, %d of them before all instances used the new servers; hit rate %.1f %%; %d sets; %d stale", n, hits+misses, during, 100*float64(hits)/float64(hits+misses), is.sets.Load(), is.stale.Load())
		if is.stale.Load() > 0 {
			t.Errorf("%d servers: %d gets returned a value that was replaced before", n, is.stale.Load())
		}
		if mode == "warm" && misses*20 > hits+misses {
			t.Errorf("%d servers: %d of %d gets missed", n, misses, hits+misses)
		}
	}
	scale(6, 1)
	scale(3, 2)
}
