package recipes_test

// Locks and counters, on a memcached with a clock that the test moves.

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"ringside/internal/testenv"
	"ringside/recipes"
)

func TestLock(t *testing.T) {
	s := newStage(t)
	lock := must(recipes.NewLock(s.Store, "n", 10*time.Second))
	a := must(lock.Acquire(ctx, 0))
	_, err := lock.Acquire(ctx, 10*time.Millisecond)
	wantErr(t, "a lock that is held", err, recipes.ErrLocked)
	want(t, "until", a.Until(), start.Add(9*time.Second))

	s.sleep(8 * time.Second)
	if err := a.Renew(ctx); err != nil {
		t.Error(err)
	}
	s.sleep(8 * time.Second)
	_, err = lock.Acquire(ctx, 0)
	wantErr(t, "a lock that was renewed", err, recipes.ErrLocked)

	s.sleep(3 * time.Second) // a's lock has expired
	b := must(lock.Acquire(ctx, 0))
	wantErr(t, "release of what another has", a.Release(ctx), recipes.ErrLockLost)
	wantErr(t, "renewal of what another has", a.Renew(ctx), recipes.ErrLockLost)
	_, err = lock.Acquire(ctx, 0)
	wantErr(t, "b's lock after a's release", err, recipes.ErrLocked)
	if b.Fence() <= a.Fence() {
		t.Errorf("fence %d after %d", b.Fence(), a.Fence())
	}
	if err := b.Release(ctx); err != nil {
		t.Error(err)
	}
	wantErr(t, "second release", b.Release(ctx), recipes.ErrLockLost)
	c := must(lock.Acquire(ctx, 0))

	// A server is lost: cas ids restart, fencing numbers do not.
	s.flush(t)
	s.sleep(2 * time.Second)
	d := must(lock.Acquire(ctx, 0))
	if d.Fence() <= c.Fence() {
		t.Errorf("fence %d after %d and the loss of its key", d.Fence(), c.Fence())
	}
}

// The lock changes its holder between the get and the cas of a Release. The new
// holder keeps it.
func TestReleaseIsOneStep(t *testing.T) {
	s := newStage(t)
	lock := must(recipes.NewLock(s.Store, "n", 10*time.Second))
	a := must(lock.Acquire(ctx, 0))
	var b *recipes.Lease
	s.before = func(command, key string) error {
		if command == "cas" && b == nil {
			s.before = nil
			s.sleep(11 * time.Second)
			b = must(lock.Acquire(ctx, 0))
		}
		return nil
	}
	wantErr(t, "release", a.Release(ctx), recipes.ErrLockLost)
	_, err := lock.Acquire(ctx, 0)
	wantErr(t, "b's lock", err, recipes.ErrLocked)
}

// If the reply to an Acquire is lost, it is not a grant, and its lock is released.
func TestLockInDoubt(t *testing.T) {
	s := newStage(t)
	lock := must(recipes.NewLock(s.Store, "n", 10*time.Second))
	s.after = func(command, _ string) error {
		if command == "add" {
			return errBroken
		}
		return nil
	}
	_, err := lock.Acquire(ctx, time.Second)
	wantErr(t, "lock", err, errBroken)
	s.after = nil
	must(lock.Acquire(ctx, 0))

	// A holder that gets its fencing number too late does not get the lock.
	slow := must(recipes.NewLock(s.Store, "slow", 10*time.Second))
	s.before = func(command, _ string) error {
		if command == "incr" {
			s.before = nil
			s.sleep(10 * time.Second)
		}
		return nil
	}
	_, err = slow.Acquire(ctx, 0)
	wantErr(t, "late lock", err, recipes.ErrLockLost)
}

// A holder pauses for longer than the expiry, which the printed locks ignore.
// Until and the fencing number stop its write.
func TestFenceStopsALateWriter(t *testing.T) {
	s := newStage(t)
	lock := must(recipes.NewLock(s.Store, "n", 5*time.Second))
	highest := uint64(0) // highest fencing number that the target has seen
	write := func(l *recipes.Lease) bool {
		if l.Fence() < highest {
			return false
		}
		highest = l.Fence()
		return true
	}
	a := must(lock.Acquire(ctx, 0))
	s.sleep(6 * time.Second)
	b := must(lock.Acquire(ctx, 0))
	want(t, "b writes", write(b), true)
	want(t, "a still holds", s.clock.Now().Before(a.Until()), false)
	want(t, "a writes", write(a), false)
}

func TestLockManyGoroutines(t *testing.T) {
	t.Parallel()
	m := testenv.StartMemcached(t)
	lock := must(recipes.NewLock(&recipes.Store{Client: testenv.Client(t, m.Address)}, "n", 30*time.Second))
	var holders, grants atomic.Int32
	var last uint64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 30 {
				l, err := lock.Acquire(ctx, testenv.Patience)
				if err != nil {
					t.Error(err)
					return
				}
				if holders.Add(1) > 1 {
					t.Error("two holders")
				}
				if l.Fence() <= last {
					t.Errorf("fence %d after %d", l.Fence(), last)
				}
				last = l.Fence() // a data race if there are two holders
				grants.Add(1)
				holders.Add(-1)
				if err := l.Release(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	want(t, "grants", grants.Load(), 240)
}

func TestCounter(t *testing.T) {
	s := newStage(t)
	c := must(recipes.NewCounter(s.Store, "n", time.Minute))
	want(t, "nothing", must(c.Value(ctx)), 0)
	want(t, "first", must(c.Add(ctx, 5)), 5)
	want(t, "second", must(c.Add(ctx, 2)), 7)
	want(t, "value", must(c.Value(ctx)), 7)
	s.sleep(61 * time.Second)
	want(t, "after its end", must(c.Value(ctx)), 0)

	// A count that loses the race to create the key still counts.
	s.before = func(command, key string) error {
		if command == "add" {
			s.before = nil
			must(c.Add(ctx, 100))
		}
		return nil
	}
	want(t, "loser", must(c.Add(ctx, 1)), 101)
	s.spy.Client.Set(&memcache.Item{Key: "count:n", Value: []byte("x")})
	_, err := c.Value(ctx)
	wantErr(t, "no number", err, recipes.ErrCorrupt)
}

func TestViewCounter(t *testing.T) {
	s := newStage(t)
	database := uint64(1000)
	loads := 0
	load := func(context.Context) (uint64, error) { loads++; return database, nil }
	views := must(recipes.NewViewCounter(s.Store, "n", 0, load))
	want(t, "unseen", must(views.Value(ctx)), 1000)
	want(t, "first", must(views.View(ctx)), 1001)
	want(t, "second", must(views.View(ctx)), 1002)
	want(t, "loads", loads, 2)

	// A View reads the database slowly. In that time its claim expires, 50 Views
	// count, their number is saved to the database, and the key is lost. An add
	// would store 1001.
	s.flush(t)
	slow := must(recipes.NewViewCounter(s.Store, "n", 0, func(context.Context) (uint64, error) {
		old := database
		if old == 1000 {
			s.sleep(11 * time.Second)
			for range 50 {
				must(views.View(ctx))
			}
			database = must(views.Value(ctx))
			s.flush(t)
		}
		return old, nil
	}))
	want(t, "after 50 of others", must(slow.View(ctx)), 1051)

	broken := errors.New("no database")
	s.flush(t)
	failing := must(recipes.NewViewCounter(s.Store, "n", 0, func(context.Context) (uint64, error) { return 0, broken }))
	_, err := failing.View(ctx)
	wantErr(t, "database", err, broken)
	want(t, "the next one", must(views.View(ctx)), 1051) // at once, because the claim was released
}

// A thousand concurrent first views result in the database's number plus a
// thousand.
func TestFirstViews(t *testing.T) {
	t.Parallel()
	m := testenv.StartMemcached(t)
	var loads atomic.Int32
	views := must(recipes.NewViewCounter(&recipes.Store{Client: testenv.Client(t, m.Address)}, "n", 0, func(context.Context) (uint64, error) {
		loads.Add(1)
		time.Sleep(10 * time.Millisecond)
		return 5000, nil
	}))
	var all sync.WaitGroup
	var gate sync.WaitGroup
	gate.Add(1)
	var seen sync.Map
	for range 50 {
		all.Go(func() {
			gate.Wait()
			for range 20 {
				n, err := views.View(ctx)
				if err != nil {
					t.Error(err)
				}
				if _, twice := seen.LoadOrStore(n, true); twice {
					t.Errorf("two views are number %d", n)
				}
			}
		})
	}
	gate.Done()
	all.Wait()
	want(t, "views", must(views.Value(ctx)), 6000)
	want(t, "loads", loads.Load(), 1)
}

func TestPeriods(t *testing.T) {
	s := newStage(t)
	visitors := must(recipes.NewVisitorCounter(s.Store, "x", 30*time.Second))
	online := must(recipes.NewOnlineCounter(s.Store, "x"))
	count := func(n int) {
		for range n {
			if err := errors.Join(visitors.Count(ctx), online.Count(ctx)); err != nil {
				t.Fatal(err)
			}
		}
	}
	count(3) // 12:00:17
	want(t, "in the first period", must(visitors.Value(ctx)), 0)
	s.sleep(13 * time.Second) // :30
	count(5)
	want(t, "in the second period", must(visitors.Value(ctx)), 3)
	s.sleep(29 * time.Second) // :59, long after the key of the first period was made
	want(t, "at the end of the second", must(visitors.Value(ctx)), 3)
	s.sleep(time.Second)
	want(t, "in the third", must(visitors.Value(ctx)), 5)
	want(t, "online after one minute", must(online.Value(ctx)), 8)
	s.sleep(5 * time.Minute)
	want(t, "visitors after five minutes more", must(visitors.Value(ctx)), 0)
	want(t, "online, five minutes later", must(online.Value(ctx)), 0)

	want(t, "first visit", must(online.Visit(ctx, "someone with blanks")), true)
	s.sleep(4 * time.Minute)
	want(t, "again", must(online.Visit(ctx, "someone with blanks")), false)
	s.sleep(2 * time.Minute)
	want(t, "after five minutes", must(online.Visit(ctx, "someone with blanks")), true)
	// Counters with similar names share nothing.
	other := must(recipes.NewVisitorCounter(s.Store, "0:x", 30*time.Second))
	count(1)
	s.sleep(30 * time.Second)
	want(t, "another name", must(other.Value(ctx)), 0)
}

// A process with a clock that is a second behind counts the visits of that second
// for the period before, and nothing else.
func TestPeriodsWithSkew(t *testing.T) {
	s := newStage(t)
	late := *s.Store
	late.Now = func() time.Time { return s.clock.Now().Add(-time.Second) }
	right := must(recipes.NewVisitorCounter(s.Store, "x", 10*time.Second))
	behind := must(recipes.NewVisitorCounter(&late, "x", 10*time.Second))
	s.sleep(3 * time.Second)
	for i := range 40 { // two visits per second from :20.3 on, one to each counter
		if err := errors.Join(right.Count(ctx), behind.Count(ctx)); err != nil {
			t.Fatal(err)
		}
		s.sleep(time.Second)
		if n := must(right.Value(ctx)); i >= 20 && i%10 == 5 && n != 20 {
			t.Errorf("a period of 20 visits, half of them by a clock that is behind, shows %d", n)
		}
		if n := must(right.Value(ctx)); i >= 20 && (n < 19 || n > 20) {
			t.Errorf("%d visits: off by more than one second's", n)
		}
	}
}

// Run writes the row until its context ends.
func TestDistributedCounterRuns(t *testing.T) {
	s := newStage(t)
	c := must(recipes.NewDistributedCounter(s.Store, "site", recipes.DistributedOptions{ID: "a", IDs: []string{"a"}, Every: time.Second}))
	c.Add(5)
	s.sleep(time.Second)
	run, end := context.WithCancel(ctx)
	s.after = func(string, string) error { end(); return nil }
	wantErr(t, "run", c.Run(run), context.Canceled)
	s.after = nil
	if sum, rows, err := c.Total(ctx); sum != 5 || rows != 1 || err != nil {
		t.Errorf("%d in %d rows, %v", sum, rows, err)
	}
}

func TestDistributedCounter(t *testing.T) {
	s := newStage(t)
	ids := []string{"web1", "web2", "web3"}
	var all []*recipes.DistributedCounter
	for _, id := range ids {
		all = append(all, must(recipes.NewDistributedCounter(s.Store, "site", recipes.DistributedOptions{ID: id, IDs: ids})))
	}
	flush := func(cs ...*recipes.DistributedCounter) {
		for _, c := range cs {
			if err := c.Flush(ctx); err != nil {
				t.Error(err)
			}
		}
	}
	total := func(what string, sum uint64, rows int) {
		t.Helper()
		got, found, err := all[0].Total(ctx)
		if err != nil || got != sum || found != rows {
			t.Errorf("%s: %d of %d rows, %v; want %d of %d", what, got, found, err, sum, rows)
		}
	}
	for i, c := range all {
		c.Add(uint64(10 * (i + 1)))
		want(t, "own, while it counts", c.Own(), 0)
	}
	s.sleep(10 * time.Second)
	flush(all...)
	total("one interval", 60, 3)
	want(t, "own", all[2].Own(), 30)

	// If the reply to a flush is lost, it is repeated and counts once.
	all[0].Add(7)
	s.sleep(10 * time.Second)
	s.after = func(command, _ string) error { return errBroken }
	wantErr(t, "flush", all[0].Flush(ctx), errBroken)
	s.after = nil
	flush(all[0], all[0], all[1])
	total("after a flush in doubt", 37, 3) // web3's last row still exists

	s.sleep(21 * time.Second)
	flush(all[:2]...)
	total("web3 has ended: its row too, three intervals after its writing", 0, 2)

	all[1].Add(5)
	s.sleep(20 * time.Second)
	want(t, "own, when the last interval was empty", all[1].Own(), 0)
	want(t, "a visitor", must(all[0].Visit(ctx, "v")), true)
	want(t, "the same one elsewhere", must(all[1].Visit(ctx, "v")), false)
}
