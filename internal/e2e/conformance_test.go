package e2e

// Odd and malformed streams: ringside answers what memcached answers, byte by
// byte, and closes the connection when memcached does.

import (
	"bytes"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"ringside/proxy/wire/wiretest"
)

// deliveries are the ways a stream reaches the server.
var deliveries = []struct {
	name   string
	limits string // of ringside
	cut    func(stream string) (pieces []string)
}{
	{"whole", serverLimits, func(s string) []string { return []string{s} }},
	{"whole, sizes judged by the server", "", func(s string) []string { return []string{s} }},
	{"byte by byte", serverLimits, func(s string) []string {
		size := 1 + len(s)/4096 // the megabytes of a large value in larger steps
		var pieces []string
		for len(s) > size {
			pieces, s = append(pieces, s[:size]), s[size:]
		}
		return append(pieces, s)
	}},
}

// stream is one of the corpus, with what memcached 1.6.45 said to it.
type stream struct {
	wiretest.Stream
	recorded wiretest.Said
}

// wrongTwice: the value is too large for the server and does not end where it
// should. Who judges the size by the server's answer names the other fault.
func (s stream) wrongTwice() bool {
	return len(s.Data) > 1<<20 && !strings.Contains(s.Data, "xx\r\n")
}

func corpus(t *testing.T) (all []stream) {
	t.Helper()
	streams, err := wiretest.Streams()
	if err != nil {
		t.Fatal(err)
	}
	recorded, err := wiretest.Recorded()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range streams {
		said, ok := recorded[s.Source]
		if !ok {
			t.Fatalf("%s has no recorded answer: TestRecordedAnswers says how to make one", s.Name)
		}
		all = append(all, stream{s, said})
	}
	return all
}

func TestConformance(t *testing.T) {
	streams := corpus(t)
	eachDriver(t, func(t *testing.T, driver string) {
		for _, delivery := range deliveries {
			t.Run(delivery.name, func(t *testing.T) {
				t.Parallel()
				plain, proxied := conformancePair(t, driver, delivery.limits)
				for _, s := range streams {
					if delivery.limits != "" || !s.wrongTwice() {
						s.compare(t, delivery.cut(s.Probed()), plain, proxied)
					}
				}
			})
		}
		t.Run("pipelined", func(t *testing.T) {
			t.Parallel()
			plain, proxied := conformancePair(t, driver, serverLimits)
			pipelined(t, streams, plain, proxied)
		})
	})
}

// model is what ringside has to answer to s: what the release that its mark
// names has answered, 1.6.18 live at plain.
func (s stream) model(t *testing.T, plain string) wiretest.Said {
	t.Helper()
	switch s.Mark {
	case wiretest.New:
		return s.recorded
	case wiretest.Own:
		return s.Want
	}
	return hear(t, plain, s.Stream)
}

// pipelined sends all streams that leave a connection in step over one, without
// waiting. The answers must be those that memcached gives to them one by one:
// in a pipeline it loses answers, as an error in a multi-get drops what waits
// to be sent.
func pipelined(t *testing.T, streams []stream, plain, proxied string) {
	t.Helper()
	var want, got wiretest.Said
	for range 3 { // see compare
		var all, answers strings.Builder
		for _, s := range streams {
			if one := s.model(t, plain); one.InStep() {
				all.WriteString("flush_all\r\n" + s.Probed())
				answers.WriteString("OK\r\n" + one.Answer)
			}
		}
		want = wiretest.Said{Answer: answers.String()}
		got = wiretest.Said{Answer: talk(t, proxied, all.String(), strings.Count(want.Answer, wiretest.InStep))}
		if got == want {
			return
		}
	}
	differ(t, "all streams on one connection", want, got)
}

// talk sends a stream and reads until so many probes are answered.
func talk(t *testing.T, address, stream string, probes int) string {
	t.Helper()
	c := dial(t, address)
	defer c.Close()
	go io.WriteString(c, stream) // what is missing shows in the answer
	var answer []byte
	buf := make([]byte, 64<<10)
	for seen := 0; seen < probes; {
		c.SetReadDeadline(time.Now().Add(patience))
		n, err := c.Read(buf)
		answer = append(answer, buf[:n]...)
		if err != nil {
			break
		}
		if bytes.HasSuffix(answer, []byte(wiretest.InStep)) {
			seen = bytes.Count(answer, []byte(wiretest.InStep))
		}
	}
	return wiretest.Normal(answer)
}

// A server started with these is judged by ringside as it judges itself.
const serverLimits = "limits: {value: 1MiB}\n"

// conformancePair is a memcached, and a ringside with another behind it.
func conformancePair(t *testing.T, driver, limits string) (plain, proxied string) {
	t.Helper()
	// The streams take a value of 2 MiB for too large.
	one, other := startMemcached(t, "-I", "1m"), startMemcached(t, "-I", "1m")
	return one.address, startRingside(t, driver, front([]*memcached{other})+limits).address
}

// compare sends a stream to ringside and to its model. Answers may carry
// seconds, and a second may begin between the two: what differs is tried again.
func (s stream) compare(t *testing.T, pieces []string, plain, proxied string) {
	t.Helper()
	var want, got wiretest.Said
	for range 3 {
		want = s.model(t, plain)
		if got = hearPieces(t, proxied, pieces, want); got == want {
			return
		}
	}
	differ(t, s.Name+": sent "+brief(s.Data), want, got)
}

// differ reports two answers from where they part.
func differ(t *testing.T, name string, want, got wiretest.Said) {
	t.Helper()
	at := 0
	for at < len(got.Answer) && at < len(want.Answer) && got.Answer[at] == want.Answer[at] {
		at++
	}
	from := max(0, at-100)
	t.Errorf("%s\nfrom byte %d of the answer on:\nis     %s (closes: %v)\nwanted %s (closes: %v)",
		name, from, brief(got.Answer[from:]), got.Closed, brief(want.Answer[from:]), want.Closed)
}

// hear is what a server that is empty says to a stream.
func hear(t *testing.T, address string, s wiretest.Stream) wiretest.Said {
	t.Helper()
	return hearPieces(t, address, []string{s.Probed()}, wiretest.Said{})
}

func hearPieces(t *testing.T, address string, pieces []string, want wiretest.Said) wiretest.Said {
	t.Helper()
	dial(t, address).ask("flush_all", "OK")
	c := dial(t, address)
	defer c.Close()
	return wiretest.Hear(c.Conn.(*net.TCPConn), pieces, want, patience)
}

// The marks are true: the two releases of memcached differ where the corpus
// says so and nowhere else.
func TestConformanceOfReleases(t *testing.T) {
	t.Parallel()
	one := startMemcached(t, "-I", "1m")
	differing := 0
	for _, s := range corpus(t) {
		var old wiretest.Said
		same := false
		for range 3 { // see compare
			old = hear(t, one.address, s.Stream)
			if same = old == s.recorded; same {
				break
			}
		}
		if !same {
			differing++
		}
		switch {
		case s.Mark == wiretest.Both && !same:
			differ(t, s.Name+": 1.6.18 differs from 1.6.45 at "+brief(s.Data), s.recorded, old)
		case same && (s.Mark == wiretest.Old || s.Mark == wiretest.New):
			t.Errorf("%s: marked %s, but both releases say %s", s.Name, s.Mark, brief(old.Answer))
		case s.Mark == wiretest.Own && (s.Want == old || s.Want == s.recorded):
			t.Errorf("%s: marked own, but wants what a release says", s.Name)
		}
	}
	t.Logf("%d streams differ", differing)
	if want := hear(t, one.address, wiretest.Stream{Data: "quit\r\n"}); want != (wiretest.Said{Closed: true}) {
		t.Errorf("memcached did not close after quit: %+v", want)
	}
}

// The recorded answers are those of the memcached that MEMCACHED_NEW names, a
// path. With RECORD=1 they are made anew. Without a path there is nothing to
// hold them against.
func TestRecordedAnswers(t *testing.T) {
	t.Parallel()
	binary := os.Getenv("MEMCACHED_NEW")
	if binary == "" {
		corpus(t) // complete at least
		return
	}
	streams, err := wiretest.Streams()
	if err != nil {
		t.Fatal(err)
	}
	recorded, err := wiretest.Recorded()
	if err != nil {
		t.Fatal(err)
	}
	m := startRelease(t, binary, ownHost(), "-I", "1m")
	var file strings.Builder
	for _, s := range streams {
		said := hear(t, m.address, s)
		file.WriteString(wiretest.Record(s, said))
		if os.Getenv("RECORD") == "" && said != recorded[s.Source] {
			differ(t, s.Name+": sent "+brief(s.Data), recorded[s.Source], said)
		}
	}
	if os.Getenv("RECORD") != "" {
		if err := os.WriteFile("../../proxy/wire/wiretest/testdata/memcached-1.6.45.txt", []byte(file.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
