package missreason

// This file records operations on keys, and finds out from them why a read has missed.

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Reason is why a read has missed.
type Reason uint8

// The miss reasons.
const (
	Unsure Reason = iota // the reason is not known, or the key has not been sampled for long enough
	Never
	Expired
	Deleted
	Evicted
	Flushed
	Out
	Moved
	Invalidated
	NumReasons
)

func (r Reason) String() string {
	return [NumReasons]string{"unsure", "never", "expired", "deleted", "evicted", "flushed", "out", "moved", "invalidated"}[r]
}

const (
	buckets = 8192 // number of buckets; it must be a power of two
	ways    = 8    // number of keys that one bucket can have
	most    = buckets * ways / 2

	reach     = int64(time.Hour)   // a key with an operation within this time is not dropped; fewer keys are sampled instead
	longest   = int64(time.Minute) // greatest time from a miss to the set that it has caused; a later set has another cause
	perSecond = 4000               // approximate maximum number of recorded operations per second
	adaptGap  = int64(time.Second)
	everyKey  = math.MaxUint64

	clockStep = int64(time.Second) // step of memcached's clock, in nanoseconds: a value may expire that much too early
)

// Place is the location of a key: two numbers of servers. The caller assigns a number to each
// server.
type Place struct {
	Home   uint16 // number of the server that has the key according to the current table
	Served uint16 // number of the server that was used; it differs from Home if Home is out
}

type state uint8

const (
	free state = iota
	missed
	stored
	deleted
)

// entry describes the last operation on one key. Times are on the loops' clock, in nanoseconds.
type entry struct {
	at      int64 // time of the last store or delete, or of the first miss if neither was seen
	missed  int64 // time of the first miss since the last store or delete; a miss more than a minute later replaces it; 0: no miss
	finger  uint32
	expires uint32 // how many seconds after `at` the value expires; 0: never
	Place
	state state
	why   Reason // reason of the last miss; Unsure if there was none since the last store or delete
}

// server has the events by which one server lost values, as times on the loops' clock; 0: there was
// none.
type server struct {
	flushed, out int64
	evicted      int64 // time at which the server's eviction counter was last seen to be higher than before
	flushedBy    int64 // time at which the server's flush counter was last seen to be higher than before, because another client has flushed the server

	counted  int64    // time at which the server's counters were last read
	counters Counters // the server's counters when they were last read
	asked    int64    // time of the miss for which CountersToRead last returned the server
	doubt    int64    // time of the server's last miss for which no reason was found in the recorded operations
}

// Counters has two counters of a memcached server since its start: evictions and cmd_flush.
type Counters struct{ Evictions, Flushes uint64 }

// Recorder remembers the last operation on each sampled key. It is safe for concurrent use.
type Recorder struct {
	limit atomic.Uint64 // greatest hash of a sampled key: keys with a higher hash are not recorded

	mu      sync.Mutex
	entries []entry // entries of the sampled keys: all buckets, one after the other
	used    int
	servers []server
	since   int64 // time from which on all operations on sampled keys are known

	whole     uint64 // greatest hash of the keys that were sampled during all the time since `since`; keys with higher hashes are sampled since `raised`
	raised    int64
	told      int   // number of operations since the sample was adapted last
	adaptedAt int64 // time at which it was last checked whether more or fewer keys should be sampled
}

// newRecorder returns an empty Recorder. At first, all keys are sampled.
func newRecorder(now int64) *Recorder {
	t := &Recorder{entries: make([]entry, buckets*ways), since: now, whole: everyKey, adaptedAt: now}
	t.limit.Store(everyKey)
	return t
}

// Wants reports whether the key with the given hash is sampled. All hashes must be of the same
// function, and spread over 64 bits.
func (t *Recorder) Wants(hash uint64) bool { return hash <= t.limit.Load() }

// Chosen returns the fraction of all keys that are sampled, 0 to 1.
func (t *Recorder) Chosen() float64 { return float64(t.limit.Load()) / everyKey }

// Since returns the time from which on all operations on sampled keys are known, on the loops'
// clock.
func (t *Recorder) Since() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.since
}

// Stored records that a value of the key was stored for ttl seconds. A ttl of 0 means that the
// value does not expire. If the key missed at most a minute ago, ok is true, and after is the time
// since its first miss, in nanoseconds.
func (t *Recorder) Stored(now int64, hash uint64, is Place, ttl uint32) (after int64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.hears(now, hash) {
		return 0, false
	}
	e := t.entry(hash)
	after = now - e.missed
	ok = e.missed != 0 && after <= longest
	*e = entry{at: now, finger: e.finger, expires: ttl, Place: is, state: stored}
	return after, ok
}

// Removed records that the key existed and was deleted at the time now.
func (t *Recorder) Removed(now int64, hash uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hears(now, hash) {
		e := t.entry(hash)
		*e = entry{at: now, finger: e.finger, state: deleted}
	}
}

// Touched records that the value of the key, if there is one, now expires in ttl seconds. A ttl of
// 0 means that the value does not expire.
func (t *Recorder) Touched(now int64, hash uint64, ttl uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.hears(now, hash) {
		return
	}
	if e := t.entry(hash); e.state == stored && ttl == 0 {
		e.expires = 0
	} else if e.state == stored {
		e.expires = uint32(min((now-e.at)/int64(time.Second), math.MaxUint32/2)) + min(ttl, math.MaxUint32/2)
	}
}

// Missed records that a read of the key has missed at the given Place, and returns the reason.
// invalidated means that the read found a value with an invalidated tag.
func (t *Recorder) Missed(now int64, hash uint64, is Place, invalidated bool) Reason {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.hears(now, hash) {
		return Unsure
	}
	e := t.entry(hash)
	if e.missed == 0 || now-e.missed > longest {
		e.missed = now
	}
	if e.state == free {
		e.at, e.state = now, missed
	}
	switch {
	case invalidated:
		e.why = Invalidated
	case e.state == deleted:
		e.why = Deleted
	case e.state == stored:
		e.why = t.lost(now, e, is)
	case hash > t.whole:
		e.why = Unsure
	default:
		e.why = Never
	}
	return e.why
}

// Reason returns the last result of Missed for the key. It returns Unsure if there was a store or
// delete after it.
func (t *Recorder) Reason(hash uint64) Reason {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.bucket(hash) {
		if e.state != free && e.finger == uint32(hash>>32) {
			return e.why
		}
	}
	return Unsure
}

// lost returns why the value of the entry e is gone. If there are several reasons, it returns the
// earliest. If there is none, the reason is Evicted, provided that the server's eviction counter
// has grown since the store. Otherwise the reason is Unsure: perhaps the server was flushed by
// another client, or its clock differs.
func (t *Recorder) lost(now int64, e *entry, is Place) Reason {
	why, first := Unsure, int64(math.MaxInt64)
	came := func(r Reason, at int64) {
		if at < first {
			why, first = r, at
		}
	}
	srv := t.server(e.Served)
	if e.expires != 0 {
		if over := e.at + int64(e.expires)*int64(time.Second) - clockStep; over <= now {
			came(Expired, over)
		}
	}
	if srv.flushed >= e.at && srv.flushed <= now {
		came(Flushed, srv.flushed)
	}
	if srv.flushedBy >= e.at {
		came(Flushed, srv.flushedBy)
	}
	if srv.out >= e.at {
		came(Out, srv.out)
	}
	switch {
	case e.Home != is.Home:
		came(Moved, now)
	case e.Served != is.Served:
		came(Out, now)
	}
	if why == Unsure {
		srv.doubt = now
		if srv.evicted >= e.at {
			why = Evicted
		}
	}
	return why
}

// countGap is the minimum time between two reads of a server's counters.
const countGap = 5 * int64(time.Second)

// CountersToRead returns the numbers of the servers whose counters should be read now. These are
// the servers with a new miss for which no reason was found. It returns a server at most once in
// the time countGap.
func (t *Recorder) CountersToRead() (list []uint16) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n := range t.servers {
		if s := &t.servers[n]; s.doubt > s.asked && (s.asked == 0 || s.doubt-s.asked >= countGap) {
			s.asked = s.doubt
			list = append(list, uint16(n))
		}
	}
	return list
}

// Counted records the counters of a server. If a counter is lower than before, another server
// process has sent it, so nothing follows from it.
func (t *Recorder) Counted(now int64, number uint16, is Counters) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.server(number)
	if s.counted != 0 {
		if is.Evictions > s.counters.Evictions {
			s.evicted = now
		}
		if is.Flushes > s.counters.Flushes && s.flushed < s.counted {
			s.flushedBy = now
		}
	}
	s.counted, s.counters = now, is
}

// Flush records that all values of a server are gone from the time `at` on. That time may be in the
// future.
func (t *Recorder) Flush(at int64, number uint16) {
	t.mu.Lock()
	t.server(number).flushed = at
	t.mu.Unlock()
}

// Out records that a server was ejected at the time `at`. When the server returns, it may not have
// its values any more.
func (t *Recorder) Out(at int64, number uint16) {
	t.mu.Lock()
	t.server(number).out = at
	t.mu.Unlock()
}

func (t *Recorder) server(number uint16) *server {
	if n := int(number) + 1; n > len(t.servers) {
		t.servers = append(t.servers, make([]server, n-len(t.servers))...)
	}
	return &t.servers[number]
}

// hears counts an operation on a key. From time to time it also adapts how many keys are sampled.
// It reports whether the key with the given hash is still sampled.
func (t *Recorder) hears(now int64, hash uint64) bool {
	t.told++
	took := now - t.adaptedAt
	switch {
	case t.used >= most:
		t.forget(now)
	case took >= adaptGap:
		rate := float64(t.told) / (float64(took) / float64(time.Second))
		switch limit := t.limit.Load(); {
		case rate > perSecond:
			t.lower()
		case now-t.raised < reach:
		case limit == t.whole && limit < everyKey && rate < perSecond/4 && t.used < most/4:
			t.limit.Store(limit<<1 | 1)
			t.raised = now
		default:
			t.whole = limit
		}
		t.told, t.adaptedAt = 0, now
	}
	return t.Wants(hash)
}

// lower halves the number of sampled keys, and drops the entries of the other keys.
func (t *Recorder) lower() {
	limit := t.limit.Load() >> 1
	t.limit.Store(limit)
	t.whole = min(t.whole, limit)
	for i := range t.entries {
		if e := &t.entries[i]; e.state != free && hashAbove(e, limit) {
			t.drop(e)
		}
	}
}

// hashAbove reports whether the hash of the entry's key is greater than limit. An entry has only
// the upper half of the hash, in the field finger.
func hashAbove(e *entry, limit uint64) bool { return uint64(e.finger) > limit>>32 }

// forget makes room for new entries. It drops the older half of the entries if they are old enough.
// Otherwise it halves the number of sampled keys.
func (t *Recorder) forget(now int64) {
	times := make([]int64, 0, t.used)
	for i := range t.entries {
		if t.entries[i].state != free {
			times = append(times, t.entries[i].last())
		}
	}
	slices.Sort(times)
	half := times[len(times)/2]
	if now-half < reach {
		t.lower()
		return
	}
	t.since = half
	for i := range t.entries {
		if e := &t.entries[i]; e.state != free && e.last() <= half {
			t.drop(e)
		}
	}
}

// last returns the time of the last recorded operation on the key of e.
func (e *entry) last() int64 { return max(e.at, e.missed) }

func (t *Recorder) drop(e *entry) {
	*e = entry{}
	t.used--
}

// bucket returns the entries among which the key with the given hash must be.
func (t *Recorder) bucket(hash uint64) []entry {
	at := hash & (buckets - 1) * ways
	return t.entries[at : at+ways]
}

// entry returns the entry of the key with the given hash. If the key has no entry, it gets a free
// one of its bucket, or else the oldest one.
func (t *Recorder) entry(hash uint64) *entry {
	bucket, finger := t.bucket(hash), uint32(hash>>32)
	oldest := &bucket[0]
	for i := range bucket {
		e := &bucket[i]
		switch {
		case e.state != free && e.finger == finger:
			return e
		case e.state == free && oldest.state != free:
			oldest = e
		case oldest.state != free && e.last() < oldest.last():
			oldest = e
		}
	}
	if oldest.state == free {
		t.used++
	}
	*oldest = entry{finger: finger}
	return oldest
}
