package config

// This file converts a twemproxy file into a Ringside file. Every key stays on its server.

import (
	"cmp"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ImportNutcracker converts a twemproxy (nutcracker) file into a Ringside file with the same
// placement. Each twemproxy pool becomes a pool, and a listener with one route to it. out is the
// Ringside file, which Parse accepts. warnings has one line for each setting without an equivalent
// in Ringside. The lines are also comments in out. The error is of type Errors, with positions in
// the twemproxy file. ImportNutcracker returns an error if that file is wrong, has an address that
// Ringside does not support, or has no pool of memcached servers.
func ImportNutcracker(name string, data []byte) (out []byte, warnings []string, err error) {
	d := newDocument(name, data, Variables{})
	d.literal = true // twemproxy has no variables
	pools := d.readTwemproxy(data)
	if err := d.errs.orNil(); err != nil {
		return nil, nil, err
	}
	var kept []*twemproxyPool
	var left []string
	for _, p := range pools {
		p.compare()
		warnings = append(warnings, p.notes...)
		if p.redis {
			left = append(left, p.notes...)
		} else {
			kept = append(kept, p)
		}
	}
	if len(kept) == 0 {
		d.fail(1, 1, "every pool speaks redis; Ringside speaks memcached")
		return nil, warnings, d.errs
	}
	out = writeImport(kept, left)
	if _, err := Parse(name+" (imported)", out); err != nil {
		return nil, warnings, err
	}
	return out, warnings, nil
}

// twemproxyPool is one pool of a twemproxy file. A number is -1 if the file does not set it.
type twemproxyPool struct {
	name, as      string // the pool's name in the twemproxy file (name) and in the Ringside file (as)
	listen        twemproxyListen
	hash, hashTag string
	distribution  string
	timeout       int // time limit for a request in milliseconds; -1: not set
	backlog       int
	clients       int
	redis         bool
	redisAuth     string
	redisDB       int
	preconnect    bool
	keepalive     bool
	reuseport     bool
	eject         bool
	serverConns   int
	retryTimeout  int // time until a failed server is tried again, in milliseconds; -1: not set
	failureLimit  int
	servers       []twemproxyServer
	notes         []string // warnings about settings without an equivalent
}

type twemproxyListen struct {
	text string // address to listen on, in the syntax of Ringside
	mode uint64
}

type twemproxyServer struct {
	text   string // address of the server, in the syntax of Ringside
	label  string // text that twemproxy hashes for the server
	named  bool   // whether the label must be written as the server's name, because the distribution would derive another one from the address
	weight int
}

// readTwemproxy reads a twemproxy file. It applies twemproxy's own rules, with two harmless
// exceptions: it also accepts flow style and anchors, which twemproxy rejects.
func (d *document) readTwemproxy(data []byte) []*twemproxyPool {
	root := d.parse(data)
	if root == nil {
		return nil
	}
	if root.kind != mapping || len(root.pairs) == 0 {
		d.failAt(root, "a twemproxy file is a mapping of names to pools, not %s", root.is())
		return nil
	}
	if slices.ContainsFunc(root.pairs, func(p pair) bool { return p.key.text == "listen" && p.value.kind != mapping }) {
		d.failAt(root, "this is a file of Ringside already: ringside check says whether it is right")
		return nil
	}
	usual := twemproxyPool{
		hash: "fnv1a_64", distribution: "ketama",
		timeout: -1, backlog: -1, clients: -1, redisDB: -1, serverConns: -1, retryTimeout: -1, failureLimit: -1,
	}
	keys := twemproxyKeys(usual)
	var pools []*twemproxyPool
	names := freeNames{}
	listeners := map[string]*node{}
	for _, pair := range root.pairs {
		p := usual
		p.name = pair.key.text
		p.as = names.of(p.name)
		if p.name == "" {
			d.failAt(pair.key, "a pool needs a name")
			continue
		}
		if pair.value.kind != mapping {
			d.wrong(pair.value, p.name, "a mapping of settings")
			continue
		}
		keys.read(d, pair.value, p.name, &p)
		at := d.place(&p.listen)
		if first := listeners[p.listen.text]; first != nil && p.listen.text != "" {
			d.failAt(at, "%s is listened on by another pool already, in line %d", p.listen.text, first.line)
		}
		listeners[p.listen.text] = at
		if p.redisAuth != "" && !p.redis {
			d.failAt(d.place(&p.redisAuth), "%s.redis_auth is for a redis pool", p.name)
		}
		d.checkLabels(&p)
		pools = append(pools, &p)
	}
	return pools
}

func twemproxyKeys(usual twemproxyPool) value[twemproxyPool] {
	type p = twemproxyPool
	return group(usual,
		must(set("listen", "host:port, or the path of a unix socket", twemproxyListenValue(), func(p *p) *twemproxyListen { return &p.listen })),
		set("hash", "", words(twemproxyHashes.names()...), func(p *p) *string { return &p.hash }),
		set("hash_tag", "", hashTag(), func(p *p) *string { return &p.hashTag }),
		set("distribution", "",
			words("ketama", "modula", "random"), func(p *p) *string { return &p.distribution }),
		set("timeout", "", number(0), func(p *p) *int { return &p.timeout }),
		set("backlog", "", number(0), func(p *p) *int { return &p.backlog }),
		set("client_connections", "", number(0), func(p *p) *int { return &p.clients }),
		set("redis", "", truth(), func(p *p) *bool { return &p.redis }),
		set("redis_auth", "", word(), func(p *p) *string { return &p.redisAuth }),
		set("redis_db", "", number(0), func(p *p) *int { return &p.redisDB }),
		set("preconnect", "", truth(), func(p *p) *bool { return &p.preconnect }),
		set("tcpkeepalive", "", truth(), func(p *p) *bool { return &p.keepalive }),
		set("reuseport", "", truth(), func(p *p) *bool { return &p.reuseport }),
		set("auto_eject_hosts", "", truth(), func(p *p) *bool { return &p.eject }),
		set("server_connections", "", number(1), func(p *p) *int { return &p.serverConns }),
		set("server_retry_timeout", "", number(0), func(p *p) *int { return &p.retryTimeout }),
		set("server_failure_limit", "", number(0), func(p *p) *int { return &p.failureLimit }),
		must(set("servers", "a list of host:port:weight, each with a name if you like",
			listOf(twemproxyServerValue(), 1), func(p *p) *[]twemproxyServer { return &p.servers })),
	)
}

// bareText describes a setting of a twemproxy file. The function parse reads its value from the
// text of a scalar. Like twemproxy, bareText ignores the YAML type of the scalar.
func bareText[V any](want string, parse func(string) (V, bool)) value[V] {
	return value[V]{
		read: func(d *document, n *node, path string, to *V) {
			v, ok := parse(n.text)
			if n.kind != scalar || n.text == "" || !ok {
				d.wrong(n, path, want)
				return
			}
			*to = v
		},
	}
}

func word() value[string] {
	return bareText("text", func(s string) (string, bool) { return s, true })
}

func number(least int) value[int] {
	return bareText(fmt.Sprintf("a whole number from %d on", least), func(s string) (int, bool) {
		v, ok := digits(s)
		return v, ok && v >= least
	})
}

func truth() value[bool] {
	return bareText("true or false", func(s string) (bool, bool) { return s == "true", s == "true" || s == "false" })
}

func digits(s string) (int, bool) {
	v, err := strconv.ParseUint(s, 10, 31)
	return int(v), err == nil && strings.Trim(s, "0123456789") == ""
}

func twemproxyListenValue() value[twemproxyListen] {
	const want = "host:port, or the path of a unix socket"
	return value[twemproxyListen]{
		read: func(d *document, n *node, path string, to *twemproxyListen) {
			text, mode := n.text, ""
			if at := strings.LastIndexByte(text, ' '); at >= 0 && strings.HasPrefix(text, "/") {
				text, mode = text[:at], text[at+1:]
			}
			to.text, _, _ = twemproxyAddress(text)
			if _, err := listenAddress(to.text); n.kind != scalar || err != nil {
				to.text = ""
				d.failAt(n, "%s must be %s, not %s", path, want, n.is())
				return
			}
			v, err := strconv.ParseUint(cmp.Or(mode, "0"), 8, 32)
			if err != nil || v > 0o777 {
				d.failAt(n, "%s: %s is not a permission in octal, such as 0666", path, quote(mode))
				return
			}
			to.mode = v
		},
	}
}

// twemproxyAddress converts the address of a twemproxy file, host:port or a path, to the syntax of
// Ringside. It also returns the text that twemproxy hashes for a server with this address, and
// whether Ringside would derive another text from the address. The result is empty if the address is
// wrong.
func twemproxyAddress(from string) (text, label string, named bool) {
	if strings.HasPrefix(from, "/") {
		return "unix:" + from, from + ":", true
	}
	colon := max(0, strings.LastIndexByte(from, ':'))
	port, ok := digits(strings.TrimPrefix(from[colon:], ":"))
	if !ok || port < 1 {
		return "", "", false
	}
	number := strconv.Itoa(port)
	label = from
	if number == defaultPort {
		label = from[:colon]
	}
	return net.JoinHostPort(from[:colon], number), label, from[colon+1:] != number
}

// twemproxyServerValue describes a server of a twemproxy file: host:port:weight or /path:weight,
// with an optional name after the last space.
func twemproxyServerValue() value[twemproxyServer] {
	return value[twemproxyServer]{
		read: func(d *document, n *node, path string, to *twemproxyServer) {
			text, name := n.text, ""
			if at := strings.LastIndexByte(text, ' '); at >= 0 {
				text, name = text[:at], text[at+1:]
			}
			colon := max(0, strings.LastIndexByte(text, ':'))
			weight, ok := digits(strings.TrimPrefix(text[colon:], ":"))
			to.text, to.label, to.named = twemproxyAddress(text[:colon])
			to.weight = weight
			switch {
			case to.text == "":
				d.wrong(n, path, "host:port:weight or /path:weight, with a name after a space if you like")
				return
			case !ok || weight < 1 || weight > maxWeight:
				d.failAt(n, "%s has the weight %s; it must be a whole number between 1 and %d", path, quote(text[colon+1:]), maxWeight)
				*to = twemproxyServer{}
				return
			case name != "":
				to.label, to.named = name, true
			}
			if _, err := serverAddress(to.text); err != nil {
				d.failAt(n, "%s: %v", path, err)
			}
			if len(to.label) > maxName || !printable(to.label) {
				d.failAt(n, "%s has the name %s; Ringside takes names of at most %d bytes without spaces and control characters", path, quote(to.label), maxName)
			}
		},
	}
}

func (d *document) checkLabels(p *twemproxyPool) {
	seen := map[string]bool{}
	for i := range p.servers {
		s := &p.servers[i]
		if seen[s.label] && s.label != "" {
			d.failAt(d.place(s), "%s has two servers called %s", p.name, quote(s.label))
		}
		seen[s.label] = true
	}
}

var notInName = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// freeNames holds the names of pools in the Ringside file, each with the number of twemproxy pools that would have it.
type freeNames map[string]int

// of makes a valid Ringside pool name from a twemproxy pool name. The result differs from all earlier ones.
func (f freeNames) of(name string) string {
	as := notInName.ReplaceAllString(name, "-")
	as = strings.Trim(as[:min(len(as), 58)], "_.-")
	if as == "" {
		as = "pool"
	}
	free := as
	for f[free] > 0 {
		f[as]++
		free = fmt.Sprintf("%s-%d", as, f[as])
	}
	f[free] = 1
	return free
}

// compare adds notes about settings of the pool that have no equivalent in Ringside. A redis pool is
// left out, so its other settings do not count.
func (p *twemproxyPool) compare() {
	for _, note := range []struct {
		is, alsoRedis bool
		text          string
	}{
		{p.as != p.name, true, "was called " + quote(p.name)},
		{p.listensEverywhere(), false, "listen " + p.listen.text + " is every address of this machine, without authentication: name one address, or use a firewall"},
		{p.redis, true, "left out: it speaks redis (redis: true), Ringside speaks memcached"},
		{p.distribution == "random", false, "distribution random has no equivalent: a key now has one owner, as under twemproxy's ketama"},
		{p.ejects(), false, "auto_eject_hosts is failover mode rehash: the ring is built again without a server that is down, as under twemproxy;" +
			" but that takes some seconds, and " + flushedAtReturn + ", also of what others keep there" +
			" (server_retry_timeout has no equivalent); mode fail_fast flushes nothing"},
		{p.eject && !p.ejects(), false, "auto_eject_hosts has no effect: there is no other server to give keys to"},
		{p.timeout <= 0, false, "no timeout: twemproxy waits for ever, Ringside never does; its default timeouts apply"},
		{p.timeout > maxTimeout, false, fmt.Sprintf("timeout %d ms is cut to an hour", p.timeout)},
		{p.serverConns > maxConnections, false, fmt.Sprintf("server_connections %d is cut to %d", p.serverConns, maxConnections)},
		{p.clients > 0, false, "client_connections has no equivalent for one pool: limits.clients bounds the clients of all listeners together"},
		{p.backlog >= 0, false, "backlog has no equivalent: the system's greatest backlog is used"},
		{p.preconnect, false, "preconnect is what Ringside always does"},
		{p.keepalive, false, "tcpkeepalive has no equivalent for clients; keepalive asks servers whether idle connections still work"},
		{p.reuseport, false, "reuseport has no equivalent: engine.loops shares one address among several loops"},
	} {
		if note.is && (note.alsoRedis || !p.redis) {
			p.notes = append(p.notes, "pool "+p.as+": "+note.text)
		}
	}
}

// listensEverywhere reports whether clients can connect at every address of the machine.
func (p *twemproxyPool) listensEverywhere() bool {
	a, err := listenAddress(p.listen.text)
	return err == nil && a.everywhere()
}

// ejects reports whether keys of the pool move to other servers when their server is down.
func (p *twemproxyPool) ejects() bool {
	return p.eject && slices.ContainsFunc(p.servers, func(s twemproxyServer) bool { return s.text != p.servers[0].text })
}

const (
	maxTimeout     = 3_600_000 // maximum timeout in milliseconds that is imported
	maxConnections = 1024
)

func writeImport(pools []*twemproxyPool, left []string) []byte {
	random := 0
	for _, p := range pools {
		if p.distribution == "random" && len(p.servers) > 1 { // random with one server is not counted, because every key has that server as its owner
			random++
		}
	}
	head := "# Imported from a twemproxy file: every key has the owner it had there, but where the distribution\n# was random, and no key had one.\n"
	switch random {
	case 0:
		head = "# Imported from a twemproxy file: every key has the owner it had there.\n"
	case len(pools):
		head = "# Imported from a twemproxy file, where no key had an owner: its distribution was random.\n"
	}
	for _, note := range left {
		head += comment("", note)
	}
	var listeners, settings strings.Builder
	for _, p := range pools {
		fmt.Fprintf(&listeners, "  - address: %s\n%s    routes: [{pool: %s}]\n", scalarText(p.listen.text), when(p.listen.mode != 0, "    mode: \"%04o\"\n", p.listen.mode), scalarText(p.as))
		fmt.Fprintf(&settings, "  %s:\n", scalarText(p.as))
		for _, note := range p.notes {
			settings.WriteString(comment("    ", strings.TrimPrefix(note, "pool "+p.as+": ")))
		}
		settings.WriteString(p.settings())
	}
	return []byte(head + "\nlisten:\n" + listeners.String() + "\nadmin: 127.0.0.1:9151  # dashboard, metrics and health, in place of twemproxy's port 22222\n\npools:\n" + settings.String())
}

// when formats a text if it is to be written, else it returns "".
func when(is bool, format string, args ...any) string {
	if !is {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// comment formats text as an item of a YAML comment. Lines have at most 100 bytes, unless a
// single word is longer.
func comment(indent, text string) string {
	const most = 100
	var b strings.Builder
	first := indent + "# -"
	line := first
	for _, word := range strings.Split(text, " ") {
		if len(line)+1+len(word) > most && line != first {
			b.WriteString(line + "\n")
			line = indent + "#  "
		}
		line += " " + word
	}
	return b.String() + line + "\n"
}

// settings returns the settings of the pool in a Ringside file.
func (p *twemproxyPool) settings() string {
	named := slices.ContainsFunc(p.servers, func(s twemproxyServer) bool { return s.named })
	var servers strings.Builder
	for _, s := range p.servers {
		item := scalarText(s.text)
		if named || s.weight != 1 {
			item = fmt.Sprintf("{address: %s%s%s}", item, when(named, ", name: %s", scalarText(s.label)), when(s.weight != 1, ", weight: %d", s.weight))
		}
		servers.WriteString("      - " + item + "\n")
	}
	return fmt.Sprintf(`    distribution: %s
    hash: %s
%s    get_errors: error  # as twemproxy; miss lets clients go on without the server
    multiget_order: request  # as twemproxy; arrival does not wait for the slowest server
    flush_all: deny  # as twemproxy
%s%s%s    servers:
%s`,
		cmp.Or(map[string]string{"modula": "modulo-twemproxy"}[p.distribution], "twemproxy"), p.hash,
		when(p.hashTag != "", "    hash_tag: %s\n", scalarText(p.hashTag)),
		when(p.timeout > 0, "    timeouts: {connect: %[1]dms, request: %[1]dms, deadline: %[1]dms}\n", min(p.timeout, maxTimeout)),
		when(p.serverConns > 0, "    connections: %d\n", min(p.serverConns, maxConnections)),
		when(p.ejects(), "    failover: {mode: rehash%s}\n", when(p.failureLimit > 0, ", after_failures: %d", min(p.failureLimit, maxFailures))),
		servers.String())
}

var isPlain = regexp.MustCompile(`^((unix:)?[A-Za-z/][A-Za-z0-9_./-]*|[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+)(:[0-9]+)?$`)

// scalarText formats s as a YAML scalar without variables. Parse reads the scalar back as the same string.
func scalarText(s string) string {
	switch strings.ToLower(s) {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null":
		return strconv.Quote(s)
	}
	if isPlain.MatchString(s) {
		return s
	}
	return strconv.Quote(strings.ReplaceAll(s, "$", "$$"))
}
