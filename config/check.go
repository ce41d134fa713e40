package config

// This file checks settings against each other. Each setting by itself is already valid.

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"ringside/proxy/health/divert"
	"ringside/proxy/watch"
)

func (d *document) checkListeners(f *File) {
	seen := map[Address]bool{}
	for i := range f.Listen {
		l := &f.Listen[i]
		if l.Mode != 0 && l.Address.Network != "unix" && l.Address.Network != "" {
			d.failAt(d.place(&l.Mode), "mode is for unix sockets; %s is none", l.Address.Address)
		}
		switch {
		case l.TLS.On && l.AllowPlaintext:
			d.failAt(d.place(&l.AllowPlaintext), "allow_plaintext has no effect beside tls: passwords are encrypted")
		case l.AuthFile == "" && l.AllowPlaintext:
			d.failAt(d.place(&l.AllowPlaintext), "allow_plaintext is about the passwords of an auth_file, and there is none")
		case l.AuthFile != "" && !l.TLS.On && !l.AllowPlaintext && !l.Address.Local():
			d.failAt(d.place(&l.AuthFile), "passwords would cross a network unencrypted: add tls, listen on a unix socket or a loopback address, or set allow_plaintext: true")
		case l.AuthFile != "" && d.others:
			l.Users = d.readUsers(d.place(&l.AuthFile), l.AuthFile)
		}
		if l.Address.everywhere() && l.AuthFile == "" && l.TLS.ClientCA == "" {
			d.warn(d.place(&l.Address, l), "listen: every address of this machine, without authentication: any host that reaches it can read, change and delete all values; name one address, set auth_file, or use a firewall")
		}
		d.checkListenerTLS(&l.TLS, &l.Address)
		d.checkTaken(seen, &l.Address)
	}
	d.checkTaken(seen, &f.Admin.Address)
	d.checkTraces(f)
	d.checkCircle(f)
	d.checkAdminLogin(&f.Admin)
	if a := &f.Admin; a.AuthFile != "" || a.TLS.ClientCA != "" { // it can be used only with a login or a certificate
	} else if a.Address.everywhere() && (a.Pprof == "on" || a.Control == "on" || a.Page == "on") {
		d.warn(d.place(&a.Address, a), "admin listens on every address, so every host that reaches it can control this instance, take profiles or see keys")
	} else if a.Address.everywhere() {
		d.warn(d.place(&a.Address, a), "admin listens on every address: any host that reaches it can read metrics; name one address, or use a firewall")
	}
}

// checkAdminLogin checks TLS and users of the admin interface, and reads their files.
func (d *document) checkAdminLogin(a *Admin) {
	d.checkListenerTLS(&a.TLS, &a.Address)
	switch {
	case a.AuthFile != "" && !a.TLS.On && !a.Address.Local():
		d.failAt(d.place(&a.AuthFile), "admin.auth_file: passwords would cross a network unencrypted: add tls, or listen on a unix socket or a loopback address")
	case a.AuthFile != "" && d.others:
		a.Users = d.readUsers(d.place(&a.AuthFile), a.AuthFile)
	}
}

// checkCircle rejects a server with an address at which this instance itself listens, for clients
// or for the admin interface. The instance would send requests to itself until they time out. If only the
// host suggests that, checkCircle warns, because the file may be meant for another machine.
func (d *document) checkCircle(f *File) {
	listeners := map[string][]*Address{} // the listeners that may accept connections to an address, by its port or socket
	for i := range f.Listen {
		l := &f.Listen[i].Address
		listeners[l.portOrSocket()] = append(listeners[l.portOrSocket()], l)
	}
	for i := range f.Pools {
		for j := range f.Pools[i].Servers {
			s := &f.Pools[i].Servers[j]
			now := s.now()
			near := listeners[now.portOrSocket()]
			for _, l := range near {
				if l.takes(now) {
					d.failAt(d.place(&s.Address, s), "pools.%s: the server %s is this instance itself, which listens on %s", f.Pools[i].Name, s.now().text(), l.text())
				}
			}
			if a := &f.Admin.Address; a.takes(s.now()) {
				d.failAt(d.place(&s.Address, s), "pools.%s: the server %s is this instance's admin interface", f.Pools[i].Name, s.now().text())
			}
			for _, l := range slices.Concat([]*Address{&f.Admin.Address}, near) {
				if d.from.OwnHost != nil && l.probablyTakes(s.now(), d.from.OwnHost) {
					d.warn(d.place(&s.Address, s), "pools.%s: the server %s is on this machine, and Ringside listens on %s, so the server is probably this instance itself: its keys fail",
						f.Pools[i].Name, s.now().text(), l.text())
				}
			}
		}
	}
}

// checkTaken rejects an address that is used twice. Two different texts can still mean one address:
// a name and its IP address. In that case the process fails at start, when it listens on the second
// one.
func (d *document) checkTaken(seen map[Address]bool, a *Address) {
	if a.Network == "" || strings.HasSuffix(a.Address, ":0") && a.Network != "unix" {
		return
	}
	if seen[*a] {
		d.failAt(d.place(a), "%s is already listened on; each address once", a.Address)
	}
	seen[*a] = true
}

func (d *document) checkRoutes(f *File, what string, missing *node, routes []Route) {
	if len(routes) == 0 {
		if served := f.served(); len(served) > 1 {
			d.failAt(missing, "%s are needed once there are several pools: say which keys go to %s", what, list(served))
		}
	}
	var sound rivals
	for i := range routes {
		r := &routes[i]
		d.checkCopies(f, r)
		d.checkCounters(r)
		d.checkTotal(f, r)
		d.checkGuard(f, r)
		d.checkTags(f, r)
		d.checkNear(f, r)
		if r.to()[0] == "" || r.Prefix == "" && d.where[&r.Prefix] != nil || r.Match == "" && d.where[&r.Match] != nil {
			continue // an error for the missing pool, the empty prefix or the empty match is already recorded
		}
		d.checkKeys(f, r)
		switch {
		case r.Prefix != "" && r.Match != "":
			d.failAt(d.place(&r.Match), "a route has a prefix or a match, not both: write match: %s", quote(r.Prefix+"*"))
			continue
		case r.Strip && r.Prefix == "":
			d.failAt(d.place(&r.Strip), "strip_prefix needs a prefix to strip")
		}
		d.checkRivals(what, &sound, r)
		sound.add(r)
	}
}

// rivals holds routes of one list, by what another route must have in common with one of them to be its rival.
type rivals struct {
	same  map[[2]string]bool // the match and the prefix of all routes
	all   map[int][]*Route   // the routes with a number of literal bytes
	match map[int][]*Route   // the routes of all with a match
}

func (s *rivals) add(r *Route) {
	if s.same == nil {
		*s = rivals{map[[2]string]bool{}, map[int][]*Route{}, map[int][]*Route{}}
	}
	n := r.pattern().Literal()
	s.same[[2]string{r.Match, r.Prefix}] = true
	if s.all[n] = append(s.all[n], r); r.Match != "" {
		s.match[n] = append(s.match[n], r)
	}
}

// checkRivals rejects the route r if an earlier route also matches some of its keys, and the
// patterns of both have equally many literal bytes. Then neither of the two routes is more specific
// for these keys.
func (d *document) checkRivals(what string, before *rivals, r *Route) {
	at, p := d.place(&r.Match, &r.Prefix, r), r.pattern()
	if before.same[[2]string{r.Match, r.Prefix}] {
		if r.Match == "" && r.Prefix == "" {
			d.failAt(at, "%s: two have neither prefix nor match; one alone can take every other key", what)
		} else {
			d.failAt(at, "%s for %s stand twice; each once", what, r.keys())
		}
		return
	}
	others := before.match
	if r.Match != "" {
		others = before.all
	}
	for _, o := range others[p.Literal()] {
		if key, ok := keyOfBoth(o.pattern(), p); ok {
			d.failAt(at, "%s and %s both want keys such as %s, and spell out %s each: the one that spells out more would win, so make one of them longer",
				o.keys(), r.keys(), shownKey(key), count(p.Literal(), "byte"))
			return
		}
	}
}

// checkCounters checks the settings autocreate and buffer of a route: the lifetime of counters, and
// how long increments wait.
func (d *document) checkCounters(r *Route) {
	if a := r.Autocreate; a != nil && a.TTL%time.Second != 0 {
		d.failAt(d.place(&a.TTL, &r.Autocreate), "autocreate.ttl must be in whole seconds, as memcached has them, not %s", short(a.TTL))
	}
	b := r.Buffer
	switch {
	case b == nil:
	case r.Preset == presetSessions:
		d.failAt(d.place(&r.Buffer), "buffer has no place beside preset: sessions: what must not be lost does not wait in one process")
	case b.Every > b.Keep:
		d.failAt(d.place(&b.Keep, &b.Every, &r.Buffer), "buffer: every (%s) must not be more than keep (%s): increments would be given up before the server is asked once more", short(b.Every), short(b.Keep))
	}
}

// checkTotal rejects a deadline_total of a route that is shorter than the pool's deadline.
func (d *document) checkTotal(f *File, r *Route) {
	for _, name := range r.to() {
		if p := f.pool(name); p != nil && r.Total != nil && *r.Total > 0 {
			atMost(d, d.place(&r.Total), "pools."+name+".timeouts", "deadline", p.Timeouts.Deadline, "deadline_total of the route", *r.Total)
		}
	}
}

// expression matches what occurs in regular expressions, but hardly in keys.
var expression = regexp.MustCompile(`^\^|\$$|\.\*|\.\+|\\[dwsbDWS.]|\[[^\]]*-[^\]]*\]|\([^)]*\|[^)]*\)`)

// checkKeys rejects prefixes and patterns that no key can match.
func (d *document) checkKeys(f *File, r *Route) {
	at := d.place(&r.Match, &r.Prefix, r)
	if strings.Contains(r.Prefix, "*") {
		d.warn(at, "a * in prefix is an ordinary character: for any bytes, write match: %s", quote(strings.TrimRight(r.Prefix, "*")+"*"))
	}
	if expression.MatchString(r.Match) {
		d.warn(at, "match is not a regular expression: in it, only * has a meaning, which is any bytes; all other characters are ordinary")
	}
	if r.begins(divert.Reserved) {
		d.failAt(at, "keys that begin with %s are reserved for Ringside: clients can't use them, so no route takes them", divert.Reserved)
	} else if r.Strip && len(r.Prefix) == f.Limits.Key {
		d.failAt(at, "no key has anything left behind this prefix of %d bytes, the most that a key can have", len(r.Prefix))
	}
}

func (d *document) checkPool(p *Pool) {
	d.checkServers(p)
	d.checkPlacement(p)
	d.checkPoolTLS(p)
	d.checkPoolAuth(p)
	if p.Timeouts != d.defaults.Timeouts {
		d.checkTimeouts(p, "pools."+p.Name)
	}
	if p.Backoff != d.defaults.Backoff {
		d.checkBackoff(p, "pools."+p.Name)
	}
}

func (d *document) checkTimeouts(p *Pool, path string) {
	t := &p.Timeouts
	atMost(d, d.place(&t.Deadline, &t.Request, p), path+".timeouts", "request", t.Request, "deadline", t.Deadline)
	if t.Total > 0 {
		atMost(d, d.place(&t.Total, &t.Deadline, p), path+".timeouts", "deadline", t.Deadline, "deadline_total", t.Total)
	}
}

func (d *document) checkBackoff(p *Pool, path string) {
	b := &p.Backoff
	atMost(d, d.place(&b.Max, &b.First, p), path+".backoff", "first", b.First, "max", b.Max)
}

// checkServers rejects servers with the same name. Several names may have the same address: after
// the loss of a machine, its name can get the address of another machine, and so keeps its points
// on the ring.
func (d *document) checkServers(p *Pool) {
	seen := map[string]*node{}
	for i := range p.Servers {
		s := &p.Servers[i]
		if s.Address.Network == "" {
			continue
		}
		name, at := s.label(), d.place(&s.Name, s)
		if first := seen[name]; first != nil {
			d.failAt(at, "pools.%s has the server %s twice; the first is in line %d", p.Name, quote(name), first.line)
			continue
		}
		seen[name] = at
	}
}

func (d *document) checkLimits(f *File) {
	l := &f.Limits
	at := func(settings ...any) *node { return d.place(append(settings, l)...) }
	atMost(d, at(&l.Memory, &l.OutputHard), "limits", "output_hard", byteCount(l.OutputHard), "memory", byteCount(l.Memory))
	atMost(d, at(&l.Memory, &l.Value), "limits", "value", byteCount(l.Value), "memory", byteCount(l.Memory))
	atMost(d, at(&l.Memory, &l.Line), "limits", "line", byteCount(l.Line), "memory", byteCount(l.Memory))
}

// mostTraces is the largest number of traces that a configuration file may have.
const mostTraces = 4

// checkTraces checks the number of traces and patterns, and that no two traces write the same
// file.
func (d *document) checkTraces(f *File) {
	if len(f.Traces) > mostTraces {
		d.failAt(d.place(&f.Traces[mostTraces]), "there may be %d traces, and here are %d: a trace may have several patterns", mostTraces, len(f.Traces))
	}
	seen := map[string]int{}
	for i := range f.Traces {
		t := &f.Traces[i]
		if len(t.Keys) > watch.MostPatterns {
			d.failAt(d.place(&t.Keys), "traces[%d].keys: %d patterns, and %d may be", i, len(t.Keys), watch.MostPatterns)
		}
		if at, twice := seen[t.File]; twice && t.File != "" {
			d.failAt(d.place(&t.File), "traces[%d].file: traces[%d] writes %s, too: name another file, or give one trace the patterns of both", i, at, t.File)
		}
		for n := 1; n <= t.Keep && t.File != ""; n++ { // reserve the names of this trace's renamed files: another trace would overwrite them
			seen[fmt.Sprint(t.File, ".", n)] = i
		}
		seen[t.File] = i
	}
}
