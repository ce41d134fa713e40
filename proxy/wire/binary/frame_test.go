package binary

// Frames of the binary protocol: the parser returns the same wherever the input is cut
// in two, and frames are translated to the right requests.

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"strings"
	"testing"

	"ringside/proxy/wire"
)

// frameOf builds a request of the binary protocol.
func frameOf(opcode byte, cas uint64, extras, key, value string) []byte {
	b := append([]byte{Magic, opcode}, byte(len(key)>>8), byte(len(key)), byte(len(extras)), 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(extras)+len(key)+len(value)))
	b = binary.BigEndian.AppendUint32(b, 7)
	b = binary.BigEndian.AppendUint64(b, cas)
	return append(b, extras+key+value...)
}

// TestSpell checks the request to servers for each frame.
func TestSpell(t *testing.T) {
	counter := "\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x05"
	for _, c := range []struct {
		frame []byte
		want  string
		op    wire.Op
	}{
		{frameOf(0x00, 0, "", "k", ""), "gets k\r\n", wire.Get},
		{frameOf(0x0d, 9, "", "k", ""), "gets k\r\n", wire.Get},
		{frameOf(0x00, 0, "", "a b", ""), "mg YSBi b v f c\r\n", wire.Get},
		{frameOf(0x01, 0, "\x00\x00\x00\x05\x00\x00\x00\x3c", "k", "v"), "ms k 1 c F5 T60\r\nv\r\n", wire.Set},
		{frameOf(0x11, 0, "\x00\x00\x00\x00\x00\x00\x00\x00", "k", ""), "ms k 0\r\n\r\n", wire.Set},
		{frameOf(0x01, 3, "\x00\x00\x00\x00\xff\xff\xff\xff", "k", "v"), "ms k 1 C3 c T2147483647\r\nv\r\n", wire.Cas},
		{frameOf(0x02, 0, "\x00\x00\x00\x00\x00\x00\x00\x00", "k", "v"), "ms k 1 ME c\r\nv\r\n", wire.Add},
		{frameOf(0x02, 3, "\x00\x00\x00\x00\x00\x00\x00\x00", "k", "v"), "ms k 1 C3 c\r\nv\r\n", wire.Cas},
		{frameOf(0x03, 0, "\x00\x00\x00\x00\x00\x00\x00\x00", "a\n", "v"), "ms YQo= 1 b MR c\r\nv\r\n", wire.Replace},
		{frameOf(0x0e, 3, "", "k", "v"), "ms k 1 MA C3 c\r\nv\r\n", wire.Append},
		{frameOf(0x1a, 0, "", "k", "v"), "ms k 1 MP\r\nv\r\n", wire.Prepend},
		{frameOf(0x04, 0, "", "k", ""), "delete k\r\n", wire.Delete},
		{frameOf(0x14, 3, "", "k", ""), "md k C3\r\n", wire.Delete},
		{frameOf(0x05, 0, counter+"\x00\x00\x00\x00", "k", ""), "ma k v c D2 N0 J5\r\n", wire.Incr},
		{frameOf(0x16, 3, counter+"\xff\xff\xff\xff", "k", ""), "ma k v C3 D2 MD\r\n", wire.Decr},
		{frameOf(0x1c, 0, "\x00\x00\x00\x3c", "k", ""), "mg k f c T60\r\n", wire.Get},
		{frameOf(0x24, 0, "\x00\x00\x00\x3c", "k", ""), "mg k v f c T60\r\n", wire.Get},
		{frameOf(0x08, 0, "\x00\x00\x00\x3c", "", ""), "flush_all 60\r\n", wire.FlushAll},
		{frameOf(0x10, 0, "", "items", ""), "stats items\r\n", wire.Stats},
		{frameOf(0x0a, 0, "", "", ""), "mn\r\n", wire.Noop},
		{frameOf(0x0b, 0, "", "", ""), "version\r\n", wire.Version},
		{frameOf(0x17, 0, "", "", ""), "quit\r\n", wire.Quit},
		{frameOf(0x1b, 0, "\x00\x00\x00\x01", "", ""), "", wire.Bad},
		{frameOf(0x00, 0, "", "a b"+strings.Repeat("k", 200), ""), "", wire.Bad},
	} {
		var l wire.Limits
		var f Frame
		var r wire.Request
		n, err := Next(&l, c.frame, &f)
		if int64(n)+f.Swallow != int64(len(c.frame)) || err != nil {
			t.Fatalf("%q: %d bytes and %d more, %v", c.frame, n, f.Swallow, err)
		}
		line := Spell(nil, c.frame, &f, &r)
		compareParsed(t, &l, line, &r)
		if string(line) != c.want || r.Op != c.op || r.Flags&wire.Binary == 0 {
			t.Errorf("%q is %q, op %v; want %q, %v", c.frame, line, r.Op, c.want, c.op)
		}
	}
}

// compareParsed checks that Spell has set r to what the parser reads in line.
func compareParsed(t *testing.T, l *wire.Limits, line []byte, r *wire.Request) {
	t.Helper()
	if r.Op == wire.Bad || len(line) == 0 {
		return
	}
	got := *r
	var want wire.Request
	size, err := l.Next(line, &want)
	if want.Op == wire.Gets {
		want.Op = wire.Get
	}
	want.Flags |= wire.Binary
	got.Several, want.Several = nil, nil
	if got.Flags&wire.TooLarge != 0 { // the length in the line is limited, and may have more than nine digits
		want.Swallow, want.Flags = got.Swallow, want.Flags&^wire.Rewrite
	}
	if !reflect.DeepEqual(got, want) || (err != nil) != (got.Need > 0) || err == nil && size != len(line) {
		t.Errorf("%q\nis    %+v\nparsed %+v, %d bytes, %v", line, got, want, size, err)
	}
}

// TestPartOfValue: while the rest of a value is still to come, the request has no data block.
func TestPartOfValue(t *testing.T) {
	b := frameOf(0x02, 0, "\x00\x00\x00\x05\x00\x00\x00\x3c", "k", "value")
	var l wire.Limits
	var f Frame
	var r wire.Request
	if _, err := Next(&l, b[:len(b)-2], &f); err != wire.ErrShort || f.Need != len(b) {
		t.Fatal(err, f.Need)
	}
	line := Spell(nil, b[:len(b)-2], &f, &r)
	if string(line) != "ms k 5 ME c F5 T60\r\n" {
		t.Errorf("%q", line)
	}
	compareParsed(t, &l, line, &r)
}

// TestLargeFrame: a value over the limit is refused without storing any of it in
// memory, whatever its declared size.
func TestLargeFrame(t *testing.T) {
	for _, opcode := range []byte{0x01, 0x0e, 0x7f, 0x1c} {
		extras := map[byte]string{0x01: "\x00\x00\x00\x00\x00\x00\x00\x00", 0x1c: "\x00\x00\x00\x00"}[opcode]
		b := frameOf(opcode, 0, extras, "k", "")
		binary.BigEndian.PutUint32(b[8:], 1<<32-1)
		var l wire.Limits
		var f Frame
		var r wire.Request
		n, err := Next(&l, b, &f)
		if err != nil || int64(n-HeadSize)+f.Swallow != 1<<32-1 {
			t.Errorf("opcode %#x: %d bytes, %d to swallow, %v", opcode, n, f.Swallow, err)
		}
		if line := Spell(nil, b, &f, &r); f.Op.Stores() && (r.Flags&wire.TooLarge == 0 || r.Swallow != f.Swallow) {
			t.Errorf("opcode %#x: %q is %+v", opcode, line, r)
		} else {
			compareParsed(t, &l, line, &r)
		}
	}
}

// FuzzNext: the result depends on the bytes and not on how they are cut, and each
// frame becomes one request.
func FuzzNext(f *testing.F) {
	f.Add(append(frameOf(0x01, 0, "\x00\x00\x00\x05\x00\x00\x00\x3c", "k", "v"), frameOf(0x0a, 0, "", "", "")...))
	f.Add(append(frameOf(0x0d, 0, "", "k", ""), frameOf(0x1c, 0, "\x00\x00\x00\x05", "a b", "surplus")...))
	f.Add(frameOf(0x05, 1, "\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00", "k\r\n", ""))
	f.Add(frameOf(0x10, 1, "", "items \n 3", ""))
	f.Add(append(frameOf(Begin, 0, "", "PLAIN", "\x00a\x00b"), frameOf(Step, 1, "", "PLAIN", "")...))
	f.Fuzz(func(t *testing.T, data []byte) {
		l := wire.Limits{Value: 64}
		for len(data) > 0 {
			var whole, part Frame
			n, err := Next(&l, data, &whole)
			for cut := 1; cut < len(data); cut++ {
				m, short := Next(&l, data[:cut], &part)
				switch {
				case short == wire.ErrShort && part.Need <= cut:
					t.Fatalf("%d bytes of %q: needs %d", cut, data, part.Need)
				case short == nil && data[0] != Magic:
				case short == nil && (err != nil || m != n || part.Swallow != whole.Swallow || part.Op != whole.Op || part.Key != whole.Key || part.Value != whole.Value || !bytes.Equal(part.answer, whole.answer)):
					t.Fatalf("%q: the first %d bytes are %+v, all are %+v", data, cut, part, whole)
				}
			}
			if err != nil {
				return
			}
			if n <= 0 || n > len(data) {
				t.Fatalf("%q is of %d bytes", data, n)
			}
			var r wire.Request
			var line []byte
			if whole.Op != wire.Auth { // Auth is not sent to servers
				line = Spell(nil, data, &whole, &r)
			}
			compareParsed(t, &l, line, &r)
			data = data[min(int64(len(data)), int64(n)+whole.Swallow):]
		}
	})
}
