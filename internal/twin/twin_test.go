package twin

// Sending one stream to both sides, and comparing the replies.

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"ringside/internal/testenv"
	"ringside/proxy/wire"
)

// patience limits every wait. Only a failing stream waits that long.
const patience = testenv.Hang

// longest is the largest number of commands in one round. Ringside rejects
// commands if more than a thousand wait for one key (package task).
const longest = 250

// side is one of the two servers that a client talks to.
type side struct {
	name string
	net.Conn
	cas    string // last cas token in a reply
	answer []byte // reply to the current round
}

func connect(t *testing.T, name, address string) *side {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &side{name: name, Conn: c, cas: never}
}

// say sends text in pieces. cuts are the positions of the cuts in 256ths of its
// length.
func (s *side) say(text string, cuts []int) {
	s.SetDeadline(time.Now().Add(patience))
	from := 0
	for _, cut := range cuts {
		if at := len(text) * cut / 256; at > from {
			io.WriteString(s, text[from:at]) // an error shows in the reply
			from = at
		}
	}
	io.WriteString(s, text[from:])
}

var told = regexp.MustCompile(`(?m)^VALUE (\S+) \d+ \d+ (\d+)\r$| c(\d+)`)

// hear reads until barrier, or until the end of the connection if barrier is
// empty.
func (s *side) hear(barrier string) error {
	s.answer = s.answer[:0]
	buf := make([]byte, 16<<10)
	for {
		n, err := s.Read(buf)
		s.answer = append(s.answer, buf[:n]...)
		if barrier != "" && bytes.HasSuffix(s.answer, []byte(barrier)) || barrier == "" && err == io.EOF {
			break
		}
		if err != nil {
			if barrier == "" && strings.Contains(err.Error(), "reset") {
				break // the server closed before it had read everything
			}
			return err
		}
	}
	// Use the cas token of the greatest key, because the replies arrive in any
	// order.
	greatest := ""
	for _, m := range told.FindAllSubmatch(s.answer, -1) {
		if key := string(m[1]); key >= greatest {
			greatest, s.cas = key, string(m[2])+string(m[3])
		}
	}
	return nil
}

var (
	changing = []struct {
		line *regexp.Regexp
		with string
	}{
		{regexp.MustCompile(`^(VALUE \S+ \d+ \d+) \d+$`), "$1 *"},
		{regexp.MustCompile(`^((?:HD|VA|EN|NF|EX|NS)\b.*? c)\d+`), "$1*"},
		{regexp.MustCompile(`^((?:HD|VA)\b.*? t)-?\d+`), "$1*"},
		{regexp.MustCompile(`^(ME \S+) .*`), "$1 *"},
	}
	block = regexp.MustCompile(`^(?:VALUE \S+ \d+|VA) (\d+)`)
)

// normal returns the parts of a reply, each a line with its data, without what may
// change. If there are several servers, it sorts the values of each read.
func normal(answer []byte, several bool) []string {
	var parts []string
	run := 0 // number of values at the end of parts
	for len(answer) > 0 {
		line, rest, _ := bytes.Cut(answer, []byte("\n"))
		size := len(answer) - len(rest)
		line = bytes.TrimSuffix(line, []byte("\r"))
		data := 0
		if m := block.FindSubmatch(line); m != nil {
			data, _ = strconv.Atoi(string(m[1]))
			data = min(data+2, len(rest))
		}
		for _, c := range changing {
			line = c.line.ReplaceAll(line, []byte(c.with))
		}
		parts = append(parts, string(line)+"\r\n"+string(answer[size:size+data]))
		switch {
		case bytes.HasPrefix(line, []byte("VALUE ")):
			run++
		default:
			if several && string(line) == "END" {
				slices.Sort(parts[len(parts)-1-run : len(parts)-1])
			}
			run = 0
		}
		answer = answer[size+data:]
	}
	return parts
}

// stream is one conversation of a client with both sides.
type stream struct {
	t             *testing.T
	v             *variant
	client        client
	plain, proxy  *side
	sent          []string
	rounds, marks int
}

// run uses data to choose a variant and a stream, and runs it.
func run(t *testing.T, data []byte) {
	c := choice{rest: data}
	v := variants[c.n(len(variants))]
	v.start(t)
	s := &stream{t: t, v: v, plain: connect(t, "memcached", servers.plain), proxy: connect(t, "ringside", v.address)}
	defer s.plain.Close()
	defer s.proxy.Close()
	s.client = client{
		choice: c, alone: v.alone(), copies: v.copies, flush: v.out == 0,
		prefix: fmt.Sprintf("%s%x:", v.name[:2], crc32.ChecksumIEEE(data)),
	}
	if v.out == 0 { // otherwise the keys of other streams remain, with other prefixes
		s.round([]command{{text: "flush_all\r\n"}})
	}
	var next *command
	for len(s.client.rest) > 0 && s.rounds < 100 {
		var commands []command
		for {
			if next == nil {
				c := s.client.command()
				next = &c
			}
			if len(commands) > 0 && next.first {
				break
			}
			commands = append(commands, *next)
			next = nil
			if len(s.client.rest) == 0 || s.client.one(3) || len(commands) == longest {
				break
			}
		}
		s.round(commands)
	}
	s.end()
}

// barrier returns a command and its reply, which is unlike any other reply.
func (s *stream) barrier() (text, answer string) {
	s.rounds++
	key := fmt.Sprintf("%s!%d", s.client.prefix, s.rounds)
	return "mg " + key + " k\r\n", "EN k" + key + "\r\n"
}

// round sends commands and compares the replies.
func (s *stream) round(commands []command) {
	s.t.Helper()
	var plain, proxy strings.Builder
	lost := map[string]string{}
	for _, c := range commands {
		given, said := s.v.spell(c, s.client.prefix, &s.marks, lost)
		plain.WriteString(given)
		proxy.WriteString(said)
	}
	ask, answer := s.barrier()
	s.sent = append(s.sent, proxy.String())
	cuts := s.client.cuts()
	s.plain.say(testenv.For1618(strings.ReplaceAll(plain.String(), casMark, s.plain.cas)+ask), nil)
	s.proxy.say(strings.ReplaceAll(proxy.String(), casMark, s.proxy.cas)+ask, cuts)
	for _, side := range []*side{s.plain, s.proxy} {
		if err := side.hear(answer); err != nil {
			s.fail("%s: %v after %q", side.name, err, side.answer)
		}
	}
	var want []string
	for _, part := range normal(s.client.spelled(s.plain.answer), !s.v.alone() || s.v.near) {
		if instead, ok := lost[part]; ok {
			part = instead
		}
		if part != "" {
			want = append(want, part)
		}
	}
	s.compare(want, normal(s.proxy.answer, !s.v.alone() || s.v.near))
}

// end runs the last round: random text that need not be commands, after which the
// client quits or closes its half of the connection.
func (s *stream) end() {
	s.t.Helper()
	text := ""
	if s.v.alone() {
		text = s.client.soup()
	}
	text += s.client.of("", "", "quit\r\n", "quit\r\nmn\r\n", "GET / HTTP/1.1\r\n")
	if strings.HasSuffix(text, "HTTP/1.1\r\n") { // memcached drops replies that it has not sent yet
		text = "GET / HTTP/1.1\r\nmn\r\n"
	}
	s.sent = append(s.sent, text)
	s.plain.say(testenv.For1618(text), nil)
	s.proxy.say(text, s.client.cuts())
	for _, side := range []*side{s.plain, s.proxy} {
		side.Conn.(*net.TCPConn).CloseWrite() // it may already be closed
		if err := side.hear(""); err != nil {
			s.fail("%s: %v after %q", side.name, err, side.answer)
		}
	}
	want, got := normal(s.plain.answer, false), normal(s.proxy.answer, false)
	if incomplete(text) && len(got) > len(want) {
		got = got[:len(want)]
	}
	s.compare(want, got)
}

// incomplete reports whether a stream ends inside a data block.
func incomplete(text string) bool {
	limits, data := wire.Limits{}, []byte(text)
	for len(data) > 0 {
		var r wire.Request
		n, err := limits.Next(data, &r)
		if err != nil {
			return true
		}
		if int64(n)+r.Swallow > int64(len(data)) {
			return true
		}
		data = data[int64(n)+r.Swallow:]
	}
	return false
}

func (s *stream) compare(want, got []string) {
	s.t.Helper()
	for i := range max(len(want), len(got)) {
		w, g := "nothing", "nothing"
		if i < len(want) {
			w = want[i]
		}
		if i < len(got) {
			g = got[i]
		}
		if s.v.out > 0 && strings.HasPrefix(g, "SERVER_ERROR ") {
			g = lostText
		}
		if s.v.copies {
			w, g = won.ReplaceAllString(w, " X *"), won.ReplaceAllString(g, " X *")
		}
		if w != g {
			s.fail("part %d of the answer:\nringside  %.300q\nmemcached %.300q\nall of ringside's  %.1000q\nall of memcached's %.1000q", i, g, w, got, want)
		}
	}
}

// won matches the flags that tell which client should rebuild a stale value. With
// copies, these may differ: a read that Ringside sent after a failed command may
// have got W first.
var won = regexp.MustCompile(` (Z X|X W)\b`)

// repeated matches the repetitions in long values and keys, to shorten messages.
var repeated = regexp.MustCompile(`(kkkk|xxxx|KKKK|(?:v\\r\\n){4}|(?:mn\\r\\n){4})(?:[kxK]|v\\r\\n|mn\\r\\n)+`)

func (s *stream) fail(format string, args ...any) {
	s.t.Helper()
	text := fmt.Sprintf("%s, round %d: %s\nsent", s.v.name, len(s.sent), fmt.Sprintf(format, args...))
	for _, round := range s.sent {
		text += fmt.Sprintf("\n\t%q", round)
	}
	s.t.Fatal(repeated.ReplaceAllString(text, "$1…"))
}
