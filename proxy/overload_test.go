package proxy

// A server that answers, but has more to do than it can, is not taken for gone.

import (
	"strings"
	"testing"
	"time"

	"ringside/proxy/link"
	"ringside/proxy/upstream"
)

// TestOverloadIsNoFailedPing: the queue of a server is always full, and it
// answers so slowly that pings wait too long behind the requests of clients.
func TestOverloadIsNoFailedPing(t *testing.T) {
	for _, queue := range []string{"queue=1", "queue=1000"} {
		t.Run(queue, func(t *testing.T) {
			s := newStage(t)
			s.pool([]string{"main", "servers=s1", "failover=rehash", queue})
			s.table.Pools[0].Failover.Request = 500 * time.Millisecond
			s.begin()
			w := s.p.published.Load().Agents[s.table.Pools[0]]
			s.e.Agents = append(s.e.Agents, w)
			s.e.Soon(link.KeeperTimer)
			w.View.Done(1, true)
			c, srv := s.actor("c1"), s.actor("s1")
			for range 300 {
				s.wakeup(func() { s.e.Bytes(c.link, []byte(strings.Repeat("get x1\r\n", 2))) })
				for end := s.now + int64(100*time.Millisecond); s.now < end; {
					s.now = min(end, max(s.e.Next(), s.now+int64(time.Millisecond)))
					s.wakeup(func() {})
				}
				line, _ := srv.got.ReadString('\n')
				answer := "EN\r\n"
				switch {
				case line == "":
					continue
				case strings.HasPrefix(line, "get "):
					answer = "END\r\n"
				case strings.HasPrefix(line, "ms "):
					srv.got.ReadString('\n') // its data block
					answer = "HD\r\n"
				case strings.HasPrefix(line, "ma "):
					answer = "VA 1\r\n2\r\n"
				}
				s.wakeup(func() { s.e.Bytes(srv.link, seal(srv.link.End.(*upstream.Conn), []byte(answer))) })
			}
			if srv.state != "" {
				t.Fatalf("the connection is %s", srv.state)
			}
			for _, ev := range w.Keeper.Events() {
				t.Errorf("the keeper: %v", ev)
			}
			for what, n := range w.Events {
				t.Errorf("the keeper has decided %d times: %v", n, what)
			}
		})
	}
}
