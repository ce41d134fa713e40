package config

// The table of all keys of a file, with their meanings. The parser, the JSON Schema and the
// test of the example file use it.

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
	words    []string // its possible values, if they are a few words; else nil
	read     func(d *document, n *node, path string, to *T)
	schema   func(usual *T) schema
	diff     func(within string, old, f *T, say func(format string, args ...any))
}

// set returns a key with a value that is stored in a field of T.
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
				if least, ok := s["minimum"].(int); !ok || shown >= least { // a default below the minimum cannot be written
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

// group is a mapping of keys. usual holds the defaults, for the schema. The caller of read must
// first set the target to the defaults, or to inherited values.
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
					case slices.Contains(names, renamed[p.key.text]):
						hint = " (it is called " + renamed[p.key.text] + " now)"
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

// gone has the keys of older versions that have no effect any more, with the reason.
var gone = map[string]string{
	"preconnect": "every server is connected at start and after a reload",
}

// renamed has the present names of keys that were called otherwise.
var renamed = map[string]string{
	"copies_on":   "replicas_on",
	"interim_ttl": "substitute_ttl",
	"tickets":     "guard_misses",
}

// atTheTop has keys of the top level that people write into a pool by mistake.
var atTheTop = map[string]bool{"limits": true, "listen": true, "admin": true, "engine": true, "log": true, "routes": true, "zone": true}

// stranger returns a hint if the file looks like one of mcrouter or twemproxy, else "". A file
// with listen at the top level is one of Ringside.
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
		return "this looks like an mcrouter file: write its pools again, with distribution: mcrouter"
	case twemproxy && !pools:
		return "this looks like a twemproxy file: ringside import makes one of Ringside of it"
	}
	return ""
}

// belongs returns a hint where to write a key of pools that was found at the top level. It
// returns "" for other keys.
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

// isKey reports whether the file or a pool can have a key of that name.
func isKey(name string) bool {
	return atTheTop[name] || name == "pools" || name == "defaults" || name == "servers" || isPoolKey(name)
}

func inside(path string) string {
	if path == "" {
		return ""
	}
	return " in " + path
}

// fresh sets the target to usual before v reads into it.
func fresh[V any](usual V, v value[V]) value[V] {
	read := v.read
	v.read = func(d *document, n *node, path string, to *V) {
		*to = usual
		read(d, n, path, to)
	}
	return v
}

// settings holds the whole file as it is read.
type settings struct {
	File
	Defaults Pool // settings that every pool inherits
}

func fileKeys() value[settings] {
	pools := poolsValue()
	return group(settings{defaultFile(), defaultPool()},
		must(set("listen", "addresses for clients: host:port, [ipv6]:port, :port for every address, unix:/path, or a list of them",
			elements(listenerValue(), oneOrMore(listenerValue())), func(s *settings) *[]Listener { return &s.Listen })),
		set("admin", "HTTP address of the dashboard, metrics, health checks and profiles; none unless set", adminValue(), func(s *settings) *Admin { return &s.Admin }),
		key[settings]{
			name: "defaults",
			doc:  "settings that all pools inherit",
			read: func(d *document, n *node, path string, to *settings) {
				defaultsValue().read(d, n, path, &to.Defaults)
				d.base = to.Defaults
			},
			schema: func(*settings) schema {
				s := defaultsValue().schema()
				s["description"] = "settings that all pools inherit"
				return s
			},
			diff: func(string, *settings, *settings, func(string, ...any)) {}, // the diff of each pool has these changes
		},
		must(set("pools", "pools by name: a list of memcached servers, and the rule that distributes keys among them", pools, func(s *settings) *[]Pool { return &s.Pools })),
		set("zone", "the zone of this instance, for routes that read the nearest replica", zoneText(), func(s *settings) *string { return &s.Zone }),
		set("routes", "which keys belong to which pool; the most specific route wins; required if there are several pools",
			elements(routeValue(), listOf(routeValue(), 0)), func(s *settings) *[]Route { return &s.Routes }),
		set("tags", "settings of all routes with tags", tagSpaceValue(), func(s *settings) *TagSpace { return &s.Tags }),
		set("traces", "files that record what happens to some keys; at most four", elements(traceValue(), listOf(traceValue(), 0)), func(s *settings) *[]Trace { return &s.Traces }),
		set("limits", "limits on the resources that clients can use", limitsValue(), func(s *settings) *table.Limits { return &s.Limits }),
		set("engine", "how bytes are moved", engineValue(), func(s *settings) *Engine { return &s.Engine }),
		set("log", "what is logged, and how", logValue(), func(s *settings) *Log { return &s.Log }),
		set("watch", "reload this file when it changes, after a second without another change", yesNo(), func(s *settings) *bool { return &s.Watch }),
	)
}

func listenerValue() value[Listener] {
	brief := address("where clients connect", listenAddress)
	return either(
		through(brief, func(l *Listener) *Address { return &l.Address }),
		group(Listener{},
			must(set("address", "host:port, [ipv6]:port, :port for every address, or unix:/path", brief, func(l *Listener) *Address { return &l.Address })),
			set("mode", "permission bits of the unix socket, such as 0660; unless set, the umask decides",
				permissions(), func(l *Listener) *uint32 { return &l.Mode }),
			set("routes", "routes of this listener; they replace the routes of the file", elements(routeValue(), listOf(routeValue(), 1)), func(l *Listener) *[]Route { return &l.Routes }),
			set("auth_file", "file with one user:password per line, as for memcached's -Y; clients must authenticate first. A password can be {SSHA256} followed by the base64 of its salted hash and the salt",
				visible("a path", 4096), func(l *Listener) *string { return &l.AuthFile }),
			set("allow_plaintext", "allow passwords in plain text over a network; otherwise auth_file is limited to unix sockets and loopback addresses",
				yesNo(), func(l *Listener) *bool { return &l.AllowPlaintext }),
		))
}

func adminValue() value[Admin] {
	brief := address("an address of the admin interface", listenAddress)
	who := words("loopback", "on", "off")
	return fresh(defaultFile().Admin, either(
		through(brief, func(a *Admin) *Address { return &a.Address }),
		group(defaultFile().Admin,
			must(set("address", "host:port, [ipv6]:port, :port for every address, or unix:/path", brief, func(a *Admin) *Address { return &a.Address })),
			set("pprof", "who can take Go profiles: clients on loopback, all clients (on), or no client (off)",
				who, func(a *Admin) *string { return &a.Pprof }),
			set("control", "who can drain servers and set faults: clients on loopback, all clients (on), or no client (off)",
				who, func(a *Admin) *string { return &a.Control }),
			set("page", "who can see the dashboard, which shows keys: clients on loopback, all clients (on), or no client (off)",
				who, func(a *Admin) *string { return &a.Page }),
			set("hot", "find hot keys, from a sample of about a thousand requests per second in each loop",
				yesNo(), func(a *Admin) *bool { return &a.Hot }),
			set("misses", "remember the last operations on keys in 2 MiB, to report why keys miss and what rebuilding them costs",
				yesNo(), func(a *Admin) *bool { return &a.Misses }),
			set("names", "host names under which browsers can open the dashboard, besides addresses and localhost",
				listOf(visible("a host name", 253), 0), func(a *Admin) *[]string { return &a.Names }),
			set("allow_faults", "allow ringside drill and the control API to inject faults",
				yesNo(), func(a *Admin) *bool { return &a.Faults }),
		)))
}

func limitsValue() value[table.Limits] {
	type l = table.Limits
	v := group(defaultFile().Limits,
		set("clients", "client connections at the same time; further ones receive an error and are closed", integer(1, 10_000_000), func(l *l) *int { return &l.Clients }),
		set("key", "bytes of a key; memcached's own limit is 250", size(1, 250), func(l *l) *int { return &l.Key }),
		set("line", "bytes of a command line; a multi-get is one line", size(2048, 64<<20), func(l *l) *int { return &l.Line }),
		set("value", "bytes of a value; below this limit the servers decide", size(1, 1<<30), func(l *l) *int { return &l.Value }),
		set("requests_per_client", "keys in flight for one client; above it, Ringside stops reading from the client. Each 4 KiB of a request count as one key more",
			integer(1, 1_000_000), func(l *l) *int { return &l.InFlight }),
		set("waiting", "gets that wait on guarded routes at the same time; further ones are misses", integer(1, 10_000_000), func(l *l) *int { return &l.Waiting }),
		set("guard_misses", "misses on guarded routes that Ringside remembers until their set; above it, the oldest is forgotten and its set is an ordinary set",
			integer(1, 100_000_000), func(l *l) *int { return &l.Tickets }),
		set("tags_per_value", "tags of one value; a set with more is rejected", integer(1, stamp.MaxTags), func(l *l) *int { return &l.Tags }),
		set("tag_keys", "keys whose tags Ringside remembers, if clients named them; reads of other keys need a second round trip",
			integer(1, 100_000_000), func(l *l) *int { return &l.TagKeys }),
		set("output_per_client", "unsent bytes for one client above which Ringside stops reading from it", size(4<<10, 1<<30), func(l *l) *int { return &l.Output }),
		set("output_hard", "unsent bytes for one client above which it is disconnected; at most memory unless set", size(4<<10, 1<<30), func(l *l) *int { return &l.OutputHard }),
		set("memory", "bytes buffered for all clients and servers together", size(int64(1<<20), 1<<40), func(l *l) *int64 { return &l.Memory }),
		set("idle", "disconnect a client after this time without a request", duration(0, 30*24*time.Hour), func(l *l) *time.Duration { return &l.Idle }),
		set("unfinished", "disconnect a client that sends nothing for this time in the middle of a command, or off", duration(0, 30*24*time.Hour), func(l *l) *time.Duration { return &l.Unfinished }),
		set("linger", "how long to accept new clients after SIGTERM, while /readyz already fails; or off", duration(0, time.Hour), func(l *l) *time.Duration { return &l.Linger }),
		set("drain", "how long requests in flight can take after SIGTERM", duration(0, time.Hour), func(l *l) *time.Duration { return &l.Drain }),
	)
	read := v.read
	v.read = func(d *document, n *node, path string, to *l) {
		read(d, n, path, to)
		if d.where[&to.OutputHard] == nil { // a smaller limits.memory lowers this default, and is not an error
			to.OutputHard = int(min(int64(to.OutputHard), to.Memory))
		}
	}
	return v
}

func engineValue() value[Engine] {
	usual := defaultFile().Engine
	onOff := []option[bool]{{"on", true}, {"off", false}}
	return group(usual,
		set("driver", "network driver: epoll (Linux), portable (any system), or auto: the best one available",
			words("auto", "epoll", "portable"), func(e *Engine) *string { return &e.Driver }),
		set("loops", "event loops; each has its own connections to all servers", integer(1, 1024), func(e *Engine) *int { return &e.Loops }),
		set("wait", "how an epoll loop waits: raw keeps its thread (faster), syscall releases it to the Go scheduler",
			words("raw", "syscall"), func(e *Engine) *string { return &e.Wait }),
		set("coalesce_server", "delay requests to a busy server so that one send carries several; off, on, or the thresholds",
			switched(through(oneOf(onOff...), func(c *CoalesceServer) *bool { return &c.On }),
				group(usual.CoalesceServer,
					set("min_due", "replies that the server owes before its requests are delayed; four times as many while moderation is on and does not sleep",
						integer(1, math.MaxInt32), func(c *CoalesceServer) *int { return &c.MinDue }),
					set("max_held", "requests delayed at the same time, at most", integer(1, math.MaxInt32), func(c *CoalesceServer) *int { return &c.MaxHeld }),
				)), func(e *Engine) *CoalesceServer { return &e.CoalesceServer }),
		set("coalesce_client", "send complete replies, and send the replies to requests that were read together at once; off, on, or the limits",
			switched(through(oneOf(onOff...), func(c *CoalesceClient) *bool { return &c.On }),
				group(usual.CoalesceClient,
					set("max_delay", "how long a complete reply waits for others, at most",
						duration(time.Microsecond, time.Second), func(c *CoalesceClient) *time.Duration { return &c.MaxDelay }),
					set("max_bytes", "bytes that wait, at most, including an incomplete reply", size(1, 1<<30), func(c *CoalesceClient) *int { return &c.MaxBytes }),
				)), func(e *Engine) *CoalesceClient { return &e.CoalesceClient }),
		set("moderation", "under high load, wait until one wakeup can serve more requests; off, on, or the thresholds",
			switched(through(oneOf(onOff...), func(m *Moderation) *bool { return &m.On }),
				group(usual.Moderation,
					set("above", "requests per second of one loop to servers, above which it can wait",
						integer(1, math.MaxInt32), func(m *Moderation) *int { return &m.Above }),
					set("sleep", "how long a loop sleeps where sleeping helps", duration(time.Microsecond, 10*time.Millisecond), func(m *Moderation) *time.Duration { return &m.Sleep }),
					set("pace", "what a loop waits for: replies that servers owe (at most 2ms), the end of a sleep, or whatever serves most requests for its CPU time in trials, including no wait (auto)",
						words("auto", "answers", "sleep"), func(m *Moderation) *string { return &m.Pace }),
				)), func(e *Engine) *Moderation { return &e.Moderation }),
	)
}

func logValue() value[Log] {
	return group(defaultFile().Log,
		set("level", "lowest level that is logged",
			oneOf([]option[slog.Level]{{"debug", slog.LevelDebug}, {"info", slog.LevelInfo}, {"warn", slog.LevelWarn}, {"error", slog.LevelError}}...),
			func(l *Log) *slog.Level { return &l.Level }),
		set("format", "log lines as text or as JSON",
			words("text", "json"), func(l *Log) *string { return &l.Format }),
		set("slow", "log a sample of the commands that take at least this long, or off", duration(0, time.Hour), func(l *Log) *time.Duration { return &l.Slow }),
	)
}

// defaultsValue is a mapping of the keys that pools inherit: all pool keys except servers.
func defaultsValue() value[Pool] { return group(defaultPool(), poolKeys()...) }

// poolsValue is the mapping of pool names to pools, in the order of the file.
func poolsValue() value[[]Pool] {
	one := group(defaultPool(), append([]key[Pool]{
		must(set("servers", "the memcached servers: host:port, host for port 11211, [ipv6]:port, unix:/path, or a mapping with name, weight, host or zone",
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
					d.where[&pool.Distribution] = p.value // not a mapping, so do not report a missing distribution
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
			set("name", "name of the server, which is also hashed; its address unless set", serverName(), func(s *Server) *string { return &s.Name }),
			set("weight", "its share of the keys, relative to the other servers", integer(1, maxWeight), func(s *Server) *int { return &s.Weight }),
			set("host", "its machine; replicas of a key are on different machines. The host of its address unless set", visible("a machine", maxName), func(s *Server) *string { return &s.Host }),
			set("zone", "its zone; replicas of a key are in different zones if the route has replicas_on: zone", zoneText(), func(s *Server) *string { return &s.Zone }),
		)))
}

// poolKeys returns the keys of a pool that it inherits from defaults.
func poolKeys() []key[Pool] {
	type p = Pool
	return append(placementKeys(),
		set("get_errors", "reply to a read whose server cannot reply: a miss, or SERVER_ERROR",
			oneOf(option[bool]{"miss", false}, option[bool]{"error", true}), func(p *p) *bool { return &p.GetErrors }),
		set("multiget_order", "order of the values of a multi-get: as they arrive, or as requested. Unless set: request for the distributions of Perl, otherwise arrival",
			oneOf(option[string]{"arrival", "arrival"}, option[string]{"request", "request"}), func(p *p) *string { return &p.Multiget }),
		set("gets", "combine gets that are sent to a server together into one get with several keys, which costs the server less; or send each by itself",
			oneOf(option[bool]{"joined", true}, option[bool]{"single", false}), func(p *p) *bool { return &p.JoinGets }),
		set("flush_all", "whether clients can flush the servers",
			oneOf(option[bool]{"allow", false}, option[bool]{"deny", true}), func(p *p) *bool { return &p.DenyFlush }),
		set("connections", "connections to each server, from each loop", integer(1, 1024), func(p *p) *int { return &p.Connections }),
		set("queue", "requests that wait for one server in each loop; further ones fail", integer(1, 10_000_000), func(p *p) *int { return &p.Queue }),
		set("keepalive", "ping a server connection that was idle for this time, or off",
			durationOr(true, time.Second, time.Hour), func(p *p) *time.Duration { return &p.Keepalive }),
		set("timeouts", "how long requests can wait", group(defaultPool().Timeouts,
			set("connect", "time to connect to a server", duration(time.Millisecond, time.Hour), func(t *table.Timeouts) *time.Duration { return &t.Connect }),
			set("request", "how long a server can send nothing, before a reply or in the middle of it. Then this key and the keys requested after it miss. A client that already has a part of the value (above 64 KiB) is disconnected", duration(time.Millisecond, time.Hour), func(t *table.Timeouts) *time.Duration { return &t.Request }),
			set("deadline", "time from a client's command to the first byte of its reply, whatever it waits for",
				duration(time.Millisecond, time.Hour), func(t *table.Timeouts) *time.Duration { return &t.Deadline }),
			set("deadline_total", "time from a client's command to the last byte of its reply, or off",
				duration(0, time.Hour), func(t *table.Timeouts) *time.Duration { return &t.Total }),
		), func(p *p) *table.Timeouts { return &p.Timeouts }),
		set("backoff", "how long to wait before connecting again to a server that refuses connections", group(defaultPool().Backoff,
			set("first", "after the first failure; doubled after each further one",
				duration(time.Millisecond, time.Hour), func(b *table.Backoff) *time.Duration { return &b.First }),
			set("max", "at most", duration(time.Millisecond, time.Hour), func(b *table.Backoff) *time.Duration { return &b.Max }),
		), func(p *p) *table.Backoff { return &p.Backoff }),
		set("failover", "what happens when a server is down", failoverValue(), func(p *p) *Failover { return &p.Failover }),
	)
}

// through makes a value for one field of T a value for T.
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

// Guard holds the guard settings of a route. The zero Guard is off.
type Guard struct {
	On bool
	table.GuardSettings
}

// usualWait is the default of how long a get can wait. waitReserve is the part of the deadline
// that is left for the reply after the wait.
const (
	usualWait   = 3 * time.Second
	waitReserve = 200 * time.Millisecond
)

// defaultGuard returns the settings of guard: true. decideWait can lower Wait.
func defaultGuard() Guard {
	return Guard{On: true, GuardSettings: table.GuardSettings{Lease: 10 * time.Second, LeaseMax: time.Minute, Wait: usualWait}}
}

func guardValue() value[Guard] {
	type g = Guard
	long := group(defaultGuard(),
		set("lease", "how long one rebuild can take before another client can start one", duration(time.Second, time.Hour), func(g *g) *time.Duration { return &g.Lease }),
		set("lease_max", "the longest lease; leases grow up to it if rebuilds of the route take longer", duration(time.Second, time.Hour), func(g *g) *time.Duration { return &g.LeaseMax }),
		set("wait", "how long a get can wait while another client rebuilds. Unless set: 3s, or the deadline of the pool minus 200ms if that is less", depends(duration(0, time.Hour)), func(g *g) *time.Duration { return &g.Wait }),
		set("early", "how long before its expiry a value is rebuilt; auto is twice the duration of the route's slow rebuilds", earlyValue(), func(g *g) *early { return (*early)(&g.GuardSettings) }),
		set("stale", "how long the old value is served after its expiry or delete, to all clients except the one that rebuilds", duration(0, 30*24*time.Hour), func(g *g) *time.Duration { return &g.Stale }),
		set("multiget", "whether the keys of a multi-get also wait", oneOf(option[bool]{"pass", false}, option[bool]{"hold", true}), func(g *g) *bool { return &g.HoldMany }),
		set("late", "reply to a get whose wait has ended. miss: the client rebuilds, too. error: SERVER_ERROR. stale: with guard.stale, all gets wait first and then get the old value",
			spoken(table.LateMiss, table.LateError, table.LateStale), func(g *g) *table.GuardLate { return &g.Late }),
		set("sets", "after_miss: the application sets only what it has missed, so each set of the process is a rebuild. any: it also sets other keys", oneOf(option[bool]{"any", false}, option[bool]{"after_miss", true}), func(g *g) *bool { return &g.OnlyAfterMiss }),
		set("clients", "how clients use connections. connection: one request at a time. shared: several threads, or pipelining. pooled: a connection pool, without protection against late sets. detect: distinguishes the first two",
			spoken(table.Detected, table.Sequential, table.Shared, table.Pooled), func(g *g) *table.GuardClients { return &g.Clients }),
	)
	brief := modes("on, off, hide, or a mapping of its settings",
		option[Guard]{"on", defaultGuard()}, option[Guard]{"off", Guard{}}, option[Guard]{"hide", Guard{On: true, GuardSettings: table.GuardSettings{Hide: true}}})
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

// early is a Guard of which the key early sets the fields Early and Auto.
type early table.GuardSettings

// shortestEarly is the shortest useful value: memcached counts TTLs in whole seconds, and
// compares them with less than.
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

// Near holds the near cache settings of a route. The zero Near is off.
type Near struct {
	On bool
	table.NearSettings
}

// defaultNear returns the settings of near: true.
func defaultNear() Near {
	return Near{On: true, NearSettings: table.NearSettings{TTL: time.Second, Memory: 16 << 20}}
}

func nearValue() value[Near] {
	type n = Near
	long := group(defaultNear(),
		set("ttl", "how long a value is served, from the request to its server; writes by other instances are visible that much later", duration(100*time.Millisecond, 10*time.Second), func(n *n) *time.Duration { return &n.TTL }),
		set("memory", "bytes of values and their bookkeeping, divided among the loops; above it, the oldest are removed", size[int64](64<<10, 4<<30), func(n *n) *int64 { return &n.Memory }),
		set("keys", "which keys are kept: those that are read most (hot), or all", oneOf(option[bool]{"hot", false}, option[bool]{"all", true}), func(n *n) *bool { return &n.All }),
	)
	brief := modes("on, off, or a mapping of its settings", option[Near]{"on", defaultNear()}, option[Near]{"off", Near{}})
	return either(brief, fresh(defaultNear(), long))
}

// traceValue is the mapping of a trace's settings.
func traceValue() value[Trace] {
	usual := Trace{Max: 64 << 20, Keep: 3}
	return fresh(usual, group(usual,
		must(set("keys", "the keys: a pattern, or a list of up to eight. * is any bytes, also none; ? is one byte; [a-z] is one of these. The lock of a matching key belongs to it",
			oneOrMore(keyPattern()), func(t *Trace) *[]string { return &t.Keys })),
		must(set("file", "the file, readable by its owner only; its directory must exist", visible("a path", 4096), func(t *Trace) *string { return &t.File })),
		set("max", "bytes; a file that would grow larger is renamed to its name with .1", size(int64(64<<10), 1<<40), func(t *Trace) *int64 { return &t.Max }),
		set("keep", "renamed files that are kept", integer(0, 100), func(t *Trace) *int { return &t.Keep }),
	))
}

// keyPattern is a pattern of keys, in the syntax of ringside trace.
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
