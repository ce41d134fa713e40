package e2e

// This file lists all settings of package config with values, and builds random configuration
// files from them for TestReloadsOfAllFeatures.

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"ringside/config"
	"ringside/internal/testenv"
)

// A chaosSetting is a path in the file and the values that a reload may store there. In the
// path, * matches each key of a mapping, and [] each element of a list. A value that is a
// mapping is merged into the mapping at that path. In it, nil removes a key.
type chaosSetting struct {
	path   string
	values []any
}

type tree = map[string]any

// chaosFixed has the settings that are not in chaosSettingsOf, each with the reason.
var chaosFixed = map[string]string{
	"listen.address":              "listeners come and go",
	"admin.auth_file":             "the test reads the counters without a login; TestAdminWithTLS tests these settings",
	"admin.tls.cert":              "as admin.auth_file",
	"admin.tls.key":               "as admin.auth_file",
	"admin.tls.client_ca":         "as admin.auth_file",
	"routes.prefix":               "routes come and go",
	"routes.match":                "routes come and go",
	"listen.routes.match":         "the routes of a listener come and go",
	"listen.routes.prefix":        "the routes of a listener come and go",
	"pools.*.servers.address":     "servers come and go",
	"admin.address":               "the test reads the counters there; TestReloadOfLogAndAdmin moves it",
	"defaults.failover.gutter":    "the pool that is the gutter would inherit it",
	"defaults.auth.user":          "only the pool secure has a server with TLS and a login",
	"defaults.auth.password_file": "as defaults.auth.user",
	"defaults.tls.ca":             "as defaults.auth.user",
	"defaults.tls.cert":           "as defaults.auth.user",
	"defaults.tls.key":            "as defaults.auth.user",
	"defaults.tls.name":           "as defaults.auth.user",
	"defaults.tls.verify":         "as defaults.auth.user",
}

// chaosNames replaces names in the paths of settings by those in the schema.
var chaosNames = strings.NewReplacer("pools.main.", "pools.*.", "pools.secure.", "pools.*.", "users.chaos.", "users.*.", "[]", "")

// chaosSettingsOf returns the settings and their values. The files that they name are in the directory dir.
func chaosSettingsOf(dir string) (list []chaosSetting) {
	file := func(name string) string { return filepath.Join(dir, name) }
	users := file("users")
	add := func(path string, values ...any) { list = append(list, chaosSetting{path, values}) }
	off := false

	pool := func(path string, values ...any) {
		add("pools.*."+path, values...)
		add("defaults."+path, values...)
	}
	pool("distribution", "ketama-points", "jump", "modulo-crc32", "twemproxy", "mcrouter", "pymemcache")
	pool("backoff", tree{"first": "10ms", "max": "100ms"}, tree{"first": "20ms"}, tree{"max": "1s"})
	pool("connections", 1, 2, 3)
	pool("flush_all", "deny", "allow")
	pool("get_errors", "miss", "error")
	pool("gets", "joined", "single")
	pool("keepalive", off, "1s", "2s")
	pool("multiget_order", "arrival", "request")
	pool("queue", 50, 1000)
	pool("hash_tag", "{}")
	pool("resize", tree{"mode": "flush"}, tree{"mode": "plain"}, tree{"mode": "warm", "rate": 1000})
	pool("max_move", "100%") // with a lower limit, reloads would be rejected
	pool("hash_strip_prefix", []any{"r:", "x:"})
	pool("timeouts", tree{"connect": "1s", "request": "200ms", "deadline": "500ms"}, tree{"deadline_total": "30s"}, tree{"deadline_total": off})
	pool("", tree{"distribution": "twemproxy", "hash": "murmur"}, tree{"distribution": "twemproxy", "hash": "fnv1a_64", "char": "unsigned"},
		tree{"distribution": "php-session", "hash": "md5", "point_hash": "one_at_a_time"},
		tree{"distribution": "jump", "order": "natural"},
		tree{"distribution": "jump-memcached-proxy", "seed": "chaos"},
		tree{"distribution": "mcrouter", "salt": "1", "hash_stop": "|#|"},
		tree{"distribution": "ketama-points", "points": 100})
	pool("failover", tree{"mode": "fail_fast"}, tree{"mode": "rehash"}, tree{"consistency": "strict"}, tree{"consistency": "relaxed"},
		tree{"after_failures": 1}, tree{"eject_after": tree{"refused": "50ms", "silent": "1s", "restart": "2s"}}, tree{"substitute_ttl": "10s"},
		tree{"ping": "100ms", "lease": "1s"}, tree{"ping": "200ms"}, tree{"lease": "3s"}, tree{"on_rejoin": "warm"}, tree{"wait": "300ms"}, tree{"wait": off})
	add("pools.*.failover", tree{"mode": "gutter", "gutter": "spare"}, tree{"mode": "gutter", "gutter": "spare", "consistency": "strict"})
	add("pools.*.servers[].name", "alpha", "beta", "gamma")
	add("pools.*.servers[].weight", 1, 2, 3)
	add("pools.*.servers[].host", "left", "right")
	add("pools.*.servers[].zone", "z1", "z2")
	source := tree{"discover": "file+" + file("source"), "every": "1s"}
	add("pools.main.servers", []any{source}, []any{tree{"discover": "file+" + file("source"), "every": "1s", "keep": "1s", "max_change": "100%", "weights": tree{"*": 1}}})
	add("pools.*", tree{"warm_from": "former", "resize": tree{"mode": "warm"}})
	fills := func(from any) tree {
		return tree{"failover": tree{"mode": "fail_fast", "consistency": nil}, "resize": nil, "fill_from": from}
	}
	add("pools.*", fills(tree{"pool": "far", "rate": 100, "remember": "1m"}), fills("far"))
	add("pools.secure.tls", tree{"ca": file("ca.crt"), "name": "memcached.example"}, tree{"name": "other.example"}, tree{"verify": off, "ca": nil, "name": nil},
		tree{"cert": file("tls.crt"), "key": file("tls.key")})
	add("pools.secure", tree{"tls": nil, "auth": nil})
	add("pools.secure.auth", tree{"user": "app", "password_file": file("password")}, tree{"user": "other"}, tree{"password_file": file("wrong")})

	route := func(path string, values ...any) {
		add("routes[]."+path, values...)
		add("listen[].routes[]."+path, values...)
	}
	poolOf := func(path string, value func(main string) any) { // the routes of a listener use another pool than the global routes
		add("routes[]."+path, value("main"), value("far"), value("secure"))
		add("listen[].routes[]."+path, value("own"))
	}
	copies := func(more tree) tree {
		all := tree{"replicas": 2, "replicas_on": "server"}
		maps.Copy(all, more)
		return all
	}
	poolOf("pool", func(pool string) any { return pool })
	route("", copies(nil), tree{"replicas": "all"}, copies(tree{"ack": "one"}), copies(tree{"ack": "quorum"}), copies(tree{"read": "spread"}),
		copies(tree{"read": "fastest"}), copies(tree{"read": "nearest"}), copies(tree{"read_through": false}), copies(tree{"repair": off}), copies(tree{"repair": 100}))
	poolOf("", func(pool string) any {
		return tree{"pool": nil, "pools": []any{pool, "also"}, "prefer": "also", "replicas_on": "server"}
	})
	route("", tree{"preset": "cache"}, tree{"preset": "counters", "replicas_on": "server"}, tree{"preset": "sessions", "replicas_on": "server"})
	route("get_errors", "miss", "error")
	route("deadline_total", "30s", off)
	route("strip_prefix", true)
	route("autocreate", "on", tree{"initial": 3}, tree{"ttl": "10s"})
	route("buffer", tree{"every": "100ms"}, tree{"answer": "last"}, tree{"keep": "1s"}, tree{"keys": 3})
	route("guard", tree{"wait": "50ms"}, tree{"wait": off, "clients": "connection"}, tree{"wait": "50ms", "clients": "shared"}, tree{"wait": "50ms", "clients": "pooled"},
		tree{"wait": "50ms", "early": "2s"}, tree{"wait": "50ms", "early": "auto"}, tree{"wait": "50ms", "late": "error"}, tree{"wait": "50ms", "late": "stale", "stale": "2s"},
		tree{"wait": "50ms", "lease": "1s", "lease_max": "2s"}, tree{"wait": "50ms", "sets": "after_miss"}, tree{"wait": "50ms", "stale": "2s"}, "hide")
	route("tags", true, "read", tree{"suffix": ";t="}, tree{"prefix_tag": true}, tree{"patterns": []any{tree{"match": "*k{n}", "tags": []any{"n{n}"}}}})
	route("near", tree{"keys": "all", "ttl": "200ms"}, tree{"memory": "64KiB"}, tree{"keys": "all"}, tree{"ttl": "100ms"})

	add("listen[].mode", "0600", "0666")
	add("listen[].auth_file", users)
	add("listen[]", tree{"auth_file": nil})
	add("listen[].tls", tree{"cert": file("tls.crt"), "key": file("tls.key")})
	add("listen[].tls", tree{"cert": file("tls.crt"), "key": file("tls.key"), "client_ca": file("ca.crt"), "handshake": "5s"})
	add("users.chaos", tree{"may": []any{"read", "write"}}, tree{"may": []any{"read"}}, tree{"may": []any{"read", "write", "admin"}, "routes": []any{"r:", "g:"}})
	add("listen[]", tree{"auth_file": users, "allow_plaintext": true})

	add("admin.allow_faults", true)
	add("admin.control", "on", off)
	add("admin.misses", true, off)
	add("admin.names", []any{"ringside.example"})
	add("admin.page", "on", off)
	add("admin.pprof", "on", off)

	// The limits on clients, sizes and pauses are higher than the test needs.
	add("limits.clients", 1000)
	add("limits.drain", off, "1s")
	add("limits.idle", off, "10m")
	add("limits.line", "8KiB")
	add("limits.linger", off, "1s")
	add("limits.memory", "64MiB")
	add("limits.output_hard", "16MiB")
	add("limits.tags_per_value", 1)
	add("limits.guard_misses", 2)
	add("limits.unfinished", off, "10m")
	add("limits.value", "4KiB")
	add("limits.waiting", 1)

	add("log.format", "json", "text")
	add("log.level", "debug", "error")
	add("log.slow", off, "1ms")
	add("tags.command", "drop:")
	add("tags.namespace", "other")
	add("traces", []any{tree{"keys": []any{"g:*"}, "file": file("one"), "keep": 0, "max": "64KiB"}}, []any{tree{"keys": []any{"*k1", "r:*"}, "file": file("two")}})
	add("watch", true)
	add("zone", "z1", "z2")

	// These settings need a restart. A reload only logs that they differ.
	add("engine", tree{"driver": "portable"}, tree{"loops": 2}, tree{"moderation": false})
	return list
}

// A chaosFile builds one file of the test. After each try, package config accepts root.
type chaosFile struct {
	rng  *rand.Rand
	root tree
}

// chaosBase returns a file with all listeners, pools, servers and routes, without the settings
// of chaosSettingsOf. The listener at the second address needs a login, and that at the last address has its own routes. The
// last server speaks TLS and needs a login.
func chaosBase(addresses []string, admin string, servers []string, dir string) tree {
	pool := func(addresses []string) tree {
		list := []any{}
		for _, a := range addresses {
			list = append(list, tree{"address": a})
		}
		if len(list) == 1 { // the pool has no other server for the keys
			return tree{"failover": tree{"mode": "fail_fast"}, "servers": list}
		}
		return tree{"servers": list}
	}
	routes := func(pool string) (list []any) {
		for _, prefix := range chaosPrefixes {
			r := tree{"pool": pool}
			switch prefix {
			case "":
			case "m:":
				r["match"] = "m:*"
			default:
				r["prefix"] = prefix
			}
			list = append(list, r)
		}
		return list
	}
	listeners := []any{}
	for _, a := range addresses {
		listeners = append(listeners, tree{"address": a})
	}
	listeners[1].(tree)["auth_file"] = filepath.Join(dir, "users")
	listeners[len(listeners)-1].(tree)["routes"] = routes("own")
	secure := pool(servers[9:10])
	secure["tls"] = tree{"ca": filepath.Join(dir, "ca.crt"), "name": "memcached.example"}
	secure["auth"] = tree{"user": "app", "password_file": filepath.Join(dir, "password")}
	return tree{
		"listen": listeners,
		"admin":  tree{"address": admin},
		"pools": tree{"main": pool(servers[:3]), "spare": pool(servers[3:4]), "far": pool(servers[4:5]), "also": pool(servers[5:6]), "own": pool(servers[6:8]),
			"secure": secure, "former": pool(servers[8:9])},
		"routes":   routes("main"),
		"tags":     tree{"namespace": "chaos"},
		"zone":     "z1",
		"defaults": tree{"distribution": "ketama", "failover": tree{"mode": "rehash"}, "timeouts": tree{"connect": "5s", "request": "5s", "deadline": "5s"}},
	}
}

// chaosServers is the number of memcacheds.
const chaosServers = 10

// chaosFiles returns a directory with the files that the settings name.
func chaosFiles(t *testing.T) (dir string) {
	dir = shortDir(t)
	ca := testenv.NewCA(t, "ca")
	ca.Named(t, "memcached.example").Write(t, dir, "tls")
	for name, text := range map[string]string{"ca.crt": string(ca.PEM), "users": "chaos:secret\n", "password": "s3cret\n", "wrong": "other\n", "logins": "app:s3cret\n", "source": "127.0.0.1:5\n"} {
		testenv.WriteFile(t, filepath.Join(dir, name), []byte(text))
	}
	return dir
}

// chaosPrefixes are the prefixes of the routes. The first route has no prefix. The route of m:
// matches a pattern instead.
var chaosPrefixes = []string{"", "r:", "g:", "c:", "t:", "n:", "x:", "m:"}

func cloneTree(v any) any {
	switch v := v.(type) {
	case tree:
		to := tree{}
		for k, inner := range v {
			to[k] = cloneTree(inner)
		}
		return to
	case []any:
		to := []any{}
		for _, inner := range v {
			to = append(to, cloneTree(inner))
		}
		return to
	}
	return v
}

// placesOf returns the places in v that match path: keys and indices instead of * and []. The
// keys that path names may be missing in v.
func placesOf(v any, path []string) (list [][]any) {
	if len(path) == 0 || path[0] == "" {
		return [][]any{nil}
	}
	under := func(at any, inner any, rest []string) {
		for _, p := range placesOf(inner, rest) {
			list = append(list, append([]any{at}, p...))
		}
	}
	if name, ok := strings.CutSuffix(path[0], "[]"); ok {
		inner, _ := v.(tree)[name].([]any)
		for i, element := range inner {
			for _, p := range placesOf(element, path[1:]) {
				list = append(list, append([]any{name, i}, p...))
			}
		}
		return list
	}
	here, _ := v.(tree)
	if path[0] == "*" {
		for _, key := range slices.Sorted(maps.Keys(here)) {
			under(key, here[key], path[1:])
		}
		return list
	}
	inner := here[path[0]]
	if inner == nil {
		inner = tree{}
	}
	under(path[0], inner, path[1:])
	return list
}

// put returns v with value stored at place. It may change v. If value and the old value
// are mappings, it merges them.
func put(v any, place []any, value any) any {
	if len(place) == 0 {
		into, ok := v.(tree)
		from, both := value.(tree)
		if !ok || !both {
			return cloneTree(value)
		}
		for k, inner := range from {
			if into[k] = put(into[k], nil, inner); inner == nil {
				delete(into, k)
			}
		}
		return into
	}
	if i, ok := place[0].(int); ok {
		if list := v.([]any); i >= len(list) { // an earlier setting has replaced the list
			return v
		}
		v.([]any)[i] = put(v.([]any)[i], place[1:], value)
		return v
	}
	into, ok := v.(tree)
	if !ok {
		into = tree{}
	}
	into[place[0].(string)] = put(into[place[0].(string)], place[1:], value)
	return into
}

// try stores value at place if package config accepts the resulting file. It reports whether it
// has stored it.
func (c *chaosFile) try(place []any, value any) bool {
	next := put(cloneTree(c.root), place, value).(tree)
	if first := next["listen"].([]any)[0].(tree); first["auth_file"] != nil || first["tls"] != nil {
		return false // the clients of the first listener do not log in, and do not use TLS
	}
	if _, err := config.Parse("chaos", chaosText(next)); err != nil {
		return false
	}
	c.root = next
	return true
}

// tryAny tries the values of a setting at its places, in random order, until one is accepted.
func (c *chaosFile) tryAny(s chaosSetting) bool {
	places := placesOf(c.root, strings.Split(s.path, "."))
	c.rng.Shuffle(len(places), func(i, j int) { places[i], places[j] = places[j], places[i] })
	for _, place := range places {
		for _, v := range c.rng.Perm(len(s.values)) {
			if c.try(place, s.values[v]) {
				return true
			}
		}
	}
	return false
}

func chaosText(root tree) []byte {
	text, err := yaml.Marshal(root)
	if err != nil {
		panic(err)
	}
	return text
}

// drawChaos returns a random file with the setting at index first, if any place accepts it, and
// with many other settings.
func drawChaos(rng *rand.Rand, base tree, settings []chaosSetting, first int) []byte {
	c := &chaosFile{rng: rng, root: cloneTree(base).(tree)}
	// Each file has a random part of the listeners, servers and routes. The first listener, the
	// first route and the first two servers are in all files.
	drop := func(list any, stay, often int) []any {
		var left []any
		for i, element := range list.([]any) {
			if i < stay || rng.IntN(often) > 0 {
				left = append(left, element)
			}
		}
		return left
	}
	c.root["listen"] = drop(c.root["listen"], 1, 2)
	c.root["routes"] = drop(c.root["routes"], 1, 6)
	main := c.root["pools"].(tree)["main"].(tree)
	main["servers"] = drop(main["servers"], 2, 3)
	if rng.IntN(2) == 0 {
		delete(c.root, "zone")
	}
	c.tryAny(settings[first])
	type candidate struct {
		place []any
		value any
	}
	var all []candidate
	for _, s := range settings {
		for _, place := range placesOf(c.root, strings.Split(s.path, ".")) {
			often := 8
			if strings.HasPrefix(s.path, "routes") {
				often = 4
			}
			if rng.IntN(often) == 0 {
				all = append(all, candidate{place, s.values[rng.IntN(len(s.values))]})
			}
		}
	}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, a := range all {
		c.try(a.place, a.value)
	}
	return chaosText(c.root)
}

// leavesOf adds the paths of the settings in v to into. The elements of a list of mappings have
// the path of the list, because package config accepts one element in place of a list.
func leavesOf(path string, v any, into map[string]bool) {
	switch v := v.(type) {
	case tree:
		for k, inner := range v {
			leavesOf(strings.Trim(path+"."+k, "."), inner, into)
		}
		return
	case []any:
		if _, ok := v[0].(tree); ok {
			for _, inner := range v {
				leavesOf(path, inner, into)
			}
			return
		}
	}
	if v != nil {
		into[path] = true
	}
}

// leavesOfSchema adds the paths of the settings in a JSON schema to into. It reports whether the
// schema describes a mapping, or a list of mappings.
func leavesOfSchema(path string, v any, into map[string]bool) (mapping bool) {
	s, _ := v.(map[string]any)
	inside := func(path string, v any) {
		if !leavesOfSchema(path, v, into) {
			into[path] = true
		}
		mapping = true
	}
	properties, _ := s["properties"].(map[string]any)
	for k, inner := range properties {
		inside(strings.Trim(path+"."+k, "."), inner)
	}
	if each, ok := s["additionalProperties"].(map[string]any); ok {
		inside(path+".*", each)
	}
	if s["items"] != nil && leavesOfSchema(path, s["items"], into) {
		mapping = true
	}
	choices, _ := s["anyOf"].([]any)
	for _, inner := range choices { // a list, or one element in place of it
		if leavesOfSchema(path, inner, into) {
			mapping = true
		}
	}
	return mapping
}

// TestChaosHasAllSettings checks that the reloads switch every setting in the schema, and that
// package config accepts each value of chaosSettingsOf in at least one place.
func TestChaosHasAllSettings(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../deploy/ringside.schema.json") // package config tests that it has all settings
	var s any
	if err = errors.Join(err, json.Unmarshal(text, &s)); err != nil {
		t.Fatal(err)
	}
	known, switched := map[string]bool{}, map[string]bool{}
	leavesOfSchema("", s, known)
	var servers []string
	for i := range chaosServers {
		servers = append(servers, fmt.Sprintf("127.0.0.1:%d", 5+i))
	}
	dir := chaosFiles(t)
	base := chaosBase([]string{"127.0.0.1:1", "127.0.0.1:2", "unix:/tmp/3"}, "127.0.0.1:4", servers, dir)
	for _, s := range chaosSettingsOf(dir) {
		for _, value := range s.values {
			c := &chaosFile{rng: rand.New(rand.NewPCG(1, 2)), root: cloneTree(base).(tree)}
			if !c.tryAny(chaosSetting{s.path, []any{value}}) {
				_, err := config.Parse("chaos", chaosText(put(cloneTree(base), placesOf(base, strings.Split(s.path, "."))[0], value).(tree)))
				t.Errorf("%s: %v is accepted nowhere: %v", s.path, value, err)
			}
			leavesOf(strings.TrimSuffix(chaosNames.Replace(strings.TrimSuffix(s.path, ".")+"."), "."), value, switched)
		}
	}
	for path := range known {
		if !switched[path] && chaosFixed[path] == "" {
			t.Errorf("TestReloadsOfAllFeatures never switches %s: add it to chaosSettingsOf", path)
		}
	}
	for path := range switched {
		isMapping := func(other string) bool { return strings.HasPrefix(other, path+".") }
		if !known[path] && !slices.ContainsFunc(slices.Collect(maps.Keys(known)), isMapping) {
			t.Errorf("the schema has no %s", path)
		}
	}
	for path := range chaosFixed {
		if !known[path] || switched[path] {
			t.Errorf("chaosFixed has %s", path)
		}
	}
}
