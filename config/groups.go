package config

// This file describes mappings of keys: how each key is read into a field of a struct, described in
// the JSON Schema, and compared by a reload.

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A key is one key of a mapping in the file. Its value is stored in a struct of type T.
type key[T any] struct {
	name     string
	doc      string
	required bool
	words    []string // possible values of the key, if they are a few words; nil: other values
	read     func(d *document, n *node, path string, to *T)
	schema   func(usual *T) schema
	diff     func(within string, old, f *T, say func(format string, args ...any))
}

// set returns the key `name` of a mapping. Its value is of the kind v, and is stored in the field
// of T that the function field selects.
func set[T, V any](name, doc string, v value[V], field func(*T) *V) key[T] {
	return key[T]{
		name:  name,
		doc:   doc,
		words: v.words,
		read:  through(v, field).read,
		schema: func(usual *T) schema {
			s := schema{"description": doc}
			maps.Copy(s, v.schema)
			if shown := v.form(*field(usual)); shown != nil && !v.depends {
				s["default"] = shown
			}
			return s
		},
		diff: func(within string, old, f *T, say func(format string, args ...any)) {
			v.compare(within, name, *field(old), *field(f), say)
		},
	}
}

func must[T any](k key[T]) key[T] {
	k.required = true
	return k
}

// group describes a mapping with these keys. The schema shows the values in usual as defaults. The
// caller of read must first set the target to the defaults, or to inherited values.
func group[T any](usual T, keys ...key[T]) value[T] {
	var names, required []string
	properties := schema{}
	for _, k := range keys {
		names = append(names, k.name)
		properties[k.name] = k.schema(&usual)
		if k.required {
			required = append(required, k.name)
		}
	}
	form := schema{"type": []any{"object", "null"}, "properties": properties, "additionalProperties": false}
	if required != nil {
		form["type"], form["required"] = "object", required
	}
	return value[T]{
		read: func(d *document, n *node, path string, to *T) {
			if n.kind != mapping && !n.empty() {
				hint := unspaced(n.text)
				if i := slices.IndexFunc(keys, func(k key[T]) bool { return n.kind == scalar && slices.Contains(k.words, n.text) }); i >= 0 {
					hint = fmt.Sprintf("; write %s: {%s: %s}", path[strings.LastIndexByte(path, '.')+1:], keys[i].name, n.text)
				}
				d.failAt(n, "%s must be a mapping of %s, not %s%s", cmp.Or(path, "the file"), list(names), n.is(), hint)
				return
			}
			within := path
			if path != "" {
				within += "."
			}
			given := map[string]*node{}
			for _, p := range n.pairs {
				if what, why := isRemoved(path, p); why != "" && !(what == p.key.text && slices.Contains(names, what)) {
					d.failAt(p.key, "%s%s was removed: %s", within, what, why)
					continue
				}
				given[p.key.text] = p.value
				if !slices.Contains(names, p.key.text) && !(path == "" && strings.HasPrefix(p.key.text, "x-")) {
					hint := didYouMean(p.key.text, names)
					switch glued := unspaced(p.key.text); {
					case glued != "":
						hint = glued
					case twemproxyRemedies[p.key.text] != "" && slices.Contains(names, "servers"):
						hint = " (a setting of twemproxy: " + twemproxyRemedies[p.key.text] + "; ringside import converts a whole file)"
					case path == "":
						hint = cmp.Or(belongs(p.key.text), hint)
					case atTheTop[p.key.text]:
						hint = " (it belongs at the top of the file)"
					}
					d.failAt(p.key, unknownKey+"%s%s%s; known here: %s",
						quote(p.key.text), inside(path), hint, strings.Join(names, ", "))
				}
			}
			for _, k := range keys {
				if v := given[k.name]; v != nil {
					k.read(d, v, within+k.name, to)
				} else if k.required {
					d.failAt(n, "%s%s is missing: %s", within, k.name, k.doc)
				}
			}
		},
		schema: form,
		diff: func(within, name string, old, f T, say func(format string, args ...any)) {
			if name != "" {
				within += name + "."
			}
			for _, k := range keys {
				k.diff(within, &old, &f, say)
			}
		},
	}
}

// removed maps each setting of older versions that does not exist any more, and each removed form of
// a setting, to what replaces it. A key of a pool has no name of a mapping before it.
var removed = map[string]string{
	"admin.hot":                  "hot keys are always known; leave it out, and write admin: {page: off} to hide them",
	"preconnect":                 "every server is connected at start and after a reload; leave it out",
	"copies_on":                  "write replicas_on",
	"interim_ttl":                "write substitute_ttl",
	"tickets":                    "write guard_misses",
	"engine.coalesce_client":     "it is always on; leave it out",
	"engine.coalesce_server":     "it is always on; leave it out",
	"engine.wait":                "a loop keeps its thread while it waits; leave it out, or write driver: portable",
	"engine.moderation: {}":      "its thresholds are fixed, and trials find its pace; write moderation: on or moderation: off",
	"failover.hold":              "a server that replies again rejoins; leave it out",
	"failover.on_rejoin: hold":   "a server that replies again rejoins; write on_rejoin: flush, and use ringside server drain for a server that must stay out",
	"failover.good_pings":        "a server rejoins after two good pings; leave it out",
	"guard.clients: auto":        "write clients: detect, which is the default, or clients: pooled where the set comes on another connection than its miss",
	"guard.multiget":             "keys of a multi-get do not wait; leave it out, and use single gets where clients must wait",
	"guard.refused":              "a set that is not stored is always answered NOT_STORED; leave it out",
	"hedge":                      "a read asks the next replica after timeouts.request, and with read: fastest all of them at once; leave it out",
	"limits.key":                 "a key has at most 250 bytes, as in memcached; leave it out",
	"limits.output_per_client":   "it is 1MiB; leave it out, and lower output_hard or memory against slow readers",
	"limits.requests_per_client": "it is 4096; leave it out, and lower memory to bound what clients can use",
	"limits.tag_keys":            "it is 65536; leave it out",
}

// isRemoved returns the removed setting that the pair of the mapping at path contains, and what
// replaces it. The text why is empty if the pair contains none.
func isRemoved(path string, p pair) (what, why string) {
	name := path[strings.LastIndexByte(path, '.')+1:] + "." + p.key.text
	form := ": " + p.value.text
	if p.value.kind == mapping {
		form = ": {}"
	}
	if why := removed[name+form]; why != "" {
		return p.key.text + form, why
	}
	return p.key.text, cmp.Or(removed[name], removed[p.key.text])
}

// twemproxyRemedies maps keys of a pool in a twemproxy file to what replaces them here.
var twemproxyRemedies = map[string]string{
	"auto_eject_hosts":     "write failover: {mode: rehash}, or leave it out",
	"server_retry_timeout": "leave it out, servers that are out are pinged all the time",
	"server_failure_limit": "write failover: {mode: rehash, after_failures: N}",
	"server_connections":   "write connections: N",
	"client_connections":   "write limits: {clients: N} at the top of the file, for all pools together",
	"timeout":              "write timeouts: {connect: 400ms, request: 400ms, deadline: 400ms}",
	"backlog":              "leave it out, the largest backlog of the system is used",
	"tcpkeepalive":         "leave it out, or write keepalive: 30s for servers",
	"reuseport":            "write engine: {loops: N} at the top of the file",
	"redis":                "leave it out, Ringside speaks the protocol of memcached only",
	"redis_auth":           "leave it out, Ringside speaks the protocol of memcached only",
	"redis_db":             "leave it out, Ringside speaks the protocol of memcached only",
}

// atTheTop contains keys of the top level that people write into a pool by mistake.
var atTheTop = map[string]bool{"limits": true, "listen": true, "admin": true, "engine": true, "log": true, "routes": true, "zone": true}

// belongs returns a hint about where a key of pools belongs that was found at the top level. It
// returns "" for all other keys.
func belongs(name string) string {
	switch {
	case name == "servers":
		return " (it belongs in a pool)"
	case isPoolKey(name):
		return " (it belongs in a pool, or under defaults for all pools)"
	}
	return ""
}

func inside(path string) string {
	if path == "" {
		return ""
	}
	return " in " + path
}

// fresh returns v with a changed read, which first sets the target to the value usual.
func fresh[V any](usual V, v value[V]) value[V] {
	return before(v, func(_ *document, _ *node, _ string, to *V) bool {
		*to = usual
		return false
	})
}

// through converts v, the description of one field of T, to a description for the whole T.
func through[T, V any](v value[V], field func(*T) *V) value[T] {
	return value[T]{
		read: func(d *document, n *node, path string, to *T) {
			d.where[field(to)] = n
			v.read(d, n, path, field(to))
		},
		schema: v.schema,
	}
}

// byteCount is a number of bytes that prints with its unit.
type byteCount int64

func (b byteCount) String() string { return bytesText(int64(b)) }

// atMost rejects a pair of settings if small is greater than big. In such a pair, one setting would
// have no effect.
func atMost[V byteCount | time.Duration](d *document, n *node, path, lesser string, small V, greater string, big V) {
	if small > big {
		d.failAt(n, "%s: %s (%v) must not be more than %s (%v)", path, lesser, show(small), greater, show(big))
	}
}

func show(v any) string {
	if t, ok := v.(time.Duration); ok {
		return short(t)
	}
	return fmt.Sprint(v)
}
