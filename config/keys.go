package config

// Every key a file may have, with its meaning, in one table: the parser, the
// JSON Schema and the test of the example file all read it.

import (
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"ringside/proxy/table"
	"ringside/proxy/tags/stamp"
	"ringside/proxy/watch"
)

// A key is one setting of a T.
type key[T any] struct {
	name     string
	doc      string
	required bool
	words    []string // that it may be, if it is one of a few
	read     func(d *document, n *node, path string, to *T)
	schema   func(usual *T) schema
	diff     func(within string, old, f *T, say func(format string, args ...any))
}

// set is a key whose value goes into a field of T.
func set[T, V any](name, doc string, v value[V], field func(*T) *V) key[T] {
	return key[T]{
		name:  name,
		doc:   doc,
		words: v.words,
		read: func(d *document, n *node, path string, to *T) {
			d.where[field(to)] = n
			v.read(d, n, path, field(to))
		},
		schema: func(usual *T) schema {
			s := v.schema()
			s["description"] = doc
			switch shown := v.show(*field(usual)).(type) {
			case nil, map[string]any:
			case string:
				if shown != "" {
					s["default"] = shown
				}
			case []any:
				if len(shown) > 0 {
					s["default"] = shown
				}
			case int:
				if least, ok := s["minimum"].(int); !ok || shown >= least { // else nobody can write it
					s["default"] = shown
				}
			default:
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

// group is a mapping of keys. usual holds the defaults: whoever reads a group
// puts them, or what is inherited instead, into the target first.
func group[T any](usual T, keys ...key[T]) value[T] {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.name
	}
	return value[T]{
		read: func(d *document, n *node, path string, to *T) {
			if n.kind != mapping && !n.empty() {
				hint := unspaced(n.text, isKey)
				if i := slices.IndexFunc(keys, func(k key[T]) bool { return n.kind == scalar && slices.Contains(k.words, n.text) }); i >= 0 {
					hint = fmt.Sprintf("; write %s: {%s: %s}", path[strings.LastIndexByte(path, '.')+1:], keys[i].name, n.text)
				}
				d.fail(n.line, n.column, "%s must be a mapping of %s, not %s%s", cmp.Or(path, "the file"), list(names), n.is(), hint)
				return
			}
			within := path
			if path != "" {
				within += "."
			}
			given := map[string]*node{}
			for _, p := range n.pairs {
				given[p.key.text] = p.value
				if why := gone[p.key.text]; why != "" && path != "" {
					d.warn(p.key, "%s%s has no effect any more: %s; leave it out", quote(p.key.text), inside(path), why)
					continue
				}
				if !slices.Contains(names, p.key.text) && !(path == "" && strings.HasPrefix(p.key.text, "x-")) {
					hint := didYouMean(p.key.text, names)
					switch glued := unspaced(p.key.text, isKey); {
					case glued != "":
						hint = glued
					case path == "":
						hint = cmp.Or(belongs(p.key.text), hint)
					case atTheTop[p.key.text]:
						hint = " (it belongs at the top of the file)"
					}
					d.fail(p.key.line, p.key.column, "unknown key %s%s%s; known here: %s",
						quote(p.key.text), inside(path), hint, strings.Join(names, ", "))
				}
			}
			for _, k := range keys {
				if v := given[k.name]; v != nil {
					k.read(d, v, within+k.name, to)
				} else if k.required {
					d.fail(n.line, n.column, "%s%s is missing: %s", within, k.name, k.doc)
				}
			}
		},
		show: func(T) any { return nil },
		schema: func() schema {
			properties, required := schema{}, []any{}
			for _, k := range keys {
				properties[k.name] = k.schema(&usual)
				if k.required {
					required = append(required, k.name)
				}
			}
			s := schema{"type": []any{"object", "null"}, "properties": properties, "additionalProperties": false}
			if len(required) > 0 {
				s["type"], s["required"] = "object", required
			}
			return s
		},
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

// gone are the keys of old files that do nothing now, and why.
var gone = map[string]string{
	"preconnect": "every server is connected at start and after a reload",
}

// atTheTop are keys of the file that people look for in a pool.
var atTheTop = map[string]bool{"limits": true, "listen": true, "admin": true, "engine": true, "log": true, "routes": true, "zone": true}

// stranger says whose file this is when it is not ours, which says at its top where
// clients connect; nothing when it is.
func stranger(n *node) string {
	pools, mcrouter, twemproxy := false, false, false
	for _, p := range n.pairs {
		switch p.key.text {
		case "listen":
			return ""
		case "pools":
			pools = true
		case "route", "named_handles":
			mcrouter = true
		case "defaults":
		default:
			twemproxy = twemproxy || slices.ContainsFunc(p.value.pairs, func(q pair) bool { return q.key.text == "servers" })
		}
	}
	switch {
	case mcrouter:
		return "this looks like an mcrouter file: write its pools anew, with distribution: mcrouter"
	case twemproxy && !pools:
		return "this looks like a twemproxy file: ringside import makes one of Ringside of it"
	}
	return ""
}

// belongs says where a key goes that stands at the top but is a pool's; nothing
// when it is none.
func belongs(name string) string {
	switch {
	case name == "servers":
		return " (it belongs in a pool)"
	case isPoolKey(name):
		return " (it belongs in a pool, or under defaults for all pools)"
	}
	return ""
}

func isPoolKey(name string) bool {
	return slices.ContainsFunc(poolKeys(), func(k key[Pool]) bool { return k.name == name })
}

// isKey says that the file or a pool has a key of that name.
func isKey(name string) bool {
	return atTheTop[name] || name == "pools" || name == "defaults" || name == "servers" || isPoolKey(name)
}

func inside(path string) string {
	if path == "" {
		return ""
	}
	return " in " + path
}

// fresh reads into a target that begins as usual.
func fresh[V any](usual V, v value[V]) value[V] {
	read := v.read
	v.read = func(d *document, n *node, path string, to *V) {
		*to = usual
		read(d, n, path, to)
	}
	return v
}

// settings is the whole file.
type settings struct {
	File
	Defaults Pool // what every pool inherits
}

func fileKeys() value[settings] {
	pools := poolsValue()
	return group(settings{defaultFile(), defaultPool()},
		must(set("listen", "where clients connect: host:port, [ipv6]:port, :port for every address, unix:/path, or a list of them",
			elements(listenerValue(), oneOrMore(listenerValue())), func(s *settings) *[]Listener { return &s.Listen })),
		set("admin", "where metrics, health and profiles are served over HTTP; nowhere unless set", adminValue(), func(s *settings) *Admin { return &s.Admin }),
		key[settings]{
			name: "defaults",
			doc:  "settings that every pool inherits",
			read: func(d *document, n *node, path string, to *settings) {
				defaultsValue().read(d, n, path, &to.Defaults)
				d.base = to.Defaults
			},
			schema: func(*settings) schema {
				s := defaultsValue().schema()
				s["description"] = "settings that every pool inherits"
				return s
			},
			diff: func(string, *settings, *settings, func(string, ...any)) {}, // each pool says what it has become
		},
		must(set("pools", "lists of memcached servers and the rule that shares keys among them, by name", pools, func(s *settings) *[]Pool { return &s.Pools })),
		set("zone", "the zone this Ringside is in, for routes that read the nearest copy", zoneText(), func(s *settings) *string { return &s.Zone }),
		set("routes", "which keys go to which pool; the one that spells out most of a key wins; needed once there are several pools",
			elements(routeValue(), listOf(routeValue(), 0)), func(s *settings) *[]Route { return &s.Routes }),
		set("tags", "what all routes with tags have in common", tagSpaceValue(), func(s *settings) *TagSpace { return &s.Tags }),
		set("traces", "files into which is written what happens to some keys, four at most", elements(traceValue(), listOf(traceValue(), 0)), func(s *settings) *[]Trace { return &s.Traces }),
		set("limits", "bounds on what clients can make Ringside hold", limitsValue(), func(s *settings) *table.Limits { return &s.Limits }),
		set("engine", "how bytes are moved", engineValue(), func(s *settings) *Engine { return &s.Engine }),
		set("log", "what is logged, and how", logValue(), func(s *settings) *Log { return &s.Log }),
		set("watch", "read this file again when it changes, once it has been still for a second", yesNo(), func(s *settings) *bool { return &s.Watch }),
	)
}

func listenerValue() value[Listener] {
	brief := address("where clients connect", listenAddress)
	return either(
		through(brief, func(l *Listener) *Address { return &l.Address }),
		group(Listener{},
			must(set("address", "host:port, [ipv6]:port, :port for every address, or unix:/path", brief, func(l *Listener) *Address { return &l.Address })),
			set("mode", "permission bits of the unix socket, such as 0660; what the umask leaves unless set",
				permissions(), func(l *Listener) *uint32 { return &l.Mode }),
			set("routes", "routes of this listener, instead of those of the file", elements(routeValue(), listOf(routeValue(), 1)), func(l *Listener) *[]Route { return &l.Routes }),
			set("auth_file", "a file of user:password, one a line, as memcached's -Y has it; clients must say first which of these they are. A password may be {SSHA256} and base64 of its salted hash and the salt",
				visible("a path", 4096), func(l *Listener) *string { return &l.AuthFile }),
			set("allow_plaintext", "let passwords cross a network as they are: without it auth_file is for unix sockets and loopback addresses",
				yesNo(), func(l *Listener) *bool { return &l.AllowPlaintext }),
		))
}

func adminValue() value[Admin] {
	brief := address("where the admin interface listens", listenAddress)
	who := words("loopback", "on", "off")
	return fresh(defaultFile().Admin, either(
		through(brief, func(a *Admin) *Address { return &a.Address }),
		group(defaultFile().Admin,
			must(set("address", "host:port, [ipv6]:port, :port for every address, or unix:/path", brief, func(a *Admin) *Address { return &a.Address })),
			set("pprof", "who may take Go profiles: clients on loopback, everybody (on), nobody (off)",
				who, func(a *Admin) *string { return &a.Pprof }),
			set("control", "who may drain servers and set faults: clients on loopback, everybody (on), nobody (off)",
				who, func(a *Admin) *string { return &a.Control }),
			set("page", "who may look at the page, which shows keys: clients on loopback, everybody (on), nobody (off)",
				who, func(a *Admin) *string { return &a.Page }),
			set("hot", "watch which keys are asked for most: of about a thousand requests a second, in each loop",
				yesNo(), func(a *Admin) *bool { return &a.Hot }),
			set("misses", "remember in 2 MiB what was last done to keys, to say why they miss and what it costs to make them anew",
				yesNo(), func(a *Admin) *bool { return &a.Misses }),
			set("names", "names of the admin interface by which browsers may know it, besides addresses and localhost",
				listOf(visible("a host name", 253), 0), func(a *Admin) *[]string { return &a.Names }),
			set("allow_faults", "faults may be set on purpose, by ringside drill and the control API",
				yesNo(), func(a *Admin) *bool { return &a.Faults }),
		)))
}

func limitsValue() value[table.Limits] {
	type l = table.Limits
	v := group(defaultFile().Limits,
		set("clients", "client connections at once; the next one gets an error and is closed", integer(1, 10_000_000), func(l *l) *int { return &l.Clients }),
		set("key", "bytes of a key; memcached itself takes 250", size(1, 250), func(l *l) *int { return &l.Key }),
		set("line", "bytes of a command line; a multi-get is one line", size(2048, 64<<20), func(l *l) *int { return &l.Line }),
		set("value", "bytes of a value; the servers decide below it", size(1, 1<<30), func(l *l) *int { return &l.Value }),
		set("requests_per_client", "keys of one client without an answer, at which its input waits; each 4 KiB of a request count as one more",
			integer(1, 1_000_000), func(l *l) *int { return &l.InFlight }),
		set("waiting", "gets that guarded routes hold at once; the next one is a miss", integer(1, 10_000_000), func(l *l) *int { return &l.Waiting }),
		set("tickets", "misses of guarded routes whose sets are awaited; then the oldest is forgotten, and its set is an ordinary one",
			integer(1, 100_000_000), func(l *l) *int { return &l.Tickets }),
		set("tags_per_value", "tags that a value may have; a set that names more is refused", integer(1, stamp.MaxTags), func(l *l) *int { return &l.Tags }),
		set("tag_keys", "keys of which the tags are remembered that clients have named; those of others are asked for in a second round",
			integer(1, 100_000_000), func(l *l) *int { return &l.TagKeys }),
		set("output_per_client", "unsent bytes of one client at which its input waits", size(4<<10, 1<<30), func(l *l) *int { return &l.Output }),
		set("output_hard", "unsent bytes of one client at which it is closed; no more than memory unless set", size(4<<10, 1<<30), func(l *l) *int { return &l.OutputHard }),
		set("memory", "bytes held for all clients and servers together", size(int64(1<<20), 1<<40), func(l *l) *int64 { return &l.Memory }),
		set("idle", "how long a client may be silent with nothing in flight", duration(0, 30*24*time.Hour), func(l *l) *time.Duration { return &l.Idle }),
		set("unfinished", "how long a client may be silent in the middle of a command, or off", duration(0, 30*24*time.Hour), func(l *l) *time.Duration { return &l.Unfinished }),
		set("linger", "how long new clients are still taken when Ringside is told to stop and /readyz says so, or off", duration(0, time.Hour), func(l *l) *time.Duration { return &l.Linger }),
		set("drain", "how long requests in flight may take when Ringside is told to stop", duration(0, time.Hour), func(l *l) *time.Duration { return &l.Drain }),
	)
	read := v.read
	v.read = func(d *document, n *node, path string, to *l) {
		read(d, n, path, to)
		if d.where[&to.OutputHard] == nil { // a small memory is asked for, not a contradiction
			to.OutputHard = int(min(int64(to.OutputHard), to.Memory))
		}
	}
	return v
}

func engineValue() value[Engine] {
	usual := defaultFile().Engine
	onOff := []option[bool]{{"on", true}, {"off", false}}
	return group(usual,
		set("driver", "what moves the bytes: epoll on Linux, portable anywhere, auto the best there is",
			words("auto", "epoll", "portable"), func(e *Engine) *string { return &e.Driver }),
		set("loops", "event loops; each has its own connections to every server", integer(1, 1024), func(e *Engine) *int { return &e.Loops }),
		set("wait", "how an epoll loop waits: raw keeps its thread (faster), syscall lets the Go scheduler have it",
			words("raw", "syscall"), func(e *Engine) *string { return &e.Wait }),
		set("coalesce_server", "hold requests to a busy server so that one send carries several; off, on, or its thresholds",
			switched(through(oneOf(onOff...), func(c *CoalesceServer) *bool { return &c.On }),
				group(usual.CoalesceServer,
					set("min_due", "answers due from the server from which on its requests are held; four times as many while moderation is on and does not sleep",
						integer(1, math.MaxInt32), func(c *CoalesceServer) *int { return &c.MinDue }),
					set("max_held", "requests held at most", integer(1, math.MaxInt32), func(c *CoalesceServer) *int { return &c.MaxHeld }),
				)), func(e *Engine) *CoalesceServer { return &e.CoalesceServer }),
		set("coalesce_client", "send an answer when it is whole, and the answers to requests that were read together in one go; off, on, or its bounds",
			switched(through(oneOf(onOff...), func(c *CoalesceClient) *bool { return &c.On }),
				group(usual.CoalesceClient,
					set("max_delay", "how long a whole answer waits for its companions at most",
						duration(time.Microsecond, time.Second), func(c *CoalesceClient) *time.Duration { return &c.MaxDelay }),
					set("max_bytes", "bytes that wait at most, also of an answer that is not whole", size(1, 1<<30), func(c *CoalesceClient) *int { return &c.MaxBytes }),
				)), func(e *Engine) *CoalesceClient { return &e.CoalesceClient }),
		set("moderation", "under high load, wait until one wakeup can serve more requests; off, on, or its thresholds",
			switched(through(oneOf(onOff...), func(m *Moderation) *bool { return &m.On }),
				group(usual.Moderation,
					set("above", "requests to servers in a second, of one loop, from which on it may wait",
						integer(1, math.MaxInt32), func(m *Moderation) *int { return &m.Above }),
					set("sleep", "how long it sleeps where that pays", duration(time.Microsecond, 10*time.Millisecond), func(m *Moderation) *time.Duration { return &m.Sleep }),
					set("pace", "what it waits for: answers that servers owe (2ms at most), the end of a sleep, or what trying shows to serve most for its CPU time (auto), nothing included",
						words("auto", "answers", "sleep"), func(m *Moderation) *string { return &m.Pace }),
				)), func(e *Engine) *Moderation { return &e.Moderation }),
	)
}

func logValue() value[Log] {
	return group(defaultFile().Log,
		set("level", "the least level that is logged",
			oneOf([]option[slog.Level]{{"debug", slog.LevelDebug}, {"info", slog.LevelInfo}, {"warn", slog.LevelWarn}, {"error", slog.LevelError}}...),
			func(l *Log) *slog.Level { return &l.Level }),
		set("format", "lines for people (text) or for machines (json)",
			words("text", "json"), func(l *Log) *string { return &l.Format }),
		set("slow", "log some of the commands that take so long, or off", duration(0, time.Hour), func(l *Log) *time.Duration { return &l.Slow }),
	)
}

// defaultsValue is what pools may inherit: every pool key but its servers.
func defaultsValue() value[Pool] { return group(defaultPool(), poolKeys()...) }

// poolsValue is the mapping of pool names to pools, in the order of the file.
func poolsValue() value[[]Pool] {
	one := group(defaultPool(), append([]key[Pool]{
		must(set("servers", "the memcached servers: host:port, host for port 11211, [ipv6]:port, unix:/path, or a mapping with a name or weight",
			elements(serverValue(), listOf(serverValue(), 1)), func(p *Pool) *[]Server { return &p.Servers })),
	}, poolKeys()...)...)
	return value[[]Pool]{
		read: func(d *document, n *node, path string, to *[]Pool) {
			if n.kind != mapping || len(n.pairs) == 0 {
				d.wrong(n, path, "a mapping of at least one name to a pool")
				return
			}
			*to = make([]Pool, len(n.pairs))
			for i, p := range n.pairs {
				pool := &(*to)[i]
				*pool = d.base
				pool.Name = p.key.text
				d.where[pool] = p.key
				if !isName.MatchString(p.key.text) {
					d.fail(p.key.line, p.key.column, "a pool is named with letters, digits, and _ . - between them, at most 64, not %s", quote(p.key.text))
				}
				if p.value.kind != mapping && !p.value.empty() {
					d.where[&pool.Distribution] = p.value // no pool at all: its distribution is not what is missing
				}
				one.read(d, p.value, path+"."+p.key.text, pool)
			}
		},
		show: func([]Pool) any { return nil },
		diff: byName(one),
		schema: func() schema {
			return schema{"type": "object", "minProperties": 1, "propertyNames": schema{"pattern": namePattern}, "additionalProperties": one.schema()}
		},
	}
}

func serverValue() value[Server] {
	brief := address("a server's address", serverAddress)
	usual := Server{Weight: 1}
	return fresh(usual, either(
		through(brief, func(s *Server) *Address { return &s.Address }),
		group(usual,
			must(set("address", "host:port, host for port 11211, [ipv6]:port, or unix:/path", brief, func(s *Server) *Address { return &s.Address })),
			set("name", "what the server is called, and hashed as; its address unless set", serverName(), func(s *Server) *string { return &s.Name }),
			set("weight", "its share of the keys, compared with the others", integer(1, maxWeight), func(s *Server) *int { return &s.Weight }),
			set("host", "the machine it is on, which copies of a key don't share; that of its address unless set", visible("a machine", maxName), func(s *Server) *string { return &s.Host }),
			set("zone", "the zone it is in, which copies of a key don't share where a route says so", zoneText(), func(s *Server) *string { return &s.Zone }),
		)))
}

// poolKeys are the settings of a pool that it may inherit from defaults.
func poolKeys() []key[Pool] {
	type p = Pool
	return append(placementKeys(),
		set("get_errors", "what a read gets whose server can't answer: a miss, or SERVER_ERROR",
			oneOf(option[bool]{"miss", false}, option[bool]{"error", true}), func(p *p) *bool { return &p.GetErrors }),
		set("multiget_order", "the order of a multi-get's answers: as they arrive, or that of the request (unless set: request for the distributions of Perl, else arrival)",
			oneOf(option[string]{"arrival", "arrival"}, option[string]{"request", "request"}), func(p *p) *string { return &p.Multiget }),
		set("gets", "those that go out to a server together go as one get of many keys, which costs it less; or each by itself",
			oneOf(option[bool]{"joined", true}, option[bool]{"single", false}), func(p *p) *bool { return &p.JoinGets }),
		set("flush_all", "whether clients may flush the servers",
			oneOf(option[bool]{"allow", false}, option[bool]{"deny", true}), func(p *p) *bool { return &p.DenyFlush }),
		set("connections", "connections to each server, from each loop", integer(1, 1024), func(p *p) *int { return &p.Connections }),
		set("queue", "requests of clients waiting for one server, in each loop; the next one fails", integer(1, 10_000_000), func(p *p) *int { return &p.Queue }),
		set("keepalive", "how long a connection to a server may be idle until Ringside asks there whether it still works, or off",
			durationOr(true, time.Second, time.Hour), func(p *p) *time.Duration { return &p.Keepalive }),
		set("timeouts", "how long requests may wait", group(defaultPool().Timeouts,
			set("connect", "for a connection to a server", duration(time.Millisecond, time.Hour), func(t *table.Timeouts) *time.Duration { return &t.Connect }),
			set("request", "of a server's silence, before an answer and in the middle of one: then that key and those behind it miss, or, where the client has a part of the value already (above 64 KiB), it is closed", duration(time.Millisecond, time.Hour), func(t *table.Timeouts) *time.Duration { return &t.Request }),
			set("deadline", "for a client's command until the first byte of its answer, whatever it waits for",
				duration(time.Millisecond, time.Hour), func(t *table.Timeouts) *time.Duration { return &t.Deadline }),
			set("deadline_total", "for a client's command until the last byte of its answer, or off",
				duration(0, time.Hour), func(t *table.Timeouts) *time.Duration { return &t.Total }),
		), func(p *p) *table.Timeouts { return &p.Timeouts }),
		set("backoff", "how long to leave a server alone that refuses connections", group(defaultPool().Backoff,
			set("first", "after the first failure; doubled at each further one",
				duration(time.Millisecond, time.Hour), func(b *table.Backoff) *time.Duration { return &b.First }),
			set("max", "at most", duration(time.Millisecond, time.Hour), func(b *table.Backoff) *time.Duration { return &b.Max }),
		), func(p *p) *table.Backoff { return &p.Backoff }),
		set("failover", "what happens when a server is gone", failoverValue(), func(p *p) *Failover { return &p.Failover }),
	)
}

// through lets a value for one field of T stand for the whole T.
func through[T, V any](v value[V], field func(*T) *V) value[T] {
	return value[T]{
		read: func(d *document, n *node, path string, to *T) {
			d.where[field(to)] = n
			v.read(d, n, path, field(to))
		},
		show:   func(t T) any { return v.show(*field(&t)) },
		schema: v.schema,
		diff: func(within, name string, old, f T, say func(format string, args ...any)) {
			v.compare(within, name, *field(&old), *field(&f), say)
		},
	}
}

// Guard is what a route says of its guard; the zero Guard is off.
type Guard struct {
	On bool
	table.Guard
}

// What a get is held for unless the file says so, and what is left of the deadline for
// its answer then.
const (
	usualWait   = 3 * time.Second
	waitReserve = 200 * time.Millisecond
)

// defaultGuard is guard: true, but for the wait: see decideWait.
func defaultGuard() Guard {
	return Guard{On: true, Guard: table.Guard{Lease: 10 * time.Second, LeaseMax: time.Minute, Wait: usualWait}}
}

func guardValue() value[Guard] {
	type g = Guard
	long := group(defaultGuard(),
		set("lease", "how long one rebuild may take before another client may start", duration(time.Second, time.Hour), func(g *g) *time.Duration { return &g.Lease }),
		set("lease_max", "what the lease grows to, where rebuilds of the route are seen to take longer", duration(time.Second, time.Hour), func(g *g) *time.Duration { return &g.LeaseMax }),
		set("wait", "how long a get may be held while another client rebuilds; unless set 3s, or the deadline of the pool minus 200ms if that is less", depends(duration(0, time.Hour)), func(g *g) *time.Duration { return &g.Wait }),
		set("early", "how long before its expiry a value is rebuilt; auto is twice what slow rebuilds of the route take", earlyValue(), func(g *g) *early { return (*early)(&g.Guard) }),
		set("stale", "how long the old value is served after its expiry or delete, to all but the client that rebuilds", duration(0, 30*24*time.Hour), func(g *g) *time.Duration { return &g.Stale }),
		set("multiget", "whether the keys of a multi-get are held too", oneOf(option[bool]{"pass", false}, option[bool]{"hold", true}), func(g *g) *bool { return &g.HoldMany }),
		set("late", "what a get gets whose wait is over: a miss, and rebuilds too; SERVER_ERROR; or stale: with a guard.stale all gets wait first, and then get the old value",
			spoken(table.LateMiss, table.LateError, table.LateStale), func(g *g) *table.GuardLate { return &g.Late }),
		set("sets", "any: applications also set what they have not missed; after_miss: never, so that each set of the process is taken for a rebuild", oneOf(option[bool]{"any", false}, option[bool]{"after_miss", true}), func(g *g) *bool { return &g.OnlyAfterMiss }),
		set("clients", "how clients use connections: one request at a time (connection), several threads or pipelining (shared), or a pool (pooled), which has no protection against late sets; detect tells the first two apart",
			spoken(table.Detected, table.Sequential, table.Shared, table.Pooled), func(g *g) *table.GuardClients { return &g.Clients }),
	)
	brief := modes("on, off, hide, or a mapping of its settings",
		option[Guard]{"on", defaultGuard()}, option[Guard]{"off", Guard{}}, option[Guard]{"hide", Guard{On: true, Guard: table.Guard{Hide: true}}})
	read := long.read
	long.read = func(d *document, n *node, path string, to *Guard) {
		kept := *n
		kept.pairs = slices.DeleteFunc(slices.Clone(n.pairs), func(p pair) bool {
			why := ""
			switch {
			case p.key.text == "refused":
				why = "refused was removed: a set that is not stored is always answered NOT_STORED; leave it out"
			case p.key.text == "clients" && p.value.text == "auto":
				why = "clients: auto was removed: write clients: detect, which is the default, or clients: pooled where the set comes on another connection than its miss"
			default:
				return false
			}
			d.fail(p.key.line, p.key.column, "%s.%s", path, why)
			return true
		})
		read(d, &kept, path, to)
	}
	return either(brief, fresh(defaultGuard(), long))
}

// early is the part of a Guard that its setting early is about.
type early table.Guard

// shortestEarly is what TTLs in whole seconds and a strict comparison leave room for.
const shortestEarly = 2 * time.Second

func earlyValue() value[early] {
	some := duration(0, time.Hour)
	return value[early]{
		read: func(d *document, n *node, path string, to *early) {
			if to.Auto = n.kind == scalar && n.text == "auto"; to.Auto {
				return
			}
			before := to.Early
			some.read(d, n, path, &to.Early)
			if to.Early > 0 && to.Early < shortestEarly {
				d.fail(n.line, n.column, "%s must be off, auto, or at least %s, not %s: servers count expiry in whole seconds", path, short(shortestEarly), n.is())
				to.Early = before
			}
		},
		show:   func(e early) any { return some.show(e.Early) },
		schema: func() schema { return schema{"anyOf": []any{some.schema(), schema{"const": "auto"}}} },
	}
}

// Near is what a route says of values that are kept in Ringside; the zero Near is off.
type Near struct {
	On bool
	table.Near
}

// defaultNear is near: true.
func defaultNear() Near {
	return Near{On: true, Near: table.Near{TTL: time.Second, Memory: 16 << 20}}
}

func nearValue() value[Near] {
	type n = Near
	long := group(defaultNear(),
		set("ttl", "how long a value is given out, from when its server was asked; so late may be what others write", duration(100*time.Millisecond, 10*time.Second), func(n *n) *time.Duration { return &n.TTL }),
		set("memory", "bytes of values, and what keeps them, shared out to the loops; then the oldest goes", size[int64](64<<10, 4<<30), func(n *n) *int64 { return &n.Memory }),
		set("keys", "of which keys values are kept: those that are read most (hot), or all", oneOf(option[bool]{"hot", false}, option[bool]{"all", true}), func(n *n) *bool { return &n.All }),
	)
	brief := modes("on, off, or a mapping of its settings", option[Near]{"on", defaultNear()}, option[Near]{"off", Near{}})
	return either(brief, fresh(defaultNear(), long))
}

// traceValue is a file into which is written what happens to some keys.
func traceValue() value[Trace] {
	usual := Trace{Max: 64 << 20, Keep: 3}
	return fresh(usual, group(usual,
		must(set("keys", "which keys: a pattern, or a list of up to eight. * is any bytes or none, ? one, [a-z] one of these; lock: and what fits belongs to it",
			oneOrMore(keyPattern()), func(t *Trace) *[]string { return &t.Keys })),
		must(set("file", "where; it is made for its owner alone, in a directory that is there", visible("a path", 4096), func(t *Trace) *string { return &t.File })),
		set("max", "bytes; a file that would get larger is moved aside, to its name with .1 behind it", size(int64(64<<10), 1<<40), func(t *Trace) *int64 { return &t.Max }),
		set("keep", "files that were moved aside and are kept", integer(0, 100), func(t *Trace) *int { return &t.Keep }),
	))
}

// keyPattern is a pattern of keys, as ringside trace takes it.
func keyPattern() value[string] {
	v := text("a pattern of keys, such as home:*")
	read := v.read
	v.read = func(d *document, n *node, path string, to *string) {
		read(d, n, path, to)
		if *to == "" {
			return
		}
		if err := watch.Check([]watch.Pattern{watch.Pattern(*to)}); err != nil {
			d.fail(n.line, n.column, "%s: %v", path, err)
		}
	}
	return v
}
