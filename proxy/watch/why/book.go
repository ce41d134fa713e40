package why

// What is known by route and by prefix: why keys missed, and how long their values took.

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
	mostTimes    = 128                                      // the last times of an account that are kept, for percentiles
	halfLife     = int64(time.Minute)                       // what was counted lately counts half after it
	relative     = int64(30 * 24 * time.Hour / time.Second) // memcached takes a larger time to live for a date
)

// Book keeps accounts of what a Table has judged. It may be used by several goroutines.
type Book struct {
	*Table
	hash func(key []byte) uint64
	unix int64 // seconds, at 0 of the loops' clock

	mu       sync.Mutex // held when accounts are read or changed
	routes   map[string]*Account
	prefixes map[string]*Account
	numbers  map[string]uint16 // of servers, by address
	line     []byte            // scratch
}

// NewBook makes a Book that has seen nothing. hash spreads keys over 64 bits, and is the
// same on all loops. The moment is now on their clock and wall on the calendar.
func NewBook(now int64, wall time.Time, hash func([]byte) uint64) *Book {
	return &Book{Table: New(now), hash: hash, unix: wall.Unix() - now/int64(time.Second),
		routes: map[string]*Account{}, prefixes: map[string]*Account{}, numbers: map[string]uint16{}}
}

// Number is the number of the server at an address.
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

// Doubtful returns the addresses of the servers that should be asked for their counters: see
// Table.Doubtful.
func (b *Book) Doubtful() (addresses []string) {
	list := b.Table.Doubtful()
	b.mu.Lock()
	defer b.mu.Unlock()
	for address, n := range b.numbers {
		if slices.Contains(list, n) {
			addresses = append(addresses, address)
		}
	}
	return addresses
}

// Counted notes what the server at an address tells of itself.
func (b *Book) Counted(now int64, address string, is Counters) {
	b.Table.Counted(now, b.Number(address), is)
}

// Route is the account of the route with a label.
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

// TTL is how many seconds a value lives that is stored with the time to live exptime; 0:
// until it is evicted.
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
	return uint32(min(max(n, 1), math.MaxUint32)) // what is over already is over within its first second
}

// Account is what is known of the keys of a route, or of a prefix.
type Account struct {
	book *Book
	name string

	reasons [NumReasons]uint64 // since the start
	fills   uint64
	seconds float64

	at, began int64 // when what follows was brought up to date, and when it was 0
	missed    [NumReasons]float64
	filled    float64
	took      float64 // seconds
	over      float64 // by how much took may be too high, of a prefix: what its place had before

	times [mostTimes]float64 // the last, in seconds
	next  int                // of fills since times was empty
}

// Missed notes that a read of key has found nothing. key is as its servers know it; to
// clients it has strip in front.
func (a *Account) Missed(now int64, key []byte, strip string, at Place, invalidated bool) {
	b := a.book
	h := b.hash(key)
	if !b.Wants(h) {
		return
	}
	why := b.Table.Missed(now, h, at, invalidated)
	weight := 1 / b.Chosen()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, of := range [...]*Account{a, b.prefix(now, key, strip)} {
		of.age(now)
		of.reasons[why]++
		of.missed[why] += weight
	}
}

// Judged is why a read of key, as its servers know it, has found nothing that has just been
// told; Unsure, too, if the key is not a chosen one.
func (b *Book) Judged(key []byte) Reason {
	h := b.hash(key)
	if !b.Wants(h) {
		return Unsure
	}
	return b.Table.Judged(h)
}

// Stored notes that a value of key was stored, for so many seconds; 0: until it is evicted.
func (a *Account) Stored(now int64, key []byte, strip string, at Place, ttl uint32) {
	b := a.book
	h := b.hash(key)
	if !b.Wants(h) {
		return
	}
	after, ok := b.Table.Stored(now, h, at, ttl)
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

// Removed notes that key was there and was deleted.
func (a *Account) Removed(now int64, key []byte) {
	if h := a.book.hash(key); a.book.Wants(h) {
		a.book.Table.Removed(now, h)
	}
}

// Touched notes that the value of key lives on for so many seconds from now.
func (a *Account) Touched(now int64, key []byte, ttl uint32) {
	if h := a.book.hash(key); a.book.Wants(h) {
		a.book.Table.Touched(now, h, ttl)
	}
}

// TTL is what Book.TTL is.
func (a *Account) TTL(now int64, exptime []byte) uint32 { return a.book.TTL(now, exptime) }

// prefix is the account of the prefix of a key, which ends with its first colon. One that is
// new takes the place of the one that has cost least, and what that has cost, as what it may
// be too high by: so one that costs much stays.
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

// age lets what was counted lately count less.
func (a *Account) age(now int64) {
	if a.at == 0 {
		a.at, a.began = now, now
	}
	if now-a.at < halfLife/600 { // a tenth of a second is no news
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

// Report is what a Book says.
type Report struct {
	Chosen   float64       // part of the keys that are remembered
	Reach    time.Duration // how far back it is known what was done to them
	Routes   []Line        // by name
	Prefixes []Line        // those first that cost most
}

// Line is what is known of a route or prefix. What was lately is per second, and of all
// keys: what was counted of the chosen ones stands for the others.
type Line struct {
	Name    string
	Missed  [NumReasons]float64
	Fills   float64 // sets that followed a miss
	Cost    float64 // seconds until then, per second: so many of the origin's were at work
	Off     float64 // by how much Cost may be too high
	Mean    float64 // seconds from a miss to its set
	P50     float64 // of the last ones
	P99     float64
	Reasons [NumReasons]uint64 // since the start, of the chosen keys only, as what follows
	Filled  uint64
	Seconds float64
}

// Report tells what is known.
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

// AllMissed is how many keys missed, whatever for.
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
	// What counts half after a time sums up to the rate times that time over ln 2, when it
	// has gone on for long.
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
