package recipes

// This file contains counters that the first count creates.

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

// Counter is a counter in one key. The first call of Add creates the key with the
// command add. If two processes do so at once, the server rejects the second add, and
// that process sends incr.
//
// Guarantee: while the key is not lost, each successful Add counts once and returns a
// number that no other Add returns. An Add that returns an error has counted once or
// not at all, because it never repeats a command that may have been executed.
//
// Cost in round trips: Add 1 (2 for the first), Value 1.
//
// With one copy, the counter restarts at 0 when its server is lost. During an ejection,
// the counter starts from 0 on another server. That count is lost when the ejected
// server rejoins. With two copies, the counter survives the loss of one server. Numbers
// wrap at 2^64.
type Counter struct {
	s      *Store
	key    string
	expiry int32
}

// NewCounter returns a counter with the given name. Its key expires after the duration
// expires, counted from the first Add; 0 means never.
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

// Add adds delta to the counter and returns the new value of the counter.
func (c *Counter) Add(ctx context.Context, delta uint64) (uint64, error) {
	return c.s.count(ctx, c.key, delta, 0, c.expiry)
}

// Value returns the value of the counter. It returns 0 if the key is missing.
func (c *Counter) Value(ctx context.Context) (uint64, error) {
	item, err := c.s.get(ctx, c.key)
	if err != nil {
		return 0, err
	}
	return number(item)
}

// ViewCounter counts views of something. It starts from a number in a database. The
// counter is one key. If a View finds that the key is missing, it stores a claim in the
// key and reads the database. It then replaces the claim by the number, with a cas.
// Until then, other Views wait.
//
// Guarantee: each successful View counts once, including the first ones. If n views of
// a missing key run at once, the result is the database's number + n. A View reads the
// database only after it has stored its claim. It stores the number only if the key
// still contains that claim. A slow reader of the database therefore cannot overwrite a
// newer number. A View that returns an error has counted once or not at all.
//
// The application writes Value to the database from time to time. It must never lower
// the number there (SET views = GREATEST(views, ?)).
//
// Cost in round trips: View 1; the first View 4; each poll of a waiting View 2.
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

// loading is how long one View may take to read the database before another View may
// read it. Other Views wait for at most twice as long.
const loading = 10 * time.Second

var claim = []byte("loading ") // prefix of the value of a key while one View reads the database; a random token follows

// NewViewCounter returns a counter with the given name. The counter starts from the
// number that the function load reads. Its key expires after the duration expires,
// counted from the first view; 0 means never.
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

// View counts one view and returns the new number of views. It returns ErrBuilding if
// other calls were reading the database during the whole wait.
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

// view makes one try to count. It increments the key, or creates it if it is missing.
// done is false if the caller must try again.
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
	if added, err := c.s.add(ctx, "claim", &memcache.Item{Key: c.key, Value: mine, Expiration: int32(loading / time.Second)}); err != nil || !added {
		return 0, false, err
	}
	item, err := c.s.get(ctx, c.key)
	if err != nil || item == nil || !bytes.Equal(item.Value, mine) {
		return 0, false, err
	}
	n, err = c.load(ctx)
	if err != nil {
		item.Value, item.Expiration = nil, -1
		c.s.Client.CompareAndSwap(item) // delete the claim; an error has no effect, because the claim expires by itself
		return 0, false, err
	}
	n++
	item.Value, item.Expiration = strconv.AppendUint(nil, n, 10), c.expiry
	done, err = c.s.swap("count", item)
	return n, done, err
}

// claimed returns nil if the key is missing, or if its value is a claim, which another
// View will replace. It returns an error if the value is neither a claim nor a number.
func (c *ViewCounter) claimed(ctx context.Context) error {
	item, err := c.s.get(ctx, c.key)
	if err != nil || item == nil || bytes.HasPrefix(item.Value, claim) {
		return err
	}
	_, err = number(item)
	return err
}

// Value returns the number of views. If the key is missing or contains a claim, Value
// returns the number in the database.
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
