package missreason

import (
	"math/rand/v2"
	"testing"
	"time"
)

const second = int64(time.Second)

// spread returns the hash of a numeric key.
func spread(key int) uint64 {
	x := uint64(key) + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// TestReasons removes keys in every possible way, with a Recorder that samples all keys and one that
// samples some, and compares its reasons with the truth.
func TestReasons(t *testing.T) {
	for _, c := range []struct {
		name string
		keys int
		gap  int64 // between two operations
	}{
		{"all keys", 20_000, second / 1000},
		{"many keys", 1_000_000, second / 1000},
		{"often", 400_000, second / 100_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, now := rand.New(rand.NewPCG(1, 2)), 5*second
			w := newRecorder(now)
			var right, judged [NumReasons]int
			const moved = 4 // servers from this number on get keys in the reload
			truth, home := make([]Reason, c.keys), make([]Place, c.keys)
			for k := range c.keys {
				now += c.gap
				h, n := spread(k), uint16(r.IntN(3))
				home[k] = Place{n, n}
				truth[k] = []Reason{Never, Expired, Deleted, Evicted, Moved, Invalidated, Never}[r.IntN(7)]
				if truth[k] == Never || !w.Wants(h) {
					continue
				}
				var ttl uint32
				switch truth[k] {
				case Expired:
					ttl = 3
				case Evicted:
					ttl = 1_000_000
				}
				w.Stored(now, h, home[k], ttl)
				if n == 1 && truth[k] != Never {
					truth[k] = Flushed
					if ttl == 3 {
						truth[k] = Expired // the flush below comes after it has expired
					}
				}
				if n == 2 && truth[k] == Evicted {
					truth[k] = Out
				}
			}
			now += 5 * second
			for n := range uint16(moved) {
				w.Counted(1, n, Counters{})
				w.Counted(now, n, Counters{Evictions: 1})
			}
			w.Flush(now, 1)
			w.Out(now, 2)
			for k := range c.keys {
				if h := spread(k); truth[k] == Deleted && w.Wants(h) {
					now += c.gap
					w.Removed(now, h)
				}
			}
			for k := range c.keys {
				now += c.gap
				h := spread(k)
				if home[k].Home == 2 && (truth[k] == Moved || truth[k] == Invalidated) || !w.Wants(h) {
					continue // it had two operations, or is not in the sample
				}
				at := home[k]
				if truth[k] == Moved {
					at = Place{moved, moved}
				}
				got := w.Missed(now, h, at, truth[k] == Invalidated)
				if got == Unsure {
					continue
				}
				judged[truth[k]]++
				if got == truth[k] {
					right[truth[k]]++
				}
			}
			all, good := 0, 0
			for reason := range NumReasons {
				all, good = all+judged[reason], good+right[reason]
				t.Logf("%s: %d of %d", reason, right[reason], judged[reason])
			}
			if all < 1000 || good*100 < all*95 {
				t.Errorf("%d of %d are right; %.4f of the keys are chosen", good, all, w.Chosen())
			}
		})
	}
}

// TestFilled checks the time from a miss to the set that follows.
func TestFilled(t *testing.T) {
	w, at := newRecorder(1), Place{}
	w.Missed(second, 7, at, false)
	w.Missed(2*second, 7, at, false)
	if took, ok := w.Stored(4*second, 7, at, 0); !ok || took != 3*second {
		t.Errorf("a set 3 s after the first miss: %d ns, %t", took, ok)
	}
	if _, ok := w.Stored(5*second, 7, at, 0); ok {
		t.Error("a set that follows no miss is counted")
	}
	w.Missed(6*second, 7, at, false)
	if _, ok := w.Stored(600*second, 7, at, 0); ok {
		t.Error("a set ten minutes after the miss is counted")
	}
	w.Removed(601*second, 7)
	if why := w.Missed(605*second, 7, at, false); why != Deleted {
		t.Errorf("deleted 4 s ago: %s", why)
	}
}

// TestEvicted checks that Evicted is only reported if the server's counter has grown since the
// store, and that the counters of servers with unexplained misses are read.
func TestEvicted(t *testing.T) {
	w, at, key := newRecorder(1), Place{3, 3}, spread(1)
	miss := func(now int64, want Reason, asked bool) {
		t.Helper()
		if got := w.Missed(now, key, at, false); got != want {
			t.Errorf("after %d s: %s, want %s", now/second, got, want)
		}
		if list := w.CountersToRead(); (len(list) == 1 && list[0] == 3) != asked {
			t.Errorf("after %d s: to be asked are %v", now/second, list)
		}
	}
	w.Stored(second, key, at, 0)
	miss(2*second, Unsure, true)
	w.Counted(2*second, 3, Counters{Evictions: 7, Flushes: 1})
	miss(3*second, Unsure, false)
	miss(8*second, Unsure, true)
	w.Counted(8*second, 3, Counters{Evictions: 7, Flushes: 1})
	miss(9*second, Unsure, false)
	w.Counted(20*second, 3, Counters{Evictions: 8, Flushes: 1})
	miss(21*second, Evicted, true)
	w.Stored(22*second, key, at, 0)
	miss(23*second, Unsure, false) // nothing was evicted since then
	w.Counted(30*second, 3, Counters{Evictions: 8, Flushes: 2})
	miss(31*second, Flushed, false) // by another client
	w.Stored(32*second, key, at, 0)
	w.Flush(33*second, 3)
	w.Stored(34*second, key, at, 0)
	w.Counted(40*second, 3, Counters{Evictions: 8, Flushes: 3}) // the flush of that client
	miss(41*second, Unsure, true)
	w.Counted(50*second, 3, Counters{}) // another process
	miss(51*second, Unsure, true)
	w.Stored(60*second, key, at, 10)
	miss(68*second, Unsure, true) // the server's clock is ahead
	miss(69*second, Expired, false)
}

// TestBounds checks that a Recorder never uses more than half of its entries, still finds reasons,
// and drops old keys before it reduces the sample.
func TestBounds(t *testing.T) {
	w, now := newRecorder(1), int64(1)
	for k := range 200_000 { // within the hour of reach
		now += second / 1000
		w.Stored(now, spread(k), Place{}, 0)
	}
	if w.used > most || w.Chosen() == 1 || w.Since() != 1 {
		t.Errorf("%d of %d are used, %.3f chosen, since %d", w.used, most, w.Chosen(), w.Since())
	}
	chosen := w.Chosen()
	for k := range 200_000 {
		now += second
		w.Stored(now, spread(1_000_000+k), Place{}, 0)
	}
	if w.used > most || w.Since() == 1 || w.Chosen() < chosen {
		t.Errorf("%d of %d are used, %.3f chosen after %.3f, since %d", w.used, most, w.Chosen(), chosen, w.Since())
	}
}

func BenchmarkTold(b *testing.B) {
	w, now := newRecorder(1), int64(1)
	for i := range b.N {
		now += second / 3000
		w.Missed(now, spread(i%20_000), Place{}, false)
	}
}
