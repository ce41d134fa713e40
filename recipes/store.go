package recipes

// This file contains what all recipes share: the client, the limits, and the checks
// before a request is sent.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

// Client is the part of a memcached client that recipes use. Its errors are those
// of gomemcache, even if it wraps another client. ErrCacheMiss, ErrNotStored and
// ErrCASConflict are replies of a server. After any other error, a write may or
// may not have been executed. The exception is an Increment of a value that is not
// a number: its error contains memcached's word non-numeric. Items returned by Get
// and GetMulti contain the cas id.
type Client interface {
	Get(key string) (*memcache.Item, error)
	GetMulti(keys []string) (map[string]*memcache.Item, error)
	Set(item *memcache.Item) error
	Add(item *memcache.Item) error
	Append(item *memcache.Item) error
	CompareAndSwap(item *memcache.Item) error
	Increment(key string, delta uint64) (uint64, error)
	Delete(key string) error
}

// Sizer is a Client that can return the size of a value without fetching it. After
// a rejected append, a recipe uses it to find out whether the key is full.
type Sizer interface {
	Size(key string) (int, error)
}

var _ Client = (*memcache.Client)(nil)

// These are the errors of recipes. A recipe wraps them in a text that names the
// operation and the key. It also wraps all other errors of the client in this way.
var (
	ErrKey       = errors.New("not a legal key")
	ErrExpiry    = errors.New("not an expiry that memcached takes")
	ErrTooLarge  = errors.New("too large for an item")
	ErrArgument  = errors.New("not a legal argument")
	ErrMiss      = errors.New("not there")
	ErrFull      = errors.New("no room left")
	ErrLocked    = errors.New("another client holds the lock")
	ErrLockLost  = errors.New("the lock is lost")
	ErrContended = errors.New("others were always faster")
	ErrBuilding  = errors.New("another client is building it")
	ErrCorrupt   = errors.New("not a value that this recipe wrote")
	ErrTime      = errors.New("outside of the time that the log keeps")
)

// Store is the client that recipes use, and its limits. Only Client must be set. A
// Store must not be changed after it was passed to a recipe.
type Store struct {
	Client  Client
	Prefix  string           // first part of every key, at most 100 bytes; a Ringside route can select keys by it
	Now     func() time.Time // the clock; nil means time.Now. Pauses between tries always use real time
	MaxItem int              // largest item in bytes, as memcached's option -I; 0 means 1 MiB
	Tries   int              // maximum number of tries when other processes write the same key; 0 means 64
}

const (
	maxKey    = 250
	maxPrefix = 100
	// itemOverhead is the number of bytes that memcached 1.6 counts for an item in
	// addition to its key and value: 48 bytes of header, 8 of cas, 3 of line ends, 4 of
	// flags.
	itemOverhead = 63
	// maxExpiry is the longest relative expiry. memcached interprets a larger number as
	// a Unix time.
	maxExpiry = 30 * 24 * time.Hour
)

// check returns an error if the Store is not usable, for example without a Client.
func (s *Store) check() error {
	switch {
	case s == nil || s.Client == nil:
		return fmt.Errorf("recipes: a store without a client: %w", ErrArgument)
	case len(s.Prefix) > maxPrefix:
		return fmt.Errorf("recipes: prefix of %d bytes, at most %d are possible: %w", len(s.Prefix), maxPrefix, ErrKey)
	case s.MaxItem < 0 || s.MaxItem > 0 && s.MaxItem < 1024:
		return fmt.Errorf("recipes: MaxItem %d; memcached takes 1024 and more: %w", s.MaxItem, ErrArgument)
	case s.Tries < 0:
		return fmt.Errorf("recipes: Tries %d: %w", s.Tries, ErrArgument)
	case s.Prefix != "":
		return CheckKey(s.Prefix)
	}
	return nil
}

func (s *Store) now() time.Time {
	if s.Now == nil {
		return time.Now()
	}
	return s.Now()
}

func (s *Store) maxItem() int { return cmp.Or(s.MaxItem, 1<<20) }

func (s *Store) tries() int { return cmp.Or(s.Tries, 64) }

// key returns the key of a recipe: the prefix of the Store, the kind of the recipe, the
// fields, and the name. Fields contain no colon and precede the name. Keys of one kind
// with different fields or names therefore differ, whatever the name contains.
func (s *Store) key(kind, name string, fields ...string) string {
	var b strings.Builder
	b.WriteString(s.Prefix)
	b.WriteString(kind)
	for _, f := range append(fields, name) {
		b.WriteByte(':')
		b.WriteString(f)
	}
	return b.String()
}

// pair returns a key that contains two names. Both names may contain any byte that is
// legal in a key. what describes the second name for the error if the key is too long.
func (s *Store) pair(what, kind, first, second string) (string, error) {
	key := s.key(kind, second, strconv.Itoa(len(first)), first)
	if len(key) > maxKey {
		return "", fmt.Errorf("recipes: %s %.20q…: names of %d and %d bytes are too long together, a key has at most %d: %w", what, second, len(first), len(second), maxKey, ErrKey)
	}
	return key, nil
}

// checkName returns an error if the Store is not usable, or if the longest key of a
// recipe with this name would not be legal.
func (s *Store) checkName(what, name, kind string, fields ...string) error {
	if err := s.check(); err != nil {
		return err
	}
	if err := CheckKey(name); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if n := len(s.key(kind, name, fields...)); n > maxKey {
		return fmt.Errorf("recipes: %s %.20s…: a name of %d bytes makes keys of %d; at most %d are possible: %w", what, name, len(name), n, maxKey, ErrKey)
	}
	return nil
}

// fits returns ErrTooLarge if memcached would not store a value of that many bytes
// under key.
func (s *Store) fits(key string, bytes int) error {
	if size := len(key) + bytes + itemOverhead; size > s.maxItem() {
		return fmt.Errorf("recipes: %s: an item of %d bytes, at most %d are possible: %w", key, size, s.maxItem(), ErrTooLarge)
	}
	return nil
}

// expiry returns d as memcached counts an expiry: in whole seconds, rounded up. It
// returns ErrExpiry if d is not positive or is more than 30 days.
func expiry(what string, d time.Duration) (int32, error) {
	switch {
	case d <= 0:
		return 0, fmt.Errorf("recipes: %s of %v; it must be positive: %w", what, d, ErrExpiry)
	case d > maxExpiry:
		return 0, fmt.Errorf("recipes: %s of %v; memcached takes more than 30 days for a date: %w", what, d, ErrExpiry)
	}
	return int32((d + time.Second - 1) / time.Second), nil
}

// expiryOrNever is like the function expiry, but it accepts 0, which means that the
// item never expires.
func expiryOrNever(what string, d time.Duration) (int32, error) {
	if d == 0 {
		return 0, nil
	}
	return expiry(what, d)
}

// wholeSeconds returns an error if d is not a positive number of whole seconds.
func wholeSeconds(what string, d time.Duration) error {
	if d < time.Second || d%time.Second != 0 {
		return fmt.Errorf("recipes: %s of %v; whole seconds are needed: %w", what, d, ErrExpiry)
	}
	return nil
}

// These functions classify an error of a client.
func isMiss(err error) bool      { return errors.Is(err, memcache.ErrCacheMiss) }
func isNotStored(err error) bool { return errors.Is(err, memcache.ErrNotStored) }

func isNonNumeric(err error) bool {
	return err != nil && strings.Contains(err.Error(), "non-numeric")
}

// isChanged reports whether a cas was rejected because the item has changed since
// it was read.
func isChanged(err error) bool {
	return errors.Is(err, memcache.ErrCASConflict) || isMiss(err) || isNotStored(err)
}

// failed wraps an error of the client in a text with the operation what and the key.
func failed(what, key string, err error) error {
	return fmt.Errorf("recipes: %s %s: %w", what, key, err)
}

// set stores an item. what is the operation, for the error.
func (s *Store) set(ctx context.Context, what string, item *memcache.Item) error {
	err := ctx.Err()
	if err == nil {
		err = s.Client.Set(item)
	}
	if err != nil {
		return failed(what, item.Key, err)
	}
	return nil
}

// add stores an item if its key is missing, and reports whether it did.
func (s *Store) add(ctx context.Context, what string, item *memcache.Item) (added bool, err error) {
	if err = ctx.Err(); err == nil {
		err = s.Client.Add(item)
	}
	if err == nil || isNotStored(err) {
		return err == nil, nil
	}
	return false, failed(what, item.Key, err)
}

// swap stores an item by cas, and reports whether it did. It returns false if the item has
// changed since it was read.
func (s *Store) swap(what string, item *memcache.Item) (swapped bool, err error) {
	if err = s.Client.CompareAndSwap(item); err == nil || isChanged(err) {
		return err == nil, nil
	}
	return false, failed(what, item.Key, err)
}

// again calls try until try is done or returns an error. It calls try at most
// Store.Tries times and pauses after each call.
func (s *Store) again(ctx context.Context, what, key string, try func() (done bool, err error)) error {
	for i := range s.tries() {
		if err := ctx.Err(); err != nil {
			return failed(what, key, err)
		}
		if done, err := try(); done || err != nil {
			return err
		}
		if err := pause(ctx, i); err != nil {
			return failed(what, key, err)
		}
	}
	return fmt.Errorf("recipes: %s %s: %w, %d times", what, key, ErrContended, s.tries())
}

// await calls try until try is done or returns an error. After the duration wait, await
// returns the error over. It calls try at least once, unless ctx has already ended.
func await(ctx context.Context, wait time.Duration, over error, try func() (done bool, err error)) error {
	end := time.Now().Add(wait)
	for i := 0; ; i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if done, err := try(); done || err != nil {
			return err
		}
		if !time.Now().Before(end) {
			return over
		}
		if err := pause(ctx, i+2); err != nil {
			return err
		}
	}
}

// pause waits for a random time, or until ctx ends. The maximum of that time is 1 ms
// for round 0 and doubles with each round, up to 32 ms.
func pause(ctx context.Context, round int) error {
	t := time.NewTimer(rand.N(time.Millisecond << min(round, 5)))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// count adds delta to the number at key. If the key is missing, count creates it with
// the value initial + delta and the expiry seconds. If another process creates the key
// first, count tries again to add delta.
func (s *Store) count(ctx context.Context, key string, delta, initial uint64, seconds int32) (n uint64, err error) {
	err = s.again(ctx, "count", key, func() (bool, error) {
		if n, err = s.Client.Increment(key, delta); err == nil {
			return true, nil
		} else if !isMiss(err) {
			return false, failed("count", key, err)
		}
		n = initial + delta
		return s.add(ctx, "count", &memcache.Item{Key: key, Value: strconv.AppendUint(nil, n, 10), Expiration: seconds})
	})
	return n, err
}

// number returns the number in the item of a counter. It returns 0 for a nil item.
func number(item *memcache.Item) (uint64, error) {
	if item == nil {
		return 0, nil
	}
	// After a decr, memcached keeps the length of the old value and pads the new one
	// with blanks.
	n, err := strconv.ParseUint(strings.TrimRight(string(item.Value), " "), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("recipes: %s: %.20q is not a number: %w", item.Key, item.Value, ErrCorrupt)
	}
	return n, nil
}

// get reads the item of a key. It returns a nil item after a miss.
func (s *Store) get(ctx context.Context, key string) (*memcache.Item, error) {
	if err := ctx.Err(); err != nil {
		return nil, failed("get", key, err)
	}
	item, err := s.Client.Get(key)
	if isMiss(err) {
		return nil, nil
	} else if err != nil {
		return nil, failed("get", key, err)
	}
	return item, nil
}

// getMulti reads the items of several keys in one round trip.
func (s *Store) getMulti(ctx context.Context, keys []string) (map[string]*memcache.Item, error) {
	if err := ctx.Err(); err != nil {
		return nil, failed("get", keys[0], err)
	}
	items, err := s.Client.GetMulti(keys)
	if err != nil {
		return nil, failed("get", keys[0]+"…", err)
	}
	return items, nil
}

// appendTo appends data to the value of a key, or creates the key with add. memcached
// replies NOT_STORED in three cases: an append to a missing key, an append without
// room, and an add of an existing key. If append and add are both rejected twice,
// appendTo reads the size of the value. It returns ErrFull if data does not fit.
func (s *Store) appendTo(ctx context.Context, key string, data []byte, seconds int32) error {
	if err := s.fits(key, len(data)); err != nil {
		return err
	}
	item := &memcache.Item{Key: key, Value: data, Expiration: seconds}
	round := 0
	return s.again(ctx, "append to", key, func() (bool, error) {
		for _, store := range []func(*memcache.Item) error{s.Client.Append, s.Client.Add} {
			if err := store(item); err == nil {
				return true, nil
			} else if !isNotStored(err) {
				return false, failed("append to", key, err)
			}
		}
		if round++; round < 2 {
			return false, nil
		}
		size, err := s.size(ctx, key)
		if err == nil && size >= 0 && s.fits(key, size+len(data)) != nil {
			err = fmt.Errorf("recipes: %s: %d bytes, and %d more don't fit: %w", key, size, len(data), ErrFull)
		}
		return false, err
	})
}

// size returns the size of the value of a key in bytes, or -1 after a miss.
func (s *Store) size(ctx context.Context, key string) (int, error) {
	if sizer, ok := s.Client.(Sizer); ok {
		size, err := sizer.Size(key)
		if isMiss(err) {
			return -1, nil
		} else if err != nil {
			return 0, failed("size of", key, err)
		}
		return size, nil
	}
	item, err := s.get(ctx, key)
	if err != nil || item == nil {
		return -1, err
	}
	return len(item.Value), nil
}
