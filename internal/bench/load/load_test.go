//go:build linux

package load

// Whole runs with a real memcached, and with a server that sends wrong replies.

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ringside/internal/testenv"
)

var base = Workload{Conns: 4, Depth: 1, Keys: 1, Value: 100, KeySize: 20, Count: 500, Reads: 90}

var short = Bounds{Warm: 20 * time.Millisecond, Window: 200 * time.Millisecond, Timeout: testenv.Hang}

// memcached starts a real memcached, which chooses its port, and returns its address and process
// id.
func memcached(t *testing.T) (Target, int) {
	t.Helper()
	said := filepath.Join(t.TempDir(), "port")
	args := []string{"-l", "127.0.0.1", "-p", "-1", "-t", "1", "-U", "0"}
	if os.Getuid() == 0 {
		args = append(args, "-u", "root")
	}
	server := exec.Command("memcached", args...)
	server.Env = append(os.Environ(), "MEMCACHED_PORT_FILENAME="+said)
	if err := server.Start(); err != nil {
		t.Fatalf("these tests need memcached: %v", err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill() // it may have ended already
		_ = server.Wait()         // it was killed, and Wait says so
	})
	for end := time.Now().Add(testenv.Hang); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		text, _ := os.ReadFile(said)
		if _, port, ok := strings.Cut(string(text), "TCP INET: "); ok {
			return Target{Addr: "127.0.0.1:" + strings.TrimSpace(port)}, server.Process.Pid
		}
	}
	t.Fatal("memcached does not say which port it has")
	return Target{}, 0
}

func TestRunAgainstMemcached(t *testing.T) {
	addr, pid := memcached(t)
	for _, row := range []struct {
		name   string
		change func(*Workload, *Bounds)
	}{
		{"plain", func(*Workload, *Bounds) {}},
		{"pipeline", func(w *Workload, _ *Bounds) { w.Depth = 16 }},
		{"multi-get", func(w *Workload, _ *Bounds) { w.Keys = 100 }},
		{"large values", func(w *Workload, _ *Bounds) { w.Value, w.Count, w.Depth = 300<<10, 20, 2 }},
		{"empty values", func(w *Workload, _ *Bounds) { w.Value = 0 }},
		{"only writes", func(w *Workload, _ *Bounds) { w.Reads = 0 }},
		{"paced", func(w *Workload, _ *Bounds) { w.Rate = 2000 }},
		{"paced pipeline", func(w *Workload, _ *Bounds) { w.Rate, w.Depth = 5000, 4 }},
		{"long keys", func(w *Workload, _ *Bounds) { w.KeySize = 250 }},
		{"so many requests", func(_ *Workload, b *Bounds) { b.Requests, b.Window = 100, time.Hour }},
	} {
		t.Run(row.name, func(t *testing.T) {
			work, bounds := base, short
			row.change(&work, &bounds)
			undisturbed(t, func() error { return measures(t, addr, pid, work, bounds) })
		})
	}
}

// undisturbed repeats a window in which the load or the server got no CPU time for a good part of
// it. Such a window has too few requests.
func undisturbed(t *testing.T, round func() error) {
	t.Helper()
	testenv.Undisturbed(t, 6, short.Window/5, round)
}

func measures(t *testing.T, addr Target, pid int, work Workload, bounds Bounds) error {
	got, err := Run(t.Context(), addr, work, bounds, []int{pid})
	if err != nil {
		return err
	}
	if got.Requests == 0 || got.Seconds <= 0 || got.Checked < got.Reads*int64(work.Keys) || len(got.Cores) == 0 {
		return fmt.Errorf("result %+v", got)
	}
	if work.Reads > 0 && got.Reads == 0 || work.Reads < 100 && got.Reads == got.Requests {
		return fmt.Errorf("%d reads in %d requests, %d per cent were asked for", got.Reads, got.Requests, work.Reads)
	}
	if got.P50 <= 0 || got.P99 < got.P50 {
		return fmt.Errorf("p50 %v, p99 %v", got.P50, got.P99)
	}
	if p := got.Processes[0]; p.CPU <= 0 || p.Memory <= 0 {
		return fmt.Errorf("the server's process %+v", p)
	}
	return nil
}

// TestWindowLastsUntilThereIsAReply tests a window that ends before any reply can arrive. That
// happens on a machine that gives the load no CPU time in the window.
func TestWindowLastsUntilThereIsAReply(t *testing.T) {
	addr, _ := memcached(t)
	bounds := short
	bounds.Warm, bounds.Window = 0, 1
	for _, rate := range []float64{0, 2000} {
		work := base
		work.Rate = rate
		got, err := Run(t.Context(), addr, work, bounds, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got.Requests == 0 || got.P50 <= 0 {
			t.Errorf("at a rate of %v: %+v", rate, got)
		}
	}
}

func TestSecondRunNeedsNoFill(t *testing.T) {
	addr, _ := memcached(t)
	bounds := short
	bounds.NoFill = true
	if _, err := Run(t.Context(), addr, base, bounds, nil); err == nil || !strings.Contains(err.Error(), "a miss") {
		t.Errorf("reading from an empty server: %v", err)
	}
	if _, err := Run(t.Context(), addr, base, short, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), addr, base, bounds, nil); err != nil {
		t.Errorf("reading what the run before wrote: %v", err)
	}
}

func TestLossyLoadGoesOn(t *testing.T) {
	addr, _ := memcached(t)
	work, bounds := base, short
	work.Lossy, work.Reads, work.Keys = true, 95, 2
	bounds.NoFill = true
	bounds.Requests, bounds.Window = 5000, time.Hour // 250 writes of 500 keys, however slow the machine is
	got, err := Run(t.Context(), addr, work, bounds, nil)
	if err != nil {
		t.Fatal(err)
	}
	if l := got.Lost; l.Misses == 0 || l.Errors != 0 || got.Replies < got.Requests || len(got.Steps) != int(got.Seconds*10)+1 {
		t.Errorf("an empty server that is being filled: %+v of %d replies", l, got.Replies)
	}
}

// liar is a server that stores and replies correctly until the reply with number `from` on a
// connection. It passes that reply through lie; if lie returns nil, it closes the connection.
func liar(t *testing.T, from int, lie func(reply string) *string) Target {
	t.Helper()
	d := newData(base)
	return Target{Addr: testenv.Serve(t, "127.0.0.1", func(c net.Conn) {
		in := bufio.NewReader(c)
		for n := 1; ; n++ {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			reply := "END\r\n"
			words := strings.Fields(line)
			var i int
			switch _, err := fmt.Sscanf(strings.TrimLeft(words[1], "k"), "%d", &i); {
			case words[0] == "set":
				reply = "STORED\r\n"
				if _, err := in.Discard(d.size + 2); err != nil {
					return
				}
			case err == nil:
				reply = hit(d, i) + reply
			}
			if n >= from {
				changed := lie(reply)
				if changed == nil {
					return
				}
				reply = *changed
			}
			if _, err := c.Write([]byte(reply)); err != nil {
				return
			}
		}
	})}
}

func TestRunFindsTheLiar(t *testing.T) {
	say := func(s string) *string { return &s }
	silent := func(string) *string { return say("") }
	for _, row := range []struct {
		name string
		from int
		lie  func(string) *string
		says string
	}{
		{"honest", 1, func(r string) *string { return &r }, ""},
		{"wrong value", 200, func(r string) *string { return say(strings.Replace(r, "\r\nEND", "!\nEND", 1)) }, "wrong value"},
		{"silence from the start", 1, silent, "none within"},
		{"silence later", 200, silent, "none within"},
		{"closed", 200, func(string) *string { return nil }, "closed with"},
		{"every reply twice", 200, func(r string) *string { return say(r + r) }, "a reply without a request"},
		{"a miss", 200, func(r string) *string { return say(r[len(r)-len("END\r\n"):]) }, "a miss"},
	} {
		t.Run(row.name, func(t *testing.T) {
			work, bounds := base, short
			work.Count, work.Reads = 100, 100                // 25 keys a connection to fill, then reads
			bounds.Requests, bounds.Window = 2000, time.Hour // one connection comes to 200, however slow the machine is
			if row.says == "none within" {
				bounds.Timeout = 300 * time.Millisecond
			}
			_, err := Run(t.Context(), liar(t, row.from, row.lie), work, bounds, nil)
			switch {
			case row.says == "" && err != nil:
				t.Errorf("an honest server fails: %v", err)
			case row.says != "" && (err == nil || !strings.Contains(err.Error(), row.says)):
				t.Errorf("error %v, want one that says %q", err, row.says)
			}
		})
	}
}

func TestRunRefusesWhatItCannotDo(t *testing.T) {
	addr := Target{Addr: "127.0.0.1:1"}
	for _, change := range []func(*Workload, *Bounds){
		func(w *Workload, _ *Bounds) { w.Conns = 0 },
		func(w *Workload, _ *Bounds) { w.Keys = w.Count + 1 },
		func(w *Workload, _ *Bounds) { w.KeySize = 9 },
		func(w *Workload, _ *Bounds) { w.Reads = 101 },
		func(_ *Workload, b *Bounds) { b.Window = 0 },
		func(*Workload, *Bounds) {}, // no process listens
	} {
		work, bounds := base, short
		change(&work, &bounds)
		if _, err := Run(t.Context(), addr, work, bounds, nil); err == nil {
			t.Errorf("%+v, %+v is taken", work, bounds)
		}
	}
}
