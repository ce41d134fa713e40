package watch

// This file has the events of traced keys.

import (
	"bytes"
	"slices"

	"ringside/proxy/stats"
	"ringside/proxy/watch/missreason"
	"ringside/proxy/wire"
)

// Event is the outcome of one request on a key.
type Event struct {
	At     int64 // time at which the reply was complete, on the loop's clock
	Took   int64 // duration of the request in nanoseconds; 0: not known
	Letter byte  // letter for the kind of event, as the function letter returns it
	Op     wire.Op
	Out    stats.Outcome
	Client uint64            // number of the client; 0: the client has disconnected
	Server string            // name of the server; empty: several servers were involved
	Bytes  int               // size of the value that was found, or of the request, in bytes
	Why    missreason.Reason // reason of a miss; Unsure: not known, or no miss

	from, to int // position of the key in the field keys of Trace
}

// letter returns the outcome of a request as one letter. The package documentation lists the
// letters.
func letter(op wire.Op, o stats.Outcome, key []byte, stale, won bool) byte {
	lock := bytes.HasPrefix(key, []byte(Lock))
	done := o == stats.Stored || o == stats.Okay || o == stats.Hit
	which := func(yes, no byte) byte {
		if done {
			return yes
		}
		return no
	}
	switch {
	case o.Failed() || o == stats.ClientFault:
		return 'E'
	case op == wire.Touch || op == wire.Gat || op == wire.Gats:
		return 'T'
	case isRead(op) && won:
		return 'R'
	case isRead(op) && stale:
		return 'S'
	case isRead(op):
		return which('H', 'M')
	case op == wire.Add:
		return which('L', 'l')
	case op == wire.Incr || op == wire.Decr:
		return 'I'
	case op == wire.Delete && lock:
		return which('U', 'd')
	case op == wire.Delete:
		return which('D', 'd')
	}
	return which('W', 'w')
}

// Cause returns a letter for the reason of a miss. X means that memcached evicted the value. F
// means that the server was flushed or is out, or that the key has another server now. Other
// reasons have no letter.
func Cause(r missreason.Reason) string {
	switch r {
	case missreason.Evicted:
		return "X"
	case missreason.Flushed, missreason.Out, missreason.Moved:
		return "F"
	}
	return ""
}

// Trace has the events of one loop for traced keys. If there are too many events, the further ones
// are only counted.
type Trace struct {
	Events  []Event // the events, in the order in which the replies arrived
	Dropped int
	Now     int64 // time at which the events were read, on the loop's clock

	keys []byte
}

// mostEvents is the maximum number of events in one loop that have not been read yet.
const mostEvents = 4096

// Key returns the key of an event of t.
func (t *Trace) Key(ev *Event) []byte { return t.keys[ev.from:ev.to] }

// Follow replaces the traced patterns; nil: no keys are traced any more. The caller must not change
// the slice afterwards.
func (w *Watch) Follow(patterns []Pattern) {
	w.patterns, w.trace = patterns, Trace{}
	if len(patterns) > 0 {
		w.Left = 0 // every request must be examined, so none is skipped
	} else {
		w.Left = w.gap
	}
}

// Take returns the events since the last call of Take. They belong to the caller.
func (w *Watch) Take(now int64) Trace {
	t := w.trace
	t.Now = now
	w.trace = Trace{}
	return t
}

func (w *Watch) traces(key []byte) bool {
	return slices.ContainsFunc(w.patterns, func(p Pattern) bool { return p.Fits(key) })
}

// record stores an event of a traced key. Servers do not see the first `strip` bytes of the key.
func (w *Watch) record(ev Event, key []byte, strip int) {
	t := &w.trace
	if len(t.Events) == mostEvents {
		t.Dropped++
		return
	}
	if t.Events == nil {
		t.Events, t.keys = make([]Event, 0, 64), make([]byte, 0, 2048)
	}
	if ev.Letter == 'M' && w.Judged != nil {
		ev.Why = w.Judged(key[strip:])
	}
	ev.from = len(t.keys)
	t.keys = append(t.keys, key...)
	ev.to = len(t.keys)
	t.Events = append(t.Events, ev)
}
