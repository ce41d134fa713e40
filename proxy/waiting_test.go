package proxy_test

// Benchmarks of a request while many others wait: its cost must not depend on their
// number.

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ringside/proxy"
	"ringside/proxy/conversation"
	"ringside/proxy/link"
	"ringside/proxy/task"
	"ringside/replicate"
)

// crowd returns a harness for a benchmark.
func crowd(pool string) *conversation.Harness {
	s := conversation.New(&testing.T{})
	s.Quiet = true
	s.Pool(strings.Fields("main " + pool))
	s.SetLimits([]string{"in_flight=1000000"})
	return s
}

// ask sends a request and its reply, in one wakeup each.
func ask(s *conversation.Harness, c, srv *conversation.Endpoint, request, answer string) {
	s.Now++
	s.Wakeup(func() { s.Engine.Bytes(c.Link, []byte(request)) })
	s.Wakeup(func() { s.Engine.Bytes(srv.Link, []byte(answer)) })
	c.Got.Reset()
	srv.Got.Reset()
}

// BenchmarkParked measures a client that reads other keys while n of its writes wait
// for a server in phase LEAVING. It also measures these writes when a phase has
// changed: they resume, or wait again.
func BenchmarkParked(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		park := func() (*conversation.Harness, *conversation.Endpoint) {
			s := crowd("servers=s1,s2 failover=rehash wait=1h deadline=1h request=1h")
			s.Begin()
			c := s.Endpoint("c1")
			s.Wakeup(func() { s.Engine.Bytes(c.Link, []byte("get x2\r\n")) })
			ask(s, c, s.Endpoint("s2"), "", "END\r\n")
			s.SetPhase("s1", "LEAVING")
			var all strings.Builder
			for i := range n {
				fmt.Fprintf(&all, "set key%d-1 0 0 1\r\nx\r\n", i)
			}
			s.Wakeup(func() { s.Engine.Bytes(c.Link, []byte(all.String())) })
			if len(s.Engine.Parked) != n {
				b.Fatalf("%d are parked", len(s.Engine.Parked))
			}
			return s, c
		}
		b.Run(fmt.Sprintf("request/%d", n), func(b *testing.B) {
			s, c := park()
			srv := s.Endpoint("s2")
			for b.Loop() {
				ask(s, c, srv, "get x2\r\n", "END\r\n")
			}
		})
		for name, phase := range map[string]string{"unpark": "OUT", "park-again": "LEAVING"} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					s, _ := park()
					s.SetPhase("s1", phase)
					s.Now += task.ParkedLook
					b.StartTimer()
					s.Engine.Begin(s.Now, conversation.Wall(s.Now))
					s.Engine.Unpark()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/write")
			})
		}
	}
}

// BenchmarkLingering measures a client's requests to a server that has a lingering
// connection, on which other clients wait for late replies.
func BenchmarkLingering(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := crowd("servers=s1 request=500ms deadline=1h queue=1000000")
			s.Begin()
			c, other := s.Endpoint("c1"), s.Endpoint("c2")
			s.Wakeup(func() { s.Engine.Bytes(c.Link, []byte("get x1\r\n")) })
			ask(s, c, s.Endpoint("s1"), "", "END\r\n")
			s.Wakeup(func() { s.Engine.Bytes(c.Link, []byte("set x1 0 0 1\r\nx\r\n")) })
			s.Now += int64(400 * time.Millisecond)
			s.Wakeup(func() { s.Engine.Bytes(other.Link, []byte(strings.Repeat("get x1\r\n", n))) })
			s.Now += int64(100 * time.Millisecond)
			s.Wakeup(func() {})
			if len(s.Engine.Lingering) != 1 || s.Engine.Lingering[0].Length < n {
				b.Fatal("no connection lingers")
			}
			s.Wakeup(func() { s.Engine.Bytes(c.Link, []byte("get x1\r\n")) })
			for b.Loop() {
				ask(s, c, s.Endpoint("s1"), "get x1\r\n", "END\r\n")
			}
		})
	}
}

// BenchmarkFull measures a client's requests while limits.memory is reached by memory
// that can't be freed, with n other clients connected.
func BenchmarkFull(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := crowd("servers=s1")
			s.SetLimits([]string{"clients=1000000", "memory=1000000"})
			s.Begin()
			for i := range n {
				s.Endpoint(fmt.Sprint("c", i))
			}
			c := s.Endpoint("c0")
			s.Wakeup(func() { s.Engine.Bytes(c.Link, []byte("get x1\r\n")) })
			ask(s, c, s.Endpoint("s1"), "", "END\r\n")
			s.Wakeup(func() { s.Engine.Buffers.Held += 2_000_000 })
			for b.Loop() {
				s.Now += 1000
				s.Wakeup(func() {
					s.Engine.Buffers.Held++ // memory use changes all the time
					s.Engine.Bytes(c.Link, []byte("get x1\r\n"))
				})
				c.Got.Reset()
			}
		})
	}
}

// BenchmarkOwner measures the first step of every command on a replicated key: finding
// the loop that runs it. The loops call it concurrently.
func BenchmarkOwner(b *testing.B) {
	s := crowd("servers=s1")
	s.Begin()
	s.Proxy.NewEngine(link.DefaultTune)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for h := uint64(0); pb.Next(); h++ {
			if proxy.Loops(s.Proxy).Owner(h) == nil {
				b.Error("no owner")
			}
		}
	})
}

// BenchmarkCopies measures a command on a key with two replicas, by one client on one
// loop.
func BenchmarkCopies(b *testing.B) {
	for _, c := range []struct{ name, request, answer string }{
		{"get", "get x1\r\n", "VALUE x1 0 1\r\nx\r\nEND\r\n"},
		{"set", "set x1 0 0 1\r\nx\r\n", "STORED\r\n"},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := crowd("servers=s1,s2")
			s.Line("route - main copies=2")
			s.Routes[0].Copies = replicate.Policy{Copies: 2, Apart: replicate.Servers}
			s.Begin()
			for _, w := range s.Proxy.Agents() {
				w.View.Done(1, true)
			}
			client := s.Endpoint("c1")
			b.ReportAllocs()
			for b.Loop() {
				s.Now++
				s.Wakeup(func() { s.Engine.Bytes(client.Link, []byte(c.request)) })
				for _, name := range []string{"s1", "s2"} {
					a := s.Endpoint(name)
					for a.Link != nil && a.Got.Len() > 0 {
						answer := c.answer
						if strings.HasPrefix(a.Got.String(), "stats") {
							answer = "STAT pid 7\r\nSTAT uptime 100\r\nSTAT time 1000\r\nEND\r\n"
							a.Got.Next(len("stats\r\n"))
						} else {
							a.Got.Reset()
						}
						s.Wakeup(func() { s.Engine.Bytes(a.Link, []byte(answer)) })
					}
				}
				client.Got.Reset()
			}
		})
	}
}
