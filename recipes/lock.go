package recipes

// This file contains Lock, a lock that only its holder can release.

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

// Lock lets one process at a time work on something. It is one key that add
// creates. The value is a token of the holder, and the expiry ends the lock if the
// holder has died. A second key, which never expires, counts the fencing numbers.
// A lock that is not held has no other cost, so use one lock for each thing that
// is changed, not one for all.
//
// Guarantee: while the key is not lost, no other caller gets the lock before
// Lease.Until. Release and Renew never change a lock of another holder, because
// both are a cas of the item with the holder's own token.
//
// Each grant has a higher fencing number (Lease.Fence) than the one before. A
// writer is safe even if the lock is not, if its target rejects numbers lower than
// the highest one seen. The numbers come from a counter and not from the cas id,
// because cas ids restart when a server does. A lost counter restarts at the time
// in microseconds. That is higher than all earlier numbers if clocks differ by
// less than the time between two grants.
//
// An Acquire, Renew or Release that returns an error other than ErrLocked may have
// been executed. Acquire never treats an uncertain add as a grant. It releases the
// lock (and Ringside may delete the key after the error); at worst the lock stays
// until its expiry.
//
// Cost in round trips: Acquire 2 (3 for the first fencing number), each poll of a
// held lock 1, Renew 2, Release 2.
//
// With one copy, a lock is lost with its server. During an ejection there may be
// two holders, and only the fencing number protects the data. If the server was
// killed, the counter and the lock both restart. With two copies, the lock
// survives the loss of one server. No number of copies helps against a holder that
// pauses for longer than the expiry (a suspended machine) and then continues as if
// it still held the lock. Check Until before each step, or use fencing numbers.
type Lock struct {
	s          *Store
	key, fence string
	expiry     int32
}

// NewLock returns a lock with the given name. A held lock expires after the duration
// expires, unless its holder renews it. That duration is at least 2 s: memcached counts
// whole seconds, so an expiry of 1 s could end at once.
func NewLock(s *Store, name string, expires time.Duration) (*Lock, error) {
	seconds, err := expiry("expiry of lock "+name, expires)
	if err == nil && seconds < 2 {
		err = fmt.Errorf("recipes: expiry of lock %s of %v; at least 2s are needed: %w", name, expires, ErrExpiry)
	}
	if err != nil {
		return nil, err
	}
	if err := s.checkName("lock", name, "lock.fence"); err != nil {
		return nil, err
	}
	return &Lock{s, s.key("lock", name), s.key("lock.fence", name), seconds}, nil
}

// Lease is a lock that the caller of Acquire holds.
type Lease struct {
	l     *Lock
	token []byte
	fence uint64
	mu    sync.Mutex
	until time.Time
}

// Acquire acquires the lock. While another caller holds it, Acquire waits, at most for
// the duration wait. With a wait of 0 it tries once. It returns ErrLocked if others
// held the lock all the time. It returns ErrLockLost if the new lock expired before
// Acquire could return.
func (l *Lock) Acquire(ctx context.Context, wait time.Duration) (*Lease, error) {
	var x *Lease
	err := await(ctx, wait, ErrLocked, func() (done bool, err error) {
		x, err = l.try(ctx)
		return x != nil, err
	})
	if err != nil {
		return nil, failed("lock", l.key, err)
	}
	return x, nil
}

// try acquires the lock if no caller holds it. It returns a nil Lease if another caller
// holds the lock.
func (l *Lock) try(ctx context.Context) (*Lease, error) {
	x := &Lease{l: l, token: []byte(rand.Text()), until: l.until()}
	added, err := l.s.add(ctx, "add", &memcache.Item{Key: l.key, Value: x.token, Expiration: l.expiry})
	switch {
	case err != nil:
		return nil, errors.Join(err, x.withdraw(ctx))
	case !added:
		return nil, nil
	}
	x.fence, err = l.s.count(ctx, l.fence, 1, uint64(l.s.now().UnixMicro()), 0)
	if err == nil && !l.s.now().Before(x.until) {
		err = ErrLockLost // the lock has expired, and a later holder of the lock may have a lower fencing number than x.fence
	}
	if err != nil {
		return nil, errors.Join(err, x.withdraw(ctx))
	}
	return x, nil
}

// until returns the time up to which a lock that is requested now is reliable. The time
// is one second earlier than the expiry, because memcached counts whole seconds, and
// its current second may end right after the request.
func (l *Lock) until() time.Time {
	return l.s.now().Add(time.Duration(l.expiry-1) * time.Second)
}

// withdraw releases a lock after an error of Acquire. The lock may have been granted or
// not.
func (x *Lease) withdraw(ctx context.Context) error {
	if err := x.Release(ctx); !errors.Is(err, ErrLockLost) {
		return err
	}
	return nil
}

// Fence returns the fencing number of this lease. Later leases of the lock have higher
// numbers.
func (x *Lease) Fence() uint64 { return x.fence }

// Until returns the time up to which the lock is reliable. Renew makes that time later.
func (x *Lease) Until() time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.until
}

// Renew restarts the expiry of the lock. It returns ErrLockLost if the lock has
// expired, or if another caller holds it.
func (x *Lease) Renew(ctx context.Context) error {
	until := x.l.until()
	if err := x.swap(ctx, "renew lock", x.token, x.l.expiry); err != nil {
		return err
	}
	x.mu.Lock()
	x.until = until
	x.mu.Unlock()
	return nil
}

// Release releases the lock. It returns ErrLockLost if this caller no longer held the
// lock.
func (x *Lease) Release(ctx context.Context) error {
	return x.swap(ctx, "release lock", nil, -1) // memcached treats an item with a negative expiry as deleted
}

// swap replaces the value and the expiry of the lock's key by cas. It returns
// ErrLockLost if the value is no longer the token of this lease.
func (x *Lease) swap(ctx context.Context, what string, value []byte, seconds int32) error {
	item, err := x.l.s.get(ctx, x.l.key)
	if err != nil {
		return err
	}
	if item == nil || string(item.Value) != string(x.token) {
		return failed(what, x.l.key, ErrLockLost)
	}
	item.Value, item.Expiration = value, seconds
	swapped, err := x.l.s.swap(what, item)
	if err == nil && !swapped {
		return failed(what, x.l.key, ErrLockLost)
	}
	return err
}
