package missreason

// Operations on keys, and the reasons that follow from them.

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Reason is why a read has missed.
type Reason uint8

// The reasons.
const (
	Unsure Reason = iota // the cause is not known, or the key has been in the sample only for a short time
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
	buckets = 8192 // a power of two
	ways    = 8    // keys in a bucket
	most    = buckets * ways / 2

	reach     = int64(time.Hour)   // keys seen within this time are not dropped; the sample is reduced instead
	longest   = int64(time.Minute) // a set that follows a miss later than this was not caused by it
	perSecond = 4000               // approximate maximum number of operations per second
	adaptGap  = int64(time.Second)
	everyKey  = math.MaxUint64

	clockStep = int64(time.Second) // memcached's clock has steps: a value may expire that much early
)

// Place is the location of a key, as numbers that the caller assigns to servers.
type Place struct {
	Home   uint16 // the server of the key according to the current table
	Served uint16 // the server that was used: another one, if Home is out
}

type state uint8

const (
	free state = iota
	missed
	stored
	deleted
)

// entry is the last operation on a key. Times are on the loops' clock, in nanoseconds.
type entry struct {
	at      int64 // time of the operation
	missed  int64 // when it first missed after that, within the last minute; 0: it did not
	finger  uint32
	expires uint32 // seconds after at; 0: never
	Place
	state state
	why   Reason // reason of the last miss since at
}

// server has the events after which a server has lost values, as times; 0: none.
type server struct {
	flushed, out int64
	evicted      int64 // when the server's eviction counter was last seen to have grown
	flushedBy    int64 // when the server's flush counter was last seen to have grown because of another client

	counted  int64    // when the server's counters were last read
	counters Counters // the server's counters at that time
	asked    int64    // when CountersToRead last returned the server
	doubt    int64    // time of the server's last miss with an unknown cause
}

// Counters has counters of a server: memcached's evictions and cmd_flush, since its start.
type Counters struct{ Evictions, Flushes uint64 }

// Recorder remembers operations on keys. It is safe for concurrent use.
type Recorder struct {
	limit atomic.Uint64 // keys with a hash up to this are in the sample

	mu      sync.Mutex
	entries []entry // the buckets, concatenated
	used    int
	servers []server
	since   int64 // earlier operations were dropped, or not seen

	whole     uint64 // keys with hashes up to this have been in the sample since the time in since, others since raised
	raised    int64
	told      int   // operations since the last adaptation
	adaptedAt int64 // when the field limit was last checked
}

// newRecorder returns an empty Recorder.
func newRecorder(now int64) *Recorder {
	t := &Recorder{entries: make([]entry, buckets*ways), since: now, whole: everyKey, adaptedAt: now}
	t.limit.Store(everyKey)
	return t
}

// Wants reports whether the key with that hash is in the sample. All hashes must be of the same
// function, and spread over 64 bits.
func (t *Recorder) Wants(hash uint64) bool { return hash <= t.limit.Load() }

// Chosen returns the part of all keys that is in the sample.
func (t *Recorder) Chosen() float64 { return float64(t.limit.Load()) / everyKey }

// Since returns the time from which on the Recorder knows all operations.
func (t *Recorder) Since() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.since
}

// Stored records that a value of the key was stored, for ttl seconds; 0: until it is evicted.
// If the set follows a miss, it returns how many nanoseconds ago the key missed first.
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

// Removed records that the key existed and was deleted.
func (t *Recorder) Removed(now int64, hash uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hears(now, hash) {
		e := t.entry(hash)
		*e = entry{at: now, finger: e.finger, state: deleted}
	}
}

// Touched records that the value of the key, if there is one, expires ttl seconds from now; 0:
// it is kept until it is evicted.
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

// Missed returns why a read of the key has missed at that Place. invalidated means that it
// found a value with an invalidated tag.
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

// Reason returns the last result of Missed for the key, if no operation followed; else Unsure.
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

// lost returns why the value of e is not where it was looked up: the earliest reason. If no
// reason is known, the server has evicted it, but only if its eviction counter has grown since
// the store. Otherwise the cause is not known: it may be a flush that only the server knows of,
// or a server clock that differs.
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

// CountersToRead returns the numbers of the servers whose counters should be read: values were
// missing there for an unknown cause since the last read. It returns a server at most once in
// countGap.
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

// Counted records the counters of a server. If they have decreased, they are those of another
// process, so nothing follows from them.
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

// Flush records that all values of a server are gone at the time `at`, which may be in the future.
func (t *Recorder) Flush(at int64, number uint16) {
	t.mu.Lock()
	t.server(number).flushed = at
	t.mu.Unlock()
}

// Out records that a server was ejected: if it returns, it is not known whether it has its
// values.
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

// hears counts an operation, and adapts t.limit when it is time. It reports whether the key
// with that hash is still in the sample.
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

// lower halves the sample, and drops the other keys.
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

// hashAbove reports whether the hash of e is above a limit. finger is the upper half of the
// hash.
func hashAbove(e *entry, limit uint64) bool { return uint64(e.finger) > limit>>32 }

// forget frees entries: it drops old keys or, if there are none, reduces the sample.
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

// last returns the time of the last operation on the key of e, or of its first miss after that.
func (e *entry) last() int64 { return max(e.at, e.missed) }

func (t *Recorder) drop(e *entry) {
	*e = entry{}
	t.used--
}

// bucket returns the bucket for the key with that hash.
func (t *Recorder) bucket(hash uint64) []entry {
	at := hash & (buckets - 1) * ways
	return t.entries[at : at+ways]
}

// entry returns the entry of the key with that hash, and creates it if there is none. In a full
// bucket it replaces the oldest entry.
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
