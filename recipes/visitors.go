package recipes

// This file contains counters of whole periods: for the last period, or for the last
// five.

import (
	"context"
	"strconv"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

// periods counts in one key per period of time. It shows the sum of the last whole
// periods. The key contains the number of its period, so two periods never share a key.
// A key expires after the last moment at which its period is shown, whenever the key
// was created.
type periods struct {
	s          *Store
	kind, name string
	length     time.Duration
	shown      int64 // number of whole periods that are shown as one sum
}

func newPeriods(s *Store, what, kind, name string, length time.Duration, shown int64) (periods, error) {
	p := periods{s, kind, name, length, shown}
	if err := wholeSeconds("period of "+what+" "+name, length); err != nil {
		return p, err
	}
	if _, err := expiry("twice the period of "+what+" "+name, time.Duration(shown+1)*length); err != nil {
		return p, err
	}
	return p, s.checkName(what, name, kind, strconv.FormatInt(1<<62, 10))
}

// number returns the number of the period that contains the time t, counted from 1970.
func (p *periods) number(t time.Time) int64 { return floor(t.Unix(), int64(p.length/time.Second)) }

func (p *periods) key(number int64) string {
	return p.s.key(p.kind, p.name, strconv.FormatInt(number, 10))
}

// slack is the time that a key lives longer than necessary. One second is for
// memcached, which may expire the key that much early. One second is for the difference
// between clocks.
const slack = 2 * time.Second

// Count counts one visit in the current period.
func (p *periods) Count(ctx context.Context) error {
	now := p.s.now()
	number := p.number(now)
	end := time.Unix((number+1+p.shown)*int64(p.length/time.Second), 0)
	seconds, err := expiry("expiry", min(end.Sub(now)+slack, maxExpiry))
	if err != nil {
		return err
	}
	_, err = p.s.count(ctx, p.key(number), 1, 0, seconds)
	return err
}

// Value returns the sum of the whole periods that are shown.
func (p *periods) Value(ctx context.Context) (uint64, error) {
	last := p.number(p.s.now())
	keys := make([]string, p.shown)
	for i := range keys {
		keys[i] = p.key(last - 1 - int64(i))
	}
	sum, _, err := p.s.sum(ctx, keys)
	return sum, err
}

// sum returns the sum of the numbers in keys, which it reads in one round trip. found
// is how many of the keys exist.
func (s *Store) sum(ctx context.Context, keys []string) (sum uint64, found int, err error) {
	items, err := s.getMulti(ctx, keys)
	if err != nil {
		return 0, 0, err
	}
	for _, item := range items {
		n, err := number(item)
		if err != nil {
			return 0, 0, err
		}
		sum += n
	}
	return sum, len(items), nil
}

// Visit counts a visitor, unless the same visitor was counted recently: within as many
// periods as are shown. It reports whether it counted.
func (p *periods) Visit(ctx context.Context, visitor string) (counted bool, err error) {
	first, err := p.s.first(ctx, p.kind, p.name, visitor, time.Duration(p.shown)*p.length)
	if err != nil || !first {
		return false, err
	}
	return true, p.Count(ctx)
}

// first reports whether visitor is new within the last duration d. To remember the
// visitor, it adds a key that expires after d.
func (s *Store) first(ctx context.Context, kind, name, visitor string, d time.Duration) (bool, error) {
	id, err := Key(visitor)
	if err != nil {
		return false, err
	}
	key, err := s.pair("visitor", kind+".seen", name, id)
	if err != nil {
		return false, err
	}
	seconds, err := expiry("expiry", d)
	if err != nil {
		return false, err
	}
	return s.add(ctx, "visit", &memcache.Item{Key: key, Expiration: seconds})
}

// floor returns a divided by b, rounded towards minus infinity.
func floor(a, b int64) int64 {
	if a < 0 {
		return -((-a + b - 1) / b)
	}
	return a / b
}

// VisitorCounter counts visitors and shows the count of the last whole period. Two keys
// exist at a time: one for the current period and one for the last period.
//
// Guarantee: while no key is lost, Value is exactly what was counted in the last whole
// period, whatever the traffic. A Count or Visit that returns an error has counted once
// or not at all. If a clock is wrong by d, visits within d of each boundary count for
// the wrong period. A published recipe adds random noise to the number that visitors
// see. This type does not, because the number could then not be verified.
//
// Cost in round trips: Count 1 (2 for the first of a period), Visit 1 for a visitor
// that is already counted, else 2, Value 1.
//
// With one copy, the loss of a server loses the counts of at most two periods. The
// beginning and the end of an ejection do the same. Later periods are right again. With
// two copies, the loss of one server loses nothing.
type VisitorCounter struct{ periods }

// NewVisitorCounter returns a counter with the given name. A period has whole seconds,
// at most 15 days, because a key expires after two periods.
func NewVisitorCounter(s *Store, name string, period time.Duration) (*VisitorCounter, error) {
	p, err := newPeriods(s, "visitor counter", "visitors", name, period, 1)
	if err != nil {
		return nil, err
	}
	return &VisitorCounter{p}, nil
}

// OnlineCounter counts visitors and shows the count of the last five whole minutes. Six
// keys exist at a time: one for the current minute, and one for each of the five
// minutes that are shown.
//
// Its guarantee is that of VisitorCounter, with minutes as periods. Cost in round
// trips: Count 1 (2 for the first of a minute), Visit 1 for a visitor that is already
// counted, else 2, Value 1 (a multi-get of five keys, which Ringside splits by server).
//
// With one copy, the loss of a server loses the minutes on it, and Value is right again
// six minutes later. With two copies, the loss of one server loses nothing.
type OnlineCounter struct{ periods }

// NewOnlineCounter returns a counter with the given name. It sends no request.
func NewOnlineCounter(s *Store, name string) (*OnlineCounter, error) {
	p, err := newPeriods(s, "online counter", "online", name, time.Minute, 5)
	if err != nil {
		return nil, err
	}
	return &OnlineCounter{p}, nil
}
