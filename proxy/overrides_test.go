package proxy

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"ringside/proxy/health"
	"ringside/proxy/link"
	"ringside/proxy/table"
)

func TestOrderNamesAServer(t *testing.T) {
	s := newStage(t)
	s.line("pool main servers=s1,s2")
	s.begin()
	for _, name := range [][2]string{{"main", "s3"}, {"mian", "s1"}, {"", ""}} {
		if err := s.p.Override(name[0], name[1], health.Down); err == nil {
			t.Errorf("%v: no error", name)
		}
	}
	if s.p.overrides.Load() != nil {
		t.Error("an order for nobody is kept")
	}
	s.line("order main s1 drain")
	if o := s.p.OverrideOf("main", "s1"); o.Override != health.Drain || o.Since.IsZero() {
		t.Error(o)
	}
	if o := s.p.OverrideOf("main", "s2"); o != (OverrideSince{}) {
		t.Error(o)
	}
	s.line("order main s1 restore")
	if o := s.p.OverrideOf("main", "s1"); o != (OverrideSince{}) || len(*s.p.overrides.Load()) != 0 {
		t.Error(o)
	}
}

// TestOrderMeetsReload orders a server that reloads take away and bring back, in
// a pool that moves keys. The keeper that the pool has then gets the order, or
// there is no such server. One that has heard of no server waits; unless a reload has
// put s3 back, which is out then, so that nobody has to stand in for it.
func TestOrderMeetsReload(t *testing.T) {
	s := newStage(t)
	tables := []*table.Table{}
	for _, servers := range []string{"s1,s2,s3", "s1,s2"} {
		s.blank()
		s.pool([]string{"main", "servers=" + servers, "failover=rehash"})
		tables = append(tables, s.listen())
	}
	p := NewProxy(tables[0], "test", slog.New(slog.DiscardHandler))
	e := p.NewEngine(link.DefaultTune)
	var mu sync.Mutex // of e
	e.Post = func(f func(*Engine)) {
		mu.Lock()
		defer mu.Unlock()
		e.Begin(1, wall(1))
		f(e)
	}
	var reloads sync.WaitGroup
	done := make(chan struct{})
	reloads.Go(func() {
		for i := 1; ; i++ {
			select {
			case <-done:
				return
			default:
				p.Swap(tables[i%2])
			}
		}
	})
	answers := map[string]int{}
	for range 20_000 {
		answers[fmt.Sprint(p.Override("main", "s3", health.Drain))]++
	}
	close(done)
	reloads.Wait()
	gone, waits := `no server "s3" in a pool "main"`, "server s3 of pool main can't be told to drain: "
	for answer, n := range answers {
		if answer != gone && answer != "<nil>" && !strings.HasPrefix(answer, waits) {
			t.Errorf("%d times: %s", n, answer)
		}
	}
}

// stats servers shows orders and what they cost.
func TestOrdersInStats(t *testing.T) {
	s := newStage(t)
	s.line("pool main servers=s1,s2")
	s.line("order main s2 down")
	s.line("c1 > get a2 b2")
	s.line("c1 < END")
	s.line("c1 > stats servers")
	got := s.actor("c1").got.String()
	for _, want := range []string{"STAT server:2:order:main down\r\n", "STAT server:2:ordered 2\r\n", "STAT server:1:ordered 0\r\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
	if strings.Contains(got, "server:1:order:") {
		t.Error(got)
	}
}

// A request pays nothing for orders to other servers, in allocations.
func TestOrdersDontAllocate(t *testing.T) {
	s := newStage(t)
	s.line("pool main servers=s1,s2")
	s.begin()
	s.p.Log = slog.New(slog.DiscardHandler)
	s.line("order main s2 drain")
	request, answer := []byte("get a1\r\n"), []byte("END\r\n")
	client, e := s.actor("c1"), s.e
	var server *link.Link
	now := s.now
	round := func() {
		now++
		e.Begin(now, wall(now))
		e.Bytes(client.link, request)
		for effects := e.End(); len(effects) > 0; effects = e.End() {
			for _, x := range effects {
				switch x.Kind {
				case link.Dial:
					server = x.Link
					e.Up(server)
				case link.Write:
					n := x.Link.Out.Size
					e.Wrote(x.Link, n, false)
					if x.Link == server {
						if n > len(request) { // the greeting
							e.Bytes(server, []byte("VERSION 1.6.18\r\n"))
						}
						e.Bytes(server, answer)
					}
				}
			}
		}
	}
	round()
	if n := testing.AllocsPerRun(100, round); n > 0 {
		t.Errorf("%v allocations", n)
	}
	if o := s.e.List[0].Count.Requests; o < 100 {
		t.Error(fmt.Sprint(o, " requests"))
	}
}
