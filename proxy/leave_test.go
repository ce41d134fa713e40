package proxy_test

// Tests of how much other work a loop does for a client that disconnects.

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"ringside/proxy/conversation"
	"ringside/proxy/link"
)

// TestLeaveInPieces disconnects a client that has the leases of many keys. The loop
// cancels them in pieces, so that another client's request is sent after a bounded
// number of deletes. In the end all leases are canceled, each once.
func TestLeaveInPieces(t *testing.T) {
	const misses, batch, most = 5000, 50, 512 // a read of 50 keys is sent in one piece
	s := conversation.New(t)
	s.Quiet, s.ShowOpaques = true, true
	s.Pool([]string{"main", "servers=s1", "queue=100000"})
	s.Line("route - main guard=wait:0s")
	s.Table.Limits.Tickets = misses
	s.Begin()
	hog, victim, srv := s.Endpoint("chog"), s.Endpoint("cvictim"), s.Endpoint("s1")
	for from := 0; from < misses; from += batch {
		get, replies := "get", ""
		for i := from; i < from+batch; i++ {
			get += fmt.Sprintf(" key%d:1", i)
			replies += fmt.Sprintf("VA 0 kkey%d:1 f0 c%d W\r\n\r\n", i, i+1)
		}
		s.Wakeup(func() { s.Engine.Bytes(hog.Link, []byte(get+"\r\n")) })
		s.Wakeup(func() { s.Engine.Bytes(srv.Link, []byte(replies)) })
	}
	if n := strings.Count(hog.Got.String(), "END\r\n"); n != misses/batch {
		t.Fatalf("%d of %d gets were answered", n, misses/batch)
	}
	srv.Got.Reset()
	s.Engine.Tune = link.Tune{} // otherwise requests wait for replies that are due
	deletes, due := 0, ""
	wakeup := func(f func()) { // as a driver does one; it counts the deletes, and adds the replies to due
		t.Helper()
		s.Engine.Begin(s.Now, conversation.Wall(s.Now))
		f()
		for _, x := range s.Engine.End() {
			if x.Kind == link.Write {
				s.Send(x.Link.Sock.(*conversation.Endpoint))
			}
		}
		n := 0
		for line := range strings.Lines(srv.Got.String()) {
			if strings.HasPrefix(line, "md ") {
				n++
				due += "HD" + line[strings.LastIndex(line, " O"):]
			} else {
				due += "VA 1 kmark:1 f0 c9\r\nv\r\n"
			}
		}
		srv.Got.Reset()
		if deletes += n; n > most {
			t.Fatalf("%d leases were canceled in one wakeup, want at most %d", n, most)
		}
	}
	wakeup(func() { s.Engine.Closed(hog.Link, errors.New("connection reset by peer")) })
	for s.Engine.Next() <= s.Now {
		replies := due
		due = ""
		wakeup(func() {
			s.Engine.Bytes(victim.Link, []byte("get mark:1\r\n"))
			if replies != "" {
				s.Engine.Bytes(srv.Link, []byte(replies))
			}
		})
		if !strings.Contains(due, "mark") {
			t.Fatal("the other client's get was not sent in this wakeup")
		}
	}
	if deletes != misses {
		t.Errorf("%d leases were canceled, want %d", deletes, misses)
	}
}
