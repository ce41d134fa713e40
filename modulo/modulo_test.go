package modulo

// The tables, compared with examples from the clients.

import (
	"testing"

	"ringside/ring"
)

func TestTablesOfServers(t *testing.T) {
	servers := []ring.Server{
		{Host: "10.0.0.10", Port: 11211, Weight: 2},
		{Host: "10.0.0.9", Port: 11211, Weight: 1},
		{Host: "10.0.0.1", Port: 2000, Weight: 3},
	}
	for name, c := range map[string]struct {
		rule Rule
		want []int // owners of the hashes 0, 1, 2…
	}{
		"listed":              {Libmemcached, []int{0, 1, 2, 0, 1, 2, 0}},
		"repeated":            {Perl, []int{0, 0, 1, 2, 2, 2, 0}},
		"sorted and repeated": {Twemproxy, []int{1, 0, 0, 2, 2, 2, 1}},
	} {
		table := c.rule.Table(servers, 0)
		for h, want := range c.want {
			if got := table.At(nil, uint64(h), 0); got != want {
				t.Errorf("%s: hash %d goes to %d, want %d", name, h, got, want)
			}
		}
	}
}

// One key and three servers: the clients disagree on the owner.
func TestExample(t *testing.T) {
	servers := make([]ring.Server, 3)
	key := []byte("suser:641864:cart")
	for name, c := range map[string]struct {
		rule Rule
		hash ring.Algorithm
		want int
	}{
		"libmemcached": {Libmemcached, ring.OneAtATime, 0},
		"perl":         {Perl, ring.CRC15, 2},
		"python":       {Python, ring.CRC15Not0, 2},
		"gomemcache":   {Gomemcache, ring.CRC32, 1},
		"mcrouter":     {Mcrouter, ring.CRC31, 1},
		"java":         {Spymemcached, ring.Java, 1},
		"memjs":        {Memjs, ring.JavaAbs, 1},
	} {
		if got := c.rule.Table(servers, 0).At(key, c.hash.Sum(key), 0); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// The order must end after as many tries as the client makes.
func TestTries(t *testing.T) {
	servers := make([]ring.Server, 5)
	key := []byte("key")
	for name, c := range map[string]struct {
		rule  Rule
		tries int
	}{
		"perl": {Perl, 20}, "python": {Python, 10}, "pecl": {Pecl(ring.CRC15Not0), 21},
		"next server": {Spymemcached, 5}, "every server once": {Libmemcached, 5},
	} {
		table, tries := c.rule.Table(servers, 0), 0
		for table.At(key, 12345, tries) >= 0 {
			tries++
		}
		if tries != c.tries {
			t.Errorf("%s: %d tries, want %d", name, tries, c.tries)
		}
	}
}
