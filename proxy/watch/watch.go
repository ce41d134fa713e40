package watch

// This file decides which requests of one loop are sampled, and what is recorded.

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
	adaptGap  = time.Second // time after which the sampling rate is adapted
	adaptMany = 256         // number of samples after which the sampling rate is adapted, even if less time has passed

	// adaptLeast is the shortest time from which a request rate is computed. All requests of one
	// wakeup have the same time, so the rate over a shorter time would be wrong.
	adaptLeast = adaptGap / 10
	window     = 10 * time.Second // time after which all counts are halved
)

// Watch samples the keys of one loop. It must be created with New.
type Watch struct {
	// Left is the number of requests to skip before the next sample. The code that handles a
	// request decrements Left, and calls Sample or Ended if it becomes negative.
	Left int

	// Judged returns the reason of the last miss of the key. The key has the form that servers
	// know. Judged may be nil.
	Judged func(key []byte) missreason.Reason

	hash   func(key []byte) uint64
	every  int    // on average, one of this many requests is sampled
	random uint64 // state of the random number generator; gaps between samples are random, so that no client's rhythm can hide a key

	looked    int   // number of samples since the sampling rate was adapted
	adaptedAt int64 // time at which the sampling rate was adapted, on the loop's clock

	keys, prefixes sketch
	requests       float64 // estimated number of requests; each sample counts as the number of requests that it represents
	span           float64 // time in which the requests were counted, in nanoseconds; it is halved together with the counts
	at, halvedAt   int64   // at: time at which span was updated; halvedAt: time at which the counts were halved

	hot [256]heat // request rates of hot keys; the slot of a key is its hash modulo 256

	gap      int       // number of requests to skip before the next sample; equal to Left if no keys are traced, because with traces Left is always 0
	patterns []Pattern // patterns of the keys to trace; nil: no keys are traced
	trace    Trace     // events of traced keys that have not been read yet

	free *SampleReceiver // SampleReceivers that are free for reuse, as a linked list
}

// New returns the Watch of one loop. hash must be the same function for all loops. seed determines
// at random which requests are sampled.
func New(hash func(key []byte) uint64, seed uint64) Watch {
	return Watch{hash: hash, every: 1, random: seed | 1, keys: newSketch(mostKeys), prefixes: newSketch(mostPrefixes)}
}

// draws decides whether the current request is sampled. It returns how many requests the sample
// represents. 0 means that the request is not sampled, and is examined only because keys are
// traced.
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

// draw is called for a request that is sampled. It chooses at random how many requests to skip
// next. It returns how many requests the current sample represents.
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
	w.gap = int(w.random % uint64(2*w.every-1)) // skips 0 to 2*every-2 requests, so that one of `every` requests is sampled on average
	return weight
}

// adapt changes how many requests are skipped, so that about perSecond requests are sampled per
// second.
func (w *Watch) adapt(now int64) {
	took := max(now-w.adaptedAt, int64(adaptLeast))
	rate := float64(w.looked) * float64(w.every) / (float64(took) / 1e9)
	w.every = int(min(max(rate/perSecond, 1), 1<<30))
	w.looked, w.adaptedAt = 0, now
	w.gap = min(w.gap, 2*w.every)
	w.Left = min(w.Left, 2*w.every)
}

// age halves the counts each time when `window` is over.
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

// Ended samples a command that needed several requests to servers. It is called after the reply to
// the client. Servers do not see the first `strip` bytes of the key. size is the size of the
// request, or of the value that a read has found.
func (w *Watch) Ended(now int64, key []byte, strip int, op wire.Op, o stats.Outcome, client uint64, size int) {
	if weight := w.draws(now); weight > 0 {
		w.note(now, key, seen{weight, isRead(op), o == stats.Hit, size})
	}
	if w.traces(key) {
		w.record(Event{At: now, Letter: letter(op, o, key, false, false), Op: op, Out: o, Client: client, Bytes: size}, key, strip)
	}
}

// note adds one sample of a request for the key to the counts of the key and of its prefix.
func (w *Watch) note(now int64, key []byte, is seen) {
	w.age(now)
	w.requests += is.weight
	h := w.hash(key)
	w.heed(h, w.keys.add(h, key, is), now)
	prefix := key[:bytes.IndexByte(key, ':')+1]
	w.prefixes.add(w.hash(prefix), prefix, is)
}
