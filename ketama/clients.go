package ketama

// The rules of the clients. fourOfMD5 builds the circle of last.fm's libketama. Its
// descendants changed the label or the rounding; the other clients only share the
// name.

import "ringside/ring"

var (
	// Libmemcached is the rule that most clients share: KETAMA_WEIGHTED in
	// libmemcached and pylibmc, memcached-proxy, and nginx modules that claim to be
	// compatible with it.
	Libmemcached = Rule{Label: short, Count: floatLibmemcached, Spread: fourOfMD5}
	// PHP is Libmemcached with php-memcached's labels for unix sockets.
	PHP = Rule{Label: shortPHP, Count: floatLibmemcached, Spread: fourOfMD5}
	// Twemproxy is Libmemcached with twemproxy's labels for unix sockets.
	Twemproxy = Rule{Label: shortTwemproxy, Count: floatLibmemcached, Spread: fourOfMD5}
	// LibmemcachedSpy is libmemcached's KETAMA_SPY with KETAMA_WEIGHTED. Its circle
	// differs from spymemcached's.
	LibmemcachedSpy = Rule{Label: spy, Count: floatLibmemcached, Spread: fourOfMD5}

	// Node is node-memcached (package hashring), which computes in float64.
	Node = Rule{Label: shortText, Count: double, Spread: fourOfMD5}
	// NodeLong is Node with compatibility null.
	NodeLong = Rule{Label: long, Count: double, Spread: fourOfMD5}
	// NodeHashRing is Node with compatibility "hash_ring".
	NodeHashRing = Rule{Label: long, Count: double, Spread: threeOfMD5}
	// NodeSHA1 is Node with algorithm "sha1".
	NodeSHA1 = Rule{Label: shortText, Count: double, Spread: fourOfSHA1}

	// Libketama is the original libketama in C, and go-ketama.
	Libketama = Rule{Label: long, Count: floatLibketama, Spread: fourOfMD5}
	// Goketama is rckclmbr/goketama with the field Memory of its servers (their weight) set.
	Goketama = Rule{Label: long, Count: double, Spread: fourOfMD5}
	// GoketamaUnweighted is rckclmbr/goketama with Memory 0 (no weight) for all servers.
	GoketamaUnweighted = Rule{Label: long, Count: fixed(100), Spread: one(ring.MD5)}
	// UhashringKetama is Python's uhashring with HashRing(hash_fn="ketama").
	UhashringKetama = Rule{Label: long, Count: integer(40), Spread: fourOfMD5, Seek: ring.After, LastWins: true}

	// Xmemcached is xmemcached's KetamaMemcachedSessionLocator.
	Xmemcached = Rule{Label: javaSlash, Count: times(40), Spread: fourOfMD5, LastWins: true, Walk: xmemcachedWalk}
	// XmemcachedNginx is xmemcached with cwNginxUpstreamConsistent.
	XmemcachedNginx = Rule{Label: javaShort, Count: times(40), Spread: fourOfMD5, LastWins: true, Walk: xmemcachedWalk}
	// XmemcachedGwhalin is xmemcached in the mode compatible with gwhalin's client.
	XmemcachedGwhalin = Rule{Label: java, Count: times(40), Spread: fourOfMD5, LastWins: true, Walk: xmemcachedWalk}
	// XmemcachedLibmemcached is xmemcached's LibmemcachedMemcachedSessionLocator.
	XmemcachedLibmemcached = Rule{Label: javaShort, Count: fixed(100), Spread: one(oneAtATimeUnsigned), LastWins: true}

	// Dalli is the Ruby client.
	Dalli = Rule{Label: bare, Count: dalli, Spread: sha1Dalli, Seek: ring.AtOrBefore,
		Walk: ring.TryBefore(ring.CRC32, 0, 20)}
	// Stathat is stathat/consistent.
	Stathat = Rule{Label: long, Count: fixed(20), Spread: crcStathat, Seek: ring.After, LastWins: true}
)

var (
	oneAtATimeUnsigned, _ = ring.OneAtATime.Unsigned()
	xmemcachedWalk        = ring.AddTryBefore(ring.MD5, 1, 8, 32)
)

// Consistent is libmemcached's unweighted circle. libmemcached computes its points
// with the hash that was set when the circle was built.
func Consistent(points ring.Algorithm) Rule {
	return Rule{Label: short, Count: fixed(100), Spread: one(points)}
}

// ConsistentPHP is Consistent with php-memcached's labels for unix sockets.
func ConsistentPHP(points ring.Algorithm) Rule {
	return Rule{Label: shortPHP, Count: fixed(100), Spread: one(points)}
}

// ConsistentSpy is libmemcached's KETAMA_SPY without KETAMA_WEIGHTED.
func ConsistentSpy(points ring.Algorithm) Rule {
	return Rule{Label: spy, Count: fixed(100), Spread: one(points)}
}

// Spymemcached is spymemcached's KetamaNodeLocator with the given key hash. With
// weights, the number of labels is computed as in libmemcached. With MD5 each label
// makes four points; with other hashes each label makes one.
func Spymemcached(key ring.Algorithm, weighted bool) Rule {
	return spymemcached(java, key, weighted)
}

// SpymemcachedLibmemcached is Spymemcached with Format.LIBMEMCACHED.
func SpymemcachedLibmemcached(key ring.Algorithm, weighted bool) Rule {
	return spymemcached(javaShort, key, weighted)
}

// EVCache is Spymemcached without weights, for addresses that use the IP address as
// host name.
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

// ProxyKetama is the mode ketama of memcached's proxy. points is the number of
// points per server ("obuckets").
func ProxyKetama(points int) Rule {
	return Rule{Label: bare, Count: fixed(points / 4), Spread: fourOfMD5}
}

// ProxyTwemproxy is the mode twemproxy of memcached's proxy. See ProxyKetama.
func ProxyTwemproxy(points int) Rule {
	return Rule{Label: shortPHP, Count: fixed(points / 4), Spread: fourOfMD5}
}

// ProxyEVCache is the mode evcache of memcached's proxy. See ProxyKetama.
func ProxyEVCache(points int) Rule {
	return Rule{Label: Label{func(s ring.Server) (string, error) { return s.Host + "/" + s.Bare(), nil }, nil},
		Count: fixed(points / 4), Spread: fourOfMD5}
}

// Pecl is the circle of php-memcache's consistent strategy. Callers use its
// Buckets.
func Pecl(hash ring.Algorithm) Rule {
	return Rule{Label: pecl, Count: times(160), Spread: one(hash), Walk: ring.TryBehind(hash, 21)}
}

// PerlFast is Cache::Memcached::Fast with ketama_points.
func PerlFast(points int) Rule {
	return Rule{Label: perlFast, Count: times(points), Spread: chain}
}

// Points is the rule for new pools. No client uses it. Each server has the given
// number of points per unit of weight, regardless of the other servers. Adding a
// server therefore only moves keys to the new server.
func Points(points int) Rule {
	return Rule{Label: long, Count: times(points), Spread: exactly}
}
