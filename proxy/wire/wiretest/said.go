package wiretest

// This file contains the reaction of a memcached to a stream of requests. The memcached
// is running, or its reactions were recorded.

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

// probe is a request that is sent after each stream with a complete last line. The reply
// to probe shows that the connection is open, and that the server reads requests from the
// right byte on. After an incomplete line no probe is sent, because it would complete the
// line. (memcached closes a connection with an incomplete line of more than 2048 bytes.)
const (
	probe  = "mn\r\nmg probe k Oend\r\n"
	InStep = "EN kprobe Oend\r\n" // the end of the reply to the request probe
)

// Probed returns the data of the stream, followed by the request probe if the last line
// is complete.
func (s Stream) Probed() string {
	if strings.HasSuffix(s.Data, "\n") {
		return s.Data + probe
	}
	return s.Data
}

// Said is the reaction of a server to a stream that ends with the request probe.
type Said struct {
	Answer string // the server's reply to the whole stream, without the parts that Normal replaces
	Closed bool   // whether the server closed the connection before the client did
}

// InStep reports whether the server understood the request probe at the end of the
// stream. If so, the server reads requests from the right byte on.
func (s Said) InStep() bool { return strings.HasSuffix(s.Answer, InStep) }

// silence is how long a memcached must send nothing, twice in a row, to count as waiting
// for more input. Between the two periods it must reply to another client, because a
// server without CPU time sends nothing either. Hear uses a longer time for slow servers.
const silence = 300 * time.Millisecond

// Hear sends pieces of a stream on the connection c and returns the reaction of the
// server. want is the reaction of another server to the same pieces, or zero. Hear waits
// at most for the duration patience for a reply that is as long as the one in want. If
// the connection is closed in want, Hear waits until the server closes it.
func Hear(c *net.TCPConn, pieces []string, want Said, patience time.Duration) Said {
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for _, piece := range pieces {
			if _, err := io.WriteString(c, piece); err != nil {
				return // the server has closed the connection; its reply may still arrive
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
	// A server without CPU time sends nothing, and replies late to a new client. Wait ten
	// times as long as such a reply takes.
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
		default: // some pieces of the stream are not sent yet
		}
		enough = max(enough, min(10*time.Since(began), patience))
	}
	c.CloseWrite()
	for read(patience) == nil { // bytes after the reply to the probe become part of the result, which then differs
	}
	return Said{Normal(answer), false}
}

// serves reports whether the server at address replies to a new client within the
// duration patience.
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
	regexp.MustCompile(`(?m)^(VALUE \S+ \d+ \d+) (\d+)\r$`), // cas ids in the replies to gets and gats
	regexp.MustCompile(`(?m)^((?:HD|VA|EN|NF|EX|NS)\b[^\r\n]* c)(\d+)`),
	regexp.MustCompile(`(?m)^(ME [^\r\n]* cas=)(\d+)`),
	regexp.MustCompile(`(?m)^(VERSION )(\S+)\r$`),
}

// Normal replaces those parts of a reply that may differ between servers by *. These
// parts are cas ids, which depend on earlier writes, and versions. Normal also removes
// the text that Ringside adds to memcached's error for a value that is too large.
func Normal(answer []byte) string {
	answer = bytes.ReplaceAll(answer, []byte(": the value is longer than limits.value of Ringside"), nil)
	for _, re := range changing {
		answer = re.ReplaceAll(answer, []byte("${1}*"))
	}
	return string(answer)
}

//go:embed testdata/memcached-1.6.45.txt
var recorded string

// Recorded returns the recorded reactions of memcached 1.6.45, by the field Source of the
// stream. Each line of testdata/memcached-1.6.45.txt contains the source, then =>, then
// the reply in the syntax of streams.txt. The word closed follows if the server closed
// the connection.
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

// quote returns text in the syntax of streams.txt. It writes a run of more than 100 equal
// bytes as one byte with a repeat count.
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
