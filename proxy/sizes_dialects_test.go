package proxy_test

// The clients of sizes_test.go: their requests and the expected answers.

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ringside/proxy/conversation"
)

func (w *sizing) anyKey() string { return w.keys[w.d.n(len(w.keys))] }

// flags returns the client flags of the next stored value.
func (w *sizing) flags() int { return 1 + (w.seq+1)&0xfff }

// store returns one memcached's reply to a request that stores size bytes. If the value
// is too large it returns refused, Ringside's reply, and removes the old value if
// removes is set.
func (w *sizing) store(request []byte, key string, size int, removes bool, refused string) []byte {
	if size <= maxSized {
		return bytes.Clone(w.one.Do(request))
	}
	if removes {
		w.one.Do([]byte("delete " + key + "\r\n"))
	}
	return []byte(refused)
}

const tooLargeForCache = "SERVER_ERROR object too large for cache: the value is longer than limits.value of Ringside\r\n"

// on returns a text command on one key, with a tag suffix at random if suffixed is set.
func (w *sizing) on(format, key string, suffixed bool) sized {
	sent := key
	if suffixed {
		sent = w.suffixed(key)
	}
	line := []byte(fmt.Sprintf(format, sent))
	return sized{brief(line), line, bytes.Clone(w.one.Do([]byte(fmt.Sprintf(format, key)))), false}
}

func (w *sizing) get(key string) sized { return w.on("get %s\r\n", key, true) }

// set returns a text command that stores.
func (w *sizing) set(verb, key, noreply string) sized {
	flags, v := w.flags(), w.value(key)
	request := func(key string) []byte {
		return append(append(fmt.Appendf(nil, "%s %s %d 0 %d%s\r\n", verb, key, flags, len(v), noreply), v...), "\r\n"...)
	}
	sent, refused := key, tooLargeForCache
	if verb != "append" && verb != "prepend" {
		sent = w.suffixed(key)
	}
	if noreply != "" {
		refused = ""
	}
	send := request(sent)
	return sized{brief(send), send, w.store(request(key), key, len(v), verb == "set", refused), false}
}

// text returns a random text command.
func (w *sizing) text() sized {
	d := w.d
	key := w.anyKey()
	switch n := d.n(12); {
	case n < 5:
		return w.set([]string{"set", "set", "set", "add", "replace", "append", "prepend"}[d.n(7)], key, []string{"", "", " noreply"}[d.n(3)])
	case n < 7:
		return w.get(key)
	case n < 9:
		line := []byte([]string{"get", "get", "get", "gat 0"}[d.n(4)])
		for range 2 + d.n(6) {
			line = append(append(line, ' '), w.anyKey()...)
		}
		line = append(line, "\r\n"...)
		return sized{brief(line), line, bytes.Clone(w.one.Do(line)), true}
	case n < 10 && !guarded(key):
		return w.on("delete %s\r\n", key, false)
	case n < 11:
		return w.on("touch %s 0\r\n", key, false)
	}
	return w.on("gat 0 %s\r\n", key, false)
}

// meta returns a random meta command.
func (w *sizing) meta() sized {
	d := w.d
	key := w.anyKey()
	tagged := key
	spell := func(key string) (spelled, flags string) { return key, "" }
	flags := []string{" Oopaque", "", " q", " k", " k O1", " q k"}
	if w.Release == "" && len(key) <= 180 && key[len(key)-1] == '1' {
		flags = flags[:3] // a server returns the key in the encoding of the item, the guard in that of the request
	}
	if len(flags) == 3 && d.one(2) {
		spell = func(key string) (spelled, flags string) {
			return base64.StdEncoding.EncodeToString([]byte(key)), " b"
		}
	}
	more := flags[d.n(len(flags))]
	switch n := d.n(8); {
	case n < 4:
		mode := []string{"", "", " MS", " ME", " MR", " MA", " MP"}[d.n(7)]
		n, v := w.flags(), w.value(key)
		request := func(key string) []byte {
			key, b := spell(key)
			return append(append(fmt.Appendf(nil, "ms %s %d%s F%d%s%s\r\n", key, len(v), b, n, mode, more), v...), "\r\n"...)
		}
		if mode != " MA" && mode != " MP" {
			if tagged = w.suffixed(key); len(tagged) > 180 {
				tagged = key
			}
		}
		send := request(tagged)
		return sized{brief(send), send, w.store(request(key), key, len(v), mode == "" || mode == " MS", tooLargeForCache), false}
	case n < 7 || guarded(key):
		request := func(key string) []byte {
			key, b := spell(key)
			return fmt.Appendf(nil, "mg %s%s%s%s\r\n", key, b, []string{" v", " f v", " v f", " s", " s v"}[w.seq%5], more)
		}
		send := request(key)
		return sized{brief(send), send, bytes.Clone(w.one.Do(request(key))), false}
	}
	spelled, b := spell(key)
	send := fmt.Appendf(nil, "md %s%s%s\r\n", spelled, b, more)
	return sized{brief(send), send, bytes.Clone(w.one.Do(send)), false}
}

// framed returns a frame of the binary protocol, or several consecutive quiet gets.
func (w *sizing) framed() sized {
	d := w.d
	key := w.anyKey()
	frame := func(opcode, text, key, extras string, value []byte) sized {
		code := slices.Index(conversation.FrameNames, opcode)
		b := []byte{0x80, byte(code), byte(len(key) >> 8), byte(len(key)), byte(len(extras)), 0, 0, 0}
		b = binary.BigEndian.AppendUint32(b, uint32(len(extras)+len(key)+len(value)))
		b = append(b, "\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00\x00"...)
		b = append(append(append(b, extras...), key...), value...)
		return sized{opcode + " " + brief([]byte(text)), b, nil, false}
	}
	switch n := d.n(10); {
	case n < 4:
		verb := []string{"set", "set", "set", "add", "replace", "append", "prepend"}[d.n(7)]
		quiet := []string{"", "q"}[d.n(2)]
		flags, v := w.flags(), w.value(key)
		tagged, extras := w.suffixed(key), string(binary.BigEndian.AppendUint32(nil, uint32(flags)))+"\x00\x00\x00\x00"
		if verb == "append" || verb == "prepend" {
			tagged, extras = key, ""
		}
		c := frame(verb+quiet, fmt.Sprintf("%s %d bytes", tagged, len(v)), tagged, extras, v)
		request := append(append(fmt.Appendf(nil, "%s %s %d 0 %d\r\n", verb, key, flags, len(v)), v...), "\r\n"...)
		said := strings.TrimSpace(string(w.store(request, key, len(v), verb == "set", "too large")))
		status := map[string]int{"too large": 3, "NOT_STORED": map[string]int{"add": 2, "replace": 1, "append": 5, "prepend": 5}[verb]}[said]
		if status > 0 || quiet == "" {
			c.want = answerFrame(verb+quiet, status, "", "", []byte(map[int]string{1: "Not found", 2: "Data exists for key.", 3: "Too large.", 5: "Not stored."}[status]))
		}
		return c
	case n < 7:
		return w.read(frame, []string{"get", "getk", "getq", "getkq", "gat", "gatq", "gatk", "gatkq"}[d.n(8)], key)
	case n < 9 || guarded(key):
		row := sized{}
		for range 2 + d.n(5) {
			c := w.read(frame, []string{"getq", "getkq"}[d.n(2)], w.anyKey())
			row.text, row.send, row.want = row.text+c.text+" + ", append(row.send, c.send...), append(row.want, c.want...)
		}
		return row
	}
	c := frame("delete", key, key, "", nil)
	status := map[bool]int{true: 0, false: 1}[strings.HasPrefix(string(w.one.Do([]byte("delete "+key+"\r\n"))), "DELETED")]
	c.want = answerFrame("delete", status, "", "", []byte([]string{"", "Not found"}[status]))
	return c
}

// read returns a frame that reads.
func (w *sizing) read(frame func(opcode, text, key, extras string, value []byte) sized, verb, key string) sized {
	sent, extras := key, ""
	if strings.HasPrefix(verb, "gat") {
		extras = "\x00\x00\x00\x00"
	} else {
		sent = w.suffixed(key)
	}
	c := frame(verb, sent, sent, extras, nil)
	shown := ""
	if strings.Contains(verb, "k") {
		shown = sent
	}
	said := w.one.Do([]byte("get " + key + "\r\n"))
	if line, rest, _ := bytes.Cut(said, []byte("\r\n")); len(rest) > 0 {
		f := strings.Fields(string(line))
		flags, _ := strconv.Atoi(f[2])
		size, _ := strconv.Atoi(f[3])
		c.want = answerFrame(verb, 0, string(binary.BigEndian.AppendUint32(nil, uint32(flags))), shown, rest[:size])
	} else if !strings.HasSuffix(verb, "q") {
		text := []byte("Not found")
		if shown != "" {
			text = nil
		}
		c.want = answerFrame(verb, 1, "", shown, text)
	}
	return c
}

// answerFrame returns a reply frame without a cas.
func answerFrame(opcode string, status int, extras, key string, value []byte) []byte {
	b := []byte{0x81, byte(slices.Index(conversation.FrameNames, opcode)), byte(len(key) >> 8), byte(len(key)), byte(len(extras)), 0, 0, byte(status)}
	b = binary.BigEndian.AppendUint32(b, uint32(len(extras)+len(key)+len(value)))
	b = append(b, "\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00\x00"...)
	return append(append(append(b, extras...), key...), value...)
}

// withoutCas returns reply frames with all cas fields cleared.
func withoutCas(b []byte) []byte {
	b = bytes.Clone(b)
	for at := 0; at+24 <= len(b); at += 24 + int(binary.BigEndian.Uint32(b[at+8:])) {
		clear(b[at+16 : at+24])
	}
	return b
}
