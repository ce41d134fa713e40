//go:build linux

package load

// Clients that place keys themselves, and clients that reconnect for each visit.

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ringside/internal/testenv"
)

func TestTargets(t *testing.T) {
	three := make([]string, 3)
	for i := range three {
		to, _ := memcached(t)
		three[i] = to.Addr
	}
	socket := filepath.Join(t.TempDir(), "socket")
	args := []string{"-s", socket, "-t", "1"}
	if os.Getuid() == 0 {
		args = append(args, "-u", "root")
	}
	server := exec.Command("memcached", args...)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill() // it may have ended already
		_ = server.Wait()         // it was killed, and Wait says so
	})
	for end := time.Now().Add(testenv.Hang); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("unix", socket); err == nil {
			c.Close()
			break
		}
	}
	for _, row := range []struct {
		name   string
		to     Target
		change func(*Workload)
	}{
		{"servers", Target{Servers: three}, func(*Workload) {}},
		{"servers, a pipeline", Target{Servers: three}, func(w *Workload) { w.Depth = 16 }},
		{"servers, multi-gets", Target{Servers: three}, func(w *Workload) { w.Keys = 20 }},
		{"servers, paced", Target{Servers: three}, func(w *Workload) { w.Rate, w.Depth = 5000, 2 }},
		{"servers, paced multi-gets", Target{Servers: three}, func(w *Workload) { w.Rate, w.Keys = 1000, 20 }},
		{"servers, visits", Target{Servers: three}, func(w *Workload) { w.Visit, w.Reads = 5, 100 }},
		{"visits", Target{Addr: three[0]}, func(w *Workload) { w.Visit = 5 }},
		{"a socket", Target{Addr: "unix:" + socket}, func(*Workload) {}},
		{"visits to a socket", Target{Addr: "unix:" + socket}, func(w *Workload) { w.Visit = 1 }},
	} {
		t.Run(row.name, func(t *testing.T) {
			work := base
			row.change(&work)
			got, err := Run(t.Context(), row.to, work, short, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got.Requests == 0 || got.P50 <= 0 || got.Checked < got.Reads*int64(work.Keys) {
				t.Errorf("%+v", got)
			}
		})
	}
	// A key that a server does not have is a miss, and the error counts only the keys of that
	// server.
	bounds := short
	bounds.NoFill = true
	work := base
	work.Keys, work.KeySize = 20, 30
	if _, err := Run(t.Context(), Target{Servers: three}, work, bounds, nil); err == nil || !strings.Contains(err.Error(), "a miss: ") || strings.Contains(err.Error(), "20 keys") {
		t.Errorf("a multi-get of what nobody has: %v", err)
	}
}

func TestTargetsThatAreNone(t *testing.T) {
	many := slices.Repeat([]string{"127.0.0.1:1"}, maxLanes+1)
	for _, row := range []struct {
		to     Target
		change func(*Workload)
	}{
		{Target{}, func(*Workload) {}},
		{Target{Addr: "localhost:1"}, func(*Workload) {}},
		{Target{Servers: many}, func(*Workload) {}},
		{Target{Servers: many[:3]}, func(w *Workload) { w.Keys, w.Depth = 20, 2 }},
		{Target{Servers: many[:3]}, func(w *Workload) { w.Lossy = true }},
		{Target{Addr: "127.0.0.1:1"}, func(w *Workload) { w.Visit, w.Depth = 5, 2 }},
	} {
		work := base
		row.change(&work)
		if _, err := Run(t.Context(), row.to, work, short, nil); err == nil || strings.Contains(err.Error(), "connect") {
			t.Errorf("%+v, %+v: %v", row.to, work, err)
		}
	}
	for _, nobody := range []string{"127.0.0.1:1", "unix:" + filepath.Join(t.TempDir(), "none")} {
		for _, visit := range []int{0, 5} {
			work := base
			work.Visit = visit
			if _, err := Run(t.Context(), Target{Addr: nobody}, work, short, nil); err == nil || !strings.Contains(err.Error(), "conn") {
				t.Errorf("%s, visits of %d: %v", nobody, visit, err)
			}
		}
	}
}
