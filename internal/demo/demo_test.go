package demo

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"ringside/internal/testenv"
)

// TestDemo checks that the demo serves, uses another port if the usual one is taken, and
// stops all servers at its end.
func TestDemo(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	d, err := Start(taken.Addr().String(), "127.0.0.1:0", "", slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	var hello bytes.Buffer
	d.hello(&hello)
	if g := d.greeting(); len(g.Servers) != 3 || !strings.Contains(hello.String(), g.Drill) || !strings.HasSuffix(g.Drill, " drill --fault hang --to "+g.Clients+" --admin "+g.Admin) {
		t.Errorf("%+v", g)
	}
	address := d.Address()
	if address == taken.Addr().String() || !strings.Contains(hello.String(), address) {
		t.Errorf("serves on %s and says:\n%s", address, hello.String())
	}

	signals := make(chan os.Signal, 1)
	done := make(chan error, 1)
	go func() { done <- d.Serve(signals) }()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(testenv.Hang))
	r := bufio.NewReader(c)
	end := time.Now().Add(testenv.Hang)
	for i := range 50 {
		for line := ""; line != "STORED\r\n"; { // retried, because a server that gets no CPU fails
			fmt.Fprintf(c, "set key%d 0 0 5\r\nhello\r\n", i)
			if line, _ = r.ReadString('\n'); time.Now().After(end) {
				t.Fatalf("set: %q", line)
			}
		}
	}
	for values := 0; values != 10; {
		if time.Now().After(end) {
			t.Fatalf("%d of 10 values", values)
		}
		values = 0
		fmt.Fprint(c, "get key0 key1 key2 key3 key4 key5 key6 key7 key8 key9\r\n")
		for line := ""; line != "END\r\n"; {
			if line, err = r.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(line, "VALUE ") {
				values++
			}
		}
	}
	used := 0
	for _, n := range d.nodes {
		conn, err := net.Dial("tcp", n.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, "stats\r\nquit\r\n")
		b, _ := io.ReadAll(conn)
		if !strings.Contains(string(b), "STAT curr_items 0\r\n") {
			used++
		}
		conn.Close()
	}
	if used != 3 {
		t.Errorf("%d of 3 servers hold keys", used)
	}

	signals <- syscall.SIGINT
	if err := <-done; err != nil {
		t.Error(err)
	}
	d.Close()
	for _, a := range []string{address, d.AdminAddress(), d.nodes[0].Addr().String()} {
		if c, err := net.Dial("tcp", a); err == nil {
			c.Close()
			t.Errorf("%s still accepts", a)
		}
	}
}

// TestDemoTags checks the figures of the tags demo. Its timeouts are long, because it runs on busy machines.
func TestDemoTags(t *testing.T) {
	d := &Cluster{defaults: "defaults: {timeouts: {connect: 1m, request: 1m, deadline: 1m}}\n"}
	defer d.Close()
	if err := d.start("127.0.0.1:0", "127.0.0.1:0", "", slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	defer d.End()
	var out strings.Builder
	if err := showTags(d.Address(), &out, true); err != nil || out.String() != `{"stored":1000,"after_a_user_has_changed":900,"after_all_were_dropped":0}`+"\n" {
		t.Errorf("%v: %s", err, out.String())
	}
}
