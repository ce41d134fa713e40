package meta_test

// The adapter returns the same results as gomemcache, and recipes work with it.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"ringside/internal/testenv"
	"ringside/recipes"
	"ringside/recipes/meta"
)

var (
	_ recipes.Client = (*meta.Client)(nil)
	_ recipes.Sizer  = (*meta.Client)(nil)
)

func TestMain(m *testing.M) {
	status := m.Run()
	testenv.Clean()
	os.Exit(status)
}

// kind describes an error as far as recipes distinguish errors: one of three known
// errors, or another one.
func kind(err error) string {
	for _, known := range []error{memcache.ErrCacheMiss, memcache.ErrNotStored, memcache.ErrCASConflict} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	if err != nil {
		return fmt.Sprint("another error, non-numeric: ", strings.Contains(err.Error(), "non-numeric"))
	}
	return ""
}

// Both clients run the same random commands, each on its own memcached.
func TestSameAsGomemcache(t *testing.T) {
	t.Parallel()
	server := &meta.Server{Address: testenv.StartMemcached(t).Address, Timeout: testenv.Patience}
	defer server.Close()
	clients := []recipes.Client{testenv.Client(t, testenv.StartMemcached(t).Address), meta.New(server)}
	random := rand.New(rand.NewPCG(1, 2))
	var cas [2]map[string]uint64
	cas[0], cas[1] = map[string]uint64{}, map[string]uint64{}
	for step := range 3000 {
		key := fmt.Sprintf("k%d", random.IntN(3))
		value := []string{"", "7", "text\r\nEND\r\n", strings.Repeat("x", 70_000)}[random.IntN(4)]
		expires := []int32{0, 0, 100, -1}[random.IntN(4)]
		op, delta, flags := random.IntN(8), uint64(random.IntN(5)), uint32(random.IntN(3))
		var said [2]string
		for i, c := range clients {
			item := &memcache.Item{Key: key, Value: []byte(value), Expiration: expires, Flags: flags, CasID: cas[i][key]}
			switch op {
			case 0:
				got, err := c.Get(key)
				if said[i] = kind(err); err == nil {
					said[i] = fmt.Sprintf("%d %.80q", got.Flags, got.Value)
					cas[i][key] = got.CasID
				}
			case 1:
				got, err := c.GetMulti([]string{"k0", "k1", "k2"})
				said[i] = fmt.Sprint(len(got), kind(err))
				if g := got[key]; g != nil {
					said[i] += fmt.Sprintf("%s %d %d", g.Key, g.Flags, len(g.Value))
				}
			case 2:
				said[i] = kind(c.Set(item))
			case 3:
				said[i] = kind(c.Add(item))
			case 4:
				said[i] = kind(c.Append(item))
			case 5:
				said[i] = kind(c.CompareAndSwap(item))
			case 6:
				n, err := c.Increment(key, delta)
				said[i] = fmt.Sprint(n, kind(err))
			case 7:
				said[i] = kind(c.Delete(key))
			}
		}
		if said[0] != said[1] {
			t.Fatalf("step %d, command %d of %s: gomemcache %q, meta %q", step, op, key, said[0], said[1])
		}
	}
}

// Recipes run through Ringside with meta commands. Size reveals a full log.
func TestRecipes(t *testing.T) {
	t.Parallel()
	servers := []*testenv.Memcached{testenv.StartMemcached(t), testenv.StartMemcached(t), testenv.StartMemcached(t)}
	r := testenv.StartRingside(t, servers)
	r.Calm(t)
	server := &meta.Server{Address: r.Address, Timeout: testenv.Patience}
	defer server.Close()
	for _, prefix := range []string{"one:", testenv.Two} {
		s := &recipes.Store{Client: meta.New(server), Prefix: prefix}
		ctx := context.Background()
		fail := func(what string, err error) {
			if err != nil {
				t.Errorf("%s%s: %v", prefix, what, err)
			}
		}
		lock, err := recipes.NewLock(s, "n", 30*time.Second)
		fail("lock", err)
		lease, err := lock.Acquire(ctx, 0)
		fail("acquire", err)
		if _, err := lock.Acquire(ctx, 0); !errors.Is(err, recipes.ErrLocked) {
			t.Errorf("%s: a lock that is held: %v", prefix, err)
		}
		fail("release", lease.Release(ctx))
		_, err = lock.Acquire(ctx, 0)
		fail("acquire again", err)

		counter, err := recipes.NewCounter(s, "n", 0)
		fail("counter", err)
		for want := range uint64(3) {
			if n, err := counter.Add(ctx, 1); n != want+1 || err != nil {
				t.Errorf("%s: count %d, %v, want %d", prefix, n, err, want+1)
			}
		}
		log, err := recipes.NewEventLog(s, "n", recipes.EventLogOptions{Chunk: time.Hour, Parts: 2})
		fail("log", err)
		for i := range 3 {
			err := log.Put(ctx, recipes.Event{Data: make([]byte, 600_000)})
			if full := errors.Is(err, recipes.ErrFull); full != (i == 2) {
				t.Errorf("%s: event %d: %v", prefix, i, err)
			}
		}
		array, err := recipes.NewArray(s, "n", recipes.ArrayOptions{})
		fail("array", err)
		fail("add", array.Add(ctx, "1", "3", "4"))
		fail("remove", array.Remove(ctx, "3"))
		fail("update", array.Update(ctx, func(l []string) []string { return append(l, "5") }))
		if list, err := array.Fetch(ctx); err != nil || fmt.Sprint(list) != "[1 4 5]" {
			t.Errorf("%s: list %v, %v", prefix, list, err)
		}
	}
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	server := &meta.Server{Address: "127.0.0.1:1"} // nothing is sent
	for _, key := range []string{"", "a b", "a\r\nflush_all", "a\x00"} {
		if _, err := meta.New(server).Get(key); err == nil || !strings.Contains(err.Error(), "not possible") {
			t.Errorf("key %q: %v", key, err)
		}
	}
}
