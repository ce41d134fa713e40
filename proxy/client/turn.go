package client

// How much work of one client a loop does before it serves the others.

// A client has one turn in each wakeup. The turn ends when the loop has handled
// TurnKeys keys or TurnBytes bytes of the client's requests. What the client has sent
// beyond that stays in its input; the client waits in Clients.Wake, in the order of
// arrival, and the loop does not sleep until it had its next turn.
//
// All turns together have a bound too: after RoundKeys keys or RoundBytes bytes the
// driver sends what has been asked so far (see Clients.Spent), and Resume leaves the
// clients that still wait to the next wakeup. So between reading a request and sending
// it, a loop handles at most two rounds of other clients, one of new input and one of
// clients that waited, and one turn and one command line more for each of the two: the
// turn that passes the bound is finished.
//
// A read of many keys is asked in pieces of TurnKeys keys, or of what is left of Share
// while the loop is busy: the rest waits in Exchange.Rest until the piece before is
// answered. A loop is busy while BusyKeys keys are in flight at its servers. Then a
// client may have only Share keys in flight. So a request waits at its server behind a
// bounded number of keys of each other client, whatever they have sent.
const (
	TurnKeys   = 1024
	TurnBytes  = 256 << 10
	RoundKeys  = 4 * TurnKeys
	RoundBytes = 4 * TurnBytes
	BusyKeys   = 16 * TurnKeys
	ShareKeys  = 64

	// keyBytes is how many bytes of a request count as one key more.
	keyBytes = 4 << 10
)

// turn is the work that may still be done.
type turn struct{ keys, bytes int }

// over says that all of it is done.
func (t *turn) over() bool { return t.keys|t.bytes < 0 }

// beginTurn gives s its turn, unless it had one in this wakeup.
func (s *Session) beginTurn() {
	if now := s.e.Count.Wakeups; s.round != now {
		s.round, s.turn = now, turn{TurnKeys - 1, TurnBytes - 1}
	}
}

// yield stops parsing until the next turn of s.
func (s *Session) yield() {
	s.stall()
	if !s.waking {
		s.waking = true
		s.e.Wake = append(s.e.Wake, s)
	}
}

// UseTurn counts n keys that are asked for, beyond the first of a command, as a part of the
// client's turn.
func (s *Session) UseTurn(n int) { s.turn.keys -= n }

// AddWork counts n keys that x has in flight beyond the first. Large requests count as
// several keys.
func (x *Exchange) AddWork(n int) {
	x.more += n
	x.e.More += n
	if x.Session != nil {
		x.Session.more += n
	}
}

// endWork is AddWork in reverse: the keys of x are answered that have been asked for.
func (x *Exchange) endWork() { x.AddWork(-x.more) }

// SetShare sets what Share depends on. It must be called when Limits has changed.
func (e *Clients) SetShare() { e.Share = min(ShareKeys, e.Limits.InFlight) }

// busy says that so much is in flight that each client may have Share keys only.
func (e *Clients) busy() bool { return e.Servers.Outstanding+e.More >= BusyKeys }

// inFlight is how many keys a client may have in flight now.
func (e *Clients) inFlight() int {
	if e.busy() {
		return e.Share
	}
	return e.Limits.InFlight
}

// BeginRound begins a round of the loop: see RoundKeys.
func (e *Clients) BeginRound() { e.left = turn{RoundKeys - 1, RoundBytes - 1} }

// spend counts what was done for a client.
func (e *Clients) spend(keys, bytes int) {
	e.left.keys -= keys
	e.left.bytes -= bytes
}

// Spent says that so much was done in this round that the driver must send it, by End and
// Begin, before it reads more.
func (e *Clients) Spent() bool { return e.left.over() }

// HasBacklog says whether clients wait for their turn. Then the driver must not sleep.
func (e *Clients) HasBacklog() bool { return len(e.Wake) > 0 }

// Resume gives the clients that wait their turn, one round of them.
func (e *Clients) Resume() {
	if len(e.Wake) == 0 {
		return
	}
	e.BeginRound()
	i, keep := 0, 0
	for ; i < len(e.Wake) && !e.Spent(); i++ { // it may grow: a parsed request can be answered at once
		s := e.Wake[i]
		if s.beginTurn(); s.turn.over() && !s.Closed { // it had its turn in this wakeup
			e.Wake[keep] = s
			keep++
			continue
		}
		s.resume()
	}
	e.Wake = append(e.Wake[:keep], e.Wake[i:]...)
}
