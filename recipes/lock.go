package recipes

// A lock that only its holder can release.

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

// NewLock returns a lock that expires after expires, at least 2 s, unless it is
// renewed. memcached's clock has whole seconds, so an expiry of 1 s could end at
// once.
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

// Lease is a lock that is held.
type Lease struct {
	l     *Lock
	token []byte
	fence uint64
	mu    sync.Mutex
	until time.Time
}

// Acquire gets the lock, and waits for it at most wait. With a wait of 0 it tries
// once. It returns ErrLocked if others held the lock all the time, and ErrLockLost
// if the lock was granted but expired before Acquire could return it.
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

// try gets the lock if it is free. It returns a nil Lease if it is held.
func (l *Lock) try(ctx context.Context) (*Lease, error) {
	x := &Lease{l: l, token: []byte(rand.Text()), until: l.until()}
	if err := l.s.Client.Add(&memcache.Item{Key: l.key, Value: x.token, Expiration: l.expiry}); isNotStored(err) {
		return nil, nil
	} else if err != nil {
		return nil, errors.Join(err, x.withdraw(ctx))
	}
	var err error
	x.fence, err = l.s.count(ctx, l.fence, 1, uint64(l.s.now().UnixMicro()), 0)
	if err == nil && !l.s.now().Before(x.until) {
		err = ErrLockLost // the fencing number x.fence may be higher than that of the next holder of the lock
	}
	if err != nil {
		return nil, errors.Join(err, x.withdraw(ctx))
	}
	return x, nil
}

// until returns the time up to which a lock requested now is reliable. It counts
// from before the request, and ends one second early because the server's current
// second may end right after the request.
func (l *Lock) until() time.Time {
	return l.s.now().Add(time.Duration(l.expiry-1) * time.Second)
}

// withdraw releases a lock that may have been granted.
func (x *Lease) withdraw(ctx context.Context) error {
	if err := x.Release(ctx); !errors.Is(err, ErrLockLost) {
		return err
	}
	return nil
}

// Fence returns the fencing number of this grant.
func (x *Lease) Fence() uint64 { return x.fence }

// Until returns the time up to which the lock is reliable unless it is renewed.
func (x *Lease) Until() time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.until
}

// Renew restarts the expiry of the lock. It returns ErrLockLost if the lock has
// expired or belongs to another holder.
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

// Release releases the lock. It returns ErrLockLost if the lock was no longer
// held.
func (x *Lease) Release(ctx context.Context) error {
	return x.swap(ctx, "release lock", nil, -1) // memcached treats an item with a negative expiry as deleted
}

// swap replaces the lock's value if it is still the token of this lease.
func (x *Lease) swap(ctx context.Context, what string, value []byte, seconds int32) error {
	item, err := x.l.s.get(ctx, x.l.key)
	if err != nil {
		return err
	}
	if item == nil || string(item.Value) != string(x.token) {
		return failed(what, x.l.key, ErrLockLost)
	}
	item.Value, item.Expiration = value, seconds
	if err := x.l.s.Client.CompareAndSwap(item); isChanged(err) {
		return failed(what, x.l.key, ErrLockLost)
	} else if err != nil {
		return failed(what, x.l.key, err)
	}
	return nil
}
