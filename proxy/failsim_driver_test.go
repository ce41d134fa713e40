package proxy

// The fleet's proxies: engines, what drives them, and their connections to
// servers as their kernels see them.

import (
	"errors"
	"fmt"
	"time"

	"ringside/internal/memnode"
	"ringside/proxy/health"
)

// sidecar is one proxy process. It can end and be started anew.
type sidecar struct {
	f       *fleet
	id      int
	life    int64
	skew    int64 // of its clock, in thousandths: rates differ by less than a tenth
	dead    bool
	paused  bool  // its threads do not run, its kernel does
	resumed int64 // when it last was

	p       *Proxy
	edition int      // of the configuration that it has
	list    []*watch // of its keepers, in the order of the pools
	gens    uint64   // theirs
	drivers []*driver
}

// clock is what a sidecar's clock says at a time.
func (s *sidecar) clock(at int64) int64 {
	return int64(time.Hour)*int64(s.id+1) + at + at/1000*s.skew
}

// when is the first time at which it says at least that much.
func (s *sidecar) when(clock int64) int64 {
	at := (clock - int64(time.Hour)*int64(s.id+1)) / (1000 + s.skew) * 1000
	for s.clock(at) < clock {
		at += 500
	}
	return at
}

func (s *sidecar) start() {
	f := s.f
	s.life++
	s.dead, s.paused = false, false
	p := NewProxy(&Table{Limits: testLimits()}, "test", s.logger())
	p.Seed = f.seed*1000 + uint64(s.id)*100 + uint64(s.life)
	s.p, s.drivers = p, nil
	s.take()
	for i := range f.engines {
		tune := DefaultTune
		if s.id == 1 {
			tune = Tune{}
		}
		d := &driver{f: f, s: s, id: i, e: p.NewEngine(tune)}
		d.e.Post = func(do func(*Engine)) { d.input(func() { do(d.e) }) }
		s.drivers = append(s.drivers, d)
	}
	for _, d := range s.drivers {
		d.wake()
	}
}

// take brings it the configuration as it is now.
func (s *sidecar) take() {
	s.edition = s.f.edition
	s.p.Swap(s.f.table())
	s.list, s.gens = nil, 0
	for _, pool := range s.p.Table().Pools {
		if w := s.p.live.Load().watches[pool]; w != nil {
			s.list = append(s.list, w)
			s.f.ablate.apply(w.keeper)
		}
	}
}

func (s *sidecar) reload() {
	if s.dead {
		return
	}
	s.count()
	s.take()
	for _, d := range s.drivers {
		d.input(func() {})
	}
	s.f.look()
}

// looked lets the judge look when its keepers have decided something.
func (s *sidecar) looked() {
	gens := uint64(0)
	for _, w := range s.list {
		gens += w.gen.Load()
	}
	if gens != s.gens {
		s.gens = gens
		s.f.look()
	}
}

// die ends the process. What its kernel had not brought to a server is lost,
// and so is what a hung server has not read: that nothing of a dead proxy is
// carried out late is what the protocol assumes.
func (s *sidecar) die() {
	s.count()
	s.dead = true
	for _, row := range s.f.paths[s.id] {
		for _, c := range row.pipes {
			c.over = true
			c.sent, c.rcv, c.back = nil, nil, nil
		}
		row.pipes = nil
	}
	for _, d := range s.drivers {
		d.dead = true
		d.inbox = nil
	}
	for _, a := range s.f.apps {
		if a.s == s {
			a.cutOff()
		}
	}
}

// count adds what its keepers have done to what the run has seen.
func (s *sidecar) count() {
	if s.dead {
		return
	}
	for _, w := range s.list {
		for what, n := range w.events {
			switch what[1] {
			case "OUT":
				s.f.ejected += int(n)
			case "IN":
				s.f.returned += int(n)
			}
		}
	}
}

// pause stops its threads, and resume lets them go on: all that has come
// meanwhile is there at once.
func (s *sidecar) pause() { s.paused = true }

func (s *sidecar) resume() {
	s.paused = false
	s.resumed = s.f.now
	for _, d := range s.drivers {
		d.wake()
	}
}

// order tells a keeper what a person wants. It may refuse.
func (s *sidecar) order(i int, o health.Order) {
	if s.dead || len(s.list) == 0 {
		return
	}
	d, w := s.drivers[0], s.list[0]
	d.input(func() {
		if err := w.keeper.Order(i, o, d.e.now); err != nil {
			s.f.note("", "p%d refuses to %v server %d: %v", s.id, o, i, err)
		}
		w.ripe, d.e.keepAt = true, 0
	})
}

// driver is one loop: it brings its engine what has come, and carries out what
// it wants.
type driver struct {
	f    *fleet
	s    *sidecar
	id   int
	e    *Engine
	dead bool

	inbox []func()
	due   bool  // a wakeup is planned for what is there
	timer int64 // when it wakes up anyway; 0: never
}

// input is something that comes. What comes nearly at once comes in one wakeup.
func (d *driver) input(do func()) {
	if d.dead {
		return
	}
	d.inbox = append(d.inbox, do)
	if !d.due {
		d.due = true
		d.f.after(d.f.upTo(milli/10), func() {
			d.due = false
			d.wake()
		})
	}
}

func (d *driver) wake() {
	if d.dead || d.s.paused {
		return
	}
	f, e := d.f, d.e
	now, next := d.s.clock(f.now), int64(0)
	for again := 0; next <= now; again++ {
		e.Begin(now)
		inbox := d.inbox
		d.inbox = nil
		for _, do := range inbox {
			do()
		}
		d.carryOut()
		d.s.looked()
		if next = e.Next(); again > 1000 {
			f.wrong("", "p%d: at %d the engine wants to be called at %d again and again", d.s.id, now, next)
			return
		}
	}
	if next == never {
		return
	}
	at := max(d.s.when(next), f.now+1) + f.upTo(milli)
	if d.timer > f.now && d.timer <= at {
		return
	}
	d.timer = at
	f.at(at, func() {
		if d.timer == at {
			d.timer = 0
			d.wake()
		}
	})
}

func (d *driver) carryOut() {
	rounds := 0
	for effects := d.e.End(); len(effects) > 0; effects = d.e.End() {
		for _, x := range effects {
			d.effect(x)
		}
		if rounds++; rounds > 1000 {
			d.f.wrong("", "p%d: the effects of one wakeup have no end", d.s.id)
			return
		}
	}
}

func (d *driver) effect(x Effect) {
	switch s := x.Link.Sock.(type) {
	case nil:
		if x.Kind == Dial {
			d.dial(x.Link)
		}
	case *pipe:
		switch x.Kind {
		case Write:
			s.write()
		case Close, Abort:
			s.shut(x.Kind)
		}
	case *app:
		switch x.Kind {
		case Write:
			s.hears()
		case Close, Abort:
			x.Link.Sock = nil
			s.cutOff()
		}
	}
}

// path is the network between one sidecar and one node.
type path struct {
	f     *fleet
	cut   bool
	spans [][2]int64 // when it was cut before
	since int64      // when it was cut
	slow  int64      // added to every way
	late  int64      // added to one in 50
	pipes []*pipe
}

// way is how long a packet takes.
func (p *path) way() int64 {
	d := milli/20 + p.f.upTo(milli/4)
	if p.f.rand.IntN(50) == 0 {
		d += p.f.upTo(3 * milli)
	}
	if p.late > 0 && p.f.one(50) {
		d += p.late
	}
	return d + p.slow
}

func (p *path) cutOff() {
	if !p.cut {
		p.cut, p.since = true, p.f.now
	}
}

// heal lets packets through again. What was lost is sent again a while later,
// longer the longer it took.
func (p *path) heal() {
	if !p.cut {
		return
	}
	f := p.f
	p.cut = false
	p.spans = append(p.spans, [2]int64{p.since, f.now})
	gone := f.now - p.since
	for _, c := range p.pipes {
		f.after(f.upTo(min(2*gone, 2*second)), c.again)
	}
}

// wasCut says whether the path was cut at a time, and until when.
func (p *path) wasCut(at int64) (bool, int64) {
	for _, s := range p.spans {
		if s[0] <= at && at < s[1] {
			return true, s[1]
		}
	}
	return p.cut && at >= p.since, never
}

// packet is a piece of what one end has sent.
type packet struct {
	b       []byte
	end     EffectKind // Close or Abort; Write: it is data
	arrived int64      // when; 0: it has not
	lost    bool       // it must be sent again
}

// pipe is a connection from an engine to a node: what is on its way, at either
// end.
type pipe struct {
	d    *driver
	p    *path
	n    *node
	link *Link
	up   bool // at the engine
	over bool // no engine has it any more

	life int           // of the node's process
	line *memnode.Line // to it
	sent []*packet     // to the node, and what it has not acknowledged
	last int64         // when the last of them arrives
	rcv  []byte        // arrived, and the node has not done it
	gone EffectKind    // how the engine has ended it, as far as the node knows; Write: not

	back     []*packet // to the engine, not arrived
	backLast int64
	dropped  bool // by the node: a reset is on its way
}

func (c *pipe) Peer() string { return c.n.name }

// Unsent is what the node's kernel has not acknowledged.
func (c *pipe) Unsent() (n int) {
	for _, k := range c.sent {
		if !c.acknowledged(k) {
			n += len(k.b)
		}
	}
	return n
}

func (c *pipe) acknowledged(k *packet) bool {
	if k.arrived == 0 {
		return false
	}
	at := k.arrived + milli/10 + c.p.slow
	if cut, until := c.p.wasCut(at); cut {
		at = until
	}
	return at <= c.p.f.now
}

func (d *driver) dial(l *Link) {
	_, address := l.Dialled()
	i := 0
	fmt.Sscanf(address, "s%d", &i)
	c := &pipe{d: d, p: d.f.paths[d.s.id][i], n: d.f.nodes[i], link: l}
	l.Sock = c
	c.p.pipes = append(c.p.pipes, c)
	d.f.after(2*c.p.way(), c.connect)
}

var (
	errRefused = errors.New("connection refused")
	errReset   = errors.New("connection reset by peer")
)

func (c *pipe) connect() {
	switch {
	case c.over || c.up || c.p.cut: // heal tries again
	case !c.n.up:
		c.fails(errRefused)
	default:
		c.life = c.n.life
		c.d.input(func() {
			if !c.over && !c.up {
				c.up = true
				c.n.meets(c)
				c.d.e.Up(c.link)
			}
		})
	}
}

// fails tells the engine that the connection is no more.
func (c *pipe) fails(err error) {
	c.d.input(func() {
		if !c.over {
			c.forget()
			c.d.e.Closed(c.link, err)
		}
	})
}

// forget ends the engine's side.
func (c *pipe) forget() {
	c.over = true
	c.link.Sock = nil
	c.tidy()
}

// tidy lets go of a pipe that carries nothing any more.
func (c *pipe) tidy() {
	if !c.over {
		return
	}
	for _, k := range c.sent {
		if k.arrived == 0 {
			return
		}
	}
	for i, o := range c.p.pipes {
		if o == c {
			c.p.pipes = append(c.p.pipes[:i:i], c.p.pipes[i+1:]...)
			return
		}
	}
}

// write takes all that the engine has.
func (c *pipe) write() {
	n := 0
	var b []byte
	for _, s := range c.link.Pending(nil) {
		b = append(b, s...)
		n += len(s)
	}
	for len(c.sent) > 0 && c.acknowledged(c.sent[0]) {
		c.sent = c.sent[1:]
	}
	if n > 1 && c.p.f.one(20) { // in two packets
		at := 1 + c.p.f.rand.IntN(n-1)
		c.send(&packet{b: b[:at]})
		b = b[at:]
	}
	c.send(&packet{b: b})
	c.d.e.Wrote(c.link, n, false)
}

func (c *pipe) send(k *packet) {
	f := c.p.f
	c.sent = append(c.sent, k)
	for _, before := range c.sent {
		if before.lost {
			k.lost = true
			return
		}
	}
	c.last = max(c.last, f.now+c.p.way())
	f.at(c.last, func() { c.arrive(k) })
}

// arrive is when a packet comes to the node.
func (c *pipe) arrive(k *packet) {
	switch {
	case k.arrived != 0:
	case c.p.cut:
		k.lost = k.end != Abort
		if k.end == Abort {
			k.arrived = c.p.f.now // nobody sends that again
		}
	default:
		k.arrived, k.lost = c.p.f.now, false
		switch {
		case !c.n.up || c.n.life != c.life:
			c.reset()
		case k.end != Write:
			c.gone = k.end
			c.n.work(c)
		default:
			c.rcv = append(c.rcv, k.b...)
			c.n.work(c)
		}
	}
	c.tidy()
}

// again sends what was lost.
func (c *pipe) again() {
	if c.p.cut {
		return
	}
	if !c.up {
		c.connect()
		return
	}
	for _, k := range c.sent {
		if k.lost {
			c.arrive(k)
		}
	}
	for _, k := range c.back {
		if k.lost {
			c.comeBack(k)
		}
	}
	if c.dropped {
		c.reset()
	}
}

// reply sends what the node has answered.
func (c *pipe) reply(b []byte) {
	if len(b) == 0 || c.over {
		return
	}
	f := c.p.f
	k := &packet{b: append([]byte(nil), b...)}
	c.back = append(c.back, k)
	for _, before := range c.back {
		if before.lost {
			k.lost = true
			return
		}
	}
	c.backLast = max(c.backLast, f.now+c.p.way())
	f.at(c.backLast, func() { c.comeBack(k) })
}

// comeBack is when a packet comes to the engine.
func (c *pipe) comeBack(k *packet) {
	switch {
	case k.arrived != 0 || c.over:
	case c.p.cut:
		k.lost = true
	default:
		k.arrived, k.lost = c.p.f.now, false
		for len(c.back) > 0 && c.back[0].arrived != 0 {
			c.back = c.back[1:]
		}
		c.d.input(func() {
			if !c.over {
				c.d.e.Bytes(c.link, k.b)
			}
		})
	}
}

// reset is what a node's kernel answers for a process that is no more.
func (c *pipe) reset() {
	c.dropped = true
	c.back = nil
	f := c.p.f
	f.at(max(c.backLast, f.now+c.p.way()), func() {
		if !c.p.cut && !c.over {
			c.fails(errReset)
		}
	})
}

// shut is what the engine orders. What its kernel still holds goes on its way
// after a Close and never does after an Abort, save what is on the way by now.
func (c *pipe) shut(k EffectKind) {
	if k == Abort {
		kept := c.sent[:0]
		for _, p := range c.sent {
			if p.lost {
				p.lost, p.arrived = false, c.p.f.now
			} else {
				kept = append(kept, p)
			}
		}
		c.sent = kept
	}
	if c.up {
		c.send(&packet{end: k})
	}
	c.forget()
}
