package watch

import (
	"fmt"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
	"time"
)

// zipf draws keys at random. The n-th is requested 1/n as often as the first.
type zipf struct {
	sums []float64
	r    *rand.Rand
}

func newZipf(keys int, seed uint64) *zipf {
	z := &zipf{r: rand.New(rand.NewPCG(seed, 1))}
	sum := 0.0
	for n := 1; n <= keys; n++ {
		sum += 1 / float64(n)
		z.sums = append(z.sums, sum)
	}
	return z
}

func (z *zipf) next() int {
	return sort.SearchFloat64s(z.sums, z.r.Float64()*z.sums[len(z.sums)-1])
}

// share returns the part of all requests that the n-th key has, counted from 0.
func (z *zipf) share(n int) float64 { return 1 / float64(n+1) / z.sums[len(z.sums)-1] }

func watchOf(seed uint64) *Watch {
	s := maphash.MakeSeed()
	w := New(func(key []byte) uint64 { return maphash.Bytes(s, key) }, seed)
	return &w
}

// TestZipf checks how many of the hot keys among a million are found and how accurate their shares
// are, at low load, where all requests are sampled, and at high load, with one loop and with four.
func TestZipf(t *testing.T) {
	const hot = 20
	z := newZipf(1_000_000, 7)
	for _, c := range []struct{ rate, loops int }{{800, 1}, {5_000, 1}, {80_000, 1}, {80_000, 4}} {
		t.Run(fmt.Sprint(c.rate, " requests a second, loops: ", c.loops), func(t *testing.T) {
			var loops []*Watch
			for i := range c.loops {
				loops = append(loops, watchOf(uint64(i+3)))
			}
			now := int64(time.Hour)
			for i := range c.rate * 25 {
				now += int64(time.Second) / int64(c.rate)
				if w := loops[i%c.loops]; w.Left > 0 {
					w.Left--
				} else {
					w.Ended(now, fmt.Appendf(nil, "key:%d", z.next()), 0, 0, 0, 0, 100)
					continue
				}
			}
			var is Report
			for _, w := range loops {
				w.AddTo(&is, now)
			}
			found, off := 0, 0
			for n := range hot {
				i := slices.IndexFunc(is.Keys, func(r Row) bool { return r.Key == fmt.Sprint("key:", n) })
				if i >= 0 && i < hot {
					found++
				}
				if i < 0 {
					continue
				}
				r := &is.Keys[i]
				if math.Abs(r.Likely()/is.Requests-z.share(n)) > r.MoreOrLess()/is.Requests {
					off++
				}
			}
			t.Logf("%d of %d found, %d of these off by more than was said; the first has %.2f %% ± %.2f, in truth %.2f; %.0f looks in %.0f s", found, hot, off,
				100*is.Keys[0].Likely()/is.Requests, 100*is.Keys[0].MoreOrLess()/is.Requests, 100*z.share(0), is.Looks, is.Span)
			if found < hot*9/10 || off > 1 {
				t.Errorf("found %d of the %d that are asked for most; %d are off by more than is said", found, hot, off)
			}
			if rate := is.Requests / is.Span; math.Abs(rate/float64(c.rate)-1) > .1 && c.loops == 1 {
				t.Errorf("%.0f requests a second are told, of %d", rate, c.rate)
			}
		})
	}
}

// TestBursts delivers all requests of ten milliseconds in one wakeup, with one time, as in busy
// loops, and then few requests. About a thousand a second must be sampled, even if no report is
// read in between.
func TestBursts(t *testing.T) {
	z, w, now := newZipf(100_000, 3), watchOf(1), int64(time.Hour)
	looks := 0
	bring := func(wakeups, requests int, key func() string) {
		for range wakeups {
			now += int64(10 * time.Millisecond)
			for range requests {
				if w.Left--; w.Left < 0 {
					looks++
					w.Ended(now, []byte(key()), 0, 0, 0, 0, 0)
				}
			}
		}
	}
	for again := range 2 {
		looks = 0
		bring(1000, 800, func() string { return fmt.Sprint("key:", z.next()) })
		var is Report
		w.AddTo(&is, now)
		if rate := is.Requests / is.Span; again == 0 && math.Abs(rate/80_000-1) > .1 || looks < 8_000 || looks > 13_000 {
			t.Errorf("of 80,000 requests a second in bursts %.0f are told; %d of them were looked at in ten seconds, want about 10,000", rate, looks)
		}
		looks = 0
		bring(1000, 1, func() string { return "quiet" })
		if looks < 600 { // the sampling rate adapts only after a moment
			t.Errorf("of 1,000 requests behind bursts %d were looked at", looks)
		}
	}
}

// TestSuddenly requests one key often, after a while without it. It must be among the first keys
// within two seconds.
func TestSuddenly(t *testing.T) {
	z, w, now := newZipf(100_000, 3), watchOf(1), int64(time.Hour)
	const rate = 40_000
	for i := range rate * 32 {
		now += int64(time.Second) / rate
		if w.Left--; w.Left >= 0 {
			continue
		}
		key := fmt.Sprint("key:", z.next())
		if i > rate*30 && z.r.IntN(20) == 0 {
			key = "news"
		}
		w.Ended(now, []byte(key), 0, 0, 0, 0, 0)
	}
	var is Report
	w.AddTo(&is, now)
	if i := slices.IndexFunc(is.Keys, func(r Row) bool { return r.Key == "news" }); i < 0 || i >= 12 {
		t.Errorf("a key that has 5 %% of all requests since two seconds is at place %d", i)
	}
}

// TestQuiet checks that a loop samples the few requests after a busy time, as soon as a report was
// read.
func TestQuiet(t *testing.T) {
	w, now := watchOf(1), int64(time.Hour)
	for range 1_000_000 {
		now += 1000
		if w.Left--; w.Left < 0 {
			w.Ended(now, []byte("busy"), 0, 0, 0, 0, 0)
		}
	}
	var is Report
	for range 40 {
		now += int64(time.Second)
		w.AddTo(&is, now)
		for range 3 {
			if w.Left--; w.Left < 0 {
				w.Ended(now, []byte("quiet"), 0, 0, 0, 0, 0)
			}
		}
	}
	is = Report{}
	w.AddTo(&is, now)
	if len(is.Keys) != 2 || is.Keys[1].Requests < 20 {
		t.Errorf("it has seen %+v", is.Keys)
	}
}

// FuzzSketch compares a sketch with exact counts. Its counts must never be too low, and never too
// high by more than Over.
func FuzzSketch(f *testing.F) {
	f.Add([]byte("abracadabra"))
	random := rand.New(rand.NewPCG(1, 1))
	for _, kinds := range []int{2, 6, 40, 256} { // numbers of different keys, few or many of which fit
		keys := make([]byte, 600)
		for i := range keys {
			keys[i] = byte(min(random.IntN(kinds), random.IntN(kinds)))
		}
		f.Add(keys)
	}
	f.Fuzz(func(t *testing.T, keys []byte) {
		s, exact := newSketch(4), map[string]float64{}
		for i, k := range keys {
			key := string('a' + k%16)
			exact[key] += float64(1 + i%3)
			s.add(uint64(k%8), []byte(key), seen{weight: float64(1 + i%3)}) // some keys share a hash
		}
		told := map[string]bool{}
		for _, r := range s.top(4) {
			if n := exact[r.Key]; n > r.Requests+1e-9 || n < r.Requests-r.Over-1e-9 || told[r.Key] {
				t.Fatalf("%q: %v in truth, told %+v", r.Key, n, r)
			}
			told[r.Key] = true
		}
		for key, n := range exact {
			if !told[key] && n > s.floor()+1e-9 {
				t.Fatalf("%q: %v in truth, not told, and the floor is %v", key, n, s.floor())
			}
		}
	})
}

// A new key always replaces a row with the fewest requests.
func TestTheRarestGoes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	s := newSketch(16)
	for i := range 50_000 {
		least, hash := s.floor(), uint64(random.IntN(8+random.IntN(40)))
		known := slices.Contains(s.hashes, hash)
		if c := s.add(hash, []byte{byte(hash)}, seen{weight: float64(1 + random.IntN(2))}); !known && c.Over != least {
			t.Fatalf("after %d a row with %v requests went, and the least was %v", i, c.Over, least)
		}
		if i%1000 == 999 {
			s.scale(0.5)
		}
	}
}
