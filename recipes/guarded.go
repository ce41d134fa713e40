package recipes

// This file contains GuardedCache, a cache in which one caller at a time builds a value.

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

// GuardedCache has one caller at a time build a value that is missing or has expired.
// Other callers get the old value, or wait if there is none.
//
// The item lives longer than its value. It contains the expiry of the value, and the
// claim of the caller that builds. Claim and value are one item, so a caller claims and
// releases by cas of the item itself. A separate lock could be forgotten, released by
// another caller, or lost on another server. A built value is stored only if the item
// has not changed since the claim. A Delete during a slow build therefore wins: Get
// returns the built value to its caller, but does not store it.
//
// Guarantee: while the key is not lost, one caller builds at a time, if a build is
// shorter than GuardedOptions.Lease. After that time, the next build starts. Get does
// not return a value more than Stale after its expiry, or a value that was built before
// a successful Delete. A build that fails releases its claim.
//
// Cost in round trips: a hit 1, a build 4, each poll of a waiting caller 1. In a
// process with a clock that is wrong by d, a value is fresh for d longer or shorter.
//
// With one copy, the loss of the server is a miss, and so are the beginning and the end
// of an ejection. Each of these misses costs one build, or two while instances disagree
// about a server. With two copies, the loss of one server costs no build.
type GuardedCache struct {
	s    *Store
	name string
	o    GuardedOptions
}

// GuardedOptions are the durations of a GuardedCache.
type GuardedOptions struct {
	Expires time.Duration // how long a value is fresh after it was stored
	Stale   time.Duration // how long after a value's expiry other callers get the old value while one caller builds; 0: not at all
	Lease   time.Duration // how long a build may take before another caller starts one; 0 means 10s
	Wait    time.Duration // how long a caller without an old value waits for another caller's build; 0 means 3s

	// Trace is called for each step of a Get, with the key and a letter; nil: no trace.
	// M: the value is missing or has expired. L: the caller tries to claim the build.
	// W: it writes the value. U: it releases the claim. H: it returns a stored value.
	Trace func(key string, letter byte)
}

// NewGuardedCache returns a cache with the given name. Caches with different names
// share no keys.
func NewGuardedCache(s *Store, name string, o GuardedOptions) (*GuardedCache, error) {
	o.Lease, o.Wait = cmp.Or(o.Lease, 10*time.Second), cmp.Or(o.Wait, 3*time.Second)
	if _, err := expiry("expiry of cache "+name, o.Expires); err != nil {
		return nil, err
	}
	if o.Stale < 0 || o.Wait < 0 {
		return nil, fmt.Errorf("recipes: cache %s: stale %v, wait %v: %w", name, o.Stale, o.Wait, ErrArgument)
	}
	if seconds, err := expiry("lease of cache "+name, o.Lease); err != nil {
		return nil, err
	} else if seconds < 2 {
		return nil, fmt.Errorf("recipes: cache %s: lease of %v, at least 2s are needed: %w", name, o.Lease, ErrExpiry)
	}
	if _, err := expiry("expiry, stale and lease of cache "+name, o.Expires+o.Stale+o.Lease); err != nil {
		return nil, err
	}
	if err := s.checkName("guarded cache", name, "guarded", "250"); err != nil {
		return nil, err
	}
	return &GuardedCache{s, name, o}, nil
}

func (c *GuardedCache) key(key string) (string, error) {
	if err := CheckKey(key); err != nil {
		return "", fmt.Errorf("cache %s: %w", c.name, err)
	}
	return c.s.pair("cache "+c.name+", key", "guarded", c.name, key)
}

// envelope is the content of an item of a GuardedCache: the value, its expiry, and the
// claim of the caller that builds. If the field expires is zero, there is no value.
type envelope struct {
	expires, claimed time.Time // the expiry of the value, and the end of the claim; each is zero if there is none
	token            [8]byte   // random bytes that identify the claim
	value            []byte
}

const envelopeHead = 24

func (e envelope) write() []byte {
	b := make([]byte, 0, envelopeHead+len(e.value))
	b = binary.BigEndian.AppendUint64(b, nanos(e.expires))
	b = binary.BigEndian.AppendUint64(b, nanos(e.claimed))
	b = append(b, e.token[:]...)
	return append(b, e.value...)
}

func nanos(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(t.UnixNano())
}

func parseEnvelope(item *memcache.Item) (e envelope, err error) {
	if item == nil {
		return e, nil
	}
	b := item.Value
	if len(b) < envelopeHead {
		return e, fmt.Errorf("recipes: %s: %.20q: %w", item.Key, b, ErrCorrupt)
	}
	for i, t := range []*time.Time{&e.expires, &e.claimed} {
		if n := binary.BigEndian.Uint64(b[8*i:]); n != 0 {
			*t = time.Unix(0, int64(n))
		}
	}
	copy(e.token[:], b[16:])
	e.value = b[envelopeHead:]
	return e, nil
}

// Get returns the value of key. If there is no fresh value and no other caller is
// building, Get calls build and stores the result. Get returns ErrBuilding if others
// were building during the whole wait. If build fails, Get returns the error of build,
// together with the old value if that may still be served.
func (c *GuardedCache) Get(ctx context.Context, key string, build func(context.Context) ([]byte, error)) ([]byte, error) {
	full, err := c.key(key)
	if err != nil {
		return nil, err
	}
	if build == nil {
		return nil, fmt.Errorf("recipes: %s without a function that builds: %w", full, ErrArgument)
	}
	g := &guardedGet{GuardedCache: c, ctx: ctx, key: full, build: build}
	err = await(ctx, c.o.Wait, ErrBuilding, g.try)
	if err != nil {
		return g.value, failed("get", full, err)
	}
	return g.value, nil
}

// guardedGet is the state of one Get.
type guardedGet struct {
	*GuardedCache
	ctx    context.Context
	key    string
	build  func(context.Context) ([]byte, error)
	missed bool
	value  []byte
}

func (g *guardedGet) trace(letter byte) {
	if g.o.Trace != nil {
		g.o.Trace(g.key, letter)
	}
}

// hit stores value as the result of the Get, and reports that the Get is done.
func (g *guardedGet) hit(value []byte) (bool, error) {
	g.trace('H')
	g.value = value
	return true, nil
}

// try reads the item once. It returns true if the Get is done. The result is then a
// fresh value, an old value, or the value that this caller has built.
func (g *guardedGet) try() (bool, error) {
	item, err := g.s.get(g.ctx, g.key)
	if err != nil {
		return false, err
	}
	e, err := parseEnvelope(item)
	if err != nil {
		return false, err
	}
	now := g.s.now()
	if now.Before(e.expires) {
		return g.hit(e.value)
	}
	if !g.missed {
		g.missed = true
		g.trace('M')
	}
	g.trace('L')
	old := !e.expires.IsZero() && now.Before(e.expires.Add(g.o.Stale))
	won := false
	if !now.Before(e.claimed) {
		if item, won, err = g.claim(item, e, now); err != nil {
			return false, err
		}
	}
	switch {
	case won:
		return true, g.fill(item, e, old)
	case old:
		return g.hit(e.value)
	}
	return false, nil
}

// claim stores in the item that this caller builds its value. It then reads the item
// again, to get the new cas token and to verify the claim.
func (g *guardedGet) claim(item *memcache.Item, e envelope, now time.Time) (*memcache.Item, bool, error) {
	e.claimed = now.Add(g.o.Lease)
	rand.Read(e.token[:])
	lease, _ := expiry("lease", g.o.Lease)
	var stored bool
	var err error
	if item == nil {
		stored, err = g.s.add(g.ctx, "claim", &memcache.Item{Key: g.key, Value: e.write(), Expiration: lease})
	} else {
		item.Value, item.Expiration = e.write(), lease
		if rest := e.expires.Add(g.o.Stale + g.o.Lease).Sub(now); rest > g.o.Lease {
			item.Expiration, _ = expiry("rest", rest)
		}
		stored, err = g.s.swap("claim", item)
	}
	if err != nil || !stored {
		return nil, false, err
	}
	mine, err := g.s.get(g.ctx, g.key)
	if err != nil || mine == nil {
		return nil, false, err
	}
	found, err := parseEnvelope(mine)
	return mine, err == nil && found.token == e.token, err
}

// fill builds the value and replaces the claim in the item by the value.
func (g *guardedGet) fill(item *memcache.Item, e envelope, old bool) error {
	value, err := g.build(g.ctx)
	if err == nil {
		err = g.s.fits(g.key, envelopeHead+len(value))
	}
	if err != nil {
		g.trace('U')
		if old {
			g.value = bytes.Clone(e.value)
			item.Value = e.write()
		} else {
			item.Expiration = -1
		}
		if item.Expiration >= 0 {
			item.Expiration, _ = expiry("rest", max(e.expires.Add(g.o.Stale).Sub(g.s.now()), time.Second))
		}
		g.s.Client.CompareAndSwap(item) // release the claim; an error has no effect, because the claim expires by itself
		return err
	}
	g.value = value
	g.trace('W')
	g.trace('U') // the cas that stores the value also releases the claim
	item.Value = envelope{expires: g.s.now().Add(g.o.Expires), value: value}.write()
	item.Expiration, _ = expiry("expiry", g.o.Expires+g.o.Stale+g.o.Lease)
	// Errors are ignored: the caller gets the built value even if a Delete came first,
	// or if the value cannot be stored.
	g.s.Client.CompareAndSwap(item)
	return nil
}

// Delete removes the value of key, so that the next Get misses. A value that is being
// built is not stored later.
func (c *GuardedCache) Delete(ctx context.Context, key string) error {
	full, err := c.key(key)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return failed("delete", full, err)
	}
	if err := c.s.Client.Delete(full); err != nil && !isMiss(err) {
		return failed("delete", full, err)
	}
	return nil
}
