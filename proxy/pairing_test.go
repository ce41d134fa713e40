package proxy

// What an answer must name, where a conversation would be too long for it; and the
// opaques that conversations leave out.

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"ringside/proxy/stats"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// TestManyNames: a read of so many keys that its line is in several chunks. Each
// VALUE is compared, what is kept for that counts as memory, and goes.
func TestManyNames(t *testing.T) {
	for _, lie := range []bool{false, true} {
		s := newStage(t)
		s.line("pool main servers=s1")
		s.line("c1 > get a1")
		c := s.actor("c1")
		s.line("s1 < get a1")
		s.line("s1 > END")
		s.line("c1 < END")
		used := func() int64 {
			sum := &stats.Snapshot{}
			s.e.Snapshot(sum)
			return sum.Memory - sum.Kept
		}
		before := used()
		s.line("c1 > get b1") // so that the line begins within a chunk
		var request, answer strings.Builder
		request.WriteString("get")
		for i := range 5000 {
			fmt.Fprintf(&request, " k%d:1", i)
			if i%3 > 0 {
				fmt.Fprintf(&answer, "VALUE k%d:1 0 1\r\nx\r\n", i)
			}
		}
		if lie {
			answer.WriteString("VALUE k7:1 0 1\r\nx\r\n") // once more
		}
		request.WriteString("\r\n")
		answer.WriteString("END\r\n")
		s.wakeup(func() { s.e.Bytes(c.link, []byte(request.String())) })
		srv := s.actor("s1")
		srv.got.Reset()
		if held := used() - before; held < int64(request.Len()) {
			t.Errorf("%d bytes are held for a request of %d", held, request.Len())
		}
		s.line("s1 > END")
		s.wakeup(func() { s.e.Bytes(srv.link, []byte(answer.String())) })
		if got := srv.state == "aborted"; got != lie {
			t.Errorf("the server lies: %v; its connection is aborted: %v", lie, got)
		}
		if got, want := strings.Count(c.got.String(), "VALUE "), 3333; got != want {
			t.Errorf("the client has got %d values, want %d", got, want)
		}
		c.got.Reset()
		if held := used(); held > before {
			t.Errorf("%d bytes are held at the end, %d before", held, before)
		}
	}
}

// TestMissesOfOldReleases: memcached before 1.6.18 says neither O nor k with a
// miss, later ones always do.
func TestMissesOfOldReleases(t *testing.T) {
	for release, state := range map[string]string{"1.6.12": "", "1.6.17": "", "1.6.18": "aborted", "1.6.45": "aborted"} {
		s := newStage(t)
		s.release = release
		s.line("pool main servers=s1")
		s.line(`c1 > mg a1 v O1 k`)
		s.line("s1 < mg a1 v O1 k")
		s.line("s1 > EN")
		if got := s.actor("s1").state; got != state {
			t.Errorf("%s: the connection is %q, want %q", release, got, state)
		}
	}
}

// seal puts the opaques of Ringside's own meta commands into the answers on c
// that begin in data.
func seal(c *upstream.Conn, data []byte) (out []byte) {
	var rep wire.Reply
	for a := c.Head; a != nil && c.In == nil && c.StreamLeft == 0; {
		n, _ := wire.NextReply(a.Op, a.Dialect, data, &rep)
		if rep.Size == 0 {
			break
		}
		if end := rep.Line.End; a.OwnOpaque && a.AsText == nil && !rep.Kind.Failed() {
			_, opaque := a.Named()
			out = append(append(append(out, data[:end]...), ' '), opaque...)
			out = append(out, data[end:max(n, int(end))]...)
			data = data[max(n, int(end)):]
		} else {
			out = append(out, data[:n]...)
			data = data[n:]
		}
		if n == 0 {
			break
		}
		if rep.Last {
			a = a.Next
		}
	}
	return append(out, data...)
}

// sealed are the opaques of Ringside's own.
var sealed = regexp.MustCompile(" Ors[0-9]+")
