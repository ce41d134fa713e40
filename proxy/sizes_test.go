package proxy_test

// Commands of all dialects and sizes on all kinds of routes, cut anywhere: clients must
// get the reply of a single memcached, byte for byte.

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"ringside/internal/memnode"
	"ringside/proxy/conversation"
	"ringside/proxy/link"
)

// TestSizes plays the same rounds each time. FuzzSizes searches for others.
func TestSizes(t *testing.T) {
	for _, seed := range seeds(t) {
		playSizes(t, &dice{rng: rand.New(rand.NewPCG(seed, 5)), left: 1000}, fmt.Sprintf("seed %d", seed))
	}
}

// FuzzSizes lets the fuzzer choose. A size is two bytes: a threshold and the distance
// from it.
func FuzzSizes(f *testing.F) {
	for seed := range uint64(16) {
		b := make([]byte, 150)
		rng := rand.New(rand.NewPCG(seed, 6))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) { playSizes(t, &dice{bytes: b[:min(len(b), 400)]}, "fuzz") })
}

// maxSized is the limit of values in these rounds, in bytes.
const maxSized = 200_000

// thresholds are the sizes in bytes at which the handling changes: values are copied,
// handed over, streamed, fit one read, or are rejected.
var thresholds = []int{0, 1 << 10, link.BigSpan / 4, link.BigSpan, 2 * link.BigSpan, 64 << 10, link.ScratchSize, 2 * link.ScratchSize, maxSized}

// sizing is one round: several clients, one after the other, send commands to an engine
// with memcached servers. A single memcached gets the same commands.
type sizing struct {
	*conversation.Harness
	d        *dice
	one      *memnode.Line                         // the single memcached for comparison
	nodes    map[string]*memnode.Node              // the engine's servers
	lines    map[*conversation.Endpoint]*sizedLine // connections to the servers
	keys     []string
	prefixes []string
	seq      int // sequence number of values
	spread   int // number of servers that the keys are on
	piece    int // maximum bytes that a server sends at once
	played   []string
}

// sizedLine is a connection to a server.
type sizedLine struct {
	*memnode.Line
	owed []byte // replies that are not delivered
}

// sized is one command and its expected answer.
type sized struct {
	text string // for messages
	send []byte
	want []byte // expected answer
	any  bool   // values may arrive in any order
}

func (w *sizing) fail(format string, args ...any) {
	w.T.Helper()
	w.T.Fatalf("%s\n%s: %s", strings.Join(w.played, "\n"), w.At, fmt.Sprintf(format, args...))
}

func (w *sizing) note(format string, args ...any) {
	w.played = append(w.played, fmt.Sprintf(format, args...))
}

// noted adds the engine's log to the notes.
type noted struct{ *sizing }

func (w noted) Write(b []byte) (int, error) {
	w.note("%s", b)
	return len(b), nil
}

// brief returns the beginning and the end of b, for messages.
func brief(b []byte) string {
	short := longName.ReplaceAll(b[:min(len(b), 400)], []byte("k…"))
	if len(short) > 120 || len(b) > 400 {
		return fmt.Sprintf("%.70q … %q of %d bytes", short, b[len(b)-20:], len(b))
	}
	return fmt.Sprintf("%q", short)
}

var longName = regexp.MustCompile("kkkkk+")

func playSizes(t *testing.T, d *dice, name string) {
	w := &sizing{Harness: conversation.New(t), d: d, nodes: map[string]*memnode.Node{}, lines: map[*conversation.Endpoint]*sizedLine{}}
	w.At, w.ShowOpaques, w.OnEnd, w.Logs = name, true, w.forget, noted{w}
	defer func() {
		if r := recover(); r != nil {
			w.fail("panic: %v\n%s", r, debug.Stack())
		}
	}()
	w.piece = []int{1 << 20, 1000, link.BigSpan - 1, link.BigSpan, 30_000, link.ScratchSize, link.ScratchSize + 1}[d.n(7)]
	w.spread = 1 + 2*d.n(2)
	old := d.one(8)
	w.lay(old)
	w.one = w.node(old).Line()
	if d.one(4) {
		w.storm()
	}
	for i := range 2 + d.n(6) {
		w.keys = append(w.keys, w.key(i))
	}
	w.fill()
	for range 1 + d.n(3) {
		dialect := d.n(3)
		w.play(dialect, w.ask(dialect))
	}
	w.end()
}

// lay creates the table, with a route of each kind by prefix.
func (w *sizing) lay(old bool) {
	d := w.d
	w.Line(fmt.Sprintf("pool main servers=s1,s2,s3 ordered=%v gets=%s connections=%d", d.one(2), []string{"", "joined"}[d.n(2)], 1+d.n(2)))
	w.Line(fmt.Sprintf("limits value=%d output=%d in_flight=%d", maxSized, []int{1 << 20, 3000}[d.n(2)], []int{4096, 2}[d.n(2)]))
	routes := []string{"- main", "p: main strip", "n: main near=10s", "a: main autocreate=1:0", "b: main strip buffer=1s:10s"}
	if old {
		w.Release = "1.5.22"
	} else {
		routes = append(routes, "g: main guard=wait:1s", "h: main strip guard=wait:1s,stale:60s", "t: main tags=suffix,t:{x}>x", "u: main strip tags=suffix near=10s",
			"c: main copies=2", "d: main strip copies=3 guard=wait:1s", "e: main copies=2 near=10s")
	}
	for _, r := range routes {
		w.Line("route " + r)
		w.prefixes = append(w.prefixes, strings.TrimLeft(strings.Fields(r)[0], "-"))
	}
	for i := range w.Routes {
		if r := &w.Routes[i]; r.Near != nil {
			r.Near.Memory = 1 << 20
		}
	}
	w.Begin()
	for _, name := range []string{"s1", "s2", "s3"} {
		w.nodes[name] = w.node(old)
	}
	if !old { // a tag first named after a miss is not older than the miss, so a value with that tag would not be stored
		w.Line("c1 > set t:z1;tags=v 1 0 0\\r\\n\\r\\nset t:z2;tags=v 1 0 0\\r\\n\\r\\nset t:z3;tags=v 1 0 0\\r\\n")
		for range 5 {
			w.serve(false)
			w.Line("wait 2ms")
		}
		w.Line("c1 < STORED\\r\\nSTORED\\r\\nSTORED")
		w.Line("c1 closes")
	}
}

func (w *sizing) node(old bool) *memnode.Node {
	o := memnode.Options{MaxItem: 4 << 20, Now: func() time.Time { return time.Unix(conversation.Wall(w.Now), 0) }}
	if old {
		o.Version = "1.5.22"
	}
	n, err := memnode.New(o)
	if err != nil {
		w.T.Fatal(err)
	}
	return n
}

// key returns a key of a random route and length. All keys are distinct even without
// their prefixes.
func (w *sizing) key(i int) string {
	name := fmt.Sprintf("%s%d", w.prefixes[w.d.n(len(w.prefixes))], i)
	end := strconv.Itoa(1 + w.d.n(w.spread)) // selects the server
	long := []int{0, 0, 186, 235, 250}[w.d.n(5)]
	return name + strings.Repeat("k", max(0, long-len(name)-len(end))) + end
}

// suffixed returns key, with a tag suffix at random.
func (w *sizing) suffixed(key string) string {
	if (strings.HasPrefix(key, "t:") || strings.HasPrefix(key, "u:")) && len(key) < 240 && w.d.one(2) {
		return key + ";tags=v"
	}
	return key
}

// guarded reports whether the route of key is guarded. After a miss there, a client's
// set is tied to this miss until the value is set. A delete would make memcached and
// the guard differ, so these tests never delete such keys.
func guarded(key string) bool { return strings.Contains("g:h:t:u:d:", key[:2]) }

// led reports whether commands on key need several requests. If a connection is set
// aside for a client that does not read, these requests may use different connections.
// Then they may have reached different server processes: an add may be NOT_STORED, and a
// value with tags a miss.
func led(key string) bool { return guarded(key) || strings.Contains("c:e:", key[:2]) }

// value returns a value with a size near a threshold. All values are distinct.
func (w *sizing) value(key string) []byte {
	w.seq++
	most := len(thresholds)
	if guarded(key) {
		most-- // a rejected value deletes the old one
	}
	size := thresholds[w.d.n(most)]
	if n := w.d.n(256); n < 200 {
		size += 4 * (n - 190) // a request is longer than its value by up to this much
	} else {
		size += n - 228
	}
	return value(key, w.seq, max(size, 0))[:max(size, 0)]
}

// fill is a client that misses all guarded keys and sets them. Afterwards no other
// client's set depends on a miss, which memcached would know nothing about.
func (w *sizing) fill() {
	var all []sized
	for _, key := range w.keys {
		if guarded(key) {
			all = append(all, w.get(key), w.set("set", key, ""))
		}
	}
	w.play(0, all)
}

// ask returns some commands of a dialect.
func (w *sizing) ask(dialect int) (all []sized) {
	for range 1 + w.d.n(8) {
		all = append(all, [...]func() sized{w.text, w.meta, w.framed}[dialect]())
	}
	return all
}

var dialects = [...]string{"text", "meta", "the binary protocol"}

// play runs one client: it sends commands and checks the answers.
func (w *sizing) play(dialect int, all []sized) {
	d := w.d
	w.note("a client of %s", dialects[dialect])
	for _, c := range all {
		w.note("  %s ► %s", c.text, brief(c.want))
	}
	switch dialect {
	case 1:
		all = append(all, sized{"mn", []byte("mn\r\n"), []byte("MN\r\n"), false})
	case 2:
		all = append(all, sized{"noop", w.Frame("noop #1", false), w.Frame("noop #1", true), false})
	}
	if len(all) == 0 {
		return
	}
	a := w.Endpoint(fmt.Sprintf("c%d", len(w.played)))
	a.Full = d.one(6) && !slices.ContainsFunc(w.keys, led)
	for _, part := range w.cut(all) {
		for tries := 0; a.Paused && tries < 100; tries++ {
			w.drain(a)
			w.serve(false)
		}
		if a.Link == nil {
			w.fail("%s is closed", a.Name)
		}
		w.Wakeup(func() { w.Engine.Bytes(a.Link, part) })
		w.serve(d.one(2))
	}
	for range 200 {
		w.drain(a)
		w.serve(false)
		if w.waits(a, all) {
			w.Now = max(w.Now+int64(time.Millisecond), min(w.Engine.Next(), w.Now+int64(100*time.Millisecond)))
			w.Wakeup(func() {})
		}
	}
	w.judge(a, all)
	w.Wakeup(func() { w.Engine.Closed(a.Link, nil) })
	delete(w.Endpoints, a.Name)
	w.rest()
}

// storm runs clients and ignores their answers. Servers and clients close connections
// at any time, and memory is short. Servers must still understand every request, and
// later clients must be served correctly.
func (w *sizing) storm() {
	d := w.d
	memory := w.Engine.MemoryLimit
	all := w.prefixes
	if d.one(2) { // keys with commands that are batched
		w.prefixes = all[:2]
	}
	var sets []sized
	for i := range 2 + d.n(6) {
		w.keys = append(w.keys, w.key(10+i))
		sets = append(sets, w.set("set", w.keys[i], ""))
	}
	w.prefixes = all
	w.play(0, sets)
	w.Engine.MemoryLimit = []int64{memory, 90_000 + int64(d.n(1000))*400}[d.n(2)]
	w.note("a storm, with %d bytes of memory", w.Engine.MemoryLimit)
	var parts [][][]byte
	var clients []*conversation.Endpoint
	for range 1 + d.n(3) {
		dialect := d.n(3)
		clients = append(clients, w.Endpoint(fmt.Sprintf("c%d", 10+len(clients))))
		all := w.ask(dialect)
		parts = append(parts, w.cut(all))
		w.note("a client of %s", dialects[dialect])
		for _, c := range all {
			w.note("  %s", c.text)
		}
	}
	for range 100 {
		switch i := d.n(len(clients)); {
		case d.one(30):
			a := w.Endpoints[fmt.Sprintf("s%d", 1+d.n(3))]
			for _, name := range []string{"s1", "s2", "s3"} { // prefer a server in the middle of a reply
				if l := w.lines[w.Endpoints[name]]; l != nil && len(l.owed) > 0 {
					a = w.Endpoints[name]
				}
			}
			w.note("%s ends", w.breakOff(a, d.one(2)))
		case d.one(40):
			w.note("%s ends", w.breakOff(clients[i], d.one(2)))
		case d.one(20):
			w.Now += int64(d.n(700)) * int64(time.Millisecond)
			w.Wakeup(func() {})
		case d.one(3):
			w.serve(true)
		case d.one(8):
			clients[i].Full = !clients[i].Full
			w.Wakeup(func() { w.Send(clients[i]) })
		case len(parts[i]) > 0 && clients[i].Link != nil && !clients[i].Paused:
			w.Wakeup(func() { w.Engine.Bytes(clients[i].Link, parts[i][0]) })
			parts[i] = parts[i][1:]
		}
	}
	for _, a := range clients {
		w.breakOff(a, false)
		delete(w.Endpoints, a.Name)
	}
	w.Engine.MemoryLimit = memory
	w.keys = nil
	for range 3 {
		w.rest()
	}
}

// forget drops the server's state of a closed connection.
func (w *sizing) forget(a *conversation.Endpoint) {
	if a.Name[0] == 's' {
		a.Got.Reset()
		delete(w.lines, a)
	}
}

// breakOff ends a connection, if there is one, cleanly or by a reset. It returns its
// name.
func (w *sizing) breakOff(a *conversation.Endpoint, cleanly bool) string {
	if a == nil || a.Link == nil || a.State != "" {
		return "nobody"
	}
	l, err := a.Link, errors.New("connection reset by peer")
	if cleanly {
		err = nil
	}
	if a.Name[0] == 's' || !cleanly {
		a.Link, l.Sock = nil, nil
		w.forget(a)
	}
	w.Wakeup(func() { w.Engine.Closed(l, err) })
	return a.Name
}

// rest lets Ringside complete its own work, for example ending the lease of a client
// that has disconnected.
func (w *sizing) rest() {
	for range 50 {
		w.Now += int64(20 * time.Millisecond)
		w.Wakeup(func() {})
		w.serve(false)
	}
}

func (w *sizing) drain(a *conversation.Endpoint) {
	if a.Full {
		a.Full = w.d.one(3)
		w.Wakeup(func() { w.Send(a) })
	}
}

// waits reports whether bytes are missing.
func (w *sizing) waits(a *conversation.Endpoint, all []sized) bool {
	n := 0
	for _, c := range all {
		n += len(c.want)
	}
	return a.Got.Len() < n
}

// cut splits a client's bytes into pieces, with cuts at critical places.
func (w *sizing) cut(all []sized) (parts [][]byte) {
	var b []byte
	at := []int{0}
	for _, c := range all {
		b = append(b, c.send...)
		at = append(at, len(b))
	}
	at = append(at, thresholds[1:8]...)
	cuts := []int{len(b)}
	for range w.d.n(5) {
		cut := at[w.d.n(len(at))] + w.d.n(60) - 30
		for range 1 + 30*w.d.n(2) { // byte by byte
			cuts = append(cuts, min(max(cut, 0), len(b)))
			cut++
		}
	}
	slices.Sort(cuts)
	from := 0
	for _, cut := range cuts {
		if cut > from {
			parts = append(parts, b[from:cut])
			from = cut
		}
	}
	return parts
}

// serve lets the servers reply: with everything, or one piece each if once is set.
func (w *sizing) serve(once bool) {
	for busy := true; busy; {
		busy = false
		for _, name := range slices.Sorted(maps.Keys(w.Endpoints)) {
			a := w.Endpoints[name]
			if name[0] == 'c' || a.Link == nil {
				continue
			}
			l := w.lines[a]
			if l == nil {
				l = &sizedLine{Line: w.nodes[a.Name[:2]].Line()}
				w.lines[a] = l
			}
			for n := wholeRequest(a.Got.Bytes()); n > 0; n = wholeRequest(a.Got.Bytes()) {
				l.owed = append(l.owed, w.answer(a, l, a.Got.Next(n))...)
			}
			if n := min(len(l.owed), w.piece); n > 0 {
				b := l.owed[:n]
				l.owed = l.owed[n:]
				w.Wakeup(func() { w.Engine.Bytes(a.Link, b) })
				busy = !once
			}
		}
	}
}

// answer returns a server's reply to a complete request, which the server must
// understand.
func (w *sizing) answer(a *conversation.Endpoint, l *sizedLine, request []byte) []byte {
	n, _ := strconv.Atoi(a.Name[1:2])
	switch {
	case string(request) == "stats\r\n":
		return fmt.Appendf(nil, "STAT pid %d\r\nSTAT uptime 100\r\nSTAT time 1%d000\r\nEND\r\n", n, n)
	case w.Release != "" && request[0] == 'm':
		w.fail("%s is too old for %s", a.Name, brief(request))
	}
	answer := l.Do(request)
	w.note("%s ◄ %s: %s", a.Name, brief(request), brief(answer))
	if len(answer) == 0 || bytes.HasPrefix(answer, []byte("ERROR")) || bytes.HasPrefix(answer, []byte("SERVER_ERROR")) ||
		bytes.HasPrefix(answer, []byte("CLIENT_ERROR")) && !bytes.Contains(answer, []byte("non-numeric")) {
		w.fail("%s answers %q to %s", a.Name, answer, brief(request))
	}
	return answer
}

// wholeRequest returns the size of the first request in b, or 0 if it is incomplete.
func wholeRequest(b []byte) int {
	end := bytes.Index(b, []byte("\r\n"))
	if end < 0 {
		return 0
	}
	f := strings.Split(string(b[:end]), " ")
	end += 2
	at := map[string]int{"set": 4, "add": 4, "replace": 4, "append": 4, "prepend": 4, "cas": 4, "ms": 2}[f[0]]
	if at > 0 && len(f) > at {
		n, _ := strconv.Atoi(f[at])
		end += n + 2
	}
	if end > len(b) {
		return 0
	}
	return end
}

// judge compares the bytes that a client received with the expected ones.
func (w *sizing) judge(a *conversation.Endpoint, all []sized) {
	if a.Link == nil {
		w.fail("%s is closed", a.Name)
	}
	for _, c := range all {
		got := a.Got.Next(len(c.want))
		if len(c.want) > 0 && c.want[0] == 0x81 {
			got, c.want = withoutCas(got), withoutCas(c.want)
		}
		if !bytes.Equal(got, c.want) && !(c.any && slices.Equal(blocks(got), blocks(c.want))) {
			at := 0
			for at < min(len(got), len(c.want)) && got[at] == c.want[at] {
				at++
			}
			w.fail("the answer to %s is %s, want %s; they differ from byte %d on: %s", c.text, brief(got), brief(c.want), at, brief(got[at:]))
		}
	}
	if a.Got.Len() > 0 {
		w.fail("%s has got %s, which it has not asked for", a.Name, brief(a.Got.Bytes()))
	}
}

// blocks returns the values and the end of a reply to a text read, sorted.
func blocks(b []byte) (list []string) {
	for len(b) > 0 {
		end := bytes.Index(b, []byte("\r\n"))
		if end < 0 {
			return append(list, string(b))
		}
		end += 2
		if f := strings.Fields(string(b[:end])); f[0] == "VALUE" {
			n, _ := strconv.Atoi(f[3])
			end = min(end+n+2, len(b))
		}
		list = append(list, string(b[:end]))
		b = b[end:]
	}
	slices.Sort(list)
	return list
}

// end checks what is left after all clients have disconnected.
func (w *sizing) end() {
	if n := len(w.Engine.Sessions); n != 0 {
		w.fail("%d sessions are left", n)
	}
	if w.Engine.Count.Desyncs > 0 {
		w.fail("%d server connections were aborted", w.Engine.Count.Desyncs)
	}
}
