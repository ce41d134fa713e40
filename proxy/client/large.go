package client

// This file makes clients with large requests wait while there is no room for these requests.

import (
	"log/slog"
	"slices"
	"time"

	"ringside/proxy/link"
	"ringside/proxy/upstream"
)

// The input buffer of a client grows with what has arrived, up to the length of the request: see growth. So
// memory counts as it is used, and clients that only announce large values do not use it up. When a quarter of
// limits.memory is in use, a client that has sent more than largeRequest gets a buffer for its whole request, as
// long as half of the memory stays free. Otherwise requests of which only a part has arrived could use the memory, and none of
// them could become complete.
//
// A large request waits in two cases. Ringside does not read more of its data when it would need more than half of
// limits.memory. A complete request is not sent while its connection to the server has
// many bytes that the socket has not accepted, or many bytes of tasks. Meanwhile Ringside does not read from the client,
// so the client is slowed down to the speed of the servers.
//
//	client           waits for memory ► its data are read ► waits for the server ► the request is queued
//	not read while   half is in use                         the connection has maxUnsent bytes
//
// The wait for a server ends because timeouts.request removes what a server does not accept. The
// wait for memory has no such end: clients that do not read their replies may use the memory, or clients that send large requests
// slowly. So when a client has waited for patience, such clients lose as much memory as the waiting clients need: see IsUnread and IsLate.
// If no client could go on for memoryWait in
// spite of that, large requests are read again until less than a quarter of
// the memory is in use, and the rules of limits.memory apply: see link/memory.go.
const (
	largeRequest = link.BigSpan
	maxUnsent    = 1 << 20
	memoryWait   = 3 * time.Second
	patience     = time.Second

	// unreadTime is how long a client has not read its replies before it is closed because others wait for memory. During the
	// last unreadCheck of that, its kernel has received less than leastRead either: the socket of a slow client accepts nothing until
	// about half of what the kernel has was sent.
	unreadTime  = 3 * time.Second
	unreadCheck = time.Second
	leastRead   = 8 << 10

	// A client that sends a request slowly is late when it has used lateTime more than its bytes take at slowRate bytes per second.
	slowRate = 1 << 20
	lateTime = 500 * time.Millisecond

	// slowCheck is the time between two checks for such clients, while others wait for memory.
	slowCheck = 100 * time.Millisecond

	// memoryCheck is the time between two checks whether memory is free, because other loops may have freed it.
	memoryCheck = 10 * time.Millisecond
)

// waitingRoom has the clients of one loop that wait with a large request.
type waitingRoom struct {
	queues []waiters // those that are not empty, in the order in which they began
	wakeBy int64     // when memoryWait ends for the clients that wait for memory
	open   bool      // large requests do not wait for memory, because memoryWait has passed

	checkAt int64 // when Clients.FreeForLarge may be called next, while clients wait for memory
}

// waiters are the clients that wait for the same connection, or for memory.
type waiters struct {
	conn *upstream.Conn // the connection that has many unsent bytes; nil: the clients wait for memory
	list []*Session     // in order of arrival
}

// room is what the large request of one client waits for.
type room struct {
	waits bool           // the client is in waitingRoom.queues
	goes  bool           // the client was there: it does not wait for the others there any more
	conn  *upstream.Conn // waiters.conn
	whole int            // length of the request of which the beginning has arrived
	from  int64          // determines the place in waiters.list: when the client began to wait, or later
	late  bool           // the request is rejected, because others wait for memory
	slow  bool           // the client's last large request was rejected for this reason, so clients that begin to wait up to memoryWait later go first

	begins uint64 // number of bytes that the client had sent before the request of which the beginning has arrived
	onTime int64  // time at which a client that sends slowRate bytes per second would have sent the bytes of that request that have arrived

	readAt   int64 // of a client whose socket is full: when it became full, or last accepted bytes
	unsent   int   // how many bytes the kernel had for the client at unsentAt
	unsentAt int64 // when IsUnread last saw that the client's kernel has received leastRead bytes
}

// LacksMemory reports whether a storage command of n bytes must be rejected because limits.memory is reached. A command
// that is not large is rejected only if closing the clients that use most has not freed enough.
func (e *Clients) LacksMemory(n int) bool { return (n >= largeRequest || e.MemoryFull) && e.Scarce(n) }

// memoryUsed reports whether the buffers of large requests may not simply grow, because more than a quarter of
// limits.memory is in use. Buffers that are kept for reuse do not count.
func (e *Clients) memoryUsed() bool {
	if e.unusedMemory() >= e.MemoryLimit/4*3 {
		e.large.open = false
		return false
	}
	return !e.large.open
}

// growth returns the factor by which an input buffer grows. With 2, all bytes of a large value are copied once while it
// arrives. With 4, a third of them are, but the buffer may use twice as much memory.
func (e *Clients) growth() int {
	if e.unusedMemory() >= e.MemoryLimit/8*7 {
		return 4
	}
	return 2
}

func (e *Clients) unusedMemory() int64 { return e.FreeMemory() + e.Buffers.Kept() }

// receives decides how much is read of the current request, whose length is s.Need and of which have bytes
// have arrived: it sets s.Need to the length from which the decision is made again. It returns false if there is no memory. If s must wait
// before more bytes are read, receives stalls s.
func (s *Session) receives(have int) bool {
	e, whole := s.e, s.Need
	e.left.bytes -= have // they are copied
	s.room.whole = whole
	if s.late || int64(whole)+int64(whole)/2 > e.MemoryLimit { // the buffer is copied while it grows, so this can never fit
		return false
	}
	s.Need = min(whole, max(largeRequest, e.growth()*have))
	if have >= largeRequest && whole-have >= largeRequest {
		used := e.memoryUsed()
		if !s.room.goes && e.large.has(nil) || used && !e.mayTake(whole) {
			s.Need = 0
			s.waitForRoom(nil)
			return true
		}
		if used {
			s.Need = whole
		}
	}
	return whole < largeRequest && !e.MemoryFull || !e.Scarce(link.SizeOf(s.Need))
}

// mayTake reports whether half of limits.memory is unused even if a client takes memory for n bytes.
func (e *Clients) mayTake(n int) bool {
	return e.unusedMemory()-int64(link.SizeOf(n)) >= e.MemoryLimit/2
}

// waitsForServer reports whether the large request in Clients.Req, which has the bytes raw, must wait for its
// server. If so, it stalls s. A request does not wait if so much memory is in use that waiting requests could
// use up the rest.
func (s *Session) waitsForServer(raw []byte) bool {
	if len(raw) < largeRequest {
		return false
	}
	c := s.Handler.ConnOf(s, raw)
	if c == nil || s.e.FreeMemory() < s.e.MemoryLimit/4 || !(unsentRoom(c) <= 0 || !s.room.goes && s.e.large.has(c)) {
		s.room.goes, s.slow = false, false
		return false
	}
	s.room.whole = len(raw)
	s.waitForRoom(c)
	return true
}

// unsentRoom returns how many more unsent bytes c may have before large requests wait. A large request of a task may not be in
// c.Out yet, because it waits for earlier commands on its key, or at other servers. Such requests may have twice as many bytes.
func unsentRoom(c *upstream.Conn) int64 {
	return min(maxUnsent, c.Server.Loop().MemoryLimit/8) - int64(max(c.Out.Size, c.TaskBytes/2))
}

// has reports whether a client waits for c, or for memory if c is nil.
func (w *waitingRoom) has(c *upstream.Conn) bool { return w.of(c) != nil }

// of returns the clients that wait for c; nil: none does.
func (w *waitingRoom) of(c *upstream.Conn) *waiters {
	for i := range w.queues {
		if q := &w.queues[i]; q.conn == c {
			return q
		}
	}
	return nil
}

func (s *Session) waitForRoom(c *upstream.Conn) {
	e := s.e
	q := e.large.of(c)
	if q == nil {
		if c == nil {
			e.large.wakeBy = e.Now + int64(memoryWait)
			e.large.checkAt = e.Now
		}
		e.large.queues = append(e.large.queues, waiters{conn: c})
		q = &e.large.queues[len(e.large.queues)-1]
	}
	if c == nil {
		e.Count.WaitedForMemory++
		e.LogLimited(slog.LevelWarn, "", "clients wait with large values: half of limits.memory is in use, or earlier clients wait", "in_use", e.MemoryLimit-e.unusedMemory(), "limit", e.MemoryLimit)
	} else {
		e.Count.WaitedForServer++
	}
	again := s.room.goes // the memory for s was used up meanwhile, so it keeps its place
	if !again {
		s.room.from = e.Now
		if s.slow {
			s.room.from += int64(memoryWait)
		}
	}
	s.room.waits, s.room.goes, s.room.conn = true, false, c
	if len(q.list) > 2*len(e.Sessions) { // most clients in the list are gone
		q.list = slices.DeleteFunc(q.list, func(s *Session) bool { return s.In == nil })
	}
	at := len(q.list)
	for at > 0 && q.list[at-1].room.from > s.room.from {
		at--
	}
	q.list = slices.Insert(q.list, at, s) // after the deletion, because s.In is nil while its input is parsed
	s.stall()
}

// HasLarge reports whether clients with large requests wait.
func (e *Clients) HasLarge() bool { return len(e.large.queues) > 0 }

// WakeLarge wakes the clients with large requests for which there is room, in order of arrival. Each checks again
// when it continues. If the room is not enough any more, it waits again.
func (e *Clients) WakeLarge() {
	keep := e.large.queues[:0]
	for _, q := range e.large.queues {
		if q.conn == nil {
			q.wakeForMemory(e)
		} else {
			room := unsentRoom(q.conn)
			q.wake(e, func(s *Session) bool {
				goes := room > 0
				room -= int64(s.room.whole)
				return goes
			})
		}
		if len(q.list) > 0 {
			keep = append(keep, q)
		}
	}
	clear(e.large.queues[len(keep):])
	e.large.queues = keep
}

// wakeForMemory wakes the clients that wait for memory.
func (q *waiters) wakeForMemory(e *Clients) {
	w := &e.large
	if e.Now >= w.checkAt {
		w.checkAt = e.Now + int64(slowCheck)
		if n := q.overdue(e.Now - int64(patience)); n > 0 {
			e.FreeForLarge(n)
		}
	}
	used := e.memoryUsed()
	if used && e.Now >= w.wakeBy {
		w.open, used = true, false
	}
	taken := 0
	if q.wake(e, func(s *Session) bool {
		goes := w.open || !used && taken == 0 || e.mayTake(taken+s.room.whole)
		taken += link.SizeOf(s.room.whole)
		return goes
	}) {
		w.wakeBy = e.Now + int64(memoryWait)
	}
	if len(q.list) > 0 {
		e.WakeAt(e.Now + int64(memoryCheck))
	}
}

// overdue returns the memory that clients in q need. It counts only clients that began to wait at the given time or before.
func (q *waiters) overdue(since int64) (n int64) {
	for _, s := range q.list {
		if s.room.from > since {
			break
		}
		if s.room.waits && s.room.conn == q.conn && s.In != nil {
			n += int64(link.SizeOf(s.room.whole))
		}
	}
	return n
}

// MissingMemory returns how many bytes must be freed so that large requests that need n bytes can be read.
func (e *Clients) MissingMemory(n int64) int64 {
	return e.MemoryLimit/2 + min(n, e.MemoryLimit/4) - e.unusedMemory()
}

// IsUnread reports whether s has not read its replies for unreadTime. It must be called repeatedly, because it compares how many bytes the
// kernel has for s with that number at least unreadCheck earlier.
func (s *Session) IsUnread() bool {
	e := s.e
	if !s.Full || s.Closed || e.Now-s.readAt < int64(unreadTime-unreadCheck) || s.unsentAt >= s.readAt && e.Now-s.unsentAt < int64(unreadCheck) {
		return false
	}
	unsent := 0
	if s.Sock != nil {
		unsent = s.Sock.Unsent()
	}
	if s.unsentAt < s.readAt || s.unsent-unsent >= leastRead {
		s.unsent, s.unsentAt = unsent, e.Now
		return false
	}
	return e.Now-s.readAt >= int64(unreadTime)
}

// begin is called when only the beginning of a request has arrived, of have bytes. It may be called again for the same request.
func (s *Session) begin(have int) {
	if at := s.BytesIn - uint64(have); at != s.begins || s.onTime == 0 {
		s.begins, s.onTime = at, s.e.Now
	}
}

// IsLate reports whether s sends a request so slowly that it is late. Bytes that Ringside has not read yet count as sent.
func (s *Session) IsLate() bool {
	e := s.e
	if s.In == nil || s.Stalled || s.Closed || s.reset || e.Now-s.onTime < int64(lateTime) {
		return false
	}
	if s.Sock == nil {
		return true
	}
	n := s.Sock.Unread()
	if n >= 2*link.BigSpan { // Ringside is slower than the client
		s.onTime = e.Now
	}
	return e.Now-s.onTime-int64(n)*int64(time.Second)/slowRate >= int64(lateTime)
}

// Reject rejects the value of which only the beginning has arrived, for lack of memory, and discards the rest of it when it arrives. It returns
// false if there is no such value, but a part of another command.
func (s *Session) Reject() bool {
	if s.Need == 0 {
		return false
	}
	s.Need, s.late = 0, true
	s.e.Enter(&s.Link)
	s.Parse()
	s.e.Leave(&s.Link)
	s.late, s.slow = false, true
	s.e.Mark(&s.Link)
	return true
}

// wake wakes the clients at the head of q for which the function goes returns true, and reports whether there are any.
func (q *waiters) wake(e *Clients, goes func(s *Session) bool) (any bool) {
	n := 0
	for ; n < len(q.list); n++ {
		s := q.list[n]
		if !s.room.waits || s.room.conn != q.conn {
			continue
		}
		if s.In == nil { // the client is closed, will be at the end of the wakeup, or the rest of its request had arrived before it was not read any more
			if s.room.waits = false; !s.Closed && !s.reset {
				s.unstall()
			}
			continue
		}
		if !goes(s) {
			break
		}
		s.room.waits, s.room.goes = false, true
		s.waking, any = true, true
		e.ToWake = append(e.ToWake, s)
	}
	clear(q.list[:n])
	q.list = q.list[n:]
	return any
}
