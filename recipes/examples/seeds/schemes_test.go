package seeds

// Locks, counters and keys: the articles' versions and those of package recipes.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"ringside/internal/testenv"
	"ringside/recipes"
)

func keys(t *testing.T, _ *setting) []row {
	is(t, "printed: one selection, two keys", SelectionKey(map[string]any{"page": 1}) == SelectionKey(map[string]any{"page": "1"}), false)
	is(t, "corrected: one selection, one key", must(recipes.Key("posts", fmt.Sprint(1))), must(recipes.Key("posts", "1")))
	joined := func(parts ...string) string { return strings.Join(parts, ":") }
	is(t, "joined parts meet", joined("a:b", "c"), joined("a", "b:c"))
	if must(recipes.Key("a:b", "c")) == must(recipes.Key("a", "b:c")) {
		t.Error("Key: parts meet")
	}
	return []row{{"S-10", "keys: md5 of the options", "page 1 and page \"1\" are two keys, each built and invalidated for itself", "parts are text, escaped; different parts never meet (property test)", ""}}
}

// crc32Rules are clients and their settings. Each is described as "crc32 % n". The
// presets are verified against recorded results of those clients.
var crc32Rules = []struct{ client, distribution string }{
	{"gomemcache", "modulo-gomemcache"},
	{"libmemcached, HASH_CRC", "modulo-libmemcached, hash: crc"},
	{"libmemcached, HASH_CRC, SORT_HOSTS", "modulo-libmemcached, hash: crc, order: host"},
	{"Cache::Memcached", "modulo-perl"},
	{"python-memcache, php-memcache", "modulo-python-memcache"},
	{"mcrouter, Crc32", "modulo-mcrouter"},
	{"twemproxy, crc32", "modulo-twemproxy, hash: crc32"},
	{"twemproxy, crc32a", "modulo-twemproxy, hash: crc32a"},
}

// zeroKey is a key for which 15 bits of the hash are 0. Some clients replace that
// 0 by 1.
const zeroKey = "user:28063"

// owners returns the server of each key, as printed by ringside route. If heavy is
// set, the first server has weight 2.
func owners(t *testing.T, distribution string, heavy bool, keys []string) []string {
	var servers []string
	for i := range 11 {
		s := fmt.Sprintf("address: '10.0.0.%d'", 11-i)
		if heavy && i == 0 {
			s += ", weight: 2"
		}
		servers = append(servers, "{"+s+"}")
	}
	file := filepath.Join(t.TempDir(), "ringside.yaml")
	config := fmt.Sprintf("listen: 127.0.0.1:11211\npools: {main: {distribution: %s, servers: [%s]}}\n", distribution, strings.Join(servers, ", "))
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(testenv.Binary(t), append([]string{"route", "-c", file, "--json"}, keys...)...).CombinedOutput()
	if heavy && strings.Contains(string(out), "weight must be 1") {
		return []string{"takes no weights"}
	} else if err != nil {
		t.Fatalf("%s: %v\n%s", distribution, err, out)
	}
	var owners []string
	for line := range strings.Lines(string(out)) {
		var said struct{ Owner string }
		if err := json.Unmarshal([]byte(line), &said); err != nil {
			t.Fatalf("%s: %v\n%s", distribution, err, line)
		}
		owners = append(owners, said.Owner)
	}
	return owners
}

func placement(t *testing.T, s *setting) []row {
	var keys []string
	for i := range 60 {
		keys = append(keys, fmt.Sprintf("user:%d", i), fmt.Sprintf("page|#|%d", i))
	}
	is(t, "15 bits of "+zeroKey, crc32.ChecksumIEEE([]byte(zeroKey))>>16&0x7fff, 0)
	keys = append(keys, zeroKey)
	different := map[string]bool{}
	for _, rule := range crc32Rules {
		even, heavy := owners(t, rule.distribution, false, keys), owners(t, rule.distribution, true, keys)
		different[strings.Join(append(even, heavy...), " ")] = true
		s.rules = append(s.rules, []string{rule.client, "`" + rule.distribution + "`", even[0], even[1], even[len(even)-1], heavy[0]})
	}
	is(t, "ways of crc32 % n", len(different), 8)
	return []row{{"S-12", "crc32(key) % n is the same in all clients", "8 clients' rules put the same keys in 8 ways (below)",
		"name the client's rule: `ringside distributions`; `ringside route -c FILE KEY…` says where a key goes", ""}}
}

func locks(t *testing.T, s *setting) []row {
	// Both callers read before one of them sets.
	r := newRounds(2)
	var holders atomic.Int32
	each(2, func(int) {
		if mine, err := GetSetLock(paced{s.through, r}, "lock_by_get_and_set"); err != nil {
			t.Error(err)
		} else if mine {
			holders.Add(1)
		}
	})
	is(t, "holders of a lock by get and set", holders.Load(), 2)
	once := must(recipes.NewLock(s.store(), "once", 30*time.Second))
	holders.Store(0)
	each(8, func(int) {
		if _, err := once.Acquire(ctx, 0); err == nil {
			holders.Add(1)
		} else if !errors.Is(err, recipes.ErrLocked) {
			t.Error(err)
		}
	})
	is(t, "holders of a lock by add", holders.Load(), 1)

	// A's lock expires, B gets it, A releases "it", C gets it.
	st := newStage(t)
	lock := MCLock{st.mc, "lock", 5}
	a := lock.TryLock()
	st.sleep(6 * time.Second)
	b := lock.TryLock()
	lock.Unlock() // by a
	c := lock.TryLock()
	is(t, "a, b and c get the lock", a && b && c, true)
	lock.Unlock()
	st.mc.Add(item("lock", "1", 60))
	is(t, "waiting for a lock that is held", lock.Lock(), ErrEndless)

	st = newStage(t)
	l := must(recipes.NewLock(st.store(), "lock", 5*time.Second))
	ours := must(l.Acquire(ctx, 0))
	st.sleep(6 * time.Second)
	must(l.Acquire(ctx, 0))
	if ours.Release(ctx) == nil {
		t.Error("the release of another's lock succeeded")
	}
	if _, err := l.Acquire(ctx, 0); err == nil {
		t.Error("a third one has the lock")
	}

	many := must(recipes.NewLock(s.store(), "many", 30*time.Second))
	var inside, twice, grants atomic.Int32
	each(8, func(int) {
		for range 30 {
			lease, err := many.Acquire(ctx, testenv.Patience)
			if err != nil {
				t.Error(err)
				return
			}
			grants.Add(1)
			if inside.Add(1) > 1 {
				twice.Add(1)
			}
			inside.Add(-1)
			if err := lease.Release(ctx); err != nil {
				t.Error(err)
			}
		}
	})
	is(t, "grants", grants.Load(), 240)
	is(t, "two holders", twice.Load(), 0)
	return []row{
		{"S-26", "lock by get and set", "2 of 2 hold it", "add: 1 of 8 holds it", ""},
		{"S-27, S-45", "lock by add and delete", "after an expiry A frees B's lock, and C holds it beside B; waiting spins", "token and cas: A's release is refused; 240 grants to 8 clients, never two holders; fencing numbers", "lock"},
	}
}

func counters(t *testing.T, s *setting) []row {
	const clients, times = 8, 200
	r := newRounds(clients)
	each(clients, func(int) {
		for range times {
			if err := GetSetCount(paced{s.through, r}, "count_by_get_and_set"); err != nil {
				t.Error(err)
			}
		}
	})
	lossy := string(must(s.through.Get("count_by_get_and_set")).Value)
	is(t, "count by get and set", lossy, "200")

	// The article's client makes every error a KeyError.
	gone := testenv.Client(t, "127.0.0.1:1")
	is(t, "a counter whose server is gone", MCCounter(gone, "n", 1), ErrEndless)
	if _, err := must(recipes.NewCounter(&recipes.Store{Client: gone}, "n", 0)).Add(ctx, 1); err == nil || errors.Is(err, recipes.ErrContended) {
		t.Errorf("ours, whose server is gone: %v", err)
	}

	counter := must(recipes.NewCounter(s.store(), "n", 0))
	each(clients, func(int) {
		for range times {
			must(counter.Add(ctx, 1))
		}
	})
	n := must(counter.Value(ctx))
	is(t, "count by incr", n, clients*times)
	return []row{
		{"S-17", "count by get and set", "8 clients × 200 = " + lossy, fmt.Sprintf("incr, add: %d of 1600", n), ""},
		{"S-46", "MCCounter", "its server is gone: the loop never ends", "an error of the server or the connection ends it at once", "counter"},
	}
}

func views(t *testing.T, s *setting) []row {
	// A hundred callers find nothing before one of them sets.
	const many = 100
	r := newRounds(many)
	each(many, func(int) {
		CountView(s.through, "views", func() int { r.step(); return 5000 })
	})
	printed := string(must(s.through.Get("views")).Value)
	is(t, "100 first views, as printed", printed, "5001")

	v := must(recipes.NewViewCounter(s.store(), "n", 0, func(context.Context) (uint64, error) { return 5000, nil }))
	each(many, func(int) {
		for range 10 {
			must(v.View(ctx))
		}
	})
	n := must(v.Value(ctx))
	is(t, "1000 first views", n, 6000)
	return []row{{"S-20", "view counter on a database's 5,000", "100 first views at once: " + printed, fmt.Sprintf("1,000 first views at once: %d", n), "views"}}
}

func rebuilds(t *testing.T, s *setting) []row {
	// First build: fifty callers find nothing, and there is no old value.
	const herd = 50
	var builds atomic.Int32
	r := newRounds(herd)
	each(herd, func(int) {
		g := Guarded{paced{s.through, r}, time.Now, 10}
		g.Get("page", time.Minute, func() string { builds.Add(1); return "v" })
	})
	first := builds.Load()
	is(t, "first builds, as printed", first, herd)

	// A caller reads before the first build is stored, and gets the lock after the
	// first builder unlocked: it builds again. And a slow builder releases the
	// lock of another.
	st := newStage(t)
	st.mc.Set(item("page", fmt.Sprintf("%d old", st.Now().Unix()-1), 0))
	printed := Guarded{st.mc, st.Now, 5}
	again, freed := 0, 0
	late := lateLock{st.mc, func() { printed.Get("page", time.Minute, func() string { again++; return "new" }) }}
	Guarded{late, st.Now, 5}.Get("page", time.Minute, func() string { again++; return "new" })
	is(t, "builds one after another, as printed", again, 2)
	st.sleep(2 * time.Minute)
	printed.Get("page", time.Minute, func() string { // A builds for longer than its lock lasts
		st.sleep(6 * time.Second)
		(MCLock{st.mc, "page_lock", 5}).TryLock() // B's
		return "slow"
	})
	if (MCLock{st.mc, "page_lock", 5}).TryLock() {
		freed++
	}
	is(t, "another's lock freed, as printed", freed, 1)

	c := must(recipes.NewGuardedCache(s.store(), "c", recipes.GuardedOptions{Expires: time.Minute, Wait: testenv.Patience}))
	builds.Store(0)
	each(herd, func(int) {
		must(c.Get(ctx, "page", func(context.Context) ([]byte, error) {
			builds.Add(1)
			time.Sleep(20 * time.Millisecond)
			return []byte("v"), nil
		}))
	})
	is(t, "builds", builds.Load(), 1)
	return []row{{"S-23 to S-25", "one rebuild at a time", fmt.Sprintf("first build: %d of %d build; %d builds one after another; a slow builder frees another's lock", first, herd, again),
		fmt.Sprintf("%d of %d builds; a slow builder stores nothing over a newer value or delete", builds.Load(), herd), "guarded"}}
}

// lateLock is a slow client: it calls behind after each get.
type lateLock struct {
	recipes.Client
	behind func()
}

func (l lateLock) Get(key string) (i *memcache.Item, err error) {
	i, err = l.Client.Get(key)
	l.behind()
	return i, err
}

func tags(t *testing.T, s *setting) []row {
	// A tag counts its versions, is lost, and counts again: an old value is valid.
	st := newStage(t)
	counting := Tags{st.mc, st.Now, true}
	counting.Set("page", "old", "tag")
	counting.Invalidate("tag")
	_, valid := counting.Get("page", "tag")
	is(t, "counted version, invalidated", valid, false)
	st.mc.Delete("tag_tag")
	revived, valid := counting.Get("page", "tag")
	is(t, "counted version, lost", valid && revived == "old", true)

	// Versions are times, read at the set: a value that was read before the
	// invalidation is valid after it. And two invalidations within a millisecond
	// are one.
	timed := Tags{st.mc, st.Now, false}
	database := "old"
	read := database
	database = "new"
	timed.Invalidate("tag")
	timed.Set("page", read, "tag")
	stale, valid := timed.Get("page", "tag")
	is(t, "stamped at the set", valid && stale != database, true)
	timed.Set("page", "between", "tag")
	timed.Invalidate("tag")
	between, valid := timed.Get("page", "tag")
	is(t, "twice within a millisecond", valid && between == "between", true)

	// The article's example: tag1 at 25, tag2 at 63, which becomes 64.
	c := must(recipes.NewTaggedCache(s.store(), "c"))
	_, fill, _ := c.Get(ctx, "page", "tag1", "tag2")
	if err := fill.Set(ctx, []byte("v"), time.Minute); err != nil {
		t.Error(err)
	}
	if v, _, err := c.Get(ctx, "page", "tag1", "tag2"); string(v) != "v" {
		t.Errorf("tagged: %q, %v", v, err)
	}
	if err := c.Invalidate(ctx, "tag2"); err != nil {
		t.Error(err)
	}
	_, late, err := c.Get(ctx, "page", "tag1", "tag2")
	if err == nil {
		t.Error("valid after its tag was invalidated")
	}
	if err := c.Invalidate(ctx, "tag1"); err != nil {
		t.Error(err)
	}
	if err := late.Set(ctx, []byte("late"), time.Minute); err != nil {
		t.Error(err)
	}
	if v, _, err := c.Get(ctx, "page", "tag1", "tag2"); err == nil {
		t.Errorf("what was read before an invalidation: %q", v)
	}
	return []row{
		{"S-29, S-31", "tags with counted versions", "a version that is lost counts from 1 again: the old value is back", "versions that were never used before: a miss", ""},
		{"S-31 to S-33", "tags with times as versions", "stamped at the set: what was read before the invalidation is valid after it; two in one millisecond are one", "stamped at the miss, 64 random bits: both miss", "tagged"},
	}
}
