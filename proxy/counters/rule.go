package counters

// This file has the rules of this package as pure functions: they get events, and return what to send
// or to reply. They send nothing and have no clock. explore_test.go explores them in all orders of
// events, and shows for each clause what breaks without it.

import (
	"ringside/proxy/stats"
	"ringside/proxy/wire"
)

// class is the kind of a command on a counter with buffered increments.
type class uint8

const (
	exact    class = iota // needs the number at the server, or changes it in another way than the classes below
	adds                  // an increment that can be buffered
	reads                 // a read; the buffered increments are added to the number in its reply
	replaces              // a set or delete, which makes the buffered increments void
)

// act is what to do with a command, or with a counter that is due.
type act uint8

const (
	wait    act = iota // wait until a request has ended
	reply              // the increment is buffered: reply with the number from shown
	send               // send the command
	sendSum            // send the increments in inFlight; a command follows them
	drop               // nothing is left to do
)

// outcome is the result of a request.
type outcome uint8

const (
	refused  outcome = iota // the reply has no number
	counted                 // the reply has the number that the counter has now
	inDoubt                 // no reply: the server may have executed the request
	unsent                  // no server has received a byte of the request
	rejected                // the reply says that the request has changed nothing, for example because it is malformed
)

// batch is a sum of increments.
type batch struct {
	sum      uint64 // modulo 2^64, like the counters of memcached
	commands uint64
	since    int64 // arrival of the first increment
}

func (b *batch) add(o batch) {
	if b.sum == 0 {
		b.since = o.since
	}
	b.sum += o.sum
	b.commands += o.commands
}

// buffered is what is known of one counter with buffered increments.
//
// Reads run together. All other requests run alone, also the request that sends the increments.
type buffered struct {
	warm     bool   // known is from a reply that is younger than the interval, so increments are buffered
	known    uint64 // the counter's value in the last reply of the server
	pending  batch  // the increments that were not sent yet
	inFlight batch  // the increments that were sent and have no reply so far
	alone    bool   // a request other than a read is in progress
	readers  int    // number of reads in progress
	overdue  bool   // the increments are sent as soon as no request is in progress
}

// arrive returns what to do with a command that arrives at the time now. The parameter delta is the
// number that an increment adds.
func (b *buffered) arrive(c class, delta uint64, now int64) act {
	switch {
	case c == adds && b.warm:
		b.pending.add(batch{delta, 1, now})
		return reply
	case b.alone || c != reads && b.readers > 0 || c == reads && b.overdue: // were reads to start while the increments are overdue, the increments might never be sent
		return wait
	case c == reads:
		b.readers++
		return send
	case b.pending.sum > 0 && c != replaces:
		return b.take()
	}
	b.start()
	return send
}

// take starts the request that sends the increments.
func (b *buffered) take() act {
	b.alone, b.inFlight, b.pending = true, b.pending, batch{}
	return sendSum
}

// start starts a command that runs alone. It may change the counter in any way, so no increments are
// buffered until its reply.
func (b *buffered) start() { b.alone, b.warm = true, false }

// shown returns the number in the reply to a buffered increment.
func (b *buffered) shown(last bool) uint64 {
	if last {
		return b.known
	}
	return b.known + b.inFlight.sum + b.pending.sum
}

// read ends a read, and returns the number that is added to the number in its reply.
func (b *buffered) read() uint64 {
	b.readers--
	return b.pending.sum
}

// ended ends a command of the class c that ran alone. n is the number in the reply. ended returns the
// increments that the command has replaced.
func (b *buffered) ended(c class, o outcome, n uint64) (lost batch) {
	b.alone = false
	switch {
	case c == adds && o == counted:
		b.known, b.warm = n, true
	case c == replaces && o != unsent && o != rejected:
		lost, b.pending = b.pending, batch{}
	}
	return lost
}

// sent ends the request that has sent the increments. n is the number in the reply. If keep is set,
// increments that no server has received are sent again later. sent returns the increments that are
// lost, with the reason. A request that may have reached the server is never sent again, because it
// may have counted.
func (b *buffered) sent(o outcome, n uint64, keep bool) (lost batch, why stats.LostCount) {
	was := b.inFlight
	b.alone, b.inFlight = false, batch{}
	switch {
	case o == counted:
		b.known, b.warm = n, true
		return lost, why
	case o == unsent && keep:
		was.add(b.pending)
		b.pending = was
		return lost, why
	case o == inDoubt:
		b.known += was.sum
		return was, stats.LostUnsure
	case o == refused || o == rejected: // the key is gone, or its value is not a number
		why = stats.LostMissing
	default:
		why = stats.LostUnreachable
	}
	b.warm = false
	return was, why
}

// due returns what to do when the interval has passed, or when the last request has ended and the
// increments are overdue.
func (b *buffered) due() act {
	if b.overdue = b.busy(); b.overdue {
		return wait
	}
	if b.pending.sum > 0 {
		return b.take()
	}
	b.warm = false
	return drop
}

// busy reports whether a request is in progress.
func (b *buffered) busy() bool { return b.alone || b.readers > 0 }

// holds reports whether b has increments, or a number that is used for replies.
func (b *buffered) holds() bool { return b.warm || b.pending.sum > 0 }

// making is the last request of an incr or decr that creates a missing counter.
type making uint8

const (
	counting making = iota // the client's command
	creating               // ma with N and J
	adding                 // add
)

// step is what follows a reply.
type step uint8

const (
	giveReply  step = iota // the client gets the reply
	giveNumber             // the counter was created, or counted if another client has created it: the client gets the number
	giveAbsent             // the client gets NOT_FOUND
	goOn                   // send the next request
	again                  // begin again after a moment
)

// next returns what follows a reply of the kind k, and the next request. occupied is set if the reply
// says that the item is not a number. old is set if the server is too old for meta commands, and plain if
// add can name the key. If patient is set, the command may begin again.
func (m making) next(k wire.Kind, occupied, old, plain, patient bool) (making, step) {
	missed := k == wire.End || k == wire.Miss || k == wire.NotFound
	switch {
	case m == counting && missed:
		return creating, goOn
	case m == creating && old && plain:
		return adding, goOn
	case m == counting || old:
		return m, giveReply
	case m == creating && (occupied || missed) && patient: // the request found a value that was stored in between, or the placeholder of a repair; or a replica lost the item in between
		return counting, again
	case !k.Answered():
		return m, giveReply
	case missed:
		return m, giveAbsent
	case m == adding && k != wire.Stored: // another client has created the counter in between
		return counting, goOn
	}
	return m, giveNumber
}
