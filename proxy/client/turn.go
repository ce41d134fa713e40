package client

// This file limits how much work a loop does for one client before it handles the other
// clients.

import (
	"time"

	"ringside/proxy/link"
	"ringside/proxy/wire"
)

// A client has one turn in each wakeup. The turn ends when the loop has handled TurnKeys keys
// or TurnBytes bytes of the client's requests. Further requests stay in the client's input. The
// client then waits in Clients.ToWake, in order of arrival, and the loop does not sleep until its
// next turn.
//
// All turns together are limited too. After RoundKeys keys or RoundBytes bytes the driver sends
// the requests so far (see Clients.Spent), and Resume leaves the clients that still wait to the
// next wakeup. The turn that exceeds the limit is finished. So between reading a request and
// sending it, a loop handles at most two rounds of other clients: one of new input and one of
// clients that waited. Each may exceed its limit by one turn and one command line. Bytes count when
// they are parsed or skipped. Those of an incomplete large request count when they are read, and again when
// it is parsed.
//
// While clients wait, the turn for new input is small: FirstKeys keys or FirstBytes bytes. So clients
// with few requests pass those that wait, and a wakeup takes about as long as two rounds, however many
// clients send. That also bounds how long the reply of a server waits in its socket, which matters for
// requests that Ringside answers itself: nothing of them is in flight.
//
// A multi-key read is sent in pieces: of what is left of the turn, or of Share while the loop is busy.
// The rest waits in Exchange.Rest until the piece before is answered. A loop is busy while busyKeys keys
// are in flight at its servers. A client may then have only Share keys in flight. So a request waits at
// its server for a limited number of keys of each other client, whatever they send.
//
// A key that needs a task is about twenty times as much work, so it counts as taskWork keys. Only its
// reply may show that it does. So after a piece with many such keys, the client's next piece has at most
// TaskKeys keys. That also holds for the first piece of a client if a route has features that
// need tasks, and after another client's piece with many such keys. At most RoundTasks tasks start in
// one wakeup because of a reply, or because they have waited (package task). A loop is also busy while
// many tasks wait for their start, for room in a server's queue, or for a server: each counts as taskWork keys. A task that waits for
// something else, such as another client's rebuild, counts only for its own client.
const (
	TurnKeys   = 1024
	TaskKeys   = 64
	RoundTasks = 4 * TaskKeys
	taskWork   = TurnKeys / TaskKeys
	TurnBytes  = 256 << 10
	RoundKeys  = 4 * TurnKeys
	RoundBytes = 4 * TurnBytes
	FirstKeys  = RoundKeys / 256 // a driver handles at most 256 events in a wakeup
	FirstBytes = RoundBytes / 256
	busyKeys   = 16 * TurnKeys
	ShareKeys  = 64
	ShareTasks = ShareKeys / taskWork

	// clientTasks is the maximum number of tasks that a client has in flight, or waiting for their
	// start, while the loop is not busy.
	clientTasks = RoundTasks

	// FirstTasks is the maximum number of tasks of a new client, before it has a reply.
	FirstTasks = 16 // of reads that need no task, it may have ShareKeys

	// sizeReplies is the number of replies of which the mean size is that of a client's next replies.
	sizeReplies = 16

	// keyBytes is the number of bytes of a request that count as one more key.
	keyBytes = 4 << 10

	// smallPieces is for how long the first pieces of new clients are small after a piece with many
	// keys that need tasks, in nanoseconds.
	smallPieces = int64(10 * time.Second)
)

// turn is an amount of work that may still be done.
type turn struct{ keys, bytes int }

// over reports whether the keys or the bytes of the turn are used up.
func (t *turn) over() bool { return t.keys|t.bytes < 0 }

// beginTurn sets how much work the loop may do for s in this wakeup, unless that is already set.
func (s *Session) beginTurn() {
	if now := s.e.Count.Wakeups; s.round != now {
		if s.round, s.turn = now, (turn{TurnKeys - 1, TurnBytes - 1}); len(s.e.ToWake) > 0 && !s.waking {
			s.turn = turn{FirstKeys - 1, FirstBytes - 1}
		}
	}
}

// yield stops parsing until the next turn of s.
func (s *Session) yield() {
	s.stall()
	if !s.waking {
		s.waking = true
		s.e.ToWake = append(s.e.ToWake, s)
	}
}

// UseTurn subtracts n keys from the client's turn: those that a command requests beyond the
// first.
func (s *Session) UseTurn(n int) {
	s.turn.keys -= n
	s.moreKeys += n
}

// AddWork adds n to the keys in flight of x beyond the first. Large requests count as several
// keys.
func (x *Exchange) AddWork(n int) {
	x.more += n
	x.e.More += n
	if x.Session != nil {
		x.Session.more += n
	}
}

// endWork reverts AddWork: the keys that x has requested are answered.
func (x *Exchange) endWork() { x.AddWork(-x.more) }

// SetShare computes Share and few from Limits and size. It must be called when one of them has changed.
func (e *Clients) SetShare() {
	e.Share = min(ShareKeys, e.Limits.InFlight)
	e.few = max(1, min(e.Share, e.Limits.Output/max(1, e.size)))
}

// busy reports whether so much is in flight that each client may have only Share keys in
// flight.
func (e *Clients) busy() bool {
	return e.Servers.Outstanding+e.More+taskWork*(e.ReadyTasks+e.TaskAsks) >= busyKeys
}

// mayAdd reports whether s may have one more command in flight.
func (s *Session) mayAdd() bool {
	keys, tasks := s.inFlight()
	return s.InFlight+s.more < keys && s.Tasks < tasks
}

// inFlight returns how many keys and how many tasks s may have in flight now. Their replies delay those to other clients on the
// same connections. So they are few until the size of replies to s is known, and then their replies together have
// about limits.output bytes. The reply to a task, or to a read in Reads, can't be taken back from its
// connection, so these are fewer.
func (s *Session) inFlight() (keys, tasks int) {
	answered := s.measure()
	keys, tasks = s.e.Limits.InFlight, min(clientTasks, FirstTasks+answered)
	switch {
	case s.Reads != nil:
		keys = min(keys, tasks)
	case answered == 0 && s.Tail != nil && s.Tail.Op >= wire.Get && s.Tail.Op <= wire.Gats:
		keys = s.e.Share
	}
	if s.e.busy() {
		keys, tasks = min(keys, s.e.Share), ShareTasks
	}
	most := s.sized()
	return min(keys, most), min(tasks, most)
}

// measure updates size, and returns how many keys of s are answered. A client is paced if its
// replies are so large that it may have fewer than ShareTasks in flight. It then uses the connections of bulky clients.
func (s *Session) measure() (answered int) {
	answered = s.answered()
	if n := answered - s.sizedAt; n >= sizeReplies || n > 0 && s.sizedAt == 0 {
		s.size = max(1, int(s.made()-s.sizedFrom)/n) // commands with noreply have no replies, which does not make their size unknown
		if n >= sizeReplies {
			s.sizedAt, s.sizedFrom = answered, s.made()
		}
		if e := s.e; s.size >= max(e.size, link.BigSpan) || e.size >= link.BigSpan && e.Now >= e.pacedUntil { // smaller ones change no limit
			e.size = s.size
			e.SetShare()
		}
		if s.sized() < ShareTasks {
			s.pace()
			s.e.pacedUntil = s.e.Now + int64(paceTime)
		}
	}
	return answered
}

// answered returns how many keys of s are answered.
func (s *Session) answered() int { return max(0, int(s.requests)+s.moreKeys-s.InFlight-s.more) }

// NoteSize records that a reply to a client has n bytes. It is called for clients that are not measured: they have left, or have
// few requests in flight. If n is large, new clients are paced and bulky for paceTime, as after measure.
func (e *Clients) NoteSize(n int) {
	if e.Limits.Output/max(1, n) >= ShareTasks {
		return
	}
	if n > e.size {
		e.size = n
		e.SetShare()
	}
	e.pacedUntil = e.Now + int64(paceTime)
}

// sized returns how many replies of the current size have about limits.output bytes; at least one. Until the size
// of replies to s is known, it is the largest that was measured lately, if that is large: new clients with large values must not
// profit from others with small ones.
func (s *Session) sized() int {
	size := s.size
	if size == 0 {
		size = s.e.size
	}
	return max(1, s.e.Limits.Output/max(1, size))
}

// BeginRound starts a round of the loop: see RoundKeys.
func (e *Clients) BeginRound() { e.left = turn{RoundKeys - 1, RoundBytes - 1} }

// Spent reports whether this round has used its limit. The driver must then send the requests,
// with End and Begin, before it reads more.
func (e *Clients) Spent() bool { return e.left.over() }

// HasBacklog reports whether clients or tasks wait for their turn. If so, the driver must not sleep.
func (e *Clients) HasBacklog() bool { return len(e.ToWake) > 0 || e.ReadyTasks > 0 }

// Resume continues with the clients that wait for their turn. All calls in a wakeup together do at most one
// round, because the driver calls End again as long as there are effects.
func (e *Clients) Resume() {
	if len(e.ToWake) == 0 {
		return
	}
	if now := e.Count.Wakeups; e.resumed != now {
		e.resumed = now
		e.BeginRound()
	}
	i, keep := 0, 0
	for ; i < len(e.ToWake) && !e.Spent(); i++ { // ToWake may grow meanwhile, because a parsed request can be answered at once
		s := e.ToWake[i]
		if s.beginTurn(); s.turn.over() && !s.Closed { // the client has used up its turn in this wakeup
			e.ToWake[keep] = s
			keep++
			continue
		}
		s.resume()
	}
	e.ToWake = append(e.ToWake[:keep], e.ToWake[i:]...)
}
