package proxy

// What the engine alone costs, without a socket: ns and allocations a request.

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ringside/proxy/link"
	"ringside/proxy/table"
)

// BenchmarkEngine sends a batch of requests by so many clients through the
// engine and back in one wakeup each way.
func BenchmarkEngine(b *testing.B) {
	value := strings.Repeat("v", 100)
	frame := func(text string) string { return string(new(stage).frame(text, false)) }
	for _, c := range []struct {
		name            string
		clients, depth  int
		request, answer string
		match           string // of a route before the one that takes the keys; empty: there is none
	}{
		{"get/1x1", 1, 1, "get user:1234:profile1\r\n", "VALUE user:1234:profile1 0 100\r\n" + value + "\r\nEND\r\n", ""},
		{"get/50x1", 50, 1, "get user:1234:profile1\r\n", "VALUE user:1234:profile1 0 100\r\n" + value + "\r\nEND\r\n", ""},
		{"guarded/50x1", 50, 1, "get user:1234:profile1\r\n", "VA 100 kuser:1234:profile1 f0 c7\r\n" + value + "\r\n", ""},
		{"guarded/50x16", 50, 16, "get user:1234:profile1\r\n", "VA 100 kuser:1234:profile1 f0 c7\r\n" + value + "\r\n", ""},
		{"get/50x16", 50, 16, "get user:1234:profile1\r\n", "VALUE user:1234:profile1 0 100\r\n" + value + "\r\nEND\r\n", ""},
		{"set/50x16", 50, 16, "set user:1234:profile1 0 0 100\r\n" + value + "\r\n", "STORED\r\n", ""},
		{"mg/50x16", 50, 16, "mg user:1234:profile1 v t Oabc\r\n", "VA 100 t-1 Oabc\r\n" + value + "\r\n", ""},
		{"ms/50x16", 50, 16, "ms user:1234:profile1 100 T90\r\n" + value + "\r\n", "HD\r\n", ""},
		{"multiget20/50x1", 50, 1, "get" + strings.Repeat(" user:1234:profile1", 20) + "\r\n",
			strings.Repeat("VALUE user:1234:profile1 0 100\r\n"+value+"\r\n", 20) + "END\r\n", ""},
		{"binary get/50x16", 50, 16, frame("get k=user:1234:profile1"), "VALUE user:1234:profile1 0 100 1234567\r\n" + value + "\r\nEND\r\n", ""},
		{"binary set/50x16", 50, 16, frame("set x=0,0 k=user:1234:profile1 v=" + value), "HD c1234567\r\n", ""},
		{"binary multiget20/50x1", 50, 1, strings.Repeat(frame("getkq k=user:1234:profile1"), 20) + frame("noop"),
			strings.Repeat("VALUE user:1234:profile1 0 100 1234567\r\n"+value+"\r\n", 20) + "END\r\n", ""},
		{"matched/50x16", 50, 16, "get user:1234:profile1\r\n", "VALUE user:1234:profile1 0 100\r\n" + value + "\r\nEND\r\n", "*:alloptions"},
		{"matched-middle/50x16", 50, 16, "get user:1234:profile1\r\n", "VALUE user:1234:profile1 0 100\r\n" + value + "\r\nEND\r\n", "user:*:alloptions:*"},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := &stage{now: int64(time.Hour), actors: map[string]*actor{}}
			s.t = &testing.T{}
			s.blank()
			s.pool([]string{"main", "servers=s1"})
			if c.match != "" {
				s.routes = append(s.routes, table.Route{Match: c.match, Pool: s.pools["main"]}, table.Route{Pool: s.pools["main"]})
			}
			if strings.HasPrefix(c.name, "guarded") {
				s.line("route - main guard=")
			}
			s.quiet = true
			s.begin()
			var clients []*actor
			for i := range c.clients {
				clients = append(clients, s.actor(fmt.Sprintf("c%d", i)))
			}
			request := []byte(strings.Repeat(c.request, c.depth))
			answers := []byte(strings.Repeat(c.answer, c.depth*c.clients))
			s.wakeup(func() { s.e.Bytes(s.actor("cfirst").link, []byte("get x1\r\n")) })
			srv := s.actor("s1")
			s.wakeup(func() {
				s.e.Bytes(srv.link, []byte(map[bool]string{true: "VA 1 kx1 f0 c1\r\nx\r\n", false: "END\r\n"}[strings.HasPrefix(c.name, "guarded")]))
			})
			drain := func() {
				for effects := s.e.End(); len(effects) > 0; effects = s.e.End() {
					for _, x := range effects {
						if x.Kind == link.Write {
							s.e.Wrote(x.Link, x.Link.Out.Size, false)
						}
					}
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				s.now += int64(time.Microsecond)
				s.e.Begin(s.now)
				for _, a := range clients {
					s.e.Bytes(a.link, request)
				}
				drain()
				s.e.Begin(s.now)
				s.e.Bytes(srv.link, answers)
				drain()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(c.clients*c.depth), "ns/request")
		})
	}
}
