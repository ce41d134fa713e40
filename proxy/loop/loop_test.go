package loop

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"ringside/internal/testenv"
	"ringside/proxy"
	"ringside/proxy/link"
	"ringside/proxy/table"
	"ringside/ring"
)

// byLength maps a key to the server with the index len(key) modulo the number of servers.
type byLength int

func (n byLength) Len() int { return int(n) }

func (n byLength) At(key []byte, _ uint64, try int) int {
	if try > 0 {
		return -1
	}
	return len(key) % int(n)
}

// memcached starts a real memcached on a free port and returns its address.
func memcached(t *testing.T) string {
	t.Helper()
	return testenv.StartMemcached(t, "-I", "8m", "-m", "128").Address
}

// Timeouts of requests: for tests where nothing must time out, and for tests that wait for a
// timeout.
var (
	patient = table.Timeouts{Connect: testenv.Hang, Request: testenv.Hang, Deadline: testenv.Hang}
	hasty   = table.Timeouts{Connect: time.Second, Request: 500 * time.Millisecond, Deadline: testenv.Hang}
)

func tableOf(servers ...string) *table.Table {
	p := &table.Pool{
		Name: "main", Connections: 1, QueueLimit: 10000,
		Place:        ring.Placement{Hash: func([]byte) uint64 { return 0 }, Ring: byLength(len(servers))},
		Timeouts:     patient,
		RetryBackoff: table.Backoff{First: 20 * time.Millisecond, Max: time.Second},
	}
	for _, s := range servers {
		p.Servers = append(p.Servers, table.Target{Name: s, Network: "tcp", Address: s, Weight: 1})
	}
	return &table.Table{
		Pools:     []*table.Pool{p},
		Listeners: []table.Listener{{Network: "tcp", Address: "127.0.0.1:0", Routes: []table.Route{{Pool: p}}}},
		Limits: table.Limits{Clients: 1000, Key: 250, Line: 64 << 10, Value: 8 << 20, InFlight: 4096,
			Output: 1 << 20, OutputHard: 64 << 20, Memory: 256 << 20},
	}
}

// each runs f with every driver, and at every pace.
func each(t *testing.T, f func(t *testing.T, o Options)) {
	drivers := []string{"portable"}
	if runtime.GOOS == "linux" {
		drivers = append(drivers, "epoll")
	}
	for _, d := range drivers {
		t.Run(d, func(t *testing.T) { f(t, Options{Driver: d, Tune: link.DefaultTune}) })
	}
	for name, kind := range map[string]Kind{"answers": Answers, "sleep": Sleep} { // with the portable driver these settings have no effect
		t.Run(drivers[len(drivers)-1]+" "+name, func(t *testing.T) {
			f(t, Options{Driver: drivers[len(drivers)-1], Tune: link.DefaultTune, Moderation: Settings{Above: 1, Sleep: 200 * time.Microsecond, Pace: kind}})
		})
	}
}

// eachAtOnce is each for a test that mostly waits: all runs are concurrent.
func eachAtOnce(t *testing.T, f func(t *testing.T, o Options)) {
	t.Helper()
	each(t, func(t *testing.T, o Options) {
		t.Parallel()
		f(t, o)
	})
}

// TestMain allows more concurrent tests than there are processors, because they wait for timeouts
// most of their time.
func TestMain(m *testing.M) {
	testing.Init()
	flag.Set("test.parallel", "16")
	os.Exit(m.Run())
}

func start(t *testing.T, o Options, tab *table.Table) (addr string) {
	t.Helper()
	_, addr = startProxy(t, o, tab)
	return addr
}

func startProxy(t *testing.T, o Options, tab *table.Table) (p *proxy.Proxy, addr string) {
	t.Helper()
	p, d := startDriver(t, o, tab)
	return p, d.Addrs()[0].String()
}

func startDriver(t *testing.T, o Options, tab *table.Table) (*proxy.Proxy, *Driver) {
	t.Helper()
	return startLogged(t, o, tab, t.Output())
}

// startLogged starts a driver that writes its log to a writer.
func startLogged(t *testing.T, o Options, tab *table.Table, log io.Writer) (*proxy.Proxy, *Driver) {
	t.Helper()
	p := proxy.NewProxy(tab, "test", slog.New(slog.NewTextHandler(log, nil)))
	d, err := New(p, o)
	if err != nil {
		t.Fatal(err)
	}
	commit, err := d.Listen(tab)
	if err != nil {
		t.Fatal(err)
	}
	commit()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testenv.Hang)
		defer cancel()
		if err := d.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	return p, d
}

func TestServes(t *testing.T) {
	servers := []string{memcached(t), memcached(t), memcached(t)}
	each(t, func(t *testing.T, o Options) {
		c, err := net.Dial("tcp", start(t, o, tableOf(servers...)))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(testenv.Hang))
		r := bufio.NewReader(c)
		say := func(format string, args ...any) { fmt.Fprintf(c, format, args...) }
		want := func(line string) {
			t.Helper()
			got, err := r.ReadString('\n')
			if err != nil || strings.TrimRight(got, "\r\n") != line {
				t.Fatalf("got %.200q (%v), want %.200q", got, err, line)
			}
		}
		say("set a 1 0 1\r\nA\r\nset bb 2 0 2\r\nBB\r\nset ccc 3 0 3 noreply\r\nCCC\r\nget a\r\n")
		want("STORED")
		want("STORED")
		want("VALUE a 1 1")
		want("A")
		want("END")
		say("get a bb ccc dddd\r\n")
		seen := map[string]bool{}
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if line == "END\r\n" {
				break
			}
			seen[line] = true
		}
		if len(seen) != 6 {
			t.Errorf("multi-get: got %v", seen)
		}
		for _, size := range []int{0, 1, 1000, 64 << 10, 100_000, 1 << 20, 5 << 20} {
			value := strings.Repeat("x", size)
			say("set big 0 0 %d\r\n%s\r\n", size, value)
			want("STORED")
			say("get big\r\n")
			want(fmt.Sprintf("VALUE big 0 %d", size))
			want(value)
			want("END")
		}
		say("mg a v k Oq\r\nms bb 2 T0 q\r\nhi\r\nmg nope v q\r\nmn\r\n")
		want("VA 1 ka Oq")
		want("A")
		want("MN")
		say("version\r\nflush_all\r\nget bb\r\nquit\r\n")
		want("VERSION 1.6.18")
		want("OK")
		want("END")
		if b, err := r.ReadByte(); err == nil {
			t.Errorf("after quit: got %q", b)
		}
	})
}
