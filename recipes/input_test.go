package recipes_test

// Invalid input, limits and costs: what is rejected before a request is sent, that
// every loop ends, and how many round trips each call costs.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
	"pgregory.net/rapid"

	"ringside/internal/testenv"
	"ringside/recipes"
)

const month = 31 * 24 * time.Hour

func nothing(context.Context) ([]byte, error) { return nil, nil }
func zero(context.Context) (uint64, error)    { return 0, nil }

func TestBadInput(t *testing.T) {
	s := newStage(t)
	long := strings.Repeat("k", 251)
	big := make([]byte, 1<<20)
	array := must(recipes.NewArray(s.Store, "a", recipes.ArrayOptions{}))
	log := must(recipes.NewEventLog(s.Store, "l", recipes.EventLogOptions{}))
	table := must(recipes.NewTable(s.Store, "t", recipes.TableOptions{}))
	tagged := must(recipes.NewTaggedCache(s.Store, "c"))
	guarded := must(recipes.NewGuardedCache(s.Store, "c", recipes.GuardedOptions{Expires: time.Minute}))
	visitors := must(recipes.NewVisitorCounter(s.Store, strings.Repeat("n", 200), time.Minute))
	type rows = recipes.DistributedOptions
	var fill *recipes.Fill
	_, fill, _ = tagged.Get(ctx, "k")
	before := s.count()
	for _, c := range []struct {
		what string
		want error
		says string
		try  func() error
	}{
		{"a blank in a name", recipes.ErrKey, "byte 0x20 at 1", func() error { _, err := recipes.NewCounter(s.Store, "a b", 0); return err }},
		{"a control byte in a name", recipes.ErrKey, "byte 0x00 at 0", func() error { _, err := recipes.NewLock(s.Store, "\x00", time.Minute); return err }},
		{"a delete byte in a name", recipes.ErrKey, "byte 0x7f at 1", func() error { _, err := recipes.NewTaggedCache(s.Store, "a\x7f"); return err }},
		{"no name", recipes.ErrKey, "empty", func() error { _, err := recipes.NewArray(s.Store, "", recipes.ArrayOptions{}); return err }},
		{"a name that is too long", recipes.ErrKey, "251 bytes", func() error { _, err := recipes.NewTable(s.Store, long, recipes.TableOptions{}); return err }},
		{"a name whose keys are too long", recipes.ErrKey, "at most 250", func() error { _, err := recipes.NewOnlineCounter(s.Store, long[:240]); return err }},
		{"a name of Ringside's", recipes.ErrKey, "__rs", func() error { _, err := recipes.NewCounter(s.Store, "__rs_view__:main", 0); return err }},
		{"a prefix with a blank", recipes.ErrKey, "byte 0x20", func() error {
			_, err := recipes.NewCounter(&recipes.Store{Client: s.spy, Prefix: "a b"}, "n", 0)
			return err
		}},
		{"a prefix that is too long", recipes.ErrKey, "prefix of 101", func() error {
			_, err := recipes.NewCounter(&recipes.Store{Client: s.spy, Prefix: long[:101]}, "n", 0)
			return err
		}},
		{"no client", recipes.ErrArgument, "client", func() error { _, err := recipes.NewCounter(&recipes.Store{}, "n", 0); return err }},
		{"no store", recipes.ErrArgument, "client", func() error { _, err := recipes.NewCounter(nil, "n", 0); return err }},
		{"no parts", recipes.ErrKey, "parts", func() error { _, err := recipes.Key(); return err }},
		{"a lock of 31 days", recipes.ErrExpiry, "30 days", func() error { _, err := recipes.NewLock(s.Store, "n", month); return err }},
		{"a lock of a second", recipes.ErrExpiry, "2s", func() error { _, err := recipes.NewLock(s.Store, "n", time.Second); return err }},
		{"a lock of no time", recipes.ErrExpiry, "positive", func() error { _, err := recipes.NewLock(s.Store, "n", 0); return err }},
		{"a counter of 31 days", recipes.ErrExpiry, "30 days", func() error { _, err := recipes.NewCounter(s.Store, "n", month); return err }},
		{"a counter of the past", recipes.ErrExpiry, "positive", func() error { _, err := recipes.NewCounter(s.Store, "n", -1); return err }},
		{"views of 31 days", recipes.ErrExpiry, "30 days", func() error { _, err := recipes.NewViewCounter(s.Store, "n", month, zero); return err }},
		{"views of nothing", recipes.ErrArgument, "loads", func() error { _, err := recipes.NewViewCounter(s.Store, "n", 0, nil); return err }},
		{"a period of 16 days", recipes.ErrExpiry, "twice the period", func() error { _, err := recipes.NewVisitorCounter(s.Store, "n", 16*24*time.Hour); return err }},
		{"a period of half a second", recipes.ErrExpiry, "whole seconds", func() error { _, err := recipes.NewVisitorCounter(s.Store, "n", time.Second/2); return err }},
		{"a visitor who is too long", recipes.ErrKey, "too long together", func() error { _, err := visitors.Visit(ctx, strings.Repeat("v", 190)); return err }},
		{"an array of 31 days", recipes.ErrExpiry, "30 days", func() error {
			_, err := recipes.NewArray(s.Store, "n", recipes.ArrayOptions{Expires: month})
			return err
		}},
		{"an array of 65 shards", recipes.ErrArgument, "65 shards", func() error { _, err := recipes.NewArray(s.Store, "n", recipes.ArrayOptions{Shards: 65}); return err }},
		{"an element that is too large", recipes.ErrTooLarge, "array:0:a", func() error { return array.Add(ctx, string(big)) }},
		{"an update of shards", recipes.ErrArgument, "shards", func() error {
			return must(recipes.NewArray(s.Store, "n", recipes.ArrayOptions{Shards: 2})).Update(ctx, nil)
		}},
		{"a log of 31 days", recipes.ErrExpiry, "30 days", func() error {
			_, err := recipes.NewEventLog(s.Store, "n", recipes.EventLogOptions{Chunk: month / 10})
			return err
		}},
		{"a log of 1001 chunks", recipes.ErrArgument, "1001 chunks", func() error {
			_, err := recipes.NewEventLog(s.Store, "n", recipes.EventLogOptions{Chunks: 1001})
			return err
		}},
		{"an event of yesterday", recipes.ErrTime, "log l", func() error { return log.Put(ctx, recipes.Event{Time: s.clock.Now().Add(-24 * time.Hour)}) }},
		{"an event of tomorrow", recipes.ErrTime, "log l", func() error { return log.Put(ctx, recipes.Event{Time: s.clock.Now().Add(24 * time.Hour)}) }},
		{"an event that is too large", recipes.ErrTooLarge, "log:", func() error { return log.Put(ctx, recipes.Event{Data: big}) }},
		{"a table of 31 days", recipes.ErrExpiry, "30 days", func() error {
			_, err := recipes.NewTable(s.Store, "n", recipes.TableOptions{Expires: month})
			return err
		}},
		{"a table that audits less than never", recipes.ErrArgument, "audit", func() error { _, err := recipes.NewTable(s.Store, "n", recipes.TableOptions{Audit: -1}); return err }},
		{"a member's value that is too large", recipes.ErrTooLarge, "member:", func() error { return table.Add(ctx, "m", big) }},
		{"a tag with a blank", recipes.ErrKey, "byte 0x20", func() error { return tagged.Invalidate(ctx, "a", "b c") }},
		{"a cached key with a blank", recipes.ErrKey, "byte 0x0a", func() error { _, _, err := tagged.Get(ctx, "a\n"); return err }},
		{"65 tags", recipes.ErrArgument, "65 tags", func() error { _, _, err := tagged.Get(ctx, "k", make([]string, 65)...); return err }},
		{"a tagged value of 31 days", recipes.ErrExpiry, "30 days", func() error { return fill.Set(ctx, nil, month) }},
		{"a tagged value that is too large", recipes.ErrTooLarge, "tagged:", func() error { return fill.Set(ctx, big, time.Minute) }},
		{"a guarded key that is too long", recipes.ErrKey, "251 bytes", func() error { _, err := guarded.Get(ctx, long, nothing); return err }},
		{"a guarded key with its name", recipes.ErrKey, "at most 250", func() error { return guarded.Delete(ctx, long[:249]) }},
		{"nothing to build", recipes.ErrArgument, "builds", func() error { _, err := guarded.Get(ctx, "k", nil); return err }},
		{"guarded, stale and lease of 31 days", recipes.ErrExpiry, "30 days", func() error {
			_, err := recipes.NewGuardedCache(s.Store, "n", recipes.GuardedOptions{Expires: month / 2, Stale: month / 2})
			return err
		}},
		{"a lease of a second", recipes.ErrExpiry, "lease of 1s, at least 2s are needed", func() error {
			_, err := recipes.NewGuardedCache(s.Store, "n", recipes.GuardedOptions{Expires: time.Minute, Lease: time.Second})
			return err
		}},
		{"a guarded cache that is never fresh", recipes.ErrExpiry, "positive", func() error { _, err := recipes.NewGuardedCache(s.Store, "n", recipes.GuardedOptions{}); return err }},
		{"an id that is not one of them", recipes.ErrArgument, `"x"`, func() error {
			_, err := recipes.NewDistributedCounter(s.Store, "n", rows{ID: "x", IDs: []string{"y"}})
			return err
		}},
		{"an id with a blank", recipes.ErrKey, "byte 0x20", func() error {
			_, err := recipes.NewDistributedCounter(s.Store, "n", rows{ID: "x", IDs: []string{"x", "a b"}})
			return err
		}},
		{"rows of 33 days", recipes.ErrExpiry, "30 days", func() error {
			_, err := recipes.NewDistributedCounter(s.Store, "n", rows{ID: "x", IDs: []string{"x"}, Every: 11 * 24 * time.Hour})
			return err
		}},
	} {
		err := c.try()
		if !errors.Is(err, c.want) || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%s: %v; want %v that says %q", c.what, err, c.want, c.says)
		}
	}
	if n := s.count() - before; n > 0 {
		t.Errorf("%d requests were sent: %q", n, s.asked[before:])
	}
}

// A lease that is too long is not also reported as too short.
func TestLeaseTooLong(t *testing.T) {
	_, err := recipes.NewGuardedCache(&recipes.Store{Client: testenv.Client(t, "127.0.0.1:1")}, "n", recipes.GuardedOptions{Expires: time.Minute, Lease: month})
	if text := fmt.Sprint(err); !errors.Is(err, recipes.ErrExpiry) || !strings.Contains(text, "more than 30 days") || strings.Contains(text, "at least") {
		t.Error(text)
	}
}

// The largest value that a recipe sends is accepted by memcached, and one byte
// more is not sent.
func TestItemLimit(t *testing.T) {
	m := testenv.StartMemcached(t)
	s := &recipes.Store{Client: testenv.Client(t, m.Address)}
	table := must(recipes.NewTable(s, "t", recipes.TableOptions{}))
	largest := 0
	for n := 1<<20 - 85; ; n++ {
		if err := table.Add(ctx, "m", make([]byte, n)); errors.Is(err, recipes.ErrTooLarge) {
			break
		} else if err != nil {
			t.Fatalf("a value of %d bytes: %v", n, err)
		}
		largest = n
	}
	// memcached itself accepts 4 bytes more: those of flags, which recipes do not
	// use.
	want(t, "largest value", largest, 1<<20-59-4-len("member:1:t:m=")-1+len("="))
}

func TestKeys(t *testing.T) {
	for _, c := range []struct {
		parts []string
		want  string
	}{
		{[]string{"user", "42", "photo of me"}, "user:42:photo%20of%20me"},
		{[]string{"a:b", "c"}, "a%3Ab:c"},
		{[]string{"a", "b:c"}, "a:b%3Ac"},
		{[]string{""}, "%-"},
		{[]string{"", ""}, "%-:%-"},
		{[]string{"50%"}, "50%25"},
		{[]string{"ü"}, "%C3%BC"},
		{[]string{"__rs_view__"}, "%5F_rs_view__"},
		{[]string{"{user7}", "list"}, "{user7}:list"},
	} {
		want(t, fmt.Sprintf("%q", c.parts), must(recipes.Key(c.parts...)), c.want)
	}
	hashed := must(recipes.Key("page", strings.Repeat("x", 300)))
	if !strings.HasPrefix(hashed, "page:%~") || recipes.CheckKey(hashed) != nil {
		t.Errorf("hashed: %s", hashed)
	}
}

// Different parts never produce the same key, and every key is legal.
func TestKeysNeverMeet(t *testing.T) {
	t.Parallel()
	part := rapid.OneOf(
		rapid.StringOfN(rapid.RuneFrom([]rune(": %-~_a{")), 0, 6, -1),
		rapid.SampledFrom([]string{"__rs", "%-", "%3A", "a:b", strings.Repeat("k", 199), strings.Repeat("k", 300), strings.Repeat(":", 80)}),
		rapid.String(),
	)
	parts := rapid.SliceOfN(part, 1, 4)
	seen := map[string][]string{}
	rapid.Check(t, func(t *rapid.T) {
		p := parts.Draw(t, "parts")
		key, err := recipes.Key(p...)
		if err == nil {
			err = recipes.CheckKey(key)
		}
		if err != nil {
			t.Fatalf("%q: %v", p, err)
		}
		if other, ok := seen[key]; ok && strings.Join(other, "\xff") != strings.Join(p, "\xff") {
			t.Fatalf("%q and %q are both %s", other, p, key)
		}
		seen[key] = p
	})
}

// stubborn is a client that finds nothing and rejects every store, as a broken
// server may. If err is set, every call returns it instead.
type stubborn struct {
	err error
	n   int
}

func (s *stubborn) say(err error) error {
	if s.n++; s.err != nil {
		return s.err
	}
	return err
}
func (s *stubborn) Get(string) (*memcache.Item, error) { return nil, s.say(memcache.ErrCacheMiss) }
func (s *stubborn) GetMulti([]string) (map[string]*memcache.Item, error) {
	return nil, s.say(nil)
}
func (s *stubborn) Set(*memcache.Item) error            { return s.say(nil) }
func (s *stubborn) Add(*memcache.Item) error            { return s.say(memcache.ErrNotStored) }
func (s *stubborn) Append(*memcache.Item) error         { return s.say(memcache.ErrNotStored) }
func (s *stubborn) CompareAndSwap(*memcache.Item) error { return s.say(memcache.ErrCASConflict) }
func (s *stubborn) Delete(string) error                 { return s.say(nil) }
func (s *stubborn) Increment(string, uint64) (uint64, error) {
	return 0, s.say(memcache.ErrCacheMiss)
}

// everything returns one call of each kind that has a loop.
func everything(s *recipes.Store) map[string]func(context.Context) error {
	lock := must(recipes.NewLock(s, "n", time.Minute))
	counter := must(recipes.NewCounter(s, "n", 0))
	views := must(recipes.NewViewCounter(s, "n", 0, zero))
	online := must(recipes.NewOnlineCounter(s, "n"))
	log := must(recipes.NewEventLog(s, "n", recipes.EventLogOptions{}))
	array := must(recipes.NewArray(s, "n", recipes.ArrayOptions{}))
	table := must(recipes.NewTable(s, "n", recipes.TableOptions{}))
	tagged := must(recipes.NewTaggedCache(s, "n"))
	guarded := must(recipes.NewGuardedCache(s, "n", recipes.GuardedOptions{Expires: time.Minute, Wait: 50 * time.Millisecond}))
	rows := must(recipes.NewDistributedCounter(s, "n", recipes.DistributedOptions{ID: "a", IDs: []string{"a"}}))
	return map[string]func(context.Context) error{
		"lock":    func(ctx context.Context) error { _, err := lock.Acquire(ctx, 50*time.Millisecond); return err },
		"counter": func(ctx context.Context) error { _, err := counter.Add(ctx, 1); return err },
		"views":   func(ctx context.Context) error { _, err := views.View(ctx); return err },
		"online":  func(ctx context.Context) error { return online.Count(ctx) },
		"log":     func(ctx context.Context) error { return log.Put(ctx, recipes.Event{}) },
		"array":   func(ctx context.Context) error { return array.Add(ctx, "x") },
		"update": func(ctx context.Context) error {
			return array.Update(ctx, func([]string) []string { return []string{"x"} })
		},
		"table":   func(ctx context.Context) error { return table.Add(ctx, "x", nil) },
		"tagged":  func(ctx context.Context) error { _, _, err := tagged.Get(ctx, "x", "t"); return err },
		"guarded": func(ctx context.Context) error { _, err := guarded.Get(ctx, "x", nothing); return err },
		"rows":    func(ctx context.Context) error { rows.Add(1); return rows.Flush(ctx) },
	}
}

// Every loop ends with an error and few requests: if the server always rejects, if
// it returns errors, and if the context has ended.
func TestEveryLoopEnds(t *testing.T) {
	t.Parallel()
	const tries = 8
	c := &stubborn{}
	for what, call := range everything(&recipes.Store{Client: c, Tries: tries}) {
		if what == "rows" || what == "views" {
			continue // rows never loops; views waits for the end of a claim and is tested below
		}
		c.n = 0
		err := call(ctx)
		if err == nil {
			t.Errorf("%s: no error from a server that refuses for ever", what)
		}
		if c.n > 5*tries {
			t.Errorf("%s: %d requests", what, c.n)
		}
	}
	soon, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	c.n = 0
	wantErr(t, "views", everything(&recipes.Store{Client: c})["views"](soon), context.DeadlineExceeded)
	if c.n > 200 {
		t.Errorf("views: %d requests in 50 ms", c.n)
	}

	c = &stubborn{err: errors.New("SERVER_ERROR out of order")}
	for what, call := range everything(&recipes.Store{Client: c}) {
		c.n = 0
		wantErr(t, what+" at a server that errs", call(ctx), c.err)
		if limit := 3; c.n > limit {
			t.Errorf("%s: %d requests to a server that errs, want %d at most", what, c.n, limit)
		}
	}
	ended, end := context.WithCancel(ctx)
	end()
	c = &stubborn{}
	for what, call := range everything(&recipes.Store{Client: c}) {
		wantErr(t, what+" when the context has ended", call(ended), context.Canceled)
	}
	want(t, "requests after the context's end", c.n, 0)
}

// Each call needs as many round trips as its doc comment says.
func TestRoundTrips(t *testing.T) {
	s := newStage(t)
	lock := must(recipes.NewLock(s.Store, "n", time.Minute))
	var lease *recipes.Lease
	s.rounds(t, 3, "first lock", func() (err error) { lease, err = lock.Acquire(ctx, 0); return err })
	s.rounds(t, 2, "renew", func() error { return lease.Renew(ctx) })
	s.rounds(t, 2, "release", func() error { return lease.Release(ctx) })
	s.rounds(t, 2, "lock", func() (err error) { _, err = lock.Acquire(ctx, 0); return err })

	counter := must(recipes.NewCounter(s.Store, "n", 0))
	s.rounds(t, 2, "first count", func() error { _, err := counter.Add(ctx, 1); return err })
	s.rounds(t, 1, "count", func() error { _, err := counter.Add(ctx, 1); return err })
	views := must(recipes.NewViewCounter(s.Store, "n", 0, zero))
	s.rounds(t, 4, "first view", func() error { _, err := views.View(ctx); return err })
	s.rounds(t, 1, "view", func() error { _, err := views.View(ctx); return err })
	online := must(recipes.NewOnlineCounter(s.Store, "n"))
	s.rounds(t, 2, "first of a minute", func() error { return online.Count(ctx) })
	s.rounds(t, 2, "visit", func() error { _, err := online.Visit(ctx, "v"); return err })
	s.rounds(t, 1, "second visit", func() error { _, err := online.Visit(ctx, "v"); return err })
	s.rounds(t, 1, "five minutes", func() error { _, err := online.Value(ctx); return err })

	log := must(recipes.NewEventLog(s.Store, "n", recipes.EventLogOptions{}))
	s.rounds(t, 2, "first event", func() error { return log.Put(ctx, recipes.Event{}) })
	s.rounds(t, 1, "event", func() error { return log.Put(ctx, recipes.Event{}) })
	s.rounds(t, 1, "poll", func() error { _, _, err := log.Poll(ctx, recipes.Cursor{}); return err })
	array := must(recipes.NewArray(s.Store, "n", recipes.ArrayOptions{}))
	s.rounds(t, 2, "first element", func() error { return array.Add(ctx, "a", "b") })
	s.rounds(t, 1, "element", func() error { return array.Add(ctx, "a", "b") })
	s.rounds(t, 1, "fetch", func() error { _, err := array.Fetch(ctx); return err })
	s.rounds(t, 2, "update", func() error { return array.Update(ctx, func(l []string) []string { return l[1:] }) })
	table := must(recipes.NewTable(s.Store, "n", recipes.TableOptions{}))
	s.rounds(t, 4, "first member", func() error { return table.Add(ctx, "m", nil) })
	s.rounds(t, 3, "member", func() error { return table.Add(ctx, "n", nil) })
	s.rounds(t, 2, "another value", func() error { return table.Add(ctx, "n", []byte("x")) })
	s.rounds(t, 1, "has", func() error { _, err := table.Has(ctx, "m"); return err })
	s.rounds(t, 2, "remove", func() error { return table.Remove(ctx, "m") })
	s.rounds(t, 2, "all", func() error { _, err := table.All(ctx); return err })

	tagged := must(recipes.NewTaggedCache(s.Store, "n"))
	var fill *recipes.Fill
	miss := func(err error) error {
		if errors.Is(err, recipes.ErrMiss) {
			return nil
		}
		return err
	}
	s.rounds(t, 3, "miss with new tags", func() (err error) { _, fill, err = tagged.Get(ctx, "k", "a", "b"); return miss(err) })
	s.rounds(t, 1, "set with tags", func() error { return fill.Set(ctx, nil, time.Minute) })
	s.rounds(t, 1, "hit with tags", func() error { _, _, err := tagged.Get(ctx, "k", "b", "a"); return err })
	s.rounds(t, 2, "invalidate", func() error { return tagged.Invalidate(ctx, "a", "b") })
	guarded := must(recipes.NewGuardedCache(s.Store, "n", recipes.GuardedOptions{Expires: time.Minute}))
	s.rounds(t, 4, "build", func() error { _, err := guarded.Get(ctx, "k", nothing); return err })
	s.rounds(t, 1, "hit", func() error { _, err := guarded.Get(ctx, "k", nothing); return err })
	rows := must(recipes.NewDistributedCounter(s.Store, "n", recipes.DistributedOptions{ID: "a", IDs: []string{"a", "b"}}))
	s.rounds(t, 0, "counts of a process", func() error { rows.Add(1); rows.Own(); return nil })
	s.rounds(t, 1, "flush", func() error { return rows.Flush(ctx) })
	s.rounds(t, 0, "flush again", func() error { return rows.Flush(ctx) })
	s.rounds(t, 1, "total", func() error { _, _, err := rows.Total(ctx); return err })
}
