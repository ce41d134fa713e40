package watch

import (
	"strconv"
	"strings"
	"testing"

	"ringside/proxy/stats"
	"ringside/proxy/wire"
)

func TestPattern(t *testing.T) {
	for _, c := range []struct {
		pattern Pattern
		key     string
		fits    bool
	}{
		{"home:*", "home:top", true}, {"home:*", "home:", true}, {"home:*", "xhome:", false}, {"home:*", "lock:home:top", true},
		{"lock:*", "lock:home", true}, {"h?me", "hxme", true}, {"h?me", "hme", false}, {"*:top", "a:top:top", true}, {"a*b*c", "axxbxxbc", true},
		{"a*b*c", "axxbxxb", false}, {"[a-c]x", "bx", true}, {"[a-c]x", "dx", false}, {"[^a-c]x", "dx", true}, {"[ab]*", "", false},
		{`a\*`, "a*", true}, {`a\*`, "ab", false}, {"a", "", false}, {"x[]", "x", false}, {"*a*a*a*a*b", strings.Repeat("a", 250), false},
		{"[a-]x", "-x", true}, {"k\xff*", "k\xff\x00", true},
	} {
		if c.pattern.check() == nil && c.pattern.Fits([]byte(c.key)) != c.fits {
			t.Errorf("%q fits %q: %v", c.pattern, c.key, !c.fits)
		}
	}
	fits := 0
	for i := range 10_000 {
		key := []byte("key:" + strconv.Itoa(i))
		is := Sample(10).Fits(key)
		if is {
			fits++
		}
		if Sample(10).Fits(append([]byte(Lock), key...)) != is {
			t.Fatalf("%s is told apart from its lock", key)
		}
	}
	if fits < 900 || fits > 1100 {
		t.Errorf("one key in ten is %d of 10,000", fits)
	}
	for _, bad := range []Pattern{"", "*", "??*", "[a-z]", "a[", "a[]", "a[^]", "a[z-a]", "a[^0z-a]", `a\`, "[]", "[]0", "[]-1", "[]x", "[]1000001"} {
		if Check([]Pattern{bad}) == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	if err := Check([]Pattern{Sample(1), Sample(MostSample)}); err != nil {
		t.Error(err)
	}
	if Check(nil) == nil || Check(make([]Pattern, 9)) == nil || Check([]Pattern{"a", "*b", `\*`}) != nil {
		t.Error("the number of patterns is not as it should be")
	}
}

// FuzzPattern checks that a valid pattern can be compared with any key, and that a pattern
// without special bytes matches itself.
func FuzzPattern(f *testing.F) {
	f.Add("home:*", "home:top")
	f.Add(`[a-c\]?`, "b]x")
	f.Fuzz(func(t *testing.T, pattern, key string) {
		p := Pattern(pattern)
		if Check([]Pattern{p}) != nil {
			return
		}
		p.Fits([]byte(key))
		if !strings.ContainsAny(pattern, `*?[\`) && !p.Fits([]byte(pattern)) {
			t.Errorf("%q does not fit itself", pattern)
		}
	})
}

func TestLetter(t *testing.T) {
	for _, c := range []struct {
		op         wire.Op
		out        stats.Outcome
		key        string
		stale, won bool
		want       byte
	}{
		{wire.Get, stats.Hit, "k", false, false, 'H'}, {wire.Gets, stats.Miss, "k", false, false, 'M'}, {wire.Get, stats.Hit, "k", true, false, 'S'},
		{wire.Get, stats.Hit, "k", true, true, 'R'}, {wire.Get, stats.TimedOut, "k", false, false, 'E'}, {wire.Gat, stats.Hit, "k", false, false, 'T'},
		{wire.Add, stats.Stored, "k", false, false, 'L'}, {wire.Add, stats.NotStored, "k", false, false, 'l'}, {wire.Set, stats.Stored, "k", false, false, 'W'},
		{wire.Cas, stats.Exists, "k", false, false, 'w'}, {wire.Append, stats.NotStored, "k", false, false, 'w'}, {wire.Delete, stats.Okay, "lock:k", false, false, 'U'},
		{wire.Delete, stats.NotFound, "lock:k", false, false, 'd'}, {wire.Delete, stats.Okay, "k", false, false, 'D'}, {wire.Delete, stats.NotFound, "k", false, false, 'd'},
		{wire.Incr, stats.Okay, "k", false, false, 'I'}, {wire.Touch, stats.Okay, "k", false, false, 'T'}, {wire.Set, stats.ServerFault, "k", false, false, 'E'},
	} {
		if got := letter(c.op, c.out, []byte(c.key), c.stale, c.won); got != c.want {
			t.Errorf("%v %v of %s is %c, want %c", c.op, c.out, c.key, got, c.want)
		}
	}
}

// TestFollow checks that a loop which traces keys sees all their requests, still finds the hot
// keys, and limits the number of events.
func TestFollow(t *testing.T) {
	w, now := watchOf(1), int64(1e12)
	ask := func(key string) {
		now += 1000
		if w.Left--; w.Left < 0 {
			w.Ended(now, []byte(key), 0, wire.Set, stats.Stored, 7, 3)
		}
	}
	for range 100_000 {
		ask("other")
	}
	w.Follow([]Pattern{"home:*"})
	for range 100 {
		ask("home:1")
		ask("other")
	}
	if tr := w.Take(now); len(tr.Events) != 100 || tr.Dropped != 0 || string(tr.Key(&tr.Events[99])) != "home:1" || tr.Events[0].Client != 7 || tr.Events[0].Letter != 'W' {
		t.Errorf("%d events of 100, %d dropped", len(tr.Events), tr.Dropped)
	}
	looks := w.looked
	for range 10_000 {
		ask("home:1")
	}
	if tr := w.Take(now); len(tr.Events) != mostEvents || tr.Dropped != 10_000-mostEvents {
		t.Errorf("%d events, %d dropped", len(tr.Events), tr.Dropped)
	}
	if n := w.looked - looks; n > 100 {
		t.Errorf("to follow keys, %d of 10,000 requests were looked at for the hot ones", n)
	}
	w.Follow(nil)
	if w.Left != w.gap || w.gap < 100 {
		t.Errorf("the next one that is looked at comes after %d, want %d", w.Left, w.gap)
	}
	ask("home:1")
	if tr := w.Take(now); len(tr.Events) != 0 {
		t.Error("it goes on though nobody follows")
	}
}
