package watch

// Events of traced keys.

import (
	"bytes"
	"slices"

	"ringside/proxy/stats"
	"ringside/proxy/watch/missreason"
	"ringside/proxy/wire"
)

// Event is the outcome of one request on a key.
type Event struct {
	At     int64 // when the reply was complete, on the loop's clock
	Took   int64 // nanoseconds since the request; 0: not known
	Letter byte  // the event, as one letter: see the function letter
	Op     wire.Op
	Out    stats.Outcome
	Client uint64            // number of the client; 0: it is gone
	Server string            // name of the server; empty: several servers were involved
	Bytes  int               // of the value that was found, or of the request
	Why    missreason.Reason // of a miss; Unsure: not known

	from, to int // position of the key in Trace.keys
}

// letter returns the outcome of a request as one letter: see the package documentation.
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

// Cause returns a letter for the cause of a miss. X: memcached evicted the value. F: its server
// was flushed or is out, or the key has another server now. It is empty for other causes.
func Cause(r missreason.Reason) string {
	switch r {
	case missreason.Evicted:
		return "X"
	case missreason.Flushed, missreason.Out, missreason.Moved:
		return "F"
	}
	return ""
}

// Trace has the events of one loop for traced keys. When it is full, further events are counted
// and dropped.
type Trace struct {
	Events  []Event // in the order of the replies
	Dropped int
	Now     int64 // on the loop's clock: when the events were read

	keys []byte
}

// mostEvents is the maximum number of unread events of one loop.
const mostEvents = 4096

// Key returns the key of an event of t.
func (t *Trace) Key(ev *Event) []byte { return t.keys[ev.from:ev.to] }

// Follow traces the keys that match one of patterns, instead of those before; nil: none. The
// caller must not change patterns afterwards.
func (w *Watch) Follow(patterns []Pattern) {
	w.patterns, w.trace = patterns, Trace{}
	if len(patterns) > 0 {
		w.Left = 0 // every request must be examined
	} else {
		w.Left = w.gap
	}
}

// Take returns the events since the last call. The caller owns them.
func (w *Watch) Take(now int64) Trace {
	t := w.trace
	t.Now = now
	w.trace = Trace{}
	return t
}

func (w *Watch) traces(key []byte) bool {
	return slices.ContainsFunc(w.patterns, func(p Pattern) bool { return p.Fits(key) })
}

// record stores an event on key. Servers don't see the first strip bytes of the key.
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
