package config

// This file reads the sources of servers of a pool, and puts the servers that they have now in their
// places.

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"path"
	"slices"
	"strings"
	"time"

	"ringside/proxy/serverlist"
	"ringside/proxy/table"
)

// Source is a source of servers of a pool.
type Source struct {
	serverlist.Source
	serverlist.Settings
	Every   time.Duration  // time between two lookups
	Weights []ServerWeight // weights of servers, in place of those of the source
}

// ServerWeight is the weight of the servers of a source with names that match a pattern.
type ServerWeight struct {
	Pattern string // * is any bytes, ? is one byte
	Weight  int
}

// Lists returns the servers that a source of a pool has now. known is false if the source has not
// answered yet.
type Lists func(pool, source string) (servers []serverlist.Server, known bool)

// defaultSource returns the settings of a source that is only a text.
func defaultSource() Source {
	return Source{Every: 30 * time.Second, Settings: serverlist.Settings{Keep: time.Minute, MaxChange: 50}}
}

// Unknown reports whether the servers of the pool are not known, because one of its sources has not
// answered yet.
func (p *Pool) Unknown() bool { return len(p.Sources) > 0 && len(p.Servers) == 0 }

// unknown returns the first pool without known servers that p needs: p itself or its
// gutter. It returns nil if all are known.
func (f *File) unknown(p *Pool) *Pool {
	if p.Unknown() {
		return p
	}
	if g := f.pool(p.Failover.Gutter); g != nil && g.Unknown() {
		return g
	}
	return nil
}

// Unknown returns the names of the pools without known servers.
func (f *File) Unknown() (names []string) {
	for i := range f.Pools {
		if f.Pools[i].Unknown() {
			names = append(names, f.Pools[i].Name)
		}
	}
	return names
}

// With returns the file with the servers that its sources have now. It parses the text of the file
// again, with the same variables. It reads no other files: users, passwords and certificates are those of f.
func (f *File) With(lists Lists) (*File, error) {
	d := f.read.again()
	d.lists = lists
	g, err := d.file()
	if err != nil {
		return nil, err
	}
	for i := range g.Listen { // the text is the same, so the listeners are the same
		g.Listen[i].Users, g.Listen[i].TLS.Material = f.Listen[i].Users, f.Listen[i].TLS.Material
	}
	for i := range g.Pools {
		g.Pools[i].Security, g.Pools[i].Login = f.Pools[i].Security, f.Pools[i].Login
	}
	g.Admin.Users, g.Admin.TLS.Material = f.Admin.Users, f.Admin.TLS.Material
	return g, nil
}

// again returns a document that reads the same text with the same values of variables.
func (d *document) again() *document {
	from := d.from
	from.ReadFile = nil
	e := newDocument(d.name, d.data, from)
	e.variables, e.used, e.secrets = maps.Clone(d.variables), maps.Clone(d.used), maps.Clone(d.secrets)
	return e
}

// ParseSource parses the text of a source of servers. If its scheme is unknown, the error names the nearest
// one.
func ParseSource(text string) (serverlist.Source, error) {
	if scheme := serverlist.SchemeOf(text); serverlist.IsSource(text) && !slices.Contains(serverlist.Schemes, scheme) {
		return serverlist.Source{}, fmt.Errorf("no source of servers has the scheme %s%s; write %s", quote(scheme), didYouMean(scheme, serverlist.Schemes), list(serverlist.Forms()))
	}
	return serverlist.ParseSource(text)
}

// sourceText describes the text of a source.
func sourceText() value[serverlist.Source] {
	return value[serverlist.Source]{
		read: func(d *document, n *node, path string, to *serverlist.Source) {
			if n.kind != scalar || n.empty() {
				d.wrong(n, path, "a source of servers: "+list(serverlist.Forms()))
				return
			}
			s, err := ParseSource(n.text)
			if err != nil {
				d.failAt(n, "%s: %v", path, err)
				return
			}
			*to = s
		},
		show:   func(s serverlist.Source) any { return filled(s.Text) },
		schema: schema{"type": "string", "pattern": `^(` + strings.Join(serverlist.Schemes, "|") + `)\+`},
	}
}

func sourceValue() value[Source] {
	type s = Source
	v := group(defaultSource(),
		must(set("discover", "where the servers are found: "+strings.Join(serverlist.Forms(), ", "), sourceText(), func(s *s) *serverlist.Source { return &s.Source })),
		set("every", "time between two lookups. A server that refuses a connection causes one at once", duration(time.Second, time.Hour), func(s *s) *time.Duration { return &s.Every }),
		set("keep", "how long a server that the source does not list any more stays in the pool", duration(0, 24*time.Hour), func(s *s) *time.Duration { return &s.Keep }),
		set("max_change", "an answer that adds or removes more than this share of the servers, and more than one, is not applied until ringside reload --accept",
			percentage(), func(s *s) *float64 { return &s.MaxChange }),
		set("weights", "weights of servers by patterns of their names, such as {\"mc-0.*\": 2}; the first that matches counts", weights(), func(s *s) *[]ServerWeight { return &s.Weights }),
	)
	return fresh(defaultSource(), v)
}

// weights describes a mapping from patterns of names to weights.
func weights() value[[]ServerWeight] {
	one := integer(1, maxWeight)
	v := pairsOf("pattern to a weight", one.schema, func(d *document, p pair, within string, w *ServerWeight) {
		w.Pattern = p.key.text
		if _, err := path.Match(w.Pattern, ""); err != nil || w.Pattern == "" || !printable(w.Pattern) || len(w.Pattern) > maxName {
			d.failAt(p.key, "%s: %s is not a pattern of names: * is any text, ? is one character", within, quote(w.Pattern))
		}
		one.read(d, p.value, within+"."+w.Pattern, &w.Weight)
	})
	v.show = func(list []ServerWeight) any {
		if len(list) == 0 {
			return nil
		}
		var parts []string
		for _, w := range list {
			parts = append(parts, fmt.Sprintf("%s: %d", w.Pattern, w.Weight))
		}
		return strings.Join(parts, ", ")
	}
	return v
}

// serversKey describes the key `servers` of a pool: a list of servers and sources, or the mapping of
// one source.
func serversKey() key[Pool] {
	fixed, source := serverValue(), sourceValue()
	either := anyOf(fixed.schema, sourceText().schema, source.schema)
	k := must(set("servers", "the memcached servers: host:port, host for port 11211, [ipv6]:port, unix:/path, a mapping with name, weight, host or zone, or a source of servers",
		elements(fixed, listOf(fixed, 1)), func(p *Pool) *[]Server { return &p.Servers }))
	readList, diffList := k.read, k.diff
	k.read = func(d *document, n *node, path string, to *Pool) {
		switch {
		case n.kind == mapping || isSource(n):
			d.where[&to.Servers] = n
			d.readMixed([]*node{n}, func(int) string { return path }, to)
		case n.kind == sequence && slices.ContainsFunc(n.items, isSource):
			d.where[&to.Servers] = n
			d.readMixed(n.items, func(i int) string { return fmt.Sprintf("%s[%d]", path, i) }, to)
		default:
			readList(d, n, path, to)
		}
	}
	k.schema = func(*Pool) schema {
		s := schema{"description": k.doc}
		maps.Copy(s, anyOf(schema{"type": "array", "items": either, "minItems": 1}, sourceText().schema, source.schema))
		return s
	}
	k.diff = func(within string, old, f *Pool, say func(format string, args ...any)) {
		byName(source)(within, "", old.Sources, f.Sources, say)
		diffList(within, old, f, say)
	}
	return k
}

func (s Source) called() (kind, name, full string) { return "source", s.Text, s.Text }

// isSource reports whether an item of a list of servers is a source.
func isSource(n *node) bool {
	return n.kind == scalar && serverlist.IsSource(n.text) ||
		n.kind == mapping && slices.ContainsFunc(n.pairs, func(p pair) bool { return p.key.text == "discover" })
}

// readMixed reads a list of servers and sources. The function path returns the path of item i. The
// servers of a source take its place in the list. If a source has not answered yet, the pool has no
// servers.
func (d *document) readMixed(items []*node, path func(i int) string, p *Pool) {
	var from []bool // whether the item is a source
	sources := 0
	for _, item := range items {
		is := isSource(item) || len(items) == 1 // a single mapping is a source even if the key discover is missing
		if from = append(from, is); is {
			sources++
		}
	}
	p.Sources = make([]Source, sources)
	fixed, source, brief := serverValue(), sourceValue(), sourceText()
	lists, unknown, total, at := make([][]Server, len(items)), false, 0, 0
	for i, item := range items {
		if !from[i] {
			total++
			continue
		}
		s := &p.Sources[at]
		at++
		d.where[s] = item
		if item.kind == mapping {
			source.read(d, item, path(i), s)
		} else {
			*s = defaultSource()
			brief.read(d, item, path(i), &s.Source)
		}
		if slices.ContainsFunc(p.Sources[:at-1], func(o Source) bool { return o.Text == s.Text && s.Text != "" }) {
			d.failAt(item, "%s: the source %s is listed twice", path(i), s.Text)
			continue
		}
		if s.Scheme == "dns" || s.Scheme == "dnssrv" {
			d.warn(item, "%s: %s+ knows servers by their IP addresses, so a pod that restarts with another address moves keys; dnssrvnoa+ and k8s+ know them by names", path(i), s.Scheme)
		}
		var known bool
		lists[i], known = d.discovered(p, s)
		unknown = unknown || !known
		total += len(lists[i])
	}
	p.Servers = make([]Server, total) // allocate the full length now, because the map d.where has pointers to the elements as keys
	at = 0
	for i, item := range items {
		if !from[i] {
			d.where[&p.Servers[at]] = item
			fixed.read(d, item, path(i), &p.Servers[at])
			at++
			continue
		}
		for _, s := range lists[i] {
			p.Servers[at] = s
			d.where[&p.Servers[at]] = item
			at++
		}
	}
	d.mergeSources(p)
	if unknown {
		p.Servers = nil
	}
}

// mergeSources removes servers that a second source of the pool also has, at the same address.
func (d *document) mergeSources(p *Pool) {
	first := map[string]int{}
	kept := p.Servers[:0]
	places := []*node{}
	for i := range p.Servers {
		s := p.Servers[i]
		if j, twice := first[s.label()]; twice && s.Source != "" && kept[j].Source != "" && kept[j].Source != s.Source {
			if kept[j].at != s.at {
				d.failAt(d.place(&p.Servers[i]), "pools.%s: two sources have the server %s with different addresses: %s in %s, %s in %s", p.Name, quote(s.label()), kept[j].at, kept[j].Source, s.at, s.Source)
			}
			continue
		}
		first[s.label()] = len(kept)
		places = append(places, d.where[&p.Servers[i]])
		kept = append(kept, s)
	}
	p.Servers = kept
	for i := range kept {
		d.where[&p.Servers[i]] = places[i]
	}
}

// discovered returns the servers that a source has now.
func (d *document) discovered(p *Pool, s *Source) (servers []Server, known bool) {
	if d.lists == nil || s.Text == "" {
		return nil, false
	}
	found, known := d.lists(p.Name, s.Text)
	used := make([]bool, len(s.Weights))
	for _, f := range found {
		one := Server{Address: Address{"tcp", AddressOf(p.Name, f.Name)}, Weight: f.Weight, Source: s.Text, at: f.Address}
		if one.Address.Address != f.Name {
			one.Name = f.Name
		}
		if f.Name == "" || len(f.Name) > maxName || !printable(f.Name) {
			d.failAt(d.place(s), "pools.%s: the source %s has a server with the unusable name %s", p.Name, s.Text, quote(f.Name))
			continue
		}
		for i, w := range s.Weights {
			if ok, _ := path.Match(w.Pattern, f.Name); ok {
				one.Weight, used[i] = w.Weight, true
				break
			}
		}
		one.Weight = cmp.Or(one.Weight, 1)
		servers = append(servers, one)
	}
	for i, w := range s.Weights {
		if known && !used[i] {
			d.warn(d.place(&s.Weights[i], s), "pools.%s: no server of %s has a name that matches %s, so its weight has no effect", p.Name, s.Text, quote(w.Pattern))
		}
	}
	return servers, known
}

// AddressOf returns the address in the table of a server of a source. It is the name if that is host:port.
// Otherwise it only identifies the server: Dial has the address where the server is.
func AddressOf(pool, name string) string {
	if at, err := serverAddress(name); err == nil && at.Network == "tcp" && at.Address == name {
		return name
	}
	return net.JoinHostPort(name+"@"+pool, "0")
}

// Pool returns the pool with a name, or nil.
func (f *File) Pool(name string) *Pool { return f.pool(name) }

// Dial returns where to connect to servers of sources that are not at their address in the table. The
// keys are the addresses in the table. A server that the file itself lists, or a source at its own address, is
// always there, also if a source of another pool has it at another one.
func (f *File) Dial() map[string]string {
	at := map[string]string{}
	for i := range f.Pools {
		for _, s := range f.Pools[i].Servers {
			if s.Source != "" && s.at != s.Address.Address {
				at[s.Address.Address] = s.at
			}
		}
	}
	for i := range f.Pools {
		for _, s := range f.Pools[i].Servers {
			if s.now() == s.Address {
				delete(at, s.Address.Address)
			}
		}
	}
	return at
}

// At returns f with the servers at the addresses that they have in now. Servers that only f or only now
// has stay as they are in f. If pools would then share a server that one of them ejects, At returns f.
func (f *File) At(now *File) *File {
	type listed struct {
		source  string
		address Address
	}
	g := *f
	g.Pools = slices.Clone(f.Pools)
	for i := range g.Pools {
		p := &g.Pools[i]
		is := now.Pool(p.Name)
		if is == nil {
			continue
		}
		places := map[listed]string{}
		for j := range is.Servers {
			s := &is.Servers[j]
			if _, twice := places[listed{s.Source, s.Address}]; !twice {
				places[listed{s.Source, s.Address}] = s.at
			}
		}
		p.Servers = slices.Clone(p.Servers)
		for j := range p.Servers {
			s := &p.Servers[j]
			if at, ok := places[listed{s.Source, s.Address}]; ok && s.Source != "" {
				s.at = at
			}
		}
	}
	g.reindex()
	for i := range g.Pools {
		for j := range g.viewersOf(&g.Pools[i]) {
			p, q := &g.Pools[i], &g.Pools[j]
			isGutter := q.Failover.Mode == table.Gutter && q.Failover.Gutter == p.Name
			if i != j && (!isGutter || p.shares(q.Servers) != nil) {
				return f
			}
		}
	}
	return &g
}
