package watch

// What one loop sees: which requests it looks at, and what it makes of them.

import (
	"bytes"
	"math"
	"time"

	"ringside/proxy/stats"
	"ringside/proxy/watch/why"
	"ringside/proxy/wire"
)

const (
	mostKeys     = 512
	mostPrefixes = 64

	perSecond = 1000        // requests that are looked at, about
	adaptGap  = time.Second // after that time it is looked again how many there are to choose from
	adaptMany = 256         // or after so many looks

	// adaptLeast is taken for the time of what comes faster: all that one wakeup brings has
	// one time, and says nothing of how many there are in a second.
	adaptLeast = adaptGap / 10
	window     = 10 * time.Second // after that time counts are halved
)

// Watch is what one loop sees of keys. It must be made by New.
type Watch struct {
	// Left is how many requests are not looked at before the next that is. Who serves
	// a request takes one, and where none is left calls Look.
	Left int

	// Judged is why a read of a key, as servers know it, has just found nothing. It may be
	// nil.
	Judged func(key []byte) why.Reason

	off    bool
	hash   func(key []byte) uint64
	every  int    // of so many requests one is looked at, on average
	random uint64 // xorshift: which one it is, so that no client's rhythm hides a key

	looked    int   // requests since adapted
	adaptedAt int64 // on the loop's clock, as all times

	keys, prefixes sketch
	requests       float64 // that were seen, each as often as it stands for others
	span           float64 // nanoseconds in which they were; halved as they are
	at, halvedAt   int64   // when span was brought up to date; when counts were halved

	hot [256]heat // of keys by their hashes

	gap      int       // what Left would be if nobody followed keys; then Left is 0
	patterns []Pattern // of keys that somebody follows; nil: nobody does
	trace    Trace     // of these

	free *Sight // kept for reuse, linked by next
}

// New watches a loop. hash is the same on all loops; seed decides which requests are
// looked at.
func New(hash func(key []byte) uint64, seed uint64) Watch {
	return Watch{hash: hash, every: 1, random: seed | 1, keys: newSketch(mostKeys), prefixes: newSketch(mostPrefixes)}
}

// Switch begins to look at requests, or ends it and forgets what was seen.
func (w *Watch) Switch(on bool) {
	if on != w.off {
		return
	}
	random, patterns, judged := w.random, w.patterns, w.Judged
	*w = New(w.hash, random)
	w.Judged = judged
	w.Follow(patterns)
	if w.off = !on; w.off {
		w.gap = math.MaxInt
		w.Follow(patterns)
	}
}

// draws says whether the request at hand is one that is looked at, and how many
// requests it stands for then. If not it is only somebody who follows keys that wants
// to see it.
func (w *Watch) draws(now int64) (weight float64) {
	if w.patterns != nil && w.gap > 0 {
		w.gap--
		w.Left = 0
		return 0
	}
	weight = w.draw(now)
	if w.Left = w.gap; w.patterns != nil {
		w.Left = 0
	}
	return weight
}

// draw decides which request is looked at next. It returns how many requests the one
// at hand stands for.
func (w *Watch) draw(now int64) (weight float64) {
	if w.at == 0 {
		w.at, w.halvedAt, w.adaptedAt = now, now, now
	}
	weight = float64(w.every)
	if w.looked++; w.looked >= adaptMany || now-w.adaptedAt >= int64(adaptGap) {
		w.adapt(now)
	}
	w.random ^= w.random << 13
	w.random ^= w.random >> 7
	w.random ^= w.random << 17
	w.gap = int(w.random % uint64(2*w.every-1)) // a gap of 1 to 2*every-1: every on average
	return weight
}

// adapt sees to it that about perSecond requests a second are looked at.
func (w *Watch) adapt(now int64) {
	took := max(now-w.adaptedAt, int64(adaptLeast))
	rate := float64(w.looked) * float64(w.every) / (float64(took) / 1e9)
	w.every = int(min(max(rate/perSecond, 1), 1<<30))
	w.looked, w.adaptedAt = 0, now
	w.gap = min(w.gap, 2*w.every)
	w.Left = min(w.Left, 2*w.every)
}

// age halves what is counted when it is time.
func (w *Watch) age(now int64) {
	w.span += float64(now - w.at)
	w.at = now
	n := (now - w.halvedAt) / int64(window)
	if n == 0 {
		return
	}
	w.halvedAt += n * int64(window)
	f := math.Ldexp(1, -int(min(n, 100)))
	w.span *= f
	w.requests *= f
	w.keys.scale(f)
	w.prefixes.scale(f)
}

// Ended looks at a request on key, by that client, that takes several requests to servers, when it has
// its answer. Servers don't see the first strip bytes of the key. size is what it has brought, or what a
// read has found.
func (w *Watch) Ended(now int64, key []byte, strip int, op wire.Op, o stats.Outcome, client uint64, size int) {
	if weight := w.draws(now); weight > 0 {
		w.note(now, key, seen{weight, isRead(op), o == stats.Hit, size})
	}
	if w.traces(key) {
		w.tell(Event{At: now, Letter: Letter(op, o, key, false, false), Op: op, Out: o, Client: client, Bytes: size}, key, strip)
	}
}

// note counts what has become of a request on key.
func (w *Watch) note(now int64, key []byte, is seen) {
	w.age(now)
	w.requests += is.weight
	h := w.hash(key)
	w.heed(h, w.keys.add(h, key, is), now)
	prefix := key[:bytes.IndexByte(key, ':')+1]
	w.prefixes.add(w.hash(prefix), prefix, is)
}
