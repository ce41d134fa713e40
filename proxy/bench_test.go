package proxy_test

// Benchmarks of the engine alone, without sockets: time and allocations per request.

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ringside/proxy/conversation"
	"ringside/proxy/link"
)

// BenchmarkEngine sends a batch of requests from several clients through the engine,
// and the replies back, each in one wakeup.
func BenchmarkEngine(b *testing.B) {
	value := strings.Repeat("v", 100)
	const copied = "route - main copies=2 through"
	const tagRoute = "route - main tags=suffix,user:{id}:*>user:{id}+users"
	tagged := conversation.WithTags("HD c5\r\nHD c6\r\nVA 144 f1381192775 c7 kuser:1234:profile1\r\n[head 0 user:1234=5 users=6]") + value + "\r\n"
	tenMatches := ""
	for i := range 10 {
		tenMatches += fmt.Sprintf("route - main match=*:options%d;", i)
	}
	frame := func(text string) string { return string(new(conversation.Harness).Frame(text, false)) }
	for _, c := range []struct {
		name            string
		clients, depth  int
		request, answer string
		routes          string // in the syntax of conversations, separated by semicolons; empty: one route for all keys
	}{
		{"get/1x1", 1, 1, "get user:1234:profile1\r\n", "VALUE user:1234:profile1 0 100\r\n" + value + "\r\nEND\r\n", ""},
		{"get/50x1", 50, 1, "get user:1234:profile1\r\n", "VALUE user:1234:profile1 0 100\r\n" + value + "\r\nEND\r\n", ""},
		{"guarded/50x1", 50, 1, "get user:1234:profile1\r\n", "VA 100 f0 c7 kuser:1234:profile1\r\n" + value + "\r\n", "route - main guard="},
		{"guarded/50x16", 50, 16, "get user:1234:profile1\r\n", "VA 100 f0 c7 kuser:1234:profile1\r\n" + value + "\r\n", "route - main guard="},
		{"get/20x16", 20, 16, "get user:1234:profile1\r\n", "VALUE user:1234:profile1 0 100\r\n" + value + "\r\nEND\r\n", ""},
		{"get/50x16", 50, 16, "get user:1234:profile1\r\n", "VALUE user:1234:profile1 0 100\r\n" + value + "\r\nEND\r\n", ""},
		{"joined/50x16", 50, 16, "get user:1234:profile1\r\n", "VALUE user:1234:profile1 0 100\r\n" + value + "\r\n", ""},
		{"set/50x16", 50, 16, "set user:1234:profile1 0 0 100\r\n" + value + "\r\n", "STORED\r\n", ""},
		{"mg/50x16", 50, 16, "mg user:1234:profile1 v t Oabc\r\n", "VA 100 t-1 Oabc\r\n" + value + "\r\n", ""},
		{"ms/50x16", 50, 16, "ms user:1234:profile1 100 T90\r\n" + value + "\r\n", "HD\r\n", ""},
		{"multiget20/50x1", 50, 1, "get" + strings.Repeat(" user:1234:profile1", 20) + "\r\n",
			strings.Repeat("VALUE user:1234:profile1 0 100\r\n"+value+"\r\n", 20) + "END\r\n", ""},
		{"binary get/50x16", 50, 16, frame("get k=user:1234:profile1"), "VALUE user:1234:profile1 0 100 1234567\r\n" + value + "\r\nEND\r\n", ""},
		{"binary set/50x16", 50, 16, frame("set x=0,0 k=user:1234:profile1 v=" + value), "HD c1234567\r\n", ""},
		{"binary multiget20/50x1", 50, 1, strings.Repeat(frame("getkq k=user:1234:profile1"), 20) + frame("noop"),
			strings.Repeat("VALUE user:1234:profile1 0 100 1234567\r\n"+value+"\r\n", 20) + "END\r\n", ""},
		{"matched/50x16", 50, 16, "get user:1234:profile1\r\n", "VALUE user:1234:profile1 0 100\r\n" + value + "\r\nEND\r\n", "route - main match=*:alloptions;route - main"},
		{"matched-middle/50x16", 50, 16, "get user:1234:profile1\r\n", "VALUE user:1234:profile1 0 100\r\n" + value + "\r\nEND\r\n", "route - main match=user:*:alloptions:*;route - main"},
		{"matched10/50x16", 50, 16, "get user:1234:profile1\r\n", "VALUE user:1234:profile1 0 100\r\n" + value + "\r\nEND\r\n", tenMatches + "route - main"},
		{"copies get/50x1", 50, 1, "get user:1234:profile1\r\n", "VALUE user:1234:profile1 0 100\r\n" + value + "\r\nEND\r\n", copied},
		{"copies get/50x16", 50, 16, "get user:1234:profile1\r\n", "VALUE user:1234:profile1 0 100\r\n" + value + "\r\nEND\r\n", copied},
		{"copies set/50x1", 50, 1, "set user:1234:profile1 0 0 100\r\n" + value + "\r\n", "STORED\r\n", copied},
		{"tagged/50x1", 50, 1, "get user:1234:profile1\r\n", tagged, tagRoute},
		{"tagged/20x16", 20, 16, "get user:1234:profile1\r\n", tagged, tagRoute},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := &conversation.Harness{Now: int64(time.Hour), Endpoints: map[string]*conversation.Endpoint{}}
			s.T = &testing.T{}
			s.Blank()
			const perLine = (2000 - len("get\r\n")) / len(" user:1234:profile1") // see names.Line
			joined := strings.HasPrefix(c.name, "joined")
			all := []string{"s1"}
			if c.routes == copied {
				all = append(all, "s2")
			}
			s.Pool([]string{"main", "servers=" + strings.Join(all, ","), "gets=" + map[bool]string{true: "joined"}[joined]})
			for line := range strings.SplitSeq(c.routes, ";") {
				if line != "" {
					s.Line(line)
				}
			}
			s.Quiet = true
			s.Begin()
			var clients []*conversation.Endpoint
			for i := range c.clients {
				clients = append(clients, s.Endpoint(fmt.Sprintf("c%d", i)))
			}
			request := []byte(strings.Repeat(c.request, c.depth))
			answers := []byte(strings.Repeat(c.answer, c.depth*c.clients))
			if joined {
				answers = answers[:0]
				for i := range c.depth * c.clients {
					if i > 0 && i%perLine == 0 {
						answers = append(answers, "END\r\n"...)
					}
					answers = append(answers, c.answer...)
				}
				answers = append(answers, "END\r\n"...)
			}
			from := []*conversation.Endpoint{s.Endpoint("s1")}
			if c.routes == copied {
				from = bothCopies(s, c.request, c.answer)
			} else {
				s.Wakeup(func() { s.Engine.Bytes(s.Endpoint("cfirst").Link, []byte("get x1\r\n")) })
				s.Wakeup(func() {
					s.Engine.Bytes(from[0].Link, []byte(map[bool]string{true: "VA 1 f0 c1 kx1\r\nx\r\n", false: "END\r\n"}[strings.HasPrefix(c.answer, "VA ") && c.name[0] == 'g' || c.routes == tagRoute]))
				})
			}
			sends := 0 // system calls that send: each Write is one
			drain := func() {
				for effects := s.Engine.End(); len(effects) > 0; effects = s.Engine.End() {
					for _, x := range effects {
						if x.Kind == link.Write {
							sends++
							s.Engine.Wrote(x.Link, x.Link.Out.Size, false)
						}
					}
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				s.Now += int64(time.Microsecond)
				if c.name == "binary multiget20/50x1" {
					s.Engine.Watch.Left = 1 << 20 // a sampled request is sent alone, and would need its own reply
				}
				s.Engine.Begin(s.Now, conversation.Wall(s.Now))
				if strings.HasPrefix(c.name, "binary multiget") {
					s.Engine.Watch.Left = 1 << 20 // a sampled request is sent alone, and its reply has its own end
				}
				for i, a := range clients {
					if len(from) > 1 { // sets of one key run one after the other
						copy(request[len("set user:12"):], fmt.Sprintf("%02d", i))
					}
					s.Engine.Bytes(a.Link, request)
				}
				drain()
				s.Engine.Begin(s.Now, conversation.Wall(s.Now))
				for _, srv := range from {
					s.Engine.Bytes(srv.Link, answers)
				}
				drain()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(c.clients*c.depth), "ns/request")
			b.ReportMetric(float64(sends)/float64(b.N)/float64(c.clients*c.depth), "sends/request")
		})
	}
}

// bothCopies connects the servers s1 and s2, the replicas of the request's key. It
// returns the servers that such a request is sent to.
func bothCopies(s *conversation.Harness, request, answer string) (from []*conversation.Endpoint) {
	c, both := s.Endpoint("cfirst"), []*conversation.Endpoint{s.Endpoint("s1"), s.Endpoint("s2")}
	s.Wakeup(func() { s.Engine.Bytes(c.Link, []byte("set user:1234:profile1 0 0 1\r\nv\r\n")) })
	for _, srv := range both {
		s.Line(srv.Name + " runs 7")
		s.Line(srv.Name + " < set user:1234:profile1 0 0 1\\r\\nv")
		s.Line(srv.Name + " > STORED")
	}
	s.Wakeup(func() { s.Engine.Bytes(c.Link, []byte(request)) })
	for _, srv := range both {
		if srv.Got.Len() > 0 {
			from = append(from, srv)
			s.Wakeup(func() { s.Engine.Bytes(srv.Link, []byte(answer)) })
		}
	}
	return from
}

// TestTagsOneWrite checks that a get of a value with two known tags writes once to the
// connection of its server, and reads once from it. The replies are parsed as they
// arrive, and the last one completes the get.
func TestTagsOneWrite(t *testing.T) {
	s := &conversation.Harness{T: t, Now: int64(time.Hour), Endpoints: map[string]*conversation.Endpoint{}, Quiet: true}
	s.Blank()
	s.Pool([]string{"main", "servers=s1"})
	s.Line("route - main tags=suffix,user:{id}:*>user:{id}+users")
	s.Begin()
	c := s.Endpoint("c1")
	s.Wakeup(func() { s.Engine.Bytes(c.Link, []byte("get x1\r\n")) })
	srv := s.Endpoint("s1")
	s.Wakeup(func() { s.Engine.Bytes(srv.Link, []byte("VA 1 f0 c1 kx1\r\nx\r\n")) })
	writes := func(to *conversation.Endpoint, from *conversation.Endpoint, bytes string) (n int) {
		s.Now += int64(time.Microsecond)
		s.Engine.Begin(s.Now, conversation.Wall(s.Now))
		s.Engine.Bytes(from.Link, []byte(bytes))
		for effects := s.Engine.End(); len(effects) > 0; effects = s.Engine.End() {
			for _, x := range effects {
				if x.Kind != link.Write {
					continue
				}
				if x.Link != to.Link {
					t.Errorf("something else is written")
				}
				n++
				s.Engine.Wrote(x.Link, x.Link.Out.Size, false)
			}
		}
		return n
	}
	for range 3 {
		if n := writes(srv, c, "get user:1:a1\r\n"); n != 1 {
			t.Errorf("%d writes to the server, want one", n)
		}
		answer := conversation.WithTags("HD c5\r\nHD c6\r\nVA 45 f1381192775 c7 kuser:1:a1\r\n[head 0 user:1=5 users=6]v\r\n")
		if n := writes(c, srv, answer); n != 1 {
			t.Errorf("%d writes to the client behind one read, want one", n)
		}
	}
}
