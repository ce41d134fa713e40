package fleet

// Clients of a guarded route rebuild values that they miss. The judge checks that they
// do so one at a time, and that they read correct values.

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"ringside/proxy/table"
)

// herd describes a guarded route and the behavior of its clients.
type herd struct {
	table.GuardSettings
	takes int64 // maximum duration of a rebuild
	lives int   // lifetime of values in seconds; 0: unlimited

	shares   bool // the set of a rebuild uses any connection of its proxy
	tickets  int  // number of remembered misses; 0: all
	threads  int  // number of apps that share a connection, like threads; 0: each has its own
	yields   bool // a client disconnects after its wait has timed out
	writers  bool // every third client stores values without a miss, and does not read
	dies     bool // some clients disconnect during a rebuild
	alone    bool // promise: no two rebuilds at once, except in unavoidable cases
	unbound  bool // late sets may be stored, so old values are not checked
	tagged   bool // values have tags, which clients invalidate
	prefixed bool // the route gives all keys one more tag
	equal    bool // servers give the same cas numbers for the same keys
}

// rebuild is a client's rebuild, from its miss to the answer to its set.
type rebuild struct {
	by    *app
	key   *fkey
	asked int64 // when the get that missed was sent
	read  int64 // when the origin was read
	due   int64 // when the set is sent
	late  bool  // its get was held for the maximum time, or gets are not held
}

// change is an acknowledged change of the origin.
type change struct {
	from, acked int64
	w           *fwrite // a removal, or a stored value
}

// age returns when the value of w was last current; 0: it may still be.
func (w *fwrite) age() int64 {
	if w.read != 0 {
		return w.read
	}
	return w.answered
}

// outdates reports whether w is old after c. Of two sets through one instance the later
// one wins, as in memcached, so these never outdate each other.
func (c *change) outdates(w *fwrite) bool {
	return w.age() != 0 && w.age() < c.from && (c.w.by != w.by || w.by == nil || c.w.removes)
}

// want requests a value and rebuilds it if it is missing.
func (a *app) want() *op {
	if h := a.f.herd; h.writers && a.id%3 == 2 {
		return a.put()
	}
	o := a.get()
	o.wants = true
	return o
}

// wantToken is want by a client that must never get an old value.
func (a *app) wantToken() *op {
	o := a.want()
	if o.wants {
		o.text = append([]byte("gets"), o.text[len("get"):]...)
		o.strict = true
	}
	return o
}

// wantMany requests several keys, and rebuilds one of them if all are missing.
func (a *app) wantMany() *op {
	o := a.want()
	if o.wants {
		for range 1 + a.f.rand.IntN(3) {
			k := a.anyValue()
			if !slices.Contains(o.keys, k) {
				o.keys = append(o.keys, k)
				o.text = fmt.Appendf(o.text[:len(o.text)-2], " %s\r\n", k.name)
			}
		}
	}
	return o
}

// put stores a value without a miss, if the app is a writer.
func (a *app) put() *op {
	if h := a.f.herd; !h.writers || a.id%3 != 2 {
		return a.want()
	}
	return a.keepFor(a.store(a.anyValue(), "set"))
}

// keepFor adds the lifetime of values to the request o.
func (a *app) keepFor(o *op) *op {
	until := int64(a.f.herd.lives)
	if a.id%3 == 1 && until > 0 { // as an absolute time
		until += epoch + a.f.now/second
	}
	o.text = []byte(strings.Replace(string(o.text), " 0 0 ", fmt.Sprintf(" 0 %d ", until), 1))
	return o
}

// touch removes the expiry of a value.
func (a *app) touch() *op {
	k := a.anyValue()
	return &op{kind: "line", keys: []*fkey{k}, text: fmt.Appendf(nil, "touch %s 0\r\n", k.name)}
}

// appendNothing replaces the item of a value by one with the same bytes.
func (a *app) appendNothing() *op {
	k := a.anyValue()
	return &op{kind: "line", keys: []*fkey{k}, text: fmt.Appendf(nil, "append %s 0 0 0\r\n\r\n", k.name)}
}

// bypass removes the expiry of a value directly on the servers.
func (a *app) bypass() *op {
	k := a.anyValue()
	for _, n := range a.f.nodes {
		if n.up && !n.hung {
			n.store.Line().Do([]byte("touch " + k.name + " 0\r\n"))
		}
	}
	return a.want()
}

// prefixTag is the tag of all keys of a herd with the field prefixed.
const prefixTag = "all"

// tag returns the name of the tag of a key.
func (k *fkey) tag() string { return "t" + k.name[len(k.name)-1:] }

// invalidate invalidates a tag.
func (a *app) invalidate() *op {
	tag, all := a.anyValue().tag(), a.f.herd.prefixed && a.f.one(4)
	if all {
		tag = prefixTag
	}
	o := &op{kind: "invalidate", text: fmt.Appendf(nil, "delete tag:%s\r\n", tag)}
	for _, k := range a.f.values {
		if all || k.tag() == tag {
			o.keys = append(o.keys, k)
		}
	}
	return o
}

// working returns the next request of an app that rebuilds. Sometimes this is another
// get of the key, and at the end the set. It returns nil if there is nothing to send
// yet.
func (a *app) working() *op {
	r, f := a.work, a.f
	switch {
	case f.now >= r.due:
		return a.fill(r)
	case f.one(8):
		return &op{kind: "values", wants: true, keys: []*fkey{r.key}, text: fmt.Appendf(nil, "get %s\r\n", r.key.name)}
	}
	return nil
}

// fill returns the set of a rebuild.
func (a *app) fill(r *rebuild) *op {
	o := a.keepFor(a.store(r.key, "set"))
	o.w.read, o.w.shared, o.rebuild = r.read, len(a.conn.apps) > 1 || a.f.herd.OnlyAfterMiss, r
	return o
}

// tend continues after an answer, as applications do.
func (a *app) tend(o *op, line string, failed bool) {
	f := a.f
	switch {
	case o.w != nil && o.rebuild == nil:
		o.w.key.touched = f.now
		o.w.key.writing--
	case o.rebuild != nil:
		if a.work == o.rebuild {
			a.work = nil
		}
		f.over(o.rebuild)
	case o.wants && !failed && line == "END" && a.work != nil: // the key is still missing
		a.work.read = f.now
	case o.wants && !failed && a.work != nil: // it has got a value, and does not set another one
		a.giveUp()
	case o.wants && !failed && line == "END":
		late := f.now-o.invoked >= int64(f.herd.Wait)*9/10 || !a.s.holds()
		if late && f.herd.yields {
			a.hangUp()
		} else {
			f.begin(&rebuild{by: a, key: o.keys[0], asked: o.invoked, read: f.now, due: f.now + f.upTo(f.herd.takes), late: late})
		}
	}
}

// begin starts a rebuild after a miss.
func (f *fleet) begin(r *rebuild) {
	a, k := r.by, r.key
	for _, o := range k.rebuilds {
		if f.herd.alone && !r.late && !o.late && k.writing == 0 && k.touched < o.asked &&
			f.now-o.asked < int64(f.herd.Lease)-second {
			f.harmed(herded, k.name, "a%d p%d is to rebuild %s, which a%d rebuilds since %.4f", a.id, a.s.id, k.name, o.by.id, sec(o.asked))
		}
	}
	k.rebuilds = append(k.rebuilds, r)
	life := a.s.life
	switch {
	case f.herd.dies && f.one(6):
		a.work = r
		f.at(f.now+f.upTo(f.herd.takes), func() {
			if a.work == r && a.op == nil && a.link != nil {
				a.hangUp()
			}
		})
		r.due = f.now + f.herd.takes
	case f.herd.shares:
		f.at(r.due, func() {
			if life != a.s.life || a.s.dead || f.quiet { // it ended with the proxy
				f.over(r)
				return
			}
			b := f.apps[a.s.id*f.scenario.apps+f.rand.IntN(f.scenario.apps)]
			b.todo = append(b.todo, func() *op {
				if life != b.s.life { // the new process does not know the miss
					f.over(r)
					return b.want()
				}
				return b.fill(r)
			})
		})
	default:
		a.work = r
	}
}

// holds reports whether gets are held. They are not if most rebuilt values are not
// stored.
func (s *sidecar) holds() bool {
	for _, g := range s.p.Guards() {
		if !g.Holds() {
			return false
		}
	}
	return true
}

// lease returns how long a rebuild may take now, as the sidecar has learned. A fleet has one
// guarded route.
func (s *sidecar) lease() int64 {
	lease := s.f.herd.Lease
	for _, g := range s.p.Guards() {
		lease = max(lease, g.Lease(lease))
	}
	return int64(lease)
}

// overdue reports whether w, which a server stores now, is a rebuild that shares its misses with
// other threads and took longer than the lease. Nothing is promised for it: if another thread has missed the key in
// between, the guard takes the set for that of the other thread.
func (f *fleet) overdue(w *fwrite) bool {
	return w.read != 0 && w.shared && w.by.clock(f.now)-w.by.clock(w.read) > w.by.lease()
}

// over records the end of a rebuild.
func (f *fleet) over(r *rebuild) {
	r.key.rebuilds = slices.DeleteFunc(r.key.rebuilds, func(o *rebuild) bool { return o == r })
}

// giveUp abandons the app's rebuild.
func (a *app) giveUp() {
	if r := a.work; r != nil {
		a.work = nil
		a.f.over(r)
	}
}

// hangUp closes the app's connection. The next request opens a new one.
func (a *app) hangUp() {
	a.f.note("", "a%d p%d closes its connection", a.id, a.s.id)
	l, d := a.link, a.d
	l.Sock = nil
	d.input(func() { d.e.Closed(l, errReset) })
	a.conn.ended()
}

// judgeAge checks whether a value that was read is older than an acknowledged change.
// This is allowed after a delete while old values are served. It is not allowed after a
// set, or for a client that requests a token.
func (a *app) judgeAge(o *op, i int, w *fwrite) {
	f, k := a.f, o.keys[i]
	leaving := w.read == 0 && !w.acked && f.now <= w.answered+f.grace // its late delete is in flight
	if s := k.stood; s != nil && w != s && f.herd.Stale == 0 && w.answered != 0 && w.answered < s.invoked && s.answered < o.invoked && !leaving {
		f.harmed(lost, k.name, "a%d p%d reads %.20q of %s, though %.20q was stored after it and acknowledged at %.4f", a.id, a.s.id, w.value, k.name, s.value, sec(s.answered))
	}
	if f.herd.unbound {
		return
	}
	for _, c := range k.changes {
		switch {
		case c.acked >= o.invoked || !c.outdates(w), c.from < w.overdue:
			continue
		case !o.strict && (c.w.removes || !c.w.kept) && f.herd.Stale > 0 && o.invoked <= c.acked+int64(f.herd.Stale+2*time.Second):
			return
		case leaving:
			return
		}
		safe := f.calmly(w.age(), w.answered) && f.calmly(w.answered, f.now)
		f.isStale(safe, k, "a%d p%d reads %.20q of %s, true at %.4f (acknowledged: %v), though it was changed at %.4f, and that was acknowledged at %.4f",
			a.id, a.s.id, w.value, k.name, sec(w.age()), w.acked, sec(c.from), sec(c.acked))
		return
	}
}

// judgeStored checks whether a miss is allowed. An acknowledged value must not be
// missed, unless it may have expired or been deleted since.
func (a *app) judgeStored(o *op, k *fkey) {
	f, w := a.f, k.stood
	if f.herd == nil || w == nil || f.scenario.faults[0] != "nothing" || f.herd.Early > 0 || f.herd.lives == 0 || f.ablate.any() && f.ablate.spoiled == "" {
		return
	}
	if w.answered < o.invoked && k.removing == 0 && k.removed < w.invoked && f.now < w.invoked+int64(f.herd.lives-1)*second {
		f.harmed(lost, k.name, "a%d p%d misses %s, of which %.20q was acknowledged at %.4f", a.id, a.s.id, k.name, w.value, sec(w.answered))
	}
}

// replaces records that a server has stored a value. It also checks that no rebuild's value is
// stored if an acknowledged change has outdated it.
func (f *fleet) replaces(request []byte, answer string) {
	if f.herd == nil {
		return
	}
	line, body, _ := strings.Cut(string(request), "\r\n")
	if !strings.HasPrefix(line, "ms ") || !strings.HasPrefix(answer, "HD") || !strings.HasPrefix(body, "w") {
		return
	}
	id, _, _ := strings.Cut(body[1:], ".")
	n, err := strconv.Atoi(id)
	if err != nil || n >= len(f.writes) {
		return
	}
	w := f.writes[n]
	if !w.kept && f.overdue(w) {
		w.overdue = f.now
	}
	w.kept = true
	for _, c := range w.key.changes {
		if f.exact && f.calm && !f.herd.unbound && w.read != 0 && w.overdue == 0 && c.outdates(w) {
			f.harmed(stale, w.key.name, "%.20q is stored, read at %.4f, though it was changed at %.4f, and that was acknowledged at %.4f", body, sec(w.read), sec(c.from), sec(c.acked))
		}
	}
}

// win is the last stub that a server has created for a key.
type win struct {
	by  *node
	cas int
}

var winning = regexp.MustCompile(`^VA 0 .*\bc(\d+).* W`)

// wins records the stubs that servers create.
func (f *fleet) wins(n *node, request, answer []byte) {
	if f.herd == nil || !f.herd.equal {
		return
	}
	if m := winning.FindSubmatch(answer); m != nil {
		cas, _ := strconv.Atoi(string(m[1]))
		f.won[keyIn(request)] = win{n, cas}
	}
}

// coincide makes a server use the same cas number for a stub as another server used for
// its stub of the same key. This simulates writes by other clients in between.
func (n *node) coincide(request []byte) {
	if f := n.f; f.herd != nil && f.herd.equal && vivifies.Match(request) {
		if w := f.won[keyIn(request)]; w.by != nil && w.by != n {
			for n.cas() < w.cas-1 {
			}
		}
	}
}

// endure checks that no stub without expiry stays on the servers, because clients would
// wait for it forever. It first sends gets for all keys, so that the guard can notice
// stubs with an expiry that was removed by touch.
func (f *fleet) endure() {
	if f.herd == nil {
		return
	}
	for end := f.now + 4*int64(f.herd.Lease); f.now < end && f.broken == ""; {
		for i, s := range f.sidecars {
			a := f.apps[i*f.scenario.apps]
			if s.dead || len(a.todo) > 0 {
				continue
			}
			for _, k := range f.values {
				a.todo = append(a.todo, func() *op {
					return &op{kind: "values", keys: []*fkey{k}, text: fmt.Appendf(nil, "get %s\r\n", k.name)}
				})
			}
			a.next()
		}
		f.run(f.now + second)
	}
	f.run(f.now + 2*int64(f.herd.LeaseMax))
	for _, n := range f.nodes {
		for _, k := range f.values {
			if n.up && strings.HasPrefix(string(n.store.Line().Do([]byte("mg "+k.name+" s f t\r\n"))), "HD s0 f0 t-1") {
				f.harmed(forever, k.name, "a stub of %s stays on %s", k.name, n.name)
			}
		}
	}
}
