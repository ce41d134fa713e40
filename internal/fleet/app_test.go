package fleet

// The fleet's clients: each sends one request after the other to its proxy.

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"ringside/proxy/link"
)

const (
	// Half of all requests use a few hot keys, the others many cold keys. Only cold
	// keys keep values that an outage has left on a server.
	hotKeys     = 5
	counterKeys = 3
	lockKeys    = 2
)

// app is one client.
type app struct {
	f  *fleet
	id int
	s  *sidecar
	at int // index of the engine it uses
	*conn
	op *op // request without an answer; nil: none

	todo   []func() *op // requests to send before random ones
	proofs int          // requests at the end that must succeed
	tokens map[*fkey]casToken
	held   *fkey // the lock that it has; nil: none
	until  int64 // when it releases the lock
	hangs  bool  // it has disconnected for good
	work   *rebuild
}

// conn is a connection. Several apps may share it, like threads of a process. A request
// is then sent before other threads have their replies.
type conn struct {
	d     *driver
	link  *link.Link
	got   []byte
	apps  []*app
	asked []*app // apps with requests in flight, in order
}

// casToken is the result of a gets.
type casToken struct {
	n  string
	at int64
}

// op is one request and the expected answers.
type op struct {
	kind    string // selects the check of the answer: see done
	text    []byte
	keys    []*fkey
	floors  []int64 // floors of the keys when it was sent
	kepts   []int64
	calms   []int64
	acks    []int64 // when the writes that set the floors were acknowledged
	w       *fwrite
	token   casToken
	count   uint64 // highest known number of a counter when it was sent
	gen     int    // generation of a lock
	part    *part  // the appended part
	wants   bool   // a missing value is rebuilt
	strict  bool   // old values are wrong answers
	rebuild *rebuild
	invoked int64
	must    func(ok bool)     // called with whether it was carried out
	told    func(line string) // called with the answer
}

func (f *fleet) newApp(s *sidecar, j int) *app {
	threads := 1
	if f.herd != nil {
		threads = max(f.herd.threads, 1)
	}
	a := &app{f: f, id: len(f.apps), s: s, at: j / threads % f.engines, tokens: map[*fkey]casToken{}, conn: &conn{}}
	if j%threads > 0 {
		a.conn = f.apps[a.id-1].conn
	}
	a.conn.apps = append(a.conn.apps, a)
	if a.id == 0 && f.locks {
		for _, k := range f.counters {
			a.todo = append(a.todo, a.create(k, "0"))
		}
	}
	if a.id == 0 {
		for _, k := range f.logged {
			a.todo = append(a.todo, a.create(k, logHead))
		}
	}
	a.think()
	return a
}

func (c *conn) Peer() string { return fmt.Sprintf("a%d", c.apps[0].id) }

// Unread implements link.Sock.
func (c *conn) Unread() int { return 0 }

func (c *conn) Unsent() int { return 0 }

func (a *app) think() {
	a.f.after(a.f.pace/2+a.f.upTo(a.f.pace), a.next)
}

// next sends a request.
func (a *app) next() {
	f := a.f
	switch {
	case a.op != nil || a.hangs:
		return
	case a.s.dead || a.s.paused && a.link == nil:
		a.think()
		return
	}
	var o *op
	switch {
	case a.work != nil:
		if o = a.working(); o == nil {
			a.think()
			return
		}
	case len(a.todo) > 0:
		o = a.todo[0]()
		a.todo = a.todo[1:]
	case f.quiet:
		return
	default:
		o = a.choose()
	}
	a.op = o
	o.invoked = f.now
	for _, k := range o.keys {
		o.floors = append(o.floors, k.floor)
		o.kepts = append(o.kepts, k.kept)
		o.calms = append(o.calms, k.calm)
		o.acks = append(o.acks, k.acked)
	}
	if o.w != nil {
		o.w.invoked, o.w.by = f.now, a.s
		o.w.key.change(f, o.w.removes)
		if o.w.removes {
			o.w.key.removing++
			o.w.key.removed = f.now
		}
		if o.rebuild == nil {
			o.w.key.writing++
			o.w.key.touched = f.now
		}
	}
	if o.kind == "invalidate" {
		for _, k := range o.keys {
			k.removing++
			k.removed = f.now
		}
	}
	f.asked++
	if f.traced {
		f.note(o.about(), "a%d p%d asks %.60q", a.id, a.s.id, o.text)
	}
	f.after(f.bound(), func() { a.late(o) })
	d := a.s.drivers[a.at]
	d.input(func() {
		if a.op != o || d.dead {
			return
		}
		if a.link == nil {
			a.d = d
			a.link = d.e.Accepted("tcp", "here", a.conn)
		}
		a.asked = append(a.asked, a)
		d.e.Bytes(a.link, o.text)
	})
}

func (o *op) about() string {
	if len(o.keys) == 1 {
		return o.keys[0].name
	}
	if len(o.keys) > 1 {
		return "-"
	}
	return ""
}

// late checks at the deadline that the answer has arrived. A proxy that did not run for
// a while gets more time.
func (a *app) late(o *op) {
	f := a.f
	switch {
	case a.op != o || a.s.dead:
	case a.s.paused:
		f.after(f.bound(), func() { a.late(o) })
	case f.now < a.s.resumed+f.bound():
		f.at(a.s.resumed+f.bound(), func() { a.late(o) })
	default:
		f.wrong(o.about(), "a%d p%d has no answer to %.60q after %d ms", a.id, a.s.id, o.text, (f.now-o.invoked)/milli)
	}
}

// ended records the end of the connection.
func (c *conn) ended() {
	c.link, c.d, c.got, c.asked = nil, nil, nil, nil
	for _, a := range c.apps {
		a.cutOff()
	}
}

// cutOff records that the app's connection has ended.
func (a *app) cutOff() {
	if a.giveUp(); a.op != nil {
		a.done("the connection ended")
	}
	if k := a.held; k != nil && a.s.dead {
		a.held = nil
		if k.holder == a {
			a.f.retire(k)
		}
	}
}

// leave disconnects for good.
func (a *app) leave() {
	a.hangs = true
	if l, d := a.link, a.d; l != nil {
		a.link, l.Sock, a.asked = nil, nil, nil
		d.input(func() { d.e.Closed(l, errReset) })
	}
}

// choose returns a random request.
func (a *app) choose() *op {
	f := a.f
	if k := a.held; k != nil && k.holder != a { // the lock has been renamed
		a.held = nil
	} else if k != nil && f.now >= a.until {
		a.held, k.holder = nil, nil
		return &op{kind: "unlock", text: fmt.Appendf(nil, "delete %s\r\n", k.name), keys: []*fkey{k}}
	}
	if f.asks != nil {
		return f.asks[f.rand.IntN(len(f.asks))](a)
	}
	k, cold := f.values[f.rand.IntN(hotKeys)], false
	if f.one(2) {
		k, cold = f.values[hotKeys+f.rand.IntN(f.cold)], true
	}
	draw := f.rand.IntN(40)
	if cold && draw < 14 && f.one(2) {
		draw = 39
	}
	if f.prunes && f.one(4) {
		draw = 11
	}
	switch {
	case draw < 8:
		return a.store(k, "set")
	case draw < 9:
		return a.store(k, [...]string{"add", "replace"}[f.rand.IntN(2)])
	case draw < 10:
		w := f.newWrite(k)
		return &op{kind: "line", w: w, keys: []*fkey{k}, text: fmt.Appendf(nil, "ms %s %d\r\n%s\r\n", k.name, len(w.value), w.value)}
	case draw < 11:
		if t, ok := a.tokens[k]; ok {
			delete(a.tokens, k)
			w := f.newWrite(k)
			return &op{kind: "line", w: w, token: t, keys: []*fkey{k}, text: fmt.Appendf(nil, "cas %s 0 0 %d %s\r\n%s\r\n", k.name, len(w.value), t.n, w.value)}
		}
		return a.getsOf(k)
	case draw < 13:
		return &op{kind: "line", w: f.newRemoval(k), keys: []*fkey{k}, text: fmt.Appendf(nil, f.ablate.removal(), k.name)}
	case draw < 14:
		if f.one(2) {
			return &op{kind: "line", keys: []*fkey{k}, text: fmt.Appendf(nil, "touch %s 0\r\n", k.name)}
		}
		return &op{kind: "line", w: f.newRemoval(k), keys: []*fkey{k}, text: fmt.Appendf(nil, f.ablate.removal(), k.name)}
	case draw < 15:
		return a.count()
	case draw < 16 && f.locks && a.held == nil:
		return a.lock()
	case draw < 18:
		o := &op{kind: "values", text: []byte("get")}
		for range 2 + f.rand.IntN(4) {
			k := f.values[f.rand.IntN(len(f.values))]
			o.keys = append(o.keys, k)
			o.text = append(append(o.text, ' '), k.name...)
		}
		o.text = append(o.text, "\r\n"...)
		return o
	case draw < 20:
		return &op{kind: "line", text: fmt.Appendf(nil, "mg %s v\r\n", k.name), keys: []*fkey{k}}
	case draw < 21:
		return a.gatOf(k)
	case draw < 23:
		return a.getsOf(k)
	}
	return &op{kind: "values", text: fmt.Appendf(nil, "get %s\r\n", k.name), keys: []*fkey{k}}
}

func (a *app) store(k *fkey, command string) *op {
	w, name := a.f.newWrite(k), k.name
	if a.f.herd != nil && a.f.herd.tagged {
		name += ";tags=" + k.tag()
	}
	return &op{kind: "line", w: w, keys: []*fkey{k}, text: fmt.Appendf(nil, "%s %s 0 0 %d\r\n%s\r\n", command, name, len(w.value), w.value)}
}

func (a *app) count() *op {
	k := a.f.counters[a.f.rand.IntN(counterKeys)]
	if !k.made && a.f.locks {
		return a.store(a.f.values[0], "set")
	}
	if !k.made {
		return &op{kind: "make", text: fmt.Appendf(nil, "add %s 0 0 1\r\n0\r\n", k.name), keys: []*fkey{k}}
	}
	return &op{kind: "count", text: fmt.Appendf(nil, "incr %s 1\r\n", k.name), keys: []*fkey{k}, count: k.count}
}

// create returns a function that creates a counter or a journal, and repeats this until
// it succeeds.
func (a *app) create(k *fkey, value string) func() *op {
	return func() *op {
		return &op{kind: "line", text: fmt.Appendf(nil, "set %s 0 0 %d\r\n%s\r\n", k.name, len(value), value), keys: []*fkey{k}, must: func(ok bool) {
			if k.made = ok; !ok {
				a.todo = append(a.todo, a.create(k, value))
			} else if k.log {
				k.kept = a.f.now
			}
		}}
	}
}

func (a *app) lock() *op {
	k := a.f.locked[a.f.rand.IntN(lockKeys)]
	return &op{kind: "lock", gen: k.gen, text: fmt.Appendf(nil, "add %s 0 0 1\r\nL\r\n", k.name), keys: []*fkey{k}}
}

// flush empties all servers.
func (a *app) flush() *op {
	a.f.flushing = a.f.now + a.f.bound() + 2*slowed
	return &op{kind: "flush", text: []byte("flush_all\r\n"), keys: a.f.values}
}

// prove uses every server once. Its writes must be acknowledged and readable.
func (a *app) prove() {
	for i := range 2 * a.f.servers {
		k := &fkey{name: fmt.Sprintf("proof%d.%d", a.id, i)}
		w := a.f.newWrite(k)
		must := func(ok bool) {
			a.proofs--
			if !ok {
				a.f.wrong(k.name, "a%d p%d is not served though nothing is wrong any more", a.id, a.s.id)
			}
		}
		a.proofs += 2
		if a.f.herd != nil && a.f.herd.OnlyAfterMiss {
			a.todo = append(a.todo, func() *op {
				return &op{kind: "values", keys: []*fkey{k}, text: fmt.Appendf(nil, "get %s\r\n", k.name)}
			})
		}
		a.todo = append(a.todo,
			func() *op {
				return &op{kind: "line", w: w, keys: []*fkey{k}, must: must,
					text: fmt.Appendf(nil, "set %s 0 0 %d\r\n%s\r\n", k.name, len(w.value), w.value)}
			},
			func() *op {
				return &op{kind: "values", keys: []*fkey{k}, must: must, text: fmt.Appendf(nil, "get %s\r\n", k.name)}
			})
	}
	for _, k := range a.f.locked {
		if a.id == 0 && a.f.locks && a.f.calm && k.free {
			a.proofs++
			a.todo = append(a.todo, func() *op {
				return &op{kind: "line", keys: []*fkey{k}, w: a.f.newWrite(k), text: fmt.Appendf(nil, "add %s 0 0 1\r\nL\r\n", k.name), must: func(ok bool) {
					if a.proofs--; !ok {
						a.f.harmed(ghost, k.name, "a%d p%d doesn't get the lock %s, which was given back", a.id, a.s.id, k.name)
					}
				}}
			})
		}
	}
	a.next()
}

// hears processes bytes from the engine.
func (c *conn) hears(b []byte) {
	c.got = append(c.got, b...)
	for len(c.got) > 0 {
		if len(c.asked) == 0 {
			a := c.apps[0]
			a.f.wrong("", "a%d gets %.60q, which it has not asked for", a.id, c.got)
			return
		}
		a := c.asked[0]
		size := a.op.size(c.got)
		if size < 0 {
			return
		}
		answer := string(c.got[:size])
		c.got, c.asked = c.got[size:], c.asked[1:]
		a.done(answer)
	}
}

// size returns the size of the answer at the start of b, or -1 if it is incomplete.
func (o *op) size(b []byte) int {
	for at := 0; ; {
		end := bytes.Index(b[at:], []byte("\r\n"))
		if end < 0 {
			return -1
		}
		line := string(b[at : at+end])
		at += end + 2
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != "VALUE" && f[0] != "VA" {
			return at
		}
		n, _ := strconv.Atoi(f[1])
		if f[0] == "VALUE" {
			n, _ = strconv.Atoi(f[3])
		}
		at += n + 2
		if at > len(b) {
			return -1
		}
		if f[0] == "VA" {
			return at
		}
	}
}
