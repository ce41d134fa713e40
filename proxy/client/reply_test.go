package client_test

// The error reply that a client gets if a bug ends its command without a reply.

import (
	"bytes"
	"strings"
	"testing"

	"ringside/proxy/conversation"
	"ringside/proxy/routing"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// faulty is a leader with a bug: it ends each task with end.
type faulty struct{ end func(t *task.Task) }

func (f faulty) Handle(t *task.Task) { f.end(t) }

// TestMissingReply checks that a command which ends without a reply gets an error in each
// protocol, that the reply to the next command follows, and that the fault is counted and
// logged once.
func TestMissingReply(t *testing.T) {
	faults := []struct {
		why string
		end func(t *task.Task)
	}{
		{"the command ended without a reply: this is a bug in Ringside", func(t *task.Task) {
			t.Answer(&upstream.Result{Reply: wire.Reply{Kind: wire.Number}, Bytes: []byte{}}, nil)
		}},
		{"the command failed without a reason: this is a bug in Ringside", func(t *task.Task) { t.Answer(&upstream.Result{}, nil) }},
	}
	for _, f := range faults {
		v := strings.ReplaceAll(f.why, " ", `\x20`)
		for protocol, lines := range map[string][]string{
			"text":   {`c1 > incr a1 1\r\nwhat`, `c1 < SERVER_ERROR ` + f.why + `\r\nERROR`, `c1 <`},
			"meta":   {`c1 > ma a1 MD\r\nmn`, `c1 < SERVER_ERROR ` + f.why + `\r\nMN`, `c1 <`},
			"binary": {`c1 >f incr k=a1 #7 xx=1,0 x=0xffffffff + noop #8`, `c1 <f incr #7 status=0x84 v=` + v, `c1 <f noop #8`, `c1 <`},
		} {
			t.Run(protocol+": "+f.why, func(t *testing.T) { playFault(t, f.end, lines) })
		}
	}
}

// playFault plays lines twice, with a bug at the end of each command.
func playFault(t *testing.T, end func(t *task.Task), lines []string) {
	var log bytes.Buffer
	s := conversation.New(t)
	s.Logs = &log
	s.Line("pool main servers=s1")
	s.Line("route - main buffer=1s:10s")
	s.Begin()
	s.Engine.Handlers[routing.Counted] = faulty{end}
	var faults []string
	s.Engine.OnReplyFault = func(what string) { faults = append(faults, what) } // without it a test binary panics
	for n := uint64(1); n <= 2; n++ {
		for _, line := range lines {
			s.Line(line)
		}
		if got := s.Engine.Count.ReplyFaults; got != n || uint64(len(faults)) != n {
			t.Fatalf("%d faults are counted, and %q reported, after %d commands", got, faults, n)
		}
	}
	if n := strings.Count(log.String(), "reply fault: please report this bug"); n != 1 {
		t.Errorf("two faults within 10 s make %d log lines, want 1:\n%s", n, log.String())
	}
}
