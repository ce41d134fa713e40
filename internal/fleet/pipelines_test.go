package fleet

// Pipelines of plain commands: the callers of replies_test.go also write keys of their own and check every value. Routes
// have no features, so each request is sent to one server and nothing hides a mistake of the parser, the queues or
// the buffers. This file adds
//
//	values      each value names its key and version; a read returns the exact version if that is known
//	sockets     they accept and deliver parts of the bytes, and may be full for a while
//	limits      small ones for commands in flight, output, memory, queues and idle clients
//	servers     some connections speak an old dialect, get stuck, or send bytes that are not a reply
//	engines     their structures are checked after each wakeup (invariants_test.go), and their memory at the end

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"ringside/proxy/client"
	"ringside/proxy/link"
	"ringside/proxy/table"
	"ringside/proxy/upstream"
)

// pipelines are the kinds of runs.
var pipelines = []scenario{
	{name: "calm", steady: true},
	{name: "faults", steady: true, faults: badServers, apart: 300 * milli},
	{name: "reloads", faults: badServers, apart: 500 * milli},
	{name: "late sets", steady: true, narrow: true, faults: []string{"hang", "cut", "stuck", "stuck", "stuck"}, apart: 100 * milli, aimed: true},
}

// badServers are the faults of runs whose engines are checked.
var badServers = []string{"cut", "hang", "kill", "slow", "stop", "pause", "stuck", "stuck", "silence", "garbage", "stray"}

// TestPipelines simulates the same runs each time. FuzzPipelines searches for others.
func TestPipelines(t *testing.T) {
	from, to := seedRange(t)
	if os.Getenv("RINGSIDE_SEED")+os.Getenv("RINGSIDE_SEEDS") == "" {
		to = from + (to-from)*5
	}
	for _, c := range pipelines {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var sum tally
			for seed := from; seed < to; seed++ {
				sum.add(&playPipelines(t, c, seed).tally)
			}
			t.Logf("%d commands, %d of them failed", sum.asked, sum.errors)
		})
	}
}

// FuzzPipelines lets the fuzzer decide what happens.
func FuzzPipelines(f *testing.F) {
	for i := range pipelines {
		b := make([]byte, 4000)
		for j := range b {
			b[j] = byte(hash([]byte{byte(i), byte(j), byte(j >> 8)}))
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 0 {
			c := pipelines[int(b[0])%len(pipelines)]
			c.decisions = b[1:]
			playPipelines(t, c, 0)
		}
	})
}

func playPipelines(t *testing.T, c scenario, seed uint64) *fleet {
	c.bare, c.brief, c.sidecars, c.apps, c.servers, c.gutter, c.callers = true, true, 1, -1, 3, 2, 6
	if c.narrow {
		c.servers = 1
	}
	f := playReplies(c, seed, false)
	if f.broken != "" {
		f = playReplies(c, seed, true)
		t.Fatalf("%s\n%s, seed %d: %s", f.lastLines(), c.name, seed, f.broken)
	}
	return f
}

// decisions is a source of random numbers: first those of a fuzzer, then others.
type decisions struct {
	bytes []byte
	rand.PCG
}

func (d *decisions) Uint64() uint64 {
	if len(d.bytes) == 0 {
		return d.PCG.Uint64()
	}
	n := uint64(d.bytes[0]) // a byte decides between few possibilities, whether the high or the low bits of the number are used
	d.bytes = d.bytes[1:]
	return n * 0x0101010101010101
}

// drawBare returns a random configuration without features. Only the first draw of a run decides the limits and the
// settings of the pools.
func (f *fleet) drawBare() *features {
	d := &features{limits: limits, mode: table.FailFast, there: true}
	some := func() bool { return f.one(2) }
	if old := f.features; old != nil {
		d.limits, d.pools, d.deadline = old.limits, old.pools, old.deadline
	} else {
		l := &d.limits
		l.Value = 200_000
		l.InFlight = []int{4096, 2, 30}[f.rand.IntN(3)]
		l.Output = []int{1 << 20, 3000}[f.rand.IntN(2)]
		queue := 1 << 20
		if len(f.faults) > 0 && !f.narrow {
			l.OutputHard = []int{64 << 20, 300_000}[f.rand.IntN(2)]
			l.Idle = []time.Duration{0, 3 * time.Second, 300 * time.Millisecond}[f.rand.IntN(3)]
			l.Memory = []int64{256 << 20, 256 << 20, 1 << 20, 250_000}[f.rand.IntN(4)]
			queue = []int{10_000, 10_000, 3}[f.rand.IntN(3)]
		}
		keepalive := some()
		d.deadline = []time.Duration{5 * f.request, 2 * f.request}[f.rand.IntN(2)]
		for i := range d.pools {
			d.pools[i] = poolFeatures{gone: -1, loud: some(), inOrder: f.one(4), join: some(), ahead: f.one(4), connections: 1 + f.rand.IntN(2), keepalive: keepalive, queue: queue}
		}
	}
	if !f.steady && some() {
		d.pools[0].gone = f.rand.IntN(3)
	} else {
		d.pools[0].gone = -1
	}
	for _, prefix := range []string{"", "x:", "g:"} { // reloads remove the last route, and move keys of the second one
		d.routes = append(d.routes, routeFeatures{prefix: prefix, strip: prefix == "x:", far: prefix == "x:" && !f.steady && some(), gone: prefix == "g:" && !f.steady && some()})
	}
	return d
}

// part returns how many of n bytes a socket transfers.
func (f *fleet) part(n int) int {
	return min(n, []int{f.rand.IntN(n + 1), f.rand.IntN(30), f.rand.IntN(70_000), n}[f.rand.IntN(4)])
}

// ownKey is a key that only one caller writes.
type ownKey struct {
	name     string
	versions []version // the first one is not used
	acked    int       // latest version that a client knows to exist or to have existed. A read that is sent now must not return an older one
	now      int       // version after all commands that its caller has sent; 0: no value, -1: not known
}

// version is what is known about one write.
type version struct {
	size   int
	acked  bool  // a client knows that it was carried out
	failed int64 // when its caller was told that it failed; 0: it was not
}

// read is a key in a request, and what a read of it may return.
type read struct {
	name    string
	key     *ownKey // nil: several callers write it
	exact   int     // expected version; 0: a miss, -1: not known
	atLeast int     // oldest allowed version
	seen    bool    // its value has been returned
}

// valueOf returns the data of a version. All data are distinct.
func valueOf(key string, v, size int) string {
	b := fmt.Appendf(make([]byte, 0, size+40), "%s#%d#%d#", key, v, size)
	for i := len(b); i < size; i++ {
		b = append(b, byte((i*131+v*17+len(key))>>2))
	}
	return string(b)
}

// own returns a random key of the caller.
func (c *caller) own() *ownKey {
	limit := 4
	if c.f.narrow {
		limit = 1
	}
	if len(c.keys) >= limit {
		return c.keys[c.f.rand.IntN(len(c.keys))]
	}
	k := &ownKey{name: fmt.Sprintf("c%dk%d", c.id, len(c.f.owned)), versions: []version{{}}}
	if c.f.one(3) { // with a suffix, so that it differs from all other keys even after its prefix was stripped
		k.name = "x:" + k.name + "s"
	}
	c.keys, c.f.owned = append(c.keys, k), append(c.f.owned, k)
	return k
}

// reads returns what a read of k may return if it is sent now.
func (c *caller) reads(k *ownKey) read {
	r := read{name: k.name, key: k, exact: -1, atLeast: k.acked}
	if slices.Contains(c.keys, k) {
		r.exact = k.now // commands of one client run in order
	}
	return r
}

func (c *caller) readAny() read {
	if f := c.f; len(f.owned) > 0 && f.one(2) {
		return c.reads(f.owned[f.rand.IntN(len(f.owned))])
	}
	return c.reads(c.own())
}

// write returns the next version of k, which a command now writes or removes.
func (c *caller) write(k *ownKey, size int, removes bool) int {
	k.versions = append(k.versions, version{size: size})
	n := len(k.versions) - 1
	switch {
	case len(c.f.faults) > 0:
		k.now = -1
	case removes:
		k.now = 0
	default:
		k.now = n
	}
	return n
}

// valueSize returns a random size.
func (c *caller) valueSize() int {
	f := c.f
	if f.narrow {
		return 20
	}
	switch f.rand.IntN(12) {
	case 0:
		return 20_000 + f.rand.IntN(50_000)
	case 1:
		return 64<<10 - 50 + f.rand.IntN(100)
	case 2:
		return 70_000 + f.rand.IntN(120_000)
	case 3, 4:
		return 1000 + f.rand.IntN(18_000)
	}
	return 20 + f.rand.IntN(200)
}

// composeOwn adds a command on keys of callers.
func (c *caller) composeOwn(text []byte) []byte {
	f, k := c.f, c.own()
	choice := f.rand.IntN(14)
	if f.narrow {
		choice = []int{0, 0, 0, 5, 5, 9}[f.rand.IntN(6)]
	}
	store := func() (v int, body string) {
		size := c.valueSize()
		v = c.write(k, size, false)
		return v, valueOf(k.name, v, size)
	}
	opaque := c.nextOpaque()
	name := k.name
	if f.one(4) && choice >= 10 {
		name = base64.StdEncoding.EncodeToString([]byte(name))
		opaque += " b"
	}
	w := want{effects: effects{wrote: k}}
	frame := func(opcodes [2]byte, v int, extras []byte, body string) []byte {
		text = c.addFrame(text, opcodes[f.rand.IntN(2)], extras, k.name, body)
		c.wants[len(c.wants)-1].effects = effects{wrote: k, version: v}
		return text
	}
	switch {
	case c.binary && choice < 5:
		for range 1 + f.rand.IntN(3) {
			r := c.readAny()
			text = c.addFrame(text, []byte{0x00, 0x0c, 0x09, 0x0d}[f.rand.IntN(4)], nil, r.name, "")
			c.wants[len(c.wants)-1].reads = []read{r}
		}
		return text
	case c.binary && choice < 10:
		v, body := store()
		return frame([2]byte{0x01, 0x11}, v, binary.BigEndian.AppendUint64(nil, uint64(v&0xffff)<<32), body) // set
	case c.binary:
		return frame([2]byte{0x04, 0x14}, c.write(k, 0, true), nil, "") // delete
	case choice < 3:
		r := c.readAny()
		return c.add(text, want{read: true, effects: effects{reads: []read{r}}}, "get %s\r\n", r.name)
	case choice < 5:
		line, w := []string{"get", "gets", "gat 0"}[f.rand.IntN(3)], want{read: true}
		if f.one(20) { // more keys than a turn has: the rest is requested later
			line += strings.Repeat([]string{" c1none", " none"}[f.rand.IntN(2)], client.TurnKeys)
		}
		for range 2 + f.rand.IntN(12) {
			w.reads = append(w.reads, c.readAny())
			line += " " + w.reads[len(w.reads)-1].name
		}
		return c.add(text, w, "%s\r\n", line)
	case choice < 7:
		v, body := store()
		w.version, w.line = v, lineOf(`STORED`)
		return c.add(text, w, "set %s %d 0 %d\r\n%s\r\n", name, v&0xffff, len(body), body)
	case choice == 7:
		v, body := store()
		return fmt.Appendf(text, "set %s %d 0 %d noreply\r\n%s\r\n", name, v&0xffff, len(body), body)
	case choice == 8:
		before, add := k.now, f.one(2)
		v, body := store()
		switch {
		case before < 0:
			w.line = lineOf(`STORED|NOT_STORED`)
		case add == (before > 0):
			k.now, w.line = before, lineOf(`NOT_STORED`)
		default:
			w.version, w.line = v, lineOf(`STORED`)
		}
		return c.add(text, w, "%s %s %d 0 %d\r\n%s\r\n", map[bool]string{true: "add", false: "replace"}[add], name, v&0xffff, len(body), body)
	case choice == 9:
		replies := map[bool]string{true: `NOT_FOUND`, false: `DELETED`}[k.now == 0]
		if k.now < 0 {
			replies = `DELETED|NOT_FOUND`
		}
		if f.one(6) {
			w.version = c.write(k, 0, true)
			n := f.features.limits.Value + 1 + f.rand.IntN(100_000)
			w.line = lineOf(`SERVER_ERROR object too large for cache.*`)
			return c.add(text, w, "set %s 0 0 %d\r\n%s\r\n", name, n, strings.Repeat("get c0k0\r\n", n/10+1)[:n])
		}
		w.version, w.line = c.write(k, 0, true), lineOf(replies)
		return c.add(text, w, "delete %s\r\n", name)
	}
	line, q := "", quietMeta{opaque: strings.Fields(opaque)[0]}
	switch choice {
	case 10, 11:
		line, q.command = fmt.Sprintf("mg %s v k f %s", name, opaque), "mg"
		q.reads = []read{c.reads(k)}
	case 12:
		v, body := store()
		line, q.command = fmt.Sprintf("ms %s %d F%d %s\r\n%s", name, len(body), v&0xffff, opaque, body), "ms"
		q.wrote, q.version = k, v
	case 13:
		v := c.write(k, 0, true)
		line, q.command = fmt.Sprintf("md %s %s", name, opaque), "md"
		q.wrote, q.version = k, v
	}
	if f.one(3) {
		head, rest, _ := strings.Cut(line, "\r\n")
		if rest != "" {
			rest += "\r\n"
		}
		return c.add(text, want{group: []quietMeta{q}}, "%s q\r\n%smn\r\n", head, rest)
	}
	return c.add(text, want{opaque: q.opaque, effects: q.effects}, "%s\r\n", line)
}

// judgeValue checks that data are a value of a key that was requested.
func (c *caller) judgeValue(reads []read, name, flags string, data []byte) {
	i := slices.IndexFunc(reads, func(r read) bool { return r.name == name && !r.seen })
	if i < 0 {
		c.f.wrong("", "c%d p%d gets a value of %s, which it has not requested", c.id, c.s.id, name)
		return
	}
	r := &reads[i]
	r.seen = true
	if c.f.bare && c.f.steady && c.f.features.pools[0].inOrder && slices.ContainsFunc(reads[i+1:], func(r read) bool { return r.seen }) {
		c.f.wrong("", "c%d p%d gets the value of %s after that of a later key", c.id, c.s.id, name)
	}
	if r.key == nil {
		return
	}
	part := bytes.SplitN(data, []byte("#"), 4)
	v := 0
	if len(part) == 4 && string(part[0]) == name {
		v, _ = strconv.Atoi(string(part[1]))
	}
	k := r.key
	switch {
	case v < 1 || v >= len(k.versions) || string(data) != valueOf(name, v, k.versions[v].size):
		c.f.wrong("", "c%d p%d gets %.60q as the value of %s, which was not written", c.id, c.s.id, data, name)
	case flags != "" && flags != strconv.Itoa(v&0xffff):
		c.f.wrong("", "c%d p%d gets version %d of %s with the flags %s", c.id, c.s.id, v, name, flags)
	case r.exact >= 0 && v != r.exact:
		c.f.wrong("", "c%d p%d gets version %d of %s, and must get version %d", c.id, c.s.id, v, name, r.exact)
	case v < r.atLeast && c.f.steady && (k.versions[v].acked || k.versions[v].failed > 0 && k.versions[v].failed+c.f.grace < c.f.now):
		c.f.wrong("", "c%d p%d gets version %d of %s, and version %d was known before", c.id, c.s.id, v, name, r.atLeast)
	}
	k.acked = max(k.acked, v)
}

// judgeMisses checks that the keys without a value may be missing.
func (c *caller) judgeMisses(reads []read) {
	for _, r := range reads {
		if !r.seen && r.exact > 0 {
			c.f.wrong("", "c%d p%d misses %s, and must get version %d", c.id, c.s.id, r.name, r.exact)
		}
	}
}

// judgeWrite records the outcome of a write.
func (c *caller) judgeWrite(e effects, failed bool) {
	switch k, v := e.wrote, e.version; {
	case v == 0:
	case failed:
		k.versions[v].failed = c.f.now
	default:
		k.versions[v].acked = true
		k.acked = max(k.acked, v)
	}
}

// judgeMeta checks the reply to a meta command.
func (c *caller) judgeMeta(e effects, line string, data []byte) {
	words := strings.Fields(line)
	switch {
	case words[0] == "VA" && len(e.reads) > 0:
		name, flags := e.reads[0].name, ""
		for _, w := range words[2:] {
			if spelled := w[1:]; w[0] == 'k' && spelled != name && spelled != base64.StdEncoding.EncodeToString([]byte(name)) {
				c.f.wrong("", "c%d p%d gets %.60q as the reply to a read of %s", c.id, c.s.id, line, name)
			} else if w[0] == 'f' {
				flags = spelled
			}
		}
		c.judgeValue(e.reads, name, flags, data[:len(data)-2])
	case words[0] == "EN":
		c.judgeMisses(e.reads)
	case e.wrote != nil:
		c.judgeWrite(e, words[0] != "HD" && words[0] != "NF")
	}
}

// judgeQuiet checks that quiet meta commands may have no reply.
func (c *caller) judgeQuiet(group []quietMeta) {
	for _, q := range group {
		if c.f.faultless() { // an error names no command
			c.judgeMisses(q.reads)
			c.judgeWrite(q.effects, false)
		}
	}
}

// judgeFrame checks the frame that is the reply to a command; nil: it has none.
func (c *caller) judgeFrame(w *want, frame []byte) {
	status := uint16(0)
	if frame != nil {
		status = binary.BigEndian.Uint16(frame[6:])
	}
	switch {
	case status >= 0x80 && c.f.faultless() && w.touches():
		c.f.wrong("", "c%d p%d gets the status %d as the reply to %s", c.id, c.s.id, status, w)
	case w.wrote != nil && (frame != nil || c.f.faultless()): // an error may have ended the connection to the server
		c.judgeWrite(w.effects, status > 1)
	case len(w.reads) > 0 && (frame == nil || status == 1):
		c.judgeMisses(w.reads)
	case len(w.reads) > 0 && status == 0:
		extras, key := int(frame[4]), int(binary.BigEndian.Uint16(frame[2:]))
		name := w.reads[0].name
		if key > 0 {
			name = string(frame[24+extras : 24+extras+key])
		}
		c.judgeValue(w.reads, name, strconv.Itoa(int(binary.BigEndian.Uint32(frame[24:]))), frame[24+extras+key:])
	}
}

// early reports whether a reply may arrive before the value of its request.
func (w *want) early(reply []byte) bool {
	if w.frame != 0 {
		return binary.BigEndian.Uint16(reply[6:]) > 1
	}
	return bytes.HasPrefix(reply, []byte("SERVER_ERROR ")) || bytes.HasPrefix(reply, []byte("CLIENT_ERROR "))
}

// touches reports whether the command reads or writes a key of a caller.
func (e effects) touches() bool { return e.wrote != nil || len(e.reads) > 0 && e.reads[0].key != nil }

// faultless reports whether no server fails, so that each reply is known.
func (f *fleet) faultless() bool { return f.bare && len(f.faults) == 0 }

// tooLarge returns the size of a value that is too large.
func (c *caller) tooLarge() int { return c.f.features.limits.Value + 1 }

// inspect checks the structures of an engine.
func (f *fleet) inspect(d *driver) {
	if bad := faults(d.e, !f.text); len(bad) > 0 {
		f.wrong("", "p%d: %s", d.s.id, strings.Join(bad, "\n"))
	}
}

// empty checks that a proxy without clients has freed its memory and has counted the clients that it cut off.
func (s *sidecar) empty() {
	f := s.f
	for _, d := range s.drivers {
		for limit := f.now + second; d.e.Unanswered() > 0 && f.now < limit; { // keepalive
			f.run(f.now + milli)
		}
		if d.e.Trim(); f.text && d.e.Buffers.Held != link.ScratchSize {
			f.wrong("", "p%d holds %d bytes, and %d when nothing goes on", s.id, d.e.Buffers.Held, link.ScratchSize)
		}
	}
	s.countAborted()
}

// countAborted checks that the proxy has counted the clients that it has aborted, or cut off inside a value.
func (s *sidecar) countAborted() {
	f := s.f
	if !f.bare {
		return
	}
	aborted, cut, desyncs := f.aborted, f.cut, 0
	for _, d := range s.drivers {
		n := &d.e.Count
		aborted, cut, desyncs = aborted-int(n.OutputClosed+n.MemoryClosed+n.UnreadClosed), cut-int(n.CutOff), desyncs+int(n.Desyncs)
	}
	if aborted > 0 || cut > 0 { // clients may disconnect first
		f.wrong("", "p%d: %d aborted clients and %d clients that were cut off are not counted", s.id, aborted, cut)
	}
	if f.faultless() && f.aborted+f.cut+desyncs > 0 {
		f.wrong("", "p%d: %d clients were aborted, %d cut off and %d server connections aborted, and nothing was wrong", s.id, f.aborted, f.cut, desyncs)
	}
	f.aborted, f.cut = 0, 0
}

// stop ends a proxy after its clients have their replies, and starts it again.
func (s *sidecar) stop() {
	f := s.f
	if s.dead || s.paused || s.stops {
		return
	}
	s.stops = true
	for _, d := range s.drivers {
		d.input(func() {
			for _, c := range f.clients {
				if c.d == d {
					c.endInput()
				}
			}
			d.e.Drain()
		})
	}
	life, until := s.life, f.now+30*second
	var end func()
	end = func() {
		left := slices.IndexFunc(f.clients, func(c *caller) bool { return c.s == s && c.link != nil })
		switch {
		case s.life != life:
		case left < 0:
			s.die()
			s.start()
		case f.now > until:
			f.wrong("", "p%d ends, and c%d is still connected", s.id, f.clients[left].id)
		default:
			f.after(100*milli, end)
		}
	}
	f.after(100*milli, end)
}

// isIdle reports whether nothing is in flight on the connection, in either direction.
func (c *pipe) isIdle() bool {
	u := c.link.Dialer.(*upstream.Conn)
	return c.up && !c.over && c.n.up && c.life == c.n.life && u.State == upstream.ConnUp && u.Length == 0 && len(c.rcv)+len(c.back) == 0 && c.Unsent() == 0
}

// isUndoing reports whether a late delete has not arrived. A server that reads a late request also reads that delete.
func (c *pipe) isUndoing() bool {
	if !c.p.f.bare || c.link.Sock != c {
		return false
	}
	u := c.link.Dialer.(*upstream.Conn)
	return (u.Lingering || u.LateDeletes > 0) && (u.Out.Size > 0 || slices.ContainsFunc(c.sent, func(k *packet) bool { return k.arrived == 0 }))
}

// badServer starts a fault of a random connection of a proxy to a server.
func (f *fleet) badServer(kind string, s *sidecar, i int, until int64) {
	pipes := f.paths[s.id][i].pipes
	if s.dead || len(pipes) == 0 {
		return
	}
	c := pipes[f.rand.IntN(len(pipes))]
	switch {
	case kind == "stuck": // the server ignores it, but serves others
		c.stuck = true
		f.at(until, func() {
			c.stuck = false
			c.n.work(c)
		})
	case kind == "garbage" && c.up: // after the replies
		c.reply([]byte("WHAT?\r\n"))
	case kind == "stray": // a reply to nothing
		c.d.input(func() {
			before := c.d.e.Count.Desyncs
			if !c.isIdle() {
				return
			}
			if c.d.e.Bytes(c.link, []byte("VALUE c1k1 0 3\r\nxyz\r\nEND\r\n")); c.d.e.Count.Desyncs != before+1 {
				f.wrong("", "p%d keeps a connection to %s after a reply to nothing", s.id, c.n.name)
			}
		})
	}
}

// silence makes the callers send nothing for some seconds. In that time a firewall forgets idle connections.
func (f *fleet) silence() {
	f.silent = f.now + 6*second
	f.trouble = max(f.trouble, f.silent)
	f.after(second, func() {
		for _, row := range f.paths {
			for _, p := range row {
				for _, c := range p.pipes {
					if f.one(3) && c.isIdle() {
						c.lose()
					}
				}
			}
		}
	})
}

// lose makes a firewall drop the state of an idle connection. It may acknowledge the bytes that it drops. A ping must then
// find out that the connection is dead.
func (c *pipe) lose() {
	f, s, u := c.p.f, c.d.s, c.link.Dialer.(*upstream.Conn)
	c.forgotten, c.acks = true, f.one(2)
	f.after(4*second, func() {
		if f.steady && f.features.pools[0].keepalive && !c.over && !s.paused && s.resumed+4*second < f.now && c.link.Sock == c && u.Server.Keeps(u) {
			f.wrong("", "p%d uses a connection to %s which a firewall has forgotten 4 s ago", s.id, c.n.name)
		}
	})
	f.after(10*second, func() {
		if !c.over {
			c.fails(errors.New("connection timed out"))
		}
	})
}

// oldOrFailing returns the reply of a server without meta commands, or of one that can't execute the request; nil:
// it is executed. Ringside must not send a request that has no reply.
func (n *node) oldOrFailing(c *pipe, request []byte) []byte {
	words := bytes.Fields(request[:bytes.Index(request, []byte("\r\n"))])
	meta := len(words[0]) == 2 && words[0][0] == 'm'
	hidden := slices.ContainsFunc(words[1:], func(w []byte) bool { return string(w) == "noreply" || meta && string(w) == "q" })
	u := c.link.Dialer.(*upstream.Conn)
	switch command := string(words[0]); {
	case hidden, meta && c.old:
		n.f.wrong("", "p%d sends %.60q to %s", c.d.s.id, request, n.name)
	case len(n.f.faults) > 0 && u.LateDeletes == 0 && n.f.one(60):
		if command == "version" {
			return []byte("ERROR Too many open connections\r\n")
		}
		return []byte("SERVER_ERROR out of memory\r\n")
	case command == "version" && c.old:
		return []byte("VERSION 1.5.22\r\n")
	}
	return nil
}
