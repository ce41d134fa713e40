package proxy

// What a request costs while many others wait: it must not depend on how many.

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ringside/proxy/link"
	"ringside/proxy/task"
	"ringside/replicate"
)

// crowd is a stage for a benchmark.
func crowd(pool string) *stage {
	s := newStage(&testing.T{})
	s.quiet = true
	s.pool(strings.Fields("main " + pool))
	s.limits([]string{"in_flight=1000000"})
	return s
}

// ask is a request and its answer, in a wakeup each.
func (s *stage) ask(c, srv *actor, request, answer string) {
	s.now++
	s.wakeup(func() { s.e.Bytes(c.link, []byte(request)) })
	s.wakeup(func() { s.e.Bytes(srv.link, []byte(answer)) })
	c.got.Reset()
	srv.got.Reset()
}

// BenchmarkParked is a client that reads other keys while so many of its writes
// wait for a server that is being left; and these writes going on, or waiting
// again, when a phase has changed.
func BenchmarkParked(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		park := func() (*stage, *actor) {
			s := crowd("servers=s1,s2 failover=rehash wait=1h deadline=1h request=1h")
			s.begin()
			c := s.actor("c1")
			s.wakeup(func() { s.e.Bytes(c.link, []byte("get x2\r\n")) })
			s.ask(c, s.actor("s2"), "", "END\r\n")
			s.becomes("s1", "LEAVING")
			var all strings.Builder
			for i := range n {
				fmt.Fprintf(&all, "set key%d-1 0 0 1\r\nx\r\n", i)
			}
			s.wakeup(func() { s.e.Bytes(c.link, []byte(all.String())) })
			if len(s.e.Parked) != n {
				b.Fatalf("%d are parked", len(s.e.Parked))
			}
			return s, c
		}
		b.Run(fmt.Sprintf("request/%d", n), func(b *testing.B) {
			s, c := park()
			srv := s.actor("s2")
			for b.Loop() {
				s.ask(c, srv, "get x2\r\n", "END\r\n")
			}
		})
		for name, phase := range map[string]string{"unpark": "OUT", "park-again": "LEAVING"} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					s, _ := park()
					s.becomes("s1", phase)
					s.now += task.ParkedLook
					b.StartTimer()
					s.e.Begin(s.now, wall(s.now))
					s.e.Unpark()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/write")
			})
		}
	}
}

// BenchmarkHedged is so many reads of which each is hedged when its own time
// has come.
func BenchmarkHedged(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				s := crowd("servers=s1,s2 deadline=1h request=1h queue=1000000")
				s.line("route - main copies=2")
				s.routes[0].Copies.Hedge = time.Second
				s.begin()
				for _, w := range s.p.published.Load().Agents {
					w.View.Done(1, true)
				}
				c := s.actor("c1")
				for range n {
					s.now++
					s.e.Begin(s.now, wall(s.now))
					s.e.Bytes(c.link, []byte("get x1\r\n"))
				}
				b.StartTimer()
				for fired := 0; fired < n; fired++ {
					s.now = s.e.Later[0].At
					s.e.Begin(s.now, wall(s.now))
					s.e.FireTimers()
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/hedge")
		})
	}
}

// BenchmarkLingering is a client's requests to a server one of whose
// connections lingers for late answers, for which others wait.
func BenchmarkLingering(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := crowd("servers=s1 request=500ms deadline=1h queue=1000000")
			s.begin()
			c, other := s.actor("c1"), s.actor("c2")
			s.wakeup(func() { s.e.Bytes(c.link, []byte("get x1\r\n")) })
			s.ask(c, s.actor("s1"), "", "END\r\n")
			s.wakeup(func() { s.e.Bytes(c.link, []byte("set x1 0 0 1\r\nx\r\n")) })
			s.now += int64(400 * time.Millisecond)
			s.wakeup(func() { s.e.Bytes(other.link, []byte(strings.Repeat("get x1\r\n", n))) })
			s.now += int64(100 * time.Millisecond)
			s.wakeup(func() {})
			if len(s.e.Lingering) != 1 || s.e.Lingering[0].Length < n {
				b.Fatal("no connection lingers")
			}
			s.wakeup(func() { s.e.Bytes(c.link, []byte("get x1\r\n")) })
			for b.Loop() {
				s.ask(c, s.actor("s1"), "get x1\r\n", "END\r\n")
			}
		})
	}
}

// BenchmarkFull is a client's requests while limits.memory is reached by what
// nobody can give up, and so many other clients are there.
func BenchmarkFull(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := crowd("servers=s1")
			s.limits([]string{"clients=1000000", "memory=1000000"})
			s.begin()
			for i := range n {
				s.actor(fmt.Sprint("c", i))
			}
			c := s.actor("c0")
			s.wakeup(func() { s.e.Bytes(c.link, []byte("get x1\r\n")) })
			s.ask(c, s.actor("s1"), "", "END\r\n")
			s.wakeup(func() { s.e.Buffers.Held += 2_000_000 })
			for b.Loop() {
				s.now += 1000
				s.wakeup(func() {
					s.e.Buffers.Held++ // something is taken all the time
					s.e.Bytes(c.link, []byte("get x1\r\n"))
				})
				c.got.Reset()
			}
		})
	}
}

// BenchmarkOwner is what every command on copies asks first: which loop leads
// it. The loops ask at the same time.
func BenchmarkOwner(b *testing.B) {
	s := crowd("servers=s1")
	s.begin()
	s.p.NewEngine(link.DefaultTune)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for h := uint64(0); pb.Next(); h++ {
			if (loops{s.p}).Owner(h) == nil {
				b.Error("no owner")
			}
		}
	})
}

// BenchmarkCopies is a command on two copies, by one client and one loop.
func BenchmarkCopies(b *testing.B) {
	for _, c := range []struct{ name, request, answer string }{
		{"get", "get x1\r\n", "VALUE x1 0 1\r\nx\r\nEND\r\n"},
		{"set", "set x1 0 0 1\r\nx\r\n", "STORED\r\n"},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := crowd("servers=s1,s2")
			s.line("route - main copies=2")
			s.routes[0].Copies = replicate.Policy{Copies: 2, Apart: replicate.Servers}
			s.begin()
			for _, w := range s.p.published.Load().Agents {
				w.View.Done(1, true)
			}
			client := s.actor("c1")
			b.ReportAllocs()
			for b.Loop() {
				s.now++
				s.wakeup(func() { s.e.Bytes(client.link, []byte(c.request)) })
				for _, name := range []string{"s1", "s2"} {
					a := s.actor(name)
					for a.link != nil && a.got.Len() > 0 {
						answer := c.answer
						if strings.HasPrefix(a.got.String(), "stats") {
							answer = "STAT pid 7\r\nSTAT uptime 100\r\nSTAT time 1000\r\nEND\r\n"
							a.got.Next(len("stats\r\n"))
						} else {
							a.got.Reset()
						}
						s.wakeup(func() { s.e.Bytes(a.link, []byte(answer)) })
					}
				}
				client.got.Reset()
			}
		})
	}
}
