package twin

// The memcached servers, and Ringside instances in this process that use them.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ringside/config"
	"ringside/proxy"
	"ringside/proxy/link"
	"ringside/proxy/loop"
	"ringside/ring"
)

// servers are the memcached servers, started once for all streams of a process.
var servers struct {
	once  sync.Once
	err   error
	plain string
	many  [3]string
	end   []func()
}

// TestMain ends the servers that the streams have shared.
func TestMain(m *testing.M) {
	code := m.Run()
	for _, end := range slices.Backward(servers.end) {
		end()
	}
	os.Exit(code)
}

func startServers() {
	addresses := []*string{&servers.plain, &servers.many[0], &servers.many[1], &servers.many[2]}
	for _, a := range addresses {
		if *a, servers.err = startMemcached(); servers.err != nil {
			return
		}
	}
}

// startMemcached starts a server without background threads, because these
// reference items for a moment, which changes the result of arithmetic. The server
// chooses its port.
func startMemcached(more ...string) (address string, err error) {
	dir, err := os.MkdirTemp("", "twin")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	said := filepath.Join(dir, "port")
	args := append([]string{"-l", "127.0.0.1", "-p", "-1", "-U", "0", "-m", "256", "-t", "1", "-o", "no_lru_maintainer,no_lru_crawler"}, more...)
	if os.Geteuid() == 0 {
		args = append(args, "-u", "root") // the kernel would no longer kill it with this process if it changed its user
	}
	cmd := exec.Command("memcached", args...)
	cmd.Env = append(os.Environ(), "MEMCACHED_PORT_FILENAME="+said)
	tie(cmd)
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("memcached must be installed for this test: %w", err)
	}
	exited := make(chan struct{})
	go func() { cmd.Wait(); close(exited) }()
	servers.end = append(servers.end, func() { cmd.Process.Kill(); <-exited })
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		text, _ := os.ReadFile(said)
		if _, port, ok := strings.Cut(string(text), "TCP INET: "); ok {
			return "127.0.0.1:" + strings.TrimSpace(port), nil
		}
		select {
		case <-exited:
			return "", errors.New("memcached ended at its start")
		default:
		}
	}
	return "", errors.New("memcached does not say which port it has")
}

// variant is a configuration of Ringside with its servers.
type variant struct {
	name    string // its first two letters are unique
	servers int
	out     int // number of additional servers that are configured but do not run
	copies  bool
	driver  string
	guard   string // guard of its route; empty is none
	casless bool   // its only server has no cas
	single  bool   // concurrent gets are not merged into one line
	near    bool   // it has a near cache; all writes pass through this instance, so clients get the same replies as without the cache

	once    sync.Once
	err     error
	address string
	place   ring.Placement
}

var variants = []*variant{
	{name: "one", servers: 1, driver: "auto"},
	{name: "portable", servers: 1, driver: "portable"},
	{name: "several", servers: 3, driver: "auto"},
	{name: "copies", servers: 3, copies: true, driver: "auto"},
	{name: "out", servers: 2, out: 1, driver: "auto"},
	{name: "kept", servers: 2, out: 1, copies: true, driver: "auto"},
	{name: "gets", servers: 2, driver: "auto", single: true},
	{name: "near", servers: 1, driver: "auto", near: true},
}

// framed are the variants for binary clients. The last variant is not one of them,
// because a value from its near cache has a cas that matches nothing.
var framed = variants[:len(variants)-1]

func (v *variant) alone() bool { return v.servers+v.out == 1 }

// start starts the variant's instance when the first stream needs it.
func (v *variant) start(t *testing.T) {
	t.Helper()
	servers.once.Do(startServers)
	if servers.err != nil {
		t.Fatal(servers.err)
	}
	if v.once.Do(func() { v.err = v.serve() }); v.err != nil {
		t.Fatal(v.err)
	}
}

func (v *variant) serve() error {
	var text strings.Builder
	// The variants share servers, so their pools have different names, and keep
	// separate records on the servers.
	text.WriteString(`listen: 127.0.0.1:0
limits: {value: 1MiB}
pools:
  ` + v.name + `:
    distribution: ketama
    timeouts: {connect: 10s, request: 10s, deadline: 20s}
    backoff: {first: 50ms, max: 500ms}
    servers:
`)
	behind := servers.many[:v.servers]
	if v.casless {
		address, err := startMemcached("-C")
		if err != nil {
			return err
		}
		behind = []string{address}
	}
	for _, address := range behind {
		fmt.Fprintf(&text, "      - %s\n", address)
	}
	for port := range v.out { // nothing listens on the lowest ports, and the kernel does not assign them
		fmt.Fprintf(&text, "      - 127.0.0.1:%d\n", 1+port)
	}
	fmt.Fprintf(&text, "routes:\n  - pool: %s\n", v.name)
	if v.guard != "" {
		fmt.Fprintf(&text, "    guard: %s\n", v.guard)
	}
	if v.near {
		text.WriteString("    near: {keys: all, ttl: 10s}\n")
	}
	if v.single {
		text.WriteString("defaults: {gets: single}\n")
	}
	if v.copies {
		text.WriteString("    replicas: 2\n    replicas_on: server\n")
		// A server that does not run is ejected soon. A running server that only
		// waits for a processor is never ejected.
		text.WriteString("defaults:\n  failover: {ping: 500ms, lease: 3s, eject_after: 50ms, after_failures: 1000}\n")
	}
	file, err := config.Parse(v.name, []byte(text.String()))
	if err != nil {
		return err
	}
	table, err := file.Build()
	if err != nil {
		return err
	}
	v.place = table.Pools[0].Place
	// Several loops share this process, so none may keep a processor while it
	// waits.
	options := loop.Options{Driver: v.driver, OrdinaryWait: true, Tune: link.DefaultTune}
	driver, err := loop.New(proxy.NewProxy(table, "test", slog.New(slog.DiscardHandler)), options)
	if err != nil {
		return err
	}
	commit, err := driver.Listen(table)
	if err != nil {
		return err
	}
	commit()
	servers.end = append(servers.end, func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		driver.Shutdown(ctx)
	})
	v.address = driver.Addrs()[0].String()
	if v.copies {
		return v.settle()
	}
	return nil
}

// settle waits until every key of a pool with copies can be written although a
// server is out, and until Ringside no longer assumes that this server may have
// the key.
func (v *variant) settle() error {
	c, err := net.Dial("tcp", v.address)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(3 * patience))
	answer := make([]byte, 512)
	for i := range 50 {
		for _, ask := range []struct{ command, want string }{{"set settle", "STORED\r\n"}, {"append nothing", "NOT_STORED\r\n"}} {
			for {
				fmt.Fprintf(c, "%s%d 0 0 1\r\nx\r\n", ask.command, i)
				n, err := c.Read(answer)
				if err != nil {
					return fmt.Errorf("%s is not ready: %w", v.name, err)
				}
				if string(answer[:n]) == ask.want {
					break
				}
				time.Sleep(20 * time.Millisecond)
			}
		}
	}
	return nil
}

// isLost reports whether the server of key is out and key has no copies.
func (v *variant) isLost(key string) bool {
	if v.out == 0 || v.copies || key == "" {
		return false
	}
	_, _, owner := v.place.Locate([]byte(key))
	return owner >= v.servers
}

// spell returns the text of a command for memcached and for Ringside. They are the
// same unless keys are lost. memcached is not asked for these. If nothing else is
// left, memcached gets a command with a known reply, and lost maps that reply to
// the one expected of Ringside.
func (v *variant) spell(c command, prefix string, marks *int, lost map[string]string) (plain, proxy string) {
	proxy = c.text
	plain = c.text
	missing := v.isLost(c.key)
	instead := c.lost
	if c.reads != nil {
		left := c.text
		missing = true
		for _, key := range c.reads {
			proxy += " " + key
			if !v.isLost(key) {
				left += " " + key
				missing = false
			}
		}
		proxy += "\r\n"
		plain, instead = left+"\r\n", lostRead
	}
	if missing {
		*marks++
		mark := fmt.Sprintf("%s?%d", prefix, *marks)
		lost["EN k"+mark+"\r\n"] = instead
		plain = "mg " + mark + " k\r\n"
	}
	return plain, proxy
}
