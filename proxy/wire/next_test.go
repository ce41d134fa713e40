package wire

// Requests: every field, input cut at every byte, no allocations.

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"ringside/proxy/wire/wiretest"
)

// show prints the fields of a request that are set, one word per field.
func show(buf []byte, n int, r *Request) string {
	var b strings.Builder
	fmt.Fprintf(&b, "op=%d n=%d", r.Op, n)
	if r.Dialect == Meta {
		b.WriteString(" meta")
	}
	for i, name := range []string{"quiet", "base64", "effects", "returnkey", "toolarge", "close", "rewrite"} {
		if r.Flags&(1<<i) != 0 {
			b.WriteString(" " + name)
		}
	}
	v := reflect.ValueOf(*r)
	for i := range v.NumField() {
		if s, ok := v.Field(i).Interface().(Span); ok && s.Len() > 0 && v.Type().Field(i).Name != "Line" {
			fmt.Fprintf(&b, " %s=%q", v.Type().Field(i).Name, s.Of(buf))
		}
	}
	if r.NumKeys > 1 {
		fmt.Fprintf(&b, " keys=%d", r.NumKeys)
	}
	if r.Answer != nil {
		fmt.Fprintf(&b, " answer=%q", r.Answer)
	}
	if r.Swallow > 0 {
		fmt.Fprintf(&b, " swallow=%d", r.Swallow)
	}
	return b.String()
}

func TestNext(t *testing.T) {
	long := strings.Repeat("k", 251)
	for _, c := range []struct {
		in   string
		op   Op
		want string // result of show, without the op
	}{
		{"get a\r\nget b\r\n", Get, `n=7 Key="a" Keys="a"`},
		{"gets a  bb c\r\n", Gets, `n=14 Key="a" Keys="a  bb c" keys=3`},
		{"gat 60 a b\r\n", Gat, `n=12 effects Key="a" Keys="a b" Exptime="60" keys=2`},
		{"get a\n", Get, `n=6 rewrite Key="a" Keys="a"`},
		{"  get a\x00b\r\n", Get, `n=11 rewrite Key="a" Keys="a"`},
		{"get " + long + "\r\n", Bad, `n=257 answer="CLIENT_ERROR bad command line format\r\n"`},
		{"set a 1 2 3\r\nabc\r\n", Set, `n=18 Key="a" Body="abc" ClientFlags="1" Exptime="2"`},
		{"set a 1 2 0 noreply\r\n\r\n", Set, `n=23 quiet Key="a" Drop=" noreply" ClientFlags="1" Exptime="2"`},
		{"set a 1 2 0  junk \r\n\r\n", Set, `n=22 Key="a" Drop="  junk " ClientFlags="1" Exptime="2"`},
		{"cas a 1 2 1 99 noreply\r\nx\r\n", Cas, `n=27 quiet Key="a" Body="x" Drop=" noreply" ClientFlags="1" Exptime="2" Unique="99"`},
		{"set a 0 0 +1\r\nx\r\n", Set, `n=17 rewrite Key="a" Body="x" ClientFlags="0" Exptime="0"`},
		{"set a 0 0 5000000\r\n", Set, `n=19 toolarge Key="a" ClientFlags="0" Exptime="0" answer="SERVER_ERROR object too large for cache: the value is longer than limits.value of Ringside\r\n" swallow=5000002`},
		{"set a 0 0 5000000 noreply\r\n", Set, `n=27 quiet toolarge Key="a" Drop=" noreply" ClientFlags="0" Exptime="0" swallow=5000002`},
		{"set a 0 0 1 more junk\r\nx\r\n", Set, `n=26 Key="a" Body="x" Drop=" more junk" ClientFlags="0" Exptime="0"`},
		{"set a 0 0 1 1 2 3 4 5 6 7 8 noreply\r\nx\r\n", Set, `n=40 quiet Key="a" Body="x" Drop=" 1 2 3 4 5 6 7 8 noreply" ClientFlags="0" Exptime="0"`},
		{"set " + long + " 0 0 9 noreply\r\n", Bad, `n=271 swallow=11`},
		{"set a x 0 9\r\n", Bad, `n=13 answer="CLIENT_ERROR bad command line format\r\n" swallow=11`},
		{"cas a 0 0 9\r\n", Bad, `n=13 answer="CLIENT_ERROR bad command line format\r\n" swallow=11`},
		{"set a\x00b 0 0 9\r\n", Bad, `n=15 answer="CLIENT_ERROR bad command line format\r\n" swallow=11`},
		{"set a 0 0 2147483645\r\n", Set, `n=22 toolarge rewrite Key="a" ClientFlags="0" Exptime="0" answer="SERVER_ERROR object too large for cache: the value is longer than limits.value of Ringside\r\n" swallow=2147483647`},
		{"set a 0 0 2147483646\r\n", Bad, `n=22 answer="CLIENT_ERROR bad command line format\r\n"`},
		{"set a 0 0 4294967297\r\n", Bad, `n=22 answer="CLIENT_ERROR bad command line format\r\n"`},
		{"set a 0 0 99999999999\r\n", Bad, `n=23 answer="CLIENT_ERROR bad command line format\r\n"`},
		{"ms a 99999999999\r\n", Bad, `n=18 meta answer="CLIENT_ERROR bad command line format\r\n"`},
		{"ms " + long + " 9 q\r\n", Bad, `n=260 meta answer="CLIENT_ERROR bad command line format\r\n" swallow=11`},
		{"set a 0 0 1\r\nxyz", Bad, `n=16 answer="CLIENT_ERROR bad data chunk\r\n"`},
		{"set a 0 0 1 noreply\r\nxyz", Bad, `n=24`},
		{"incr a 5\r\n", Incr, `n=10 Key="a" Delta="5"`},
		{"decr a 5 noreply\r\n", Decr, `n=18 quiet Key="a" Drop=" noreply" Delta="5"`},
		{"touch a -1\r\n", Touch, `n=12 Key="a" Exptime="-1"`},
		{"delete a 0 noreply\r\n", Delete, `n=20 quiet Key="a" Drop=" 0 noreply"`},
		{"flush_all 5 noreply\r\n", FlushAll, `n=21 quiet Args="5" Drop=" noreply" Exptime="5"`},
		{"flush_all noreply\r\n", FlushAll, `n=19 quiet Drop=" noreply"`},
		{"verbosity 1\r\n", Verbosity, `n=13 Args="1"`},
		{"stats items 1\r\n", Stats, `n=15 Args="items 1"`},
		{"version\r\n", Version, `n=9`},
		{"quit\r\n", Quit, `n=6`},
		{"shutdown\r\n", Shutdown, `n=10 answer="ERROR: shutdown not enabled\r\n"`},
		{"mg a v k q Oab\r\n", Get, `n=16 meta quiet returnkey Key="a" Keys="a" Drop=" q" Opaque="ab" MetaFlags="v k q Oab"`},
		{"mg a T30\r\n", Get, `n=10 meta effects Key="a" Keys="a" Exptime="30" MetaFlags="T30"`},
		{"mg YQ== b\r\n", Get, `n=11 meta base64 Key="YQ==" Keys="YQ==" MetaFlags="b"`},
		{"mg a E5\r\n", Get, `n=9 meta effects Key="a" Keys="a" MetaFlags="E5"`},
		{"mg a x O1 O2\r\n", Bad, `n=14 meta answer="CLIENT_ERROR invalid flag\r\n"`},
		{"mg a O1 O2 x\r\n", Bad, `n=14 meta answer="CLIENT_ERROR duplicate flag\r\n"`},
		{"mg a x q q\r\n", Bad, `n=12 meta answer="CLIENT_ERROR invalid flag\r\n"`},
		{"md a C5 x O1 O2\r\n", Bad, `n=17 meta answer="CLIENT_ERROR invalid or duplicate flag\r\n"`},
		{"ma a x k k\r\n", Bad, `n=12 meta answer="CLIENT_ERROR invalid or duplicate flag\r\n"`},
		{"ms a 9 C5 E0 I O1 O2\r\n", Bad, `n=22 meta answer="CLIENT_ERROR invalid flag\r\n" swallow=11`},
		{"ms a 2 T0 F5 q\r\nab\r\n", Set, `n=20 meta quiet Key="a" Body="ab" Drop=" q" ClientFlags="5" Exptime="0" MetaFlags="T0 F5 q"`},
		{"ms a 1 MA\r\nx\r\n", Append, `n=14 meta Key="a" Body="x" MetaFlags="MA"`},
		{"ms a 1 C7\r\nx\r\n", Cas, `n=14 meta Key="a" Body="x" Unique="7" MetaFlags="C7"`},
		{"ms a 1 C7 ME\r\nx\r\n", Add, `n=17 meta Key="a" Body="x" Unique="7" MetaFlags="C7 ME"`},
		{"ms a 9 Tx\r\n", Bad, `n=11 meta answer="CLIENT_ERROR bad token in command line format\r\n" swallow=11`},
		{"ms a 5000000 q\r\n", Set, `n=16 meta quiet toolarge Key="a" Drop=" q" MetaFlags="q" answer="SERVER_ERROR object too large for cache: the value is longer than limits.value of Ringside\r\n" swallow=5000002`},
		{"md a I T30 q\r\n", Delete, `n=14 meta quiet Key="a" Drop=" q" Exptime="30" MetaFlags="I T30 q"`},
		{"ma a MD D3\r\n", Decr, `n=12 meta Key="a" Delta="3" MetaFlags="MD D3"`},
		{"me a\r\n", Debug, `n=6 meta Key="a"`},
		{"mn\r\n", Noop, `n=4 meta`},
		{"nosuch\r\n", Bad, `n=8 answer="ERROR\r\n"`},
		{"GET / HTTP/1.1\r\n", Bad, `n=16 close`},
		{strings.Repeat("x", 2049), Bad, `n=2049 close`},
		{"get " + strings.Repeat("k ", 32<<10), Bad, `n=65537 close answer="CLIENT_ERROR line too long\r\n"`},
	} {
		var r Request
		n, err := testLimits.Next([]byte(c.in), &r)
		if err != nil {
			t.Errorf("%.60q: %v", c.in, err)
			continue
		}
		want := fmt.Sprintf("op=%d %s", c.op, c.want)
		if got := show([]byte(c.in), n, &r); got != want {
			t.Errorf("%.60q\n got %s\nwant %s", c.in, got, want)
		}
	}
}

func TestNextShort(t *testing.T) {
	for _, c := range []struct {
		in   string
		need int
	}{
		{"", 0}, {"g", 0}, {"get a", 0}, {"get a\r", 0},
		{"set a 0 0 3\r\n", 18}, {"set a 0 0 3\r\nabc\r", 18}, {"ms a 3 q\n", 14},
		{strings.Repeat("x", 2048), 0}, {"get " + strings.Repeat("k ", 30000), 0}, {"gat 0 " + strings.Repeat("k ", 3000), 0},
	} {
		var r Request
		if n, err := testLimits.Next([]byte(c.in), &r); n != 0 || err != ErrShort || r.Need != c.need {
			t.Errorf("%.60q: %d, %v, need %d; want ErrShort, need %d", c.in, n, err, r.Need, c.need)
		}
	}
}

func TestLimits(t *testing.T) {
	l := Limits{Key: 3, Line: 4000, Value: 2}
	for in, want := range map[string]Op{
		"get abc\r\n":                               Get,
		"get abcd\r\n":                              Bad,
		"set a 0 0 2\r\nab\r\n":                     Set,
		strings.Repeat("x", 2100):                   Bad,
		"get" + strings.Repeat(" k", 1900) + "\r\n": Get,
		"get" + strings.Repeat(" k", 2100) + "\r\n": Bad,
	} {
		var r Request
		if _, err := l.Next([]byte(in), &r); err != nil || r.Op != want {
			t.Errorf("%.40q: op %d, %v; want %d", in, r.Op, err, want)
		}
	}
}

// TestNextToken tests words of every length, at every position, between bytes of every kind.
func TestNextToken(t *testing.T) {
	alphabet := []byte("  a\x00\t!\x1f\x7f\x80\x9f\xa0\xa1\xff")
	random := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		buf := make([]byte, random.IntN(40))
		odd := len(buf)
		for i := range buf {
			if buf[i] = 'k'; random.IntN(8) == 0 {
				buf[i] = alphabet[random.IntN(len(alphabet))]
			}
			if buf[i] <= ' ' {
				odd = min(odd, i)
			}
		}
		end := random.IntN(len(buf) + 1)
		from := random.IntN(end + 1)
		want := Span{uint32(from), uint32(end)}
		for want.Start < want.End && buf[want.Start] == ' ' {
			want.Start++
		}
		if i := bytes.IndexByte(want.Of(buf), ' '); i >= 0 {
			want.End = want.Start + uint32(i)
		}
		if got := nextToken(buf, uint32(from), uint32(end)); got != want {
			t.Fatalf("%q from %d to %d: %v, want %v", buf, from, end, got, want)
		}
		if got := plainWord(buf); got != odd {
			t.Fatalf("%q: %d plain bytes, want %d", buf, got, odd)
		}
	}
}

func TestNextKey(t *testing.T) {
	line := []byte("gat 5  a  b\tc ddd  \r\n")
	var r Request
	if _, err := testLimits.Next(line, &r); err != nil {
		t.Fatal(err)
	}
	var got []string
	for key, rest := NextKey(line, r.Keys); key.Len() > 0; key, rest = NextKey(line, rest) {
		got = append(got, string(key.Of(line)))
	}
	if want := []string{"a", "b\tc", "ddd"}; !reflect.DeepEqual(got, want) || r.NumKeys != 3 {
		t.Errorf("%q, %d keys; want %q", got, r.NumKeys, want)
	}
}

func TestDecodeKey(t *testing.T) {
	for in, want := range map[string]string{
		"YQ==": "a", "YWI=": "ab", "YWJj": "abc", "YWJjZA==": "abcd", "Y.W_J-j": "abc", "YQ==YQ==": "a", "AAEC": "\x00\x01\x02",
		"": "", "Y": "", "YQ": "", "YQ=": "", "Y===": "", "====": "", "!!!!": "",
	} {
		got, ok := DecodeKey([]byte("x"), []byte(in))
		if string(got) != "x"+want || ok != (want != "") {
			t.Errorf("%q: %q, %v; want %q", in, got, ok, want)
		}
	}
}

func TestAppendPlain(t *testing.T) {
	for in, want := range map[string]string{
		"get a\r\n":                         "get a\r\n",
		"  get  a   b \n":                   "get a b\r\n",
		"bget a\r\n":                        "get a\r\n",
		"get a\x00 b\r\n":                   "get a\r\n",
		"gat  5 a\r\n":                      "gat 5 a\r\n",
		"set a 1 2 3 noreply\r\nabc\r\n":    "set a 1 2 3\r\nabc\r\n",
		"set a 1 2 3 junk\r\nabc\r\n":       "set a 1 2 3\r\nabc\r\n",
		"set  a 1 2 +2\x00 noreply\nab\r\n": "set a 1 2 2\r\nab\r\n",
		"set a 1 2 2 3 4 noreply\r\nab\r\n": "set a 1 2 2\r\nab\r\n",
		"cas a 1 2 +1 7 noreply\r\nx\r\n":   "cas a 1 2 1 7\r\nx\r\n",
		"delete a 0 noreply\r\n":            "delete a\r\n",
		"delete noreply\r\n":                "delete noreply 0\r\n",
		"delete noreply 0\r\n":              "delete noreply 0\r\n",
		"delete  noreply 0 noreply\r\n":     "delete noreply 0\r\n",
		"delete noreply noreply\r\n":        "delete noreply 0\r\n",
		"flush_all noreply\r\n":             "flush_all\r\n",
		"flush_all 5 junk\r\n":              "flush_all 5\r\n",
		"stats  items\n":                    "stats items\r\n",
		"mg q q v q1\x00 k\r\n":             "",
		"mg q q v\x00 k\r\n":                "mg q v\r\n",
		"mg a z q q v\r\n":                  "",
		"ms q 002 q T0\nab\r\n":             "ms q 2 T0\r\nab\r\n",
		"md a qq\n":                         "md a\r\n",
		"me q q\n":                          "me q q\r\n",
		"mn x\n":                            "mn x\r\n",
	} {
		var r Request
		_, err := testLimits.Next([]byte(in), &r)
		if err != nil || (r.Op == Bad) != (want == "") {
			t.Errorf("%q: op %d, %v", in, r.Op, err)
			continue
		}
		if r.Op == Bad {
			continue
		}
		if got := AppendPlain(nil, []byte(in), &r, nil); string(got) != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// checkNext checks what Next guarantees for the request at the start of data,
// whatever bytes follow it. It returns the size of the request, or 0 if it is
// incomplete.
func checkNext(t *testing.T, l *Limits, data []byte, splits []int) int {
	t.Helper()
	var whole Request
	n, err := l.Next(data, &whole)
	if err != nil {
		if err != ErrShort || n != 0 {
			t.Fatalf("%.100q: %d, %v", data, n, err)
		}
		if whole.Need != 0 && whole.Need <= len(data) {
			t.Fatalf("%.100q: needs %d of %d bytes", data, whole.Need, len(data))
		}
		return 0
	}
	if n <= 0 || n > len(data) {
		t.Fatalf("%.100q: size %d of %d", data, n, len(data))
	}
	v := reflect.ValueOf(whole)
	for i := range v.NumField() {
		if s, ok := v.Field(i).Interface().(Span); ok && (s.Start > s.End || int(s.End) > n) {
			t.Fatalf("%.100q: %s is %v of %d", data, v.Type().Field(i).Name, s, n)
		}
	}
	if whole.NumKeys > 1 {
		var walked []Span
		for key, rest := NextKey(data, whole.Keys); key.Len() > 0; key, rest = NextKey(data, rest) {
			walked = append(walked, key)
		}
		if !slices.Equal(walked, whole.Several) || len(walked) != whole.NumKeys {
			t.Fatalf("%.100q: %d keys, %v and %v", data, whole.NumKeys, whole.Several, walked)
		}
	}
	if whole.Swallow < 0 || whole.Op == None || whole.Op >= NumOps || (whole.Op != Bad && whole.Key.Len() == 0) != (whole.NumKeys == 0 && whole.Op != Bad) {
		t.Fatalf("%.100q: %+v", data, whole)
	}
	for _, i := range splits {
		if i > len(data) {
			continue
		}
		var part Request
		m, err := l.Next(data[:i], &part)
		switch {
		case i >= n && (err != nil || m != n || !reflect.DeepEqual(part, whole)):
			t.Fatalf("%.100q: %d bytes give %d, %v, %+v; want %d, %+v", data, i, m, err, part, n, whole)
		case i < n && (err != ErrShort || part.Need != 0 && part.Need != n):
			t.Fatalf("%.100q: %d of %d bytes give %d, %v, %+v", data, i, n, m, err, part)
		}
	}
	if whole.Op != Bad && whole.Op != Shutdown && whole.Flags&TooLarge == 0 {
		checkPlain(t, l, data, &whole)
	}
	return n
}

// checkPlain checks that AppendPlain keeps the meaning of r and that its result
// parses as plain.
func checkPlain(t *testing.T, l *Limits, data []byte, r *Request) {
	t.Helper()
	plain := AppendPlain(nil, data, r, nil)
	var again Request
	n, err := l.Next(plain, &again)
	if err != nil || n != len(plain) || again.Flags != r.Flags&^(Rewrite|Quiet) || again.Drop.Len() > 0 ||
		again.Op != r.Op || again.Dialect != r.Dialect || again.NumKeys != r.NumKeys ||
		!bytes.Equal(again.Key.Of(plain), r.Key.Of(data)) || !bytes.Equal(again.Body.Of(plain), r.Body.Of(data)) {
		t.Fatalf("%.100q: plain %.100q parses as %d, %v, %s", data, plain, n, err, show(plain, n, &again))
	}
}

// TestSplits parses each stream of the corpus cut off at every position.
func TestSplits(t *testing.T) {
	streams, err := wiretest.Streams()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range streams {
		data := []byte(s.Data)
		for len(data) > 0 {
			var r Request
			n, _ := testLimits.Next(data, &r)
			var splits []int
			for i := range min(n+10, len(data)+1) {
				if i < 5000 || i > n-10 {
					splits = append(splits, i)
				}
			}
			checkNext(t, &testLimits, data, splits)
			if n == 0 {
				break
			}
			data = data[min(int64(len(data)), int64(n)+r.Swallow):]
		}
	}
}

func FuzzNext(f *testing.F) {
	streams, err := wiretest.Streams()
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range streams {
		if len(s.Data) < 5000 {
			f.Add([]byte(s.Data), uint16(len(s.Data)/2))
		}
	}
	l := &Limits{Value: 100, Line: 3000}
	f.Fuzz(func(t *testing.T, data []byte, split uint16) {
		for len(data) > 0 {
			splits := []int{0, 1, int(split), len(data) / 2, len(data) - 1, len(data)}
			n := checkNext(t, l, data, splits)
			if n == 0 {
				return
			}
			checkNext(t, l, data, []int{n - 1, n, n + 1})
			data = data[n:]
		}
	})
}

func TestNextAllocs(t *testing.T) {
	streams, err := wiretest.Streams()
	if err != nil {
		t.Fatal(err)
	}
	room := make([]byte, 0, 1<<20)
	for _, s := range streams {
		data := []byte(s.Data)
		var r Request
		allocs := testing.AllocsPerRun(5, func() {
			for rest := data; len(rest) > 0; {
				n, err := testLimits.Next(rest, &r)
				if err != nil {
					break
				}
				for key, more := NextKey(rest, r.Keys); key.Len() > 0; key, more = NextKey(rest, more) {
				}
				if r.Op != Bad && r.Op != Shutdown && r.Flags&TooLarge == 0 {
					room = AppendPlain(room[:0], rest, &r, nil)
					room = AppendAnswer(room[:0], rest, &r, Miss)
				}
				if r.Flags&Base64 != 0 {
					room, _ = DecodeKey(room[:0], r.Key.Of(rest))
				}
				room = AppendServerError(room[:0], "no server for this key")
				rest = rest[min(int64(len(rest)), int64(n)+r.Swallow):]
			}
		})
		if allocs != 0 {
			t.Errorf("%s: %v allocations", s.Name, allocs)
		}
	}
}

func BenchmarkNext(b *testing.B) {
	key := "user:1234567890:profile"
	for name, in := range map[string]string{
		"get":            "get " + key + "\r\n",
		"get100":         "get" + strings.Repeat(" "+key, 100) + "\r\n",
		"set":            "set " + key + " 0 3600 100\r\n" + strings.Repeat("x", 100) + "\r\n",
		"delete":         "delete " + key + "\r\n",
		"mg":             "mg " + key + " v f c t\r\n",
		"mgBase64":       "mg dXNlcjoxMjM0NTY3ODkwOnByb2ZpbGU= b v q k O42\r\n",
		"ms":             "ms " + key + " 100 T3600 F0\r\n" + strings.Repeat("x", 100) + "\r\n",
		"get16KiBBehind": "get " + key + "\r\n" + strings.Repeat("x", 16<<10),
	} {
		b.Run(name, func(b *testing.B) {
			buf := []byte(in)
			var r Request
			b.SetBytes(int64(len(in)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := testLimits.Next(buf, &r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// memcached stores the low 32 bits of client flags, however they are spelled.
func TestClientFlags(t *testing.T) {
	for flags, want := range map[string]bool{
		"1381191169": true, "01381191169": true, "+0001381191169": true, "5676158465": true, "-18446744072328360447": true,
		"\v+1381191169\t7": true, "1381191168": false, "2913776127": false, "0": false, "": false,
	} {
		if SameFlags([]byte(flags), TombstoneFlags) != want {
			t.Errorf("flags %q: %d", flags, ClientFlags([]byte(flags)))
		}
	}
}

// TestCommandNames checks that messages have the names by which clients know the commands.
func TestCommandNames(t *testing.T) {
	for _, test := range []struct {
		op   Op
		d    Dialect
		f    Flags
		want string
	}{
		{Get, Text, 0, "get"}, {Get, Meta, 0, "mg"}, {Get, Meta, Binary, "get"}, {Get, Meta, Binary | Effects, "touch"}, {Get, Meta, Binary | Effects | ReturnValue, "gat"}, {Cas, Meta, 0, "ms"}, {Decr, Meta, 0, "ma"}, {Delete, Meta, 0, "md"}, {Noop, Meta, 0, "mn"},
		{Debug, Meta, 0, "me"}, {FlushAll, Text, 0, "flush_all"}, {Dump, Text, 0, "lru_crawler metadump"}, {Bad, Text, 0, "an unknown command"}, {Version, Text, 0, "version"},
	} {
		if got := test.op.Command(test.d, test.f); got != test.want {
			t.Errorf("%v in dialect %v: %q, want %q", test.op, test.d, got, test.want)
		}
	}
}
