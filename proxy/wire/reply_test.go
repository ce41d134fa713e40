package wire

// This file tests the parsing of replies and versions, replies in the client's dialect, and which
// replies a quiet flag suppresses.

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func showReply(buf []byte, r *Reply) string {
	var b strings.Builder
	fmt.Fprintf(&b, "kind=%d", r.Kind)
	if r.Last {
		b.WriteString(" last")
	}
	v := reflect.ValueOf(*r)
	for i := range v.NumField() {
		if s, ok := v.Field(i).Interface().(Span); ok && s.Len() > 0 && v.Type().Field(i).Name != "Line" {
			fmt.Fprintf(&b, " %s=%q", v.Type().Field(i).Name, s.Of(buf))
		}
	}
	return b.String()
}

func TestNextReply(t *testing.T) {
	for _, c := range []struct {
		op   Op
		d    Dialect
		in   string
		kind Kind
		want string
	}{
		{Get, Text, "VALUE a 5 3\r\nabc\r\n", Value, ` Key="a" Body="abc" ClientFlags="5"`},
		{Gets, Text, "VALUE a 5 0 77\r\n\r\n", Value, ` Key="a" ClientFlags="5" Unique="77"`},
		{Get, Text, "VALUE a 18446744073709551615 1\r\nx\r\n", Value, ` Key="a" Body="x" ClientFlags="18446744073709551615"`},
		{Gat, Text, "END\r\n", End, " last"},
		{Set, Text, "STORED\r\n", Stored, " last"},
		{Add, Text, "NOT_STORED\r\n", NotStored, " last"},
		{Cas, Text, "EXISTS\r\n", Exists, " last"},
		{Cas, Text, "NOT_FOUND\r\n", NotFound, " last"},
		{Delete, Text, "DELETED\r\n", Deleted, " last"},
		{Touch, Text, "TOUCHED\r\n", Touched, " last"},
		{Incr, Text, "18446744073709551615\r\n", Number, " last"},
		{Decr, Text, "0 \r\n", Number, " last"},
		{FlushAll, Text, "OK\r\n", OK, " last"},
		{Stats, Text, "RESET\r\n", OK, " last"},
		{Stats, Text, "STAT pid 1\r\n", Stat, ""},
		{Stats, Text, "ITEM a [1 b; 0 s]\r\n", Stat, ""},
		{Stats, Text, "PREFIX a get 1 hit 0 set 1 del 0\r\n", Stat, ""},
		{Stats, Text, "END\r\n", End, " last"},
		{Version, Text, "VERSION 1.6.18\r\n", VersionIs, " last"},
		{Get, Text, "SERVER_ERROR out of memory\r\n", ServerError, " last"},
		{Incr, Text, "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n", ClientError, " last"},
		{Get, Text, "ERROR\r\n", Error, " last"},
		{Get, Meta, "ERROR Too many open connections\r\n", Error, " last"},
		{Shutdown, Text, "ERROR: shutdown not enabled\r\n", Error, " last"},

		{Get, Meta, "VA 2 f0 kabc c7\r\nxy\r\n", Value, ` last Key="abc" Body="xy" ClientFlags="0" MetaFlags="f0 kabc c7"`},
		{Get, Meta, "VA 0\r\n\r\n", Value, " last"},
		{Get, Meta, "HD s2 W\r\n", Header, ` last MetaFlags="s2 W"`},
		{Get, Meta, "EN\r\n", Miss, " last"},
		{Get, Meta, "EN kzz Oabc\r\n", Miss, ` last Key="zz" Opaque="abc" MetaFlags="kzz Oabc"`},
		{Set, Meta, "HD\r\n", Stored, " last"},
		{Cas, Meta, "EX O1\r\n", Exists, ` last Opaque="1" MetaFlags="O1"`},
		{Append, Meta, "NS\r\n", NotStored, " last"},
		{Delete, Meta, "HD\r\n", Deleted, " last"},
		{Delete, Meta, "NF\r\n", NotFound, " last"},
		{Decr, Meta, "VA 2 t-1\r\n10\r\n", Value, ` last Body="10" MetaFlags="t-1"`},
		{Incr, Meta, "HD\r\n", Header, " last"},
		{Noop, Meta, "MN\r\n", Barrier, " last"},
		{Debug, Meta, "ME a exp=-1 la=0 cas=4 fetch=yes cls=1 size=62\r\n", Item, ` last Key="a"`},
		{Debug, Meta, "EN\r\n", Miss, " last"},
		{Set, Meta, "CLIENT_ERROR invalid flag\r\n", ClientError, " last"},
	} {
		var r Reply
		in := []byte(c.in + "more")
		n, err := NextReply(c.op, c.d, in, &r)
		want := fmt.Sprintf("kind=%d%s", c.kind, c.want)
		if got := showReply(in, &r); err != nil || n != len(c.in) || r.Size != n || got != want {
			t.Errorf("%q: %d, %v\n got %s\nwant %s", c.in, n, err, got, want)
		}
	}
}

func TestNextReplyRefuses(t *testing.T) {
	for _, c := range []struct {
		op Op
		d  Dialect
		in string
	}{
		{Set, Text, "VALUE a 0 1\r\nx\r\n"}, {Set, Text, "END\r\n"}, {Set, Text, "HD\r\n"}, {Set, Text, "EXISTS\r\n"},
		{Get, Text, "STORED\r\n"}, {Get, Text, "EN\r\n"}, {Get, Text, "5\r\n"}, {Get, Text, "STAT a b\r\n"},
		{Get, Text, "VALUE a 0 1\r\nxyz"}, {Get, Text, "VALUE a 0\r\n"}, {Get, Text, "VALUE a 0 x\r\n"}, {Get, Text, "VALUE a x 1\r\nx\r\n"},
		{Get, Text, "VALUE a 0 -1\r\n"}, {Get, Text, "VALUE a 0 4294967296\r\n"}, {Get, Text, "VALUE a 0 1 5 6\r\nx\r\n"}, {Get, Text, "VALUE \r\n"},
		{Gets, Text, "VALUE a 0 1\r\nx\r\n"}, {Get, Text, "END\n"}, {Get, Text, "\r\n"}, {Get, Text, "\n"}, {Get, Text, "end\r\n"}, {Get, Text, "ENDx\r\n"},
		{Incr, Text, "-1\r\n"}, {Incr, Text, "1x\r\n"}, {Incr, Text, " \r\n"}, {Incr, Text, "123456789012345678901\r\n"},
		{Get, Text, strings.Repeat("x", maxReplyLine)}, {Get, Text, "ERRORS\r\n"}, {Get, Text, "SERVER_ERRORS x\r\n"},
		{Get, Meta, "END\r\n"}, {Get, Meta, "VA\r\n"}, {Get, Meta, "VA x\r\n"}, {Get, Meta, "VA 1\r\nxyz"}, {Get, Meta, "HD 5\r\n"}, {Get, Meta, "XX\r\n"},
		{Get, Meta, "NF\r\n"}, {Set, Meta, "VA 1\r\nx\r\n"}, {Set, Meta, "MN\r\n"}, {Noop, Meta, "MN x\r\n"}, {Noop, Meta, "HD\r\n"}, {Delete, Meta, "EN\r\n"},
		{Get, Meta, "VA 1 fx c7 ka\r\nx\r\n"}, {Get, Meta, "VA 1 f c7 ka\r\nx\r\n"}, {Get, Meta, "VA 1 f5 c ka\r\nx\r\n"}, {Set, Meta, "HD cx\r\n"},
		{Debug, Meta, "ME \r\n"}, {Quit, Text, "OK\r\n"}, {Version, Text, "OK\r\n"}, {None, Text, "OK\r\n"},
	} {
		var r Reply
		if n, err := NextReplyOf(c.op, c.d, []byte("a"), []byte(c.in), &r); n != 0 || err != errReply {
			t.Errorf("op %d: %.60q: %d, %v, %s; want ErrReply", c.op, c.in, n, err, showReply([]byte(c.in), &r))
		}
	}
}

func TestNextReplyShort(t *testing.T) {
	var r Reply
	buf := []byte("VALUE a 5 100\r\nxyz")
	if n, err := NextReply(Get, Text, buf, &r); n != 0 || err != ErrShort {
		t.Fatal(n, err)
	}
	if r.Size != 117 || r.Body != (Span{15, 115}) || r.Kind != Value || string(r.Key.Of(buf)) != "a" || string(r.Line.Of(buf)) != "VALUE a 5 100" {
		t.Errorf("%+v", r)
	}
	for _, in := range []string{"", "V", "VALUE a 5 100", "VALUE a 5 100\r"} {
		if n, err := NextReply(Get, Text, []byte(in), &r); n != 0 || err != ErrShort || r.Size != 0 {
			t.Errorf("%q: %d, %v, %+v", in, n, err, r)
		}
	}
}

// checkReply checks what NextReply guarantees, whatever bytes follow the reply.
func checkReply(t *testing.T, op Op, d Dialect, data []byte, splits []int) int {
	t.Helper()
	var whole Reply
	n, err := NextReply(op, d, data, &whole)
	var general Reply
	if m, same := general.any(op, d, data); m != n || same != err || general != whole {
		t.Fatalf("op %d: %.100q: %d, %v, %+v; without a short cut %d, %v, %+v", op, data, n, err, whole, m, same, general)
	}
	for _, awaited := range []string{string(whole.Key.Of(data)), "k", "another-key"} {
		var r Reply
		m, same := NextReplyOf(op, d, []byte(awaited), data, &r)
		if r.Awaited && (string(r.Key.Of(data)) != awaited || r.Kind != Value) {
			t.Fatalf("op %d: %.100q: %+v is no value of %q", op, data, r, awaited)
		}
		r.Awaited = false
		if m != n || same != err || r != whole {
			t.Fatalf("op %d: %.100q: with the key %q: %d, %v, %+v; without it %d, %v, %+v", op, data, awaited, m, same, r, n, err, whole)
		}
	}
	if err != nil {
		if n != 0 || err != ErrShort && err != errReply || err == ErrShort && whole.Size != 0 && whole.Size <= len(data) {
			t.Fatalf("op %d: %.100q: %d, %v, %+v", op, data, n, err, whole)
		}
		return 0
	}
	if n <= 0 || n > len(data) || whole.Size != n || whole.Kind == NoReply {
		t.Fatalf("op %d: %.100q: %d, %+v", op, data, n, whole)
	}
	v := reflect.ValueOf(whole)
	for i := range v.NumField() {
		if s, ok := v.Field(i).Interface().(Span); ok && (s.Start > s.End || int(s.End) > n) {
			t.Fatalf("op %d: %.100q: %s is %v of %d", op, data, v.Type().Field(i).Name, s, n)
		}
	}
	for _, i := range splits {
		if i > len(data) {
			continue
		}
		var part Reply
		m, err := NextReply(op, d, data[:i], &part)
		switch {
		case i >= n && (err != nil || m != n || part != whole):
			t.Fatalf("op %d: %.100q: %d bytes give %d, %v, %+v; want %+v", op, data, i, m, err, part, whole)
		case i < n && (err != ErrShort || part.Size != 0 && (part.Size != n || part.Body != whole.Body)):
			t.Fatalf("op %d: %.100q: %d of %d bytes give %d, %v, %+v", op, data, i, n, m, err, part)
		}
	}
	return n
}

var replySeeds = []string{
	"VALUE a 5 3\r\nabc\r\nVALUE b 0 0 7\r\n\r\nEND\r\n", "STORED\r\n", "NOT_FOUND\r\n", "15 \r\n", "OK\r\n", "TOUCHED\r\n",
	"VALUE a-longer-key 4294967295 0\r\n\r\n", "VALUE k\xff\xa1\t 0 1\r\nx\r\n", "VALUE k 0 1 \r\nx\r\n", "VALUE  k 0 1\r\nx\r\n",
	"VALUE k 0 1000000000\r\n", "VALUE k 00000000000000000001 1\r\nx\r\n", "VALUE k\n 0 1\r\nx\r\n", "VALUE " + strings.Repeat("k", maxReplyLine-6-6) + " 0 1\r\nx\r\n",
	"STAT a b\r\nSTAT c d\r\nEND\r\n", "VERSION 1.6.18\r\n", "SERVER_ERROR x\r\n", "ERROR\r\n",
	"VA 2 f0 kabc c7\r\nxy\r\nEN\r\nMN\r\n", "HD W X Z s5\r\n", "NS\r\n", "ME a b=c\r\n", "CLIENT_ERROR \r\n",
	"VA 3 f0 c12 kk\r\nabc\r\n", "VA 3 t-1 f0 kk\r\nabc\r\n", "VA 3 f5 t90 c12 ka-longer-key\r\nabc\r\n", "VA 0 W f0 c12 kk\r\n\r\n", "VA 1  f0 kk\r\nx\r\n",
	"VA 1 kk\r\nx\r\n", "VA 1 f0 kk kk\r\nx\r\n", "VA 1 f0 kk \r\nx\r\n", "VA 1 f kk\r\nx\r\n", "VA 1 f0x kk\r\nx\r\n", "VA 1 f" + strings.Repeat("1", maxReplyLine) + " kk\r\nx\r\n",
}

func TestReplySplits(t *testing.T) {
	for _, in := range replySeeds {
		splits := make([]int, len(in)+1)
		for i := range splits {
			splits[i] = i
		}
		for op := range NumOps {
			checkReply(t, op, Text, []byte(in), splits)
			checkReply(t, op, Meta, []byte(in), splits)
		}
	}
}

func FuzzNextReply(f *testing.F) {
	for i, in := range replySeeds {
		f.Add([]byte(in), uint8(i), false, uint16(3))
		f.Add([]byte(in), uint8(Get), i >= 10, uint16(9))
	}
	f.Fuzz(func(t *testing.T, data []byte, op uint8, meta bool, split uint16) {
		d := Text
		if meta {
			d = Meta
		}
		for len(data) > 0 {
			n := checkReply(t, Op(op)%NumOps, d, data, []int{0, 1, int(split), len(data) / 2, len(data) - 1, len(data)})
			if n == 0 {
				return
			}
			checkReply(t, Op(op)%NumOps, d, data, []int{n - 1, n, n + 1})
			data = data[n:]
		}
	})
}

func TestHidden(t *testing.T) {
	for _, c := range []struct {
		op     Op
		d      Dialect
		hidden []Kind
		shown  []Kind
	}{
		{Set, Text, []Kind{Stored, NotStored, ServerError, ClientError}, nil},
		{Delete, Text, []Kind{Deleted, NotFound}, nil},
		{Get, Meta, []Kind{Miss}, []Kind{Value, Header, Error, ClientError, ServerError}},
		{Set, Meta, []Kind{Stored}, []Kind{NotStored, Exists, NotFound, ServerError}},
		{Cas, Meta, []Kind{Stored}, []Kind{Exists, NotFound}},
		{Delete, Meta, []Kind{Deleted}, []Kind{NotFound, Exists}},
		{Incr, Meta, []Kind{Header, Value}, []Kind{NotFound, Exists, NotStored, ClientError}},
	} {
		for _, k := range c.hidden {
			if !Hidden(c.op, c.d, Quiet, k) || Hidden(c.op, c.d, 0, k) {
				t.Errorf("op %d: kind %d must be hidden by quiet alone", c.op, k)
			}
		}
		for _, k := range c.shown {
			if Hidden(c.op, c.d, Quiet, k) {
				t.Errorf("op %d: kind %d must be shown", c.op, k)
			}
		}
	}
}

func TestAppendAnswer(t *testing.T) {
	for _, c := range []struct {
		in   string
		k    Kind
		want string
	}{
		{"get a b\r\n", Miss, "END\r\n"},
		{"set a 0 0 0\r\n\r\n", Stored, "STORED\r\n"},
		{"delete a\r\n", NotFound, "NOT_FOUND\r\n"},
		{"touch a 1\r\n", Touched, "TOUCHED\r\n"},
		{"mg a\r\n", Miss, "EN\r\n"},
		{"mg a k q Oab\r\n", Miss, "EN ka Oab\r\n"},
		{"mg Y.Q== b k\r\n", Miss, "EN kYQ== b\r\n"},
		{"ms a 0 O1 k\r\n\r\n", Stored, "HD O1 ka\r\n"},
		{"md a O1\r\n", NotFound, "NF O1\r\n"},
		{"me a k\r\n", Miss, "EN\r\n"},
		{"mn\r\n", Barrier, "MN\r\n"},
		{"flush_all\r\n", OK, "OK\r\n"},
		{"get a\r\n", Value, ""},
	} {
		var r Request
		if _, err := testLimits.Next([]byte(c.in), &r); err != nil {
			t.Fatal(err)
		}
		if got := AppendAnswer(nil, []byte(c.in), &r, c.k); string(got) != c.want {
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
	}
	if got := AppendServerError([]byte("x"), "a\r\nEND\x7f"); string(got) != "xSERVER_ERROR a  END \r\n" {
		t.Errorf("%q", got)
	}
}

func TestFlagArg(t *testing.T) {
	buf := []byte("VA 2 f5 W kabc\r\nxy\r\n")
	var r Reply
	if _, err := NextReply(Get, Meta, buf, &r); err != nil {
		t.Fatal(err)
	}
	for letter, want := range map[byte]string{'f': "5", 'W': "", 'k': "abc"} {
		if arg, ok := FlagArg(buf, r.MetaFlags, letter); !ok || string(arg.Of(buf)) != want || !r.Letters.Has(letter) {
			t.Errorf("%c: %q, %v; want %q", letter, arg.Of(buf), ok, want)
		}
	}
	if _, ok := FlagArg(buf, r.MetaFlags, 'X'); ok || r.Letters.Has('X') {
		t.Error("there is no X")
	}
}

func TestParseVersion(t *testing.T) {
	for in, want := range map[string]Release{
		"VERSION 1.6.18": {1, 6, 18}, "1.4.25 Ubuntu": {1, 4, 25}, "VERSION 1.6.0-beta1": {1, 6, 0}, "VERSION 1.6.9_2_gabc": {1, 6, 9}, "VERSION 2.0": {2, 0, 0},
	} {
		if got, ok := ParseVersion([]byte(in)); !ok || got != want {
			t.Errorf("%q: %v, %v; want %v", in, got, ok, want)
		}
	}
	for _, in := range []string{"", "VERSION ", "VERSION x", "VERSION 1.x", "UNKNOWN"} {
		if got, ok := ParseVersion([]byte(in)); ok {
			t.Errorf("%q: %v", in, got)
		}
	}
	v := Release{1, 6, 18}
	if v.Older(Release{1, 6, 18}) || v.Older(Release{1, 5, 99}) || !v.Older(Release{1, 6, 19}) || !v.Older(Release{2, 0, 0}) || !v.Older(Release{1, 7, 0}) {
		t.Error("order of versions")
	}
	for r, want := range map[Release]Features{
		{}: Basics, Oldest: Basics, {1, 4, 7}: Basics, {1, 4, 8}: Basics | Touching, {1, 5, 2}: Basics | Touching | Memlimits,
		{1, 6, 12}: Basics | Touching | Memlimits | GetTouches,
		{1, 6, 13}: Basics | Touching | Memlimits | GetTouches | Metas,
		{1, 6, 18}: ChosenCAS - 1 - HashDumps - AppendCreates, {1, 6, 20}: ChosenCAS - 1, {1, 6, 27}: 2*ChosenCAS - 1, {1, 7, 0}: 2*ChosenCAS - 1,
	} {
		if got := r.Features(); got != want {
			t.Errorf("features of %v: %b, want %b", r, got, want)
		}
	}
	for in, want := range map[string]Release{
		"VERSION 1.6.18": {1, 6, 18}, "VERSION 1.4.25 Ubuntu": {1, 4, 25}, "VERSION 1.6": {1, 6, 0}, "VERSION 1.6.0-beta1": {1, 6, 0},
		"VERSION": Oldest, "VERSION ": Oldest, "VERSION UNKNOWN": Oldest, "VERSION  1.6.18": Oldest, "VERSION v1.6.18": Oldest,
		"VERSION memcached 1.6.18": Oldest, "VERSION 1.x": Oldest, "VERSION 1..6": Oldest, "VERSION -1.6.18": Oldest,
		"VERSION 0.5.0": Oldest, "VERSION 1.2.8": Oldest, "VERSION 1": Oldest, "VERSION 10.11.6-MariaDB": Oldest, "VERSION 2.5.1": Oldest,
		"VERSION 1.6.99999999999999999999": {1, 6, 999999999},
	} {
		if got := ReleaseOf([]byte(in)); got != want {
			t.Errorf("%q counts as %v, want %v", in, got, want)
		}
	}
}

func TestNextReplyAllocs(t *testing.T) {
	var r Reply
	for _, in := range replySeeds {
		data := []byte(in)
		if allocs := testing.AllocsPerRun(10, func() {
			for op := range NumOps {
				NextReply(op, Text, data, &r)
				NextReply(op, Meta, data, &r)
			}
		}); allocs != 0 {
			t.Errorf("%q: %v allocations", in, allocs)
		}
	}
}

func BenchmarkNextReply(b *testing.B) {
	body := strings.Repeat("x", 100)
	for name, c := range map[string]struct {
		op Op
		d  Dialect
		in string
	}{
		"value":  {Get, Text, "VALUE user:1234567890:profile 0 100\r\n" + body + "\r\n"},
		"end":    {Get, Text, "END\r\n"},
		"stored": {Set, Text, "STORED\r\n"},
		"va":     {Get, Meta, "VA 100 f0 c123456 t-1\r\n" + body + "\r\n"},
		"hd":     {Set, Meta, "HD\r\n"},
	} {
		b.Run(name, func(b *testing.B) {
			buf := []byte(c.in)
			var r Reply
			b.ReportAllocs()
			for b.Loop() {
				if _, err := NextReply(c.op, c.d, buf, &r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestStatOf checks which value a reply to stats has for a name.
func TestStatOf(t *testing.T) {
	reply := []byte("STAT threads 4\r\nSTAT threads_max 8\r\nSTAT version 1.6.18 (x)\r\nSTAT empty \r\nEND\r\n")
	for name, want := range map[string]string{"threads": "4", "threads_max": "8", "version": "1.6.18 (x)", "empty": "", "thread": "", "END": ""} {
		if got := StatOf(reply, name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
