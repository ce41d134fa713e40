package missreason

// Statistics by route and by prefix: why keys missed, and how long it took to refill them.

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
	mostTimes    = 128                                      // number of refill times that an account keeps, for percentiles
	halfLife     = int64(time.Minute)                       // recent counts are halved after this time
	relative     = int64(30 * 24 * time.Hour / time.Second) // memcached treats a larger exptime as a date
)

// Book adds up the results of a Recorder by route and prefix. It is safe for concurrent use.
type Book struct {
	*Recorder
	hash func(key []byte) uint64
	unix int64 // Unix time in seconds at 0 of the loops' clock

	mu       sync.Mutex // guards the accounts
	routes   map[string]*Account
	prefixes map[string]*Account
	numbers  map[string]uint16 // numbers of servers, by address
	line     []byte            // scratch
}

// NewBook returns an empty Book. hash must spread keys over 64 bits, and be the same function
// on all loops. now and wall are the current time on the loops' clock and on the calendar.
func NewBook(now int64, wall time.Time, hash func([]byte) uint64) *Book {
	return &Book{Recorder: newRecorder(now), hash: hash, unix: wall.Unix() - now/int64(time.Second),
		routes: map[string]*Account{}, prefixes: map[string]*Account{}, numbers: map[string]uint16{}}
}

// Number returns the number of the server at an address.
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

// CountersToRead returns the addresses of the servers whose counters should be read: see
// Recorder.CountersToRead.
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

// Counted records the counters of the server at an address.
func (b *Book) Counted(now int64, address string, is Counters) {
	b.Recorder.Counted(now, b.Number(address), is)
}

// Route returns the account of the route with that label.
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

// TTL returns the lifetime in seconds of a value that is stored with exptime; 0: until it is
// evicted.
func (b *Book) TTL(now int64, exptime []byte) uint32 {
	if len(exptime) <= 1 && (len(exptime) == 0 || exptime[0] == '0') { // nearly always
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

// Account has the statistics for the keys of a route, or of a prefix.
type Account struct {
	book *Book
	name string

	reasons [NumReasons]uint64 // this and the next two fields count since the start
	fills   uint64
	seconds float64

	at, began int64 // when the following fields were updated, and when they were 0
	missed    [NumReasons]float64
	filled    float64
	took      float64 // seconds
	over      float64 // of a prefix: how much took may be too high, which it inherited from the prefix it replaced

	times [mostTimes]float64 // the last refill times, in seconds
	next  int                // number of values ever written to times
}

// Missed records that a read of key has missed. key is in the form that servers know; clients
// know it with strip in front.
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

// Reason returns why the read of key that just missed did so. key is in the form that servers
// know. It returns Unsure for keys outside the sample.
func (b *Book) Reason(key []byte) Reason {
	h := b.hash(key)
	if !b.Wants(h) {
		return Unsure
	}
	return b.Recorder.Reason(h)
}

// Stored records that a value of key was stored, for ttl seconds; 0: until it is evicted.
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

// Removed records that key existed and was deleted.
func (a *Account) Removed(now int64, key []byte) {
	if h := a.book.hash(key); a.book.Wants(h) {
		a.book.Recorder.Removed(now, h)
	}
}

// Touched records that the value of key expires ttl seconds from now; 0: it does not expire.
func (a *Account) Touched(now int64, key []byte, ttl uint32) {
	if h := a.book.hash(key); a.book.Wants(h) {
		a.book.Recorder.Touched(now, h, ttl)
	}
}

// TTL is Book.TTL.
func (a *Account) TTL(now int64, exptime []byte) uint32 { return a.book.TTL(now, exptime) }

// prefix returns the account of the prefix of a key, which ends with the first colon. A new
// prefix replaces the one with the lowest cost, and inherits that cost as its possible error.
// So an expensive prefix stays.
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

// age reduces the weight of earlier counts.
func (a *Account) age(now int64) {
	if a.at == 0 {
		a.at, a.began = now, now
	}
	if now-a.at < halfLife/600 { // too short to matter
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

// Report is the content of a Book.
type Report struct {
	Chosen   float64       // sampled part of the keys
	Reach    time.Duration // how far back the Recorder knows what happened to them
	Routes   []Line        // sorted by name
	Prefixes []Line        // highest cost first
}

// Line has the statistics of a route or prefix. Recent values are per second, and estimated for
// all keys from those in the sample.
type Line struct {
	Name    string
	Missed  [NumReasons]float64
	Fills   float64 // sets that followed a miss
	Cost    float64 // seconds from a miss to the set that follows, per second: the average number of rebuilds at work
	Off     float64 // how much Cost may be too high
	Mean    float64 // seconds from a miss to the set that follows
	P50     float64 // of the last refills
	P99     float64
	Reasons [NumReasons]uint64 // this and the following fields: since the start, only of keys in the sample
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

// AllMissed returns the number of misses, whatever the reason.
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
	// A sum that halves after each life converges to the rate times life/ln 2. The second
	// factor corrects for the time since began.
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
