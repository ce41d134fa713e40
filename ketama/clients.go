package ketama

// This file contains the rules of the clients. fourOfMD5 builds the circle of last.fm's
// libketama. Clients that descend from libketama changed the label or the rounding.
// Other clients share only the name ketama.

import "ringside/ring"

var (
	// Libmemcached is the rule that most clients share: KETAMA_WEIGHTED in
	// libmemcached and pylibmc, memcached-proxy, and nginx modules that claim to be
	// compatible with it.
	Libmemcached = Rule{Label: short, Count: floatLibmemcached, Spread: fourOfMD5}
	// PHP is the rule of php-memcached: Libmemcached with other labels for unix
	// sockets.
	PHP = Rule{Label: shortPHP, Count: floatLibmemcached, Spread: fourOfMD5}
	// Twemproxy is the rule of twemproxy: Libmemcached with other labels for unix
	// sockets.
	Twemproxy = Rule{Label: shortTwemproxy, Count: floatLibmemcached, Spread: fourOfMD5}
	// LibmemcachedSpy is the rule of libmemcached with KETAMA_SPY and KETAMA_WEIGHTED.
	// Its circle differs from that of the client spymemcached.
	LibmemcachedSpy = Rule{Label: spy, Count: floatLibmemcached, Spread: fourOfMD5}

	// Node is the rule of node-memcached (package hashring), which computes in float64.
	Node = Rule{Label: shortText, Count: double, Spread: fourOfMD5}
	// NodeLong is the rule of node-memcached with the option `compatibility: null`.
	NodeLong = Rule{Label: long, Count: double, Spread: fourOfMD5}
	// NodeHashRing is the rule of node-memcached with the option `compatibility:
	// "hash_ring"`.
	NodeHashRing = Rule{Label: long, Count: double, Spread: threeOfMD5}
	// NodeSHA1 is the rule of node-memcached with the option `algorithm: "sha1"`.
	NodeSHA1 = Rule{Label: shortText, Count: double, Spread: fourOfSHA1}

	// Libketama is the rule of the original libketama in C, and of go-ketama.
	Libketama = Rule{Label: long, Count: floatLibketama, Spread: fourOfMD5}
	// Goketama is the rule of rckclmbr/goketama for servers with the field Memory,
	// which is their weight.
	Goketama = Rule{Label: long, Count: double, Spread: fourOfMD5}
	// GoketamaUnweighted is the rule of rckclmbr/goketama if all servers have Memory 0,
	// which means no weight.
	GoketamaUnweighted = Rule{Label: long, Count: fixed(100), Spread: one(ring.MD5)}
	// UhashringKetama is the rule of Python's uhashring with
	// HashRing(hash_fn="ketama").
	UhashringKetama = Rule{Label: long, Count: integer(40), Spread: fourOfMD5, Seek: ring.After, LastWins: true}

	// Xmemcached is the rule of xmemcached with KetamaMemcachedSessionLocator.
	Xmemcached = Rule{Label: javaSlash, Count: times(40), Spread: fourOfMD5, LastWins: true, Walk: xmemcachedWalk}
	// XmemcachedNginx is the rule of xmemcached with cwNginxUpstreamConsistent.
	XmemcachedNginx = Rule{Label: javaShort, Count: times(40), Spread: fourOfMD5, LastWins: true, Walk: xmemcachedWalk}
	// XmemcachedGwhalin is the rule of xmemcached in the mode that is compatible with
	// gwhalin's client.
	XmemcachedGwhalin = Rule{Label: java, Count: times(40), Spread: fourOfMD5, LastWins: true, Walk: xmemcachedWalk}
	// XmemcachedLibmemcached is the rule of xmemcached with
	// LibmemcachedMemcachedSessionLocator.
	XmemcachedLibmemcached = Rule{Label: javaShort, Count: fixed(100), Spread: one(oneAtATimeUnsigned), LastWins: true}

	// Dalli is the rule of dalli, the Ruby client.
	Dalli = Rule{Label: bare, Count: dalli, Spread: sha1Dalli, Seek: ring.AtOrBefore,
		Walk: ring.TryBefore(ring.CRC32, 0, 20)}
	// Stathat is the rule of the Go package stathat/consistent.
	Stathat = Rule{Label: long, Count: fixed(20), Spread: crcStathat, Seek: ring.After, LastWins: true}
)

var (
	oneAtATimeUnsigned, _ = ring.OneAtATime.Unsigned()
	xmemcachedWalk        = ring.AddTryBefore(ring.MD5, 1, 8, 32)
)

// Consistent is the rule of libmemcached for a circle without weights. The parameter
// points is the hash function for the points: the one that was set in libmemcached when
// it built the circle.
func Consistent(points ring.Algorithm) Rule {
	return Rule{Label: short, Count: fixed(100), Spread: one(points)}
}

// ConsistentPHP is the rule of php-memcached for a circle without weights. It differs
// from Consistent only in the labels of unix sockets.
func ConsistentPHP(points ring.Algorithm) Rule {
	return Rule{Label: shortPHP, Count: fixed(100), Spread: one(points)}
}

// ConsistentSpy is the rule of libmemcached with KETAMA_SPY and without
// KETAMA_WEIGHTED.
func ConsistentSpy(points ring.Algorithm) Rule {
	return Rule{Label: spy, Count: fixed(100), Spread: one(points)}
}

// Spymemcached is the rule of spymemcached with KetamaNodeLocator. key is its key hash.
// With MD5, each label makes four points; with other hashes, each label makes one. If
// weighted is set, the number of labels is computed as in libmemcached.
func Spymemcached(key ring.Algorithm, weighted bool) Rule {
	return spymemcached(java, key, weighted)
}

// SpymemcachedLibmemcached is the rule of spymemcached with KetamaNodeLocator and
// Format.LIBMEMCACHED.
func SpymemcachedLibmemcached(key ring.Algorithm, weighted bool) Rule {
	return spymemcached(javaShort, key, weighted)
}

// EVCache is the rule of spymemcached without weights, if the addresses of servers have
// their IP address as host name.
func EVCache(key ring.Algorithm) Rule { return spymemcached(javaTwice, key, false) }

func spymemcached(label Label, key ring.Algorithm, weighted bool) Rule {
	r := Rule{Label: label, Count: fixed(40), Spread: fourOfMD5, LastWins: true,
		Walk: ring.AddTryBefore(key, 0, 7, 32)}
	if weighted {
		r.Count = floatLibmemcached
	}
	if key != ring.MD5 {
		count := r.Count
		r.Count = func(w, total, n int) int { return 4 * count(w, total, n) }
		r.Spread = one(key)
	}
	return r
}

// ProxyKetama is the rule of memcached's own proxy in the mode ketama. points is the
// number of points per server, "obuckets" in that proxy.
func ProxyKetama(points int) Rule {
	return Rule{Label: bare, Count: fixed(points / 4), Spread: fourOfMD5}
}

// ProxyTwemproxy is the rule of memcached's own proxy in the mode twemproxy. points is
// the number of points per server, "obuckets" in that proxy.
func ProxyTwemproxy(points int) Rule {
	return Rule{Label: shortPHP, Count: fixed(points / 4), Spread: fourOfMD5}
}

// ProxyEVCache is the rule of memcached's own proxy in the mode evcache. points is the
// number of points per server, "obuckets" in that proxy.
func ProxyEVCache(points int) Rule {
	return Rule{Label: Label{func(s ring.Server) (string, error) { return s.Host + "/" + s.Bare(), nil }, nil},
		Count: fixed(points / 4), Spread: fourOfMD5}
}

// Pecl is the rule of php-memcache's consistent strategy. Callers use its method
// Buckets, because that client does not search the circle itself for each key.
func Pecl(hash ring.Algorithm) Rule {
	return Rule{Label: pecl, Count: times(160), Spread: one(hash), Walk: ring.TryBehind(hash, 21)}
}

// PerlFast is the rule of Cache::Memcached::Fast with the option ketama_points.
func PerlFast(points int) Rule {
	return Rule{Label: perlFast, Count: times(points), Spread: chain}
}

// Points is a rule for new pools, which no client uses. Each server has the given
// number of points per unit of its weight, regardless of the other servers. Adding a
// server therefore moves keys only to the new server.
func Points(points int) Rule {
	return Rule{Label: long, Count: times(points), Spread: exactly}
}
