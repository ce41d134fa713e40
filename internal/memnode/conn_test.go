package memnode

// conn_test.go: single connections without sockets: sends, split input, the clock,
// and fuzzing.

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"
)

// A script is a connection that returns its input in pieces and records what is
// sent.
type script struct {
	pieces []string
	sent   []string
}

func (s *script) Read(p []byte) (int, error) {
	if len(s.pieces) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.pieces[0])
	if s.pieces[0] = s.pieces[0][n:]; s.pieces[0] == "" {
		s.pieces = s.pieces[1:]
	}
	return n, nil
}

func (s *script) Write(p []byte) (int, error) {
	s.sent = append(s.sent, string(p))
	return len(p), nil
}

// A clock changes only when a test moves it.
type clock struct{ time.Time }

func (c *clock) now() time.Time { return c.Time }

func (c *clock) move(d time.Duration) { c.Time = c.Add(d) }

// maxLine is the greatest length of the line of a command that is no get, in bytes.
const maxLine = 2048

func bareNode(t testing.TB, o Options) *Node {
	t.Helper()
	n, err := newNode(o)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// play runs one connection with the pieces as input, and returns what it sent.
func play(n *Node, pieces ...string) []string {
	s := &script{pieces: pieces}
	newConn(n, s).run()
	return s.sent
}

func TestOneSend(t *testing.T) {
	n := bareNode(t, Options{})
	pipeline := strings.Repeat("set k 0 0 3\r\nabc\r\nget k\r\nmg k v\r\nincr k 1\r\n", 20)
	if sent := play(n, pipeline); len(sent) != 1 {
		t.Errorf("a pipeline was answered in %d sends", len(sent))
	}
	// Pending replies are sent before a read that may block, even in the middle of
	// a command.
	if sent := play(n, "get k\r\nset k 0 0 3\r\n", "ab", "c\r\n"); len(sent) != 2 {
		t.Errorf("%q: want the first answer before the rest of the value arrives", sent)
	}
	// Long replies do not accumulate in memory.
	play(n, "set big 0 0 60000\r\n"+strings.Repeat("v", 60000)+"\r\n")
	for _, s := range play(n, "get"+strings.Repeat(" big", 100)+"\r\n"+strings.Repeat("mg big v\r\n", 100)) {
		if len(s) > writeBuffer+60100 {
			t.Fatalf("%d bytes were piled up", len(s))
		}
	}
}

func TestLongLines(t *testing.T) {
	n := bareNode(t, Options{})
	many := "get" + strings.Repeat(" k", maxGetLine/2-10)
	for _, c := range []struct{ what, line, want string }{
		{"many keys", many + "\r\n", "END\r\n"},
		{"too many keys", many + many + "\r\n", "CLIENT_ERROR line too long\r\n"},
		{"no get", "delete " + strings.Repeat("x", maxLine), ""},
		{"no end in one piece", strings.Repeat("x", maxLine), ""},
		{"an end in one piece", "delete " + strings.Repeat("x", 2*maxLine) + "\r\n", ""},
		{"spaces", strings.Repeat(" ", 100) + "get" + strings.Repeat(" k", maxLine) + "\r\n", "END\r\n"},
		{"too many spaces", strings.Repeat(" ", 101) + "get" + strings.Repeat(" k", maxLine), ""},
		{"a browser", "GET / HTTP/1.1\r\nversion\r\n", ""},
		{"binary", "\x80\x0b\r\nversion\r\n", ""},
		{"no binary any more", "version\r\n\x80\x0b\r\n", "VERSION 1.6.18\r\nERROR\r\n"},
	} {
		if got := strings.Join(play(n, c.line), ""); got != c.want {
			t.Errorf("%s: %.100q, want %q", c.what, got, c.want)
		}
	}
}

// TestTime runs commands while the clock moves: "+10s" moves it by ten seconds.
func TestTime(t *testing.T) {
	begin := time.Date(2026, 1, 2, 3, 4, 5, 999e6, time.UTC)
	at := func(seconds int64) int64 { return begin.Unix() + seconds }
	stories := map[string][]string{
		"relative": {
			"set k 0 10 1\r\nv\r\n", "STORED\r\n", "+9s", "mg k t\r\n", "HD t1\r\n", "me k\r\n", "ME k exp=-1 la=9 cas=1 fetch=yes cls=1 size=61\r\n",
			"+1s", "get k\r\n", "END\r\n", "add k 0 0 1\r\nw\r\n", "STORED\r\n", "+1000h", "mg k v t\r\n", "VA 1 t-1\r\nw\r\n",
		},
		"absolute": {
			fmt.Sprintf("set k 0 %d 1\r\nv\r\n", at(100)), "STORED\r\n", "mg k t\r\n", "HD t100\r\n", "+99s", "mg k t\r\n", "HD t1\r\n", "+1s", "mg k\r\n", "EN\r\n",
			"set k 0 2592000 1\r\nv\r\n", "STORED\r\n", "mg k t\r\n", "HD t2592000\r\n", "set k 0 2592001 1\r\nv\r\n", "STORED\r\n", "get k\r\n", "END\r\n",
			fmt.Sprintf("set k 0 %d 1\r\nv\r\n", at(-1)), "STORED\r\n", "get k\r\n", "END\r\n", "set k 0 -1 1\r\nv\r\n", "STORED\r\n", "get k\r\n", "END\r\n",
		},
		"touch": {
			"set k 0 10 1\r\nv\r\n", "STORED\r\n", "+5s", "touch k 10\r\n", "TOUCHED\r\n", "+9s", "gat 10 k\r\n", "VALUE k 0 1\r\nv\r\nEND\r\n", "+9s", "mg k T10\r\n", "HD\r\n",
			"+9s", "mg k t\r\n", "HD t1\r\n", "touch k 0\r\n", "TOUCHED\r\n", "+1h", "mg k t\r\n", "HD t-1\r\n", "touch k -1\r\n", "TOUCHED\r\n", "touch k 0\r\n", "NOT_FOUND\r\n",
		},
		"kept by what changes the value": {
			"set k 0 10 1\r\n9\r\n", "STORED\r\n", "incr k 1\r\n", "10\r\n", "append k 0 0 1\r\n0\r\n", "STORED\r\n", "mg k v t\r\n", "VA 3 t10\r\n100\r\n", "+10s", "incr k 1\r\n", "NOT_FOUND\r\n",
		},
		"flush with delay": {
			"set k 0 0 1\r\nv\r\n", "STORED\r\n", "flush_all 10\r\n", "OK\r\n", "+8s", "get k\r\n", "VALUE k 0 1\r\nv\r\nEND\r\n", "set l 0 0 1\r\nw\r\n", "STORED\r\n",
			"+1s", "get k l\r\n", "END\r\n", "+1s", "set k 0 0 1\r\nx\r\n", "STORED\r\n", "get k\r\n", "VALUE k 0 1\r\nx\r\nEND\r\n",
			"flush_all\r\n", "OK\r\n", "get k\r\n", "END\r\n", "set k 0 0 1\r\ny\r\n", "STORED\r\n", "get k\r\n", "VALUE k 0 1\r\ny\r\nEND\r\n",
		},
		"early refill": {
			"set k 0 60 1\r\nv\r\n", "STORED\r\n", "+29s", "mg k v t R30\r\n", "VA 1 t31\r\nv\r\n", "+2s", "mg k v t R30\r\n", "VA 1 t29 W\r\nv\r\n", "mg k v t R30\r\n", "VA 1 t29 Z\r\nv\r\n",
			"+29s", "mg k v t N5 R30\r\n", "VA 0 t-1 W\r\n\r\n", "mg k v t N5 R30\r\n", "VA 0 t5 Z\r\n\r\n", "+5s", "mg k v N5\r\n", "VA 0 W\r\n\r\n",
		},
		"last use": {
			"set k 0 0 1\r\nv\r\n", "STORED\r\n", "+10s", "mg k l h\r\n", "HD l10 h0\r\n", "+10s", "mg k l h\r\n", "HD l20 h1\r\n", "+5s", "mg k l u\r\n", "HD l5\r\n",
			"+5s", "mg k l u\r\n", "HD l10\r\n", "stats items\r\n", "STAT items:1:number 1\r\nSTAT items:1:age 10\r\nSTAT items:1:evicted 0\r\nSTAT items:1:outofmemory 0\r\nEND\r\n",
		},
	}
	for name, story := range stories {
		t.Run(name, func(t *testing.T) {
			c := &clock{begin}
			n := bareNode(t, Options{Now: c.now})
			for i := 0; i < len(story); i++ {
				if d, err := time.ParseDuration(story[i]); err == nil {
					c.move(d)
					continue
				}
				send, want := story[i], story[i+1]
				i++
				if got := strings.Join(play(n, send), ""); got != want {
					t.Fatalf("step %d, %q: %q, want %q", i, send, got, want)
				}
			}
		})
	}
}

// TestMemoryOfValues writes ten times the memory limit, with values of several sizes.
func TestMemoryOfValues(t *testing.T) {
	const limit = 4 << 20
	for _, length := range []int{0, 10, 1000, 100_000, 1_000_000} {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			n := bareNode(t, Options{MemoryLimit: limit})
			s := n.store
			count := 10*limit/(length+itemHeader+itemOverhead) + 1
			value := strings.Repeat("v", length)
			c := newConn(n, &script{})
			in := &script{}
			c.rw = in
			for i := range count {
				in.pieces = append(in.pieces, fmt.Sprintf("set key%d 0 0 %d noreply\r\n%s\r\n", i, length, value))
				c.run()
				if s.bytes > limit {
					t.Fatalf("after %d values the items weigh %d bytes, the limit is %d", i+1, s.bytes, limit)
				}
			}
			if last := fmt.Appendf(nil, "key%d", count-1); s.find(last) == nil {
				t.Errorf("%s was evicted before older keys", last)
			}
			if int(s.evictions)+s.items.Len() != count {
				t.Errorf("%d evicted and %d there, %d stored", s.evictions, s.items.Len(), count)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			heap := int(after.HeapAlloc) - int(before.HeapAlloc)
			t.Logf("%d items, weight %d, heap %d", s.items.Len(), s.bytes, heap)
			if heap > limit*3/2 {
				t.Errorf("the heap grew by %d bytes for a limit of %d", heap, limit)
			}
			checkWeight(t, s)
		})
	}
}

// checkWeight checks the store's total weight against the sum over all items.
func checkWeight(t testing.TB, s *store) {
	t.Helper()
	sum := 0
	for _, key := range s.items.Keys() {
		it, _ := s.items.Peek(key)
		sum += weight(len(key), it)
	}
	if sum != s.bytes || sum > s.limit {
		t.Errorf("the items weigh %d, counted are %d, the limit is %d", sum, s.bytes, s.limit)
	}
}

func TestGetAllocatesNothing(t *testing.T) {
	n := bareNode(t, Options{})
	play(n, "set key 7 0 5\r\nvalue\r\n")
	c := newConn(n, &script{})
	for _, line := range []string{"get key other", "gets key", "mg key v f c t k", "touch key 10", "incr other 1"} {
		request := []byte(line + "\r\n")
		if allocs := testing.AllocsPerRun(100, func() {
			c.in, c.at, c.out = request, 0, c.out[:0]
			c.next()
		}); allocs != 0 {
			t.Errorf("%q allocates %v times", line, allocs)
		}
	}
}

// FuzzConn looks for input that breaks a connection, and for input that gets other
// replies when it arrives in two pieces.
func FuzzConn(f *testing.F) {
	for _, seed := range []string{
		"set a 0 0 1\r\n1\r\nincr a 5\r\nget a b\r\ngats 100 a\r\ndelete a noreply\r\n",
		"mg a v c t N30 R20 Oq k\r\nms a 2 T100 F5 c k\r\nhi\r\nmd a I T5 q\r\nma n N0 J10 D3 MD v\r\nme a\r\nmn\r\n",
		"ms YWJj 1 b k MA\r\nx\r\nmg YWJj b k v\r\ncas a 0 0 1 3\r\nx\r\nset a 0 0 99999\r\nflush_all 5\r\n",
		"stats\r\nstats settings\r\nstats items\r\nstats slabs\r\nverbosity 1\r\nversion\r\nshutdown\r\nquit\r\n",
	} {
		f.Add([]byte(seed), uint16(20))
	}
	c := &clock{time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	f.Fuzz(func(t *testing.T, input []byte, cut uint16) {
		whole, pieces := bareNode(t, Options{MemoryLimit: 4096, Now: c.now}), bareNode(t, Options{MemoryLimit: 4096, Now: c.now})
		got := strings.Join(play(whole, string(input)), "")
		checkWeight(t, whole.store)
		if len(input) == 0 || bytes.Contains(input, []byte("stats")) {
			return // stats show times of this process
		}
		at := int(cut) % len(input)
		if split := strings.Join(play(pieces, string(input[:at]), string(input[at:])), ""); split != got {
			t.Errorf("in one piece %q, split at %d %q", got, at, split)
		}
	})
}

// TestOld tests a node without meta commands. A value of a meta command is the next command.
func TestOld(t *testing.T) {
	n, err := New(Options{Old: true, Version: "1.4.25"})
	if err != nil {
		t.Fatal(err)
	}
	l, got := n.Line(), ""
	for _, part := range []string{"version\r\nms k 9\r\nflu", "sh_all\r\nmn\r\nget k\r\n"} {
		got += string(l.Do([]byte(part)))
	}
	if want := "VERSION 1.4.25\r\nERROR\r\nOK\r\nERROR\r\nEND\r\n"; got != want {
		t.Errorf("%q instead of %q", got, want)
	}
}
