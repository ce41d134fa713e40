//go:build linux

package load

// This file has the phases of a run, and the schedule of an open loop.

// advance starts the next phase if the current phase has ended. In an open loop it also sends the
// requests that are due.
func (l *loop) advance() error {
	now := l.clock()
	switch l.phase {
	case filling:
		if l.filled < l.work.Count || l.due > 0 {
			return nil
		}
		l.phase, l.phaseEnd = warming, now+int64(l.bounds.Warm)
		if l.work.Rate == 0 {
			return l.kick()
		}
		l.startPacing(now)
	case warming:
		if now >= l.phaseEnd {
			if err := l.window.begin(); err != nil {
				return err
			}
			l.phase, l.phaseEnd = measuring, l.clock()+int64(l.bounds.Window)
		}
	case measuring:
		// On a busy machine a short window may end before its first reply. It is then extended
		// until a reply arrives or the timeout ends the run.
		if l.window.latency.TotalCount() > 0 && now >= l.phaseEnd || l.bounds.Requests > 0 && l.window.requests >= l.bounds.Requests {
			l.phase = draining
			return l.window.end()
		}
	case draining:
		if l.due == 0 {
			l.phase = fencing
			return l.fence()
		}
	case fencing:
		if l.due == 0 {
			l.phase = finished
		}
	}
	if l.paced() {
		return l.pace()
	}
	return nil
}

// kick sends the first requests of a phase of a closed loop. Each later request is sent when a
// reply arrives.
func (l *loop) kick() error {
	for i := range l.clients {
		if err := l.refill(&l.clients[i]); err != nil {
			return err
		}
	}
	return nil
}

// fence sends one more request on each connection, with a reply that no other request has. A
// surplus reply before it is an error. A client that reconnects between visits (Work.Visit) may
// have no connection at that time.
func (l *loop) fence() error {
	for i := range l.conns {
		c := &l.conns[i]
		if c.fd < 0 {
			continue
		}
		c.out = append(c.out, "get "+fenceKey+"\r\n"...)
		l.push(l.clientOf(c), c, request{kind: fence, start: l.clock()})
		if err := l.flush(c); err != nil {
			return err
		}
	}
	return nil
}

// paced reports whether requests are sent at fixed times, and not when replies arrive.
func (l *loop) paced() bool {
	return l.work.Rate > 0 && (l.phase == warming || l.phase == measuring)
}

// startPacing fills l.free, the list of clients that may send a request. A client is in it once for
// each request that it may have in flight. The clients take turns, so that consecutive requests use
// different connections.
func (l *loop) startPacing(now int64) {
	l.gap, l.nextDue = 1e9/l.work.Rate, float64(now)
	l.free = make([]int32, l.work.Conns*l.work.Depth)
	for i := range l.free {
		l.free[i] = int32(i % l.work.Conns)
	}
	l.freeAt, l.freeLen = 0, len(l.free)
}

// pace sends the requests that are due, as long as there are clients that may send.
func (l *loop) pace() error {
	for t := float64(l.clock()); l.freeLen > 0 && l.nextDue <= t; l.nextDue += l.gap {
		k := &l.clients[l.free[l.freeAt]]
		l.freeAt = (l.freeAt + 1) % len(l.free)
		l.freeLen--
		if _, err := l.next(k, int64(l.nextDue)); err != nil {
			return err
		}
		if err := l.flushAll(k); err != nil {
			return err
		}
	}
	return nil
}

// release records that the client k may send one more request.
func (l *loop) release(k *client) {
	l.free[(l.freeAt+l.freeLen)%len(l.free)] = int32(k.id)
	l.freeLen++
}
