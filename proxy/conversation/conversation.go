// Package conversation tests the engine with conversations: text files of what clients and
// servers send and what they must receive. There are no sockets, and the file sets the clock.
// Only tests use it.
//
// A package keeps the conversations about its own code in testdata/conversations, and runs them
// with one test:
//
//	func TestConversations(t *testing.T) { conversation.Run(t, "testdata/conversations") }
//
// That test must be in an external test package (package x_test), because this package imports
// the engine and with it nearly every package below proxy. Tests that need more than a file can
// express use a Harness.
package conversation

// This file implements the lines of a conversation.

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"ringside/proxy"
	"ringside/proxy/health"
	stages "ringside/proxy/health/barrier"
	"ringside/proxy/health/resize"
	"ringside/proxy/link"
	"ringside/proxy/table"
	"ringside/replicate"
	"ringside/ring"
)

// Run plays all conversations in a directory (*.txt), each as a subtest. Empty lines and lines
// that start with # are ignored. Every other line is one of the following:
//
//	pool NAME servers=s1,s2 [get_errors=error] …   a pool; its options are those of Harness.Pool; s1@b is s1 with another name; unknown: its servers are not known yet
//	limits in_flight=2 …                           limits; see Harness.SetLimits
//	users NAME:PASSWORD …   the users of the listener
//	may NAME read write admin routes=a:,*   what a user may do, or cert:NAME
//	c1 shows NAME   client c1 connects with a certificate that has this name
//	loops 2         the process has this many loops; one unless set. c1/2 is a client of the second
//	                loop, s1/2 is that loop's connection to s1. Harness.Leader returns the loop
//	                that executes the commands on a key
//	route PREFIX NAME [strip] [match=*:x] [guard=wait:1s,stale:5s] [tags=suffix,a{x}>x{x}] [autocreate=10:60] [buffer=1s:10s] [copies=2] [also=OTHER] [get_errors=error] [total=3s] [near=1s[:hot]] …  a route to the pool NAME; - is no prefix. A pool without a route line gets a route without prefix
//	c1 > TEXT       client c1 sends TEXT and \r\n, or TEXT alone if it ends in \; Go escapes work
//	c1 >* N TEXT    client c1 sends TEXT N times, without \r\n
//	s1 < TEXT       the next line that server s1 has received is TEXT
//	s1 > TEXT       server s1 replies
//	c1 < TEXT       the next line that client c1 has received is TEXT
//	c1 >f FRAME     client c1 sends a frame of the binary protocol: see Harness.Frame;
//	                several frames with + between them arrive in one read
//	c1 <f FRAME     the next frame that client c1 has received is FRAME
//	c1 <            c1 has received nothing beyond the lines before
//	c1 <* N TEXT    client c1 has received TEXT N times
//	c1 closes       client c1 closes its sending side; c1 resets: it resets the connection
//	c1 closed       the engine has closed c1; s1 closed, s1 aborted: the connection to s1
//	c1 paused       the engine does not read from c1; c1 reading: it does
//	c1 full         the socket of c1 accepts nothing more; c1 drains: it accepts everything again
//	s1 refuses      connections to s1 are refused from now on; s1 hangs: dials do not complete; s1 accepts: they work again
//	s1 silent       s1 accepts connections and does not answer the greeting
//	s1 greets 1.4.25  s1 answers the greeting with this version on new connections, instead of
//	                Harness.Release
//	s1 item_size_max N   the largest item that s1 stores on new connections, in bytes; s1 does not
//	                report a size unless this is set
//	s1 has no cas   s1 reports on new connections that its items have no cas, as with memcached -C
//	s1 has cas      s1 reports on new connections that its items have a cas
//	s1 unsent N     the last N bytes for s1 have not left the kernel
//	s1 unread N     N bytes of s1 have arrived that the driver has not read
//	stands 600ms    the thread pauses this long in each wakeup, before it reads and before it writes
//	s1' > TEXT      the older of two connections to s1; s1'' is the one before that
//	s1 is OUT       the keepers of its pools have put s1 into that phase; SUSPECT: they suspect it
//	s1 unleased     the keepers' leases on s1 have expired; leased: they have leases again, which
//	                do not expire; leased 500ms: they expire after this time
//	s1 known 1s     for this time no other instance is more than one phase ahead of the view,
//	                as far as keys of s1 depend on it (View.SetKnownUntil)
//	s1 writes 500ms  the keepers expect that commands can change keys of s1, which is LEAVING or WARM, after this time;
//	                s1 writes now: they can change them
//	s1 foreign      its pool's record was written with another list of servers, which may have further servers
//	s1 differs      the same, but the list has no further server
//	s1 gone         no server of its pool has replied for a long time; back: one does again
//	s1 renamed 4    s1 has rejected flush_all, so its keys are prefixed with this number
//	s1 runs 7       the next request that s1 has received is stats; it replies as process 7, with another start time than 8
//	s1 dies         the connection to s1 ends; s1 breaks: it is reset
//	wait 500ms      the clock advances
//	handover pauses   all instances have the table and pause writes to keys that move;
//	                or: handover is done
//	list moves      the instances change to the pools' next server lists; list unknown: the list in force is not known; list known: it is
//	list warms      keys move with their values, in a pool with resize=warm; list stays, pauses, settles and cools: other stages of that
//	order POOL s1 drain   an operator sets an override on s1 of POOL: drain, down or restore
//	marks met other 2, taken add 1   the counters of replica tombstones so far, by event and user; none: all are 0
//	opaques         the file includes the opaques of Ringside's own meta commands, in requests and replies; without this line the harness removes and adds them
//	reload          the pool, limits and route lines after this line define the next table, up to the first other line
//
// The last character of a key is the number of its server, from 1. The following servers are its
// successors. The harness replies to the greeting that Ringside sends on each new connection.
// Keepers do not run.
func Run(t *testing.T, dir string) {
	files, _ := filepath.Glob(filepath.Join(dir, "*.txt"))
	if len(files) == 0 {
		t.Fatalf("no conversations in %s", dir)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			New(t).Play(file, string(b))
		})
	}
}

// ByDigit is the placement rule in conversations. Its value is the number of servers. The last
// character of a key is the number of its server, from 1, and the following servers are its
// successors.
type ByDigit int

// Len returns the number of servers.
func (n ByDigit) Len() int { return int(n) }

// At returns the index of the try-th server for key: its own server for try 0, then the
// successors. It returns -1 if there are no more servers.
func (n ByDigit) At(key []byte, _ uint64, try int) int {
	if len(key) == 0 || try >= int(n) {
		return -1
	}
	i := int(key[len(key)-1]) - '1'
	if key[len(key)-1] > '9' { // a key that ends in a letter is on the first server
		i = 0
	}
	if i < 0 || i >= int(n) {
		return -1
	}
	return (i + try) % int(n)
}

// Hash is the hash function for keys in conversations. It has no random seed, so each run
// returns the same values.
func Hash(key []byte) (h uint64) {
	for _, c := range key {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return h >> 7
}

// Harness is the engine under test with its clients and servers. New creates one; Play and Line
// run a conversation on it. Its fields may be set before Begin applies the configuration.
type Harness struct {
	T         *testing.T
	Engine    *proxy.Engine // the engine of the first loop; nil until Begin has run
	Proxy     *proxy.Proxy  // the proxy under test; nil until Begin has run
	Now       int64         // the driver's clock, in nanoseconds
	Endpoints map[string]*Endpoint
	Table     *table.Table
	Pools     map[string]*table.Pool // the pools of Table, by name
	Routes    []table.Route          // the routes of the only listener in Table
	At        string                 // file, number and text of the current line, for errors
	Release   string                 // version that servers report; empty: 1.6.18
	Quiet     bool                   // the engine writes no log
	Logs      io.Writer              // receives the log; nil: the test's log

	ShowOpaques bool              // the file includes the opaques of Ringside's own meta commands
	RunKeepers  bool              // keepers run; if not set, only SetPhase changes phases
	OnEnd       func(a *Endpoint) // called after the engine has ended the connection of this endpoint; may be nil

	users        *table.Users
	permissions  []table.Permission
	certificates map[string][]string // names in the certificates of clients, by client

	ready bool // Begin has applied Table, so the configuration is complete

	loops   int             // number of loops of the process; 0: one
	more    []*proxy.Engine // the loops after the first
	posted  []func()        // functions that loops have posted to each other and that have not run yet; used only with several loops
	posting bool            // the posted functions are running
}

// New returns a Harness without pools and routes.
func New(t *testing.T) *Harness {
	s := &Harness{T: t, Now: int64(time.Hour), Endpoints: map[string]*Endpoint{}, certificates: map[string][]string{}}
	s.Blank()
	return s
}

// Limits returns the limits of a table if the conversation does not set others.
func Limits() table.Limits {
	return table.Limits{Clients: 100, Key: 250, Line: 64 << 10, Value: 8 << 20, InFlight: 4096,
		Output: 1 << 20, OutputHard: 64 << 20, Memory: 256 << 20, Waiting: 1000, Tickets: 1000, Tags: 16, TagKeys: 100}
}

// Blank replaces Table by an empty one, without pools and routes.
func (s *Harness) Blank() {
	s.Table = &table.Table{Limits: Limits()}
	s.Pools, s.Routes, s.permissions = map[string]*table.Pool{}, nil, nil
}

// Fatalf fails the test, and reports the current line of the conversation.
func (s *Harness) Fatalf(format string, args ...any) {
	s.T.Helper()
	s.T.Fatalf("%s: %s", s.At, fmt.Sprintf(format, args...))
}

// Play runs script, the text of file. At the end, no endpoint may have received anything that the
// script has not checked.
func (s *Harness) Play(file, script string) {
	lines := bufio.NewScanner(strings.NewReader(script))
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		s.At = fmt.Sprintf("%s:%d: %s", filepath.Base(file), n, line)
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		s.Line(line)
	}
	s.At = file + ": at the end"
	for _, a := range s.Endpoints {
		if a.Got.Len() > 0 {
			s.Fatalf("%s has got %q, which the file does not say", a.Name, a.Got.String())
		}
	}
}

// Line runs one line of a conversation: see Run.
func (s *Harness) Line(line string) {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "pool":
		s.Pool(strings.Fields(rest))
	case "limits":
		s.SetLimits(strings.Fields(rest))
	case "route":
		s.route(strings.Fields(rest))
	case "users":
		users, err := table.ParseUsers([]byte(strings.ReplaceAll(rest, " ", "\n")))
		if err != nil {
			s.Fatalf("%v", err)
		}
		s.users = users
	case "may":
		one := table.Permission{}
		for _, word := range strings.Fields(rest) {
			switch name, value, _ := strings.Cut(word, "="); {
			case one.Name == "":
				one.Name = word
			case name == "routes":
				one.Routes = strings.Split(value, ",")
			default:
				one.Read, one.Write, one.Admin = one.Read || word == "read", one.Write || word == "write", one.Admin || word == "admin"
			}
		}
		s.permissions = append(s.permissions, one)
		s.Table.Permissions = table.NewPermissions(s.permissions)
	case "opaques":
		s.ShowOpaques = true
	case "loops":
		s.loops, _ = strconv.Atoi(rest)
	case "reload":
		s.Blank()
		s.ready = false
	default:
		s.before(word, rest)
	}
}

// before runs a line that may come before Begin, which may connect to the server, and before the client connects.
func (s *Harness) before(word, rest string) {
	switch verb, text, _ := strings.Cut(rest, " "); verb {
	case "greets":
		s.Endpoint(word).version = text
	case "shows":
		s.certificates[word] = []string{text}
	case "item_size_max":
		s.Endpoint(word).itemSize = text
	case "has": // cas, or no cas
		s.Endpoint(word).noCas = text == "no cas"
	default:
		s.Begin()
		s.happens(word, rest)
	}
}

// happens runs a line about something that happens to all endpoints, or to one.
func (s *Harness) happens(word, rest string) {
	switch word {
	case "order":
		f := strings.Fields(rest)
		o := map[string]health.Override{"restore": health.Restore, "drain": health.Drain, "down": health.Down}[f[2]]
		if err := s.Proxy.Override(f[0], f[1], o); err != nil {
			s.Fatalf("%v", err)
		}
	case "handover":
		s.comes(map[string]stages.Stage{"pauses": stages.Pausing, "is done": stages.Done}[rest])
	case "list":
		for _, w := range s.Proxy.Agents() {
			w.View.SetResize(map[string]resize.Status{
				"stays":   {State: resize.State{N: 12, List: 1}, Lists: resize.Lists{Mine: 1, Wish: 2, Warm: true}},
				"pauses":  {State: resize.State{N: 13, List: 1, Next: 2}, Lists: resize.Lists{Mine: 1, Wish: 2, Warm: true}},
				"warms":   {State: resize.State{N: 14, List: 1, Next: 2}, Lists: resize.Lists{Mine: 1, Wish: 2, Warm: true}},
				"settles": {State: resize.State{N: 15, List: 1, Next: 2}, Lists: resize.Lists{Mine: 1, Wish: 2, Warm: true}},
				"cools":   {State: resize.State{N: 16, List: 1, Next: 2}, Lists: resize.Lists{Mine: 1, Wish: 2, Warm: true}},
				"moves":   {State: resize.State{N: 11, List: 1, Next: 2}, Lists: resize.Lists{Mine: 1, Wish: 2}},
				"unknown": {State: resize.State{N: 12, List: 3}, Lists: resize.Lists{Mine: 1, Wish: 1}},
				"known":   {State: resize.State{N: 12, List: 1}, Lists: resize.Lists{Mine: 1, Wish: 1}},
			}[rest], false)
			w.View.Done(w.View.Gen()+1, true)
		}
	case "marks":
		s.countsMarks(rest)
	case "stands": // sets how long the thread pauses in each wakeup, before it reads
		d := s.duration(rest)
		s.Engine.Clock = func() int64 { return s.Engine.Now + d }
	case "wait":
		for end := s.Now + s.duration(rest); s.Now < end; {
			next := s.Engine.Next()
			for _, e := range s.more {
				next = min(next, e.Next())
			}
			s.Now = min(end, max(next, s.Now+int64(time.Millisecond)))
			for _, e := range s.engines() {
				s.wakeup(e, func() {})
			}
		}
	default:
		s.line(s.Endpoint(word), rest)
	}
}

// line runs a line about the endpoint a.
func (s *Harness) line(a *Endpoint, rest string) {
	verb, text, _ := strings.Cut(rest, " ")
	switch verb {
	case ">", ">*":
		s.says(a, verb, text)
	case "<":
		s.hears(a, rest == "<", text)
	case ">f":
		var b []byte
		for _, frame := range strings.Split(text, " + ") {
			b = append(b, s.Frame(frame, false)...)
		}
		s.wakeup(s.loopOf(a), func() { s.loopOf(a).Bytes(a.Link, b) })
	case "<f":
		s.hasGot(a, string(s.Frame(text, true)))
	case "<*":
		n, text := s.times(text)
		want := strings.Repeat(text, n)
		if got := string(a.Got.Next(len(want))); got != want {
			s.Fatalf("%s has got %d bytes %.80q, want %d bytes %.80q", a.Name, len(got), got, len(want), want)
		}
	case "closes", "resets", "dies", "breaks":
		l := a.Link
		if a.Name[0] != 'c' {
			a.Link = nil
		}
		reset := errors.New("connection reset by peer")
		s.wakeup(s.loopOf(a), func() { s.loopOf(a).Closed(l, map[string]error{"resets": reset, "breaks": reset}[verb]) })
	case "full":
		a.Full = true
	case "drains":
		a.Full = false
		s.wakeup(s.loopOf(a), func() { s.Send(a) })
	case "is":
		s.SetPhase(a.Name, text)
	case "foreign", "differs":
		s.members(a.Name, func(v *health.View, i int) { v.Differ(true, verb == "foreign") })
	case "gone", "back":
		s.members(a.Name, func(v *health.View, i int) { v.SetGone(verb == "gone") })
	case "leased", "unleased":
		until := map[string]int64{"leased": link.Never}[verb]
		if text != "" {
			until = s.Now + s.duration(text)
		}
		s.members(a.Name, func(v *health.View, i int) { v.Set(i, v.N(i), v.Suspected(i), v.Renamed(i), until) })
	case "known":
		s.members(a.Name, func(v *health.View, i int) { v.SetKnownUntil(i, s.Now+s.duration(text)) })
	case "writes":
		at := int64(0)
		if text != "now" {
			at = s.Now + s.duration(text)
		}
		s.members(a.Name, func(v *health.View, i int) { v.SetWritesBy(i, at) })
	case "renamed":
		n, _ := strconv.Atoi(text)
		s.members(a.Name, func(v *health.View, i int) { v.Set(i, v.N(i), v.Suspected(i), uint32(n), v.ValidUntil(i)) })
	case "runs":
		s.hears(a, false, "stats")
		began, _ := strconv.Atoi("1" + text + "000")
		s.says(a, ">", fmt.Sprintf(`STAT pid %s\r\nSTAT uptime 0\r\nSTAT time %d\r\nEND`, text, began-100))
	case "unread":
		a.Sent, _ = strconv.Atoi(text)
	case "unsent":
		a.unsent, _ = strconv.Atoi(text)
	case "refuses", "hangs", "silent":
		a.Mode = verb
	case "accepts":
		a.Mode = ""
	case "closed", "aborted":
		if a.State != verb {
			s.Fatalf("%s is %q", a.Name, a.State)
		}
	case "paused", "reading":
		if a.Paused != (verb == "paused") {
			s.Fatalf("paused: %v", a.Paused)
		}
	default:
		s.Fatalf("what is %q?", verb)
	}
}

// duration returns the duration in text, in nanoseconds.
func (s *Harness) duration(text string) int64 {
	d, err := time.ParseDuration(text)
	if err != nil {
		s.Fatalf("%v", err)
	}
	return int64(d)
}

// set reads words of the form NAME, NAME=VALUE or NAME:VALUE. fields has for each name where its value is stored, or a
// function that reads it.
func (s *Harness) set(words []string, fields map[string]any) {
	for _, word := range words {
		name, value := word, ""
		if i := strings.IndexAny(word, "=:"); i >= 0 {
			name, value = word[:i], word[i+1:]
		}
		var err error
		switch to := fields[name].(type) {
		case *int:
			*to, err = strconv.Atoi(value)
		case *int64:
			*to, err = strconv.ParseInt(value, 10, 64)
		case *time.Duration:
			*to, err = time.ParseDuration(value)
		case *string:
			*to = value
		case is:
			*to.set = value == to.value
		case func(string):
			to(value)
		default:
			err = errors.New("this option does not exist")
		}
		if err != nil {
			s.Fatalf("%s: %v", word, err)
		}
	}
}

// is is a field that an option with the given value sets, and with another value clears.
type is struct {
	set   *bool
	value string
}

// oneOf returns a function that sets `to` to the value with a name.
func oneOf[T any](to *T, values map[string]T) func(string) {
	return func(name string) { *to = values[name] }
}

// route adds a route to the table. The first words of f are its prefix and its pool; the others are options.
func (s *Harness) route(f []string) {
	r := table.Route{Prefix: strings.Trim(f[0], "-"), Pool: s.Pools[f[1]]}
	s.set(f[2:], map[string]any{
		"strip": func(string) { r.Strip = true },
		"autocreate": func(value string) { // INITIAL:TTL
			initial, ttl, _ := strings.Cut(value, ":")
			r.Autocreate = &table.Autocreate{}
			r.Autocreate.Initial, _ = strconv.ParseUint(initial, 10, 64)
			r.Autocreate.TTL, _ = time.ParseDuration(ttl + "s")
		},
		"buffer": func(value string) { // EVERY:KEEP
			every, keep, _ := strings.Cut(value, ":")
			r.Buffer = &table.Buffer{Keys: 100}
			r.Buffer.Every, _ = time.ParseDuration(every)
			r.Buffer.Keep, _ = time.ParseDuration(keep)
		},
		"match": &r.Match,
		"copies": func(value string) {
			n, _ := strconv.Atoi(value)
			r.Copies = replicate.Policy{Copies: n, Apart: replicate.Servers, RepairRate: 1000}
		},
		"repair":     &r.Copies.RepairRate,
		"get_errors": func(value string) { r.GetErrors = new(bool); *r.GetErrors = value == "error" },
		"through":    func(string) { r.Copies.ReadThrough = true },
		"also":       func(pool string) { r.Also = append(r.Also, s.Pools[pool]) }, // another pool, which also has a replica of each key of the route
		"read":       oneOf(&r.Copies.Read, map[string]replicate.Read{"fastest": replicate.Fastest, "spread": replicate.Spread}),
		"prefer":     func(pool string) { r.Prefer = s.Pools[pool] }, // the pool with replicas that reads prefer
		"total":      func(value string) { d, _ := time.ParseDuration(value); r.Total = &d },
		"guard":      func(value string) { r.Guard = s.guard(strings.Split(value, ",")) },
		"tags":       func(value string) { tagOption(s, &r, value) }, // this option must follow the option guard
		"near": func(value string) { // TTL to keep all values, or TTL:hot to keep the values of hot keys
			ttl, hot, _ := strings.Cut(value, ":")
			r.Near = &table.NearSettings{Memory: 4096, All: hot == ""}
			r.Near.TTL, _ = time.ParseDuration(ttl)
		},
		"ack": oneOf(&r.Copies.Ack, map[string]replicate.Ack{"one": replicate.AckOne, "all": replicate.AckAll, "quorum": replicate.AckQuorum}),
	})
	s.Routes = append(s.Routes, r)
}

// guard reads the options of a guarded route: wait:1s, stale:5s, …
func (s *Harness) guard(options []string) *table.GuardSettings {
	g := &table.GuardSettings{Lease: 10 * time.Second, LeaseMax: time.Minute, Wait: 400 * time.Millisecond}
	s.set(slices.DeleteFunc(options, func(option string) bool { return option == "" }), map[string]any{
		"hide": func(string) { g.Hide = true }, "lease": &g.Lease, "wait": &g.Wait, "early": &g.Early, "stale": &g.Stale, "sets": is{&g.OnlyAfterMiss, "after_miss"},
		"late":    oneOf(&g.Late, map[string]table.GuardLate{"miss": table.LateMiss, "error": table.LateError, "stale": table.LateStale}),
		"clients": oneOf(&g.Clients, map[string]table.GuardClients{"detect": table.Detected, "connection": table.Sequential, "shared": table.Shared, "pooled": table.Pooled}),
	})
	return g
}

// Pool adds a pool to the table. The first word of f is its name; the others are options.
func (s *Harness) Pool(f []string) {
	p := &table.Pool{Name: f[0], Connections: 1, QueueLimit: 1000,
		Timeouts:     table.Timeouts{Connect: 1200 * time.Millisecond, Request: 500 * time.Millisecond, Deadline: 2 * time.Second},
		RetryBackoff: table.Backoff{First: 100 * time.Millisecond, Max: time.Second}}
	list := func(to *[]table.Target, names string) ring.Placement {
		for _, srv := range strings.Split(names, ",") {
			address, _, _ := strings.Cut(srv, "@") // the part after @ makes another name with the same address
			*to = append(*to, table.Target{Name: srv, Network: "tcp", Address: address, Weight: 1})
		}
		return ring.Placement{Hash: func([]byte) uint64 { return 0 }, Ring: ByDigit(len(*to))}
	}
	s.set(f[1:], map[string]any{
		"unknown": func(string) { p.Unknown, p.GetErrors, p.Place = true, true, ring.Nowhere() },
		"servers": func(names string) { p.Place = list(&p.Servers, names) },
		"next":    func(names string) { p.Next = &table.List{}; p.Next.Place = list(&p.Next.Servers, names) },
		"resize":  func(string) { p.Resize = table.ResizeWarm }, // the only value of this option is warm
		"fill": func(value string) { // the pool to fill from, a pool that is not in the table, or POOL:RATE
			from, rate, _ := strings.Cut(value, ":")
			p.Fill = &table.Fill{From: s.Pools[from], Rate: 1000, Remember: time.Hour}
			if rate != "" {
				p.Fill.Rate, _ = strconv.Atoi(rate)
			}
			s.Table.Pools = slices.DeleteFunc(s.Table.Pools, func(p *table.Pool) bool { return p == s.Pools[from] })
		},
		"auth": func(value string) { p.Login.User, p.Login.Password, _ = strings.Cut(value, ":") },
		"failover": func(value string) {
			p.Failover.Mode = map[string]table.Mode{"fail_fast": table.FailFast, "rehash": table.Rehash}[value]
			p.Failover.SubstituteTTL = 10 * time.Minute
		},
		"gutter": func(pool string) { p.Failover.Mode, p.Failover.Gutter = table.Gutter, s.Pools[pool] },
		"rejoin": func(string) { p.Failover.OnRejoin = health.Warm }, // the only value of this option is warm
		"strict": is{&p.Failover.Strict, "true"}, "ordered": is{&p.InOrder, "true"}, "preconnect": is{&p.Preconnect, "true"},
		"get_errors": is{&p.GetErrors, "error"}, "gets": is{&p.JoinGets, "joined"}, "flush_all": is{&p.DenyFlush, "deny"},
		"connections": &p.Connections, "queue": &p.QueueLimit, "after_failures": &p.Failover.AfterFailures,
		"wait": &p.Failover.Wait, "deadline": &p.Timeouts.Deadline, "request": &p.Timeouts.Request, "total": &p.Timeouts.Total, "keepalive": &p.Keepalive,
	})
	s.Pools[p.Name] = p
	s.Table.Pools = append(s.Table.Pools, p)
}

// SetPhase changes the phase of a server in all pools that have it, as their keepers would.
func (s *Harness) SetPhase(server, phase string) {
	for _, w := range s.Proxy.Agents() {
		for i := range w.Servers {
			n, suspect := w.View.N(i), w.View.Suspected(i)
			if w.Servers[i].Name == server {
				for end := n + 8; health.PhaseOf(n).String() != phase && phase != "SUSPECT"; n++ {
					if n == end {
						s.Fatalf("what phase is %q?", phase)
					}
				}
				suspect = phase == "SUSPECT"
			}
			w.View.Set(i, n, suspect, w.View.Renamed(i), link.Never)
			w.View.SetKnownUntil(i, link.Never)
		}
		w.View.Done(w.View.Gen()+1, true)
	}
}

// comes publishes that all instances have the table and have reached the stage `to` of the
// handover, as keepers would publish it.
func (s *Harness) comes(to stages.Stage) {
	for _, w := range s.Proxy.Agents() {
		b := stages.New(len(w.Servers))
		w.View.Handover.Tell(&b, 0, s.Now)
		b.N = uint32(to)
		w.View.Handover.Publish(&b)
	}
}

// members calls f for each pool that has the server, with the pool's view and the index of the
// server.
func (s *Harness) members(server string, f func(v *health.View, i int)) {
	for _, w := range s.Proxy.Agents() {
		for i := range w.Servers {
			if w.Servers[i].Name == server {
				f(w.View, i)
			}
		}
	}
}

// SetLimits changes limits of the table.
func (s *Harness) SetLimits(f []string) {
	l := &s.Table.Limits
	s.set(f, map[string]any{
		"clients": &l.Clients, "tickets": &l.Tickets, "waiting": &l.Waiting, "in_flight": &l.InFlight, "value": &l.Value, "key": &l.Key, "line": &l.Line,
		"output": &l.Output, "output_hard": &l.OutputHard, "memory": &l.Memory, "idle": &l.Idle, "unfinished": &l.Unfinished,
	})
}

func (s *Harness) unquote(text string) string {
	text, err := strconv.Unquote(`"` + strings.ReplaceAll(text, `"`, `\"`) + `"`)
	if err != nil {
		s.Fatalf("%v", err)
	}
	return WithTags(text)
}
