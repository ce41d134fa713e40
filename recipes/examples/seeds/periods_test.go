package seeds

// The counters of periods in simulated time: what they show, by amount of traffic.

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"ringside/recipes"
)

// simulated is a memcached store with its own clock. It supports incr, add, set
// and get, and an item expires when the second of its expiry begins. It exists
// because two days of traffic are too slow through a socket. A test below compares
// it with the in-process memcached.
type simulated struct {
	recipes.Client
	now   int64
	items map[string]*simulatedItem
}

type simulatedItem struct {
	value   uint64
	expires int64
}

func (m *simulated) Now() time.Time { return time.Unix(m.now, 0) }

func (m *simulated) live(key string) *simulatedItem {
	i := m.items[key]
	if i != nil && i.expires <= m.now {
		delete(m.items, key)
		return nil
	}
	return i
}

func (m *simulated) Increment(key string, delta uint64) (uint64, error) {
	i := m.live(key)
	if i == nil {
		return 0, memcache.ErrCacheMiss
	}
	i.value += delta
	return i.value, nil
}

func (m *simulated) Set(i *memcache.Item) error {
	n, err := strconv.ParseUint(string(i.Value), 10, 64)
	m.items[i.Key] = &simulatedItem{n, m.now + int64(i.Expiration)}
	return err
}

func (m *simulated) Add(i *memcache.Item) error {
	if m.live(i.Key) != nil {
		return memcache.ErrNotStored
	}
	return m.Set(i)
}

func (m *simulated) Get(key string) (*memcache.Item, error) {
	i := m.live(key)
	if i == nil {
		return nil, memcache.ErrCacheMiss
	}
	return &memcache.Item{Key: key, Value: strconv.AppendUint(nil, i.value, 10)}, nil
}

func (m *simulated) GetMulti(keys []string) (map[string]*memcache.Item, error) {
	found := map[string]*memcache.Item{}
	for _, k := range keys {
		if i, err := m.Get(k); err == nil {
			found[k] = i
		}
	}
	return found, nil
}

// counted is a counter of periods, as printed or as corrected.
type counted struct {
	count func() error
	value func() int
}

// deviation is the difference between what is shown and what was counted.
type deviation struct {
	mean float64 // of the sum over all periods, in per cent
	off  float64 // per cent of periods in which it is more than 5 %
}

func (d deviation) String() string { return fmt.Sprintf("%.1f %%", d.mean+0) }

// simulate creates visitors at random, perSecond on average. At the end of each
// period it compares what is shown with what the last whole periods counted.
func simulate(t *testing.T, perSecond float64, hours, period, shown int64, make func(m *simulated) counted) deviation {
	m := &simulated{now: 1_795_000_000 / (period * 60) * period * 60, items: map[string]*simulatedItem{}}
	c := make(m)
	random := rand.New(rand.NewPCG(21, 47))
	var past []int // count of each period
	start, next := m.now, 0.0
	sum, truth, off, looks := 0.0, 0.0, 0, 0
	current := 0
	for ; m.now < start+hours*3600; m.now++ {
		if m.now > start && m.now%period == 0 {
			past = append(past, current)
			current = 0
		}
		for next < float64(m.now-start+1) {
			if err := c.count(); err != nil {
				t.Fatal(err)
			}
			current++
			next += random.ExpFloat64() / perSecond
		}
		if m.now%period != period-1 || int64(len(past)) < shown {
			continue
		}
		want := 0
		for _, n := range past[int64(len(past))-shown:] {
			want += n
		}
		got := c.value()
		sum, truth = sum+float64(got), truth+float64(want)
		if looks++; math.Abs(float64(got-want)) > 0.05*float64(want) {
			off++
		}
	}
	return deviation{100 * (sum - truth) / truth, 100 * float64(off) / float64(looks)}
}

func periods(t *testing.T, _ *setting) []row {
	value := func(n uint64, err error) int {
		if err != nil {
			t.Fatal(err)
		}
		return int(n)
	}
	online := func(m *simulated) counted {
		c := Online{m, m.Now}
		return counted{c.Count, c.Value}
	}
	ourOnline := func(m *simulated) counted {
		c := must(recipes.NewOnlineCounter(&recipes.Store{Client: m, Now: m.Now}, "n"))
		return counted{func() error { return c.Count(ctx) }, func() int { return value(c.Value(ctx)) }}
	}
	visitors := func(m *simulated) counted {
		c := MCVisitorCounter{m, "n", 180, m.Now}
		return counted{c.Count, c.Value}
	}
	ourVisitors := func(m *simulated) counted {
		c := must(recipes.NewVisitorCounter(&recipes.Store{Client: m, Now: m.Now}, "n", 3*time.Minute))
		return counted{func() error { return c.Count(ctx) }, func() int { return value(c.Value(ctx)) }}
	}
	table := func(what string, period, shown int64, printed, ours func(*simulated) counted, wrong []bool, traffic map[string]float64, order []string) (string, string) {
		var as, by []string
		for i, name := range order {
			hours := int64(48)
			if traffic[name] > 2 {
				hours = 6
			}
			p, o := simulate(t, traffic[name], hours, period, shown, printed), simulate(t, traffic[name], hours, period, shown, ours)
			if wrong[i] != (p.mean < -30) {
				t.Errorf("%s as printed, %s: %v", what, name, p)
			}
			if o.mean != 0 || o.off != 0 {
				t.Errorf("%s as corrected, %s: %v, off in %.0f %%", what, name, o, o.off)
			}
			as = append(as, fmt.Sprintf("%s %v (off in %.0f %% of looks)", name, p, p.off))
			by = append(by, fmt.Sprintf("%s %v", name, o))
		}
		return strings.Join(as, "; "), strings.Join(by, "; ")
	}
	six, ours := table("six keys", 60, 5, online, ourOnline, []bool{false, true, true, true},
		map[string]float64{"10/s": 10, "1/s": 1, "1 per 5 s": 0.2, "1 per 20 s": 0.05}, []string{"10/s", "1/s", "1 per 5 s", "1 per 20 s"})
	two, ours2 := table("two keys", 180, 1, visitors, ourVisitors, []bool{false, true, true, true},
		map[string]float64{"1000 per 3 min": 1000. / 180, "1 per 2 s": 0.5, "1 per 10 s": 0.1, "1 per 30 s": 1. / 30}, []string{"1000 per 3 min", "1 per 2 s", "1 per 10 s", "1 per 30 s"})
	return []row{
		{"S-21", "online counter, six keys: error of the number shown", six, ours, "online"},
		{"S-22, S-47", "visitor counter, two keys: error of the number shown", two, ours2, "visitors"},
	}
}

// The simulated store returns the same results as memcached.
func TestSimulated(t *testing.T) {
	st := newStage(t)
	st.now = time.Unix(st.now.Unix(), 0)
	m := &simulated{now: st.now.Unix(), items: map[string]*simulatedItem{}}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 2000 {
		key := fmt.Sprintf("k%d", random.IntN(3))
		store := item(key, strconv.Itoa(random.IntN(50)), int32(1+random.IntN(5)))
		if random.IntN(3) == 0 {
			st.sleep(time.Second)
			m.now++
		}
		var got, want any
		switch random.IntN(4) {
		case 0:
			n, err := m.Increment(key, 2)
			n2, err2 := st.mc.Increment(key, 2)
			got, want = fmt.Sprint(n, err), fmt.Sprint(n2, err2)
		case 1:
			got, want = m.Add(store), st.mc.Add(store)
		case 2:
			got, want = m.Set(store), st.mc.Set(store)
		case 3:
			a, err := m.GetMulti([]string{key})
			b, err2 := st.mc.GetMulti([]string{key})
			got, want = fmt.Sprint(len(a), err), fmt.Sprint(len(b), err2)
			if a[key] != nil && b[key] != nil {
				got, want = string(a[key].Value), string(b[key].Value)
			}
		}
		if got != want {
			t.Fatalf("step %d, %s: %v, memcached: %v", i, key, got, want)
		}
	}
}
