package seeds

// Every recipe under load, with one copy and with two, while a server is killed
// and restarted.

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"ringside/internal/testenv"
	"ringside/recipes"
)

// load is a recipe under load.
type load struct {
	name string
	two  bool // whether its keys have two copies
	// work runs one operation as one of several workers. After an error it is
	// unknown whether the operation was executed.
	work func(worker int) error
	// check returns a summary of the results. It is called when all servers are in
	// use again and no worker runs.
	check func(t *testing.T) string

	calm           atomic.Int64 // when all servers were in use again, in minutes of the fast clock
	sure, doubtful atomic.Int64
	last           atomic.Value // text of the last error, for messages
}

// bed is what a load is built from.
type bed struct {
	*recipes.Store
	l    *load
	adds *addsInDoubt
	name func(kind string) string // returns a name with a key on the victim
}

// addsInDoubt is a client that counts, by key, adds that returned an error.
// Ringside deletes the key after such an add. That delete also removes a
// successful add of another client, and what others have counted or appended.
// Recipes cannot prevent that. The tests therefore require only this: with two
// copies, nothing is lost from keys without such an add.
type addsInDoubt struct {
	recipes.Client
	mu sync.Mutex
	n  map[string]int
}

func (c *addsInDoubt) Add(i *memcache.Item) error {
	err := c.Client.Add(i)
	if err != nil && !errors.Is(err, memcache.ErrNotStored) {
		c.mu.Lock()
		c.n[i.Key]++
		c.mu.Unlock()
	}
	return err
}

func (c *addsInDoubt) of(key string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[key]
}

// workers returns the number of workers per load. A short run has one, so it does
// not test how several affect each other.
func workers() int {
	switch {
	case testing.Short():
		return 1
	case testenv.Full():
		return 4
	}
	return 2
}

// throughAKill runs all loads while a server dies and returns. It returns the
// result of each load: with one copy, and with two.
func throughAKill(t *testing.T, r *testenv.Ringside, servers []*testenv.Memcached) map[string][2]string {
	client := testenv.Client(t, r.Address)
	victim := servers[0]
	clock := newFastClock()
	var loads []*load
	for _, two := range []bool{false, true} {
		prefix := "one:"
		if two {
			prefix = testenv.Two
		}
		for name, make := range map[string]func(*bed){
			"lock": loadLock, "counter": loadCounter, "views": loadViews, "visitors": loadVisitors, "online": loadOnline,
			"guarded": loadGuarded, "tagged": loadTagged, "log": loadLog, "array": loadArray, "table": loadTable, "rows": loadRows,
		} {
			l := &load{name: name, two: two}
			adds := &addsInDoubt{Client: client, n: map[string]int{}}
			make(&bed{&recipes.Store{Client: adds, Prefix: prefix, Now: clock.Now}, l, adds, func(kind string) string {
				return nameAt(t, r, victim, prefix+kind)
			}})
			loads = append(loads, l)
		}
	}
	stop := make(chan bool)
	var all sync.WaitGroup
	for _, l := range loads {
		for w := range workers() {
			all.Go(func() { l.run(w, stop) })
		}
	}
	var once sync.Once
	halt := func() { once.Do(func() { close(stop); all.Wait() }) }
	t.Cleanup(halt)
	more := func() {
		goals := make(map[*load]int64)
		for _, l := range loads {
			goals[l] = l.sure.Load() + 20
		}
		for l, goal := range goals {
			testenv.Eventually(t, fmt.Sprintf("%s goes on (two replicas: %t; last error: %v)", l.name, l.two, l.last.Load()), func() bool { return l.sure.Load() >= goal })
		}
	}
	more()
	testenv.Copied(t, servers)
	victim.Kill()
	r.Out(t, victim)
	more()
	victim.Restart(t)
	r.Calm(t)
	calm := minute(clock.Now())
	for _, l := range loads {
		l.calm.Store(calm)
	}
	testenv.Eventually(t, "eight minutes pass, by the clock of the counters", func() bool { return minute(clock.Now()) >= calm+8 })
	more()
	halt()
	result := map[string][2]string{}
	for _, l := range loads {
		text := l.check(t)
		if n := l.doubtful.Load(); n > 0 {
			text += fmt.Sprintf("; %d errors", n)
		}
		both := result[l.name]
		if l.two {
			both[1] = text
		} else {
			both[0] = text
		}
		result[l.name] = both
	}
	return result
}

func (l *load) run(worker int, stop chan bool) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(rand.N(20 * time.Millisecond)):
		}
		if err := l.work(worker); err != nil {
			l.doubtful.Add(1)
			l.last.Store(fmt.Sprint(err))
		} else {
			l.sure.Add(1)
		}
	}
}

// copies describes the load and its number of copies, for messages.
func (l *load) copies() string {
	if l.two {
		return l.name + ", two replicas"
	}
	return l.name + ", one replica"
}

// between checks a number against the calls that produced it. With one copy it may
// be too low, because the server's data is lost. It may also be too low if an add
// of its key was in doubt.
func (b *bed) between(t *testing.T, what string, n uint64, key string) {
	t.Helper()
	sure, doubtful := uint64(b.l.sure.Load()), uint64(b.l.doubtful.Load())
	if n > sure+doubtful || b.l.two && n < sure && b.adds.of(key) == 0 {
		t.Errorf("%s: %s is %d after %d sure calls and %d in doubt", b.l.copies(), what, n, sure, doubtful)
	}
}

// nameAt returns a name such that the key kind:name is on the victim. If the key has
// copies, the victim is their primary.
func nameAt(t *testing.T, r *testenv.Ringside, victim *testenv.Memcached, kind string) string {
	t.Helper()
	var keys []string
	for i := range 40 {
		keys = append(keys, fmt.Sprintf("%s:n%d", kind, i))
	}
	for line := range strings.Lines(r.Route(t, keys...)) {
		var said struct{ Key, Owner string }
		if err := json.Unmarshal([]byte(line), &said); err != nil {
			t.Fatalf("%v\n%s", err, line)
		}
		if said.Owner == victim.Address {
			return said.Key[len(kind)+1:]
		}
	}
	t.Fatal("no key is the victim's")
	return ""
}

// fastClock runs at 240 times real time, so a minute lasts a quarter of a second.
// It can be stopped.
type fastClock struct {
	began time.Time
	mu    sync.Mutex
	at    time.Time // time at which it was stopped; zero while it runs
}

const speed = 240

func minute(t time.Time) int64 { return t.Unix() / 60 }

func newFastClock() *fastClock { return &fastClock{began: time.Now()} }

func (c *fastClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.at.IsZero() {
		return c.at
	}
	return c.began.Add(speed * time.Since(c.began))
}

func (c *fastClock) stop() {
	now := c.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = now
}

// sleep advances a clock that was stopped.
func (c *fastClock) sleep(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}
