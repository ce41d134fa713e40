package fleet

// This file compares the replies to commands on keys that move with the replies on keys that stay.

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"ringside/proxy/health/resize"
	"ringside/proxy/link"
	"ringside/proxy/table"
)

// pen is a client that sends one text at a time.
type pen struct {
	d    *driver
	link *link.Link
	got  []byte
	cut  bool // the engine has closed the connection
}

func (p *pen) Peer() string { return "pen" }

// Unread implements link.Sock.
func (p *pen) Unread() int { return 0 }

func (p *pen) Unsent() int { return 0 }

// ask sends text, which must end with a command that has the reply end, and returns the replies before
// that.
func (p *pen) ask(f *fleet, text, end string) string {
	p.got = nil
	p.d.input(func() {
		if p.link == nil {
			p.link = p.d.e.Accepted("tcp", "here", p)
		}
		p.d.e.Bytes(p.link, []byte(text))
	})
	for until := f.now + 20*second; f.now < until && !p.cut && !strings.HasSuffix(string(p.got), end); {
		f.run(f.now + milli)
	}
	return strings.TrimSuffix(string(p.got), end)
}

// frameOf returns a frame of the binary protocol.
func frameOf(opcode byte, cas uint64, extras, key, value string) string {
	b := []byte{0x80, opcode, 0, byte(len(key)), byte(len(extras)), 0, 0, 0}
	b = binary.BigEndian.AppendUint32(b, uint32(len(extras)+len(key)+len(value)))
	b = binary.BigEndian.AppendUint64(append(b, "opaq"...), cas)
	return string(b) + extras + key + value
}

// movingStates are the commands that bring a key into the states in which the others are tested.
var movingStates = []string{"", "set K 7 0 1\r\n5\r\n", "set K 0 90 5\r\nhello\r\n", "set K 0 0 1\r\n5\r\ntouch K 80\r\n", "set K 0 0 4\r\nword\r\nmd K I T60\r\n", "ms K 0 F3\r\n\r\n"}

var tooLong = strings.Repeat("z", 1048570)

// movingCommands are commands on a key K, and B in base64. TOKEN is the last cas that the client has seen.
var movingCommands = []string{
	"get K", "gets K", "gat 90 K", "gats 90 K", "touch K 90", "delete K", "incr K 2", "decr K 9",
	"set K 1 0 1\r\nx", "add K 1 0 1\r\nx", "replace K 1 0 1\r\nx", "append K 1 0 1\r\n1", "prepend K 1 0 1\r\n1",
	"gets K\r\ncas K 1 0 1 TOKEN\r\nx", "gets K\r\nappend K 0 0 1\r\n1\r\ncas K 1 0 1 TOKEN\r\nx",
	"touch K -1", "touch K 90 noreply", "append K 0 0 1 noreply\r\n1", "add K 1 0 1 noreply\r\nx", "incr K x", "touch K x",
	"mg K", "mg K v f s t k O12", "mg K c v q", "mg K T90 v c f", "mg K N30 v f", "mg K R30 v", "mg B b v k f",
	"ms K 1 c O12 k F5\r\nx", "ms K 1 T90 q\r\nx", "ms B 1 b c k\r\nx",
	"ms K 1 ME c k O12\r\nx", "ms K 1 ME C99 c\r\nx", "ms K 1 ME I c\r\nx", "ms K 1 ME q\r\nx",
	"ms K 1 MR c k O12\r\nx", "ms K 1 MR I c F9\r\nx", "ms K 1 MR q\r\nx",
	"ms K 1 MA c k O12 F9\r\n1", "ms K 1 MP c k\r\n1", "ms K 1 MA I c\r\n1", "ms K 1 MA q\r\n1", "ms B 1 b MA c\r\n1",
	"mg K c\r\nms K 1 CTOKEN c O12\r\nx", "mg K c\r\nms K 1 CTOKEN MR c\r\nx", "mg K c\r\nms K 1 CTOKEN MA c\r\n1", "mg K c\r\nms K 1 CTOKEN ME c\r\n1",
	"md K O12 k", "md K q", "md K I T30", "md K I q", "md B b k", "mg K c\r\nmd K CTOKEN", "mg K c\r\nmd K CTOKEN I",
	"ma K", "ma K v t c D3 k O12", "ma K MD D9 v", "ma K N0 J7 v", "ma K N0 J7 T90 v t", "ma K q", "mg K c\r\nma K CTOKEN v", "ms K 1 C99 c\r\nx", "ms K 1 C99 MR I c\r\nx", "md K C99", "ma K C99", "ma B b v k",
	"mg K s f", "gets K\r\nmg K v f", "touch K 50\r\nmg K v f t", "gat 50 K\r\nmg K v", "add K 0 0 1\r\nx\r\nmg K v", "incr K 1\r\nmg K v",
	"mg K v\r\nmg K v", "append K 0 0 1\r\n1\r\nmg K v f t",
	"set K 0 0 1048570\r\n" + tooLong, "add K 0 0 1048570\r\n" + tooLong, "replace K 0 0 1048570\r\n" + tooLong, "append K 0 0 1048570\r\n" + tooLong, "ms K 1048570\r\n" + tooLong,
}

// movingFrames are the opcodes of the binary protocol, with their extras and values.
var movingFrames = []struct {
	opcode        byte
	extras, value string
}{
	{opcode: 0x00}, {opcode: 0x0c}, {opcode: 0x09}, {opcode: 0x0d}, {opcode: 0x04}, {opcode: 0x14},
	{0x01, "\x00\x00\x00\x05\x00\x00\x00\x00", "x"}, {0x02, "\x00\x00\x00\x05\x00\x00\x00\x00", "x"}, {0x03, "\x00\x00\x00\x05\x00\x00\x00\x00", "x"},
	{0x11, "\x00\x00\x00\x05\x00\x00\x00\x00", "x"}, {0x12, "\x00\x00\x00\x05\x00\x00\x00\x00", "x"}, {0x13, "\x00\x00\x00\x05\x00\x00\x00\x00", "x"},
	{0x0e, "", "1"}, {0x0f, "", "1"}, {0x19, "", "1"}, {0x1a, "", "1"},
	{0x05, "\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x09\x00\x00\x00\x00", ""},
	{0x05, "\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x09\xff\xff\xff\xff", ""},
	{0x06, "\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x09\x00\x00\x00\x00", ""},
	{0x15, "\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x09\x00\x00\x00\x00", ""},
	{0x1c, "\x00\x00\x00\x5a", ""}, {0x1d, "\x00\x00\x00\x5a", ""}, {0x1e, "\x00\x00\x00\x5a", ""}, {0x23, "\x00\x00\x00\x5a", ""},
}

var (
	shownCas  = regexp.MustCompile(`(?m)^VALUE \S+ \d+ \d+ (\d+)\r$|^(?:HD|VA).* c([1-9]\d*)`)
	shownTTL  = regexp.MustCompile(`(?m)^((?:HD|VA)\b.*? t)(\d+)`)
	hiddenCas = regexp.MustCompile(`(?m)(^VALUE \S+ \d+ \d+) \d+\r$|(^(?:HD|VA)\b.*? c)[1-9]\d*`)
)

// TestResizeReplies checks that each command on a key that moves gets the reply that it gets on a key
// that stays, in each of the three protocols and in each stage of a resize.
func TestResizeReplies(t *testing.T) {
	f := newFleet(scenario{sidecars: 1, apps: -1, servers: 3, mode: table.Rehash, resize: table.ResizeWarm, rate: 1, remember: true}, 1, false)
	f.settle("at the start", 30*second)
	before, after := around{n: 3, gone: -1}, around{n: 3, gone: -1, reweighed: true}
	number := 0
	next := func(moves bool) string {
		for {
			key := fmt.Sprintf("key%05d", number)
			number++
			if h := hash([]byte(key)); (before.At(nil, h, 0) != after.At(nil, h, 0)) == moves {
				return key
			}
		}
	}
	text, frames := &pen{d: f.sidecars[0].drivers[0]}, &pen{d: f.sidecars[0].drivers[0]}
	stage := func() resize.Stage { return f.sidecars[0].snapshot().Resize("main").Stage() }
	spell := func(s, key, token string) string {
		s = strings.ReplaceAll(s, "TOKEN", token)
		s = strings.ReplaceAll(s, " B ", " "+base64.StdEncoding.EncodeToString([]byte(key))+" ")
		return strings.ReplaceAll(s, "K", key)
	}
	// say sends the commands one after the other, and returns their replies without what differs.
	say := func(key, commands string) (said []string) {
		token := "99"
		var one string
		for line := range strings.SplitAfterSeq(commands, "\r\n") {
			if one += line; line == "" || !complete(one) {
				continue
			}
			got := text.ask(f, spell(one, key, token)+"mn\r\n", "MN\r\n")
			if m := shownCas.FindStringSubmatch(got); m != nil {
				token = m[1] + m[2]
			}
			got = hiddenCas.ReplaceAllString(got, "$1$2*")
			got = shownTTL.ReplaceAllStringFunc(got, func(s string) string { // a few seconds may have passed
				m := shownTTL.FindStringSubmatch(s)
				left, _ := strconv.Atoi(m[2])
				return m[1] + strconv.Itoa((left+9)/10*10)
			})
			said = append(said, strings.ReplaceAll(strings.ReplaceAll(got, key, "K"), base64.StdEncoding.EncodeToString([]byte(key)), "B"))
			one = ""
		}
		return said
	}
	frame := func(key string, i int) string {
		is := movingFrames[i]
		got := []byte(frames.ask(f, frameOf(is.opcode, 0, is.extras, key, is.value)+frameOf(0x0a, 0, "", "", ""), "\x81\x0a"+strings.Repeat("\x00", 10)+"opaq"+strings.Repeat("\x00", 8)))
		if len(got) >= 24 && binary.BigEndian.Uint64(got[16:]) != 0 {
			copy(got[16:24], "-a cas!-")
		}
		return strings.ReplaceAll(string(got), key, "K")
	}
	failed := 0
	counted := map[resize.Stage]int{}
	all := len(movingCommands) + len(movingFrames)
	keys := map[[2]int][2]string{} // by command and state: a key that moves, and a key that stays. Both have the state before the keys move
	for i := range all {
		for j, state := range movingStates[:3] {
			keys[[2]int{i, j}] = [2]string{next(true), next(false)}
			for _, key := range keys[[2]int{i, j}] {
				say(key, state)
			}
		}
	}
	check := func(i, j int) {
		pair, old := keys[[2]int{i, j}]
		delete(keys, [2]int{i, j})
		if !old {
			pair = [2]string{next(true), next(false)}
		}
		began := stage()
		var said [2][]string
		var what string
		for n, key := range pair {
			if !old {
				say(key, movingStates[j])
			}
			if what = "frame"; i < len(movingCommands) {
				what = movingCommands[i]
				said[n] = say(key, what+"\r\n")
			} else {
				said[n] = []string{frame(key, i-len(movingCommands))}
				what = fmt.Sprintf("frame %#x", movingFrames[i-len(movingCommands)].opcode)
			}
			said[n] = append(said[n], say(key, "mg K v f s t\r\n")...)
		}
		if stage() == began {
			counted[began]++
			if a, b := fmt.Sprintf("%q", said[0]), fmt.Sprintf("%q", said[1]); a != b {
				failed++
				t.Errorf("stage %v, %.80q after %q, key of before: %v:\na key that moves %s\na key that stays %s", began, what, movingStates[j], old, a, b)
			}
		}
	}
	f.reload(func(l *layout) { l.reweighed = true })
	for end := f.now + 120*second; f.now < end && stage() != resize.Move; {
		f.run(f.now + 10*milli)
	}
	f.run(f.now + second)
	n := 0
	for end := f.now + 300*second; f.now < end && stage() != resize.Stable && failed < 10; {
		if counted[stage()] >= all*len(movingStates) {
			f.run(f.now + 100*milli)
			continue
		}
		check(n%all, n/all)
		n = (n + 103) % (all * len(movingStates)) // a prime, so that every pair has its turn
	}
	for _, s := range []resize.Stage{resize.Move, resize.Settle, resize.Cool} {
		if counted[s] < 40 && failed == 0 {
			t.Errorf("stage %v: only %d commands were compared", s, counted[s])
		}
	}
}

// complete reports whether text is a command with its data.
func complete(text string) bool {
	lines := strings.Count(text, "\r\n")
	for _, verb := range []string{"set ", "add ", "replace ", "append ", "prepend ", "cas ", "ms "} {
		if strings.HasPrefix(text, verb) {
			return lines == 2
		}
	}
	return lines == 1
}
