package client

// This file makes clients with large requests wait while there is no room for these requests.

import (
	"time"

	"ringside/proxy/link"
	"ringside/proxy/upstream"
)

// A large request waits in two cases. Ringside does not read its data while more than half of
// limits.memory is in use. A complete request is not sent while its connection to the server has
// many bytes that the socket has not accepted. Meanwhile Ringside does not read from the client,
// so the client is slowed down to the speed of the servers.
//
//	client           waits for memory ► its data are read ► waits for the server ► the request is queued
//	not read while   half is in use                         the connection has maxUnsent bytes
//
// The wait for a server ends because timeouts.request removes what a server does not accept. The
// wait for memory has no such end: clients that do not read their replies may use the memory. So
// if no client could go on for memoryWait, large requests are read again until less than half of
// the memory is in use, and the rules of limits.memory apply: see link/memory.go.
const (
	largeRequest = link.BigSpan
	maxUnsent    = 1 << 20
	memoryWait   = 3 * time.Second

	// memoryCheck is the time between two checks whether memory is free, because other loops may have freed it.
	memoryCheck = 10 * time.Millisecond
)

// waitingRoom has the clients of one loop that wait with a large request.
type waitingRoom struct {
	list   []*Session // in order of arrival
	wakeBy int64      // when memoryWait ends for the clients that wait for memory
	open   bool       // large requests do not wait for memory, because memoryWait has passed
}

// room is what the large request of one client waits for.
type room struct {
	waits bool           // the client is in waitingRoom.list
	goes  bool           // the client was in the list: it does not wait for the others in the list any more
	conn  *upstream.Conn // the connection that has many unsent bytes; nil: the request waits for memory
}

// memoryUsed reports whether large requests must wait because more than half of limits.memory is in use.
// Buffers that are kept for reuse do not count.
func (e *Clients) memoryUsed() bool {
	if e.FreeMemory()+e.Buffers.Kept() >= e.MemoryLimit/2 {
		e.large.open = false
		return false
	}
	return !e.large.open
}

// waitsForMemory reports whether s must wait before more bytes of a large request are read. If so, it
// stalls s.
func (s *Session) waitsForMemory(more int) bool {
	if more < largeRequest || !(s.e.memoryUsed() || !s.room.goes && s.e.large.has(nil)) {
		return false
	}
	s.waitForRoom(nil)
	return true
}

// waitsForServer reports whether the large request in Clients.Req, which has the bytes raw, must wait for its
// server. If so, it stalls s. A request does not wait if so much memory is in use that waiting requests could
// use up the rest.
func (s *Session) waitsForServer(raw []byte) bool {
	if len(raw) < largeRequest {
		return false
	}
	c := s.Handler.ConnOf(s, raw)
	if c == nil || s.e.FreeMemory() < s.e.MemoryLimit/4 || !(isFull(c) || !s.room.goes && s.e.large.has(c)) {
		s.room.goes = false
		return false
	}
	s.waitForRoom(c)
	return true
}

// isFull reports whether c has so many unsent bytes that large requests wait.
func isFull(c *upstream.Conn) bool {
	return int64(c.Out.Size) >= min(maxUnsent, c.Server.Loop().MemoryLimit/8)
}

// has reports whether a client waits for c, or for memory if c is nil.
func (w *waitingRoom) has(c *upstream.Conn) bool {
	for _, s := range w.list {
		if s.room.conn == c {
			return true
		}
	}
	return false
}

func (s *Session) waitForRoom(c *upstream.Conn) {
	e := s.e
	if c == nil && !e.large.has(nil) {
		e.large.wakeBy = e.Now + int64(memoryWait)
	}
	s.room = room{waits: true, conn: c}
	e.large.list = append(e.large.list, s)
	s.stall()
}

// HasLarge reports whether clients with large requests wait.
func (e *Clients) HasLarge() bool { return len(e.large.list) > 0 }

// WakeLarge wakes the clients with large requests for which there is room. Each checks again
// when it continues, so those for which the room is not enough wait again, in the same order.
func (e *Clients) WakeLarge() {
	w := &e.large
	late := e.Now >= w.wakeBy
	used := e.memoryUsed()
	keep := w.list[:0]
	waits := false
	for _, s := range w.list {
		c := s.room.conn
		switch {
		case s.Closed:
			continue
		case c == nil && used && !late, c != nil && isFull(c):
			keep = append(keep, s)
			waits = waits || c == nil
			continue
		case c == nil && used:
			w.open = true
		}
		if c == nil {
			w.wakeBy = e.Now + int64(memoryWait)
		}
		s.room = room{goes: true}
		s.waking = true
		e.ToWake = append(e.ToWake, s)
	}
	clear(w.list[len(keep):])
	w.list = keep
	if waits {
		e.WakeAt(e.Now + int64(memoryCheck))
	}
}
