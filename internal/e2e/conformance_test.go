package e2e

// Odd and malformed streams: ringside answers what memcached answers, byte by
// byte, and closes the connection when memcached does.

import (
	"bytes"
	"io"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"ringside/proxy/wire/wiretest"
)

// probe follows each stream that ends with its line: the answer shows that the
// connection is still open and in step. (An unfinished line it would complete:
// memcached closes the connection of one over 2048 bytes only while its end is
// not there.)
const (
	probe  = "mn\r\nmg probe k Oend\r\n"
	inStep = "EN kprobe Oend\r\n"
)

func probed(stream string) string {
	if strings.HasSuffix(stream, "\n") {
		stream += probe
	}
	return stream
}

// silence is how long a real memcached must say nothing to be taken for one
// that waits for more. It is no bound on ringside.
const silence = 300 * time.Millisecond

// said is what a server did with a stream.
type said struct {
	answer string // without what normal hides
	closed bool   // by the server, although the client had not
}

func (s said) inStep() bool { return strings.HasSuffix(s.answer, inStep) }

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

// stream is one of the corpus.
type stream struct{ wiretest.Stream }

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
	for _, s := range streams {
		all = append(all, stream{s})
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
						compare(t, s.Name, delivery.cut(probed(s.Data)), plain, proxied)
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

// pipelined sends all streams that leave a connection in step over one, without
// waiting. The answers must be those that memcached gives to them one by one:
// in a pipeline it loses answers, as an error in a multi-get drops what waits
// to be sent.
func pipelined(t *testing.T, streams []stream, plain, proxied string) {
	t.Helper()
	var want, got said
	for range 3 { // see compare
		var all, answers strings.Builder
		for _, s := range streams {
			dial(t, plain).ask("flush_all", "OK")
			if one := hear(t, plain, []string{probed(s.Data)}, said{}); one.inStep() {
				all.WriteString("flush_all\r\n" + probed(s.Data))
				answers.WriteString("OK\r\n" + one.answer)
			}
		}
		want = said{answer: answers.String()}
		got = said{answer: talk(t, proxied, all.String(), strings.Count(want.answer, inStep))}
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
		if bytes.HasSuffix(answer, []byte(inStep)) {
			seen = bytes.Count(answer, []byte(inStep))
		}
	}
	return normal(answer)
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

// compare sends a stream to both. Answers may carry seconds, and a second may
// begin between the two: what differs is tried again.
func compare(t *testing.T, name string, pieces []string, plain, proxied string) {
	t.Helper()
	var want, got said
	for range 3 {
		for _, address := range []string{plain, proxied} {
			dial(t, address).ask("flush_all", "OK")
		}
		want = hear(t, plain, pieces, said{})
		got = hear(t, proxied, pieces, want)
		if got.answer == want.answer && got.closed == want.closed {
			return
		}
	}
	differ(t, name+": sent "+brief(strings.Join(pieces, "")), want, got)
}

// differ reports two answers from where they part.
func differ(t *testing.T, name string, want, got said) {
	t.Helper()
	at := 0
	for at < len(got.answer) && at < len(want.answer) && got.answer[at] == want.answer[at] {
		at++
	}
	from := max(0, at-100)
	t.Errorf("%s\nfrom byte %d of the answer on:\nringside  %s (closes: %v)\nmemcached %s (closes: %v)",
		name, from, brief(got.answer[from:]), got.closed, brief(want.answer[from:]), want.closed)
}

// hear sends pieces on a new connection and takes in what comes back. want is
// what another server did before, or nothing.
func hear(t *testing.T, address string, pieces []string, want said) said {
	t.Helper()
	c := dial(t, address)
	defer c.Close()
	go func() {
		for _, piece := range pieces {
			if _, err := io.WriteString(c, piece); err != nil {
				return // it has closed; what it said is on its way to the reader
			}
		}
	}()
	var answer []byte
	buf := make([]byte, 64<<10)
	read := func(wait time.Duration) error {
		c.SetReadDeadline(time.Now().Add(wait))
		n, err := c.Read(buf)
		answer = append(answer, buf[:n]...)
		return err
	}
	for !bytes.HasSuffix(answer, []byte(inStep)) {
		// Ringside may take its time to say what memcached said, or to close
		// as memcached did.
		wait := patience
		if want == (said{}) || !want.closed && len(normal(answer)) >= len(want.answer) {
			wait = silence
		}
		if err := read(wait); err != nil {
			timeout, _ := err.(net.Error)
			return said{normal(answer), timeout == nil || !timeout.Timeout()}
		}
	}
	// In step. Nothing may follow.
	c.Conn.(*net.TCPConn).CloseWrite()
	for read(patience) == nil {
	}
	return said{normal(answer), false}
}

var changing = []*regexp.Regexp{
	regexp.MustCompile(`(?m)^(VALUE \S+ \d+ \d+) (\d+)\r$`), // gets and gats
	regexp.MustCompile(`(?m)^((?:HD|VA|EN|NF|EX|NS)\b[^\r\n]* c)(\d+)`),
	regexp.MustCompile(`(?m)^(ME [^\r\n]* cas=)(\d+)`),
}

// normal hides cas numbers, which count what each server has stored.
func normal(answer []byte) string {
	for _, re := range changing {
		answer = re.ReplaceAll(answer, []byte("${1} CAS"))
	}
	return string(answer)
}

// The comparison itself: two plain servers must agree with each other.
func TestConformanceOfMemcachedWithItself(t *testing.T) {
	t.Parallel()
	one, other := startMemcached(t, "-I", "1m"), startMemcached(t, "-I", "1m")
	for _, s := range corpus(t) {
		compare(t, s.Name, []string{probed(s.Data)}, one.address, other.address)
	}
	if want := hear(t, one.address, []string{"quit\r\n"}, said{}); want != (said{closed: true}) {
		t.Errorf("memcached did not close after quit: %+v", want)
	}
}
