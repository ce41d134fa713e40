package recipes_test

// The two caches: the examples of the articles, races, and many callers at once.

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ringside/internal/testenv"
	"ringside/recipes"
)

func TestTags(t *testing.T) {
	s := newStage(t)
	c := must(recipes.NewTaggedCache(s.Store, "blog"))
	get := func(what, want string, tags ...string) *recipes.Fill {
		t.Helper()
		v, fill, err := c.Get(ctx, "page", tags...)
		if want == "" {
			wantErr(t, what, err, recipes.ErrMiss)
		} else if err != nil || string(v) != want {
			t.Errorf("%s: %q, %v; want %q", what, v, err, want)
		}
		return fill
	}
	set := func(f *recipes.Fill, v string) {
		t.Helper()
		if err := f.Set(ctx, []byte(v), time.Hour); err != nil {
			t.Error(err)
		}
	}
	// The article's example: tag1 and tag2, then tag2 is invalidated.
	set(get("first", "", "tag1", "tag2"), "v1")
	get("valid", "v1", "tag1", "tag2")
	get("tags in another order, and twice", "v1", "tag2", "tag1", "tag2")
	get("another set of tags", "", "tag1")
	if err := c.Invalidate(ctx, "tag2"); err != nil {
		t.Error(err)
	}
	late := get("invalidated", "", "tag1", "tag2")

	// A value that is stored after an invalidation, for a miss before it, is not
	// returned.
	if err := c.Invalidate(ctx, "tag1"); err != nil {
		t.Error(err)
	}
	set(late, "read before the invalidation")
	fill := get("late", "", "tag1", "tag2")
	want(t, "read from the master", fill.ReadFromMaster(5*time.Second), true)
	s.sleep(6 * time.Second)
	fill = get("later", "", "tag1", "tag2")
	want(t, "read from the master", fill.ReadFromMaster(5*time.Second), false)
	set(fill, "v2")
	get("valid again", "v2", "tag1", "tag2")

	// A lost tag never makes an old value valid again: not if it is lost twice
	// within one tick of the clock, and not if the clock was set back.
	for _, back := range []time.Duration{0, 0, -time.Hour} {
		s.Store.Now = func() time.Time { return s.clock.Now().Add(back) }
		if err := s.spy.Client.Delete("tag:4:blog:tag1"); err != nil {
			t.Error(err)
		}
		get("lost tag", "", "tag1", "tag2")
		get("lost tag, again", "", "tag1", "tag2")
	}

	s.Store.Now = s.clock.Now

	// Two callers that find no version at the same time use the same new one.
	var other *recipes.Fill
	s.before = func(command, _ string) error {
		if command == "add" {
			s.before = nil
			other = get("new tag, other", "", "new")
		}
		return nil
	}
	set(get("new tag", "", "new"), "mine")
	get("new tag, mine", "mine", "new")
	set(other, "other's")
	get("new tag, other's", "other's", "new")

	s.before = func(command, key string) error {
		if command == "set" && key == "tag:4:blog:b" {
			return errBroken
		}
		return nil
	}
	err := c.Invalidate(ctx, "a", "b", "c")
	wantErr(t, "invalidation", err, errBroken)
	want(t, "which", err.Error(), "recipes: cache blog: tags that may not be invalidated: b: the connection broke")
}

// guardStage is a guarded cache that records its trace.
type guardStage struct {
	*stage
	*recipes.GuardedCache
	letters []byte
}

func newGuard(t *testing.T, o recipes.GuardedOptions) *guardStage {
	g := &guardStage{stage: newStage(t)}
	o.Trace = func(_ string, letter byte) { g.letters = append(g.letters, letter) }
	g.GuardedCache = must(recipes.NewGuardedCache(g.Store, "c", o))
	return g
}

func (g *guardStage) get(t *testing.T, what, want string, build func() (string, error)) error {
	t.Helper()
	v, err := g.GuardedCache.Get(ctx, "k", func(context.Context) ([]byte, error) {
		if build == nil {
			t.Errorf("%s: built", what)
			return nil, nil
		}
		v, err := build()
		return []byte(v), err
	})
	if string(v) != want {
		t.Errorf("%s: %q, want %q (%v)", what, v, want, err)
	}
	return err
}

func (g *guardStage) traced(t *testing.T, want string) {
	t.Helper()
	if string(g.letters) != want {
		t.Errorf("trace %s, want %s", g.letters, want)
	}
	g.letters = nil
}

func text(v string) func() (string, error) { return func() (string, error) { return v, nil } }

// TestGuardStories runs the two sequences that the article describes with trace letters.
func TestGuardStories(t *testing.T) {
	g := newGuard(t, recipes.GuardedOptions{Expires: 10 * time.Second, Stale: 10 * time.Second})
	g.get(t, "first", "v1", text("v1"))
	for range 4 {
		g.get(t, "hit", "v1", nil)
	}
	g.traced(t, "MLWUHHHH")

	g.get(t, "hit", "v1", nil)
	g.sleep(11 * time.Second)
	g.get(t, "somebody builds", "v2", func() (string, error) {
		g.traced(t, "HML")
		g.get(t, "another one meanwhile", "v1", nil) // the old value, without waiting
		g.traced(t, "MLH")
		return "v2", nil
	})
	g.traced(t, "WU")
	g.get(t, "rebuilt", "v2", nil)

	// Another caller builds, and there is no old value: wait, then hit.
	g.sleep(31 * time.Second)
	done := make(chan bool)
	g.letters = nil
	g.get(t, "first again", "v3", func() (string, error) {
		go func() {
			defer close(done)
			other := must(recipes.NewGuardedCache(g.Store, "c", recipes.GuardedOptions{Expires: 10 * time.Second, Wait: testenv.Patience}))
			v, err := other.Get(ctx, "k", nothing)
			if string(v) != "v3" || err != nil {
				t.Errorf("who waits: %q, %v", v, err)
			}
		}()
		return "v3", nil
	})
	<-done
}

func TestGuardRaces(t *testing.T) {
	g := newGuard(t, recipes.GuardedOptions{Expires: 10 * time.Second, Stale: 10 * time.Second, Lease: 5 * time.Second, Wait: 20 * time.Millisecond})
	// A Delete during a build: only the caller gets the built value.
	g.get(t, "built before the delete", "old", func() (string, error) {
		return "old", g.Delete(ctx, "k")
	})
	g.get(t, "after the delete", "new", text("new"))
	// The same with an old value.
	g.sleep(11 * time.Second)
	g.get(t, "rebuilt before the delete", "old", func() (string, error) { return "old", g.Delete(ctx, "k") })
	g.get(t, "after the second delete", "newer", text("newer"))

	// A build that is longer than its lease: the next build starts, and the slow
	// one neither stores its value nor releases the other's claim.
	g.sleep(11 * time.Second)
	g.get(t, "slow", "slow", func() (string, error) {
		g.sleep(6 * time.Second)
		g.get(t, "fast", "fast", text("fast"))
		return "slow", nil
	})
	g.get(t, "after both", "fast", nil)

	// A build that fails releases its claim, with an old value and without.
	broken := errors.New("no database")
	fail := func() (string, error) { return "", broken }
	g.sleep(11 * time.Second)
	wantErr(t, "failure with an old value", g.get(t, "old value", "fast", fail), broken)
	g.get(t, "after the failure", "v", text("v"))
	if err := g.Delete(ctx, "k"); err != nil {
		t.Error(err)
	}
	wantErr(t, "failure without one", g.get(t, "no value", "", fail), broken)
	g.get(t, "after that failure", "w", text("w"))

	// A caller waits at most Wait.
	if err := g.Delete(ctx, "k"); err != nil {
		t.Error(err)
	}
	g.get(t, "builder", "x", func() (string, error) {
		wantErr(t, "who waits", g.get(t, "who waits", "", nil), recipes.ErrBuilding)
		return "x", nil
	})

	// An old value is not served for longer than Stale.
	g.sleep(21 * time.Second)
	g.get(t, "too old", "y", func() (string, error) {
		wantErr(t, "too old for others", g.get(t, "too old", "", nil), recipes.ErrBuilding)
		return "y", nil
	})
}

// Fifty callers miss at once, and one builds.
func TestHerd(t *testing.T) {
	t.Parallel()
	m := testenv.StartMemcached(t)
	c := must(recipes.NewGuardedCache(&recipes.Store{Client: testenv.Client(t, m.Address)}, "c", recipes.GuardedOptions{Expires: time.Minute, Wait: testenv.Patience}))
	var builds atomic.Int32
	var all, gate sync.WaitGroup
	gate.Add(1)
	for range 50 {
		all.Go(func() {
			gate.Wait()
			v, err := c.Get(ctx, "k", func(context.Context) ([]byte, error) {
				builds.Add(1)
				time.Sleep(50 * time.Millisecond)
				return []byte("v"), nil
			})
			if err != nil || string(v) != "v" {
				t.Errorf("%q, %v", v, err)
			}
		})
	}
	gate.Done()
	all.Wait()
	want(t, "builds", builds.Load(), 1)
}
