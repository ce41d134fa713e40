// Package modulo gives hash h to server h mod n as each modulo client does.
//
// "crc32 modulo" is at least six different things. What differs is the hash
// (ring's, chosen by whoever builds the placement), the order of the table,
// whether a weight repeats a server in it, and what the client asks when the
// server is dead. The variables of type Rule are the clients; every one of them
// was checked against the answers of the real program.
package modulo

import "ringside/ring"

// Rule is how one client fills its table and goes on from a dead server.
type Rule struct {
	Order  ring.Order // nil keeps the order of the list
	Repeat bool       // a server stands in the table as often as its weight says
	Walk   ring.Walk  // hash again
	Next   bool       // or take the next entry, around the end
}

// Table returns the table of servers for a key hash of so many bits (0 means
// 32).
func (r Rule) Table(servers []ring.Server, keyBits int) *ring.Table {
	order := r.Order
	if order == nil {
		order = ring.Listed
	}
	var entries []int
	for _, i := range order(servers) {
		times := 1
		if r.Repeat {
			times = servers[i].Share()
		}
		for range times {
			entries = append(entries, i)
		}
	}
	return ring.NewTable(len(servers), entries, ring.TableOptions{Walk: r.Walk, Next: r.Next, SpaceBits: keyBits})
}

var (
	// Libmemcached ignores weights, as do php-memcached and pylibmc.
	Libmemcached = Rule{}
	// Perl is Cache::Memcached: up to 20 lookups, each adding a hash of try
	// number and key to a sum that is never cut.
	Perl = Rule{Repeat: true, Walk: ring.AddTryBefore(ring.CRC15, 1, 20, 63)}
	// PerlFast is Cache::Memcached::Fast, where a dead server's keys miss.
	PerlFast = Rule{Repeat: true}
	// Python is python-memcache: up to 10 lookups.
	Python = Rule{Repeat: true, Walk: ring.HashOfHash(ring.CRC15Not0, 10)}
	// PythonOld is python-memcache with its old hash function.
	PythonOld = Rule{Repeat: true, Walk: ring.HashOfHash(ring.CRC32, 10)}
	// Gomemcache keeps the list; listing a server twice is its weight.
	Gomemcache = Rule{Repeat: true}
	// Mcrouter keeps the list and knows no weights.
	Mcrouter = Rule{}
	// Spymemcached takes the next server of the list and knows no weights.
	Spymemcached = Rule{Next: true}
	// Xmemcached repeats by weight and takes the next entry.
	Xmemcached = Rule{Repeat: true, Next: true}
	// Memjs takes the next server of the list and knows no weights.
	Memjs = Rule{Next: true}
	// Twemproxy sorts the servers by length and name.
	Twemproxy = Rule{Order: ring.ByLength, Repeat: true}
)

// Pecl is php-memcache's standard strategy: up to 20 tries with "-0", "-1"…
// behind the key.
func Pecl(hash ring.Algorithm) Rule {
	return Rule{Repeat: true, Walk: ring.TryBehind(hash, 21)}
}
