package wiretest

// The reaction of a memcached to a stream: from a running server, or recorded.

import (
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// probe is sent after each stream that ends with a complete line. The reply shows
// that the connection is open and in step. After an incomplete line no probe is
// sent, because it would complete the line. (memcached closes a connection with an
// incomplete line of more than 2048 bytes.)
const (
	probe  = "mn\r\nmg probe k Oend\r\n"
	InStep = "EN kprobe Oend\r\n" // the end of the reply to probe
)

// Probed returns the stream followed by its probe.
func (s Stream) Probed() string {
	if strings.HasSuffix(s.Data, "\n") {
		return s.Data + probe
	}
	return s.Data
}

// Said is the reaction of a server to a probed stream.
type Said struct {
	Answer string // reply, without the parts that Normal replaces
	Closed bool   // whether the server closed the connection before the client did
}

// InStep reports whether the server understood the probe as a probe, so the
// connection is in step.
func (s Said) InStep() bool { return strings.HasSuffix(s.Answer, InStep) }

// silence is how long a memcached must be silent, twice in a row, to count as
// waiting for more input. Between the two periods it must answer another client,
// because a server that gets no CPU time is silent too. Hear increases it for slow
// servers.
const silence = 300 * time.Millisecond

// Hear sends pieces on a new connection and returns the reaction of the server.
// want is the reaction of another server to the same pieces, or zero. Hear waits up
// to patience for a reply as long as want's, or for the server to close if want is
// closed.
func Hear(c *net.TCPConn, pieces []string, want Said, patience time.Duration) Said {
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for _, piece := range pieces {
			if _, err := io.WriteString(c, piece); err != nil {
				return // the server has closed; its reply may still arrive
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
	// A server without CPU time is silent too, and it answers a new client slowly.
	// It gets ten times the time of such an answer.
	enough, start := silence, time.Now()
	for waits := 0; !bytes.HasSuffix(answer, []byte(InStep)); {
		wait, before := patience, len(answer)
		if want == (Said{}) || !want.Closed && len(Normal(answer)) >= len(want.Answer) {
			wait = enough
		}
		err := read(wait)
		if len(answer) > before {
			waits = 0
		}
		if err == nil {
			continue
		}
		timeout, _ := err.(net.Error)
		closed := timeout == nil || !timeout.Timeout()
		began := time.Now()
		if closed || !serves(c.RemoteAddr().String(), patience) || time.Since(start) > 3*patience {
			return Said{Normal(answer), closed}
		}
		select {
		case <-sent:
			if waits++; waits > 1 && wait >= min(10*time.Since(began), patience) {
				return Said{Normal(answer), false}
			}
		default: // not all pieces have been sent
		}
		enough = max(enough, min(10*time.Since(began), patience))
	}
	c.CloseWrite()
	for read(patience) == nil { // anything that follows makes the result differ
	}
	return Said{Normal(answer), false}
}

// serves reports whether the server at address answers a new client.
func serves(address string, patience time.Duration) bool {
	c, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return false
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	io.WriteString(c, probe)
	var answer []byte
	for buf := make([]byte, 64); err == nil && !bytes.HasSuffix(answer, []byte(InStep)); {
		var n int
		n, err = c.Read(buf)
		answer = append(answer, buf[:n]...)
	}
	return err == nil
}

var changing = []*regexp.Regexp{
	regexp.MustCompile(`(?m)^(VALUE \S+ \d+ \d+) (\d+)\r$`), // gets and gats
	regexp.MustCompile(`(?m)^((?:HD|VA|EN|NF|EX|NS)\b[^\r\n]* c)(\d+)`),
	regexp.MustCompile(`(?m)^(ME [^\r\n]* cas=)(\d+)`),
	regexp.MustCompile(`(?m)^(VERSION )(\S+)\r$`),
}

// Normal replaces what may differ between servers: cas ids, which depend on earlier
// writes, and versions. It also removes the text that Ringside adds to memcached's
// error for a large value.
func Normal(answer []byte) string {
	answer = bytes.ReplaceAll(answer, []byte(": the value is longer than limits.value of Ringside"), nil)
	for _, re := range changing {
		answer = re.ReplaceAll(answer, []byte("${1}*"))
	}
	return string(answer)
}

//go:embed testdata/memcached-1.6.45.txt
var recorded string

// Recorded returns the recorded reactions of memcached 1.6.45, by the Source of the
// stream. Each line of testdata/memcached-1.6.45.txt contains the source, then =>,
// then the reply in the syntax of streams.txt. The word closed follows if the
// server closed the connection.
func Recorded() (map[string]Said, error) {
	all := map[string]Said{}
	for i, line := range strings.Split(strings.TrimSpace(recorded), "\n") {
		source, said, err := parseSaid(line)
		if err != nil {
			return nil, fmt.Errorf("memcached-1.6.45.txt:%d: %w", i+1, err)
		}
		all[source] = said
	}
	return all, nil
}

func parseSaid(line string) (source string, said Said, err error) {
	source, answer, ok := strings.Cut(line, " => ")
	if !ok {
		return "", Said{}, fmt.Errorf("no => in %q", line)
	}
	answer, said.Closed = strings.CutSuffix(answer, " closed")
	said.Answer, err = parse(answer)
	return source, said, err
}

// Record returns the line of testdata/memcached-1.6.45.txt that records the reaction
// `said` to the stream s.
func Record(s Stream, said Said) string {
	line := s.Source + " => " + quote(said.Answer)
	if said.Closed {
		line += " closed"
	}
	return line + "\n"
}

// quote returns text in the syntax that parse reads. Runs of more than 100 equal
// bytes are written with a repeat count.
func quote(text string) string {
	var b strings.Builder
	from := 0
	for at := 0; at < len(text); {
		run := 1
		for at+run < len(text) && text[at+run] == text[at] {
			run++
		}
		if run > 100 {
			if from < at {
				b.WriteString(strconv.Quote(text[from:at]) + " ")
			}
			fmt.Fprintf(&b, "%d*%q ", run, text[at:at+1])
			from = at + run
		}
		at += run
	}
	if from < len(text) || text == "" {
		b.WriteString(strconv.Quote(text[from:]))
	}
	return strings.TrimSpace(b.String())
}
