package twin

// Streams of commands, generated from bytes that are choices.

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
)

// casMark is replaced by a cas token from an earlier reply.
const casMark = "<CAS>"

// never is a cas token that no item has.
const never = "7777777777777777777"

// A choice makes decisions from the fuzzer's bytes. When no bytes are left, every
// choice is 0.
type choice struct{ rest []byte }

func (c *choice) n(below int) int {
	if len(c.rest) == 0 {
		return 0
	}
	b := c.rest[0]
	c.rest = c.rest[1:]
	return int(b) % below
}

func (c *choice) of(list ...string) string { return list[c.n(len(list))] }
func (c *choice) one(in int) bool          { return c.n(in) == in-1 }

// cuts returns where the text is cut, in 256ths.
func (c *choice) cuts() []int {
	var cuts []int
	for range c.n(4) {
		cuts = append(cuts, c.n(256))
	}
	return cuts
}

// command is one command of the stream.
type command struct {
	text  string   // the whole command, or the part before its keys
	reads []string // keys of a text read, to be appended to text
	key   string   // key of any other command, decoded; empty if it has none
	lost  string   // expected reply if the server of key is out
	first bool     // it must be first in a round
}

// A client generates the commands of one stream.
type client struct {
	choice
	prefix string // prefix of all its keys, which keeps streams apart
	alone  bool   // one server, no copies
	copies bool   // there are copies, which hide what N creates
	flush  bool   // flush_all reaches all servers
}

// plainKeys are used by text and meta commands. bytesKeys are sent in base64, and
// their bytes may return in a reply. N creates only madeByGet and madeByNumber,
// because memcached forgets that these were in base64. mg and ma use different
// ones: an N of mg creates an empty item, and arithmetic on an empty or blank item
// reads memory after it.
var (
	plainKeys = []string{"a", "b", "c", "num", strings.Repeat("k", 200)}
	bytesKeys = []string{"user 1/2", "x\r\nEND\r\n", "\x00\xff"}
)

const (
	madeByGet    = "made 1"
	madeByNumber = "m\r\n"
)

// metaKey is the key of a meta command.
type metaKey struct {
	spelled, key, b string // as the command spells it, decoded, and the flag for base64
	made            bool   // N may be used
}

func (c *client) plainKey() string { return c.prefix + c.of(plainKeys...) }

func (c *client) metaKey(made string) metaKey {
	key := c.prefix
	switch c.n(6) {
	case 0:
		key += c.of(bytesKeys...)
		return metaKey{spelled: inBase64(key), key: key, b: " b"}
	case 1:
		key += made
		return metaKey{spelled: inBase64(key), key: key, b: " b", made: !c.copies}
	case 2:
		key += c.of("a", "num")
		return metaKey{spelled: inBase64(key), key: key, b: " b"}
	}
	key = c.plainKey()
	return metaKey{spelled: key, key: key}
}

func inBase64(key string) string { return base64.StdEncoding.EncodeToString([]byte(key)) }

// spelled returns memcached's reply with those keys in base64 that memcached did
// not encode.
func (c *client) spelled(answer []byte) []byte {
	for _, made := range append([]string{madeByGet, madeByNumber}, bytesKeys...) {
		key := c.prefix + made
		answer = bytes.ReplaceAll(answer, []byte(" k"+key), []byte(" k"+inBase64(key)+" b"))
	}
	return answer
}

// value returns a value that looks like commands and replies, like a number, or is
// long. Appends cannot turn it into a number that needs all 64 bits. For such a number
// memcached would search for a minus in the memory after the item.
func (c *client) value() string {
	if c.one(4) {
		return c.of("10", "9", "100", "1", "0", "99")
	}
	return c.piece()
}

// piece returns a value without a number, which may be appended to one.
func (c *client) piece() string {
	switch c.n(3) {
	case 0:
		return c.of("flush_all", "flush_all\r\nget a", "END\r\n", "VALUE a 0 1\r\nx\r\nEND", "MN", "EN\r\nHD", "set a 0 0 1", "\r\n.", "CLIENT_ERROR x\r\nERROR", "VA 2\r\nab")
	case 1:
		return strings.Repeat(c.of("x", "v\r\n", "mn\r\n"), 1+17*c.n(256))
	}
	return c.of("v", "v", "hello", "some text")
}

func (c *client) noreply() string {
	return c.of("", "", "", " noreply", "", "", " junk", " some more junk", "  noreply", " a b noreply")
}

const (
	lostText = "SERVER_ERROR *\r\n"
	lostRead = "END\r\n"
)

// text returns a command that may end with noreply.
func text(key, line, noreply, block string) command {
	cmd := command{text: line + noreply + "\r\n" + block, key: key, lost: lostText}
	if strings.HasSuffix(noreply, "noreply") {
		cmd.lost = ""
	}
	return cmd
}

func (c *client) command() command {
	key := c.plainKey()
	switch c.n(20) {
	case 0, 1, 2:
		cmd := command{text: c.of("get", "gets", "get", "bget"), reads: []string{key}}
		for range c.n(4) {
			cmd.reads = append(cmd.reads, c.plainKey())
		}
		return cmd
	case 3:
		cmd := command{text: c.of("gat ", "gats ") + c.of("0", "1000", "100000", "-1"), reads: []string{key}}
		if c.one(2) {
			cmd.reads = append(cmd.reads, c.plainKey())
		}
		return cmd
	case 4, 5, 6:
		word, v := c.of("set", "set", "add", "replace", "append", "prepend"), c.piece()
		if !strings.HasSuffix(word, "pend") && c.one(2) {
			v = c.value()
		}
		line := fmt.Sprintf("%s %s %s %s %d", word, key, c.of("0", "5", "4294967295", "+7"), c.of("0", "1000", "+1000", "-1"), len(v))
		return text(key, line, c.noreply(), v+"\r\n")
	case 7:
		v := c.value()
		return text(key, fmt.Sprintf("cas %s 3 0 %d %s", key, len(v), c.of(casMark, casMark, never)), c.noreply(), v+"\r\n")
	case 8:
		cmd := text(key, c.of("incr ", "decr ")+key+" "+c.of("1", "9", "10", "+1000"), c.of("", " noreply"), "")
		cmd.first = true
		return cmd
	case 9:
		return text(key, "touch "+key+" "+c.of("0", "1000", "+1000", "-1"), c.of("", " noreply"), "")
	case 10:
		return text(key, "delete "+key, c.of("", " noreply", " 0"), "")
	case 11, 12, 13:
		return c.metaGet()
	case 14, 15:
		return c.metaSet()
	case 16:
		k := c.metaKey(c.of(madeByGet, madeByNumber))
		flags, _ := c.flags(c.of("q", "I T1000", "C"+casMark, "C"+never, ""), c.opaque())
		return command{text: "md " + k.spelled + k.b + flags + "\r\n", key: k.key, lost: lostText}
	case 17:
		return c.metaNumber()
	case 18:
		return c.odd(key)
	}
	return c.refused(key)
}

// opaque returns an O flag and a k flag, or one or none of them.
func (c *client) opaque() string {
	o := c.of("", " Oq", " O", " O123456789")
	if c.one(2) {
		o += " k"
	}
	return o
}

// flags joins words and echo, which has its own spaces, in either order.
func (c *client) flags(words, echo string) (flags, echoed string) {
	if words != "" {
		words = " " + words
	}
	if c.one(2) {
		return echo + words, echo
	}
	return words + echo, echo
}

func (c *client) metaGet() command {
	k := c.metaKey(madeByGet)
	words := c.of("v", "v", "", "s f", "c v", "t", "v f c s t")
	switch {
	case k.made:
		words += c.of("", " N1000", " N1000 R5000", " T1000")
	case k.b == "":
		words += c.of("", "", " T1000", " T-1", " R100")
	}
	flags, echo := c.flags(strings.TrimSpace(words), c.opaque())
	lost := "EN" + strings.Replace(echo, " k", " k"+k.spelled+k.b, 1) + "\r\n"
	if c.one(4) {
		flags += " q"
		lost = ""
	}
	return command{text: "mg " + k.spelled + k.b + flags + "\r\n", key: k.key, lost: lost}
}

func (c *client) metaSet() command {
	k := c.metaKey(c.of(madeByGet, madeByNumber))
	late := "C1 I" // lower than any cas token in a reply
	if c.copies {
		late = "I" // with replicas, cas tokens are not in order, so none is lower
	}
	words := c.of("", "T1000", "F7 T0", "ME", "MA", "MP", "MR", "MS", "C"+casMark, late, "C"+casMark+" MR", "ME q", "q", "c", "MA N1000")
	if !k.made {
		words = strings.TrimSuffix(words, " N1000")
	}
	flags, _ := c.flags(words, c.opaque())
	v := c.piece()
	if !strings.Contains(words, "MA") && !strings.Contains(words, "MP") && c.one(2) {
		v = c.value()
	}
	return command{text: fmt.Sprintf("ms %s %d%s%s\r\n%s\r\n", k.spelled, len(v), k.b, flags, v), key: k.key, lost: lostText}
}

func (c *client) metaNumber() command {
	k := c.metaKey(madeByNumber)
	words := c.of("", "v", "MD v", "D10 v", "q", "c t", "C"+casMark+" v", "M+", "M- D100")
	if k.made && words != "q" {
		words += c.of("", " N1000", " N0 J13")
	}
	flags, _ := c.flags(strings.TrimSpace(words), c.opaque())
	return command{text: "ma " + k.spelled + k.b + flags + "\r\n", key: k.key, lost: lostText, first: true}
}

// odd returns a command without a key, or one that is rejected.
func (c *client) odd(key string) command {
	long := strings.Repeat("K", 251)
	switch c.n(12) {
	case 0:
		if c.flush {
			return command{text: c.of("flush_all", "flush_all 0", "flush_all noreply") + "\r\n"}
		}
	case 1:
		return command{text: c.of("get ", "gets ", "gat 0 ", "get "+key+" ") + long + "\r\n", first: true}
	case 2:
		return command{text: c.of("version", "verbosity 0", "verbosity 0 noreply", "verbosity x", "shutdown") + "\r\n"}
	case 3:
		if c.alone {
			return command{text: "me " + key + "\r\n", key: key}
		}
	case 4:
		return command{text: c.of("mg ", "md ", "ma ", "me ") + long + c.of("", " q", " v", " b") + "\r\n"}
	case 5:
		if c.one(8) { // the server may accept it
			return command{text: "mg " + key + " z z\r\n", key: key, lost: "EN\r\n"}
		}
		return command{text: "mg " + key + " " + c.of("v v", "!", "Tx", "N", "O"+long[:32], "\xff", "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20") + "\r\n"}
	case 6:
		return command{text: c.of("incr ", "decr ") + key + " " + c.of("x", "-1", "") + c.of("", " noreply") + "\r\n"}
	case 7:
		return command{text: c.of("touch ", "delete ") + key + " " + c.of("x", "1x noreply", "noreply x", "1 2 3 4") + "\r\n"}
	case 8:
		return command{text: c.of("", " ", "x", "get", "gets", "gat", "gat 0", "gat x "+key, "set", "set a", "ms", "ms a", "mg", "md", "ma", "nosuch "+key, "GET "+key, "mx "+key) + "\r\n"}
	}
	return command{text: "mn\r\n"}
}

// refused returns a storage command that is rejected together with its data block,
// which looks like commands.
func (c *client) refused(key string) command {
	block := c.of("flush_all", "set "+key+" 0 0 1\r\ny", "get "+key, "mn\r\nmn", "x", "quit")
	long := strings.Repeat("K", 251)
	size := len(block)
	word := c.of("set", "add", "append", "replace", "prepend")
	var line string
	switch c.n(9) {
	case 0:
		line = fmt.Sprintf("%s %s 0 0 %d", word, long, size)
	case 1:
		line = fmt.Sprintf("%s %s %s 0 %d", word, key, c.of("x", "-1", "1x", "18446744073709551616"), size)
	case 2:
		line = fmt.Sprintf("%s %s 0 %s %d", word, key, c.of("x", "1x", "99999999999999999999"), size)
	case 3:
		line = fmt.Sprintf("cas %s 0 0 %d%s", key, size, c.of("", " x", " -1", " 18446744073709551616"))
	case 4:
		line = fmt.Sprintf("%s %s\x00 0 0 %d", word, key, size)
	case 5:
		return command{text: fmt.Sprintf("ms %s %d%s\r\n%s\r\n", long, size, c.of("", " q", " v v"), block)}
	case 6:
		if c.one(8) { // the server may accept it
			return command{text: fmt.Sprintf("ms %s %d i i\r\n%s\r\n", key, size, block), key: key, lost: lostText}
		}
		return command{text: fmt.Sprintf("ms %s %d %s\r\n%s\r\n", key, size, c.of("Tx", "v v", "MX", "{", "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20", "O"+long[:32]), block)}
	case 7:
		return command{text: fmt.Sprintf("ms %s\x00 %d%s\r\n%s\r\n", key, size, c.of("", " q"), block)}
	case 8: // an invalid length: what follows is parsed as commands
		return command{text: fmt.Sprintf("%s %s 0 0 %s%s\r\nmn\r\n", word, key, c.of("x", "-1", "4294967297", "99999999999", "2147483646"), c.of("", " noreply"))}
	}
	return command{text: line + c.of("", " noreply", " junk", " some more junk", " a b c d noreply") + "\r\n" + block + "\r\n"}
}

// soup returns text that may be commands, valid or not.
func (c *client) soup() string {
	commands := strings.Fields(`get get gets gets gat set set add replace append prepend cas touch delete
		mg mg mg ms ms ms md md mn verbosity nosuch`)
	words := append(strings.Fields(`a a b YQ== 0 1 2 2 5 -1 +2 007 x 1x noreply noreply q q v k c f T0 T-1 Tx F5 F C5 Cx
		MS ME MA MP MR MX M D2 Dx J7 Jx R0 I Oab O1 z S2 ! {`),
		"", "\t", "\x00", "1\t", "\x7f", "\xff", "\r", strings.Repeat("o", 33), "O"+strings.Repeat("o", 32))
	// Only exptimes that do not depend on the clock, because two servers do not
	// tick together.
	exptimes := []string{"0", "0", "-1", "x", "1x", "noreply", "4294967296"}
	exptimeAt := map[string]int{"set": 2, "add": 2, "replace": 2, "append": 2, "prepend": 2, "cas": 2, "touch": 1, "gat": 0}
	var b strings.Builder
	for range 1 + c.n(4) {
		command := c.of(commands...)
		b.WriteString(command)
		for i := range c.n(7) {
			word := c.of(words...)
			if at, ok := exptimeAt[command]; ok && i == at {
				word = c.of(exptimes...)
			}
			b.WriteString(" " + word)
		}
		b.WriteString(c.of("\r\n", "\r\n", "\r\n", "\r\n", "\n"))
		if c.one(2) {
			b.WriteString(c.of("ab\r\n", "ab\r\n", "12\r\n", "abc\r\n", "x\r\n", "\r\n", "", "mn\r\n"))
		}
	}
	return b.String()
}
