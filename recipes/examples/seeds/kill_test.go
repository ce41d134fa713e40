package seeds

// Every recipe under load, on one copy and on two, while a server is killed and
// comes back.

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
	"ringside/recipes/internal/rig"
)

// load is a recipe at work.
type load struct {
	name string
	two  bool // copies
	// work does one thing as one of some workers. An error is counted: it was done or
	// not.
	work func(worker int) error
	// check says what came of it, once all servers are in again and nobody works.
	check func(t *testing.T) string

	calm           atomic.Int64 // when all servers were in again, in minutes of the fast clock
	sure, doubtful atomic.Int64
	last           atomic.Value // an error, for people
}

// bed is what a load is made from.
type bed struct {
	*recipes.Store
	l    *load
	adds *addsInDoubt
	name func(kind string) string // a name whose key is the victim's
}

// addsInDoubt is a client that counts, by key, adds that ended with an error.
// Ringside deletes the key behind such an add, also where another client's add has
// succeeded meanwhile, or others have counted or appended there: D7 of its known
// faults, and in its README. That is what recipes can't mend and what holds today: on
// two copies nothing is lost of keys that had no such add.
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

// workers is how many do the work of each load. In a short run it is one, and what several
// do to each other is left out.
func workers() int {
	switch {
	case testing.Short():
		return 1
	case testenv.Full():
		return 4
	}
	return 2
}

// throughAKill runs all loads while a server dies and returns, and says what came
// of each.
func throughAKill(t *testing.T, r *rig.Ringside, servers []*rig.Memcached) map[string][2]string {
	client := rig.Client(t, r.Address)
	victim := servers[0]
	clock := newFastClock()
	var loads []*load
	for _, two := range []bool{false, true} {
		prefix := "one:"
		if two {
			prefix = rig.Two
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
			rig.Eventually(t, fmt.Sprintf("%s goes on (two copies: %t; last error: %v)", l.name, l.two, l.last.Load()), func() bool { return l.sure.Load() >= goal })
		}
	}
	more()
	rig.Copied(t, servers)
	victim.Kill()
	r.Out(t, victim)
	more()
	victim.Restart(t)
	r.Calm(t)
	calm := minute(clock.Now())
	for _, l := range loads {
		l.calm.Store(calm)
	}
	rig.Eventually(t, "eight minutes pass, by the clock of the counters", func() bool { return minute(clock.Now()) >= calm+8 })
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

// copies says how many, for messages.
func (l *load) copies() string {
	if l.two {
		return l.name + ", two copies"
	}
	return l.name + ", one copy"
}

// between holds a number against the calls that it comes from. On one copy it may
// be short: what the server had is lost. So it may where an add of its key was in
// doubt.
func (b *bed) between(t *testing.T, what string, n uint64, key string) {
	t.Helper()
	sure, doubtful := uint64(b.l.sure.Load()), uint64(b.l.doubtful.Load())
	if n > sure+doubtful || b.l.two && n < sure && b.adds.of(key) == 0 {
		t.Errorf("%s: %s is %d after %d sure calls and %d in doubt", b.l.copies(), what, n, sure, doubtful)
	}
}

// nameAt is a name that makes a key, behind kind, whose server is the victim; where
// there are copies, the one that decides.
func nameAt(t *testing.T, r *rig.Ringside, victim *rig.Memcached, kind string) string {
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

// fastClock goes so fast that a minute lasts a quarter of a second, and can be
// stopped.
type fastClock struct {
	began time.Time
	mu    sync.Mutex
	at    time.Time // stopped
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

// sleep moves a clock that was stopped.
func (c *fastClock) sleep(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}
