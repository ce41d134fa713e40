package recipes_test

// What the tests share: a memcached in this process with a clock that they move,
// and a client that counts requests, injects errors and interleaves other calls.

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"ringside/internal/memnode"
	"ringside/internal/testenv"
	"ringside/recipes"
)

// clock is a time that tests move.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) sleep(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// spy is a client that calls before and after for each request.
type spy struct {
	recipes.Client
	mu     sync.Mutex
	asked  []string                        // each is "command key"
	before func(command, key string) error // if it returns an error, the request is not sent
	after  func(command, key string) error // its error, if any, replaces the result
}

func (s *spy) do(command, key string, run func() error) error {
	s.mu.Lock()
	s.asked = append(s.asked, command+" "+key)
	before, after := s.before, s.after
	s.mu.Unlock()
	if before != nil {
		if err := before(command, key); err != nil {
			return err
		}
	}
	err := run()
	if after != nil {
		if failure := after(command, key); failure != nil {
			return failure
		}
	}
	return err
}

func (s *spy) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked)
}

func (s *spy) Get(key string) (item *memcache.Item, err error) {
	err = s.do("get", key, func() error { item, err = s.Client.Get(key); return err })
	return item, err
}

func (s *spy) GetMulti(keys []string) (items map[string]*memcache.Item, err error) {
	err = s.do("get", keys[0], func() error { items, err = s.Client.GetMulti(keys); return err })
	return items, err
}

func (s *spy) Set(i *memcache.Item) error {
	return s.do("set", i.Key, func() error { return s.Client.Set(i) })
}

func (s *spy) Add(i *memcache.Item) error {
	return s.do("add", i.Key, func() error { return s.Client.Add(i) })
}

func (s *spy) Append(i *memcache.Item) error {
	return s.do("append", i.Key, func() error { return s.Client.Append(i) })
}

func (s *spy) CompareAndSwap(i *memcache.Item) error {
	return s.do("cas", i.Key, func() error { return s.Client.CompareAndSwap(i) })
}

func (s *spy) Increment(key string, delta uint64) (n uint64, err error) {
	err = s.do("incr", key, func() error { n, err = s.Client.Increment(key, delta); return err })
	return n, err
}

func (s *spy) Delete(key string) error {
	return s.do("delete", key, func() error { return s.Client.Delete(key) })
}

var errBroken = errors.New("the connection broke")

// stage is a store on a memcached in this process.
type stage struct {
	*recipes.Store
	*spy
	*clock
	node *memnode.Node
}

// start is in the middle of a second and of a minute, as most real times are.
var start = time.Date(2026, 11, 22, 12, 0, 17, 300e6, time.UTC)

func newStage(t testing.TB) *stage {
	t.Helper()
	c := &clock{now: start}
	node, err := memnode.Start(memnode.Options{Now: c.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.Close() })
	s := &spy{Client: testenv.Client(t, node.Addr().String())}
	return &stage{&recipes.Store{Client: s, Now: c.Now}, s, c, node}
}

func (s *stage) flush(t testing.TB) {
	t.Helper()
	if err := s.spy.Client.(*memcache.Client).FlushAll(); err != nil {
		t.Fatal(err)
	}
}

// rounds checks the number of requests that do sends.
func (s *stage) rounds(t testing.TB, want int, what string, do func() error) {
	t.Helper()
	before := s.count()
	if err := do(); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	if n := s.count() - before; n != want {
		t.Errorf("%s: %d round trips, want %d: %q", what, n, want, s.asked[before:])
	}
}

// must panics if err is not nil.
func must[V any](v V, err error) V {
	if err != nil {
		panic(err)
	}
	return v
}

func wantErr(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error %v, want %v", what, err, want)
	}
}

func want[V comparable](t testing.TB, what string, got, want V) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

var ctx = context.Background()
