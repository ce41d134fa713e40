package divert

// Tests of names, cas values and times to live of diverted keys.

import (
	"bytes"
	"encoding/base64"
	"math"
	"testing"
)

func TestKeysAreDivertedAndComeBack(t *testing.T) {
	for _, c := range []struct {
		number uint64
		key    string
		want   string
	}{
		{0, "k", "k"},
		{2, "k", "__rs~2~k"},
		{35, "a:b", "__rs~z~a:b"},
		{36, "", "__rs~10~"},
		{math.MaxUint64, "~", "__rs~3w5e11264sgsf~~"},
	} {
		got := AppendKey(nil, c.number, []byte(c.key))
		if string(got) != c.want {
			t.Errorf("%d %q: %q, want %q", c.number, c.key, got, c.want)
		}
		if back := Undivert(got); string(back) != c.key {
			t.Errorf("%q comes back as %q", got, back)
		}
	}
	for _, key := range []string{"", "k", "__rs", "__rs~", "__rs~2", "__rs~~k", "__rs~A~k", "__rs~2 ~k", "__rs_view__:p"} {
		if got := Undivert([]byte(key)); string(got) != key {
			t.Errorf("%q comes back as %q", key, got)
		}
	}
}

// TestNamesFit checks the names that keys have on their substitute servers. For keys of
// any length, memcached must accept such a name, also in base64.
func TestNamesFit(t *testing.T) {
	seen := map[string]int{}
	for n := 1; n <= 250; n++ {
		key := bytes.Repeat([]byte("k"), n)
		for _, number := range []uint64{1, 35, math.MaxUint64} {
			name := AppendKey(nil, number, key)
			if base64.StdEncoding.EncodedLen(len(name)) > 250 {
				t.Fatalf("%d bytes, number %d: %q is too long in base64", n, number, name)
			}
			if !IsReserved(name) || !IsNameOf(name, key) || IsNameOf(name, key[1:]) {
				t.Fatalf("%d bytes, number %d: %q is not known again", n, number, name)
			}
			if other := seen[string(name)]; other != 0 {
				t.Fatalf("%d and %d bytes are both %q", n, other, name)
			}
			seen[string(name)] = n
		}
		if !IsNameOf(key, key) {
			t.Fatalf("%q is not its own name", key)
		}
	}
}

func TestDivertingAllocatesNothing(t *testing.T) {
	buf, key := make([]byte, 0, 64), []byte("some:key")
	if n := testing.AllocsPerRun(100, func() {
		buf = AppendKey(buf[:0], 12345, key)
		Undivert(buf)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestCasComesFromOnePlace(t *testing.T) {
	for _, number := range []uint64{0, 2, 8, 4095, 4097, 1 << 40} {
		for _, cas := range []uint64{1, 77, 1<<52 - 1} {
			token := TagCas(cas, number)
			if got, ok := UntagCas(token, number); !ok || got != cas {
				t.Errorf("cas %d of %d comes back as %d, %t", cas, number, got, ok)
			}
			if _, ok := UntagCas(token, number+6); ok {
				t.Errorf("cas %d of %d is taken in the next outage", cas, number)
			}
		}
	}
	if TagCas(5, 0) != 5 {
		t.Error("a cas at home isn't the server's own")
	}
	if cas, ok := UntagCas(math.MaxUint64, 0); !ok || cas != math.MaxUint64 {
		t.Error("a strange token does not reach the server at home")
	}
}

func TestTimeToLiveIsCapped(t *testing.T) {
	const now, month = 1_700_000_000, 2592000
	for _, c := range []struct{ exptime, limit, want int64 }{
		{0, 60, 60},
		{30, 60, 30},
		{60, 60, 60},
		{61, 60, 60},
		{month, 60, 60},
		{-1, 60, -1},
		{math.MinInt32, 60, math.MinInt32},
		{math.MinInt64, 60, 60},
		{-1<<32 + 1000, 60, 60},
		{1 << 31, 60, -1 << 31}, // memcached keeps the lower 32 bits
		{1<<32 + 30, 60, 30},
		{now + 30, 60, now + 30},
		{now + 90, 60, 60},
		{now, 60, -1},
		{now - 1, 60, -1},
		{month + 1, 60, -1},
		{0, 0, 0},
		{100, 0, 100},
		{now + 90, 0, now + 90},
		{0, month + 5, now + month + 5},
		{60, month + 5, 60},
		{now + 2*month, month + 5, now + month + 5},
	} {
		if got := CapTTL(c.exptime, c.limit, now); got != c.want {
			t.Errorf("exptime %d capped to %d: %d, want %d", c.exptime, c.limit, got, c.want)
		}
	}
}
