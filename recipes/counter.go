package recipes

// Counters that nobody has to make first.

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

// Counter counts. It is one key; the first count makes it by add, and who loses
// that race counts again.
//
// Guarantee: while the key is not lost, each Add that succeeds counts once, and
// its number is nobody else's. One that ends with an error has counted once or
// not at all; it is never sent twice.
//
// Cost in round trips: Add 1 (2 at the first), Value 1.
//
// On one copy it begins at 0 again when its server is lost, and through an
// ejection it counts in another place from 0, and that count is lost when the
// server is back. On two copies the loss of one keeps it. Numbers wrap at 2^64.
type Counter struct {
	s      *Store
	key    string
	expiry int32
}

// NewCounter is a counter that lives so long from its first count on; 0: for ever.
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

// Add counts delta and returns the number after it.
func (c *Counter) Add(ctx context.Context, delta uint64) (uint64, error) {
	return c.s.count(ctx, c.key, delta, 0, c.expiry)
}

// Value is the number, 0 if nobody has counted.
func (c *Counter) Value(ctx context.Context) (uint64, error) {
	item, err := c.s.get(ctx, c.key)
	if err != nil {
		return 0, err
	}
	return number(item)
}

// ViewCounter counts views on top of a number that a database keeps. It is one
// key. Who finds none puts a claim in its place, reads the database, and turns
// the claim into the number by cas; the others wait meanwhile and count then.
//
// Guarantee: each View that succeeds counts once, the first ones too: n views at
// once of a key that is not there make it the database's number + n. The database
// is read only after the claim, and the number stored only if the key is still
// that claim, so a slow reader can't put an old number over a newer one. A View
// that ends with an error has counted once or not at all.
//
// The application writes Value to the database from time to time, and there never
// lets it go down (SET views = GREATEST(views, ?)).
//
// Cost in round trips: View 1; the first one 4, and who waits for it polls with 2.
//
// On one copy the views since the last write to the database are lost with the
// server, and again when an ejection ends; the counter then goes on from the
// database by itself. On two copies the loss of one server loses nothing.
type ViewCounter struct {
	s      *Store
	key    string
	expiry int32
	load   func(context.Context) (uint64, error)
}

// loading is how long one View may take to read the database before another
// one tries, and how long others wait for it.
const loading = 10 * time.Second

var claim = []byte("loading ") // in front of a token

// NewViewCounter counts on from what load reads. The key lives so long from its
// first view on; 0: for ever.
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

// View counts one view and returns the number with it. ErrBuilding says that
// somebody else read the database all the time.
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

// view counts once if the key is there, or if it can be made.
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
		c.s.Client.CompareAndSwap(item) // or the claim expires
		return 0, false, err
	}
	n++
	item.Value, item.Expiration = strconv.AppendUint(nil, n, 10), c.expiry
	if err = c.s.Client.CompareAndSwap(item); isChanged(err) {
		return 0, false, nil
	}
	return n, err == nil, err
}

// claimed errs if what stood in the way of a count is not a claim: a claim ends.
func (c *ViewCounter) claimed(ctx context.Context) error {
	item, err := c.s.get(ctx, c.key)
	if err != nil || item == nil || bytes.HasPrefix(item.Value, claim) {
		return err
	}
	_, err = number(item)
	return err
}

// Value is the number of views: the counter's, or the database's if there is no
// counter.
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
