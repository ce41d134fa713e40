package proxy_test

// The simulation's clients and their requests. They use text and meta; TestReplies in
// internal/fleet counts the replies of all three protocols on every kind of route.

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"ringside/proxy/client"
	"ringside/proxy/link"
)

// simKey is the known state of one key. Only one client writes it, with a sequence
// number in each value, so all values are distinct.
type simKey struct {
	name    string
	seq     int // sequence number used last
	size    map[int]int
	acked   int // reads must not return an older version
	set     int // last version that was STORED
	removed int // last command that may have removed it

	firm                 int // last command that has an effect unless a server fails
	firmEpoch, firmFlush int // epoch and flush count of firm
}

// simClient is one client connection.
type simClient struct {
	w       *world
	id      int
	link    *link.Link
	keys    []*simKey
	pending []byte // composed but not sent
	sent    int    // bytes sent
	wants   []*want
	got     []byte
	full    bool
	slow    bool
	paused  bool
	ended   bool // the client has sent FIN or quit
	opaque  int
}

func (c *simClient) Peer() string { return fmt.Sprintf("c%d", c.id) }

func (c *simClient) Ready() bool { panic("of a client") }

func (c *simClient) Unsent() int { panic("of a client") }

// want is the expected answer of one command, or of a group of quiet commands with the
// mn after them.
type want struct {
	kind  string
	text  string // for messages
	end   int    // offset of the command's end in the client's bytes
	epoch int    // number of reloads before it; -1 if the order of commands proves nothing
	flush int    // number of flushes before it; -1 if one may still be pending
	reads []wantRead
	key   *simKey // for mutations
	seq   int
	op    string // opaque of a meta command

	quiet []*want
}

// wantRead is the expected result for one key.
type wantRead struct {
	key     *simKey
	atLeast int // older versions are wrong
	must    int // not 0: this version existed, and a miss is wrong unless it was removed since
}

// value returns the data block of a key's version. All data blocks are distinct.
func value(key string, seq, size int) []byte {
	b := fmt.Appendf(make([]byte, 0, size+40), "%s#%d#%d#", key, seq, size)
	for i := len(b); i < size; i++ {
		b = append(b, byte((i*131+seq*17+len(key))>>2))
	}
	return b
}

// stripped is the prefix that a route strips.
const stripped = "p:"

func (c *simClient) newKey() *simKey {
	prefix := ""
	if c.w.d.one(3) {
		prefix = stripped
	}
	k := &simKey{name: fmt.Sprintf("%sc%dk%d", prefix, c.id, len(c.keys)), size: map[int]int{}}
	if prefix != "" {
		k.name += "s" // so that it differs from all other keys even without its prefix
	}
	c.keys = append(c.keys, k)
	c.w.keys[k.name] = k
	c.w.keyList = append(c.w.keyList, k)
	return k
}

func (c *simClient) own() *simKey {
	if len(c.keys) < c.w.some(4, 1) {
		return c.newKey()
	}
	return c.keys[c.w.d.n(len(c.keys))]
}

func (c *simClient) any() *simKey {
	if len(c.w.keyList) == 0 || c.w.d.one(3) {
		return c.own()
	}
	k := c.w.keyList[c.w.d.n(len(c.w.keyList))]
	if k.seq == 0 { // it has never been written
		return c.w.keyList[0]
	}
	return k
}

func (c *simClient) size() int {
	d := c.w.d
	if c.w.narrow {
		return 20
	}
	most := 12
	if c.w.heavy {
		most = 5
	}
	switch d.n(most) {
	case 0:
		return 20_000 + d.n(50_000)
	case 1:
		return 64<<10 - 50 + d.n(100)
	case 2:
		return 70_000 + d.n(120_000)
	case 3, 4:
		return 1000 + d.n(18_000)
	}
	return 20 + d.n(200)
}

// next assigns the next sequence number of k to the mutation w.
func (c *simClient) next(w *want, k *simKey) int {
	k.seq++
	w.key, w.seq = k, k.seq
	return k.seq
}

// read records which versions of k a read may return now, and returns the name of k.
func (c *simClient) read(w *want, k *simKey) string {
	r := wantRead{key: k, atLeast: k.acked}
	if k.set > 0 && k.set == k.acked && k.removed < k.set {
		r.must = k.set
	}
	if !c.w.storm && slices.Contains(c.keys, k) && k.firm > 0 && k.firmEpoch == w.epoch {
		r.atLeast, r.must = k.firm, 0 // commands of one client run in order
		if k.removed < k.firm && k.firmFlush == w.flush {
			r.must = k.firm
		}
	}
	w.reads = append(w.reads, r)
	return k.name
}

// compose adds one command to the client's pending bytes.
func (c *simClient) compose() {
	d := c.w.d
	w := c.w.newWant()
	var text []byte
	choice := d.n(22)
	if c.w.heavy && d.one(4) {
		choice = 3
	}
	if c.w.narrow {
		choice = [...]int{0, 0, 0, 5, 5, 10}[d.n(6)]
	}
	switch choice {
	case 0, 1, 2:
		text, w.kind = fmt.Appendf(nil, "get %s\r\n", c.read(w, c.any())), "read"
	case 3, 4:
		text, w.kind = []byte("get"), "read"
		if d.one(4) {
			text, w.kind = []byte("gets"), "gets"
		}
		if d.one(4) {
			text, w.kind = []byte("gat 0"), "read"
		}
		if d.one(20) { // more keys than a turn has: the rest is requested later
			text = append(text, strings.Repeat([]string{" c1none", " none"}[d.n(2)], client.TurnKeys)...)
		}
		for range 2 + d.n(12) {
			text = fmt.Appendf(text, " %s", c.read(w, c.any()))
		}
		text = append(text, "\r\n"...)
	case 5, 6, 7:
		text, w.kind = c.store(w, "set"), "set"
	case 8:
		text, w.kind = c.store(w, "set"), "noreply"
		text = bytes.Replace(text, []byte("\r\n"), []byte(" noreply\r\n"), 1)
	case 9:
		text, w.kind = c.store(w, [...]string{"add", "replace"}[d.n(2)]), "add"
		c.mayRemove(w) // it may not be stored, so its number proves nothing
	case 10:
		k := c.own()
		text, w.kind = fmt.Appendf(nil, "delete %s\r\n", k.name), "delete"
		c.next(w, k)
		c.mayRemove(w)
		c.firm(w)
	case 11:
		if d.one(2) {
			text, w.kind = c.store(w, "set"), "set"
			break
		}
		text, w.kind = fmt.Appendf(nil, "touch %s 0\r\n", c.any().name), "touch"
	case 12:
		text, w.kind = fmt.Appendf(nil, "incr nc%d 1\r\n", c.id), "incr"
		if d.one(3) {
			text, w.kind = fmt.Appendf(nil, "set nc%d 0 0 1\r\n1\r\n", c.id), "set"
		}
	case 13, 14:
		text = c.meta(w, "")
	case 15:
		group := 1 + d.n(5)
		for range group {
			q := c.w.newWant()
			text = append(text, c.meta(q, " q")...)
			w.quiet = append(w.quiet, q)
		}
		text, w.kind = append(text, "mn\r\n"...), "quiet"
	case 16:
		text, w.kind = []byte("mn\r\n"), "mn"
	case 17:
		text, w.kind = []byte("version\r\n"), "version"
	case 18:
		text, w.kind = c.odd(w)
	case 19:
		k := c.own()
		c.next(w, k)
		c.mayRemove(w)
		c.firm(w)
		n := c.w.e.Limits.Value + 1 + d.n(100_000)
		text, w.kind = fmt.Appendf(nil, "set %s 0 0 %d\r\n", k.name, n), "too large"
		text = append(append(text, bytes.Repeat([]byte("get c0k0\r\n"), n/10+1)[:n]...), "\r\n"...)
	default:
		if !d.one(8) {
			text, w.kind = fmt.Appendf(nil, "get %s\r\n", c.read(w, c.own())), "read"
			break
		}
		switch d.n(3) {
		case 0:
			text, w.kind = []byte("stats\r\n"), "stats"
		case 1:
			c.w.flushes++
			c.w.flushing++
			text, w.kind = []byte("flush_all\r\n"), "flush"
			for _, k := range c.w.keyList {
				k.set = 0
			}
		case 2:
			text, w.kind = []byte("quit\r\n"), "quit"
			c.ended = true
		}
	}
	c.pending = append(c.pending, text...)
	w.text, w.end = fmt.Sprintf("%.40q", text), c.sent+len(c.pending)
	c.wants = append(c.wants, w)
	c.w.log("c%d composes %s", c.id, w.text)
}

// mayRemove records that the key may be missing after w.
func (c *simClient) mayRemove(w *want) { w.key.removed = w.seq }

// firm records that w has an effect unless a server fails.
func (c *simClient) firm(w *want) {
	w.key.firm, w.key.firmEpoch, w.key.firmFlush = w.seq, w.epoch, w.flush
}

func (c *simClient) store(w *want, command string) []byte {
	k, size := c.own(), c.size()
	seq := c.next(w, k)
	body := c.body(w, k, seq, size)
	if command == "set" {
		c.firm(w)
	}
	text := fmt.Appendf(nil, "%s %s %d 0 %d\r\n", command, k.name, seq&0xffff, len(body))
	return append(append(text, body...), "\r\n"...)
}

func (c *simClient) body(w *want, k *simKey, seq, size int) []byte {
	k.size[seq] = size
	b := value(k.name, seq, size)
	if c.w.tight && len(b) > 1000 {
		c.mayRemove(w) // rejected because memory is short, which removes the old value
	}
	return b
}

func (c *simClient) meta(w *want, q string) []byte {
	c.opaque++
	w.op = fmt.Sprintf("O%dx%d", c.id, c.opaque)
	spelled := func(k *simKey) string {
		if c.w.d.one(4) {
			q += " b"
			return base64.StdEncoding.EncodeToString([]byte(k.name))
		}
		return k.name
	}
	switch c.w.d.n(5) {
	case 0, 1:
		w.kind = "mg"
		k := c.any()
		c.read(w, k)
		return fmt.Appendf(nil, "mg %s %s v k f%s\r\n", spelled(k), w.op, q)
	case 2:
		w.kind = "mg"
		k := c.any()
		c.read(w, k)
		return fmt.Appendf(nil, "mg %s %s k%s\r\n", spelled(k), w.op, q)
	case 3:
		w.kind = "md"
		k := c.own()
		c.next(w, k)
		c.mayRemove(w)
		c.firm(w)
		return fmt.Appendf(nil, "md %s %s%s\r\n", spelled(k), w.op, q)
	}
	w.kind = "ms"
	k, size := c.own(), c.size()
	seq := c.next(w, k)
	body := c.body(w, k, seq, size)
	c.firm(w)
	return fmt.Appendf(nil, "ms %s %d F%d %s%s\r\n%s\r\n", spelled(k), len(body), seq&0xffff, w.op, q, body)
}

// odd returns input that is answered without a server.
func (c *simClient) odd(w *want) (text []byte, kind string) {
	switch c.w.d.n(6) {
	case 0:
		return []byte("foo bar\r\n"), "error"
	case 1:
		return []byte("get " + strings.Repeat("k", 251) + "\r\n"), "client error"
	case 2:
		return []byte("set c0k0 0 0 3\r\nabcde"), "client error" // no \r\n at the end of the value
	case 3:
		return []byte("\r\n"), "error"
	case 4:
		return []byte("incr c0k0 x\r\n"), "client error"
	}
	return []byte("verbosity 1\r\n"), "ok"
}
