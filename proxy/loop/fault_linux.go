package loop

// Faulty server connections of the epoll driver.

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"ringside/proxy"
	"ringside/proxy/fault"
)

// wrong is what is wrong with the server behind l.
func (d *epoll) wrong(l *proxy.Link) fault.State {
	network, address := l.Dialled()
	return d.opts.Faults.Of(network, address)
}

// refault takes up the faults as they are now.
func (d *epoll) refault() {
	for _, s := range slices.Clone(d.socks) {
		if s == nil || s.link == nil || s.link.Client() || s.state != sockOpen {
			continue
		}
		state := d.wrong(s.link)
		if s.faulty == nil {
			if state == (fault.State{}) {
				continue
			}
			d.spoil(s)
			s.faulty.greeted = true
			s.faulty.full = s.events&unix.EPOLLOUT != 0
		}
		if state != s.faulty.state && s.faulty.change(now(), state) {
			d.settleFaulty(s)
		}
	}
	dials := d.held
	d.held = nil
	for _, s := range dials {
		if s.state == sockHeld {
			d.tryDial(s)
		}
	}
}

// spoil puts a faulty on s.
func (d *epoll) spoil(s *sock) {
	if d.chance == nil {
		d.chance = newChance()
	}
	s.faulty = &faulty{
		engine: d.engine, link: s.link, chance: d.chance,
		send: func(b []byte) (int, error) {
			n, err := unix.Write(s.fd, b)
			if err == unix.EAGAIN || err == unix.EINTR {
				return 0, nil
			}
			return max(n, 0), err
		},
		end: func(err error) {
			if err == unix.ECONNRESET {
				unix.SetsockoptLinger(s.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
			}
			d.fail(s, err)
		},
		wake: func(after time.Duration) {
			time.AfterFunc(after, func() { d.post(func(*proxy.Engine) { d.pumpFaulty(s) }) })
		},
	}
}

// tryDial connects s, unless a fault has something against it.
func (d *epoll) tryDial(s *sock) {
	state := d.wrong(s.link)
	if state.Refuse {
		d.fail(s, unix.ECONNREFUSED)
		return
	}
	wait := time.Duration(0)
	if state.Drop > 0 {
		if d.chance == nil {
			d.chance = newChance()
		}
		wait = late(d.chance, state.Drop, synRTO)
	}
	if !state.Hang && !state.Partition && wait == 0 {
		d.lookUp(s)
		return
	}
	s.state = sockHeld
	d.held = append(slices.DeleteFunc(d.held, func(s *sock) bool { return s.state != sockHeld }), s)
	if wait > 0 {
		time.AfterFunc(wait, func() {
			d.post(func(*proxy.Engine) {
				if state := d.wrong(s.link); s.state == sockHeld && !state.Hang && !state.Partition && !state.Refuse {
					d.lookUp(s)
				}
			})
		})
	}
}

// openFaulty looks whether a connection that was just made has a fault. It
// reports false when that has ended it.
func (d *epoll) openFaulty(s *sock) bool {
	state := d.wrong(s.link)
	if state == (fault.State{}) {
		return true
	}
	d.spoil(s)
	return s.faulty.change(now(), state)
}

func (d *epoll) readFaulty(s *sock) {
	f := s.faulty
	if s.events&unix.EPOLLIN == 0 { // only the end of the connection is news, and that it would be again and again
		unix.EpollCtl(d.fd, unix.EPOLL_CTL_DEL, s.fd, nil)
		f.ended(now(), sockError(s.fd))
		d.pumpFaulty(s)
		return
	}
	var buf [16 << 10]byte
	for range readsPerEvent {
		if f.in.full() {
			break
		}
		n, err := unix.Read(s.fd, buf[:])
		if err == unix.EAGAIN || err == unix.EINTR {
			break
		}
		if n <= 0 { // its end would be told again and again
			unix.EpollCtl(d.fd, unix.EPOLL_CTL_DEL, s.fd, nil)
			f.ended(now(), err)
			break
		}
		f.came(now(), buf[:n])
	}
	d.pumpFaulty(s)
}

func (d *epoll) writeFaulty(s *sock) {
	s.faulty.give(now())
	d.pumpFaulty(s)
}

func (d *epoll) pumpFaulty(s *sock) {
	if s.state == sockOpen && s.faulty != nil && s.faulty.pump(now()) {
		d.settleFaulty(s)
	}
}

// settleFaulty waits for what the faulty of s can use, or lets go of it.
func (d *epoll) settleFaulty(s *sock) {
	f := s.faulty
	if f.done() {
		s.faulty = nil
	}
	events := uint32(0)
	if !f.in.full() {
		events |= unix.EPOLLIN
	}
	if f.blocked {
		events |= unix.EPOLLOUT
	}
	d.watch(s, events)
}
