package e2e

// This file tests listeners of every kind, each with its own routes, and servers of every
// kind.

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// onSix calls start with an address on ::1. It retries with another port if that address
// was taken in between: IPv6 has one loopback address, so tests cannot have one each.
func onSix(t *testing.T, start func(address string) error) {
	t.Helper()
	for try := 0; ; try++ {
		err := start(freeAddress(t, "::1"))
		if err == nil {
			return
		} else if try == 5 || !strings.Contains(err.Error(), "address already in use") {
			t.Fatal(err)
		}
	}
}

func TestListenersHaveTheirOwnRoutes(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		a, b := startMemcached(t), startMemcached(t)
		four, six, path := freeAddress(t, ownHost()), "", filepath.Join(shortDir(t), "s")
		onSix(t, func(address string) error {
			six = address
			_, err := tryRingside(t, driver, []string{four, six, path}, fmt.Sprintf(`listen:
  - %s
  - {address: %q, routes: [{pool: b}]}
  - {address: "unix:%s", mode: 0600, routes: [{prefix: "img:", pool: b, strip_prefix: true}, {prefix: "img:raw:", pool: b}]}
pools:
  a: {distribution: ketama, servers: [%q]}
  b: {distribution: ketama, servers: [%q]}
routes:
  - {pool: a}
  - {prefix: "img:", pool: b}
`, four, six, path, a.address, b.address))
			return err
		})
		onA, onB := dial(t, a.address), dial(t, b.address)

		// The first listener uses the routes of the file. A multi-get spans both pools.
		tcp := dial(t, four)
		tcp.store("x", "of a")
		tcp.store("img:x", "of b")
		onA.holds("x", "of a")
		onB.holds("img:x", "of b")
		if found, _ := tcp.get("x", "img:x", "y", "img:y"); len(found) != 2 {
			t.Errorf("a multi-get over two pools found %v", found)
		}

		// The second listener sends all keys to b.
		tcp6 := dial(t, six)
		tcp6.store("x", "by ipv6")
		onB.holds("x", "by ipv6")
		onA.holds("x", "of a")

		// The prefix is removed for the server and added again for the client.
		unix := dial(t, path)
		unix.holds("img:x", "by ipv6")
		unix.store("img:y", "stripped")
		unix.store("img:raw:y", "whole")
		onB.holds("y", "stripped")
		onB.holds("img:raw:y", "whole")
		if found, _ := unix.get("img:y", "img:raw:y", "img:x"); len(found) != 3 || found["img:y"] != "stripped" {
			t.Errorf("a multi-get by stripped prefix found %v", found)
		}
		unix.ask("mg img:y v k", "VA 8 kimg:y\r\nstripped")
		// memcached returns a key as the item was stored, not as it was requested.
		unix.ask("mg aW1nOnk= v k b", "VA 8 kimg:y\r\nstripped")
		unix.ask("ms aW1nOno= 6 b\r\nbase64", "HD")
		unix.ask("mg aW1nOno= v k b", "VA 6 kaW1nOno= b\r\nbase64")

		// A key that matches no route gets an error, and the connection stays open.
		if answer := unix.question("get other"); !strings.HasPrefix(answer, "SERVER_ERROR ") && !strings.HasPrefix(answer, "CLIENT_ERROR ") {
			t.Errorf("a key without a route got %q", answer)
		}
		if answer := unix.set("other", "x"); !strings.HasPrefix(answer, "SERVER_ERROR ") && !strings.HasPrefix(answer, "CLIENT_ERROR ") {
			t.Errorf("a set of a key without a route got %q", answer)
		}
		unix.holds("img:y", "stripped")

		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the unix socket has mode %v (%v), want 0600", info.Mode(), err)
		}
	})
}

func TestUnixSocketOfAPredecessor(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		servers := startMemcacheds(t, 1)
		path := filepath.Join(shortDir(t), "s")
		config := fmt.Sprintf("listen: unix:%s\n%s", path, front(servers))
		first, err := tryRingside(t, driver, []string{path}, config)
		if err != nil {
			t.Fatal(err)
		}
		dial(t, path).store("a", "1")
		first.Kill() // leaves the socket file
		if _, err := tryRingside(t, driver, []string{path}, config); err != nil {
			t.Fatal(err)
		}
		dial(t, path).holds("a", "1")
	})
}

// TestServersOfEveryKind uses servers by IPv4, IPv6, unix socket and name.
func TestServersOfEveryKind(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		servers := []*memcached{
			startMemcachedAt(t, "127.0.0.1"),
			startMemcachedAt(t, "::1"),
			startMemcachedAt(t, filepath.Join(shortDir(t), "s")),
			startMemcachedAt(t, "127.0.0.1"),
		}
		_, port, _ := strings.Cut(servers[3].address, ":")
		config := front(servers[:3]) + fmt.Sprintf("      - localhost:%s\n", port)
		r := startRingside(t, driver, config)
		keys := names("key", 200)
		client := dial(t, r.address)
		for _, key := range keys {
			client.store(key, key)
		}
		at := owners(t, servers, keys)
		held := map[int]int{}
		for _, i := range at {
			held[i]++
		}
		if len(at) != len(keys) || len(held) != len(servers) {
			t.Errorf("keys by server: %v", held)
		}
		if found, end := client.get(keys...); len(found) != len(keys) || end != "END" {
			t.Errorf("a multi-get found %d of %d keys and ended with %q", len(found), len(keys), end)
		}
	})
}

// TestServerNameThatDoesNotResolve checks that requests to a server whose name does not
// resolve fail, and that requests to other servers do not.
func TestServerNameThatDoesNotResolve(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		good := startMemcached(t)
		r := startRingside(t, driver, front([]*memcached{good})+"      - ringside-test.invalid:11211\n")
		client := dial(t, r.address)
		failed := 0
		for _, key := range names("key", 100) {
			if answer := client.set(key, key); answer == "STORED" {
				client.holds(key, key)
			} else if strings.HasPrefix(answer, "SERVER_ERROR ") && strings.Contains(answer, "ringside-test.invalid") {
				failed++
			} else {
				t.Fatalf("set %s: %s", key, answer)
			}
		}
		if failed == 0 || failed == 100 {
			t.Errorf("%d of 100 keys failed", failed)
		}
	})
}

// TestSecondRingsideIsRefused checks that a second instance on the same address does not
// start, although the loops of the first one share that address. All clients reach the
// first.
func TestSecondRingsideIsRefused(t *testing.T) {
	t.Parallel()
	servers := startMemcacheds(t, 1)
	address := freeAddress(t, ownHost())
	config := fmt.Sprintf("listen: %s\n%sengine: {loops: 2}\n", address, front(servers))
	first, err := tryRingside(t, "epoll", []string{address}, config)
	if err != nil {
		t.Fatal(err)
	}
	second := &ringside{address: address, admin: freeAddress(t, ownHost()), file: filepath.Join(t.TempDir(), "ringside.yaml"), driver: "epoll"}
	second.write(t, config)
	p := start(t, first.Cmd.Path, "serve", "-c", second.file)
	if code := p.wait(t); code != 1 {
		t.Errorf("it ends with %d: %s", code, p.Output())
	}
	p.logged(t, "cannot listen on "+regexp.QuoteMeta(address)+".*address already in use")
	for range 20 {
		dial(t, address).store("k", "v")
	}
}
