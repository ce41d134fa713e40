package e2e

// This file runs client libraries of seven languages through the same checks.

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ringside/internal/testenv"
)

// checks are the names of the checks that every client program runs and reports on.
var checks = []string{
	"set", "get", "multiget", "add", "replace", "append", "prepend", "incr", "decr", "cas", "touch", "delete",
	"flags", "expiry", "value-0", "value-1", "value-100k", "value-1m",
}

// client is a program with two arguments: an address and a key prefix. It prints "ok
// NAME" or "not ok NAME: why" for each check.
type client struct {
	name    string
	run     []string          // command line; nil: the test calls gomemcacheChecks instead
	lacks   map[string]string // unsupported checks, and the reason
	ipv6    bool              // accepts an IPv6 address
	unix    bool              // accepts a unix socket
	ordered bool              // needs the values of a multi-get in the order of its keys
	first   bool              // runs in the default tier for its language
}

// runs counts the runs of client programs.
var runs atomic.Int64

var clients = []client{
	{
		name: "php-memcached",
		run:  []string{"php", "php-memcached.php", "text"},
		ipv6: true, unix: true, first: true,
	}, {
		name: "php-memcached-binary",
		run:  []string{"php", "php-memcached.php", "binary"},
		ipv6: true, unix: true,
	}, {
		name: "php-memcache",
		run:  []string{"php", "php-memcache.php"},
		lacks: map[string]string{
			"touch": "MemcachePool has no such method",
		},
		unix: true,
	}, {
		name: "pymemcache",
		run:  []string{"/usr/bin/python3", "python.py", "pymemcache"},
		ipv6: true, unix: true, first: true,
	}, {
		name: "pylibmc",
		run:  []string{"/usr/bin/python3", "python.py", "pylibmc"},
		ipv6: true, unix: true,
	}, {
		name: "pylibmc-binary",
		run:  []string{"/usr/bin/python3", "python.py", "pylibmc-binary"},
		ipv6: true, unix: true,
	}, {
		name: "bmemcached",
		run:  []string{"/usr/bin/python3", "python.py", "bmemcached"},
		lacks: map[string]string{
			"append":  "the client has no such method",
			"prepend": "the client has no such method",
			"touch":   "the client has no such method",
		},
	}, {
		name: "python-memcache",
		run:  []string{"/usr/bin/python3", "python.py", "memcache"},
		ipv6: true, unix: true,
	}, {
		name: "Cache-Memcached",
		run:  []string{"/usr/bin/perl", "perl.pl", "Cache::Memcached"},
		lacks: map[string]string{
			"cas":   "the module has neither gets nor cas",
			"touch": "the module has no such method",
		},
		unix: true, first: true,
	}, {
		name: "Cache-Memcached-Fast",
		run:  []string{"/usr/bin/perl", "perl.pl", "Cache::Memcached::Fast"},
		unix: true, ordered: true,
	}, {
		name: "spymemcached",
		run:  []string{"java", "-XX:TieredStopAtLevel=1", "-cp", "/usr/share/java/spymemcached.jar", "Spymemcached.java", "TEXT"},
		ipv6: true,
	}, {
		name: "spymemcached-binary",
		run:  []string{"java", "-XX:TieredStopAtLevel=1", "-cp", "/usr/share/java/spymemcached.jar", "Spymemcached.java", "BINARY"},
		ipv6: true,
	}, {
		name: "dalli",
		run:  []string{"ruby", "dalli.rb"},
	}, {
		name: "gomemcache",
		ipv6: true, unix: true, first: true,
	}, {
		name: "node-memcached",
		run:  []string{"node", "node/memcached.js"},
	}, {
		name: "memjs",
		run:  []string{"node", "node/memjs.js"},
		lacks: map[string]string{
			"cas":     "the client shows no cas",
			"flags":   "the client shows no flags",
			"prepend": "the client's prepend sends an append",
		},
	},
}

func TestClients(t *testing.T) {
	t.Parallel()
	if testenv.Full() { // so that a failure shows whether memcached or Ringside is wrong
		t.Run("memcached", func(t *testing.T) {
			t.Parallel()
			runClients(t, startMemcached(t).address, clients)
		})
	}
	for _, driver := range drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			servers := startMemcacheds(t, 3)
			unordered, ordered := split(clients)
			runClients(t, startRingside(t, driver, front(servers)).address, unordered)
			runClients(t, startRingside(t, driver, front(servers, "multiget_order: request")).address, ordered)
		})
	}
}

// TestClientsOnOtherListeners runs the clients that support IPv6 and unix sockets over
// such listeners. Outside the full tier, one client per language runs.
func TestClientsOnOtherListeners(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		four, six, path := freeAddress(t, ownHost()), "", filepath.Join(shortDir(t), "s")
		servers := startMemcacheds(t, 3)
		onSix(t, func(address string) error {
			six = address
			config := fmt.Sprintf("listen: [%q, %q, %q]\n", four, six, listenText(path)) + front(servers)
			_, err := tryRingside(t, driver, []string{four, six, path}, config)
			return err
		})
		t.Run("ipv6", func(t *testing.T) {
			runClients(t, six, slices.DeleteFunc(slices.Clone(clients), func(c client) bool { return !c.ipv6 || !testenv.Full() && !c.first }))
		})
		t.Run("unix", func(t *testing.T) {
			runClients(t, path, slices.DeleteFunc(slices.Clone(clients), func(c client) bool { return !c.unix || c.ordered || !testenv.Full() && !c.first }))
		})
	})
}

// split separates the clients that need the values of a multi-get in the order of its
// keys from the others.
func split(clients []client) (unordered, ordered []client) {
	for _, c := range clients {
		if c.ordered {
			ordered = append(ordered, c)
		} else {
			unordered = append(unordered, c)
		}
	}
	return unordered, ordered
}

func runClients(t *testing.T, address string, clients []client) {
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.check(t, address)
		})
	}
}

// check runs the client and compares its output with the list of checks.
func (c client) check(t *testing.T, address string) {
	prefix := fmt.Sprintf("%s-%d:", c.name, runs.Add(1)) // every run uses new keys
	var printed string
	if c.run == nil {
		printed = gomemcacheChecks(address, prefix)
	} else {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, need(t, c.run[0]), append(slices.Clone(c.run[1:]), address, prefix)...)
		cmd.Dir = filepath.Join("testdata", "clients")
		out, err := cmd.CombinedOutput()
		printed = string(out)
		if err != nil {
			t.Errorf("%s: %v", strings.Join(cmd.Args, " "), err)
		}
	}
	said := map[string]bool{}
	for line := range strings.Lines(printed) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "ok "); ok {
			said[name] = true
		}
	}
	for _, name := range checks {
		why, lacks := c.lacks[name]
		switch {
		case lacks && said[name]:
			t.Errorf("%s is listed as lacking (%s), yet it was checked", name, why)
		case !lacks && !said[name]:
			t.Errorf("%s did not pass", name)
		}
		delete(said, name)
	}
	for _, name := range slices.Sorted(maps.Keys(said)) {
		t.Errorf("%q is not in the list of checks", name)
	}
	if t.Failed() {
		t.Logf("%s printed:\n%s", c.name, printed)
	}
}
