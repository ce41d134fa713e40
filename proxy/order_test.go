package proxy_test

// One client pipelines commands on a few keys. Whatever the order in which Ringside's
// servers reply, the client must get the same replies as from one memcached.

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ringside/internal/testenv"
	"ringside/proxy"
	"ringside/proxy/conversation"
	"ringside/proxy/failover"
	"ringside/proxy/health"
	"ringside/proxy/link"
	"ringside/proxy/table"
	"ringside/proxy/wire"
	"ringside/replicate"
	"ringside/ring"
)

// FuzzOrder lets the fuzzer choose the pipeline, which server replies next, and what
// else happens. The servers are real memcached processes.
func FuzzOrder(f *testing.F) {
	servers := startOrderServers(f)
	for seed := range uint64(60) {
		b := make([]byte, 400)
		rng := rand.New(rand.NewPCG(seed, 4))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		b[0] = byte(seed)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) { playOrder(t, servers, &dice{bytes: b[:min(len(b), 2000)]}) })
}

// orderServer is one memcached process, with a connection of the test to it.
type orderServer struct {
	path string
	own  *orderConn
}

// orderConn is one real connection. The test always reads it until it is empty.
type orderConn struct {
	net.Conn
	t testing.TB
}

func startOrderServers(f *testing.F) (servers []*orderServer) {
	f.Helper()
	dir := f.TempDir()
	for i := range 4 {
		s := &orderServer{path: filepath.Join(dir, fmt.Sprint(i))}
		cmd := exec.Command("memcached", "-s", s.path, "-u", "root", "-m", "64", "-t", "1")
		if err := cmd.Start(); err != nil {
			f.Fatalf("memcached must be installed for this test: %v", err)
		}
		f.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		s.own = s.dial(f)
		servers = append(servers, s)
	}
	return servers
}

func (s *orderServer) dial(t testing.TB) *orderConn {
	t.Helper()
	for end := time.Now().Add(testenv.Hang); ; time.Sleep(time.Millisecond) {
		c, err := net.Dial("unix", s.path)
		if err == nil {
			return &orderConn{c, t}
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// ask sends complete requests and returns their replies. It appends one request with a
// unique reply to find the end.
func (c *orderConn) ask(requests []byte) (answers []byte) {
	c.t.Helper()
	c.SetDeadline(time.Now().Add(testenv.Hang))
	if _, err := c.Write(append(slices.Clip(requests), orderEnd...)); err != nil {
		c.t.Fatal(err)
	}
	b := make([]byte, 64<<10)
	for !bytes.HasSuffix(answers, []byte(orderEnded)) {
		n, err := c.Read(b)
		if err != nil {
			c.t.Fatalf("%v after %q", err, answers)
		}
		answers = append(answers, b[:n]...)
	}
	return bytes.TrimSuffix(answers, []byte(orderEnded))
}

const (
	orderEnd   = "mn\r\n"
	orderEnded = "MN\r\n"
)

// orderWorld is a proxy of one or two loops, one client of the first loop, and the
// servers.
type orderWorld struct {
	t       testing.TB
	d       *dice
	now     int64
	p       *proxy.Proxy
	loops   []*orderLoop
	servers []*orderServer
	links   []*orderLink
	client  *orderLink
	phases  []health.Phase // phases that the first server has not reached yet
	away    bool           // the first server is or was out: a delete may remove the key from the substitute server and still report NOT_FOUND
	evicts  int            // the server that will evict a replica; -1: none
	keys    []string
	trace   []string
}

type orderLoop struct {
	w     *orderWorld
	e     *proxy.Engine
	posts []func(*proxy.Engine)
}

// orderLink is a connection of a loop. in contains bytes from the engine, out contains
// bytes for it.
type orderLink struct {
	loop    *orderLoop
	link    *link.Link
	name    string
	conn    *orderConn // nil: this is the client
	in, out []byte
}

func (l *orderLink) Peer() string { return l.name }

func (l *orderLink) Unread() int { return 0 }

func (l *orderLink) Unsent() int { return 0 }

func (w *orderWorld) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

// orderRuns makes the keys of each run unique, so that no server has them yet.
var orderRuns atomic.Int64

func playOrder(t *testing.T, servers []*orderServer, d *dice) {
	w := &orderWorld{t: t, d: d, now: int64(time.Hour), servers: servers[:3], evicts: -1}
	for _, s := range servers {
		s.own.t = t
	}
	w.build()
	run := orderRuns.Add(1)
	for i := range 1 + d.n(3) {
		w.keys = append(w.keys, fmt.Sprintf("o%d-%c%d", run, 'a'+i, 1+i))
	}
	var through, plain []byte
	for range 2 + d.n(30) {
		command := w.command()
		spelled, bare := w.spell(command)
		through, plain = append(through, spelled...), append(plain, bare...)
	}
	for _, key := range w.keys {
		last := "mg " + key + " v f s\r\n"
		through, plain = append(through, last...), append(plain, last...)
	}
	want := servers[3].own.ask(plain)
	got := w.play(append(through, orderEnd...))
	if got, want := orderForm(got), orderForm(want); got != want {
		t.Fatalf("%s\nsent:\n%s\ngot:\n%s\nwant:\n%s", strings.Join(w.trace, "\n"), through, got, want)
	}
	for _, l := range w.loops {
		if n := len(l.e.Lines); n != 0 || l.e.Copying != 0 {
			t.Fatalf("%s\n%d lines and %d repairs are left", strings.Join(w.trace, "\n"), n, l.e.Copying)
		}
	}
}

// orderForm normalizes a reply stream: it removes values that differ between servers,
// and the prefix that a route strips. It sorts the values of one get. It replaces
// EXISTS by NOT_FOUND, because a cas token that matches nothing may get either for a
// missing key.
func orderForm(b []byte) string {
	b = bytes.ReplaceAll(b, []byte("EXISTS"), []byte("NOT_FOUND"))
	b = orderOwn.ReplaceAll(bytes.ReplaceAll(b, []byte("VALUE p/"), []byte("VALUE ")), []byte("$1$2 CAS"))
	return string(orderMany.ReplaceAllFunc(b, func(b []byte) []byte {
		values := orderValue.FindAll(b, -1)
		slices.SortFunc(values, bytes.Compare)
		return bytes.Join(values, nil)
	}))
}

var (
	orderOwn   = regexp.MustCompile(`(?m)^(VALUE \S+ \d+ \d+) \d+\r$|( s\d+) c\d+`)
	orderValue = regexp.MustCompile(`VALUE [^\n]*\n[^\n]*\n`)
	orderMany  = regexp.MustCompile(`(VALUE [^\n]*\n[^\n]*\n){2,}`)
)

// build creates the proxy. The first byte of the dice selects its kind.
func (w *orderWorld) build() {
	d := w.d
	pool := func(name string, n int) *table.Pool {
		p := &table.Pool{Name: name, Connections: 1 + d.n(2), QueueLimit: 1000,
			Timeouts:     table.Timeouts{Connect: time.Hour, Request: time.Hour, Deadline: time.Hour},
			RetryBackoff: table.Backoff{First: time.Second, Max: time.Second},
			Place:        ring.Placement{Hash: func([]byte) uint64 { return 0 }, Ring: conversation.ByDigit(n)}}
		p.JoinGets = p.Connections == 1
		for i := range n {
			name := fmt.Sprintf("s%d", i+1)
			p.Servers = append(p.Servers, table.Target{Name: name, Network: "tcp", Address: name, Weight: 1})
		}
		return p
	}
	main := pool("main", 3)
	route, strip := table.Route{Pool: main}, table.Route{Prefix: "p/", Strip: true, Pool: main}
	built := &table.Table{Limits: conversation.Limits(), Pools: []*table.Pool{main}}
	switch kind := d.n(8); kind {
	case 0: // one replica, nothing moves
	case 1, 2:
		main.Failover = table.Failover{Mode: table.Rehash, SubstituteTTL: time.Hour, Wait: time.Hour}
		w.away = kind == 2
	case 3: // the first server is out and rejoins
		main.Failover = table.Failover{Mode: table.Rehash, SubstituteTTL: time.Hour, Wait: time.Hour}
		main.Failover.OnRejoin = health.Warm
		w.away = true
	case 4:
		main.Failover = table.Failover{Mode: table.Rehash, SubstituteTTL: time.Hour, Wait: time.Hour}
		main.Failover.Strict = true
		if w.away = d.one(2); !w.away { // each key is in one place
			strip.Pool = pool("other", 3)
			built.Pools = append(built.Pools, strip.Pool)
		}
	default:
		c := replicate.Policy{Copies: 2 + d.n(2), Apart: replicate.Servers, ReadThrough: true, RepairRate: 1000}
		c.Read = []replicate.Read{replicate.First, replicate.Spread, replicate.Fastest}[d.n(3)]
		c.Ack = []replicate.Ack{replicate.AckAll, replicate.AckQuorum, replicate.AckOne}[d.n(3)]
		if c.Read == replicate.First && c.Ack == replicate.AckAll && d.one(2) {
			w.evicts = d.n(3)
		}
		main.Failover.Strict = d.one(2)
		route.Copies, strip.Copies = c, c
	}
	built.Listeners = []table.Listener{{Network: "tcp", Address: "here", Routes: []table.Route{route, strip}}}
	w.note("%+v %+v, evicts %d", main.Failover, route.Copies, w.evicts)
	w.p = proxy.NewProxy(built, "test", slog.New(slog.DiscardHandler))
	for range 1 + d.n(2) {
		l := &orderLoop{w: w, e: w.p.NewEngine(link.DefaultTune)}
		l.e.Post = func(f func(*proxy.Engine)) { l.posts = append(l.posts, f) }
		w.loops = append(w.loops, l)
	}
	for _, l := range w.loops {
		l.wakeup(func() {})
		l.e.Agents = nil // keepers don't run
		for _, srv := range l.e.ByAddress {
			l.e.Registrations[srv] = slices.DeleteFunc(l.e.Registrations[srv], func(m failover.Registration) bool { return !m.Copies })
		}
	}
	for _, v := range w.p.Agents() {
		for i := range v.Servers {
			v.View.Set(i, 0, false, 0, link.Never)
			v.View.SetKnownUntil(i, link.Never)
		}
		v.View.Done(1, true)
	}
	if w.away {
		w.phases = []health.Phase{health.Leaving, health.Out, health.Returning, health.Warming}
		if main.Failover.Strict { // requests in flight during a phase change may fail
			w.phases = w.phases[1+d.n(3):][:1]
		} else {
			w.phases = w.phases[:2+d.n(3)]
		}
		w.phase()
	}
	w.client = &orderLink{loop: w.loops[0], name: "client"}
	w.loops[0].wakeup(func() { w.client.link = w.loops[0].e.Accepted("tcp", "here", w.client) })
}

// phase moves the first server to its next phase. When it leaves no server has the keys
// yet. It stays in WARM.
func (w *orderWorld) phase() {
	to := w.phases[0]
	w.phases = w.phases[1:]
	w.note("s1 is %v", to)
	for _, v := range w.p.Agents() {
		n := v.View.N(0)
		for health.PhaseOf(n) != to {
			n++
		}
		v.View.Set(0, n, false, 0, link.Never)
		v.View.SetKnownUntil(0, link.Never)
		v.View.Done(v.View.Gen()+1, true)
	}
}

// command returns the client's next command, with %s for the key.
func (w *orderWorld) command() string {
	d := w.d
	value := []string{"", "1", "7", "ab", "xyz"}[d.n(5)]
	ttl := []string{"0", "100", "-1"}[min(2, d.n(8)/3)]
	stays := strings.Replace(ttl, "-1", "50", 1) // an empty value that a read makes expire may be mistaken for a stub
	quiet := []string{"", " noreply"}[d.n(2)]
	q := []string{"", " q", fmt.Sprintf(" O%d", d.n(100))}[d.n(3)]
	block := func(line string) string { return fmt.Sprintf(line+"\r\n%s\r\n", len(value), value) }
	switch d.n(24) {
	case 0, 1, 2:
		return "get %s\r\n"
	case 3:
		return "gets %s\r\n"
	case 4:
		return "mg %s v f s c" + q + "\r\n"
	case 5:
		return "gat " + stays + " %s\r\n"
	case 6:
		return "mg %s v T" + stays + q + "\r\n"
	case 7, 8, 9:
		return block("set %%s 3 " + ttl + " %d" + quiet)
	case 10:
		return block("add %%s 4 " + ttl + " %d" + quiet)
	case 11:
		return block("replace %%s 5 " + ttl + " %d" + quiet)
	case 12:
		return block("append %%s 0 0 %d" + quiet)
	case 13:
		return block("prepend %%s 0 0 %d" + quiet)
	case 14:
		return block("cas %%s 1 0 %d 987654321987" + quiet)
	case 15:
		return "incr %s 3" + quiet + "\r\n"
	case 16:
		return "touch %s " + ttl + quiet + "\r\n"
	case 17, 18:
		if w.away {
			quiet = " noreply"
		}
		return "delete %s" + quiet + "\r\n"
	case 19:
		return block("ms %%s %d T" + ttl + q)
	case 20:
		return block("ms %%s %d M" + string("EAPR"[d.n(4)]) + q)
	case 21:
		return "ma %s D2 v" + q + "\r\n"
	case 22:
		if w.away {
			q = " q"
		}
		return "md %s" + q + "\r\n"
	}
	return "get %s %s\r\n"
}

// spell writes a command in one of the spellings that Ringside accepts, and in the
// plain spelling.
func (w *orderWorld) spell(command string) (spelled, bare string) {
	key := w.keys[w.d.n(len(w.keys))]
	if strings.Count(command, "%s") == 2 {
		other := w.keys[w.d.n(len(w.keys))]
		return fmt.Sprintf(command, key, "p/"+other), fmt.Sprintf(command, key, other)
	}
	bare, spelled = fmt.Sprintf(command, key), fmt.Sprintf(command, key)
	switch way := w.d.n(4); {
	case way == 1:
		spelled = fmt.Sprintf(command, "p/"+key)
	case way >= 2 && command[0] == 'm':
		long := base64.StdEncoding.EncodeToString([]byte([]string{"", "p/"}[way-2] + key))
		line, rest, _ := strings.Cut(fmt.Sprintf(command, long), "\r\n")
		spelled = line + " b\r\n" + rest
	}
	return spelled, bare
}

// play sends the client's pipeline in pieces and returns the replies.
func (w *orderWorld) play(pipeline []byte) (got []byte) {
	for steps := 0; ; steps++ {
		if steps > 20_000 {
			w.t.Fatalf("%s\nthe client has got %q and nothing more", strings.Join(w.trace, "\n"), w.client.in)
		}
		var can []func()
		if len(pipeline) > 0 {
			can = append(can, func() {
				n := len(pipeline) - w.d.n(len(pipeline))
				w.note("client sends %q", pipeline[:n])
				w.client.loop.wakeup(func() { w.client.loop.e.Bytes(w.client.link, pipeline[:n]) })
				pipeline = pipeline[n:]
			})
		}
		for _, l := range w.links {
			if len(l.in) > 0 {
				can = append(can, l.serve)
			}
			if len(l.out) > 0 {
				can = append(can, l.bring)
			}
		}
		for _, l := range w.loops {
			if len(l.posts) > 0 {
				can = append(can, l.run)
			}
		}
		if len(can) == 0 && bytes.HasSuffix(w.client.in, []byte(orderEnded)) {
			return bytes.TrimSuffix(w.client.in, []byte(orderEnded))
		}
		if len(w.phases) > 0 {
			can = append(can, w.phase)
		}
		if w.evicts >= 0 && !w.d.over() && w.d.one(8) {
			can = append(can, w.evict)
		}
		if i := w.d.n(len(can) + 1); i < len(can) {
			can[i]()
			if !w.d.over() || len(can) > 1 {
				continue
			}
		}
		w.now += int64(1+w.d.n(20)) * int64(time.Millisecond) / 4
		for _, l := range w.loops {
			l.wakeup(func() {})
		}
	}
}

// evict deletes a key from a server once, but not a tombstone. Ringside treats a
// missing tombstone as removed by another client's write, and here there is no other
// client.
func (w *orderWorld) evict() {
	key, own := w.keys[w.d.n(len(w.keys))], w.servers[w.evicts].own
	defer func() { w.evicts = -1 }()
	if is := own.ask([]byte("get " + key + "\r\n")); bytes.Contains(is, []byte(" "+wire.TombstoneFlags+" 0")) {
		w.note("s%d has a mark at %s", w.evicts+1, key)
		return
	}
	w.note("s%d evicts %s: %q", w.evicts+1, key, own.ask([]byte("delete "+key+"\r\n")))
}

// serve lets a server process all requests of one connection.
func (l *orderLink) serve() {
	answers := l.conn.ask(l.in)
	l.loop.w.note("%s does %q: %q", l.name, l.in, answers)
	l.in, l.out = nil, append(l.out, answers...)
}

// bring delivers part of a server's replies to a loop.
func (l *orderLink) bring() {
	n := len(l.out)
	if l.loop.w.d.one(2) {
		n = 1 + l.loop.w.d.n(n)
	}
	b := l.out[:n]
	l.out = l.out[n:]
	l.loop.wakeup(func() { l.loop.e.Bytes(l.link, b) })
}

// run executes the first function that another loop has posted to this one.
func (l *orderLoop) run() {
	f := l.posts[0]
	l.posts = l.posts[1:]
	l.wakeup(func() { f(l.e) })
}

func (l *orderLoop) wakeup(f func()) {
	e := l.e
	e.Begin(l.w.now, conversation.Wall(l.w.now))
	f()
	for effects := e.End(); len(effects) > 0; effects = e.End() {
		for _, x := range effects {
			l.effect(x)
		}
	}
}

func (l *orderLoop) effect(x link.Effect) {
	w, sock := l.w, x.Link
	switch x.Kind {
	case link.Dial:
		_, name := sock.Server().Target()
		c := &orderLink{loop: l, link: sock, name: fmt.Sprintf("%s.%d", name, len(w.links))}
		c.conn = w.servers[name[1]-'1'].dial(w.t)
		w.t.Cleanup(func() { c.conn.Close() })
		w.links = append(w.links, c)
		sock.Sock = c
		l.e.Up(sock)
	case link.Write:
		c := sock.Sock.(*orderLink)
		n := 0
		for _, b := range sock.Pending(nil) {
			c.in = append(c.in, b...)
			n += len(b)
		}
		l.e.Wrote(sock, n, false)
	case link.Close, link.Abort:
		w.t.Fatalf("%s\n%s: closed", strings.Join(w.trace, "\n"), sock.Sock.Peer())
	}
}

// TestLateReadsLeaveWritersAlone checks a read that times out while it waits for its
// client's own write of the key. It must not disturb the queue of writes of the key, in
// which another client's write may be next.
func TestLateReadsLeaveWritersAlone(t *testing.T) {
	s := conversation.New(t)
	s.Play("late", `pool main servers=s1,s2 strict=true
route - main copies=2
s1 leased
s2 leased
s1 runs 7
s2 runs 8
s1 unleased
c1 > set a1 0 0 1\r\nA\r\nget a1
wait 1s
c2 > set a1 0 0 1\r\nB
wait 1010ms
c1 < SERVER_ERROR a server with a replica of the key can't be reached, and other instances may still read there
c1 < END
s1 leased
wait 20ms
s1 < mg a1 s f c
s2 < mg a1 s f c
s1 > HD s1 f0 c1
s2 > HD s1 f0 c1
s1 < ms a1 1 C1 F0 T0 c\r\nB
s2 < ms a1 1 C1 F0 T0 c\r\nB
s1 > HD c2
s2 > HD c2
c2 < STORED
`)
	if n := len(s.Engine.Lines); n != 0 {
		t.Errorf("%d lines are left", n)
	}
}
