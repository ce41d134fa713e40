package twin

// Streams of the binary protocol: the same frames to both sides.

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"
)

// FuzzFrames is FuzzTwin for a client of the binary protocol. Both sides must
// return the same frames, except for cas tokens. These must be present in both
// replies or in neither, and they must be usable.
func FuzzFrames(f *testing.F) {
	addStreams(f, rand.NewPCG(2, 18), 10, len(framed), 20, 300)
	f.Fuzz(runFrames)
}

// frame is one request or one response.
type frame struct {
	opcode byte
	status uint16 // of a response
	opaque uint32
	cas    uint64
	extras string
	key    string
	value  string
}

const headSize = 24

// Opcodes, named as in memcached's protocol_binary.h. A Q at the end marks the
// quiet form.
const (
	opGet, opSet, opAdd, opReplace, opDelete       = 0x00, 0x01, 0x02, 0x03, 0x04
	opIncrement, opDecrement, opQuit, opFlush      = 0x05, 0x06, 0x07, 0x08
	opGetQ, opNoop, opVersion, opGetK, opGetKQ     = 0x09, 0x0a, 0x0b, 0x0c, 0x0d
	opAppend, opPrepend, opStat                    = 0x0e, 0x0f, 0x10
	opSetQ, opAddQ, opReplaceQ, opDeleteQ          = 0x11, 0x12, 0x13, 0x14
	opIncrementQ, opDecrementQ, opQuitQ            = 0x15, 0x16, 0x17
	opAppendQ, opPrependQ, opVerbosity             = 0x19, 0x1a, 0x1b
	opTouch, opGAT, opGATQ, opSASLList, opSASLAuth = 0x1c, 0x1d, 0x1e, 0x20, 0x21
	opGATK, opGATKQ, opUnknown                     = 0x23, 0x24, 0x7f
)

const (
	notFound         = 0x01
	temporaryFailure = 0x86
)

// bytes encodes f as a request with cas.
func (f *frame) bytes(cas uint64) []byte {
	b := append([]byte{0x80, f.opcode}, byte(len(f.key)>>8), byte(len(f.key)), byte(len(f.extras)), 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(f.extras)+len(f.key)+len(f.value)))
	b = binary.BigEndian.AppendUint32(b, f.opaque)
	b = binary.BigEndian.AppendUint64(b, cas)
	return append(b, f.extras+f.key+f.value...)
}

func (f *frame) String() string {
	return fmt.Sprintf("%#02x status %#x opaque %d cas %v extras %q key %q value %q", f.opcode, f.status, f.opaque, f.cas != 0, f.extras, f.key, f.value)
}

// hearFrame reads one response.
func (s *side) hearFrame() (*frame, error) {
	var head [headSize]byte
	if _, err := io.ReadFull(s, head[:]); err != nil {
		return nil, err
	}
	if head[0] != 0x81 || head[5] != 0 {
		return nil, fmt.Errorf("%q is no head of an answer", head)
	}
	body := make([]byte, binary.BigEndian.Uint32(head[8:]))
	if _, err := io.ReadFull(s, body); err != nil {
		return nil, err
	}
	extras, key := int(head[4]), int(binary.BigEndian.Uint16(head[2:]))
	if extras+key > len(body) {
		return nil, fmt.Errorf("%q says more than its body of %d bytes has", head, len(body))
	}
	return &frame{
		opcode: head[1], status: binary.BigEndian.Uint16(head[6:]), opaque: binary.BigEndian.Uint32(head[12:]), cas: binary.BigEndian.Uint64(head[16:]),
		extras: string(body[:extras]), key: string(body[extras : extras+key]), value: string(body[extras+key:]),
	}, nil
}

// framer generates the frames of one stream.
type framer struct {
	choice
	prefix string
	flush  bool // flush_all reaches all servers
}

func (c *framer) key() string {
	if c.one(5) {
		return c.prefix + c.of(bytesKeys...)
	}
	return c.prefix + c.of(plainKeys...)
}

func word(n uint32) string { return string(binary.BigEndian.AppendUint32(nil, n)) }

func long(n uint64) string { return string(binary.BigEndian.AppendUint64(nil, n)) }

// frame returns the next frame. first reports whether it must begin a round. casOf
// selects its cas: 0 none, 1 the last one returned for its key, 2 one that no item
// has.
func (c *framer) frame() (f frame, first bool, casOf int) {
	f.key = c.key()
	quiet := c.one(2)
	pick := func(loud, silent byte) byte {
		if quiet {
			return silent
		}
		return loud
	}
	draw := &client{choice: c.choice}
	defer func() { c.rest = draw.rest }()
	switch draw.n(16) {
	case 0, 1, 2:
		f.opcode = []byte{opGet, opGetQ, opGetK, opGetKQ}[draw.n(4)]
	case 3:
		f.opcode, f.extras = []byte{opTouch, opGAT, opGATQ, opGATK, opGATKQ}[draw.n(5)], word([]uint32{0, 1000, 100000}[draw.n(3)])
	case 4, 5, 6:
		f.opcode = [][2]byte{{opSet, opSetQ}, {opSet, opSetQ}, {opAdd, opAddQ}, {opReplace, opReplaceQ}}[draw.n(4)][draw.n(2)]
		f.extras = word([]uint32{0, 5, 1<<32 - 1}[draw.n(3)]) + word([]uint32{0, 1000, 0, 1<<32 - 1}[draw.n(4)])
		f.value = draw.value()
		casOf = []int{0, 0, 1, 2}[draw.n(4)]
	case 7, 8:
		f.opcode = [][2]byte{{opAppend, opAppendQ}, {opPrepend, opPrependQ}}[draw.n(2)][draw.n(2)]
		f.value = draw.piece()
		casOf = []int{0, 0, 1, 2}[draw.n(4)]
	case 9, 10: // no stored number needs all 64 bits: see client.value
		f.opcode = [][2]byte{{opIncrement, opIncrementQ}, {opDecrement, opDecrementQ}}[draw.n(2)][draw.n(2)]
		f.extras = long([]uint64{1, 9, 10, 1000}[draw.n(4)]) + long([]uint64{10, 7, 1 << 62}[draw.n(3)]) + word([]uint32{0, 1000, 1<<32 - 1}[draw.n(3)])
		casOf = []int{0, 0, 1, 2}[draw.n(4)]
		first = true
	case 11:
		f.opcode = pick(opDelete, opDeleteQ)
		casOf = []int{0, 0, 1, 2}[draw.n(4)]
	case 12:
		f.opcode, f.key = []byte{opNoop, opNoop, opVerbosity, opUnknown, opSASLList}[draw.n(5)], ""
	case 13:
		f.opcode, f.key = opStat, draw.of("nothing", "reset", "detail", "detail off")
		if f.key != "detail" && !c.flush { // a server that is out cannot reset its counters
			f.key = "nothing"
		}
	case 14:
		f.opcode, f.key = opVersion, ""
	default:
		f.opcode = pick(opGet, opGetQ)
	}
	return f, first, casOf
}

// frames is one conversation of a binary client with both sides.
type frames struct {
	t            *testing.T
	v            *variant
	client       framer
	plain, proxy *side
	sent         []string
	opaque       uint32
	cas          map[string][2]uint64 // by key: the last cas token of each side
}

func runFrames(t *testing.T, data []byte) {
	c := choice{rest: data}
	v := framed[c.n(len(framed))]
	v.start(t)
	s := &frames{t: t, v: v, plain: connect(t, "memcached", servers.plain), proxy: connect(t, "ringside", v.address), cas: map[string][2]uint64{}}
	defer s.plain.Close()
	defer s.proxy.Close()
	s.client = framer{
		choice: c, flush: v.out == 0,
		prefix: fmt.Sprintf("b%s%x:", v.name[:2], crc32.ChecksumIEEE(data)),
	}
	if v.out == 0 {
		s.round([]sentFrame{{frame: frame{opcode: opFlush}}})
	}
	var next *sentFrame
	for rounds := 0; len(s.client.rest) > 0 && rounds < 100; rounds++ {
		var round []sentFrame
		seen := map[string]bool{}
		for {
			if next == nil {
				n := sentFrame{}
				n.frame, n.first, n.casOf = s.client.frame()
				next = &n
			}
			if len(round) > 0 && (next.first || v.copies && seen[next.key] || next.casOf == 1 && seen[next.key]) {
				break
			}
			seen[next.key] = true
			round = append(round, *next)
			next = nil
			if len(s.client.rest) == 0 || s.client.one(4) || len(round) == longest {
				break
			}
		}
		s.round(round)
	}
	s.end()
}

type sentFrame struct {
	frame
	first bool
	casOf int
}

// lostAnswer returns the expected response to f if the server of its key is out.
// It is nil if there is no response.
func (f *frame) lostAnswer() *frame {
	miss := &frame{opcode: f.opcode, opaque: f.opaque, status: notFound, value: "Not found"}
	switch f.opcode {
	case opGet, opTouch, opGAT:
	case opGetK, opGATK:
		miss.value, miss.key = "", f.key
	case opGetQ, opGetKQ, opGATQ, opGATKQ:
		return nil
	default:
		return &frame{opcode: f.opcode, opaque: f.opaque, status: temporaryFailure, value: "*"}
	}
	return miss
}

// round sends frames followed by a noop, and compares the responses.
func (s *frames) round(round []sentFrame) {
	s.t.Helper()
	var plain, proxy bytes.Buffer
	keys := map[uint32]string{}
	var want []*frame
	lost := map[uint32]*frame{}
	for _, f := range append(round, sentFrame{frame: frame{opcode: opNoop}}) {
		s.opaque++
		f.opaque = s.opaque
		keys[f.opaque] = f.key
		var cas [2]uint64
		switch f.casOf {
		case 1:
			cas = s.cas[f.key]
		case 2:
			cas = [2]uint64{7777777777777777777, 7777777777777777777}
		}
		s.sent = append(s.sent, f.String())
		proxy.Write(f.bytes(cas[1]))
		if !s.v.isLost(f.key) || f.opcode == opStat {
			plain.Write(f.bytes(cas[0]))
			continue
		}
		lost[f.opaque] = f.lostAnswer()
	}
	last := s.opaque
	var got [2][]*frame
	for i, x := range []*side{s.plain, s.proxy} {
		text, cuts := plain.String(), []int(nil)
		if i == 1 {
			text, cuts = proxy.String(), s.client.cuts()
		}
		x.say(text, cuts)
		for {
			x.SetReadDeadline(time.Now().Add(patience))
			f, err := x.hearFrame()
			if err != nil {
				s.fail("%s: %v after %v", x.name, err, got[i])
			}
			got[i] = append(got[i], f)
			if key := keys[f.opaque]; f.cas != 0 {
				told := s.cas[key]
				told[i] = f.cas
				s.cas[key] = told
			}
			if f.opaque == last {
				break
			}
		}
	}
	at := 0
	for opaque := last - uint32(len(round)); opaque <= last; opaque++ {
		if f := lost[opaque]; f != nil {
			want = append(want, f)
		}
		for at < len(got[0]) && got[0][at].opaque == opaque {
			want = append(want, got[0][at])
			at++
		}
	}
	if at < len(got[0]) {
		s.fail("memcached answers %v", got[0])
	}
	s.compare(want, got[1])
}

// end runs the last round: quit, or a malformed frame.
func (s *frames) end() {
	s.t.Helper()
	quit := (&frame{opcode: []byte{opQuit, opQuitQ}[s.client.n(2)], opaque: 77}).bytes(0)
	noop := (&frame{opcode: opNoop, opaque: 78}).bytes(0)
	bad := quit
	malformed := func(opcode byte, key, extras, body int) []byte {
		b := (&frame{opcode: opcode, opaque: 99}).bytes(0)
		binary.BigEndian.PutUint16(b[2:], uint16(key))
		b[4] = byte(extras)
		binary.BigEndian.PutUint32(b[8:], uint32(body))
		return append(b, strings.Repeat("k", key+extras)...) // memcached checks the header only when all of it has arrived
	}
	if s.client.one(2) {
		all := [][]byte{
			malformed(opGet, 10, 0, 5), malformed(opSet, 3, 8, 4), malformed(opSet, 3, 4, 10), malformed(opGet, 0, 0, 0),
			malformed(opGet, 251, 0, 251), malformed(opNoop, 1, 0, 1), malformed(opGet, 1, 4, 5), malformed(opDelete, 0, 0, 0),
			malformed(opIncrement, 3, 4, 7), malformed(opTouch, 3, 0, 3), malformed(opStat, 3, 4, 7), malformed(opFlush, 0, 2, 2),
			malformed(opSet, 65535, 8, 70000), malformed(opQuit, 1, 0, 1), malformed(opUnknown, 251, 0, 251), malformed(opSASLAuth, 0, 0, 0), malformed(opSASLList, 2, 0, 2),
			append([]byte("\x80"), make([]byte, 23)...), append([]byte("get a\r\n"), make([]byte, 24)...),
		}
		bad = all[s.client.n(len(all))]
	}
	text := append(append([]byte{}, bad...), noop...)
	s.sent = append(s.sent, fmt.Sprintf("%q", text))
	var got [2][]*frame
	var reset [2]bool
	for i, x := range []*side{s.plain, s.proxy} {
		cuts := []int(nil)
		if i == 1 {
			cuts = s.client.cuts()
		}
		x.say(string(text), cuts)
		x.Conn.(*net.TCPConn).CloseWrite()
		for {
			f, err := x.hearFrame()
			if err == io.EOF {
				break
			}
			if reset[i] = err != nil && strings.Contains(err.Error(), "reset"); reset[i] {
				break
			}
			if err != nil {
				s.fail("%s: %v after %v", x.name, err, got[i])
			}
			got[i] = append(got[i], f)
		}
	}
	if reset[0] { // it closed before it had read everything, which may have destroyed its last response
		got[1] = got[1][:min(len(got[0]), len(got[1]))]
	}
	s.compare(got[0], got[1])
}

func (s *frames) compare(want, got []*frame) {
	s.t.Helper()
	for i := range max(len(want), len(got)) {
		w, g := "nothing", "nothing"
		if i < len(got) {
			g = got[i].String()
		}
		if i < len(want) {
			if want[i].status == temporaryFailure && i < len(got) {
				want[i].value = got[i].value
			}
			w = want[i].String()
		}
		if w != g {
			s.fail("answer %d:\nringside  %.300s\nmemcached %.300s", i, g, w)
		}
	}
}

func (s *frames) fail(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("%s: %.2000s\nsent\n\t%s", s.v.name, fmt.Sprintf(format, args...), repeated.ReplaceAllString(strings.Join(s.sent[max(0, len(s.sent)-40):], "\n\t"), "$1…"))
}
