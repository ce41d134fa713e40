package watch

// The sampling of one loop: which requests are sampled, and what is recorded.

import (
	"bytes"
	"math"
	"time"

	"ringside/proxy/stats"
	"ringside/proxy/watch/missreason"
	"ringside/proxy/wire"
)

const (
	mostKeys     = 512
	mostPrefixes = 64

	perSecond = 1000        // approximate number of samples per second
	adaptGap  = time.Second // the sampling rate is adapted after this time
	adaptMany = 256         // or after this many samples

	// adaptLeast is the minimum time that adapt assumes. All requests of one wakeup have the
	// same time, so a shorter time would not show their rate.
	adaptLeast = adaptGap / 10
	window     = 10 * time.Second // counts are halved after this time
)

// Watch samples the keys of one loop. It must be created with New.
type Watch struct {
	// Left is the number of requests to skip before the next sample. The code that handles a
	// request decrements it, and calls Sample if it becomes negative.
	Left int

	// Judged returns why a read of key, as servers know it, has just missed. It may be nil.
	Judged func(key []byte) missreason.Reason

	off    bool
	hash   func(key []byte) uint64
	every  int    // one of this many requests is sampled, on average
	random uint64 // xorshift state: random gaps, so that no client's rhythm hides a key

	looked    int   // samples since the last adaptation
	adaptedAt int64 // on the loop's clock, as all times

	keys, prefixes sketch
	requests       float64 // estimated number of requests: each sample counts with its weight
	span           float64 // nanoseconds in which the counted requests were made; halved like the counts
	at, halvedAt   int64   // when span was updated; when the counts were halved

	hot [256]heat // slot of a key: its hash modulo the length

	gap      int       // value of Left without traces; with traces Left is 0
	patterns []Pattern // of the traced keys; nil: no trace
	trace    Trace     // events of these keys

	free *SampleReceiver // kept for reuse, linked by next
}

// New returns the Watch of a loop. hash must be the same function on all loops. seed determines
// which requests are sampled.
func New(hash func(key []byte) uint64, seed uint64) Watch {
	return Watch{hash: hash, every: 1, random: seed | 1, keys: newSketch(mostKeys), prefixes: newSketch(mostPrefixes)}
}

// Switch starts the sampling, or stops it and drops the samples.
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

// draws decides whether the current request is sampled, and returns its weight: how many
// requests it represents. 0 means that it is only examined for a trace.
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

// draw selects the next request to sample. It returns the weight of the current one.
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
	w.gap = int(w.random % uint64(2*w.every-1)) // 0 to 2*every-2 requests are skipped: one of every is sampled on average
	return weight
}

// adapt sets the sampling rate to about perSecond samples per second.
func (w *Watch) adapt(now int64) {
	took := max(now-w.adaptedAt, int64(adaptLeast))
	rate := float64(w.looked) * float64(w.every) / (float64(took) / 1e9)
	w.every = int(min(max(rate/perSecond, 1), 1<<30))
	w.looked, w.adaptedAt = 0, now
	w.gap = min(w.gap, 2*w.every)
	w.Left = min(w.Left, 2*w.every)
}

// age halves the counts when it is time.
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

// Ended samples a command that needed several requests to servers, after its reply. Servers
// don't see the first strip bytes of its key. size is the size of the request, or of the value
// that a read has found.
func (w *Watch) Ended(now int64, key []byte, strip int, op wire.Op, o stats.Outcome, client uint64, size int) {
	if weight := w.draws(now); weight > 0 {
		w.note(now, key, seen{weight, isRead(op), o == stats.Hit, size})
	}
	if w.traces(key) {
		w.record(Event{At: now, Letter: letter(op, o, key, false, false), Op: op, Out: o, Client: client, Bytes: size}, key, strip)
	}
}

// note counts the outcome of a request on key.
func (w *Watch) note(now int64, key []byte, is seen) {
	w.age(now)
	w.requests += is.weight
	h := w.hash(key)
	w.heed(h, w.keys.add(h, key, is), now)
	prefix := key[:bytes.IndexByte(key, ':')+1]
	w.prefixes.add(w.hash(prefix), prefix, is)
}
