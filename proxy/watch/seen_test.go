package watch_test

// Sampling of keys: each request is counted once, with its outcome.

import (
	"fmt"
	"strings"
	"testing"

	"ringside/proxy/conversation"
	"ringside/proxy/watch"
)

// TestWatched sends commands of all kinds, samples each of them, and checks what was recorded:
// the key as clients know it, reads, hits and bytes.
func TestWatched(t *testing.T) {
	value := strings.Repeat("v", 100)
	for _, c := range []struct {
		name, more       string // a line of the conversation
		request, answers string
		want             string // key: requests, reads, hits, bytes
	}{
		{"get", "", "get a1\r\n", "VALUE a1 0 100\r\n" + value + "\r\nEND\r\n", "a1 1 1 1 100"},
		{"miss", "", "get a1\r\n", "END\r\n", "a1 1 1 0 0"},
		{"error", "", "get a1\r\n", "SERVER_ERROR out of memory\r\n", "a1 1 1 0 0"},
		{"multi-get", "", "get a1 b1 a1 c1\r\n", "VALUE a1 0 100\r\n" + value + "\r\nVALUE c1 0 1\r\nx\r\nEND\r\n", "a1 2 2 1 100, b1 1 1 0 0, c1 1 1 1 1"},
		{"large", "", "get a1\r\n", "VALUE a1 0 70000\r\n" + strings.Repeat("v", 70000) + "\r\nEND\r\n", "a1 1 1 1 70000"},
		{"set", "", "set a1 0 0 3\r\nabc\r\n", "STORED\r\n", "a1 1 0 0 19"},
		{"delete", "", "delete a1\r\n", "DELETED\r\n", "a1 1 0 0 11"},
		{"mg", "", "mg a1 v\r\n", "VA 3\r\nabc\r\n", "a1 1 1 1 3"},
		{"mg without value", "", "mg a1 s\r\n", "HD s3\r\n", "a1 1 1 1 0"},
		{"mg miss", "", "mg a1 v\r\n", "EN\r\n", "a1 1 1 0 0"},
		{"mg base64", "", "mg YTE= b v\r\n", "VA 3\r\nabc\r\n", "a1 1 1 1 3"},
		{"strip", "route a: main strip", "get a:x1 a:y1\r\n", "VALUE y1 0 3\r\nabc\r\nEND\r\n", "a:x1 1 1 0 0, a:y1 1 1 1 3"},
		{"guarded", "route - main guard=", "get a1\r\n", "VA 3 ka1 f0 c7 t-1\r\nabc\r\n", "a1 1 1 1 3"},
		{"prefix", "", "get user:a1 user:b1 x1\r\n", "VALUE user:b1 0 3\r\nabc\r\nEND\r\n", "user:a1 1 1 0 0, user:b1 1 1 1 3, x1 1 1 0 0; user: 2 2 1 3,  1 1 0 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := conversation.New(t)
			s.Pool([]string{"main", "servers=s1"})
			if c.more != "" {
				s.Line(c.more)
			}
			s.Begin()
			s.Engine.Watch.Left = 0
			client := s.Endpoint("c1")
			s.Wakeup(func() { s.Engine.Bytes(client.Link, []byte(c.request)) })
			srv := s.Endpoint("s1")
			if srv.Link == nil {
				t.Fatalf("no server was asked; the client has got %q", client.Got.String())
			}
			for _, b := range []string{c.answers[:len(c.answers)/2], c.answers[len(c.answers)/2:]} {
				s.Wakeup(func() { s.Engine.Bytes(srv.Link, []byte(b)) })
			}
			var is watch.Report
			s.Engine.Watch.AddTo(&is, s.Now)
			if client.Got.Len() == 0 {
				t.Fatal("the client has got nothing")
			}
			got := rows(is.Keys)
			if strings.Contains(c.want, ";") {
				got += "; " + rows(is.Prefixes)
			}
			if got != c.want {
				t.Errorf("seen: %s\nwant: %s", got, c.want)
			}
		})
	}
}

func rows(list []watch.Row) string {
	var all []string
	for _, r := range list {
		all = append(all, fmt.Sprint(r.Key, " ", r.Requests, " ", r.Reads, " ", r.Hits, " ", r.Bytes))
	}
	return strings.Join(all, ", ")
}

// TestWatchedTasks is TestWatched for commands of several requests: each is counted once.
func TestWatchedTasks(t *testing.T) {
	s := conversation.New(t)
	s.Pool([]string{"main", "servers=s1,s2"})
	s.Line("route - main copies=2")
	s.Begin()
	s.Engine.Watch.Left = 0
	client := s.Endpoint("c1")
	s.Wakeup(func() { s.Engine.Bytes(client.Link, []byte("set a1 0 0 3\r\nabc\r\n")) })
	for range 4 {
		for _, name := range []string{"s1", "s2"} {
			if a := s.Endpoints[name]; a != nil && a.Got.Len() > 0 && a.Link != nil {
				t.Logf("%s got %q", name, a.Got.String())
				a.Got.Reset()
				s.Wakeup(func() { s.Engine.Bytes(a.Link, []byte("HD\r\n")) })
			}
		}
	}
	var is watch.Report
	s.Engine.Watch.AddTo(&is, s.Now)
	if got := rows(is.Keys); got != "a1 1 0 0 19" && got != "a1 1 0 0 20" {
		t.Errorf("seen: %q", got)
	}
}
