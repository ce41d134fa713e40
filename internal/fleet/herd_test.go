package fleet

// Clients of a guarded route: they rebuild what they miss, and the judge sees
// whether they do it one at a time, and whether what they read was true.

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"ringside/proxy/table"
)

// herd is a guarded route and how its clients behave.
type herd struct {
	table.Guard
	takes int64 // what a rebuild takes at most
	lives int   // how long values live, in seconds; 0: for ever

	shares  bool // the set of a rebuild comes on any connection of its proxy
	tickets int  // so many misses are remembered; 0: all
	threads int  // so many apps share a connection, as threads do; 0: each has its own
	yields  bool // whose wait is over goes away
	writers bool // every third client stores what nobody has missed, and reads nothing
	dies    bool // some go away while they rebuild
	alone   bool // no two rebuild at once, but where that is nobody's fault
	unbound bool // late sets may be stored: nothing is said of what is old
	equal   bool // the cas numbers of servers come to be the same for the same keys
}

// rebuild is a client between its miss and the answer to its set.
type rebuild struct {
	by    *app
	key   *fkey
	asked int64 // when the get was that has missed
	read  int64 // when the origin was read
	due   int64 // when its set comes
	late  bool  // its get was held for as long as that may be, or no get is
}

// change is a change of the origin that was acknowledged.
type change struct {
	from, acked int64
	w           *fwrite // a removal, or what was stored
}

// age is when what w stores was true last; 0: it still may be.
func (w *fwrite) age() int64 {
	if w.read != 0 {
		return w.read
	}
	return w.answered
}

// outdates says that w is old for c: but of two sets through one Ringside the last
// wins, as on a memcached.
func (c *change) outdates(w *fwrite) bool {
	return w.age() != 0 && w.age() < c.from && (c.w.by != w.by || w.by == nil || c.w.removes)
}

// want asks for what it rebuilds if it is missing.
func (a *app) want() *op {
	if h := a.f.herd; h.writers && a.id%3 == 2 {
		return a.put()
	}
	o := a.get()
	o.wants = true
	return o
}

// wantToken is want by a client that is never to get an old value.
func (a *app) wantToken() *op {
	o := a.want()
	if o.wants {
		o.text = append([]byte("gets"), o.text[len("get"):]...)
		o.strict = true
	}
	return o
}

// wantMany asks for several keys, and rebuilds one of them if all are missing.
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

// put stores without a miss, if the app is one of those that do.
func (a *app) put() *op {
	if h := a.f.herd; !h.writers || a.id%3 != 2 {
		return a.want()
	}
	return a.keepFor(a.store(a.anyValue(), "set"))
}

// keepFor gives what o stores the time that values live here.
func (a *app) keepFor(o *op) *op {
	until := int64(a.f.herd.lives)
	if a.id%3 == 1 && until > 0 { // as a time of day
		until += epoch + a.f.now/second
	}
	o.text = []byte(strings.Replace(string(o.text), " 0 0 ", fmt.Sprintf(" 0 %d ", until), 1))
	return o
}

// touch lets what is there live for ever.
func (a *app) touch() *op {
	k := a.anyValue()
	return &op{kind: "line", keys: []*fkey{k}, text: fmt.Appendf(nil, "touch %s 0\r\n", k.name)}
}

// appendNothing makes another item of a value, with the same bytes.
func (a *app) appendNothing() *op {
	k := a.anyValue()
	return &op{kind: "line", keys: []*fkey{k}, text: fmt.Appendf(nil, "append %s 0 0 0\r\n\r\n", k.name)}
}

// bypass lets something live for ever without a Ringside.
func (a *app) bypass() *op {
	k := a.anyValue()
	for _, n := range a.f.nodes {
		if n.up && !n.hung {
			n.store.Line().Do([]byte("touch " + k.name + " 0\r\n"))
		}
	}
	return a.want()
}

// working is what an app asks that rebuilds: now and then once more for what it
// rebuilds, and in the end its set; nil: nothing yet.
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

// fill is the set of a rebuild.
func (a *app) fill(r *rebuild) *op {
	o := a.keepFor(a.store(r.key, "set"))
	o.w.read, o.rebuild = r.read, r
	return o
}

// tend goes on where an answer is, as applications do.
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
	case o.wants && !failed && line == "END" && a.work != nil: // nobody has it still
		a.work.read = f.now
	case o.wants && !failed && a.work != nil: // it has found a value, and does not set another
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

// begin is when an app is told a miss.
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
				if life != b.s.life { // the proxy knows nothing of it
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

// holds says that gets are held: they are not where most of what is rebuilt isn't stored.
func (s *sidecar) holds() bool {
	for _, g := range s.p.Guards() {
		if !g.Holds() {
			return false
		}
	}
	return true
}

// over is when a rebuild has ended, however.
func (f *fleet) over(r *rebuild) {
	r.key.rebuilds = slices.DeleteFunc(r.key.rebuilds, func(o *rebuild) bool { return o == r })
}

// giveUp ends what the app was to rebuild.
func (a *app) giveUp() {
	if r := a.work; r != nil {
		a.work = nil
		a.f.over(r)
	}
}

// hangUp closes its connection. The next request opens another one.
func (a *app) hangUp() {
	a.f.note("", "a%d p%d closes its connection", a.id, a.s.id)
	l, d := a.link, a.d
	l.Sock = nil
	d.input(func() { d.e.Closed(l, errReset) })
	a.conn.ended()
}

// judgeAge looks whether a value that was read is older than what was acknowledged
// before. It may be for as long as old values are served after the first delete, but not behind
// a set, and not where a client asks for a token.
func (a *app) judgeAge(o *op, i int, w *fwrite) {
	f, k := a.f, o.keys[i]
	leaving := w.read == 0 && !w.acked && f.now <= w.answered+f.grace // its late delete is on its way
	if s := k.stood; s != nil && w != s && f.herd.Stale == 0 && w.answered != 0 && w.answered < s.invoked && s.answered < o.invoked && !leaving {
		f.harmed(lost, k.name, "a%d p%d reads %.20q of %s, though %.20q was stored after it and acknowledged at %.4f", a.id, a.s.id, w.value, k.name, s.value, sec(s.answered))
	}
	if f.herd.unbound {
		return
	}
	for _, c := range k.changes {
		switch {
		case c.acked >= o.invoked || !c.outdates(w):
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

// judgeStored looks whether a value may be missed: not if it was acknowledged, unless it may
// have expired, or may have been deleted since.
func (a *app) judgeStored(o *op, k *fkey) {
	f, w := a.f, k.stood
	if f.herd == nil || w == nil || f.scenario.faults[0] != "nothing" || f.herd.Early > 0 || f.herd.lives == 0 || f.ablate.any() && f.ablate.spoiled == "" {
		return
	}
	if w.answered < o.invoked && k.removing == 0 && k.removed < w.invoked && f.now < w.invoked+int64(f.herd.lives-1)*second {
		f.harmed(lost, k.name, "a%d p%d misses %s, of which %.20q was acknowledged at %.4f", a.id, a.s.id, k.name, w.value, sec(w.answered))
	}
}

// replaces looks whether a server stores what is older than what it was told to keep.
func (f *fleet) replaces(request []byte, answer string) {
	line, body, _ := strings.Cut(string(request), "\r\n")
	if f.herd == nil || !strings.HasPrefix(line, "ms ") || !strings.HasPrefix(answer, "HD") || !strings.HasPrefix(body, "w") {
		return
	}
	id, _, _ := strings.Cut(body[1:], ".")
	n, err := strconv.Atoi(id)
	if err != nil || n >= len(f.writes) {
		return
	}
	w := f.writes[n]
	w.kept = true
	for _, c := range w.key.changes {
		if f.exact && f.calm && !f.herd.unbound && w.read != 0 && c.outdates(w) {
			f.harmed(stale, w.key.name, "%.20q is stored, read at %.4f, though it was changed at %.4f, and that was acknowledged at %.4f", body, sec(w.read), sec(c.from), sec(c.acked))
		}
	}
}

// win is the stub that a server has made of a key last.
type win struct {
	by  *node
	cas int
}

var winning = regexp.MustCompile(`^VA 0 .*\bc(\d+).* W`)

// wins notes the stubs that servers make.
func (f *fleet) wins(n *node, request, answer []byte) {
	if m := winning.FindSubmatch(answer); f.herd != nil && f.herd.equal && m != nil {
		cas, _ := strconv.Atoi(string(m[1]))
		f.won[keyIn(request)] = win{n, cas}
	}
}

// coincide lets a server give the stub that it is about to make the cas number that
// another has given to the one of the same key: others have written there meanwhile.
func (n *node) coincide(request []byte) {
	if f := n.f; f.herd != nil && f.herd.equal && vivifies.Match(request) {
		if w := f.won[keyIn(request)]; w.by != nil && w.by != n {
			for n.cas() < w.cas-1 {
			}
		}
	}
}

// endure looks whether something is left on the servers that keeps clients waiting
// for ever. What was touched is to be noticed by those who ask for it.
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
