package proxy

// Conversations: the engine tested as a story in a text file, without sockets
// and with a clock that the file moves.

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"ringside/proxy/health"
	stages "ringside/proxy/health/barrier"
	"ringside/proxy/link"
	"ringside/proxy/table"
	"ringside/replicate"
	"ringside/ring"
)

// TestConversations plays testdata/conversations/*.txt. A line of a file is
// one of
//
//	pool NAME servers=s1,s2 [get_errors=error] …   a pool; its options are those of stage.pool; s1@b is s1 by another name
//	limits in_flight=2 …                           limits; see stage.limits
//	users NAME:PASSWORD …   who may use the listener
//	route PREFIX NAME [strip] [match=*:x] [guard=wait:1s,stale:5s] [tags=suffix,a{x}>x{x}] [autocreate=10:60] [buffer=1s:10s] [copies=2] [also=OTHER] [get_errors=error] [total=3s] [near=1s[:hot]]  a route; the pools without one are routed without prefix; - is no prefix
//	c1 > TEXT       client c1 sends TEXT and \r\n (without it if TEXT ends in \); Go escapes count
//	c1 >* N TEXT    client c1 sends TEXT N times, without \r\n
//	s1 < TEXT       server s1 has got this line next
//	s1 > TEXT       server s1 answers
//	c1 < TEXT       client c1 has got this line next
//	c1 >f FRAME     client c1 sends a frame of the binary protocol: see stage.frame;
//	                several, with + between them, come in one read
//	c1 <f FRAME     client c1 has got this frame next
//	c1 <            nothing is left that c1 has got and the file has not said
//	c1 <* N TEXT    client c1 has got TEXT N times
//	c1 closes       client c1 closes its end; c1 resets: it is gone
//	c1 closed       the engine has closed c1; s1 closed, s1 aborted: the connection to s1
//	c1 full         the socket of c1 takes nothing more; c1 drains: it takes all again
//	s1 refuses      connections to s1 are refused from now on; s1 hangs: they stay in the middle; s1 accepts: they work again
//	s1 silent       s1 connects and does not answer the greeting
//	s1 greets 1.4.25  so s1 answers it on new connections, instead of 1.6.18
//	s1 unsent N     the last N bytes for s1 have not left the kernel
//	s1' > TEXT      the older of two connections to s1; s1'' is older still
//	s1 is OUT       the keepers of its pools have come to that phase; SUSPECT: they suspect it
//	s1 unleased     their leases on it have run out; leased: they have one again
//	s1 foreign      its pool's record was written under another list of servers
//	s1 gone         no server of its pool has answered for long; back: one does again
//	s1 renamed 4    it refused to be flushed: its keys have this number before them
//	s1 runs 7       s1 has got stats next, and answers as process 7, which began at another time than 8
//	s1 dies         the connection to s1 ends; s1 breaks: it is reset
//	wait 500ms      the clock moves
//	handover pauses   all Ringsides have the table, and are in that stage; or is done
//	order POOL s1 drain   a person drains s1 of POOL; or down, or restore
//	marks met other 2, taken add 1   so many marks of copies were counted until now, by event and user; none: nothing was
//	opaques         the file says the opaques of Ringside's own meta commands, and servers answer them; without it, both is left out
//	reload          the pool, limits and route lines after this make the next table, up to the next other line
//
// A key belongs to the server that its last character numbers, from 1, and
// then to the next ones. The greeting that Ringside sends on each new
// connection is answered by itself; keepers don't work.
func TestConversations(t *testing.T) {
	files, _ := filepath.Glob("testdata/conversations/*.txt")
	if len(files) == 0 {
		t.Fatal("no conversations")
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			newStage(t).play(file, string(b))
		})
	}
}

// byDigit is the placement of conversations.
type byDigit int

func (n byDigit) Len() int { return int(n) }

func (n byDigit) At(key []byte, _ uint64, try int) int {
	if len(key) == 0 || try >= int(n) {
		return -1
	}
	i := int(key[len(key)-1]) - '1'
	if i < 0 || i >= int(n) {
		return -1
	}
	return (i + try) % int(n)
}

type stage struct {
	t      *testing.T
	e      *Engine
	p      *Proxy
	now    int64
	actors map[string]*actor
	table  *table.Table
	pools  map[string]*table.Pool
	routes []table.Route
	users  *table.Users
	ready  bool
	quiet  bool      // log nothing
	logs   io.Writer // where the log goes; nil: to the test
	shown  bool      // the file says the opaques of Ringside's own
	at     string

	release string // of the servers, unless 1.6.18

	ended func(a *actor) // is told whose connection the engine has ended; nil: nobody is
	keeps bool           // keepers work
}

func newStage(t *testing.T) *stage {
	s := &stage{t: t, now: int64(time.Hour), actors: map[string]*actor{}}
	s.blank()
	return s
}

func testLimits() table.Limits {
	return table.Limits{Clients: 100, Key: 250, Line: 64 << 10, Value: 8 << 20, InFlight: 4096,
		Output: 1 << 20, OutputHard: 64 << 20, Memory: 256 << 20, Waiting: 1000, Tickets: 1000, Tags: 16, TagKeys: 100}
}

func (s *stage) blank() {
	s.table = &table.Table{Limits: testLimits()}
	s.pools, s.routes = map[string]*table.Pool{}, nil
}

func (s *stage) fatalf(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("%s: %s", s.at, fmt.Sprintf(format, args...))
}

func (s *stage) play(file, script string) {
	lines := bufio.NewScanner(strings.NewReader(script))
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		s.at = fmt.Sprintf("%s:%d: %s", filepath.Base(file), n, line)
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		s.line(line)
	}
	s.at = file + ": at the end"
	for _, a := range s.actors {
		if a.got.Len() > 0 {
			s.fatalf("%s has got %q, which the file does not say", a.name, a.got.String())
		}
	}
}

func (s *stage) line(line string) {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "pool":
		s.pool(strings.Fields(rest))
		return
	case "limits":
		s.limits(strings.Fields(rest))
		return
	case "route":
		f := strings.Fields(rest)
		r := table.Route{Prefix: strings.Trim(f[0], "-"), Pool: s.pools[f[1]]}
		for _, option := range f[2:] {
			switch name, value, _ := strings.Cut(option, "="); name {
			case "strip":
				r.Strip = true
			case "autocreate": // INITIAL:TTL
				var initial, ttl int64
				fmt.Sscanf(value, "%d:%d", &initial, &ttl)
				r.Autocreate = &table.Autocreate{Initial: uint64(initial), TTL: time.Duration(ttl) * time.Second}
			case "buffer": // EVERY:KEEP
				every, keep, _ := strings.Cut(value, ":")
				r.Buffer = &table.Buffer{Keys: 100}
				r.Buffer.Every, _ = time.ParseDuration(every)
				r.Buffer.Keep, _ = time.ParseDuration(keep)
			case "match":
				r.Match = value
			case "copies":
				n, _ := strconv.Atoi(value)
				r.Copies = replicate.Policy{Copies: n, Apart: replicate.Servers, RepairRate: 1000}
			case "repair":
				r.Copies.RepairRate, _ = strconv.Atoi(value)
			case "get_errors":
				loud := value == "error"
				r.GetErrors = &loud
			case "through":
				r.Copies.ReadThrough = true
			case "also": // a pool that has another copy
				r.Also = append(r.Also, s.pools[value])
			case "prefer": // of these pools, the one that reads ask first
				r.Prefer = s.pools[value]
			case "hedge":
				r.Copies.Hedge, _ = time.ParseDuration(value)
			case "total":
				d, _ := time.ParseDuration(value)
				r.Total = &d
			case "guard":
				r.Guard = guardOption(s, value)
			case "tags": // behind guard
				tagOption(s, &r, value)
			case "near": // TTL, of all values, or those of hot keys
				ttl, hot, _ := strings.Cut(value, ":")
				r.Near = &table.Near{Memory: 4096, All: hot == ""}
				r.Near.TTL, _ = time.ParseDuration(ttl)
			case "ack":
				r.Copies.Ack = map[string]replicate.Ack{"one": replicate.AckOne, "all": replicate.AckAll, "quorum": replicate.AckQuorum}[value]
			default:
				s.fatalf("what is %q?", option)
			}
		}
		s.routes = append(s.routes, r)
		return
	case "users":
		users, err := table.ParseUsers([]byte(strings.ReplaceAll(rest, " ", "\n")))
		if err != nil {
			s.fatalf("%v", err)
		}
		s.users = users
		return
	case "opaques":
		s.shown = true
		return
	case "reload":
		s.blank()
		s.ready = false
		return
	}
	if version, ok := strings.CutPrefix(rest, "greets "); ok { // perhaps before anything connects to it
		s.actor(word).version = version
		return
	}
	s.begin()
	if word == "order" {
		f := strings.Fields(rest)
		o := map[string]health.Override{"restore": health.Restore, "drain": health.Drain, "down": health.Down}[f[2]]
		if err := s.p.Override(f[0], f[1], o); err != nil {
			s.fatalf("%v", err)
		}
		return
	}
	if word == "handover" {
		s.comes(map[string]stages.Stage{"pauses": stages.Pausing, "is done": stages.Done}[rest])
		return
	}
	if word == "marks" {
		s.countsMarks(rest)
		return
	}
	if word == "stands" { // so long the thread stands still in each wakeup, before it reads
		d, err := time.ParseDuration(rest)
		if err != nil {
			s.fatalf("%v", err)
		}
		s.e.Clock = func() int64 { return s.e.Now + int64(d) }
		return
	}
	if word == "wait" {
		d, err := time.ParseDuration(rest)
		if err != nil {
			s.fatalf("%v", err)
		}
		for end := s.now + int64(d); s.now < end; {
			s.now = min(end, max(s.e.Next(), s.now+int64(time.Millisecond)))
			s.wakeup(func() {})
		}
		return
	}
	verb, text, _ := strings.Cut(rest, " ")
	a := s.actor(word)
	switch verb {
	case ">", ">*":
		s.says(a, verb, text)
	case "<":
		s.hears(a, rest == "<", text)
	case ">f":
		var b []byte
		for _, frame := range strings.Split(text, " + ") {
			b = append(b, s.frame(frame, false)...)
		}
		s.wakeup(func() { s.e.Bytes(a.link, b) })
	case "<f":
		s.hasGot(a, string(s.frame(text, true)))
	case "<*":
		n, text := s.times(text)
		want := strings.Repeat(text, n)
		if got := string(a.got.Next(len(want))); got != want {
			s.fatalf("%s has got %d bytes %.80q, want %d bytes %.80q", a.name, len(got), got, len(want), want)
		}
	case "closes":
		s.wakeup(func() { s.e.Closed(a.link, nil) })
	case "resets":
		s.wakeup(func() { s.e.Closed(a.link, errors.New("connection reset by peer")) })
	case "dies", "breaks":
		var err error
		if verb == "breaks" {
			err = errors.New("connection reset by peer")
		}
		l := a.link
		a.link = nil
		s.wakeup(func() { s.e.Closed(l, err) })
	case "full":
		a.full = true
	case "drains":
		a.full = false
		s.wakeup(func() { s.send(a) })
	case "is":
		s.becomes(a.name, text)
	case "foreign":
		s.members(a.name, func(v *health.View, i int) { v.Differ(true) })
	case "gone", "back":
		s.members(a.name, func(v *health.View, i int) { v.SetGone(verb == "gone") })
	case "leased", "unleased":
		until := int64(0)
		if verb == "leased" {
			until = link.Never
		}
		if d, err := time.ParseDuration(text); err == nil {
			until = s.now + int64(d)
		}
		s.members(a.name, func(v *health.View, i int) { v.Set(i, v.N(i), v.Suspected(i), v.Renamed(i), until) })
	case "outby":
		d, _ := time.ParseDuration(text)
		s.members(a.name, func(v *health.View, i int) { v.SetOutBy(i, s.now+int64(d)) })
	case "renamed":
		n, _ := strconv.Atoi(text)
		s.members(a.name, func(v *health.View, i int) { v.Set(i, v.N(i), v.Suspected(i), uint32(n), v.ValidUntil(i)) })
	case "runs":
		s.hears(a, false, "stats")
		began, _ := strconv.Atoi("1" + text + "000")
		s.says(a, ">", fmt.Sprintf(`STAT pid %s\r\nSTAT uptime 0\r\nSTAT time %d\r\nEND`, text, began-100))
	case "unsent":
		a.unsent, _ = strconv.Atoi(text)
	case "refuses", "hangs", "silent":
		a.mode = verb
	case "accepts":
		a.mode = ""
	case "closed", "aborted":
		if a.state != verb {
			s.fatalf("%s is %q", a.name, a.state)
		}
	case "paused", "reading":
		if a.paused != (verb == "paused") {
			s.fatalf("paused: %v", a.paused)
		}
	default:
		s.fatalf("what is %q?", verb)
	}
}

// guardOption reads the options of a guarded route: wait=1s,stale=5s,…
func guardOption(s *stage, options string) *table.Guard {
	g := &table.Guard{Lease: 10 * time.Second, LeaseMax: time.Minute, Wait: 400 * time.Millisecond}
	for _, option := range strings.FieldsFunc(options, func(c rune) bool { return c == ',' }) {
		name, value, _ := strings.Cut(option, ":")
		d, _ := time.ParseDuration(value)
		switch name {
		case "hide":
			g.Hide = true
		case "lease":
			g.Lease = d
		case "wait":
			g.Wait = d
		case "early":
			g.Early = d
		case "stale":
			g.Stale = d
		case "hold":
			g.HoldMany = true
		case "late":
			g.Late = map[string]table.GuardLate{"miss": table.LateMiss, "error": table.LateError, "stale": table.LateStale}[value]
		case "sets":
			g.OnlyAfterMiss = value == "after_miss"
		case "clients":
			g.Clients = map[string]table.GuardClients{"detect": table.Detected, "connection": table.Sequential, "shared": table.Shared, "pooled": table.Pooled}[value]
		default:
			s.fatalf("what is %q?", option)
		}
	}
	return g
}

func (s *stage) pool(f []string) {
	p := &table.Pool{Name: f[0], Connections: 1, QueueLimit: 1000,
		Timeouts:     table.Timeouts{Connect: 1200 * time.Millisecond, Request: 500 * time.Millisecond, Deadline: 2 * time.Second},
		RetryBackoff: table.Backoff{First: 100 * time.Millisecond, Max: time.Second}}
	for _, option := range f[1:] {
		name, value, _ := strings.Cut(option, "=")
		n, _ := strconv.Atoi(value)
		d, _ := time.ParseDuration(value)
		switch name {
		case "servers":
			for _, srv := range strings.Split(value, ",") {
				address, _, _ := strings.Cut(srv, "@") // by another name
				p.Servers = append(p.Servers, table.Target{Name: srv, Network: "tcp", Address: address, Weight: 1})
			}
		case "failover":
			p.Failover.Mode = map[string]table.Mode{"fail_fast": table.FailFast, "rehash": table.Rehash}[value]
			p.Failover.InterimTTL = 10 * time.Minute
		case "gutter":
			p.Failover.Mode, p.Failover.Gutter = table.Gutter, s.pools[value]
		case "strict":
			p.Failover.Strict = value == "true"
		case "wait":
			p.Failover.Wait = d
		case "rejoin": // warm
			p.Failover.OnRejoin = health.Warm
		case "get_errors":
			p.GetErrors = value == "error"
		case "ordered":
			p.InOrder = value == "true"
		case "gets":
			p.JoinGets = value == "joined"
		case "flush_all":
			p.DenyFlush = value == "deny"
		case "connections":
			p.Connections = n
		case "preconnect":
			p.Preconnect = value == "true"
		case "queue":
			p.QueueLimit = n
		case "deadline":
			p.Timeouts.Deadline = d
		case "request":
			p.Timeouts.Request = d
		case "total":
			p.Timeouts.Total = d
		default:
			s.fatalf("what is %q?", option)
		}
	}
	p.Place = ring.Placement{Hash: func([]byte) uint64 { return 0 }, Ring: byDigit(len(p.Servers))}
	s.pools[p.Name] = p
	s.table.Pools = append(s.table.Pools, p)
}

// becomes does what a keeper does when it has decided.
func (s *stage) becomes(server, phase string) {
	for _, w := range s.p.published.Load().Agents {
		for i := range w.Members {
			n, suspect := w.View.N(i), w.View.Suspected(i)
			if w.Members[i].Name == server {
				for health.PhaseOf(n).String() != phase && phase != "SUSPECT" {
					n++
				}
				suspect = phase == "SUSPECT"
			}
			w.View.Set(i, n, suspect, w.View.Renamed(i), link.Never)
		}
		w.View.Done(w.View.Gen()+1, true)
	}
}

// comes does what keepers do when all Ringsides have the table and are in that stage.
func (s *stage) comes(to stages.Stage) {
	for _, w := range s.p.published.Load().Agents {
		b := stages.New(len(w.Members))
		w.View.Handover.Tell(&b, 0, s.now)
		b.N = uint32(to)
		w.View.Handover.Publish(&b)
	}
}

// members calls f for what all pools know of a server.
func (s *stage) members(server string, f func(v *health.View, i int)) {
	for _, w := range s.p.published.Load().Agents {
		for i := range w.Members {
			if w.Members[i].Name == server {
				f(w.View, i)
			}
		}
	}
}

func (s *stage) limits(f []string) {
	l := &s.table.Limits
	for _, option := range f {
		name, value, _ := strings.Cut(option, "=")
		n, _ := strconv.Atoi(value)
		d, _ := time.ParseDuration(value)
		switch name {
		case "clients":
			l.Clients = n
		case "in_flight":
			l.InFlight = n
		case "value":
			l.Value = n
		case "line":
			l.Line = n
		case "output":
			l.Output = n
		case "output_hard":
			l.OutputHard = n
		case "memory":
			l.Memory = int64(n)
		case "idle":
			l.Idle = d
		case "unfinished":
			l.Unfinished = d
		default:
			s.fatalf("what is %q?", option)
		}
	}
}

func (s *stage) unquote(text string) string {
	text, err := strconv.Unquote(`"` + strings.ReplaceAll(text, `"`, `\"`) + `"`)
	if err != nil {
		s.fatalf("%v", err)
	}
	return withTags(text)
}
