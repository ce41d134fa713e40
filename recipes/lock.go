package recipes

// A lock that only its holder can give back.

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

// Lock lets one process at a time work on something. It is one key, made by add,
// whose value is a token of its holder and whose expiry ends it when the holder
// has died; beside it stands the key of its fencing numbers. Locks cost nothing that
// nobody holds, so take one for each thing that is changed, not one for all.
//
// Guarantee: as long as the key is not lost, nobody else gets the lock before
// Lease.Until, and nobody's Release or Renew touches a lock that is not his: both
// are a cas on the item that has his token. Fencing numbers (Lease.Fence) grow
// from grant to grant: whoever writes to a place that refuses a lower number than
// it has seen is safe even where the lock is not. They come from a counter, not
// from the cas id, which begins anew when a server does; a counter that is lost
// begins at the time in microseconds, which is above all numbers before it as
// long as clocks are closer than two grants.
//
// An Acquire, Renew or Release that ends with an error other than ErrLocked may
// have been done. An acquisition in doubt is never taken for one (Ringside may
// delete it behind the error); the lock then stays until its expiry at worst.
//
// Cost in round trips: Acquire 2 (3 at the first fencing number), each poll of a
// held lock 1, Renew 2, Release 2.
//
// On one copy a lock dies with its server, and through an ejection there may be
// two holders: the fencing number is what remains, and after a kill of the server
// both its key and the lock's begin anew. On two copies the loss of one server
// keeps the lock. What no copy can promise: a holder that stops for longer than
// the expiry (a pause of its machine) goes on as if it still held it; look at
// Until before each step, or fence.
type Lock struct {
	s          *Store
	key, fence string
	expiry     int32
}

// NewLock is a lock that ends after expiry, 2 s at least, unless it is renewed:
// memcached's clock has whole seconds, so one second of it can't be relied on.
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

// Acquire takes the lock, waiting for it so long at most; with a wait of 0 it
// tries once. ErrLocked says that somebody else had it all the time,
// ErrLockLost that it was granted and over before it could be used.
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

// try takes the lock if nobody has it.
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
		err = ErrLockLost // the number may be above that of the next holder
	}
	if err != nil {
		return nil, errors.Join(err, x.withdraw(ctx))
	}
	return x, nil
}

// until is when a lock that is taken now can't be relied on any more: counted
// from before the request, and a second early, as the server's second may end
// right after it.
func (l *Lock) until() time.Time {
	return l.s.now().Add(time.Duration(l.expiry-1) * time.Second)
}

// withdraw gives a lock back that may have been granted.
func (x *Lease) withdraw(ctx context.Context) error {
	if err := x.Release(ctx); !errors.Is(err, ErrLockLost) {
		return err
	}
	return nil
}

// Fence is the fencing number of this grant.
func (x *Lease) Fence() uint64 { return x.fence }

// Until is when the lock can't be relied on any more unless it is renewed.
func (x *Lease) Until() time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.until
}

// Renew makes the lock last for its whole expiry from now. ErrLockLost says that
// it was lost, or is somebody else's.
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

// Release gives the lock back. ErrLockLost says that it was not held any more.
func (x *Lease) Release(ctx context.Context) error {
	return x.swap(ctx, "release lock", nil, -1) // an item that has expired is as good as none
}

// swap puts a value in the place of the lock's, if that is still this lease's.
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
