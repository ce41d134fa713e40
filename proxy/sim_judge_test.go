package proxy_test

// The simulation's judge: it decides which answers are correct.

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
)

// hears adds bytes from the engine and checks every answer that they complete.
func (c *simClient) hears(b []byte) {
	c.got = append(c.got, b...)
	for len(c.wants) > 0 {
		w := c.wants[0]
		n := 0
		if w.kind != "noreply" && w.kind != "quit" {
			if n = c.answer(w, c.got); n < 0 {
				return
			}
			c.w.log("c%d has the answer to %s: %.60q", c.id, w.text, c.got[:n])
			if w.end > c.sent && !bytes.HasPrefix(c.got, []byte("SERVER_ERROR")) { // a data block may be rejected before it has arrived
				c.w.fatalf("c%d has an answer to what it has not sent", c.id)
			}
		}
		c.got = c.got[n:]
		c.wants = c.wants[1:]
	}
	if len(c.got) > 0 {
		c.w.fatalf("c%d has got %.100q, which it has not asked for", c.id, c.got)
	}
}

func (c *simClient) wrong(w *want, b []byte) {
	c.w.fatalf("c%d: the answer to %s (%s) is %.100q", c.id, w.text, w.kind, b)
}

// answer checks the answer to w at the start of b and returns its size, or -1 if it is
// incomplete.
func (c *simClient) answer(w *want, b []byte) int {
	end := bytes.Index(b, []byte("\r\n"))
	if end < 0 {
		return -1
	}
	line := string(b[:end])
	n := end + 2
	sad := strings.HasPrefix(line, "SERVER_ERROR ")
	if sad && !c.w.storm && w.kind != "too large" {
		c.wrong(w, b)
	}
	switch w.kind {
	case "read", "gets":
		return c.values(w, b)
	case "mg", "ms", "md":
		return c.metaAnswer(w, b)
	case "quiet":
		return c.quietAnswer(w, b)
	case "stats":
		if sad {
			return n
		}
		if i := bytes.Index(b, []byte("END\r\n")); i >= 0 {
			return i + 5
		}
		return -1
	}
	good := false
	switch w.kind {
	case "set":
		if good = line == "STORED"; good && w.key != nil {
			c.stored(w)
		}
	case "add":
		good = line == "NOT_STORED" || line == "STORED"
	case "delete":
		if good = line == "DELETED" || line == "NOT_FOUND"; good {
			c.acked(w)
		}
	case "touch":
		good = line == "TOUCHED" || line == "NOT_FOUND"
	case "incr":
		_, err := strconv.Atoi(line)
		good = err == nil || line == "NOT_FOUND"
	case "mn":
		good, sad = line == "MN", false
	case "version":
		good = strings.HasPrefix(line, "VERSION ")
	case "error":
		good, sad = line == "ERROR", false
	case "client error":
		good, sad = strings.HasPrefix(line, "CLIENT_ERROR "), false
	case "ok":
		good, sad = line == "OK", false
	case "flush":
		if good = line == "OK"; good {
			c.w.flushing-- // otherwise it may still be pending
		}
	case "too large":
		good = strings.HasPrefix(line, "SERVER_ERROR object too large for cache")
	}
	if !good && !sad {
		c.wrong(w, b)
	}
	return n
}

// acked records that reads must not return anything older than w.
func (c *simClient) acked(w *want) {
	if w.epoch == c.w.epoch {
		w.key.acked = max(w.key.acked, w.seq)
	}
}

func (c *simClient) stored(w *want) {
	c.acked(w)
	if w.epoch == c.w.epoch && w.flush == c.w.flushes && w.key.acked == w.seq { // -1 is never equal
		w.key.set = w.seq
	}
}

// values checks VALUE … END.
func (c *simClient) values(w *want, b []byte) int {
	at, seen, before := 0, make([]int, len(w.reads)), -1
	for {
		end := bytes.Index(b[at:], []byte("\r\n"))
		if end < 0 {
			return -1
		}
		line := string(b[at : at+end])
		at += end + 2
		f := strings.Split(line, " ")
		switch {
		case line == "END" || f[0] == "SERVER_ERROR":
			if line != "END" && !c.w.storm {
				c.wrong(w, b)
			}
			for i, r := range w.reads {
				switch {
				case seen[i] > 0:
					c.seen(w, r, seen[i])
				case line == "END":
					c.missed(w, r)
				}
			}
			return at
		case f[0] != "VALUE" || len(f) < 4 || (w.kind == "gets") != (len(f) == 5):
			c.wrong(w, b)
		}
		n, _ := strconv.Atoi(f[3])
		if len(b) < at+n+2 {
			return -1
		}
		seq := c.w.checkValue(c.Peer(), f[1], f[2], b[at:at+n])
		i := slices.IndexFunc(w.reads, func(r wantRead) bool { return r.key.name == f[1] })
		for i >= 0 && seen[i] > 0 { // a key may be requested twice
			next := slices.IndexFunc(w.reads[i+1:], func(r wantRead) bool { return r.key.name == f[1] })
			if next < 0 {
				i = -1
				break
			}
			i += 1 + next
		}
		if i < 0 || string(b[at+n:at+n+2]) != "\r\n" || c.w.ordered && i < before {
			c.wrong(w, b)
		}
		seen[i], before = seq, i
		at += n + 2
	}
}

func (c *simClient) seen(w *want, r wantRead, seq int) {
	if w.epoch != c.w.epoch {
		return // a reload may have moved the key to another server
	}
	if seq < r.atLeast {
		c.w.fatalf("c%d reads version %d of %s; version %d was there before it asked", c.id, seq, r.key.name, r.atLeast)
	}
	r.key.acked = max(r.key.acked, seq)
}

func (c *simClient) missed(w *want, r wantRead) {
	if w.epoch != c.w.epoch || w.flush != c.w.flushes || r.must == 0 || r.key.removed >= r.must {
		return
	}
	if c.w.storm && !c.w.getErrors {
		return // an outage looks like a miss
	}
	c.w.fatalf("c%d misses %s; version %d was there before it asked", c.id, r.key.name, r.must)
}

// metaAnswer checks the answer to one meta command, which is identified by its opaque.
func (c *simClient) metaAnswer(w *want, b []byte) int {
	end := bytes.Index(b, []byte("\r\n"))
	line := string(b[:end])
	f := strings.Split(line, " ")
	if f[0] == "SERVER_ERROR" {
		return end + 2
	}
	if !slices.Contains(f, w.op) {
		c.wrong(w, b)
	}
	switch w.kind + f[0] {
	case "mgVA":
		n, _ := strconv.Atoi(f[1])
		if len(b) < end+2+n+2 {
			return -1
		}
		key := w.reads[0].key.name
		if encoded := base64.StdEncoding.EncodeToString([]byte(key)); !slices.Contains(f, "k"+key) && !slices.Contains(f, "k"+encoded) { // it is spelled as it was stored
			c.wrong(w, b)
		}
		flags := slices.IndexFunc(f, func(s string) bool { return s[0] == 'f' })
		seq := c.w.checkValue(c.Peer(), key, f[flags][1:], b[end+2:end+2+n])
		c.seen(w, w.reads[0], seq)
		return end + 2 + n + 2
	case "mgHD":
	case "mgEN":
		c.missed(w, w.reads[0])
	case "msHD":
		c.stored(w)
	case "mdHD", "mdNF":
		c.acked(w)
	default:
		c.wrong(w, b)
	}
	return end + 2
}

// quietAnswer checks the answers to a group of quiet commands, and the MN.
func (c *simClient) quietAnswer(w *want, b []byte) int {
	at, next := 0, 0
	failed := 0
	for {
		end := bytes.Index(b[at:], []byte("\r\n"))
		if end < 0 {
			return -1
		}
		line := string(b[at : at+end])
		f := strings.Split(line, " ")
		switch {
		case line == "MN":
			for ; next < len(w.quiet) && failed == 0; next++ {
				c.hidden(w.quiet[next])
			}
			return at + 4
		case f[0] == "SERVER_ERROR":
			if failed++; failed > len(w.quiet) || !c.w.storm {
				c.wrong(w, b)
			}
			at += end + 2
			continue
		}
		i := next
		for i < len(w.quiet) && !slices.Contains(f, w.quiet[i].op) {
			i++
		}
		if i == len(w.quiet) || f[0] == "EN" || f[0] == "HD" && w.quiet[i].kind != "mg" {
			c.wrong(w, b)
		}
		n := c.metaAnswer(w.quiet[i], b[at:])
		if n < 0 {
			return -1
		}
		for ; next < i && failed == 0; next++ {
			c.hidden(w.quiet[next])
		}
		next = i + 1
		at += n
	}
}

// hidden records the success of a quiet command that got no answer.
func (c *simClient) hidden(w *want) {
	switch w.kind {
	case "mg":
		c.missed(w, w.reads[0])
	case "ms":
		c.stored(w)
	case "md":
		c.acked(w)
	}
}

// checkValue fails unless body is a value of key that a client has written.
func (w *world) checkValue(who, key, flags string, body []byte) (seq int) {
	part := bytes.SplitN(body, []byte("#"), 4)
	if len(part) < 4 {
		w.fatalf("%s: the value of %s is %.60q", who, key, body)
	}
	name := string(part[0])
	seq, _ = strconv.Atoi(string(part[1]))
	size, _ := strconv.Atoi(string(part[2]))
	if name != key {
		w.fatalf("%s: as the value of %s came one of %s", who, key, name)
	}
	if k := w.keys[key]; k == nil || seq < 1 || seq > k.seq || k.size[seq] != size {
		w.fatalf("%s: version %d of %s, %d bytes: nobody has written it", who, seq, key, size)
	}
	if flags != "" && flags != strconv.Itoa(seq&0xffff) {
		w.fatalf("%s: version %d of %s has the flags %s", who, seq, key, flags)
	}
	if !bytes.Equal(body, value(key, seq, size)) {
		w.fatalf("%s: version %d of %s has other bytes in it", who, seq, key)
	}
	return seq
}

// checkStored is checkValue for a value that a server is asked to store.
func (w *world) checkStored(key, flags string, body []byte) {
	if strings.HasPrefix(key, "n") { // a number
		return
	}
	if w.keys[key] == nil {
		key = stripped + key
	}
	w.checkValue("a server", key, flags, body)
}
