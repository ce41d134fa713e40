package task_test

// Tasks that run on another loop than their client's.

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"ringside/proxy"
	"ringside/proxy/client"
	"ringside/proxy/conversation"
	"ringside/proxy/link"
)

// TestTellNamesWhoAnswered: a server's error reply to a task is posted to the client's
// loop, while the loop that ran the task applies a table with another name for the server.
// The race detector watches.
func TestTellNamesWhoAnswered(t *testing.T) {
	s := conversation.New(t)
	s.Line("pool main servers=s1,s2 get_errors=error")
	s.Begin()
	home := s.Proxy.NewEngine(link.DefaultTune)
	var posted []func(*proxy.Engine)
	home.Post = func(f func(*proxy.Engine)) { posted = append(posted, f) }
	home.Begin(s.Now, conversation.Wall(s.Now))
	from := home.Accepted("tcp", "here", &conversation.Endpoint{Name: "c1"})

	raw := []byte("get a1\r\n")
	home.Wire.Next(raw, &home.Req)
	rt := home.Listeners["tcp here"].Route([]byte("a1"))
	x := home.NewExchange(from.End.(*client.Session))
	led := home.NewTask(x, 0, rt, &home.Req, raw, []byte("a1"), []byte("a1"))
	x.FinishOne()
	led.Loop, led.Route = &s.Engine.Tasks, s.Engine.Listeners["tcp here"].Route([]byte("a1"))
	led.Answer(led.Result(s.Engine.ByAddress["tcp s1"], []byte("SERVER_ERROR busy\r\n")), nil)
	if len(posted) != 1 {
		t.Fatalf("%d functions were posted to the client's loop, want 1", len(posted))
	}
	tell := posted[0]

	s.Blank()
	s.Pool([]string{"main", "servers=s1,s2"})
	s.Pools["main"].Servers[0].Name = "renamed"
	next := s.Listen()
	var reload sync.WaitGroup
	reload.Go(func() { s.Proxy.SetTable(next) })
	tell(home)
	reload.Wait()
	if name := s.Engine.ByAddress["tcp s1"].Target.Name; name != "renamed" {
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

// TestTasksCountWhatTheyHold compares the bytes that tasks count against limits.memory with
// the bytes that they use, if each asks two servers.
func TestTasksCountWhatTheyHold(t *testing.T) {
	s := conversation.New(t)
	s.Line("pool main servers=s1,s2,s3")
	s.Line("route - main copies=2")
	s.Line("limits in_flight=100000")
	s.Begin()
	line := " > get"
	for i := range client.FirstTasks {
		line += fmt.Sprintf(" k%d", i)
	}
	clients := 0
	for i := range 80 {
		s.Endpoint(fmt.Sprint("c", 1+i))
	}
	reads := func() {
		for range 20 { // a client has few keys in flight before its first reply
			clients++
			s.Line(fmt.Sprint("c", clients, line))
		}
	}
	resident := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	reads()
	held, before := s.Engine.Buffers.Held, resident()
	for range 3 {
		reads()
	}
	held, took := s.Engine.Buffers.Held-held, resident()-before
	t.Logf("%d bytes for each key, and %d are counted", took/60/client.FirstTasks, held/60/client.FirstTasks)
	if took > held {
		t.Error("that is too few")
	}
}

// TestGetBehindAMissedWrite: if one loop knows that a replica has missed a write, other
// loops send no gets to that replica. This holds before the client gets the reply to the
// write.
func TestGetBehindAMissedWrite(t *testing.T) {
	s := conversation.New(t)
	for _, line := range []string{"pool main servers=s1", "pool near servers=n1", "route - main also=near copies=2 prefer=near ack=one through"} {
		s.Line(line)
	}
	s.Begin()
	other := s.Proxy.NewEngine(link.DefaultTune)
	other.Post = func(f func(*proxy.Engine)) {
		other.Begin(s.Now, conversation.Wall(s.Now))
		f(other)
	}
	other.Begin(s.Now, conversation.Wall(s.Now))
	key := "a1"
	for s.Proxy.Hash([]byte(key))%2 != 0 { // the loop of s runs it
		key = string(key[0]+1) + "1"
	}
	for _, line := range []string{"c1 > set " + key + " 0 0 1\\r\\nA", "s1 runs 7", "n1 runs 8", "s1 < set " + key + " 0 0 1\\r\\nA", "n1 < set " + key + " 0 0 1\\r\\nA", "s1 > STORED", "n1 > STORED", "c1 < STORED"} {
		s.Line(line)
	}
	get := func() {
		c := other.Accepted("tcp", "here", &conversation.Endpoint{Name: "c9"})
		other.Bytes(c, []byte("get "+key+"\r\n"))
	}
	get()
	if other.Unanswered() != 1 {
		t.Fatal("a get of a key that all copies have asks none by itself")
	}
	for _, line := range []string{"n1 is SUSPECT", "c1 > set " + key + " 0 0 1\\r\\nB", "s1 < set " + key + " 0 0 1\\r\\nB", "s1 > STORED", "c1 < STORED", "n1 is IN"} {
		s.Line(line)
	}
	get()
	if other.Unanswered() != 1 {
		t.Error("the copy is asked that has missed the write")
	}
	s.Line("s1 < get " + key)
}
