package testenv

// This file starts the servers for the tests of recipes: Debian's memcached, and
// the ringside binary as a proxy for it, on random loopback addresses. It also
// queries their states.
//
// The end of a test stops the processes that it started. If a program is not
// installed, the test fails.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

// Patience is the time limit for every wait of a test. Only a failing test waits that long.
const Patience = Hang

// Eventually calls done repeatedly until it returns true. After the time Patience it fails the
// test; what is the condition, for the message.
func Eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(Patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if done() {
			return
		}
	}
	t.Fatalf("waited %v in vain: %s", Patience, what)
}

// output collects what a process writes to its standard output and standard error.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// process is a running program, with the output that it has written.
type process struct {
	cmd    *exec.Cmd
	out    *output
	exited chan struct{}
}

// start starts a program, which is killed at the end of the test. It waits until a memcached or
// Ringside instance replies at address.
func start(t testing.TB, address, program string, args ...string) (*process, error) {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatalf("%v; `make deps` installs what is missing", err)
	}
	p := &process{cmd: exec.Command(path, args...), out: &output{}, exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.cmd.Wait() // wait for the end of the process; its exit status does not matter
		close(p.exited)
	}()
	t.Cleanup(p.kill)
	for end := time.Now().Add(Patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		select {
		case <-p.exited:
			return p, fmt.Errorf("%s ended:\n%s", program, p.out)
		default:
		}
		if answers(address) {
			return p, nil
		}
	}
	return p, fmt.Errorf("%s does not answer at %s:\n%s", program, address, p.out)
}

// answers reports whether a memcached or Ringside instance replies at address.
func answers(address string) bool {
	c, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	io.WriteString(c, "version\r\n")
	answer := make([]byte, len("VERSION "))
	_, err = io.ReadFull(c, answer)
	return err == nil && string(answer) == "VERSION "
}

func (p *process) kill() {
	p.cmd.Process.Kill()
	<-p.exited
}

// ownHost returns a random loopback address. Another process probably does not use it. The port
// of a stopped server there therefore stays free until the server starts again.
func ownHost() string {
	if runtime.GOOS != "linux" {
		return "127.0.0.1"
	}
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
}

func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(ownHost(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Memcached is a real memcached process. After Kill and Restart, it has the same address as
// before.
type Memcached struct {
	Address string
	args    []string
	p       *process
}

// StartMemcached starts a memcached at a free address, with additional arguments.
func StartMemcached(t testing.TB, args ...string) *Memcached {
	t.Helper()
	m := &Memcached{Address: freeAddress(t), args: args}
	m.Restart(t)
	return m
}

// Restart starts the memcached again at the same address. It has no items.
func (m *Memcached) Restart(t testing.TB) {
	t.Helper()
	host, port, _ := net.SplitHostPort(m.Address)
	var err error
	m.p, err = start(t, m.Address, "memcached", append([]string{"-u", "root", "-U", "0", "-t", "2", "-l", host, "-p", port}, m.args...)...)
	if err != nil {
		t.Fatal(err)
	}
}

// Kill kills the memcached process, and waits until it has ended.
func (m *Memcached) Kill() { m.p.kill() }

// Ringside is a running ringside binary, a proxy for some servers.
type Ringside struct {
	Address string
	admin   string
	file    string
	p       *process
}

// binary builds the ringside binary at its first call, and returns the path of the binary.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "ringside-recipes")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "ringside")
	if out, err := exec.Command("go", "build", "-o", path, "ringside/cmd/ringside").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build ringside/cmd/ringside: %w\n%s", err, out)
	}
	return path, nil
})

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
	if path, err := binary(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
}

// Two is the prefix of the keys that have two replicas. All other keys have one replica.
const Two = "two:"

// StartRingside starts an instance with one pool of the given servers. The keys of an ejected
// server move to the other servers.
func StartRingside(t testing.TB, servers []*Memcached) *Ringside {
	t.Helper()
	for try := 0; ; try++ {
		r := &Ringside{Address: freeAddress(t), admin: freeAddress(t), file: filepath.Join(t.TempDir(), "ringside.yaml")}
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
		var err error
		if r.p, err = start(t, r.Address, Binary(t), "serve", "-c", r.file); err == nil {
			t.Cleanup(func() {
				for _, sign := range []string{"DATA RACE", "panic:", "fatal error:"} {
					if strings.Contains(r.p.out.String(), sign) {
						t.Errorf("ringside wrote %q", sign)
					}
				}
				if t.Failed() {
					t.Logf("ringside wrote:\n%s", r.p.out)
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
	c, err := net.DialTimeout("tcp", m.Address, Patience)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(Patience))
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
