package ketama

// Labels, rounding and points, compared with values from the clients.

import (
	"slices"
	"testing"

	"ringside/ring"
)

func TestLabels(t *testing.T) {
	var (
		standard = ring.Server{Host: "10.0.0.1", Port: 11211}
		other    = ring.Server{Host: "10.0.0.1", Port: 11300}
		host     = ring.Server{Host: "mc-a.internal", Port: 11211}
		v6       = ring.Server{Host: "2001:db8::1", Port: 11211}
		v6other  = ring.Server{Host: "2001:db8::3", Port: 11300}
		socket   = ring.Server{Path: "/run/mc.sock"}
	)
	const refused = ""
	for name, c := range map[string]struct {
		label Label
		want  [6]string
	}{
		"short":      {short, [6]string{"10.0.0.1", "10.0.0.1:11300", "mc-a.internal", "2001:db8::1", "2001:db8::3:11300", "/run/mc.sock:0"}},
		"php":        {shortPHP, [6]string{"10.0.0.1", "10.0.0.1:11300", "mc-a.internal", "2001:db8::1", "2001:db8::3:11300", "/run/mc.sock"}},
		"twemproxy":  {shortTwemproxy, [6]string{"10.0.0.1", "10.0.0.1:11300", "mc-a.internal", "2001:db8::1", "2001:db8::3:11300", "/run/mc.sock:"}},
		"text":       {shortText, [6]string{"10.0.0.1", "10.0.0.1:11300", "mc-a.internal", "[2001:db8::1]", "[2001:db8::3]:11300", "/run/mc.sock"}},
		"long":       {long, [6]string{"10.0.0.1:11211", "10.0.0.1:11300", "mc-a.internal:11211", "[2001:db8::1]:11211", "[2001:db8::3]:11300", "/run/mc.sock"}},
		"bare":       {bare, [6]string{"10.0.0.1:11211", "10.0.0.1:11300", "mc-a.internal:11211", "2001:db8::1:11211", "2001:db8::3:11300", "/run/mc.sock"}},
		"spy":        {spy, [6]string{"/10.0.0.1:11211", "/10.0.0.1:11300", "/mc-a.internal:11211", "/2001:db8::1:11211", "/2001:db8::3:11300", "//run/mc.sock:0"}},
		"java":       {java, [6]string{"10.0.0.1:11211", "10.0.0.1:11300", refused, "[2001:db8:0:0:0:0:0:1]:11211", "[2001:db8:0:0:0:0:0:3]:11300", refused}},
		"java slash": {javaSlash, [6]string{"/10.0.0.1:11211", "/10.0.0.1:11300", refused, "/[2001:db8:0:0:0:0:0:1]:11211", "/[2001:db8:0:0:0:0:0:3]:11300", refused}},
		"java twice": {javaTwice, [6]string{"10.0.0.1/10.0.0.1:11211", "10.0.0.1/10.0.0.1:11300", refused, "2001:db8::1/[2001:db8:0:0:0:0:0:1]:11211", "2001:db8::3/[2001:db8:0:0:0:0:0:3]:11300", refused}},
		"java short": {javaShort, [6]string{"10.0.0.1", "10.0.0.1:11300", "mc-a.internal", "2001:db8:0:0:0:0:0:1", "2001:db8:0:0:0:0:0:3:11300", refused}},
		"bmemcached": {bmemcached, [6]string{"10.0.0.1:11211_None_None", "10.0.0.1:11300_None_None", "mc-a.internal:11211_None_None", "[2001:db8::1]:11211_None_None", "[2001:db8::3]:11300_None_None", "/run/mc.sock_None_None"}},
		"pecl":       {pecl, [6]string{"10.0.0.1:11211", "10.0.0.1:11300", "mc-a.internal:11211", "2001:db8::1:11211", "2001:db8::3:11300", "unix:///run/mc.sock:0"}},
		"perl fast":  {perlFast, [6]string{"10.0.0.1\x0011211", "10.0.0.1\x0011300", "mc-a.internal\x0011211", "2001:db8::1\x0011211", "2001:db8::3\x0011300", "/run/mc.sock\x00"}},
	} {
		for i, s := range []ring.Server{standard, other, host, v6, v6other, socket} {
			got, err := c.label.of(s)
			if (err != nil) != (c.want[i] == refused) || err == nil && got != c.want[i] {
				t.Errorf("%s of %s: %q, %v; want %q", name, s.Address(), got, err, c.want[i])
			}
			s.Name = "given"
			if got, err := c.label.of(s); got != "given" || err != nil {
				t.Errorf("%s of a named server: %q, %v", name, got, err)
			}
		}
	}
}

func TestCounts(t *testing.T) {
	// sizes returns the list lengths up to 128 at which each of equal servers gets
	// 39 labels instead of 40.
	sizes := func(count Count) (short []int) {
		for n := 1; n <= 128; n++ {
			switch count(1, n, n) {
			case 40:
			case 39:
				short = append(short, n)
			default:
				t.Errorf("%d labels in a list of %d", count(1, n, n), n)
			}
		}
		return short
	}
	f32, f64 := sizes(floatLibmemcached), sizes(double)
	for _, n := range []int{25, 47, 50, 55, 61, 71, 94, 100} {
		if !slices.Contains(f32, n) {
			t.Errorf("libmemcached: %d equal servers get 40 labels, want 39", n)
		}
	}
	for _, n := range []int{7, 14, 28, 49, 56, 98} {
		if !slices.Contains(f64, n) || slices.Contains(f32, n) {
			t.Errorf("%d equal servers: want 39 labels in node-memcached, 40 in libmemcached", n)
		}
	}
	if got := sizes(floatLibketama); !slices.Equal(got, []int{61, 122}) {
		t.Errorf("libketama: 39 labels for %v servers, want 61 and 122", got)
	}
	if floatLibmemcached(1, 100001, 2) != 0 {
		t.Error("a tiny weight got a label")
	}
}

func TestPoints(t *testing.T) {
	for name, c := range map[string]struct {
		got  []uint32
		want []uint32
	}{
		"four of md5": {fourOfMD5("127.77.1.1", 1), []uint32{0x207facd1, 0x30298f4b, 0x87c0cae8, 0x4e500df5}},
		"one":         {one(ring.OneAtATime)("127.77.1.1", 1), []uint32{0x6f2fa262}},
		"dalli":       {sha1Dalli("127.77.1.1:11211", 1), []uint32{0x3903883b}},
		"chain":       {chain("127.77.1.1\x0011211", 2), []uint32{0xafb3d488, 0x845f94b2}},
		"exactly":     {exactly("127.77.1.1", 3), []uint32{0x207facd1, 0x30298f4b, 0x87c0cae8}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: %x, want %x", name, c.got, c.want)
		}
	}
}

// On a circle for new pools, a new server must only move keys to itself, and none
// between the others.
func TestPointsMoveOnlyToTheNewServer(t *testing.T) {
	var servers []ring.Server
	for i := range 24 {
		servers = append(servers, ring.Server{Host: "10.0.0.1", Port: 20000 + i, Weight: 1 + i%3})
	}
	before, err := Points(150).Circle(servers)
	if err != nil {
		t.Fatal(err)
	}
	after, err := Points(150).Circle(append(servers, ring.Server{Host: "10.0.0.2", Port: 20000, Weight: 5}))
	if err != nil {
		t.Fatal(err)
	}
	for h := uint64(0); h < 1<<32; h += 99991 {
		if a, b := before.At(nil, h, 0), after.At(nil, h, 0); a != b && b != 24 {
			t.Fatalf("hash %d moved from server %d to %d", h, a, b)
		}
	}
}

func TestTooManyPoints(t *testing.T) {
	heavy := []ring.Server{{Host: "10.0.0.1", Port: 1, Weight: 100_000}}
	if _, err := Points(100).Circle(heavy); err == nil {
		t.Error("ten million points are not an error")
	}
	if _, err := Uhashring(heavy); err == nil {
		t.Error("sixteen million wide points are not an error")
	}
	if _, err := Libmemcached.Circle(heavy); err != nil {
		t.Error(err) // its counts are relative to the total weight, so a large weight alone adds no points
	}
}

func TestNoPoints(t *testing.T) {
	if _, err := ProxyKetama(0).Circle([]ring.Server{{Host: "a", Port: 1}}); err == nil {
		t.Error("a circle without points is not an error")
	}
}
