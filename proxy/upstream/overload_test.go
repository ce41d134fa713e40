package upstream_test

// An overloaded server that still answers is not considered down.

import (
	"strings"
	"testing"
	"time"

	"ringside/proxy/conversation"
	"ringside/proxy/link"
	"ringside/proxy/upstream"
)

// TestOverloadIsNoFailedPing keeps the queue of a server full, and lets it reply so slowly that
// pings wait too long after the requests of clients.
func TestOverloadIsNoFailedPing(t *testing.T) {
	for _, queue := range []string{"queue=1", "queue=1000"} {
		t.Run(queue, func(t *testing.T) {
			s := conversation.New(t)
			s.Pool([]string{"main", "servers=s1", "failover=rehash", queue})
			s.Table.Pools[0].Failover.Request = 500 * time.Millisecond
			s.Begin()
			w := s.Proxy.Agents()[s.Table.Pools[0]]
			s.Engine.Agents = append(s.Engine.Agents, w)
			s.Engine.Soon(link.KeeperTimer)
			w.View.Done(1, true)
			c, srv := s.Endpoint("c1"), s.Endpoint("s1")
			for range 300 {
				s.Wakeup(func() { s.Engine.Bytes(c.Link, []byte(strings.Repeat("get x1\r\n", 2))) })
				for end := s.Now + int64(100*time.Millisecond); s.Now < end; {
					s.Now = min(end, max(s.Engine.Next(), s.Now+int64(time.Millisecond)))
					s.Wakeup(func() {})
				}
				line, _ := srv.Got.ReadString('\n')
				answer := "EN\r\n"
				switch {
				case line == "":
					continue
				case strings.HasPrefix(line, "get "):
					answer = "END\r\n"
				case strings.HasPrefix(line, "ms "):
					srv.Got.ReadString('\n') // its data block
					answer = "HD\r\n"
				case strings.HasPrefix(line, "ma "):
					answer = "VA 1\r\n2\r\n"
				}
				s.Wakeup(func() {
					s.Engine.Bytes(srv.Link, conversation.AddOpaques(srv.Link.End.(*upstream.Conn), []byte(answer)))
				})
			}
			if srv.State != "" {
				t.Fatalf("the connection is %s", srv.State)
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
