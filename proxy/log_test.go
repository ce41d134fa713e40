package proxy_test

// Tests of log lines that a server or client can trigger at any rate.

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ringside/internal/testenv"
	"ringside/proxy/conversation"
	"ringside/proxy/link"
)

// TestBrokenProtocol checks a server that breaks the protocol with every reply. It gets
// one log line in ten seconds and is retried at growing intervals, although its
// greeting is correct.
func TestBrokenProtocol(t *testing.T) {
	var logs bytes.Buffer
	s := conversation.New(t)
	s.Logs = &logs
	s.Pool([]string{"main", "servers=s1", "get_errors=error"})
	s.Begin()
	c := s.Endpoint("c1")
	for range 3000 { // thirty seconds
		c.Got.Reset()
		s.Wakeup(func() { s.Engine.Bytes(c.Link, []byte("get a1\r\n")) })
		if srv := s.Endpoints["s1"]; srv != nil && srv.Link != nil && strings.HasSuffix(srv.Got.String(), "get a1\r\n") {
			srv.Got.Reset()
			s.Wakeup(func() { s.Engine.Bytes(srv.Link, []byte("nonsense\r\n")) })
		}
		s.Line("wait 10ms")
	}
	c.Got.Reset()
	if n := s.Engine.Count.Desyncs; n < 6 || n > 45 {
		t.Errorf("it broke the protocol %d times in 30 seconds; a server that refuses connections is tried about 33 times", n)
	}
	for _, what := range []string{"the server broke the protocol", "server down", "server up"} {
		if n := strings.Count(logs.String(), what); n < 3 || n > 4 {
			t.Errorf("%d lines say %q, want one in ten seconds", n, what)
		}
	}
	if !strings.Contains(logs.String(), " count=") {
		t.Error("no line says how many it stands for")
	}
}

// TestNewReason checks that the log and errors have the new reason of a server that is down already, and
// that the same reason is logged once.
func TestNewReason(t *testing.T) {
	var logs bytes.Buffer
	s := conversation.New(t)
	s.Logs = &logs
	s.Pool([]string{"main", "servers=s1", "auth=app:s3cret", "get_errors=error"})
	s.Line("s1 refuses")
	s.Begin()
	const rejects = "it rejects the login of user app: CLIENT_ERROR authentication failure"
	for _, line := range []string{
		"c1 > get a1", `c1 < SERVER_ERROR server s1 is down: connection refused`,
		"s1 accepts", "wait 100ms", `s1 < set auth x x 10\r\napp s3cret`, "s1 > CLIENT_ERROR authentication failure", "s1 aborted",
		"c1 > get a1", "c1 < SERVER_ERROR server s1 is down: " + rejects,
		"wait 200ms", `s1 < set auth x x 10\r\napp s3cret`, "s1 > CLIENT_ERROR authentication failure", "s1 aborted",
	} {
		s.Line(line)
	}
	for _, why := range []string{"why=\"connection refused\"", "why=\"" + rejects + "\""} {
		if n := strings.Count(logs.String(), "msg=\"server down\" server=s1 address=s1 "+why); n != 1 {
			t.Errorf("%d lines with %s in\n%s", n, why, logs.String())
		}
	}
}

// logging returns a harness with the server s1. The function said returns the lines of its log since the last
// call.
func logging(t *testing.T) (s *conversation.Harness, said func() []string) {
	var logs bytes.Buffer
	s = conversation.New(t)
	s.Logs = &logs
	s.Pool([]string{"main", "servers=s1"})
	s.Begin()
	return s, func() (list []string) {
		for line := range strings.Lines(logs.String()) {
			_, text, _ := strings.Cut(line, "msg=")
			list = append(list, strings.TrimSpace(text))
		}
		logs.Reset()
		return list
	}
}

// TestOtherProcess checks that the log says at once that another process answers, and that its uptime does not prove another memcached:
// memcached -e goes on with the uptime of its former process.
func TestOtherProcess(t *testing.T) {
	var logs bytes.Buffer
	s := conversation.New(t)
	s.Logs = &logs
	for _, line := range []string{
		"pool main servers=s1,s2", "route - main copies=2 through repair=0", "s1 runs 7", "s2 runs 8",
		"s1 dies", "s1 refuses", "wait 1s", "s1 accepts", "wait 500ms", "s1 < stats", `s1 > STAT pid 8\r\nSTAT uptime 100\r\nSTAT time 17000\r\nEND`, "wait 1s",
	} {
		s.Line(line)
	}
	const want = `msg="server down" server=s1 address=s1 why="another memcached process answers at its address; its uptime of 1m40s includes that of the former process if it was restarted with its memory (-e)"`
	if !strings.Contains(logs.String(), want) {
		t.Errorf("%s is missing in\n%s", want, logs.String())
	}
}

// TestLogLimited checks that the first line is written at once. Of the lines in the
// next ten seconds only the last is written, in their original order. Lines of other
// servers are not delayed.
func TestLogLimited(t *testing.T) {
	s, said := logging(t)
	for i := range 5 {
		for _, of := range []string{"a", "b"} {
			s.Wakeup(func() { s.Engine.LogLimited(0, of, "broken", "server", of, "n", i) })
		}
		s.Line("wait 100ms")
	}
	s.Line("wait 9s")
	if got, want := fmt.Sprint(said()), "[broken server=a n=0 broken server=b n=0]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	s.Line("wait 2s")
	if got, want := fmt.Sprint(said()), "[broken server=a n=4 count=4 broken server=b n=4 count=4]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestLogOrder checks that the first lines about orders are written at once, so that the log has each
// order of a person. In a flood, each ten seconds have one line. The last lines of a server show its state.
func TestLogOrder(t *testing.T) {
	s, said := logging(t)
	order := func(n int, what string) {
		s.Wakeup(func() { s.Engine.LogOrder(0, "s1", what, "n", n) })
	}
	check := func(want ...string) {
		t.Helper()
		if got := said(); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for n := range 2 {
		order(n, "drained")
		order(n, "restored")
	}
	check("drained n=0", "restored n=0", "drained n=1", "restored n=1")
	for n := range 3000 {
		order(n, "drained")
		s.Line("wait 10ms")
	}
	if got := said(); len(got) != 3+3 {
		t.Errorf("30 seconds of orders: %q", got)
	}
	order(3000, "drained")
	order(3000, "restored") // in another kind of line, which is not limited yet: the drain must not follow it
	if got := said(); len(got) != 2 || !strings.HasPrefix(got[0], "drained n=3000") || got[1] != "restored n=3000" {
		t.Errorf("the last orders: %q", got)
	}
	s.Line("wait 21s")
	check()
	for n := range 5 {
		order(n, "drained")
	}
	check("drained n=0", "drained n=1", "drained n=2", "drained n=3", "drained n=4")
}

// TestLimitedLog checks that lines outside of loops are limited, too, and that the last one is written when its
// time has come.
func TestLimitedLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logs testenv.Output
		l := link.LimitedLog{Log: slog.New(slog.NewTextHandler(&logs, nil))}
		check := func(after time.Duration, want ...string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			var got []string
			for line := range strings.Lines(logs.String()) {
				_, text, _ := strings.Cut(line, "msg=")
				got = append(got, strings.TrimSpace(text))
			}
			if logs.Reset(); !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		}
		for n := range 100 {
			l.LogLimited(slog.LevelInfo, "s1", "down", "n", n)
			l.LogOrder(slog.LevelInfo, "s2", "drained", "n", n)
		}
		check(9*time.Second, "down n=0", "drained n=0", "drained n=1", "drained n=2", "drained n=3", "drained n=4")
		check(time.Second, "down n=99 count=99", "drained n=99 count=95")
		check(time.Minute)
		l.LogLimited(slog.LevelInfo, "s1", "down")
		l.LogLimited(slog.LevelInfo, "s1", "down")
		check(0, "down")
		l.End()
		check(0, "down")
	})
}

// TestLogErrorsOfReads checks that the log shows the text of a server's SERVER_ERROR to
// any kind of read, at most once in ten seconds. This includes reads for which the
// client gets a miss.
func TestLogErrorsOfReads(t *testing.T) {
	for _, test := range []struct{ name, pool, route, asks, sent, answer string }{
		{"get", "", "", `c1 > get k1`, "s1 < get k1", "c1 < END"},
		{"get in the order of the request", "ordered=true", "", `c1 > get k1 l1`, "s1 < get k1 l1", "c1 < END"},
		{"mg", "", "", `c1 > mg k1 v`, "s1 < mg k1 v", "c1 < EN"},
		{"a frame", "", "", `c1 >f get k=k1`, "s1 < gets k1", `c1 <f get status=1 v=Not\x20found`},
		{"gat", "", "", `c1 > gat 60 k1`, "s1 < gat 60 k1", "c1 < END"},
		{"a task", "", "autocreate=10:60", `c1 > get k1`, "s1 < get k1", "c1 < END"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var logs bytes.Buffer
			s := conversation.New(t)
			s.Logs = &logs
			s.Line(strings.TrimSpace("pool main servers=s1 " + test.pool))
			if test.route != "" {
				s.Line("route - main " + test.route)
			}
			const line = `msg="server replied to a read with an error" server=s1 error="SERVER_ERROR out of memory"`
			ask := func() {
				s.Line(test.asks)
				s.Line(test.sent)
				s.Line("s1 > SERVER_ERROR out of memory")
				s.Line(test.answer)
			}
			ask()
			if n := strings.Count(logs.String(), line); n != 1 {
				t.Errorf("%d lines:\n%s", n, logs.String())
			}
			ask()
			ask()
			s.Line("wait 11s")
			if !strings.HasSuffix(strings.TrimSpace(logs.String()), line+" count=2") {
				t.Errorf("the line that stands for two is missing:\n%s", logs.String())
			}
		})
	}
}

// TestLogInOrder checks that a delayed line is written before a later one of its group,
// so that the log ends with the current state.
func TestLogInOrder(t *testing.T) {
	s, said := logging(t)
	say := func(to string) {
		s.Wakeup(func() { s.Engine.LogInOrder(0, "s1", "s1 "+to, "failover", "to", to) })
	}
	say("IN")
	s.Line("wait 8s")
	say("SETTLE")
	s.Line("wait 1s")
	say("SETTLE") // delayed until the 18th second
	s.Line("wait 2s")
	say("IN") // the 11th second
	s.Line("wait 20s")
	if got, want := strings.Join(said(), ","), "failover to=IN,failover to=SETTLE,failover to=SETTLE,failover to=IN"; got != want {
		t.Errorf("logged %s, want %s", got, want)
	}
}
