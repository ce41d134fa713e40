package e2e

// This file sends odd and malformed streams. Ringside must reply byte for byte like
// memcached, and close the connection when memcached does.

import (
	"bytes"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"ringside/internal/testenv"
	"ringside/proxy/wire/wiretest"
)

// deliveries are the ways in which a stream is split into writes.
var deliveries = []struct {
	name   string
	limits string // limits in the configuration of ringside
	cut    func(stream string) (pieces []string)
}{
	{"whole", serverLimits, func(s string) []string { return []string{s} }},
	{"whole, sizes judged by the server", "", func(s string) []string { return []string{s} }},
	{"byte by byte", serverLimits, func(s string) []string {
		size := 1 + len(s)/4096 // larger pieces for streams of megabytes
		var pieces []string
		for len(s) > size {
			pieces, s = append(pieces, s[:size]), s[size:]
		}
		return append(pieces, s)
	}},
}

// stream is one stream of the corpus, with the recorded reply of memcached 1.6.45.
type stream struct {
	wiretest.Stream
	recorded wiretest.Said
}

// wrongTwice reports whether s has two faults: its value is too large for the server and
// does not end where it should. A proxy that leaves the size check to the server reports
// the other fault first.
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

// model returns the reply that ringside must give to s. It is the reply of the release
// that the mark of s names. Replies of 1.6.18 come from the memcached at plain.
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

// pipelined sends all streams that keep a connection in step over one connection, without
// waiting for replies. The replies must be those that memcached gives to each stream
// alone. memcached itself loses replies in a pipeline: an error in a multi-get drops
// replies that are waiting to be sent.
func pipelined(t *testing.T, streams []stream, plain, proxied string) {
	t.Helper()
	var want, got wiretest.Said
	for range 3 { // retried because replies may contain seconds: see compare
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

// talk sends a stream and reads until the given number of probes are answered.
func talk(t *testing.T, address, stream string, probes int) string {
	t.Helper()
	c := dial(t, address)
	defer c.Close()
	go io.WriteString(c, stream) // a failed write shows as a missing reply
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

// serverLimits makes ringside enforce the same value limit as the server.
const serverLimits = "limits: {value: 1MiB}\n"

// conformancePair starts a memcached, and a ringside with a second memcached behind it.
func conformancePair(t *testing.T, driver, limits string) (plain, proxied string) {
	t.Helper()
	// The streams expect a value of 2 MiB to be too large.
	one, other := testenv.StartMemcached(t, "-m", "256", "-I", "1m"), startMemcached(t, "-I", "1m")
	return one.Address, startRingside(t, driver, front([]*memcached{other})+limits).address
}

// compare sends a stream to ringside and compares the reply with its model. Replies may
// contain seconds, and a second may begin between the two. A difference is therefore
// tried up to three times.
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

// differ reports two replies from shortly before their first difference on.
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

// hear flushes the server and returns its reply to s.
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

// TestConformanceOfReleases checks the marks of the corpus: the two releases of memcached
// must differ where it says so, and nowhere else.
func TestConformanceOfReleases(t *testing.T) {
	t.Parallel()
	one := testenv.StartMemcached(t, "-m", "256", "-I", "1m")
	differing := 0
	for _, s := range corpus(t) {
		var old wiretest.Said
		same := false
		for range 3 { // retried because replies may contain seconds: see compare
			old = hear(t, one.Address, s.Stream)
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
	if want := hear(t, one.Address, wiretest.Stream{Data: "quit\r\n"}); want != (wiretest.Said{Closed: true}) {
		t.Errorf("memcached did not close after quit: %+v", want)
	}
}

// TestRecordedAnswers compares the recorded replies with the memcached binary at the path
// in MEMCACHED_NEW. With RECORD=1 it rewrites the recording. Without a path it only
// checks that the recording is complete.
func TestRecordedAnswers(t *testing.T) {
	t.Parallel()
	binary := os.Getenv("MEMCACHED_NEW")
	if binary == "" {
		corpus(t) // check at least that every stream has a recorded reply
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
