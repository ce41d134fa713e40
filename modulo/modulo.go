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

// Rule describes how one client fills its table of servers, and how it finds the next
// server after a dead one.
type Rule struct {
	Order  ring.Order // how the servers are ordered in the table; nil: as in the list
	Repeat bool       // whether a server has one entry for each unit of its weight; false: one entry
	Walk   ring.Walk  // how the client hashes the key again to find the next server after a dead one; zero: it does not
	Next   bool       // whether the server of the next entry is tried after a dead one; after the last entry follows the first
}

// Table returns the table of servers by this rule. keyBits is the number of bits of the
// key hash; 0 means 32.
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
	// Libmemcached is the rule of libmemcached, php-memcached and pylibmc, which ignore
	// weights.
	Libmemcached = Rule{}
	// Perl is the rule of Cache::Memcached, with up to 20 lookups. Each retry adds a
	// hash to a sum: the hash of the number of the try and the key. The client does not
	// reduce the sum to 15 bits.
	Perl = Rule{Repeat: true, Walk: ring.AddTryBefore(ring.CRC15, 1, 20, 63)}
	// PerlFast is the rule of Cache::Memcached::Fast. The keys of a dead server miss.
	PerlFast = Rule{Repeat: true}
	// Python is the rule of python-memcache, with up to 10 lookups.
	Python = Rule{Repeat: true, Walk: ring.HashOfHash(ring.CRC15Not0, 10)}
	// PythonOld is the rule of python-memcache with its old hash function.
	PythonOld = Rule{Repeat: true, Walk: ring.HashOfHash(ring.CRC32, 10)}
	// Gomemcache is the rule of gomemcache, which keeps the order of the list. In this
	// client, the weight of a server is how often it is listed.
	Gomemcache = Rule{Repeat: true}
	// Mcrouter is the rule of mcrouter, which keeps the order of the list and has no
	// weights.
	Mcrouter = Rule{}
	// Spymemcached is the rule of spymemcached, which tries the next server of the list
	// and has no weights.
	Spymemcached = Rule{Next: true}
	// Xmemcached is the rule of xmemcached, which repeats servers by weight and tries
	// the next entry of the table.
	Xmemcached = Rule{Repeat: true, Next: true}
	// Memjs is the rule of memjs, which tries the next server of the list and has no
	// weights.
	Memjs = Rule{Next: true}
	// Twemproxy is the rule of twemproxy, which sorts the servers by the length of the
	// name, then by the name.
	Twemproxy = Rule{Order: ring.ByLength, Repeat: true}
)

// Pecl is the standard rule of php-memcache. It retries up to 20 times: it appends
// "-0", "-1"… to the key and hashes it again.
func Pecl(hash ring.Algorithm) Rule {
	return Rule{Repeat: true, Walk: ring.TryBehind(hash, 21)}
}
