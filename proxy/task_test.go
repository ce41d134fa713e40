package proxy

// Tasks whose client is at another loop than the one that leads them.

import (
	"sync"
	"testing"
)

// TestTellNamesWhoAnswered: an error that a server has answered to a task goes to
// the client's loop while the loop that led the task takes up a table with
// another name for the server. The race detector watches.
func TestTellNamesWhoAnswered(t *testing.T) {
	s := newStage(t)
	s.line("pool main servers=s1,s2 get_errors=error")
	s.begin()
	home := s.p.NewEngine(DefaultTune)
	var posted []func(*Engine)
	home.Post = func(f func(*Engine)) { posted = append(posted, f) }
	home.Begin(s.now)
	from := home.Accepted("tcp", "here", &actor{name: "c1"})

	raw := []byte("get a1\r\n")
	home.wire.Next(raw, &home.req)
	rt := home.listeners["tcp here"].route([]byte("a1"))
	x := home.newExchange(from.end.(*Session))
	led := home.newTask(x, rt, raw, []byte("a1"), []byte("a1"))
	x.done()
	led.e, led.rt = &s.e.Tasks, s.e.listeners["tcp here"].route([]byte("a1"))
	led.settle(&Result{srv: s.e.byAddress["tcp s1"], bytes: []byte("SERVER_ERROR busy\r\n")}, nil)
	if len(posted) != 1 {
		t.Fatalf("%d functions were posted to the client's loop, want 1", len(posted))
	}
	tell := posted[0]

	s.blank()
	s.pool([]string{"main", "servers=s1,s2"})
	s.pools["main"].Servers[0].Name = "renamed"
	next := s.listen()
	var reload sync.WaitGroup
	reload.Go(func() { s.p.Swap(next) })
	tell(home)
	reload.Wait()
	if name := s.e.byAddress["tcp s1"].target.Name; name != "renamed" {
		t.Fatalf("the loop that led the task knows the server as %s", name)
	}
	var got string
	for _, b := range from.Pending(nil) {
		got += string(b)
	}
	if want := "SERVER_ERROR server s1: SERVER_ERROR busy\r\n"; got != want {
		t.Errorf("the from gets %q, want %q", got, want)
	}
}
