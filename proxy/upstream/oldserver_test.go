package upstream_test

// Ringside with a memcached that is older than the meta commands.

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"ringside/internal/memnode"
	"ringside/proxy/conversation"
)

// oldServer behaves like memcached 1.4.25. It replies to an unknown command with one ERROR, and
// parses the next line as the next command. So it parses the data block of an ms as commands, as the
// real server does.
type oldServer struct {
	*memnode.Line
	got     []byte
	unknown int // number of unknown commands that the server has received
}

func newOldServer(t *testing.T) *oldServer {
	n, err := memnode.New(memnode.Options{Version: "1.4.25", Old: true})
	if err != nil {
		t.Fatal(err)
	}
	return &oldServer{Line: n.Line()}
}

func (o *oldServer) serve(more []byte) []byte {
	o.got = append(o.got, more...)
	answer := o.Do(more)
	o.unknown += bytes.Count(answer, []byte("ERROR\r\n"))
	return answer
}

// flushed reports whether a flush_all was executed.
func (o *oldServer) flushed() bool {
	return !bytes.Contains(o.Do([]byte("stats\r\n")), []byte("STAT cmd_flush 0\r\n"))
}

// oldStage returns a harness with an oldServer as s1.
func oldStage(t *testing.T, script ...string) (*conversation.Harness, *oldServer) {
	s, o := conversation.New(t), newOldServer(t)
	s.Quiet = true
	for _, line := range script {
		s.Line(line)
	}
	s.Begin()
	s.Endpoint("s1").Serve = o.serve
	return s, o
}

// TestAttackOnOldServer lets two clients share one server connection. One of them sends data
// blocks that are commands, split anywhere. The other must still get only its own replies.
func TestAttackOnOldServer(t *testing.T) {
	blocks := []string{"flush_all", "get secret1", "set victim1 0 0 4\r\nEVIL", "delete victim1", "get victim1\r\nget victim1\r\nget victim1", "\r\n\r\n", ""}
	flags := []string{"", " T0", " F5 T0", " I", " q", " O1 k", " c", " E5", " ME N30", " MA", " F99999999999", " b", " Z"}
	keys := []string{"a1", "YTE=", "YSAx"}
	broken := 0
	for run := range 20 {
		random := rand.New(rand.NewPCG(uint64(run), 9))
		s, o := oldStage(t, "pool main servers=s1")
		o.Do([]byte("set victim1 0 0 4\r\nmine\r\nset secret1 0 0 6\r\nsecret\r\n"))
		bad := ""
		for range 50 {
			block := blocks[random.IntN(len(blocks))]
			attack := fmt.Sprintf("ms %s %d%s\r\n%s\r\n", keys[random.IntN(len(keys))], len(block), flags[random.IntN(len(flags))], block)
			if random.IntN(4) == 0 {
				attack = []string{"mg victim1 v N30\r\n", "me victim1\r\n", "ma n1 N0 J5\r\n", "md victim1 I\r\n"}[random.IntN(4)]
			}
			cut := random.IntN(len(attack))
			ask := func() {
				s.Line("c1 > get victim1\\r\\nget miss1")
				s.Line("wait 2ms")
			}
			s.Wakeup(func() { s.Engine.Bytes(s.Endpoint("c2").Link, []byte(attack[:cut])) })
			ask()
			s.Wakeup(func() { s.Engine.Bytes(s.Endpoint("c2").Link, []byte(attack[cut:])) })
			ask()
			const want = "VALUE victim1 0 4\r\nmine\r\nEND\r\nEND\r\n"
			if got := s.Endpoint("c1").Got.String(); got != want+want {
				bad = fmt.Sprintf("after %q the victim gets %q", attack, got)
				break
			}
			s.Endpoint("c1").Got.Reset()
			if o.flushed() || o.unknown > 0 {
				bad = fmt.Sprintf("after %q the server was flushed: %t, and did not know %d commands", attack, o.flushed(), o.unknown)
				break
			}
			if random.IntN(10) == 0 {
				s.Line("s1 dies")
			}
		}
		if bad != "" {
			broken++
			t.Log(bad)
		}
	}
	if broken > 0 {
		t.Errorf("%d of 20 runs", broken)
	}
}

// TestKeeperOfOldServer checks the keeper of a pool whose keys would move. It must detect that
// a server has no meta commands without sending it one, and still detect when that server
// hangs.
func TestKeeperOfOldServer(t *testing.T) {
	s, servers := conversation.New(t), map[string]*oldServer{}
	s.Quiet, s.RunKeepers = true, true
	s.Line("pool main servers=s1,s2,s3 failover=rehash request=100ms")
	f := &s.Pools["main"].Failover
	f.AfterFailures, f.EjectAfter.Silent, f.Ping, f.Lease, f.Request = 3, time.Second, 200*time.Millisecond, time.Second, 100*time.Millisecond
	for _, name := range []string{"s1", "s2", "s3"} {
		servers[name] = newOldServer(t)
		s.Endpoints[name] = &conversation.Endpoint{Name: name, Serve: servers[name].serve}
	}
	s.Begin()
	s.Line("wait 3s")
	w := s.Engine.Agents[0]
	for i, name := range []string{"s1", "s2", "s3"} {
		o := servers[name]
		if v := w.Keeper.Verdict(i); v.Suspect || v.N != 0 || bytes.Count(o.got, []byte("version\r\n")) < 5 || o.unknown > 0 {
			t.Errorf("%s: %+v, %d unknown commands, after %q", name, v, o.unknown, o.got)
		}
		if !bytes.Contains(o.Do([]byte("stats\r\n")), []byte("STAT curr_items 0\r\n")) {
			t.Errorf("%s has items, after %q", name, o.got)
		}
	}
	if n := w.Events[[2]string{"", "suspect-only"}]; n != 1 {
		t.Errorf("what was decided: %v", w.Events)
	}
	s.Line("c1 > ms a1 9\\r\\nflush_all\\r\\nmg a1 v")
	s.Line("wait 2ms")
	if got := s.Endpoint("c1").Got.String(); got != "HD\r\nVA 9\r\nflush_all\r\n" || servers["s1"].flushed() {
		t.Errorf("%q, flushed: %t", got, servers["s1"].flushed())
	}
	s.Endpoint("s2").Mode = "silent"
	s.Line("wait 3s")
	if v := w.Keeper.Verdict(1); !v.Suspect || v.N != 0 {
		t.Errorf("a server that hangs: %+v", v)
	}
}
