package missreason

// This file has statistics by route and by prefix: why keys missed, and how long it took until they
// were stored again.

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	mostPrefixes = 64
	mostTimes    = 128                                      // number of recent times from a miss to its set that are kept for percentiles
	halfLife     = int64(time.Minute)                       // time after which the recent counts are halved, in nanoseconds
	relative     = int64(30 * 24 * time.Hour / time.Second) // greatest exptime in seconds that is relative; memcached treats a larger one as a date
)

// Book adds up the miss reasons that a Recorder finds, by route and by prefix. It is safe for
// concurrent use.
type Book struct {
	*Recorder
	hash func(key []byte) uint64
	unix int64 // Unix time in seconds at which the loops' clock was 0

	mu       sync.Mutex // guards routes, prefixes and the accounts in them
	routes   map[string]*Account
	prefixes map[string]*Account
	numbers  map[string]uint16 // number of each server, by address; the Recorder uses the numbers
	line     []byte            // buffer for a key as clients know it
}

// NewBook returns an empty Book. hash must spread keys over 64 bits, and be the same function on
// all loops. now is the current time on the loops' clock, and wall is the same time on the
// calendar.
func NewBook(now int64, wall time.Time, hash func([]byte) uint64) *Book {
	return &Book{Recorder: newRecorder(now), hash: hash, unix: wall.Unix() - now/int64(time.Second),
		routes: map[string]*Account{}, prefixes: map[string]*Account{}, numbers: map[string]uint16{}}
}

// Number returns the number by which the Recorder knows the server at an address. A new address
// gets the next number.
func (b *Book) Number(address string) uint16 {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, ok := b.numbers[address]
	if !ok {
		n = uint16(min(len(b.numbers), math.MaxUint16))
		b.numbers[address] = n
	}
	return n
}

// CountersToRead returns the addresses of the servers whose counters should be read now, because
// values are missing there for an unknown reason.
func (b *Book) CountersToRead() (addresses []string) {
	list := b.Recorder.CountersToRead()
	b.mu.Lock()
	defer b.mu.Unlock()
	for address, n := range b.numbers {
		if slices.Contains(list, n) {
			addresses = append(addresses, address)
		}
	}
	return addresses
}

// Counted records the eviction and flush counters of the server at an address. They were read at
// the time now.
func (b *Book) Counted(now int64, address string, is Counters) {
	b.Recorder.Counted(now, b.Number(address), is)
}

// Route returns the Account of the route with the given label. It creates the Account if there is
// none.
func (b *Book) Route(label string) *Account {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.routes[label]
	if a == nil {
		a = &Account{book: b, name: label}
		b.routes[label] = a
	}
	return a
}

// TTL returns how long a value that is stored with exptime can be read, in seconds. 0 means that
// the value does not expire.
func (b *Book) TTL(now int64, exptime []byte) uint32 {
	if len(exptime) <= 1 && (len(exptime) == 0 || exptime[0] == '0') { // the usual case, handled without parsing a number
		return 0
	}
	n, err := strconv.ParseInt(string(exptime), 10, 64)
	switch {
	case err != nil || n == 0:
		return 0
	case n > relative:
		n -= b.unix + now/int64(time.Second)
	}
	return uint32(min(max(n, 1), math.MaxUint32)) // an exptime in the past counts as one second
}

// Account has the miss statistics of one route, or of one prefix of keys.
type Account struct {
	book *Book
	name string

	reasons [NumReasons]uint64 // number of misses by reason; like fills and seconds, it counts since the start and only sampled keys
	fills   uint64
	seconds float64

	at, began int64 // at: time at which the recent counts below were updated; began: time from which they count
	missed    [NumReasons]float64
	filled    float64
	took      float64 // recent sum of the times from a miss to its set, in seconds, estimated for all keys
	over      float64 // only for a prefix: possible error of took, which may be this much too high, because the account began with the sum of the prefix that it replaced

	times [mostTimes]float64 // most recent times from a miss to its set, in seconds
	next  int                // number of values that were written to times so far
}

// Missed records that a read of the key has missed at the given Place. The key is in the form that
// servers know. Clients know the key with strip in front of it. invalidated means that the read
// found a value with an invalidated tag.
func (a *Account) Missed(now int64, key []byte, strip string, at Place, invalidated bool) {
	b := a.book
	h := b.hash(key)
	if !b.Wants(h) {
		return
	}
	why := b.Recorder.Missed(now, h, at, invalidated)
	weight := 1 / b.Chosen()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, of := range [...]*Account{a, b.prefix(now, key, strip)} {
		of.age(now)
		of.reasons[why]++
		of.missed[why] += weight
	}
}

// Reason returns why the last read of the key missed. It must be called before the next command on
// the key. The key is in the form that servers know. For a key that is not sampled, the result is
// Unsure.
func (b *Book) Reason(key []byte) Reason {
	h := b.hash(key)
	if !b.Wants(h) {
		return Unsure
	}
	return b.Recorder.Reason(h)
}

// Stored records that a value of the key was stored for ttl seconds. A ttl of 0 means that the
// value does not expire. Clients know the key with strip in front of it.
func (a *Account) Stored(now int64, key []byte, strip string, at Place, ttl uint32) {
	b := a.book
	h := b.hash(key)
	if !b.Wants(h) {
		return
	}
	after, ok := b.Recorder.Stored(now, h, at, ttl)
	if !ok {
		return
	}
	weight, took := 1/b.Chosen(), float64(after)/1e9
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, of := range [...]*Account{a, b.prefix(now, key, strip)} {
		of.age(now)
		of.fills++
		of.seconds += took
		of.filled += weight
		of.took += weight * took
		of.times[of.next%mostTimes] = took
		of.next++
	}
}

// Removed records that the key existed and was deleted at the time now.
func (a *Account) Removed(now int64, key []byte) {
	if h := a.book.hash(key); a.book.Wants(h) {
		a.book.Recorder.Removed(now, h)
	}
}

// Touched records that the value of the key now expires in ttl seconds. A ttl of 0 means that the
// value does not expire.
func (a *Account) Touched(now int64, key []byte, ttl uint32) {
	if h := a.book.hash(key); a.book.Wants(h) {
		a.book.Recorder.Touched(now, h, ttl)
	}
}

// TTL returns how long a value that is stored with exptime can be read, in seconds. 0 means that
// the value does not expire.
func (a *Account) TTL(now int64, exptime []byte) uint32 { return a.book.TTL(now, exptime) }

// prefix returns the Account of the prefix of a key, which ends with the first colon. If the table
// of prefixes is full, a new prefix replaces the one with the lowest cost. It begins with that
// cost, which is therefore its possible error. So prefixes with a high cost stay in the table.
func (b *Book) prefix(now int64, key []byte, strip string) *Account {
	b.line = append(append(b.line[:0], strip...), key...)
	prefix := b.line[:bytes.IndexByte(b.line, ':')+1]
	a := b.prefixes[string(prefix)]
	if a != nil {
		return a
	}
	a = &Account{book: b, name: string(prefix)}
	if len(b.prefixes) >= mostPrefixes {
		least := (*Account)(nil)
		for _, o := range b.prefixes {
			o.age(now)
			if least == nil || o.took < least.took || o.took == least.took && o.name < least.name {
				least = o
			}
		}
		delete(b.prefixes, least.name)
		a.at, a.began, a.took, a.over = now, least.began, least.took, least.took
	}
	b.prefixes[a.name] = a
	return a
}

// age reduces the recent counts: they halve in a minute.
func (a *Account) age(now int64) {
	if a.at == 0 {
		a.at, a.began = now, now
	}
	if now-a.at < halfLife/600 { // so little time has passed that the counts would hardly change
		return
	}
	f := math.Exp2(-float64(now-a.at) / float64(halfLife))
	a.at = now
	for i := range a.missed {
		a.missed[i] *= f
	}
	a.filled *= f
	a.took *= f
	a.over *= f
}

// Report has the statistics of a Book at one time.
type Report struct {
	Chosen   float64       // fraction of all keys that are sampled, 0 to 1
	Reach    time.Duration // how far back the operations on the sampled keys are known
	Routes   []Line        // statistics of each route, sorted by its label
	Prefixes []Line        // statistics of the prefixes, the highest cost first
}

// Line has the statistics of one route or prefix. Recent values are per second. They are estimated
// for all keys from those of the sampled keys.
type Line struct {
	Name    string
	Missed  [NumReasons]float64
	Fills   float64 // sets per second that followed a miss
	Cost    float64 // seconds from a miss to its set, added up per second; it is the average number of rebuilds in progress
	Off     float64 // possible error of Cost: the true cost is at most this much lower
	Mean    float64 // average time from a miss to its set, in seconds
	P50     float64 // median of the most recent times from a miss to its set, in seconds
	P99     float64
	Reasons [NumReasons]uint64 // number of misses by reason; like Filled and Seconds, it counts since the start and only sampled keys
	Filled  uint64
	Seconds float64
}

// Report returns the statistics at the time `now`.
func (b *Book) Report(now int64) *Report {
	is := &Report{Chosen: b.Chosen(), Reach: time.Duration(now - b.Since())}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range b.routes {
		is.Routes = append(is.Routes, a.line(now))
	}
	for _, a := range b.prefixes {
		is.Prefixes = append(is.Prefixes, a.line(now))
	}
	slices.SortFunc(is.Routes, func(a, b Line) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(is.Prefixes, func(a, b Line) int {
		return cmp.Or(cmp.Compare(b.Cost, a.Cost), cmp.Compare(b.AllMissed(), a.AllMissed()), cmp.Compare(a.Name, b.Name))
	})
	return is
}

// AllMissed returns the number of misses per second, for all reasons together.
func (l *Line) AllMissed() (sum float64) {
	for _, n := range l.Missed {
		sum += n
	}
	return sum
}

func (a *Account) line(now int64) Line {
	a.age(now)
	is := Line{Name: a.name, Reasons: a.reasons, Filled: a.fills, Seconds: a.seconds}
	if a.at == 0 {
		return is
	}
	// If a sum is halved after each time `life`, it converges to the rate times life/ln 2. The
	// second factor of sums corrects for the short time since the beginning.
	life := float64(halfLife) / 1e9
	sums := life / math.Ln2 * (1 - math.Exp2(-max(float64(now-a.began)/1e9, 1)/life))
	for i, n := range a.missed {
		is.Missed[i] = n / sums
	}
	is.Fills, is.Cost, is.Off = a.filled/sums, a.took/sums, a.over/sums
	times := slices.Clone(a.times[:min(a.next, mostTimes)])
	if n := len(times); n > 0 {
		slices.Sort(times)
		for _, s := range times {
			is.Mean += s / float64(n)
		}
		is.P50, is.P99 = times[(n-1)/2], times[(n-1)*99/100]
	}
	return is
}
