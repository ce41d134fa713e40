package task_test

// Tasks that are handed to a loop that has no route for them.

import (
	"sync"
	"testing"

	"ringside/proxy"
	"ringside/proxy/conversation"
	"ringside/proxy/link"
	"ringside/proxy/task"
)

// TestHandOverWithoutRoute: a reload takes the guard of a route away. The loop of the key has
// the new table already, the client's loop has not. The task is refused, and the loop of the
// key uses nothing that belongs to the client's loop, which applies the new table meanwhile.
// The race detector watches.
func TestHandOverWithoutRoute(t *testing.T) {
	s := conversation.New(t)
	s.Line("pool main servers=s1")
	s.Line("route - main guard=wait:2s")
	s.Table.Misses = true
	s.Begin()
	home := s.Proxy.NewEngine(link.DefaultTune)
	var toHome, toOwner []func(*proxy.Engine)
	home.Post = func(f func(*proxy.Engine)) { toHome = append(toHome, f) }
	s.Engine.Post = func(f func(*proxy.Engine)) { toOwner = append(toOwner, f) }
	home.Begin(s.Now, conversation.Wall(s.Now))
	from := home.Accepted("tcp", "here", &conversation.Endpoint{Name: "c1"})
	key := "a1"
	for s.Proxy.Hash([]byte(key))%2 != 0 { // the loop of s runs it
		key = string(key[0]+1) + "1"
	}

	s.Line("reload")
	s.Line("pool main servers=s1")
	s.Line("route - main")
	s.Table.Misses = true
	s.Proxy.SetTable(s.Listen())
	s.Wakeup(func() {})
	home.Bytes(from, []byte("mg "+key+" v\r\n"))
	if len(toOwner) == 0 {
		t.Fatal("the task stays on the client's loop")
	}
	before, place := home.Listeners["tcp here"].Route([]byte(key)), s.Engine.Concluding
	s.Engine.Concluding = func(k *task.Task) {
		if k.Route == before || k.Route.BoundPool == before.BoundPool || k.Route.Count == before.Count {
			t.Error("the loop of the key uses the route of the client's loop")
		}
		place(k)
	}
	var reload sync.WaitGroup
	reload.Go(func() { home.Begin(s.Now, conversation.Wall(s.Now)) })
	s.Wakeup(func() {
		for _, f := range toOwner {
			f(s.Engine)
		}
	})
	reload.Wait()
	for _, f := range toHome {
		f(home)
	}
	var got string
	for _, b := range from.Pending(nil) {
		got += string(b)
	}
	if want := "EN\r\n"; got != want {
		t.Errorf("the client gets %q, want %q", got, want)
	}
}
