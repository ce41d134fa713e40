package health

// Tests of a keeper with real memcached servers: each must understand the other.

import (
	"bufio"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"ringside/internal/testenv"
)

// startMemcached runs a memcached on a Unix socket.
func startMemcached(t *testing.T, args ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	testenv.StartRelease(t, "memcached", path, append(args, "-t", "3")...)
	return path
}

// real runs a keeper over real connections, one request after another.
type real struct {
	t     *testing.T
	k     *Keeper
	paths []string
	conns map[string]*bufio.ReadWriter
	start time.Time
}

func (r *real) now() int64 { return int64(time.Since(r.start)) + 1 }

func (r *real) conn(server int, id uint32) *bufio.ReadWriter {
	key := fmt.Sprint(server, "/", id)
	if c := r.conns[key]; c != nil {
		return c
	}
	c, err := net.Dial("unix", r.paths[server])
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	rw := bufio.NewReadWriter(bufio.NewReader(c), bufio.NewWriter(c))
	r.conns[key] = rw
	return rw
}

func (r *real) ask(server int, id uint32, line string) string {
	c := r.conn(server, id)
	c.WriteString(line)
	c.Flush()
	var answer strings.Builder
	for {
		l, err := c.ReadString('\n')
		if err != nil {
			r.t.Fatal(err)
		}
		answer.WriteString(l)
		f := strings.Fields(l)
		if f[0] == "VA" {
			size, _ := strconv.Atoi(f[1])
			for range size + 2 {
				b, err := c.ReadByte()
				if err != nil {
					r.t.Fatal(err)
				}
				answer.WriteByte(b)
			}
		}
		if f[0] != "STAT" {
			return answer.String()
		}
	}
}

// until runs the keeper until server is in phase.
func (r *real) until(server int, phase Phase) {
	r.t.Helper()
	for end := time.Now().Add(testenv.Hang); time.Now().Before(end); time.Sleep(time.Millisecond) {
		r.k.Tick(r.now())
		for {
			requests := r.k.Requests()
			if len(requests) == 0 {
				break
			}
			for _, q := range requests {
				r.k.Answered(q.ID, []byte(r.ask(q.Server, q.Conn, string(q.Line))), r.now())
			}
		}
		for _, e := range r.k.Events() {
			r.t.Logf("server %d: %s -> %s (%s)", e.Server, e.From, e.To, e.Why)
		}
		if PhaseOf(r.k.Verdict(server).N) == phase {
			return
		}
	}
	r.t.Fatalf("server %d never was %v: %s", server, phase, r.k.Verdict(server).Step)
}

func TestRealMemcached(t *testing.T) {
	for _, refuse := range []bool{false, true} {
		t.Run(fmt.Sprintf("refuse %t", refuse), func(t *testing.T) {
			t.Parallel()
			var args []string
			if refuse {
				args = []string{"-F"}
			}
			r := &real{
				t: t, conns: make(map[string]*bufio.ReadWriter), start: time.Now(),
				paths: []string{startMemcached(t, args...), startMemcached(t), startMemcached(t)},
			}
			members, _ := testServers("c0", "c1", "c2")
			r.k = New("p", members, Settings{
				Strict: true, Ping: 50 * time.Millisecond, Lease: time.Second, Request: 300 * time.Millisecond,
			}, 1)
			r.until(0, In)
			for r.k.Verdict(0).ValidUntil < r.now() { // the first start
				r.until(0, In)
			}
			r.ask(0, 0, "set k 0 0 1\r\nv\r\n")
			if err := r.k.Override(0, Drain, r.now()); err != nil {
				t.Fatal(err)
			}
			r.until(0, Out)
			if err := r.k.Override(0, Restore, r.now()); err != nil {
				t.Fatal(err)
			}
			r.until(0, In)
			left := r.ask(0, 0, "mg k v\r\n") != "EN\r\n"
			if left != refuse || (r.k.Renamed(0) != 0) != refuse {
				t.Errorf("k is still there: %t; renamed %d", left, r.k.Renamed(0))
			}
			for i := range members {
				if got := r.ask(i, 0, "mg __rs_view__:p v\r\n"); !strings.Contains(got, " c0=6") {
					t.Errorf("server %d has the record %q", i, got)
				}
			}
		})
	}
}
