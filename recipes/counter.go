package recipes

// Counters that create themselves at the first count.

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

// Counter is a counter in one key. The first Add creates it by add. If two
// processes try that at once, the slower one adds to the new counter.
//
// Guarantee: while the key is not lost, each successful Add counts once and
// returns a number that no other Add returns. An Add that returns an error has
// counted once or not at all, because it is never sent twice.
//
// Cost in round trips: Add 1 (2 for the first), Value 1.
//
// With one copy, the counter restarts at 0 when its server is lost. During an
// ejection it counts from 0 on another server, and that count is lost when the
// server rejoins. With two copies, it survives the loss of one server. Numbers
// wrap at 2^64.
type Counter struct {
	s      *Store
	key    string
	expiry int32
}

// NewCounter returns a counter that expires this long after its first count; 0 is
// never.
func NewCounter(s *Store, name string, expires time.Duration) (*Counter, error) {
	seconds, err := expiryOrNever("expiry of counter "+name, expires)
	if err != nil {
		return nil, err
	}
	if err := s.checkName("counter", name, "count"); err != nil {
		return nil, err
	}
	return &Counter{s, s.key("count", name), seconds}, nil
}

// Add adds delta and returns the new number.
func (c *Counter) Add(ctx context.Context, delta uint64) (uint64, error) {
	return c.s.count(ctx, c.key, delta, 0, c.expiry)
}

// Value returns the number. It is 0 if the key is missing.
func (c *Counter) Value(ctx context.Context) (uint64, error) {
	item, err := c.s.get(ctx, c.key)
	if err != nil {
		return 0, err
	}
	return number(item)
}

// ViewCounter counts views, starting from a number in a database. It is one key. A
// View that finds the key missing stores a claim in it, reads the database, and
// replaces the claim with the number by cas. Other Views wait until then.
//
// Guarantee: each successful View counts once, including the first ones. If n
// views of a missing key run at once, the result is the database's number + n. A
// View reads the database only after its claim, and stores the number only if the
// key still contains that claim. So a slow reader cannot overwrite a newer number.
// A View that returns an error has counted once or not at all.
//
// The application writes Value to the database from time to time. It must never
// lower the number there (SET views = GREATEST(views, ?)).
//
// Cost in round trips: View 1; the first one 4, and each poll of a waiting one 2.
//
// With one copy, the views since the last write to the database are lost with the
// server, and again when an ejection ends. The counter then continues from the
// database. With two copies, the loss of one server loses nothing.
type ViewCounter struct {
	s      *Store
	key    string
	expiry int32
	load   func(context.Context) (uint64, error)
}

// loading is how long one View may take to read the database before another View
// may try. Other Views wait for twice as long.
const loading = 10 * time.Second

var claim = []byte("loading ") // prefix of the random token in a claim

// NewViewCounter returns a counter that starts from the number that load reads. It
// expires this long after its first view; 0 is never.
func NewViewCounter(s *Store, name string, expires time.Duration, load func(context.Context) (uint64, error)) (*ViewCounter, error) {
	seconds, err := expiryOrNever("expiry of view counter "+name, expires)
	if err != nil {
		return nil, err
	}
	if load == nil {
		return nil, fmt.Errorf("recipes: view counter %s without a function that loads: %w", name, ErrArgument)
	}
	if err := s.checkName("view counter", name, "views"); err != nil {
		return nil, err
	}
	return &ViewCounter{s, s.key("views", name), seconds, load}, nil
}

// View counts one view and returns the new number. It returns ErrBuilding if other
// calls were reading the database all the time.
func (c *ViewCounter) View(ctx context.Context) (n uint64, err error) {
	err = await(ctx, 2*loading, ErrBuilding, func() (done bool, err error) {
		n, done, err = c.view(ctx)
		return done, err
	})
	if err != nil {
		return 0, failed("view", c.key, err)
	}
	return n, nil
}

// view counts once, if the key exists or this call can create it.
func (c *ViewCounter) view(ctx context.Context) (n uint64, done bool, err error) {
	n, err = c.s.Client.Increment(c.key, 1)
	if err == nil {
		return n, true, nil
	} else if isNonNumeric(err) {
		return 0, false, c.claimed(ctx)
	} else if !isMiss(err) {
		return 0, false, err
	}
	mine := append(bytes.Clone(claim), rand.Text()...)
	err = c.s.Client.Add(&memcache.Item{Key: c.key, Value: mine, Expiration: int32(loading / time.Second)})
	if isNotStored(err) {
		return 0, false, nil
	} else if err != nil {
		return 0, false, err
	}
	item, err := c.s.get(ctx, c.key)
	if err != nil || item == nil || !bytes.Equal(item.Value, mine) {
		return 0, false, err
	}
	n, err = c.load(ctx)
	if err != nil {
		item.Value, item.Expiration = nil, -1
		c.s.Client.CompareAndSwap(item) // if this fails, the claim expires
		return 0, false, err
	}
	n++
	item.Value, item.Expiration = strconv.AppendUint(nil, n, 10), c.expiry
	if err = c.s.Client.CompareAndSwap(item); isChanged(err) {
		return 0, false, nil
	}
	return n, err == nil, err
}

// claimed returns nil if a claim made the count fail, because a claim ends by
// itself. It returns an error if the value is neither a claim nor a number.
func (c *ViewCounter) claimed(ctx context.Context) error {
	item, err := c.s.get(ctx, c.key)
	if err != nil || item == nil || bytes.HasPrefix(item.Value, claim) {
		return err
	}
	_, err = number(item)
	return err
}

// Value returns the number of views. If the counter is missing, it is the number
// in the database.
func (c *ViewCounter) Value(ctx context.Context) (uint64, error) {
	item, err := c.s.get(ctx, c.key)
	if err != nil {
		return 0, err
	}
	if item == nil || bytes.HasPrefix(item.Value, claim) {
		n, err := c.load(ctx)
		if err != nil {
			return 0, failed("load", c.key, err)
		}
		return n, nil
	}
	return number(item)
}
