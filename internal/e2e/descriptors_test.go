package e2e

// This file tests a process with a low limit of open files.

import (
	"bufio"
	"net"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestFewDescriptors opens more clients than there are descriptors. Those that fit are
// served, the others are rejected, and the admin interface always replies.
func TestFewDescriptors(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		servers := startMemcacheds(t, 2)
		binary, err := build()
		if err != nil {
			t.Fatal(err)
		}
		address := freeAddress(t, ownHost())
		r := &ringside{address: address, admin: freeAddress(t, ownHost()), file: filepath.Join(t.TempDir(), "ringside.yaml"), driver: driver}
		r.write(t, "listen: "+address+"\n"+front(servers))
		if err := r.serve(t, []string{address}, "sh", "-c", `ulimit -n 256; exec "$0" "$@"`, binary); err != nil {
			t.Fatal(err)
		}
		r.logged(t, `limits.clients lowered .*clients=\d+ limits.clients=10000 open_files=256`)
		served, told, began := 0, 0, time.Now()
		var open []net.Conn
		defer func() {
			for _, c := range open {
				c.Close()
			}
		}()
		for range 1000 {
			c, err := net.Dial("tcp", r.address)
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, c)
		}
		r.answers(t, "/healthz")
		for _, c := range open {
			c.SetDeadline(time.Now().Add(patience))
			c.Write([]byte("get k\r\n"))
			switch line, err := bufio.NewReader(c).ReadString('\n'); {
			case line == "END\r\n":
				served++
			case strings.HasPrefix(line, "ERROR Too many open connections"), line == "" && err != nil && !timedOut(err):
				told++
			default:
				t.Fatalf("%q, %v, after %d served and %d told", line, err, served, told)
			}
		}
		if served < 50 || served+told != 1000 {
			t.Errorf("%d served, %d told", served, told)
		}
		if n := r.metric(t, `ringside_client_connections_refused_total{reason="limit"}`) + r.metric(t, `ringside_client_connections_refused_total{reason="descriptors"}`); int(n) < told { // a probe by the test helper may have been refused too
			t.Errorf("%v refused are counted, %d were told", n, told)
		}
		r.logged(t, `clients rejected: limits.clients reached" count=\d+`)
		most := 4 + int(time.Since(began)/(5*time.Second)) // a lasting condition is logged every ten seconds
		if lines := regexp.MustCompile(`level=(WARN|ERROR)`).FindAllString(r.Output(), -1); len(lines) > most {
			t.Errorf("%d lines warn", len(lines))
		}
	})
}

func timedOut(err error) bool {
	n, ok := err.(net.Error)
	return ok && n.Timeout()
}
