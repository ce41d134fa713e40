package loop

// What clients observe with each kind of fault, with a real memcached and both drivers.

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ringside/internal/testenv"
	"ringside/proxy"
	"ringside/proxy/fault"
	"ringside/proxy/table"
)

// talk is one connection of a client, or one directly to the server.
type talk struct {
	t *testing.T
	c net.Conn
	r *bufio.Reader
}

func talkTo(t *testing.T, addr string) *talk {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &talk{t, c, bufio.NewReader(c)}
}

// ask sends a request and returns its reply without the line ends.
func (k *talk) ask(request string) string {
	k.t.Helper()
	k.c.SetDeadline(time.Now().Add(testenv.Hang))
	fmt.Fprintf(k.c, "%s\r\n", request)
	return k.answer()
}

func (k *talk) answer() string {
	k.t.Helper()
	k.c.SetDeadline(time.Now().Add(testenv.Hang))
	var lines []string
	for {
		line, err := k.r.ReadString('\n')
		if err != nil {
			k.t.Fatalf("after %q: %v", lines, err)
		}
		lines = append(lines, strings.TrimSuffix(line, "\r\n"))
		if !strings.HasPrefix(line, "VALUE ") && (len(lines) == 1 || line == "END\r\n" || strings.HasPrefix(line, "SERVER_ERROR")) {
			return strings.Join(lines, " ")
		}
	}
}

func (k *talk) want(request, answer string) {
	k.t.Helper()
	if got := k.ask(request); !strings.Contains(got, answer) {
		k.t.Fatalf("%q gets %q, want %q", request, got, answer)
	}
}

// until repeats the request until the reply contains answer.
func (k *talk) until(request, answer string) {
	k.t.Helper()
	got := ""
	for end := time.Now().Add(testenv.Hang); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if got = k.ask(request); strings.Contains(got, answer) {
			return
		}
	}
	k.t.Fatalf("%q never gets %q; the last answer is %.200q", request, answer, got)
}

// broken is a proxy with two servers. The first one gets the faults; keys of even length are on it.
type broken struct {
	t      *testing.T
	faults *fault.Set
	proxy  *proxy.Proxy
	server string
	other  string
	*talk        // a client of the proxy
	direct *talk // a connection to the server itself
}

// eachFault runs f with each driver. The runs are concurrent, so a request that must succeed may
// not have a short timeout.
func eachFault(t *testing.T, f func(b *broken)) {
	t.Parallel()
	eachAtOnce(t, func(t *testing.T, o Options) {
		b := &broken{t: t, faults: &fault.Set{}, server: memcached(t), other: memcached(t)}
		o.Faults = b.faults
		p, addr := startProxy(t, o, b.table(patient))
		b.proxy, b.talk, b.direct = p, talkTo(t, addr), talkTo(t, b.server)
		b.want("set k1 0 0 2\r\nv1", "STORED")
		f(b)
		b.may(patient)
		b.want("set odd 0 0 1\r\no", "STORED") // the other server has no fault
		b.want("get odd", "VALUE odd 0 1 o END")
		b.may(hasty) // requests that a fault has swallowed time out
		b.faults.LiftAll()
		b.until("get k1", "VALUE k1 0 2 v1 END")
		b.may(patient)
		b.want("set k2 0 0 2\r\nv2", "STORED")
		b.want("get k2", "VALUE k2 0 2 v2 END")
	})
}

func (b *broken) table(most table.Timeouts) *table.Table {
	tab := tableOf(b.server, b.other)
	tab.Pools[0].GetErrors, tab.Pools[0].Timeouts = true, most
	return tab
}

// may sets the timeouts of requests from now on.
func (b *broken) may(take table.Timeouts) { b.proxy.SetTable(b.table(take)) }

func (b *broken) add(f fault.Fault) {
	b.t.Helper()
	f.Network, f.Address = "tcp", b.server
	if _, err := b.faults.Add(f); err != nil {
		b.t.Fatal(err)
	}
}

// sets returns how many set commands the server has run.
func (b *broken) sets() (n int) {
	b.t.Helper()
	b.direct.c.SetDeadline(time.Now().Add(testenv.Hang))
	fmt.Fprint(b.direct.c, "stats\r\n")
	for {
		line, err := b.direct.r.ReadString('\n')
		if err != nil {
			b.t.Fatal(err)
		}
		if line == "END\r\n" {
			return n
		}
		fmt.Sscanf(line, "STAT cmd_set %d", &n)
	}
}

func TestRefuse(t *testing.T) {
	eachFault(t, func(b *broken) {
		b.add(fault.Fault{Kind: fault.Refuse})
		for range 3 {
			b.want("get k1", "connection refused")
		}
	})
}

// TestHang checks that requests sent to a server that hangs are not lost.
func TestHang(t *testing.T) {
	eachFault(t, func(b *broken) {
		b.may(hasty)
		b.add(fault.Fault{Kind: fault.Hang})
		b.want("set k5 0 0 1\r\nx", "did not answer within 500ms")
		if n := b.sets(); n != 1 {
			b.t.Errorf("%d sets have come through", n)
		}
		b.may(patient)
		b.faults.LiftAll()
		for b.sets() < 2 { // the delayed set runs now, and so does the late delete after it
			time.Sleep(time.Millisecond)
		}
		b.direct.until("get k5", "END")
		b.want("get k5", "END") // not the late STORED
		b.may(hasty)
		b.add(fault.Fault{Kind: fault.Hang})
		b.until("get k1", "no connection within the connect timeout")
	})
}

// TestHangWhileConnecting checks that a connection attempt that a fault delays continues when
// the fault is lifted.
func TestHangWhileConnecting(t *testing.T) {
	eachFault(t, func(b *broken) {
		b.add(fault.Fault{Kind: fault.Refuse}) // closes all connections
		b.want("get k1", "connection refused")
		b.may(hasty)
		b.add(fault.Fault{Kind: fault.Hang})
		b.faults.Lift(1)
		b.until("get k1", "no connection within the connect timeout")
		b.faults.LiftAll()
		b.until("get k1", "VALUE")
		b.may(patient)
		b.add(fault.Fault{Kind: fault.Refuse}) // ends the connection without an error because no reply is due
		b.add(fault.Fault{Kind: fault.Hang})
		b.faults.Lift(3)
		fmt.Fprint(b.c, "get k1\r\n")
		time.Sleep(50 * time.Millisecond) // the dial has usually begun by now, but need not have
		b.faults.LiftAll()
		if got := b.answer(); got != "VALUE k1 0 2 v1 END" {
			b.t.Errorf("get k1: %q", got)
		}
	})
}

// TestDelay checks that late replies do not reach other clients.
func TestDelay(t *testing.T) {
	eachFault(t, func(b *broken) {
		b.add(fault.Fault{Kind: fault.Delay, Delay: 20 * time.Millisecond})
		before := time.Now()
		b.want("get k1", "VALUE k1 0 2 v1 END")
		if d := time.Since(before); d < 20*time.Millisecond {
			t.Errorf("the answer came after %v", d)
		}
		b.may(hasty)
		b.add(fault.Fault{Kind: fault.Delay, Delay: time.Minute})
		b.want("set k5 0 0 1\r\nx", "did not answer within 500ms")
		for b.sets() < 2 { // it has arrived, or is on its way
			time.Sleep(time.Millisecond)
		}
		b.direct.until("get k5", "END") // the late delete has removed it
		b.may(patient)
		b.faults.LiftAll()
		b.want("get k1", "VALUE k1 0 2 v1 END")
	})
}

func TestDrop(t *testing.T) {
	eachFault(t, func(b *broken) {
		b.may(hasty)
		b.add(fault.Fault{Kind: fault.Drop, Percent: 100})
		b.want("get k1", "did not answer within 500ms")
		b.add(fault.Fault{Kind: fault.Drop, Percent: 10})
		for range 10 {
			b.until("get k1", "VALUE k1 0 2 v1 END")
		}
	})
}

// TestReset checks that a client never gets a part of a value, and that the next request uses a new
// connection.
func TestReset(t *testing.T) {
	eachFault(t, func(b *broken) {
		b.add(fault.Fault{Kind: fault.Reset})
		for range 5 {
			b.want("get k1", "SERVER_ERROR server "+b.server+": connection reset by peer")
		}
		b.direct.want("get k1", "VALUE k1 0 2 v1 END")
	})
}

// TestResetInLargeValue checks that Ringside closes the client if a value breaks off that is
// forwarded while it arrives. The client could not detect the error otherwise.
func TestResetInLargeValue(t *testing.T) {
	eachAtOnce(t, func(t *testing.T, o Options) {
		server := memcached(t)
		o.Faults = &fault.Set{}
		k := talkTo(t, start(t, o, tableOf(server)))
		k.want("set k1 0 0 4000000\r\n"+strings.Repeat("x", 4000000), "STORED")
		o.Faults.Add(fault.Fault{Network: "tcp", Address: server, Kind: fault.Reset})
		fmt.Fprint(k.c, "get k1\r\n")
		if b, _ := io.ReadAll(k.r); len(b) >= 4000000 {
			t.Errorf("%d bytes", len(b))
		}
	})
}

// TestPartition checks that requests sent during a partition are never delivered.
func TestPartition(t *testing.T) {
	eachFault(t, func(b *broken) {
		b.may(hasty)
		b.add(fault.Fault{Kind: fault.Partition})
		b.want("set k5 0 0 1\r\nx", "did not answer within 500ms")
		b.faults.LiftAll()
		b.until("get k1", "VALUE k1 0 2 v1 END")
		b.may(patient)
		b.want("get k5", "END")
		b.may(hasty)
		b.add(fault.Fault{Kind: fault.Partition})
		b.until("get k1", "no connection within the connect timeout")
		b.direct.want("get k5", "END")
	})
}

// TestHangWithLargeValue checks that a server that hangs accepts as much of a large value as a
// kernel would, and that the value arrives whole afterwards.
func TestHangWithLargeValue(t *testing.T) {
	eachFault(t, func(b *broken) {
		b.may(hasty)
		b.add(fault.Fault{Kind: fault.Hang})
		value := strings.Repeat("x", 3<<20)
		b.want(fmt.Sprintf("set k5 0 0 %d\r\n%s", len(value), value), "did not answer within")
		b.want(fmt.Sprintf("set k7 0 0 %d\r\n%s", len(value), value), "SERVER_ERROR ")
		b.faults.LiftAll()
		b.until("get k1", "VALUE k1 0 2 v1 END")
		b.may(patient)
		b.want(fmt.Sprintf("set k9 0 0 %d\r\n%s", len(value), value), "STORED")
		b.want("get k9", "VALUE k9 0 3145728 "+value+" END")
	})
}

// TestFaultOnFullConnection adds a fault to a connection that is already full. The connection must
// continue when the fault is lifted and the server runs again.
func TestFaultOnFullConnection(t *testing.T) {
	for _, kind := range []fault.Fault{{Kind: fault.Hang}, {Kind: fault.Delay, Delay: time.Millisecond}} {
		each(t, func(t *testing.T, o Options) {
			server := testenv.StartMemcached(t, "-I", "8m", "-m", "128")
			o.Faults = &fault.Set{}
			at := start(t, o, tableOf(server.Address))
			clients := []*talk{talkTo(t, at), talkTo(t, at), talkTo(t, at)}
			clients[0].want("set k0 0 0 1\r\nx", "STORED")
			if err := server.Cmd.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			value := strings.Repeat("x", 4_000_000)
			for i, k := range clients {
				fmt.Fprintf(k.c, "set k%d 0 0 %d\r\n%s\r\n", i, len(value), value)
			}
			time.Sleep(100 * time.Millisecond) // the connection is usually full by now, but need not be
			kind.Network, kind.Address = "tcp", server.Address
			if _, err := o.Faults.Add(kind); err != nil {
				t.Fatal(err)
			}
			if err := server.Cmd.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			o.Faults.LiftAll()
			for i, k := range clients {
				if got := k.answer(); got != "STORED" {
					t.Errorf("set k%d: %q", i, got)
				}
				k.want(fmt.Sprintf("get k%d", i), fmt.Sprintf("VALUE k%d 0 4000000 xxx", i))
			}
		})
	}
}

// TestFaultStorm checks that faults added and lifted at any moment never cause a client to get
// another client's reply.
func TestFaultStorm(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		servers := []string{memcached(t), memcached(t)}
		o.Faults = &fault.Set{}
		tab := tableOf(servers...)
		tab.Pools[0].Timeouts = table.Timeouts{Connect: 50 * time.Millisecond, Request: 20 * time.Millisecond, Deadline: 50 * time.Millisecond}
		p := proxy.NewProxy(tab, "test", slog.New(slog.DiscardHandler))
		d, err := New(p, o)
		if err != nil {
			t.Fatal(err)
		}
		commit, err := d.Listen(tab)
		if err != nil {
			t.Fatal(err)
		}
		commit()
		defer d.Shutdown(context.Background())
		stop := make(chan struct{})
		var hits atomic.Int64
		var clients sync.WaitGroup
		for w := range 4 {
			k := talkTo(t, d.Addrs()[0].String())
			clients.Go(func() {
				key := fmt.Sprintf("k%d%s", w, strings.Repeat("x", w%2))
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					k.ask(fmt.Sprintf("set %s 0 0 10\r\n%s-%07d", key, key[:2], n))
					if got := k.ask("get " + key); strings.HasPrefix(got, "VALUE") {
						hits.Add(1)
						if !strings.HasPrefix(got, "VALUE "+key+" 0 10 "+key[:2]+"-") {
							t.Errorf("get %s: %q", key, got)
						}
					}
				}
			})
		}
		kinds := fault.Kinds()
		faults := 30
		if testenv.Full() {
			faults = 120
		}
		for i := range faults {
			f := fault.Fault{Network: "tcp", Address: servers[i%2], Kind: kinds[i*7%len(kinds)]}
			switch f.Kind {
			case fault.Delay:
				f.Delay = time.Duration(i%40) * time.Millisecond
			case fault.Drop:
				f.Percent = i % 100
			}
			o.Faults.Add(f)
			time.Sleep(10 * time.Millisecond)
			if i%3 == 2 {
				o.Faults.LiftAll()
			}
		}
		o.Faults.LiftAll()
		calm := tableOf(servers...) // with timeouts that a busy machine meets, too
		p.SetTable(calm)
		k := talkTo(t, d.Addrs()[0].String())
		k.until("set k 0 0 1\r\nx", "STORED")
		k.until("set kk 0 0 1\r\nx", "STORED")
		for end := time.Now().Add(testenv.Hang); hits.Load() == 0 && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		close(stop)
		clients.Wait()
		s, err := p.Snapshot()
		for end := time.Now().Add(testenv.Hang); err != nil && time.Now().Before(end); { // a loop without a processor is late
			s, err = p.Snapshot()
		}
		if err != nil {
			t.Fatal(err)
		}
		if s.Desyncs != 0 || hits.Load() == 0 {
			t.Errorf("%d doubts, %d hits", s.Desyncs, hits.Load())
		}
	})
}
