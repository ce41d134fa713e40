package fleet

// The fleet's proxies: engines with simulated drivers.

import (
	"fmt"
	"math"
	"slices"
	"time"

	"ringside/proxy"
	"ringside/proxy/health"
	"ringside/proxy/link"
	"ringside/proxy/stats"
	"ringside/proxy/table"
)

// sidecar is one proxy process. It can end and be restarted.
type sidecar struct {
	f       *fleet
	id      int
	life    int64
	skew    int64 // deviation of its clock, in thousandths; rates differ by less than a tenth
	dead    bool
	paused  bool  // its threads do not run, but its kernel does
	resumed int64 // when it was last resumed
	stops   bool  // its clients are served to the end, and then it ends

	p       *proxy.Proxy
	edition int // edition of its configuration
	drivers []*driver
	members []stats.PhaseSnapshot // last decisions of its keeper
	pinged  []int64               // when it sent the last ping to each server that returned a record
	records int                   // number of records that pings have returned and after which its leases were not checked
	decided uint64                // value of Decided for servers
	memory  int64                 // bytes in use when it is idle
}

// clock returns the reading of the sidecar's clock at a time.
func (s *sidecar) clock(at int64) int64 {
	return int64(time.Hour)*int64(s.id+1) + at + at/1000*s.skew
}

// when returns the first time at which the sidecar's clock reads at least clock.
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
	s.dead, s.paused, s.stops = false, false, false
	version, off := "test", f.ablate.Set
	if f.older && s.id == f.scenario.sidecars-1 {
		version, off.Announced = "older", true
	}
	s.p = proxy.NewProxy(&table.Table{Limits: limits}, version, s.logger())
	s.p.Seed = f.seed*1000 + uint64(s.id)*100 + uint64(s.life)
	if f.remember { // the proxies list themselves, and which servers lack replicas
		s.p.Name = fmt.Sprintf("p%d.%d", s.id, s.life)
	}
	s.p.Hash, s.p.Ablation = hash, off
	life := s.life
	s.p.Joined = func() {
		f.after(0, func() {
			if s.life == life {
				s.reload()
			}
		})
	}
	s.drivers, s.members, s.decided = nil, nil, 0
	s.pinged = make([]int64, len(f.nodes))
	s.take()
	for range f.engines {
		tune := link.DefaultTune
		if s.id == 1 {
			tune = link.Tune{}
		}
		d := &driver{f: f, s: s, e: s.p.NewEngine(tune)}
		d.e.Post = d.post
		s.drivers = append(s.drivers, d)
	}
	sum := s.snapshot()
	s.memory = sum.Memory - sum.Kept
	for _, d := range s.drivers {
		d.wake()
	}
}

// take applies the current configuration.
func (s *sidecar) take() {
	s.edition = s.f.edition
	s.p.SetTable(s.table())
}

// snapshot returns the counters and decisions of its engines.
func (s *sidecar) snapshot() *stats.Snapshot {
	sum := &stats.Snapshot{}
	for _, d := range s.drivers {
		d.e.Snapshot(sum)
	}
	return sum
}

// phases returns the decisions of its engines' keepers. It costs much less than a snapshot.
func (s *sidecar) phases() (all []stats.PhaseSnapshot) {
	for _, d := range s.drivers {
		all = d.e.Keepers.Phases(all)
	}
	return all
}

func (s *sidecar) reload() {
	if s.dead {
		return
	}
	if later := s.snapshot().Unsettled; later > 0 { // as internal/instance waits
		s.f.after(int64(later), s.reload)
		return
	}
	s.count()
	s.take()
	for _, d := range s.drivers {
		d.input(func() {})
	}
	s.f.look()
}

// looked calls the judge if the keeper has decided something.
func (s *sidecar) looked() {
	if n := s.p.Decided(); n != s.decided {
		before := s.members
		s.decided, s.members = n, s.phases()
		s.f.decides(s, before)
		s.f.look()
	}
}

// die ends the process. Bytes that its kernel had not delivered to a server are lost,
// and so are bytes that a hung server has not read. The protocol assumes that no
// request of a dead proxy is executed late.
func (s *sidecar) die() {
	s.count()
	s.countAborted()
	s.dead = true
	for _, row := range s.f.paths[s.id] {
		for _, c := range row.pipes {
			c.over = true
			for _, k := range c.sent {
				k.arrived = s.f.now
			}
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
			a.conn.ended()
		}
	}
	for _, c := range s.f.clients {
		if c.s == s {
			c.cutOff()
		}
	}
}

// count adds the keepers' events to the tally of the run.
func (s *sidecar) count() {
	if s.dead {
		return
	}
	for _, ev := range s.snapshot().Events {
		switch ev.To {
		case "OUT":
			s.f.ejected += int(ev.Count)
		case "IN":
			s.f.returned += int(ev.Count)
		}
	}
}

// restart ends the process, and starts it again after the time `later`.
func (s *sidecar) restart(later int64) {
	s.f.note("", "RESTART p%d", s.id)
	s.die()
	s.f.after(later, s.start)
}

// pause stops the process's threads. After resume all events that have arrived in
// between are processed at once.
func (s *sidecar) pause() { s.paused = true }

func (s *sidecar) resume() {
	s.paused = false
	s.resumed = s.f.now
	for _, d := range s.drivers {
		d.wake()
	}
}

// order sets an operator's override in a pool. The keeper may reject it.
func (s *sidecar) order(pool string, n *node, o health.Override) {
	if s.dead {
		return
	}
	d := s.drivers[0]
	d.input(func() {
		d.waited = true
		if err := s.p.Override(pool, n.name, o); err != nil {
			s.f.note("", "p%d refuses to %v server %s: %v", s.id, o, n.name, err)
		}
		d.waited = false
	})
}

// driver is one loop: it passes events to its engine and carries out the engine's
// effects.
type driver struct {
	f    *fleet
	s    *sidecar
	e    *proxy.Engine
	dead bool

	inbox  []func()
	spans  [][]byte // scratch of digest and sends
	due    bool     // a wakeup for the inbox is scheduled
	timer  int64    // when it wakes up in any case; 0: never
	waited bool     // a caller waits for the result, so posted functions run at once
}

// post queues a function that the engine wants to run as an event.
func (d *driver) post(do func(*proxy.Engine)) {
	if d.waited {
		do(d.e)
		return
	}
	d.input(func() { do(d.e) })
}

// input queues an event. Events at nearly the same time are processed in one wakeup.
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
		e.Begin(now, epoch+f.now/second)
		inbox := d.inbox
		d.inbox = nil
		for _, do := range inbox {
			do()
		}
		d.carryOut()
		if f.bare && !e.HasBacklog() {
			f.inspect(d)
		}
		d.s.looked()
		d.s.leased()
		if next = e.Next(); again > 1000 {
			f.wrong("", "p%d: at %d the engine wants to be called at %d again and again", d.s.id, now, next)
			return
		}
	}
	if next == math.MaxInt64 {
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
	if asks := d.e.Clients.TaskAsks; asks < 0 || asks > d.e.Outstanding {
		d.f.wrong("", "p%d: %d requests of tasks are counted, and %d are in flight", d.s.id, asks, d.e.Outstanding)
	}
}

// sends moves the bytes that the engine has for a peer into its socket, and passes them to moved. In a bare
// fleet a socket may accept only a part of them, and more a little later.
func (d *driver) sends(l *link.Link, moved func(b []byte)) {
	f, sock := d.f, l.Sock
	d.spans = l.Pending(d.spans[:0])
	b, full := slices.Concat(d.spans...), false
	if f.bare && f.one(4) { // the portable driver also says so if it has taken all bytes
		b, full = b[:f.part(len(b))], true
	}
	d.e.Wrote(l, len(b), full)
	if f.bare && f.traced {
		f.note("", "the socket to %s takes %d bytes, full: %v: %.40q", sock.Peer(), len(b), full, b)
	}
	if full {
		wait := 5 * milli
		if _, server := sock.(*pipe); !(server && f.faultless()) && f.one(4) {
			wait = 500 * milli
		}
		f.after(f.upTo(wait), func() {
			d.input(func() {
				if l.Sock == sock {
					d.sends(l, moved)
				}
			})
		})
	}
	moved(b)
}

func (d *driver) effect(x link.Effect) {
	d.digest(x)
	switch s := x.Link.Sock.(type) {
	case nil:
		if x.Kind == link.Dial {
			d.dial(x.Link)
		}
	case *pipe:
		switch x.Kind {
		case link.Write:
			d.sends(x.Link, s.write)
		case link.Close, link.Abort:
			s.shut(x.Kind)
		}
	case *conn:
		switch x.Kind {
		case link.Write:
			d.sends(x.Link, s.hears)
		case link.Close, link.Abort:
			x.Link.Sock = nil
			s.ended()
		}
	case *pen:
		switch x.Kind {
		case link.Write:
			d.sends(x.Link, func(b []byte) { s.got = append(s.got, b...) })
		case link.Close, link.Abort:
			x.Link.Sock = nil
			s.cut = true
		}
	case *caller:
		switch x.Kind {
		case link.Write:
			d.sends(x.Link, s.hears)
		case link.Pause, link.Resume:
			s.paused = x.Kind == link.Pause
		case link.Close, link.Abort:
			x.Link.Sock = nil
			s.ended(x.Kind)
		}
	}
}
