package loop

// This file connects the filters of fault injection with the portable driver.

import (
	"maps"
	"net"
	"syscall"

	"ringside/proxy/link"
)

// streamPort is a server connection of the portable driver.
type streamPort struct {
	*portable
	s *stream
}

func (p streamPort) link() *link.Link { return p.s.link }
func (p streamPort) filter() **filter { return &p.s.filter }
func (p streamPort) held() *bool      { return &p.s.held }
func (p streamPort) connect()         { p.dialUp(p.s) }
func (p streamPort) busy() bool       { return p.s.busy }

// send passes b to the writer goroutine, which holds one buffer at a time.
func (p streamPort) send(b []byte) (int, error) {
	if p.s.tls != nil {
		return p.sendSealed(p.s, b)
	}
	if p.s.busy {
		return 0, nil
	}
	p.s.busy = true
	p.s.handed.Store(int64(len(b)))
	p.s.out <- b
	return len(b), nil
}

func (p streamPort) end(err error) {
	if t, ok := p.s.conn.(*net.TCPConn); ok && err == syscall.ECONNRESET {
		t.SetLinger(0)
	}
	p.ended(p.s, err)
}

// want resumes the reader if the filter has room, and pauses it otherwise. It ignores write because
// the writer reports without being asked.
func (p streamPort) want(read, _ bool) { p.s.pause(!read) }

func (d *portable) redial(addresses map[string]bool) {
	for s := range maps.Clone(d.socks) {
		if s.link == nil || s.link.Client() || s.closed {
			continue
		}
		if _, address := s.link.Server().Target(); addresses[address] {
			d.ended(s, errMoved)
		}
	}
}

func (d *portable) refault() {
	d.faults.review(func(yield func(port, bool) bool) {
		for s := range d.socks {
			if s.link != nil && !s.link.Client() && s.conn != nil && !s.closed && (s.tls == nil || !s.tls.shaking) && !yield(streamPort{d, s}, false) {
				return
			}
		}
	})
}
