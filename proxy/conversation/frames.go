package conversation

// This file builds the frames of the binary protocol in conversations.

import (
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
)

// FrameNames are the names of the binary protocol's requests, indexed by opcode.
var FrameNames = []string{
	"get", "set", "add", "replace", "delete", "incr", "decr", "quit", "flush", "getq", "noop", "version", "getk", "getkq", "append", "prepend",
	"stat", "setq", "addq", "replaceq", "deleteq", "incrq", "decrq", "quitq", "flushq", "appendq", "prependq", "verbosity", "touch", "gat", "gatq",
	"rget", "mechs", "auth", "step", "gatk", "gatkq",
}

// Frame builds a request, or a reply if answer is set, from text:
//
//	NAME [#OPAQUE] [k=KEY] [v=VALUE] [cas=N] [status=N] [xx=N,N] [x=N,N]
//
// xx are extras of 64 bits, and x those of 32 bits after them. Go escapes work. A word must not
// contain a space.
func (s *Harness) Frame(text string, answer bool) []byte {
	words := strings.Fields(text)
	opcode := slices.Index(FrameNames, words[0])
	if opcode < 0 {
		s.Fatalf("what is %q?", words[0])
	}
	var extras []byte
	var key, value string
	var cas, status, opaque uint64
	for _, word := range words[1:] {
		name, arg, _ := strings.Cut(word, "=")
		n, _ := strconv.ParseUint(arg, 0, 64)
		switch {
		case word[0] == '#':
			opaque, _ = strconv.ParseUint(word[1:], 0, 32)
		case name == "k":
			key = s.unquote(arg)
		case name == "v":
			value = s.unquote(arg)
		case name == "cas":
			cas = n
		case name == "status":
			status = n
		case name == "xx" || name == "x":
			for _, number := range strings.Split(arg, ",") {
				n, _ := strconv.ParseUint(number, 0, 64)
				if name == "xx" {
					extras = binary.BigEndian.AppendUint64(extras, n)
				} else {
					extras = binary.BigEndian.AppendUint32(extras, uint32(n))
				}
			}
		default:
			s.Fatalf("what is %q?", word)
		}
	}
	magic := byte(0x80)
	if answer {
		magic = 0x81
	}
	b := []byte{magic, byte(opcode), byte(len(key) >> 8), byte(len(key)), byte(len(extras)), 0}
	b = binary.BigEndian.AppendUint16(b, uint16(status))
	b = binary.BigEndian.AppendUint32(b, uint32(len(extras)+len(key)+len(value)))
	b = binary.BigEndian.AppendUint32(b, uint32(opaque))
	b = binary.BigEndian.AppendUint64(b, cas)
	return append(append(b, extras...), key+value...)
}
