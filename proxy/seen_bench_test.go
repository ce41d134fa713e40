package proxy_test

// Benchmarks of observing keys: the sketches of hot keys, the book of misses, and
// traces.

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"ringside/proxy/conversation"
	"ringside/proxy/link"
	"ringside/proxy/watch"
)

// BenchmarkSeen sends requests for 800 keys, 80,000 per second of the clock that it
// moves. One in ten is a get that misses, one in ten is the set after it, and the rest
// are hits. It runs with several kinds of observation.
func BenchmarkSeen(b *testing.B) {
	for _, c := range []struct {
		name    string
		misses  bool
		follows watch.Pattern
		taken   bool // the events are collected four times a second
	}{
		{name: "no misses"},
		{name: "misses", misses: true}, // the default of the configuration
		{name: "trace of others", misses: true, follows: "home:*"},
		{name: "trace of one in a hundred", misses: true, follows: "user:??00:*", taken: true},
		{name: "trace of all", misses: true, follows: "user:*", taken: true},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := &conversation.Harness{Now: int64(time.Hour), Endpoints: map[string]*conversation.Endpoint{}, T: &testing.T{}, Quiet: true}
			s.Blank()
			s.Pool([]string{"main", "servers=s1"})
			s.Table.Misses = c.misses
			s.Begin()
			const clients, depth = 50, 16
			requests, value := make([][]byte, clients), strings.Repeat("v", 100)
			var answers bytes.Buffer
			var from []*conversation.Endpoint
			for i := range clients {
				from = append(from, s.Endpoint(fmt.Sprint("c", i)))
				for j := range depth {
					n := i*depth + j
					key := fmt.Sprintf("user:%04d:profile1", n)
					switch n % 10 {
					case 3:
						requests[i] = fmt.Appendf(requests[i], "get %s\r\n", key)
						answers.WriteString("END\r\n")
					case 4: // key of the previous request
						requests[i] = fmt.Appendf(requests[i], "set user:%04d:profile1 0 0 100\r\n%s\r\n", n-1, value)
						answers.WriteString("STORED\r\n")
					default:
						requests[i] = fmt.Appendf(requests[i], "get %s\r\n", key)
						fmt.Fprintf(&answers, "VALUE %s 0 100\r\n%s\r\nEND\r\n", key, value)
					}
				}
			}
			s.Wakeup(func() { s.Engine.Bytes(s.Endpoint("cfirst").Link, []byte("get x1\r\n")) })
			srv := s.Endpoint("s1")
			s.Wakeup(func() { s.Engine.Bytes(srv.Link, []byte("END\r\n")) })
			s.Engine.Watch.Left = 0
			if c.follows != "" {
				s.Engine.Watch.Follow([]watch.Pattern{c.follows})
			}
			drain := func() {
				for effects := s.Engine.End(); len(effects) > 0; effects = s.Engine.End() {
					for _, x := range effects {
						if x.Kind == link.Write {
							s.Engine.Wrote(x.Link, x.Link.Out.Size, false)
						}
					}
				}
			}
			wakeups := 0
			turn := func() {
				s.Now += int64(10 * time.Millisecond)
				s.Engine.Begin(s.Now, conversation.Wall(s.Now))
				for i, a := range from {
					s.Engine.Bytes(a.Link, requests[i])
				}
				drain()
				s.Engine.Begin(s.Now, conversation.Wall(s.Now))
				s.Engine.Bytes(srv.Link, answers.Bytes())
				drain()
				if wakeups++; c.taken && wakeups%25 == 0 {
					s.Engine.Watch.Take(s.Now)
				}
			}
			for range 250 { // until the key rate is known and fewer keys are sampled
				turn()
			}
			b.ReportAllocs()
			for b.Loop() {
				turn()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(clients*depth), "ns/request")
		})
	}
}
