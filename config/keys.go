package config

// This file is the table of all keys of a configuration file, with their meanings. The parser, the
// JSON Schema and the test of the example file use it.

import (
	"log/slog"
	"slices"
	"strings"
	"time"

	"ringside/proxy/table"
	"ringside/proxy/tags/stamp"
	"ringside/proxy/watch"
)

// stranger returns a hint if the file looks like a file of mcrouter or twemproxy, else "". A file
// with the key listen at the top level is a file of Ringside.
func stranger(n *node) string {
	has := func(n *node, keys ...string) bool {
		return slices.ContainsFunc(n.pairs, func(p pair) bool { return slices.Contains(keys, p.key.text) })
	}
	switch {
	case has(n, "listen"):
		return ""
	case has(n, "route", "named_handles"):
		return "this looks like an mcrouter file: write its pools again, with distribution: mcrouter"
	case !has(n, "pools") && slices.ContainsFunc(n.pairs, func(p pair) bool { return p.key.text != "defaults" && has(p.value, "servers") }):
		return "this looks like a twemproxy file: ringside import makes one of Ringside of it"
	}
	return ""
}

func isPoolKey(name string) bool {
	return slices.ContainsFunc(poolKeys(), func(k key[Pool]) bool { return k.name == name })
}

// isKey reports whether the top level or a pool of a configuration file can have a key with that
// name.
func isKey(name string) bool {
	return atTheTop[name] || name == "pools" || name == "defaults" || name == "servers" || isPoolKey(name)
}

// settings holds the whole configuration file while it is read.
type settings struct {
	File
	Defaults Pool // settings that every pool inherits
}

func fileKeys() value[settings] {
	return group(settings{defaultFile(), defaultPool()},
		must(set("listen", "addresses for clients: host:port, [ipv6]:port, :port for every address, unix:/path, or a list of them",
			elements(listenerValue(), oneOrMore(listenerValue())), func(s *settings) *[]Listener { return &s.Listen })),
		set("admin", "HTTP address of the dashboard, metrics, health checks and profiles; none unless set", adminValue(), func(s *settings) *Admin { return &s.Admin }),
		set("defaults", "settings that all pools inherit", defaultsValue(), func(s *settings) *Pool { return &s.Defaults }),
		must(set("pools", "pools by name: a list of memcached servers, and the rule that distributes keys among them", poolsValue(), func(s *settings) *[]Pool { return &s.Pools })),
		set("zone", "the zone of this instance, for routes that read the nearest replica", zoneText(), func(s *settings) *string { return &s.Zone }),
		set("routes", "which keys belong to which pool; the most specific route wins; required if there are several pools",
			elements(routeValue(), listOf(routeValue(), 0)), func(s *settings) *[]Route { return &s.Routes }),
		set("tags", "settings of all routes with tags", tagSpaceValue(), func(s *settings) *TagSpace { return &s.Tags }),
		set("traces", "files that record what happens to some keys; at most four", elements(traceValue(), listOf(traceValue(), 0)), func(s *settings) *[]Trace { return &s.Traces }),
		set("users", "what users of an auth_file, and owners of certificates, may do; everything unless set. A user that is not listed may do nothing", usersValue(), func(s *settings) *[]User { return &s.Users }),
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
			set("allow_plaintext", "allow passwords in plain text over a network; otherwise auth_file is limited to TLS, unix sockets and loopback addresses",
				yesNo(), func(l *Listener) *bool { return &l.AllowPlaintext }),
			set("tls", "clients must use TLS", listenerTLSValue(), func(l *Listener) *ListenerTLS { return &l.TLS }),
		))
}

func adminValue() value[Admin] {
	brief := address("an address of the admin interface", listenAddress)
	who := words("loopback", "on", "off")
	return fresh(defaultFile().Admin, either(
		through(brief, func(a *Admin) *Address { return &a.Address }),
		group(defaultFile().Admin,
			must(set("address", "host:port, [ipv6]:port, :port for every address, or unix:/path", brief, func(a *Admin) *Address { return &a.Address })),
			set("pprof", "which clients can take Go profiles: those on loopback, all clients (on), or no client (off)",
				who, func(a *Admin) *string { return &a.Pprof }),
			set("control", "which clients can drain servers and set faults: those on loopback, all clients (on), or no client (off)",
				who, func(a *Admin) *string { return &a.Control }),
			set("page", "which clients can see the dashboard, which shows keys: those on loopback, all clients (on), or no client (off)",
				who, func(a *Admin) *string { return &a.Page }),
			set("misses", "remember the last operations on keys in 2 MiB, to report why keys miss and what rebuilding them costs",
				yesNo(), func(a *Admin) *bool { return &a.Misses }),
			set("names", "host names under which browsers can open the dashboard, besides addresses and localhost",
				listOf(visible("a host name", 253), 0), func(a *Admin) *[]string { return &a.Names }),
			set("auth_file", "file with one user:password per line, as for a listener; all requests except /healthz and /readyz need a login. Beyond loopback it needs tls; on loopback, tls or a unix socket keeps logins of commands from other users of the machine",
				visible("a path", 4096), func(a *Admin) *string { return &a.AuthFile }),
			set("tls", "clients must use TLS (https)", adminTLSValue(), func(a *Admin) *ListenerTLS { return &a.TLS }),
			set("allow_faults", "allow ringside drill and the control API to inject faults",
				yesNo(), func(a *Admin) *bool { return &a.Faults }),
		)))
}

func limitsValue() value[table.Limits] {
	type l = table.Limits
	v := group(defaultFile().Limits,
		set("clients", "client connections at the same time; further ones receive an error and are closed", integer(1, 10_000_000), func(l *l) *int { return &l.Clients }),
		set("line", "bytes of a command line; a multi-get is one line", size(2048, 64<<20), func(l *l) *int { return &l.Line }),
		set("value", "bytes of a value; below this limit the servers decide", size(1, 1<<30), func(l *l) *int { return &l.Value }),
		set("waiting", "gets that wait on guarded routes at the same time; further ones are misses", integer(1, 10_000_000), func(l *l) *int { return &l.Waiting }),
		set("guard_misses", "misses on guarded routes that Ringside remembers until their set; above it, the oldest is forgotten and its set is an ordinary set",
			integer(1, 100_000_000), func(l *l) *int { return &l.Tickets }),
		set("tags_per_value", "tags of one value; a set with more is rejected", integer(1, stamp.MaxTags), func(l *l) *int { return &l.Tags }),
		set("output_hard", "unsent bytes for one client above which it is disconnected; at most memory unless set", size(4<<10, 1<<30), func(l *l) *int { return &l.OutputHard }),
		set("memory", "bytes buffered for all clients and servers together", size(int64(1<<20), 1<<40), func(l *l) *int64 { return &l.Memory }),
		set("idle", "disconnect a client after this time without a request", duration(0, 30*24*time.Hour), func(l *l) *time.Duration { return &l.Idle }),
		set("unfinished", "disconnect a client that sends nothing for this time in the middle of a command, or off", duration(0, 30*24*time.Hour), func(l *l) *time.Duration { return &l.Unfinished }),
		set("linger", "how long to accept new clients after SIGTERM, while /readyz already fails; or off", duration(0, time.Hour), func(l *l) *time.Duration { return &l.Linger }),
		set("drain", "how long requests in flight can take after SIGTERM", duration(0, time.Hour), func(l *l) *time.Duration { return &l.Drain }),
	)
	return after(v, func(d *document, _ *node, _ string, to *l) {
		if d.where[&to.OutputHard] == nil { // a smaller limits.memory lowers the default, and is not an error
			to.OutputHard = int(min(int64(to.OutputHard), to.Memory))
		}
		to.Output = min(to.Output, to.OutputHard)
	})
}

func engineValue() value[Engine] {
	return group(defaultFile().Engine,
		set("driver", "network driver: epoll (Linux), portable (any system), or auto: the best one available",
			words("auto", "epoll", "portable"), func(e *Engine) *string { return &e.Driver }),
		set("loops", "event loops; each has its own connections to all servers", integer(1, 1024), func(e *Engine) *int { return &e.Loops }),
		set("moderation", "under high load, wait until one wakeup can serve more requests, if trials show that this saves CPU time",
			oneOf(option[bool]{"on", true}, option[bool]{"off", false}), func(e *Engine) *bool { return &e.Moderation }),
	)
}

func logValue() value[Log] {
	return group(defaultFile().Log,
		set("level", "lowest level that is logged",
			named(func(l slog.Level) string { return strings.ToLower(l.String()) }, slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError),
			func(l *Log) *slog.Level { return &l.Level }),
		set("format", "log lines as text or as JSON",
			words("text", "json"), func(l *Log) *string { return &l.Format }),
		set("slow", "log a sample of the commands that take at least this long, or off", duration(0, time.Hour), func(l *Log) *time.Duration { return &l.Slow }),
	)
}

// defaultsValue describes the mapping `defaults`: all keys of a pool except servers, warm_from and fill_from. It has no
// differences, because those of each pool include inherited settings.
func defaultsValue() value[Pool] {
	v := group(defaultPool(), poolKeys()...)
	v.diff = func(string, string, Pool, Pool, func(string, ...any)) {}
	return v
}

// poolsValue describes the mapping `pools` from names to pools. It keeps the order of the file.
func poolsValue() value[[]Pool] {
	inherited := defaultsValue()
	one := group(defaultPool(), append(append([]key[Pool]{serversKey()}, poolKeys()...),
		set("warm_from", "an entry of pools with the former servers of this pool, for a change to other servers with resize: {mode: warm}. An instance that starts serves by them until the keys have moved. No route uses that entry, and it has a new name",
			text("the name of a pool"), func(p *Pool) *string { return &p.WarmFrom }),
		set("fill_from", "an entry of pools that has the values which this pool lacks, such as the pool of another region. It stays in use, and is only read. The name of the entry, or",
			fillValue(), func(p *Pool) *Fill { return &p.Fill }))...)
	pools := pairsOf("name to a pool", one.schema, func(d *document, p pair, path string, pool *Pool) {
		*pool = *d.defaults
		d.inherit(inherited, pool)
		pool.Name = p.key.text
		if !isName.MatchString(p.key.text) {
			d.failAt(p.key, "a pool is named with letters, digits, and _ . - between them, at most 64, not %s", quote(p.key.text))
		}
		if p.value.kind != mapping && !p.value.empty() {
			d.where[&pool.Distribution] = p.value // the pool is not a mapping, which is an error; mark the distribution as set, so that it is not reported as missing
		}
		one.read(d, p.value, path+"."+p.key.text, pool)
	})
	pools.schema["propertyNames"] = schema{"pattern": namePattern}
	return elements(one, pools)
}

// inherit reads the mapping `defaults` again, for the pool p, to record the positions of the settings
// that p inherits. Its mistakes have been recorded before.
func (d *document) inherit(v value[Pool], p *Pool) {
	n := d.where[d.defaults]
	if n == nil {
		return
	}
	where, errs := d.where, d.errs
	d.where = d.inherited
	v.read(d, n, "defaults", p)
	d.where, d.errs = where, errs
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

// poolKeys returns the keys that a pool can inherit from `defaults`.
func poolKeys() []key[Pool] {
	type p = Pool
	return append(placementKeys(),
		set("get_errors", "reply to a read if its server cannot reply: a miss, or SERVER_ERROR",
			getErrors(), func(p *p) *bool { return &p.GetErrors }),
		set("multiget_order", "order of the values of a multi-get: as they arrive, or as requested. Unless set: request for the distributions of Perl, otherwise arrival",
			words("arrival", "request"), func(p *p) *string { return &p.Multiget }),
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
		set("max_move", "reject a reload that moves more than this share of the pool's keys to other servers; ringside reload --accept allows it",
			percentage(), func(p *p) *float64 { return &p.MaxMove }),
		set("resize", "what happens to keys with one copy when a reload gives them other servers", group(defaultPool().Resize,
			set("mode", "plain: each instance uses the new servers at once, and a later change can bring back old values. flush: all instances change together, after the servers that gain keys are flushed. warm: all instances change together, and keys move with their values. flush and warm are not possible with failover.mode gutter. Unless set: warm with failover.mode rehash and a distribution for new pools, otherwise plain",
				depends(named(table.ResizeMode.String, table.ResizePlain, table.ResizeFlush, table.ResizeWarm)), func(r *Resize) *table.ResizeMode { return &r.Mode }),
			set("rate", "with mode warm, how many keys leave each server in a second", integer(1, 1_000_000), func(r *Resize) *int { return &r.Rate }),
		), func(p *p) *Resize { return &p.Resize }),
		set("tls", "whether connections to the servers use TLS", poolTLSValue(), func(p *p) *PoolTLS { return &p.TLS }),
		set("auth", "login to servers that were started with -Y, memcached's text authentication. SASL (-S) is not supported, because memcached has it only in the binary protocol", poolAuthValue(), func(p *p) *PoolAuth { return &p.Auth }),
		set("failover", "what happens when a server is down", failoverValue(), func(p *p) *Failover { return &p.Failover }),
	)
}

func getErrors() value[bool] {
	return oneOf(option[bool]{"miss", false}, option[bool]{"error", true})
}

// traceValue describes the mapping with the settings of one trace.
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

// keyPattern describes a setting that is a pattern of keys, in the syntax of the command `ringside
// trace`.
func keyPattern() value[string] {
	return after(text("a pattern of keys, such as home:*"), func(d *document, n *node, path string, to *string) {
		if err := watch.Check([]watch.Pattern{watch.Pattern(*to)}); err != nil {
			d.failAt(n, "%s: %v", path, err)
		}
	})
}

func defaultFile() File {
	return File{
		Admin: Admin{Pprof: "loopback", Control: "loopback", Page: "loopback", Misses: true},
		Tags:  defaultTagSpace(),
		Limits: table.Limits{
			Clients:    10_000,
			Key:        250,
			Line:       1 << 20,
			Value:      8 << 20,
			InFlight:   4096,
			Waiting:    10_000,
			Tickets:    65536,
			Tags:       16,
			TagKeys:    65536,
			Output:     1 << 20,
			OutputHard: 64 << 20,
			Memory:     256 << 20,
			Unfinished: 30 * time.Second,
			Drain:      10 * time.Second,
		},
		Engine: Engine{Driver: "auto", Loops: 1, Moderation: true},
		Log:    Log{Level: slog.LevelInfo, Format: "text", Slow: 100 * time.Millisecond},
	}
}

func defaultPool() Pool {
	return Pool{
		Connections: 1,
		Queue:       65_536,
		Keepalive:   30 * time.Second,
		JoinGets:    true,
		MaxMove:     100,
		Resize:      Resize{Rate: 5000},
		Timeouts:    table.Timeouts{Connect: 1200 * time.Millisecond, Request: 500 * time.Millisecond, Deadline: 2 * time.Second},
		Backoff:     table.Backoff{First: 50 * time.Millisecond, Max: 2 * time.Second},
		Failover:    defaultFailover(),
	}
}
