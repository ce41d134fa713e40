package proxy_test

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"ringside/proxy"
	"ringside/proxy/conversation"
	"ringside/proxy/health"
	"ringside/proxy/link"
	"ringside/proxy/table"
)

func TestOrderNamesAServer(t *testing.T) {
	s := conversation.New(t)
	s.Line("pool main servers=s1,s2")
	s.Begin()
	for _, name := range [][2]string{{"main", "s3"}, {"mian", "s1"}, {"", ""}} {
		if err := s.Proxy.Override(name[0], name[1], health.Down); err == nil {
			t.Errorf("%v: no error", name)
		}
	}
	if _, ever := s.Proxy.OverrideCount(); ever {
		t.Error("an order for nobody is kept")
	}
	s.Line("order main s1 drain")
	if o := s.Proxy.OverrideOf("main", "s1"); o.Override != health.Drain || o.Since.IsZero() {
		t.Error(o)
	}
	if o := s.Proxy.OverrideOf("main", "s2"); o != (proxy.OverrideSince{}) {
		t.Error(o)
	}
	s.Line("order main s1 restore")
	if left, _ := s.Proxy.OverrideCount(); left != 0 {
		t.Errorf("%d overrides are left", left)
	}
	if o := s.Proxy.OverrideOf("main", "s1"); o != (proxy.OverrideSince{}) {
		t.Error(o)
	}
}

// TestOrderMeetsReload overrides a server that reloads remove and add again, in a pool
// that moves keys. Either the pool's current keeper gets the override, or there is no
// such server. A keeper that has not heard from any server yet rejects the override. It
// accepts it only if a reload has just added s3, because s3 is out then and needs no
// substitute server.
func TestOrderMeetsReload(t *testing.T) {
	s := conversation.New(t)
	tables := []*table.Table{}
	for _, servers := range []string{"s1,s2,s3", "s1,s2"} {
		s.Blank()
		s.Pool([]string{"main", "servers=" + servers, "failover=rehash"})
		tables = append(tables, s.Listen())
	}
	p := proxy.NewProxy(tables[0], "test", slog.New(slog.DiscardHandler))
	e := p.NewEngine(link.DefaultTune)
	var mu sync.Mutex // of e
	e.Post = func(f func(*proxy.Engine)) {
		mu.Lock()
		defer mu.Unlock()
		e.Begin(1, conversation.Wall(1))
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
				p.SetTable(tables[i%2])
			}
		}
	})
	answers := map[string]int{}
	for range 20_000 {
		answers[fmt.Sprint(p.Override("main", "s3", health.Drain))]++
	}
	close(done)
	reloads.Wait()
	gone, waits := `no server "s3" in a pool "main"`, "server s3 of pool main: drain failed: "
	for answer, n := range answers {
		if answer != gone && answer != "<nil>" && !strings.HasPrefix(answer, waits) {
			t.Errorf("%d times: %s", n, answer)
		}
	}
}

// TestOrdersInStats checks that stats servers shows overrides and the requests that
// they rejected.
func TestOrdersInStats(t *testing.T) {
	s := conversation.New(t)
	s.Line("pool main servers=s1,s2")
	s.Line("order main s2 down")
	s.Line("c1 > get a2 b2")
	s.Line("c1 < END")
	s.Line("c1 > stats servers")
	got := s.Endpoint("c1").Got.String()
	for _, want := range []string{"STAT server:2:order:main down\r\n", "STAT server:2:ordered 2\r\n", "STAT server:1:ordered 0\r\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
	if strings.Contains(got, "server:1:order:") {
		t.Error(got)
	}
}

// TestOrdersDontAllocate checks that overrides of other servers do not make a request
// allocate.
func TestOrdersDontAllocate(t *testing.T) {
	s := conversation.New(t)
	s.Line("pool main servers=s1,s2")
	s.Begin()
	s.Proxy.Log = slog.New(slog.DiscardHandler)
	s.Line("order main s2 drain")
	request, answer := []byte("get a1\r\n"), []byte("END\r\n")
	client, e := s.Endpoint("c1"), s.Engine
	var server *link.Link
	now := s.Now
	round := func() {
		now++
		e.Begin(now, conversation.Wall(now))
		e.Bytes(client.Link, request)
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
						if n > len(request) { // the greeting is included
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
	if o := s.Engine.List[0].Count.Requests; o < 100 {
		t.Error(fmt.Sprint(o, " requests"))
	}
}
