package fleet

// The network: connections between proxies and servers as their kernels see them.

import (
	"errors"
	"fmt"
	"math"

	"ringside/internal/memnode"
	"ringside/proxy/link"
)

// path is the network between one sidecar and one node.
type path struct {
	f     *fleet
	cut   bool
	keeps bool       // while it is cut: something on the way takes what is sent, and delivers it later
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
	p.cut, p.keeps = false, false
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
	return p.cut && at >= p.since, math.MaxInt64
}

// packet is a piece of what one end has sent.
type packet struct {
	b       []byte
	end     link.EffectKind // Close or Abort; Write: it is data
	arrived int64           // when; 0: it has not
	lost    bool            // it must be sent again
	kept    bool            // on the way: the engine's kernel has its acknowledgement, and it comes whatever the engine does
}

// behindLost reports whether one before k has to be sent again: the other end
// sees k only behind it.
func behindLost(sent []*packet, k *packet) bool {
	for _, before := range sent {
		if before == k {
			break
		}
		if before.lost {
			return true
		}
	}
	return false
}

// pipe is a connection from an engine to a node: what is on its way, at either
// end.
type pipe struct {
	d    *driver
	p    *path
	n    *node
	link *link.Link
	up   bool // at the engine
	over bool // no engine has it any more

	life int             // of the node's process
	line *memnode.Line   // to it
	sent []*packet       // to the node, and what it has not acknowledged
	last int64           // when the last of them arrives
	rcv  []byte          // arrived, and the node has not done it
	gone link.EffectKind // how the engine has ended it, as far as the node knows; Write: not

	back     []*packet // to the engine, not arrived
	backLast int64
	dropped  bool // by the node: a reset is on its way
}

func (c *pipe) Peer() string { return c.n.name }

// Unsent is what the node's kernel has not acknowledged.
func (c *pipe) Ready() bool { return false }

func (c *pipe) Unsent() (n int) {
	for _, k := range c.sent {
		if !c.acknowledged(k) {
			n += len(k.b)
		}
	}
	return n
}

func (c *pipe) acknowledged(k *packet) bool {
	if k.kept {
		return true
	}
	if k.arrived == 0 {
		return false
	}
	at := k.arrived + milli/10 + c.p.slow
	if cut, until := c.p.wasCut(at); cut {
		at = until
	}
	return at <= c.p.f.now
}

func (d *driver) dial(l *link.Link) {
	_, address := l.Server().Target()
	i := 0
	fmt.Sscanf(address, "s%d", &i)
	c := &pipe{d: d, p: d.f.paths[d.s.id][i], n: d.f.nodes[i], link: l}
	l.Sock = c
	c.p.pipes = append(c.p.pipes, c)
	d.f.after(2*c.p.way(), c.connect)
}

var errReset = errors.New("connection reset by peer")

func (c *pipe) connect() {
	switch {
	case c.over || c.up || c.p.cut: // heal tries again
	case !c.n.up:
		c.fails(link.ErrRefused)
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
	for len(c.sent) > 0 && c.sent[0].arrived != 0 && c.acknowledged(c.sent[0]) {
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
	if k.lost = behindLost(c.sent, k); k.lost {
		k.kept = c.p.cut && c.p.keeps
		return
	}
	c.last = max(c.last, f.now+c.p.way())
	f.at(c.last, func() { c.arrive(k) })
}

// arrive is when a packet comes to the node.
func (c *pipe) arrive(k *packet) {
	switch {
	case k.arrived != 0:
	case c.p.cut, (k.end != link.Abort || k.kept) && behindLost(c.sent, k):
		k.kept = c.p.cut && c.p.keeps
		k.lost = k.end != link.Abort || k.kept
		if k.end == link.Abort && !k.kept {
			k.arrived = c.p.f.now // nobody sends that again
		}
	default:
		k.arrived, k.lost = c.p.f.now, false
		switch {
		case !c.n.up || c.n.life != c.life:
			c.reset()
		case k.end != link.Write:
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
	if k.lost = behindLost(c.back, k); k.lost {
		return
	}
	c.backLast = max(c.backLast, f.now+c.p.way())
	f.at(c.backLast, func() { c.comeBack(k) })
}

// comeBack is when a packet comes to the engine.
func (c *pipe) comeBack(k *packet) {
	switch {
	case k.arrived != 0 || c.over:
	case c.p.cut, behindLost(c.back, k):
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
func (c *pipe) shut(k link.EffectKind) {
	if k == link.Abort {
		kept := c.sent[:0]
		for _, p := range c.sent {
			if p.lost && !p.kept {
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
