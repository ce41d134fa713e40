package config

// This file contains the list of presets, with one entry for each client and mode.

import (
	"slices"

	"ringside/ketama"
	"ringside/modulo"
	"ringside/ring"
)

var (
	// plainHashes are the hash functions that distributions for new pools and the distribution
	// modulo can use.
	plainHashes = hashNames{
		{"crc32", ring.CRC32}, {"md5", ring.MD5}, {"xxh64", ring.XXH64}, {"xxh3", ring.XXH3},
		{"fnv1_32", ring.FNV1x32}, {"fnv1a_32", ring.FNV1Ax32}, {"fnv1_64", ring.FNV1x64}, {"fnv1a_64", ring.FNV1Ax64},
		{"one_at_a_time", ring.OneAtATime}, {"jenkins", ring.Jenkins}, {"murmur", ring.Murmur2}, {"murmur3", ring.Murmur3},
		{"hsieh", ring.Hsieh}, {"sha1", ring.SHA1}, {"crc15", ring.CRC15}, {"crc15_not_0", ring.CRC15Not0},
		{"crc16", ring.CRC16}, {"crc31", ring.CRC31}, {"java", ring.Java}, {"java_abs", ring.JavaAbs},
	}
	libmemcachedHashes = hashNames{
		{"one_at_a_time", ring.OneAtATime}, {"md5", ring.MD5}, {"crc", ring.CRC15},
		{"fnv1_64", ring.FNV1x64}, {"fnv1a_64", ring.FNV1Ax64}, {"fnv1_32", ring.FNV1x32}, {"fnv1a_32", ring.FNV1Ax32},
		{"hsieh", ring.Hsieh}, {"murmur", ring.Murmur2}, {"jenkins", ring.Jenkins}, {"murmur3", ring.Murmur3},
	}
	twemproxyHashes = hashNames{
		{"fnv1a_64", ring.FNV1Ax64}, {"one_at_a_time", ring.OneAtATime}, {"md5", ring.MD5}, {"crc16", ring.CRC16},
		{"crc32", ring.CRC15}, {"crc32a", ring.CRC32}, {"fnv1_64", ring.FNV1x64}, {"fnv1_32", ring.FNV1x32},
		{"fnv1a_32", ring.FNV1Ax32}, {"hsieh", ring.Hsieh}, {"murmur", ring.Murmur2}, {"jenkins", ring.Jenkins},
	}
	javaHashes = hashNames{
		{"native", ring.Java}, {"ketama", ring.MD5}, {"crc", ring.CRC15}, {"fnv1_64", ring.JavaFNV1x64},
		{"fnv1a_64", ring.JavaFNV1Ax64}, {"fnv1_32", ring.JavaFNV1x32}, {"fnv1a_32", ring.JavaFNV1Ax32},
	}
	proxyHashes = hashNames{{"md5", ring.MD5}, {"xxh3", ring.XXH3}}
)

// mcrouterStop is the text at which mcrouter stops hashing: only the part of a key before it is
// hashed.
const mcrouterStop = "|#|"

const (
	eject = "; with ejection on it rebuilds the ring from the live servers"
)

// presets lists all presets. The function init adds the fields Hashes, Options and needs.
var presets = []Preset{
	// These presets are for new pools.
	{Name: "ketama-points", For: "new pools: a circle on which the points of a server depend on its own weight only, so adding one moves only its share",
		hashes:    plainHashes.only("md5", "xxh64", "xxh3", "crc32", "fnv1a_64", "fnv1a_32", "one_at_a_time", "murmur3"),
		MinPoints: 100, MaxPoints: 200, Points: 160, Dead: DeadWalks, New: true,
		build: onCircleOf(func(c choice) ketama.Rule { return ketama.Points(c.points) })},
	{Name: "jump", For: "new pools that grow and shrink at the end of the list: the most even shares, no weights",
		hashes: plainHashes.only("xxh64", "xxh3"), Orders: []string{"listed", "natural", "length"},
		Weights: WeightsRefused, Dead: DeadWalks, New: true, build: jump},
	{Name: "modulo-crc32", For: "new pools that never change: CRC-32 mod n, as gomemcache",
		hashes: plainHashes.only("crc32"), Orders: []string{"listed", "natural", "length", "host"},
		Dead: DeadWalks, New: true, build: onOrderedTable(modulo.Rule{Repeat: true})},

	// These presets build rings like those of libmemcached.
	{Name: "ketama", Aliases: []string{"libmemcached", "libmemcached-ketama", "pylibmc-ketama-weighted"},
		For:    "libmemcached KETAMA_WEIGHTED, pylibmc ketama_weighted" + eject,
		hashes: libmemcachedHashes.from("md5"), Dead: DeadRebuilds, build: onCircle(ketama.Libmemcached)},
	{Name: "ketama-php", Aliases: []string{"php-memcached", "libketama-compatible"},
		For:    "php-memcached OPT_LIBKETAMA_COMPATIBLE; = ketama but for unix sockets" + eject,
		hashes: libmemcachedHashes.from("md5"), Dead: DeadRebuilds, build: onCircle(ketama.PHP)},
	{Name: "twemproxy", Aliases: []string{"nutcracker", "twemproxy-ketama"},
		For:    "twemproxy distribution: ketama, hash names as in its file (crc32 is 15 bits, crc32a is CRC-32)" + eject,
		hashes: twemproxyHashes, Dead: DeadRebuilds, build: onCircle(ketama.Twemproxy)},
	{Name: "ketama-node", Aliases: []string{"node-memcached"}, For: "node-memcached",
		hashes: fixed(ring.MD5), Dead: DeadRebuilds, build: onCircle(ketama.Node)},
	{Name: "ketama-node-hostport", For: "node-memcached with compatibility: null",
		hashes: fixed(ring.MD5), Dead: DeadRebuilds, build: onCircle(ketama.NodeLong)},
	{Name: "ketama-node-hashring", For: `node-memcached with compatibility: "hash_ring"`,
		hashes: fixed(ring.MD5), Dead: DeadRebuilds, build: onCircle(ketama.NodeHashRing)},
	{Name: "ketama-node-sha1", For: `node-memcached with algorithm: "sha1"`,
		hashes: fixed(ring.SHA1), Dead: DeadRebuilds, build: onCircle(ketama.NodeSHA1)},
	{Name: "ketama-hostport", Aliases: []string{"libketama", "go-ketama"}, For: "last.fm's libketama, dgryski/go-ketama",
		hashes: fixed(ring.MD5), build: onCircle(ketama.Libketama)},
	{Name: "goketama", For: "rckclmbr/goketama with Memory set",
		hashes: fixed(ring.MD5), build: onCircle(ketama.Goketama)},
	{Name: "goketama-unweighted", For: "rckclmbr/goketama with Memory 0",
		hashes: fixed(ring.MD5), Weights: WeightsRefused, build: onCircle(ketama.GoketamaUnweighted)},
	{Name: "uhashring-ketama", For: `Python's uhashring with hash_fn="ketama", nodes named host:port`,
		hashes: fixed(ring.MD5), build: onCircle(ketama.UhashringKetama)},
	{Name: "libmemcached-spy", For: "libmemcached KETAMA_SPY" + eject,
		hashes: libmemcachedHashes, PointHashes: libmemcachedHashes.names(), Weights: WeightsIgnored, Dead: DeadRebuilds,
		build: onCircleOf(func(c choice) ketama.Rule { return ketama.ConsistentSpy(c.point) })},
	{Name: "libmemcached-spy-weighted", For: "libmemcached KETAMA_SPY with KETAMA_WEIGHTED" + eject,
		hashes: libmemcachedHashes.from("md5"), Dead: DeadRebuilds, build: onCircle(ketama.LibmemcachedSpy)},

	// These presets build libmemcached's ring with 100 points per server.
	{Name: "consistent", Aliases: []string{"libmemcached-consistent", "pylibmc-ketama"},
		For:    "libmemcached DISTRIBUTION_CONSISTENT and KETAMA, pylibmc ketama (unweighted)" + eject,
		hashes: libmemcachedHashes, PointHashes: libmemcachedHashes.names(), Weights: WeightsIgnored, Dead: DeadRebuilds,
		build: onCircleOf(func(c choice) ketama.Rule { return ketama.Consistent(c.point) })},
	{Name: "consistent-php", Aliases: []string{"php-session", "php-consistent"},
		For:    "php-memcached DISTRIBUTION_CONSISTENT and its session handler; = consistent but for unix sockets" + eject,
		hashes: libmemcachedHashes, PointHashes: libmemcachedHashes.names(), Weights: WeightsIgnored, Dead: DeadRebuilds,
		build: onCircleOf(func(c choice) ketama.Rule { return ketama.ConsistentPHP(c.point) })},
	{Name: "consistent-weighted", Aliases: []string{"pylibmc-ketama-weights"},
		For:    "libmemcached and pylibmc likewise, with weighted servers added after the distribution was set: the weighted circle with the unweighted key hash" + eject,
		hashes: libmemcachedHashes, PointHashes: libmemcachedHashes.names(), Dead: DeadRebuilds,
		build: onCircleOf(accidental(ketama.Consistent, ketama.Libmemcached))},
	{Name: "consistent-php-weighted", For: "php-memcached likewise; = consistent-weighted but for unix sockets" + eject,
		hashes: libmemcachedHashes, PointHashes: libmemcachedHashes.names(), Dead: DeadRebuilds,
		build: onCircleOf(accidental(ketama.ConsistentPHP, ketama.PHP))},

	// These presets are the rings of Java clients.
	{Name: "spymemcached", Aliases: []string{"spymemcached-ketama"}, For: "spymemcached KetamaConnectionFactory",
		hashes: javaHashes.from("ketama"), Weights: WeightsRefused, Dead: DeadWalks,
		build: onCircleOf(func(c choice) ketama.Rule { return ketama.Spymemcached(c.key, false) })},
	{Name: "spymemcached-weighted", For: "spymemcached KetamaNodeLocator with weights",
		hashes: javaHashes.from("ketama"), Dead: DeadWalks,
		build: onCircleOf(func(c choice) ketama.Rule { return ketama.Spymemcached(c.key, true) })},
	{Name: "spymemcached-libmemcached", For: "spymemcached KetamaNodeLocator with Format.LIBMEMCACHED",
		hashes: javaHashes.from("ketama"), Weights: WeightsRefused, Dead: DeadWalks,
		build: onCircleOf(func(c choice) ketama.Rule { return ketama.SpymemcachedLibmemcached(c.key, false) })},
	{Name: "spymemcached-libmemcached-weighted", For: "spymemcached KetamaNodeLocator with Format.LIBMEMCACHED and weights",
		hashes: javaHashes.from("ketama"), Dead: DeadWalks,
		build: onCircleOf(func(c choice) ketama.Rule { return ketama.SpymemcachedLibmemcached(c.key, true) })},
	{Name: "evcache", For: "Netflix EVCache: spymemcached over addresses named by their own text",
		hashes: javaHashes.from("ketama"), Weights: WeightsRefused, Dead: DeadWalks,
		build: onCircleOf(func(c choice) ketama.Rule { return ketama.EVCache(c.key) })},
	{Name: "xmemcached", Aliases: []string{"xmemcached-ketama"}, For: "xmemcached KetamaMemcachedSessionLocator",
		hashes: fixed(ring.MD5), Dead: DeadWalks, build: onCircle(ketama.Xmemcached)},
	{Name: "xmemcached-nginx", For: "xmemcached KetamaMemcachedSessionLocator(cwNginxUpstreamConsistent = true)",
		hashes: fixed(ring.MD5), Dead: DeadWalks, build: onCircle(ketama.XmemcachedNginx)},
	{Name: "xmemcached-gwhalin", For: "xmemcached in the mode compatible with gwhalin's client",
		hashes: fixed(ring.MD5), Dead: DeadWalks, build: onCircle(ketama.XmemcachedGwhalin)},
	{Name: "xmemcached-libmemcached", For: "xmemcached LibmemcachedMemcachedSessionLocator",
		hashes: fixed(oneAtATimeUnsigned), Weights: WeightsRefused, build: onCircle(ketama.XmemcachedLibmemcached)},

	// These presets are the rings of memcached's own proxy.
	{Name: "memcached-proxy-ketama", For: `memcached proxy, mcp.dist_ring_hash with omode "ketama" (points = obuckets)`,
		hashes: proxyHashes, MinPoints: 4, MaxPoints: 4000, Points: 160, unit: 4, Weights: WeightsRefused,
		emptyTag: true, build: onCircleOf(func(c choice) ketama.Rule { return ketama.ProxyKetama(c.points) })},
	{Name: "memcached-proxy-twemproxy", For: `memcached proxy, mcp.dist_ring_hash with omode "twemproxy"`,
		hashes: proxyHashes, MinPoints: 4, MaxPoints: 4000, Points: 160, unit: 4, Weights: WeightsRefused,
		emptyTag: true, build: onCircleOf(func(c choice) ketama.Rule { return ketama.ProxyTwemproxy(c.points) })},
	{Name: "memcached-proxy-evcache", For: `memcached proxy, mcp.dist_ring_hash with omode "evcache"`,
		hashes: proxyHashes, MinPoints: 4, MaxPoints: 4000, Points: 160, unit: 4, Weights: WeightsRefused,
		emptyTag: true, build: onCircleOf(func(c choice) ketama.Rule { return ketama.ProxyEVCache(c.points) })},

	// These presets are the rings of other clients.
	{Name: "dalli", For: "dalli (Ruby); clients' namespaces are hashed",
		hashes: fixed(ring.CRC32), Dead: DeadWalks, build: onCircle(ketama.Dalli)},
	{Name: "pecl-consistent", Aliases: []string{"php-memcache"}, For: "php-memcache (pecl) by default: memcache.hash_strategy = consistent",
		hashes: hashNames{{"crc32", ring.CRC32}, {"fnv", ring.FNV1Ax32}}, Dead: DeadWalks, build: buckets},
	{Name: "perl-fast-ketama", InOrder: true, Aliases: []string{"cache-memcached-fast-ketama"}, For: "Cache::Memcached::Fast with ketama_points",
		hashes: fixed(ring.CRC32), MinPoints: 1, MaxPoints: 10000, Points: 150,
		build: onCircleOf(func(c choice) ketama.Rule { return ketama.PerlFast(c.points) })},
	{Name: "uhashring", For: "Python's uhashring by default, nodes named host:port",
		hashes: fixed(ring.MD5Wide), build: onWide(ketama.Uhashring)},
	{Name: "bmemcached", Aliases: []string{"python-binary-memcached"}, For: "python-binary-memcached without authentication",
		hashes: fixed(ring.MD5Wide), Weights: WeightsRefused, build: onWide(ketama.Bmemcached)},
	{Name: "stathat", For: "stathat/consistent (Go), members named host:port",
		hashes: fixed(ring.CRC32), Weights: WeightsRefused, build: onCircle(ketama.Stathat)},
	{Name: "serialx", For: "serialx/hashring (Go), nodes named host:port",
		hashes: fixed(ring.MD5Signed), build: onWide(ketama.Serialx)},

	// These presets select a server by the hash modulo the number of servers.
	{Name: "modulo", For: "a remainder of your own making: hash and order chosen, servers repeated by weight",
		hashes: plainHashes, Orders: []string{"listed", "natural", "length", "host"}, build: onOrderedTable(modulo.Rule{Repeat: true})},
	{Name: "modulo-libmemcached", Aliases: []string{"modulo-php-memcached", "modulo-pylibmc"},
		For:    "libmemcached, php-memcached and pylibmc by default; weights are ignored, order host is SORT_HOSTS",
		hashes: libmemcachedHashes, Orders: []string{"listed", "host"}, Weights: WeightsIgnored, build: onOrderedTable(modulo.Libmemcached)},
	{Name: "modulo-perl", InOrder: true, Aliases: []string{"cache-memcached"}, For: "Cache::Memcached by default",
		hashes: fixed(ring.CRC15), Dead: DeadWalks, build: onTable(modulo.Perl)},
	{Name: "modulo-perl-fast", InOrder: true, Aliases: []string{"cache-memcached-fast"}, For: "Cache::Memcached::Fast by default; = modulo-perl, but a dead server's keys miss",
		hashes: fixed(ring.CRC15), build: onTable(modulo.PerlFast)},
	{Name: "modulo-python-memcache", Aliases: []string{"python-memcached", "python-memcache"}, For: "python-memcache (python-memcached) by default",
		hashes: fixed(ring.CRC15Not0), Dead: DeadWalks, build: onTable(modulo.Python)},
	{Name: "modulo-python-memcache-old", For: "python-memcache with useOldServerHashFunction",
		hashes: fixed(ring.CRC32), Dead: DeadWalks, build: onTable(modulo.PythonOld)},
	{Name: "modulo-pecl", Aliases: []string{"php-memcache-standard"}, For: "php-memcache (pecl) with memcache.hash_strategy = standard",
		hashes: hashNames{{"crc32", ring.CRC15Not0}, {"fnv", ring.FNV1A15Not0}}, Dead: DeadWalks,
		build: onTableOf(func(c choice) modulo.Rule { return modulo.Pecl(c.key) })},
	{Name: "modulo-gomemcache", Aliases: []string{"gomemcache"}, For: "bradfitz/gomemcache, grafana/gomemcache, rainycape/memcache",
		hashes: fixed(ring.CRC32), build: onTable(modulo.Gomemcache)},
	{Name: "modulo-mcrouter", For: "mcrouter hash_func Crc32",
		hashes: fixed(ring.CRC31), Options: []string{"salt"}, Weights: WeightsRefused, stop: mcrouterStop, build: crcMcrouter},
	{Name: "modulo-spymemcached", Aliases: []string{"modulo-java"}, For: "spymemcached by default (ARRAY_MOD)",
		hashes: javaHashes, Weights: WeightsRefused, Dead: DeadWalks, build: onTable(modulo.Spymemcached)},
	{Name: "modulo-xmemcached", For: "xmemcached by default (ArrayMemcachedSessionLocator); = modulo-java with weights",
		hashes: javaHashes, Dead: DeadWalks, build: onTable(modulo.Xmemcached)},
	{Name: "modulo-xmemcached-php", For: "xmemcached PHPMemcacheSessionLocator",
		hashes: fixed(ring.Java15), Dead: DeadWalks, build: onTable(modulo.Xmemcached)},
	{Name: "modulo-memjs", Aliases: []string{"memjs"}, For: "memjs",
		hashes: fixed(ring.JavaAbs), Weights: WeightsRefused, Dead: DeadWalks, build: onTable(modulo.Memjs)},
	{Name: "modulo-twemproxy", Aliases: []string{"twemproxy-modula"},
		For:    "twemproxy distribution: modula, hash names as in its file; servers sorted by length and name" + eject,
		hashes: twemproxyHashes, Dead: DeadRebuilds, build: onTable(modulo.Twemproxy)},

	// These presets use neither a ring nor the hash modulo the number of servers.
	{Name: "jump-dskit", Aliases: []string{"grafana"}, For: "Grafana dskit (Mimir, Loki, Thanos, Cortex)",
		hashes: fixed(ring.XXH64), Weights: WeightsRefused, build: jumpNatural},
	{Name: "jump-memcached-proxy", Aliases: []string{"memcached-proxy"}, For: "memcached proxy by default (mcp.dist_jump_hash)",
		hashes: fixed(ring.XXH3), Options: []string{"seed"}, Weights: WeightsRefused, emptyTag: true, build: jumpSeeded},
	{Name: "rendezvous-pymemcache", Aliases: []string{"pymemcache"}, For: "pymemcache HashClient with str keys",
		Weights: WeightsRefused, Dead: DeadWalks, build: rendezvousPymemcache(false)},
	{Name: "rendezvous-pymemcache-bytes", For: "pymemcache HashClient with bytes keys",
		Weights: WeightsRefused, Dead: DeadWalks, build: rendezvousPymemcache(true)},
	{Name: "rendezvous-mcrouter", For: "mcrouter hash_func Rendezvous, tags named host:port",
		hashes: fixed(ring.Murmur64Key), Options: []string{"salt"}, Weights: WeightsRefused, stop: mcrouterStop, build: rendezvousMcrouter},
	{Name: "ch3", Aliases: []string{"mcrouter", "mcrouter-ch3"}, For: "mcrouter by default (hash_func Ch3)",
		hashes: fixed(ring.Murmur64), Options: []string{"salt"}, Weights: WeightsRefused, stop: mcrouterStop, build: ch3},
}

var oneAtATimeUnsigned, _ = ring.OneAtATime.Unsigned()

func init() {
	variants := "modulo alone doesn't say which: give it a hash, or use the distribution of your client:"
	for i := range presets {
		p := &presets[i]
		p.Hashes = p.hashes.names()
		p.Options = p.options()
		if len(p.Name) > len("modulo-") && p.Name[:len("modulo-")] == "modulo-" {
			variants += "\n  " + p.Name + ": " + p.For
		}
	}
	for i := range presets {
		if presets[i].Name == "modulo" {
			presets[i].needs = variants
		}
	}
}

// options returns the names of all options that a preset accepts. It is called before init sets
// Options. Until then, Options contains only the options seed and salt.
func (p *Preset) options() []string {
	var options []string
	if len(p.Hashes) > 0 {
		options = append(options, "hash")
	}
	if len(p.PointHashes) > 0 {
		options = append(options, "point_hash")
	}
	if p.MaxPoints > 0 {
		options = append(options, "points")
	}
	if len(p.Orders) > 0 {
		options = append(options, "order")
	}
	options = append(options, p.Options...)
	if slices.ContainsFunc(p.hashes, func(h namedHash) bool { _, has := h.algorithm.Unsigned(); return has }) {
		options = append(options, "char")
	}
	return append(options, "hash_tag", "hash_stop", "hash_strip_prefix")
}
