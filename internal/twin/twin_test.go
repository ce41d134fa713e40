package twin

// One stream to both sides, and what may differ.

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
	"ringside/proxy/wire/wiretest/older"
)

// patience bounds every wait; only a failing stream waits so long.
const patience = testenv.Hang

// longest is how many commands go out at once: of more than a thousand that wait for
// one key Ringside refuses the rest (package task).
const longest = 250

// side is one of the two a client talks to.
type side struct {
	name string
	net.Conn
	cas    string // the last it has told
	answer []byte // to the round
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

// say sends text, cut where cuts (of 256ths) say.
func (s *side) say(text string, cuts []int) {
	s.SetDeadline(time.Now().Add(patience))
	from := 0
	for _, cut := range cuts {
		if at := len(text) * cut / 256; at > from {
			io.WriteString(s, text[from:at]) // what fails here shows in the answer
			from = at
		}
	}
	io.WriteString(s, text[from:])
}

var told = regexp.MustCompile(`(?m)^VALUE (\S+) \d+ \d+ (\d+)\r$| c(\d+)`)

// hear reads until barrier, or the end if that is empty.
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
				break // it closed before it had read all
			}
			return err
		}
	}
	// Of several the one of the greatest key: they come in any order.
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

// normal is an answer without what changes, a part for each line with its data.
// Where there are several servers the values of one read are put in order.
func normal(answer []byte, several bool) []string {
	var parts []string
	run := 0 // values at the end of parts
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

// run lets the bytes choose a variant and a stream.
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
	if v.out == 0 { // else keys of other streams stay: they have another prefix
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

// barrier is a command whose answer no other can be taken for.
func (s *stream) barrier() (text, answer string) {
	s.rounds++
	key := fmt.Sprintf("%s!%d", s.client.prefix, s.rounds)
	return "mg " + key + " k\r\n", "EN k" + key + "\r\n"
}

// round sends commands and compares the answers to them.
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
	s.plain.say(older.Stream(strings.ReplaceAll(plain.String(), casMark, s.plain.cas)+ask), nil)
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

// end is the last round: what nobody has framed, and a client that closes its
// half, or quits.
func (s *stream) end() {
	s.t.Helper()
	text := ""
	if s.v.alone() {
		text = s.client.soup()
	}
	text += s.client.of("", "", "quit\r\n", "quit\r\nmn\r\n", "GET / HTTP/1.1\r\n")
	if strings.HasSuffix(text, "HTTP/1.1\r\n") { // memcached forgets what it has not sent yet
		text = "GET / HTTP/1.1\r\nmn\r\n"
	}
	s.sent = append(s.sent, text)
	s.plain.say(older.Stream(text), nil)
	s.proxy.say(text, s.client.cuts())
	for _, side := range []*side{s.plain, s.proxy} {
		side.Conn.(*net.TCPConn).CloseWrite() // it may have closed already
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

// incomplete says that a stream ends in a data block.
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

// won says who is to rebuild a stale value. Of copies, a look of Ringside's behind a
// command that has failed may have been told so before.
var won = regexp.MustCompile(` (Z X|X W)\b`)

// repeated is what a long value or key consists of.
var repeated = regexp.MustCompile(`(kkkk|xxxx|KKKK|(?:v\\r\\n){4}|(?:mn\\r\\n){4})(?:[kxK]|v\\r\\n|mn\\r\\n)+`)

func (s *stream) fail(format string, args ...any) {
	s.t.Helper()
	text := fmt.Sprintf("%s, round %d: %s\nsent", s.v.name, len(s.sent), fmt.Sprintf(format, args...))
	for _, round := range s.sent {
		text += fmt.Sprintf("\n\t%q", round)
	}
	s.t.Fatal(repeated.ReplaceAllString(text, "$1…"))
}
