package proxy

// What it costs to see keys: the sketches of hot keys, the book of misses, traces.

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"ringside/proxy/link"
	"ringside/proxy/watch"
)

// BenchmarkSeen sends gets of 800 keys, 80,000 a second by the clock that it moves, of which
// one in ten misses, and one in ten is a set behind that, and looks at them in one way or another.
func BenchmarkSeen(b *testing.B) {
	for _, c := range []struct {
		name        string
		hot, misses bool
		follows     watch.Pattern
		taken       bool // the events are taken, four times a second
	}{
		{name: "nothing"},
		{name: "hot", hot: true},
		{name: "misses", misses: true},
		{name: "hot and misses", hot: true, misses: true}, // as it is unless the file says otherwise
		{name: "trace of others", hot: true, misses: true, follows: "home:*"},
		{name: "trace of one in a hundred", hot: true, misses: true, follows: "user:??00:*", taken: true},
		{name: "trace of all", hot: true, misses: true, follows: "user:*", taken: true},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := &stage{now: int64(time.Hour), actors: map[string]*actor{}, t: &testing.T{}, quiet: true}
			s.blank()
			s.pool([]string{"main", "servers=s1"})
			s.table.Misses, s.table.NoHotKeys = c.misses, !c.hot
			s.begin()
			const clients, depth = 50, 16
			requests, value := make([][]byte, clients), strings.Repeat("v", 100)
			var answers bytes.Buffer
			var from []*actor
			for i := range clients {
				from = append(from, s.actor(fmt.Sprint("c", i)))
				for j := range depth {
					n := i*depth + j
					key := fmt.Sprintf("user:%04d:profile1", n)
					switch n % 10 {
					case 3:
						requests[i] = fmt.Appendf(requests[i], "get %s\r\n", key)
						answers.WriteString("END\r\n")
					case 4: // of the key before
						requests[i] = fmt.Appendf(requests[i], "set user:%04d:profile1 0 0 100\r\n%s\r\n", n-1, value)
						answers.WriteString("STORED\r\n")
					default:
						requests[i] = fmt.Appendf(requests[i], "get %s\r\n", key)
						fmt.Fprintf(&answers, "VALUE %s 0 100\r\n%s\r\nEND\r\n", key, value)
					}
				}
			}
			s.wakeup(func() { s.e.Bytes(s.actor("cfirst").link, []byte("get x1\r\n")) })
			srv := s.actor("s1")
			s.wakeup(func() { s.e.Bytes(srv.link, []byte("END\r\n")) })
			s.e.Watch.Switch(c.hot)
			if s.e.Watch.Left = 0; !c.hot {
				s.e.Watch.Left = 1 << 40
			}
			if c.follows != "" {
				s.e.Watch.Follow([]watch.Pattern{c.follows})
			}
			drain := func() {
				for effects := s.e.End(); len(effects) > 0; effects = s.e.End() {
					for _, x := range effects {
						if x.Kind == link.Write {
							s.e.Wrote(x.Link, x.Link.Out.Size, false)
						}
					}
				}
			}
			wakeups := 0
			turn := func() {
				s.now += int64(10 * time.Millisecond)
				s.e.Begin(s.now, wall(s.now))
				for i, a := range from {
					s.e.Bytes(a.link, requests[i])
				}
				drain()
				s.e.Begin(s.now, wall(s.now))
				s.e.Bytes(srv.link, answers.Bytes())
				drain()
				if wakeups++; c.taken && wakeups%25 == 0 {
					s.e.Watch.Take(s.now)
				}
			}
			for range 250 { // until it is known how many there are, and fewer keys are remembered
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
