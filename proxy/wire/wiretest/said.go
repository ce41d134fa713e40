package wiretest

// What a memcached said to a stream: heard from a live one, or recorded.

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

// A probe follows each stream that ends with its line: the answer shows that
// the connection is still open and in step. (An unfinished line it would
// complete: memcached closes the connection of one over 2048 bytes only while
// its end is not there.)
const (
	probe  = "mn\r\nmg probe k Oend\r\n"
	InStep = "EN kprobe Oend\r\n" // the answer to it
)

// Probed is the stream with its probe.
func (s Stream) Probed() string {
	if strings.HasSuffix(s.Data, "\n") {
		return s.Data + probe
	}
	return s.Data
}

// Said is what a server did with a probed stream.
type Said struct {
	Answer string // without what Normal hides
	Closed bool   // by the server, although the client had not
}

// InStep says that the connection took the probe for what it is.
func (s Said) InStep() bool { return strings.HasSuffix(s.Answer, InStep) }

// silence is how long a memcached must say nothing, twice, to be taken for one
// that waits for more. Between the two it answers another client: one that has no
// processor is silent, too. It is no bound on others.
const silence = 300 * time.Millisecond

// Hear sends pieces on a new connection and takes in what comes back. want is
// what another server did before, for which this one has all of patience, or
// nothing.
func Hear(c *net.TCPConn, pieces []string, want Said, patience time.Duration) Said {
	sent := make(chan struct{})
	go func() {
		defer close(sent)
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
	// A server without a processor is silent, too, and slow to answer a new client: it is given
	// ten times what that takes.
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
		default: // it has not got all yet
		}
		enough = max(enough, min(10*time.Since(began), patience))
	}
	c.CloseWrite()
	for read(patience) == nil { // nothing may follow
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

// Normal hides cas numbers, which count what each server has stored, versions, and what
// Ringside adds to memcached's words about a large value.
func Normal(answer []byte) string {
	answer = bytes.ReplaceAll(answer, []byte(": the value is longer than limits.value of Ringside"), nil)
	for _, re := range changing {
		answer = re.ReplaceAll(answer, []byte("${1}*"))
	}
	return string(answer)
}

//go:embed testdata/memcached-1.6.45.txt
var recorded string

// Recorded returns what memcached 1.6.45 said to each stream, by its Source.
// Each line of testdata/memcached-1.6.45.txt has the source, and behind => the
// answer in the form of streams.txt, and closed if it closed.
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

// Record spells what was said to s as a line of that file.
func Record(s Stream, said Said) string {
	line := s.Source + " => " + quote(said.Answer)
	if said.Closed {
		line += " closed"
	}
	return line + "\n"
}

// quote is the text that parse reads, with long runs of a byte counted.
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
