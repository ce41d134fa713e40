package loop

// Faulty server connections of the portable driver.

import (
	"net"
	"slices"
	"syscall"
	"time"

	"ringside/proxy"
	"ringside/proxy/fault"
)

// wrong is what is wrong with the server behind l.
func (d *portable) wrong(l *proxy.Link) fault.State {
	network, address := l.Dialled()
	return d.opts.Faults.Of(network, address)
}

// refault takes up the faults as they are now.
func (d *portable) refault() {
	for s := range d.socks {
		if s.link == nil || s.link.Client() || s.conn == nil || s.closed {
			continue
		}
		state := d.wrong(s.link)
		if s.faulty == nil {
			if state == (fault.State{}) {
				continue
			}
			d.spoil(s)
			s.faulty.greeted = true
		}
		if state != s.faulty.state && s.faulty.change(now(), state) {
			d.settleFaulty(s)
		}
	}
	dials := d.held
	d.held = nil
	for _, s := range dials {
		if s.held && !s.closed {
			d.tryDial(s)
		}
	}
}

// spoil puts a faulty on s.
func (d *portable) spoil(s *stream) {
	s.faulty = &faulty{
		engine: d.engine, link: s.link, chance: d.chance,
		send: func(b []byte) (int, error) {
			if s.busy {
				return 0, nil
			}
			s.busy = true
			s.handed.Store(int64(len(b)))
			s.out <- b
			return len(b), nil
		},
		end: func(err error) {
			if t, ok := s.conn.(*net.TCPConn); ok && err == syscall.ECONNRESET {
				t.SetLinger(0)
			}
			d.ended(s, err)
		},
		wake: func(after time.Duration) {
			time.AfterFunc(after, func() { d.with(func(*proxy.Engine) { d.pumpFaulty(s) }) })
		},
	}
}

// tryDial connects s, unless a fault has something against it.
func (d *portable) tryDial(s *stream) {
	s.held = false
	state := d.wrong(s.link)
	if state.Refuse {
		d.drop(s)
		d.engine.Closed(s.link, syscall.ECONNREFUSED)
		return
	}
	wait := time.Duration(0)
	if state.Drop > 0 {
		wait = late(d.chance, state.Drop, synRTO)
	}
	if !state.Hang && !state.Partition && wait == 0 {
		d.connect(s)
		return
	}
	s.held = true
	d.held = append(slices.DeleteFunc(d.held, func(s *stream) bool { return s.closed || !s.held }), s)
	if wait > 0 {
		time.AfterFunc(wait, func() {
			d.with(func(*proxy.Engine) {
				if state := d.wrong(s.link); s.held && !s.closed && !state.Hang && !state.Partition && !state.Refuse {
					s.held = false
					d.connect(s)
				}
			})
		})
	}
}

// openFaulty looks whether a connection that was just made has a fault. It
// reports false when that has ended it.
func (d *portable) openFaulty(s *stream) bool {
	state := d.wrong(s.link)
	if state == (fault.State{}) {
		return true
	}
	d.spoil(s)
	return s.faulty.change(now(), state)
}

func (d *portable) writeFaulty(s *stream) {
	s.faulty.give(now())
	d.pumpFaulty(s)
}

func (d *portable) pumpFaulty(s *stream) {
	if !s.closed && s.faulty != nil && s.faulty.pump(now()) {
		d.settleFaulty(s)
	}
}

// settleFaulty reads on if there is room, and lets go of the faulty of s when
// it has nothing left to do.
func (d *portable) settleFaulty(s *stream) {
	f := s.faulty
	if f.done() && !s.busy { // a writer at work reports to it
		s.faulty = nil
	}
	if s.paused = f.in.full(); !s.paused {
		select {
		case s.resume <- struct{}{}:
		default:
		}
	}
}
