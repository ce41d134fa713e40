package config

// Tests that presets reproduce the recorded placement of real clients for every key.

import (
	"compress/gzip"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"ringside/ring"
)

// vectorFile is the format of testdata/vectors.json.gz and of the file that RINGSIDE_VECTORS
// names.
type vectorFile struct {
	Keys    []string
	Vectors []vector
}

// vector holds the placement of one client: for each key the index of a server, or -1 if the
// client rejected the key or had no live server.
type vector struct {
	Client, Version, Mode, Desc, Pool string

	Servers []struct {
		Addr, Host, Name string
		Port, Weight     int
	}
	Down  []int
	Index []int
}

// plan is the Ringside configuration that matches a client, and what the client does to a key
// before it sends it.
type plan struct {
	preset     string
	options    PlacementOptions
	unweighted bool                            // the client got the servers without weights
	server     func(i int, s *PlacementServer) // changes the server to how the file must name it; nil: no change
	wire       func(key string) string         // returns the key as the client sends it; nil: unchanged
	refuses    func(key string) bool           // whether the client refuses to send the key; nil: never
	zero       func(key string) bool           // whether the client's hash of the key is 0; nil: never
}

func TestVectors(t *testing.T) {
	name := os.Getenv("RINGSIDE_VECTORS")
	if name == "" {
		name = "testdata/vectors.json.gz"
	}
	file := readVectors(t, name)
	var answers, right, refusals, rightRefusals int
	for _, v := range file.Vectors {
		id := fmt.Sprintf("%s %s %s, pool %s, down %v", v.Client, v.Version, v.Mode, v.Pool, v.Down)
		got, err := v.answers(file.Keys)
		if err != nil {
			t.Errorf("%s: %v", id, err)
		}
		wrong := 0
		for i, want := range v.Index {
			ok := err == nil && got[i] == want
			if want < 0 {
				refusals++
			} else {
				answers++
			}
			switch {
			case ok && want < 0:
				rightRefusals++
			case ok:
				right++
			default:
				if wrong++; wrong == 1 && err == nil {
					t.Errorf("%s: key %q goes to %d, the client says %d", id, file.Keys[i], got[i], want)
				}
			}
		}
		if wrong > 1 {
			t.Errorf("%s: %d of %d keys wrong", id, wrong, len(v.Index))
		}
	}
	if answers == 0 {
		t.Fatal("no answers in the file")
	}
	t.Logf("%d vectors: %d of %d answers reproduced, and %d of %d refusals", len(file.Vectors), right, answers, rightRefusals, refusals)
}

func readVectors(t *testing.T, name string) vectorFile {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in := io.Reader(f)
	if strings.HasSuffix(name, ".gz") {
		if in, err = gzip.NewReader(f); err != nil {
			t.Fatal(err)
		}
	}
	var file vectorFile
	if err := json.NewDecoder(in).Decode(&file); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return file
}

// answers returns the server of every key by the placement for the vector's client.
func (v *vector) answers(keys []string) ([]int, error) {
	if len(v.Index) != len(keys) {
		return nil, fmt.Errorf("%d answers to %d keys", len(v.Index), len(keys))
	}
	p, err := v.plan()
	if err != nil {
		return nil, err
	}
	servers, err := v.servers(p)
	if err != nil {
		return nil, err
	}
	var placement ring.Placement
	if v.Down == nil {
		placement, err = BuildPlacement(p.preset, servers, p.options)
	} else {
		dead := make([]bool, len(servers))
		for _, i := range v.Down {
			dead[i] = true
		}
		placement, err = withoutDead(p.preset, servers, p.options, dead)
	}
	if err != nil {
		return nil, err
	}
	var got []int
	for _, key := range keys {
		if p.refuses != nil && p.refuses(key) {
			got = append(got, -1)
			continue
		}
		if p.zero != nil && p.zero(key) {
			got = append(got, placement.Ring.At(nil, 0, 0))
			continue
		}
		wire := key
		if p.wire != nil {
			wire = p.wire(key)
		}
		_, _, server := placement.Locate([]byte(wire))
		got = append(got, server)
	}
	return got, nil
}

func (v *vector) servers(p plan) ([]PlacementServer, error) {
	preset, ok := FindPreset(p.preset)
	if !ok {
		return nil, fmt.Errorf("no preset %q", p.preset)
	}
	var servers []PlacementServer
	for i, from := range v.Servers {
		s := PlacementServer{Host: from.Host, Port: from.Port, Weight: from.Weight}
		if strings.HasSuffix(v.Client, "twemproxy") {
			s.Name = from.Name // other clients do not support names
		}
		switch addr := strings.TrimPrefix(from.Addr, "unix:"); {
		case strings.HasPrefix(addr, "/"):
			s.Path = addr
		case addr != "":
			host, port, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, err
			}
			s.Host = host
			if s.Port, err = strconv.Atoi(port); err != nil {
				return nil, err
			}
		}
		// The vectors have weights for every pool, even if the client does not
		// support them.
		if p.unweighted || preset.Weights == WeightsRefused {
			s.Weight = 1
		}
		if p.server != nil {
			p.server(i, &s)
		}
		servers = append(servers, s)
	}
	return servers, nil
}

// prefix is the namespace that some clients add before every key.
const prefix = "pfx:"

func prefixed(key string) string { return prefix + key }

// plan returns the configuration for the vector's client and mode.
func (v *vector) plan() (plan, error) {
	client := strings.TrimPrefix(v.Client, "failover-")
	switch client {
	case "libmemcached":
		return v.planLibmemcached()
	case "php-memcached":
		return v.planPHP()
	case "pylibmc":
		if hash, ok := strings.CutPrefix(v.Mode, "modula_"); ok {
			return plan{preset: "modulo-libmemcached", options: PlacementOptions{Hash: hash}}, nil
		}
	case "twemproxy":
		return v.planTwemproxy()
	case "spymemcached":
		return v.planSpymemcached()
	case "Cache-Memcached-Fast":
		return v.planFast()
	case "memcached-proxy":
		if points, ok := strings.CutPrefix(v.Mode, "ring_ketama_b"); ok {
			n, err := strconv.Atoi(points)
			return plan{preset: "memcached-proxy-ketama", options: PlacementOptions{Points: n}}, err
		}
	}
	mode := v.Mode
	if mode == "net" {
		mode = "default" // the default mode, recorded at the servers
	}
	if p, ok := plans[client][mode]; ok {
		return p, nil
	}
	return plan{}, fmt.Errorf("no plan for this client and mode")
}

var plans = map[string]map[string]plan{
	"Cache-Memcached": {
		"cm":    {preset: "modulo-perl"},
		"cm_ns": {preset: "modulo-perl", options: PlacementOptions{HashStripPrefix: []string{prefix}}, wire: prefixed},
	},
	"bmemcached": {"default": {preset: "bmemcached"}},
	"dalli": {
		"default": {preset: "dalli", wire: func(key string) string { return dalliKey("", key) }},
		"ns":      {preset: "dalli", wire: func(key string) string { return dalliKey(prefix, key) }},
	},
	"go-jump-xxhash64": {"xxh64": {preset: "jump"}},
	"go-ketama": {
		"hash1":    {preset: "ketama-hostport"},
		"hash2":    {preset: "ketama-hostport"},
		"lm_hash2": {preset: "ketama-hostport", server: labelledShort},
	},
	"goketama": {
		"weighted":   {preset: "goketama"},
		"unweighted": {preset: "goketama-unweighted"},
	},
	"gomemcache": {
		"default": {preset: "modulo-gomemcache", unweighted: true},
		"repeat":  {preset: "modulo-gomemcache"},
	},
	"rainycape-memcache": {"default": {preset: "modulo-gomemcache", unweighted: true}},
	"grafana-dskit-jump": {"default": {preset: "jump-dskit"}},
	"libketama":          {"default": {preset: "ketama-hostport"}},
	"mcrouter": {
		"Ch3":        {preset: "ch3"},
		"Ch3_salt":   {preset: "ch3", options: PlacementOptions{Salt: "foo"}},
		"Crc32":      {preset: "modulo-mcrouter"},
		"Rendezvous": {preset: "rendezvous-mcrouter"},
	},
	"memcached-proxy": {
		"jump":               {preset: "jump-memcached-proxy"},
		"jump_hashfn":        {preset: "jump-memcached-proxy"},
		"jump_seed":          {preset: "jump-memcached-proxy", options: PlacementOptions{Seed: "mc1.6"}},
		"jump_stop":          {preset: "jump-memcached-proxy", options: PlacementOptions{HashStop: "|#|"}},
		"jump_tags":          {preset: "jump-memcached-proxy", options: PlacementOptions{HashTag: "{}"}},
		"ring_evcache":       {preset: "memcached-proxy-evcache"},
		"ring_ketama":        {preset: "memcached-proxy-ketama"},
		"ring_ketama_nohash": {preset: "memcached-proxy-ketama", options: PlacementOptions{Hash: "xxh3"}},
		"ring_twemproxy":     {preset: "memcached-proxy-twemproxy"},
	},
	"memjs": {"default": {preset: "modulo-memjs"}},
	"node-memcached": {
		"default":   {preset: "ketama-node", wire: nodeKey},
		"list":      {preset: "ketama-node", wire: nodeKey, unweighted: true},
		"hash_ring": {preset: "ketama-node-hashring", wire: nodeKey},
		"nocompat":  {preset: "ketama-node-hostport", wire: nodeKey},
		"sha1":      {preset: "ketama-node-sha1", wire: nodeKey},
	},
	"php-memcache": {
		"consistent-crc32": {preset: "pecl-consistent", wire: peclKey},
		"consistent-fnv":   {preset: "pecl-consistent", options: PlacementOptions{Hash: "fnv"}, wire: peclKey},
		"standard-crc32":   {preset: "modulo-pecl", wire: peclKey},
		"standard-fnv":     {preset: "modulo-pecl", options: PlacementOptions{Hash: "fnv"}, wire: peclKey},
	},
	"pylibmc": {
		"default":           {preset: "modulo-libmemcached"},
		"default_w":         {preset: "modulo-libmemcached"},
		"dist_consistent":   {preset: "consistent", unweighted: true},
		"dist_consistent_w": {preset: "consistent-weighted"},
		"ketama":            {preset: "consistent", unweighted: true},
		"ketama_w":          {preset: "consistent-weighted"},
		"ketama_md5":        {preset: "consistent", options: PlacementOptions{Hash: "md5"}, unweighted: true},
		"md5_ketama":        {preset: "consistent", options: PlacementOptions{Hash: "md5"}, unweighted: true},
		"ketama_weighted":   {preset: "ketama", unweighted: true},
		"ketama_weighted_w": {preset: "ketama"},
	},
	"pymemcache": {
		"default":    {preset: "rendezvous-pymemcache"},
		"bytes_keys": {preset: "rendezvous-pymemcache-bytes"},
	},
	"python-memcache": {
		"default":  {preset: "modulo-python-memcache"},
		"old_hash": {preset: "modulo-python-memcache-old"},
	},
	"serialx-hashring": {
		"default":  {preset: "serialx", unweighted: true},
		"weighted": {preset: "serialx"},
	},
	"stathat-consistent": {"default": {preset: "stathat"}},
	"uhashring": {
		"default": {preset: "uhashring"},
		"ketama":  {preset: "uhashring-ketama"},
	},
	"xmemcached": {
		"default":        {preset: "modulo-xmemcached", unweighted: true},
		"default_w":      {preset: "modulo-xmemcached"},
		"array-crc":      {preset: "modulo-xmemcached", options: PlacementOptions{Hash: "crc"}, unweighted: true},
		"php":            {preset: "modulo-xmemcached-php", unweighted: true},
		"ketama":         {preset: "xmemcached", unweighted: true, server: lookedUp},
		"ketama_w":       {preset: "xmemcached", server: lookedUp},
		"ketama-nginx":   {preset: "xmemcached-nginx", unweighted: true},
		"ketama-gwhalin": {preset: "xmemcached-gwhalin", unweighted: true, server: resolved},
		"libmemcached":   {preset: "xmemcached-libmemcached", server: localhost},
	},
}

// planTwemproxy parses modes of the form "distribution-hash" or "distribution-hash-hashtag".
func (v *vector) planTwemproxy() (plan, error) {
	words := strings.Split(v.Mode, "-")
	if len(words) < 2 || len(words) > 3 {
		return plan{}, fmt.Errorf("no such twemproxy mode")
	}
	p := plan{preset: map[string]string{"ketama": "twemproxy", "default": "twemproxy", "modula": "modulo-twemproxy"}[words[0]]}
	if words[1] != "default" {
		p.options.Hash = words[1]
	}
	if len(words) == 3 {
		if words[2] != "hashtag" {
			return plan{}, fmt.Errorf("no such twemproxy mode")
		}
		p.options.HashTag = "{}"
	}
	return p, nil
}

// planFast parses the modes "fast" and "fast_ketamaN". The suffix _hns means a namespace that
// is hashed, and _ns one that is not.
func (v *vector) planFast() (plan, error) {
	if v.Mode == "fast" {
		return plan{preset: "modulo-perl-fast"}, nil
	}
	words := strings.Split(strings.TrimPrefix(v.Mode, "fast_ketama"), "_")
	points, err := strconv.Atoi(words[0])
	if err != nil {
		return plan{}, err
	}
	p := plan{preset: "perl-fast-ketama", options: PlacementOptions{Points: points}}
	if len(words) == 2 {
		p.wire = prefixed
		if words[1] == "ns" {
			p.options.HashStripPrefix = []string{prefix}
		}
	}
	return p, nil
}

// planSpymemcached parses modes with a locator and an optional hash.
func (v *vector) planSpymemcached() (plan, error) {
	p := plan{server: resolved}
	mode, hash, chosen := strings.Cut(v.Mode, "-")
	if chosen {
		p.options.Hash = strings.ToLower(strings.TrimSuffix(hash, "_HASH"))
	}
	switch mode {
	case "default", "mod":
		p.preset, p.server = "modulo-spymemcached", nil
	case "ketamafactory", "ketama":
		p.preset = "spymemcached"
	case "spyw_w":
		p.preset = "spymemcached-weighted"
	case "libmc":
		p.preset, p.server = "spymemcached-libmemcached", localhost
	case "libmc_w":
		p.preset, p.server = "spymemcached-libmemcached-weighted", localhost
	case "evcache_ketamafactory":
		p.preset = "evcache"
	default:
		return p, fmt.Errorf("no such spymemcached mode")
	}
	return p, nil
}

// planPHP returns the plan for a mode of php-memcached. Its getServerByKey returns a server for
// every key. When it sends requests, it rejects keys that are not printable.
func (v *vector) planPHP() (plan, error) {
	p := plan{preset: "ketama-php"}
	mode, sent := strings.CutPrefix(v.Mode, "net_")
	if sent || v.Down != nil {
		p.refuses = unprintable
	}
	if hash, ok := strings.CutPrefix(mode, "modula_"); ok {
		p.preset, p.options.Hash = "modulo-libmemcached", hash
		return p, nil
	}
	switch mode {
	case "default", "modula":
		p.preset = "modulo-libmemcached"
	case "ketama", "libketama", "libketama_compatible", "libketama_compatible_addServers", "libketama_compatible_after":
	case "libketama_compatible_hash_crc":
		p.options.Hash = "crc"
	case "libketama_prefix":
		p.options.HashStripPrefix, p.wire = []string{prefix}, prefixed
	case "libketama_prefix_hashed":
		p.wire, p.zero = prefixed, tooLong
	case "consistent", "consistent_addServers":
		p.preset = "consistent-php-weighted"
	case "consistent_addServers_first", "consistent_add_first":
		p.preset = "consistent-php"
	case "consistent_md5":
		p.preset, p.options.Hash = "consistent-php", "md5"
	case "consistent_md5_after":
		p.preset, p.options.Hash, p.options.PointHash = "consistent-php", "md5", "one_at_a_time"
	default:
		return p, fmt.Errorf("no such php-memcached mode")
	}
	return p, nil
}

// planLibmemcached replays the calls that the description lists, because their order matters in
// libmemcached. Ring points keep the hash that was set when they were computed. A weight has an
// effect on the ring only if the distribution was set before.
func (v *vector) planLibmemcached() (plan, error) {
	_, calls, ok := strings.Cut(v.Desc, "calls in order: ")
	if !ok {
		return plan{}, fmt.Errorf("the description lists no calls")
	}
	hashes := []string{"one_at_a_time", "md5", "crc", "fnv1_64", "fnv1a_64", "fnv1_32", "fnv1a_32", "hsieh", "murmur", "jenkins", "murmur3"}
	const modula, consistent, spy = 0, 1, 4
	var p plan
	p.unweighted = true
	hash, points := hashes[0], hashes[0]
	dist, weighted, accidental, hashPrefix := modula, false, false, false
	for _, call := range strings.Fields(calls) {
		name, value, _ := strings.Cut(call, "=")
		switch name {
		case "hash":
			n, err := strconv.Atoi(value)
			if err != nil || n >= len(hashes) {
				return p, fmt.Errorf("no hash %q", value)
			}
			hash = hashes[n]
			continue // this does not change existing points
		case "ketama":
			dist = consistent
		case "wketama":
			dist, weighted, hash = consistent, true, "md5"
		case "dist":
			n, err := strconv.Atoi(value)
			if err != nil || n != modula && n != consistent && n != spy {
				return p, fmt.Errorf("no distribution %q", value)
			}
			dist = n
		case "add":
		case "addw":
			p.unweighted = false
			accidental = accidental || dist != modula
		case "push":
			p.unweighted = false
			accidental = accidental || dist != modula
		case "sort":
			p.options.Order = "host"
		case "ns":
			p.wire = func(key string) string { return value + key }
			p.options.HashStripPrefix = []string{value}
		case "hwp":
			hashPrefix = true
		default:
			return p, fmt.Errorf("no call %q", call)
		}
		points = hash
	}
	p.options.Hash = hash
	if hashPrefix && len(p.options.HashStripPrefix) > 0 {
		p.zero = func(key string) bool { return len(p.wire(key)) > 250 }
		p.options.HashStripPrefix = nil
	}
	switch {
	case dist == modula:
		p.preset = "modulo-libmemcached"
	case dist == spy && weighted:
		p.preset = "libmemcached-spy-weighted"
	case dist == spy:
		p.preset, p.options.PointHash = "libmemcached-spy", points
	case weighted:
		p.preset = "ketama"
	case accidental:
		p.preset, p.options.PointHash = "consistent-weighted", points
	default:
		p.preset, p.options.PointHash = "consistent", points
	}
	return p, nil
}

// labelledShort sets the label that the recording program passed to go-ketama: without the
// default port.
func labelledShort(_ int, s *PlacementServer) {
	if s.Port == ring.DefaultPort {
		s.Name = s.Host
	}
}

// resolved names servers like Java prints resolved hosts: with their addresses. The addresses
// are those at the time of the recording.
func resolved(i int, s *PlacementServer) {
	if net.ParseIP(s.Host) == nil {
		s.Name = fmt.Sprintf("%s/10.9.8.%d:%d", s.Host, i+1, s.Port)
	}
}

// localhost replaces 127.0.0.1 by localhost, the name that Java found for it.
func localhost(_ int, s *PlacementServer) {
	if s.Host == "127.0.0.1" {
		s.Host = "localhost"
	}
}

// lookedUp names servers like Java prints addresses after it has looked up their names.
func lookedUp(i int, s *PlacementServer) {
	if s.Host == "127.0.0.1" {
		s.Name = fmt.Sprintf("localhost/127.0.0.1:%d", s.Port)
		return
	}
	resolved(i, s)
}

// unprintable reports whether libmemcached refuses to send the key.
func unprintable(key string) bool {
	return strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' })
}

// tooLong reports whether the key with its prefix is so long that libmemcached, if it also
// hashes the prefix, uses 0 as the hash.
func tooLong(key string) bool { return len(prefixed(key)) > 250 }

// peclKey returns the key that php-memcache hashes and sends instead of key.
func peclKey(key string) string {
	b := []byte(key)
	for i := range b {
		if b[i] <= ' ' {
			b[i] = '_'
		}
	}
	return string(b[:min(len(b), 250)])
}

// nodeKey returns the key that node-memcached sends: a digest if key is too long.
func nodeKey(key string) string {
	if len(utf16.Encode([]rune(key))) <= 250 {
		return key
	}
	d := md5.Sum([]byte(key))
	return hex.EncodeToString(d[:])
}

// dalliKey returns the key that dalli sends. The end of a key that is too long is replaced by a
// digest.
func dalliKey(namespace, key string) string {
	full := namespace + key
	chars := []rune(full)
	if len(chars) <= 250 {
		return full
	}
	room := 249
	if namespace != "" {
		room = 250
	}
	d := md5.Sum([]byte(full))
	return string(chars[:room-len(":md5:")-32]) + ":md5:" + hex.EncodeToString(d[:])
}
