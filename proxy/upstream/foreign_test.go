package upstream_test

// What is logged about a server that is not memcached.

import (
	"bytes"
	"strings"
	"testing"

	"ringside/proxy/conversation"
)

func TestForeignServerIsLoggedOnce(t *testing.T) {
	var logs bytes.Buffer
	s := conversation.New(t)
	s.Logs = &logs
	s.Play("foreign", `pool main servers=s1 get_errors=error
s1 silent
c1 > get a1
s1 < version
s1 < get a1
s1 > HTTP/1.1 400 Bad Request
s1 aborted
c1 < SERVER_ERROR server s1 is down: it sent an invalid reply to version
`)
	wait := "100ms"
	for _, next := range []string{"200ms", "400ms", "800ms"} {
		s.Play("foreign", "wait "+wait+"\ns1 < version\ns1 > HTTP/1.1 400 Bad Request\ns1 aborted\n")
		wait = next
	}
	// It is logged again after the server has answered as memcached in between.
	s.Play("foreign", "wait "+wait+"\ns1 < version\ns1 > VERSION 1.6.18\n")
	if want, got := uint64(4), s.Engine.Count.Desyncs; got != want {
		t.Errorf("%d tries counted, want %d", got, want)
	}
	s.Play("foreign", `s1 dies
s1 silent
c1 > get a1
s1 < version
s1 < get a1
s1 > HTTP/1.1 400 Bad Request
s1 aborted
c1 < SERVER_ERROR server s1 is down: it sent an invalid reply to version
`)
	s.Line("wait 10s") // repeated lines are delayed by up to ten seconds
	var got []string
	for line := range strings.Lines(logs.String()) {
		_, said, _ := strings.Cut(line, " level=")
		said, _, _ = strings.Cut(said, " address=")
		got = append(got, said)
	}
	want := []string{
		`ERROR msg="server connection closed: the server broke the protocol" server=s1`,
		`WARN msg="server down" server=s1`,
		`INFO msg="server up" server=s1`,
		`WARN msg="server down" server=s1`, // the waiting line
		`WARN msg="server down" server=s1`, // the reason is another one now
		`ERROR msg="server connection closed: the server broke the protocol" server=s1`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the log has:\n%s\nwant:\n%s\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"), logs.String())
	}
}
