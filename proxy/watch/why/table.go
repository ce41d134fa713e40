package why

// What is remembered of keys, and what follows from it.

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Reason is why a read has found nothing.
type Reason uint8

// The reasons.
const (
	Unsure Reason = iota // no cause is known, or the key is chosen since a short time only
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

	reach     = int64(time.Hour)   // keys that were seen within it are not forgotten for others, but chosen more rarely
	longest   = int64(time.Minute) // a set that comes later after a miss does not follow from it
	perSecond = 4000               // keys that are told, about
	adaptGap  = int64(time.Second)
	everyKey  = math.MaxUint64

	clockStep = int64(time.Second) // memcached's clock goes in steps: a value may be gone that much early
)

// Place is where a key is, by numbers that the caller gives to servers.
type Place struct {
	Home   uint16 // the server that the table in force gives it to
	Served uint16 // the one that was asked: another, if home is out
}

type state uint8

const (
	free state = iota
	missed
	stored
	deleted
)

// entry is what was last done to a key. Times are of the loops' clock, in nanoseconds.
type entry struct {
	at      int64 // when that was
	missed  int64 // when it was first missed after that, in the last minute; 0: it was not
	finger  uint32
	expires uint32 // seconds after at; 0: never
	Place
	state state
	why   Reason // why it was missed last, since at
}

// server is what has happened to a server that takes its values; 0: it has not.
type server struct {
	flushed, out int64
	evicted      int64 // when its counter of evictions was last seen to have moved
	flushedBy    int64 // when its counter of flushes was last seen to have moved, by another client

	counted  int64    // when it last told its counters
	counters Counters // what it told
	asked    int64    // when somebody was last told to ask for them
	doubt    int64    // when a miss at it last had no known cause
}

// Counters are what a server tells of itself: memcached's evictions and cmd_flush, since it
// started.
type Counters struct{ Evictions, Flushes uint64 }

// Table remembers keys. It may be used by several goroutines.
type Table struct {
	limit atomic.Uint64 // keys whose hash is not above it are chosen

	mu      sync.Mutex
	entries []entry // buckets, one behind the other
	used    int
	servers []server
	since   int64 // what was done before is forgotten, or was not seen

	whole     uint64 // keys up to this hash were chosen since then; those above it since raised
	raised    int64
	told      int   // keys since adapted
	adaptedAt int64 // when the limit was last looked at
}

// New makes a Table that has seen nothing.
func New(now int64) *Table {
	t := &Table{entries: make([]entry, buckets*ways), since: now, whole: everyKey, adaptedAt: now}
	t.limit.Store(everyKey)
	return t
}

// Wants says whether the key of that hash is a chosen one. All hashes are of the same
// function, and spread over 64 bits.
func (t *Table) Wants(hash uint64) bool { return hash <= t.limit.Load() }

// Chosen is the part of all keys that are.
func (t *Table) Chosen() float64 { return float64(t.limit.Load()) / everyKey }

// Since is how far the Table reaches back.
func (t *Table) Since() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.since
}

// Stored notes that a value of key was stored, for so many seconds; 0: until it is
// evicted. It returns how many nanoseconds before the key was missed first, if the
// value has come for that.
func (t *Table) Stored(now int64, hash uint64, is Place, ttl uint32) (after int64, ok bool) {
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

// Removed notes that key was there and was deleted.
func (t *Table) Removed(now int64, hash uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hears(now, hash) {
		e := t.entry(hash)
		*e = entry{at: now, finger: e.finger, state: deleted}
	}
}

// Touched notes that the value of key, if there is one, lives for so many seconds from now;
// 0: until it is evicted.
func (t *Table) Touched(now int64, hash uint64, ttl uint32) {
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

// Missed says why a read of key has found nothing there. invalidated: it has found a value, of
// which a tag was invalidated.
func (t *Table) Missed(now int64, hash uint64, is Place, invalidated bool) Reason {
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

// Judged is what Missed has said of key last, if nothing was done to it since; else Unsure.
func (t *Table) Judged(hash uint64) Reason {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.bucket(hash) {
		if e.state != free && e.finger == uint32(hash>>32) {
			return e.why
		}
	}
	return Unsure
}

// lost is why the value in e is not where it was looked for: the reason that came first. If
// nothing is known that removed it, memcached evicted it, but only if the server's counter of
// evictions has moved since it was stored. Else the cause is not known: a flush that only the
// server knows of, or a clock of the server that is late.
func (t *Table) lost(now int64, e *entry, is Place) Reason {
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

// countGap is how often a server is asked for its counters at most.
const countGap = 5 * int64(time.Second)

// Doubtful returns the numbers of the servers at which values are missing without a known
// cause since they were last asked: they should be asked for their counters. It names a server
// once in countGap.
func (t *Table) Doubtful() (list []uint16) {
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

// Counted notes what a server tells of itself. Counters that go back are those of another
// process, from which nothing follows.
func (t *Table) Counted(now int64, number uint16, is Counters) {
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

// Flush notes that all values of a server are gone at that time, which may be to come.
func (t *Table) Flush(at int64, number uint16) {
	t.mu.Lock()
	t.server(number).flushed = at
	t.mu.Unlock()
}

// Out notes that a server is out: if it comes back, nobody knows whether it has its values.
func (t *Table) Out(at int64, number uint16) {
	t.mu.Lock()
	t.server(number).out = at
	t.mu.Unlock()
}

func (t *Table) server(number uint16) *server {
	if n := int(number) + 1; n > len(t.servers) {
		t.servers = append(t.servers, make([]server, n-len(t.servers))...)
	}
	return &t.servers[number]
}

// hears says whether the key of that hash is still a chosen one, when it is told, and
// adapts the limit when it is time.
func (t *Table) hears(now int64, hash uint64) bool {
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

// lower makes half as many keys chosen ones, and forgets the others.
func (t *Table) lower() {
	limit := t.limit.Load() >> 1
	t.limit.Store(limit)
	t.whole = min(t.whole, limit)
	for i := range t.entries {
		if e := &t.entries[i]; e.state != free && hashAbove(e, limit) {
			t.drop(e)
		}
	}
}

// hashAbove says whether the hash of e, of which its finger is the upper half, is
// above a limit.
func hashAbove(e *entry, limit uint64) bool { return uint64(e.finger) > limit>>32 }

// forget makes room: of keys that are old, else by choosing fewer.
func (t *Table) forget(now int64) {
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

// last is when something was last done to the key of e.
func (e *entry) last() int64 { return max(e.at, e.missed) }

func (t *Table) drop(e *entry) {
	*e = entry{}
	t.used--
}

// bucket is where the key of that hash has its place.
func (t *Table) bucket(hash uint64) []entry {
	at := hash & (buckets - 1) * ways
	return t.entries[at : at+ways]
}

// entry is that of the key of that hash: a free one, if it has none. In a full bucket
// it takes the place of the oldest.
func (t *Table) entry(hash uint64) *entry {
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
