// Package modulo builds the server table of each client that maps hash h to server
// h mod n.
//
// Clients mean at least six different things by "crc32 modulo". They differ in the
// key hash, the order of the table, whether a server is repeated by its weight, and
// which server is tried when one is dead. The key hash is chosen by the caller,
// from package ring. Each variable of type Rule is the rule of one client. All of
// them were checked against the output of the real program.
package modulo

import "ringside/ring"

// Rule describes how one client fills its table and finds the next server after a
// dead one.
type Rule struct {
	Order  ring.Order // nil keeps the order of the list
	Repeat bool       // whether a server is in the table once per unit of weight
	Walk   ring.Walk  // hashes the key again to find the next server; zero: doesn't
	Next   bool       // whether the next entry of the table is tried, wrapping at its end
}

// Table returns the table of servers for a key hash of keyBits bits (0 means 32).
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
	// Perl is Cache::Memcached: up to 20 lookups. Each retry adds the hash of try
	// number and key to a sum. The client does not reduce the sum to 15 bits.
	Perl = Rule{Repeat: true, Walk: ring.AddTryBefore(ring.CRC15, 1, 20, 63)}
	// PerlFast is Cache::Memcached::Fast, where a dead server's keys miss.
	PerlFast = Rule{Repeat: true}
	// Python is python-memcache: up to 10 lookups.
	Python = Rule{Repeat: true, Walk: ring.HashOfHash(ring.CRC15Not0, 10)}
	// PythonOld is python-memcache with its old hash function.
	PythonOld = Rule{Repeat: true, Walk: ring.HashOfHash(ring.CRC32, 10)}
	// Gomemcache keeps the order of the list. In this client a server's weight is
	// how often it is listed.
	Gomemcache = Rule{Repeat: true}
	// Mcrouter keeps the order of the list and has no weights.
	Mcrouter = Rule{}
	// Spymemcached tries the next server of the list and has no weights.
	Spymemcached = Rule{Next: true}
	// Xmemcached repeats servers by weight and tries the next entry.
	Xmemcached = Rule{Repeat: true, Next: true}
	// Memjs tries the next server of the list and has no weights.
	Memjs = Rule{Next: true}
	// Twemproxy sorts the servers by the length of the name, then by the name.
	Twemproxy = Rule{Order: ring.ByLength, Repeat: true}
)

// Pecl is php-memcache's standard strategy: up to 20 retries, which append "-0",
// "-1"… to the key.
func Pecl(hash ring.Algorithm) Rule {
	return Rule{Repeat: true, Walk: ring.TryBehind(hash, 21)}
}
