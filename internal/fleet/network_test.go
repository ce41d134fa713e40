package fleet

// The network: connections between proxies and servers, as their kernels see them.

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
	keeps bool       // while the path is cut, a device on the way stores packets and delivers them later
	spans [][2]int64 // earlier intervals in which it was cut
	since int64      // when it was cut
	slow  int64      // added to the delay of every packet
	late  int64      // added to the delay of one packet in 50
	pipes []*pipe
}

// way returns the delay of a packet.
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

// heal restores the path. Lost packets are retransmitted after a while; the longer the
// cut, the later.
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

// wasCut reports whether the path was cut at a time, and until when.
func (p *path) wasCut(at int64) (bool, int64) {
	for _, s := range p.spans {
		if s[0] <= at && at < s[1] {
			return true, s[1]
		}
	}
	return p.cut && at >= p.since, math.MaxInt64
}

// packet is a part of the bytes that one end has sent.
type packet struct {
	b       []byte
	at      int64           // when it was sent
	pinged  int64           // for replies: when the last ping was sent whose record is in it, by the clock of the proxy; 0: none
	end     link.EffectKind // Close or Abort; Write: the packet is data
	arrived int64           // when it arrived; 0: not yet
	lost    bool            // it must be retransmitted
	kept    bool            // stored on the way: the engine's kernel has its acknowledgement, and it arrives whatever the engine does
}

// behindLost reports whether an earlier packet than k must be retransmitted. The other
// end can read k only after that one.
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

// pipe is a connection from an engine to a node, with its bytes in flight and at both
// ends.
type pipe struct {
	d    *driver
	p    *path
	n    *node
	link *link.Link
	up   bool // established, as the engine knows
	over bool // no engine uses it any more

	life   int             // number of the node's process
	line   *memnode.Line   // connection to the node's store
	sent   []*packet       // packets to the node that it has not acknowledged
	last   int64           // when the last of them arrives
	rcv    []byte          // arrived, not executed by the node
	asked  int64           // when the last of it was sent
	pings  []int64         // when pings were sent that the node has not executed, by the clock of the proxy
	pinged int64           // when the last ping was sent that has returned a record
	gone   link.EffectKind // how the engine has ended it, as far as the node knows; Write: it has not

	back     []*packet // packets to the engine that have not arrived
	backLast int64
	dropped  bool // by the node: a reset is in flight

	stuck     bool // the node ignores it
	old       bool // the node has no meta commands
	forgotten bool // packets vanish in both directions
	acks      bool // and those to the node are acknowledged
}

func (c *pipe) Peer() string { return c.n.name }

// Unread returns 0: no bytes wait unread in the socket.
func (c *pipe) Unread() int { return 0 }

// Unsent returns the number of bytes that the node's kernel has not acknowledged.
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
	c := &pipe{d: d, p: d.f.paths[d.s.id][i], n: d.f.nodes[i], link: l, old: d.f.old && d.f.one(2)}
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

// fails reports the end of the connection to the engine.
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

// tidy removes a pipe that carries nothing any more.
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

// write sends bytes of the engine.
func (c *pipe) write(b []byte) {
	for len(c.sent) > 0 && c.sent[0].arrived != 0 && c.acknowledged(c.sent[0]) {
		c.sent = c.sent[1:]
	}
	for range pingsIn(b) {
		c.pings = append(c.pings, c.d.s.clock(c.p.f.now))
	}
	if n := len(b); n > 1 && c.p.f.one(20) { // in two packets
		at := 1 + c.p.f.rand.IntN(n-1)
		c.send(&packet{b: b[:at]})
		b = b[at:]
	}
	c.send(&packet{b: b})
}

func (c *pipe) send(k *packet) {
	f := c.p.f
	k.at = f.now
	c.sent = append(c.sent, k)
	if k.lost = behindLost(c.sent, k); k.lost {
		k.kept = c.p.cut && c.p.keeps
		return
	}
	c.last = max(c.last, f.now+c.p.way())
	f.at(c.last, func() { c.arrive(k) })
}

// arrive delivers a packet to the node.
func (c *pipe) arrive(k *packet) {
	switch {
	case k.arrived != 0:
	case c.forgotten:
		if c.acks || k.end != link.Write {
			k.arrived = c.p.f.now
		}
	case c.p.cut, (k.end != link.Abort || k.kept) && behindLost(c.sent, k):
		k.kept = c.p.cut && c.p.keeps
		k.lost = k.end != link.Abort || k.kept
		if k.end == link.Abort && !k.kept {
			k.arrived = c.p.f.now // an Abort is not retransmitted
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
			c.rcv, c.asked = append(c.rcv, k.b...), k.at
			c.n.work(c)
		}
	}
	c.tidy()
}

// again retransmits lost packets.
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

// reply sends the node's replies.
func (c *pipe) reply(b []byte) {
	f := c.p.f
	if len(b) == 0 || c.over || c.forgotten {
		return
	}
	if f.bare && len(b) > 1 && f.one(2) { // in two packets or more
		at := 1 + f.part(len(b)-1)
		c.sendBack(b[:at])
		c.reply(b[at:])
		return
	}
	c.sendBack(b)
}

// sendBack sends one packet with replies.
func (c *pipe) sendBack(b []byte) {
	f := c.p.f
	k := &packet{b: append([]byte(nil), b...), pinged: c.pinged}
	c.back = append(c.back, k)
	if k.lost = behindLost(c.back, k); k.lost {
		return
	}
	c.backLast = max(c.backLast, f.now+c.p.way())
	f.at(c.backLast, func() { c.comeBack(k) })
}

// comeBack delivers a packet to the engine.
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
				c.d.s.hears(c.n, k.pinged)
				c.d.e.Bytes(c.link, k.b)
			}
		})
	}
}

// reset simulates the reset that a node's kernel sends if the process has ended.
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

// shut carries out the engine's effect that ends the connection. After a Close the
// kernel still sends its remaining bytes. After an Abort it drops them, except for
// those that are stored on the way.
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
