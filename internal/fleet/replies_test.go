package fleet

// Replies under reloads: clients of all three protocols send every command to routes of
// every kind, several at a time. Servers and the network fail, and reloads switch every
// feature on and off. The test checks that each command gets exactly one reply, in
// order and in time. A quiet command gets none if its protocol hides it. No connection
// may be closed instead, and nothing may panic.
//
//	commands    compose: text; metas, quiets: meta; composeFrame: binary; malformed ones and quit in all
//	routes      prefixes, each with the features of drawFeatures: plain, copies, guard (each way of using
//	            connections), tags, near, autocreate, buffer, gutter, another pool
//	servers     reloads add, remove and weigh them in each mode of resize, rename the pool, and begin and end
//	            fill_from and warm_from
//	faults      replyFaults, and a client that disconnects with requests in flight; on a slow path
//	            a reply arrives after the deadline
//	moments     momentsOf: reloads arrive in each phase of a server; with scenario.resizes also in each stage of a change of
//	            servers

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"ringside/proxy/health"
	"ringside/proxy/health/resize"
	"ringside/proxy/link"
	"ringside/proxy/table"
	"ringside/proxy/tags/stamp"
	"ringside/replicate"
)

// replyFaults are the faults during which replies are counted.
var replyFaults = []string{"cut", "links", "hang", "hang", "kill", "slow", "restart", "pause", "drain", "stop"}

// TestReplies counts the replies to every command.
func TestReplies(t *testing.T) {
	from, to := seedRange(t)
	if os.Getenv("RINGSIDE_SEEDS") == "" {
		to = min(to, from+7) // each has up to 18 clients and simulates 20 s, or a minute in a full run
	}
	var lock sync.Mutex
	moments := map[string]int{}
	t.Cleanup(func() {
		for _, stage := range []resize.Stage{resize.Pause, resize.Move, resize.Settle, resize.Cool} {
			if from+1 < to && !testing.Short() && !t.Failed() && moments[momentOf(stage)] == 0 {
				t.Errorf("no reload begins in stage %d of a change of servers", stage)
			}
		}
	})
	var seeds []uint64
	for seed := from; seed < to; seed++ {
		seeds = append(seeds, seed)
	}
	if from == 0 && to == 2 { // the usual run; with 3 and 15, reloads begin in all stages
		seeds = []uint64{0, 3, 15}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			c := scenario{name: "replies", sidecars: 2, engines: 1 + int(seed%2), apps: -1, servers: 3, gutter: 2, callers: 9, faults: replyFaults}
			if seed%2 == 1 { // long enough for several changes of the servers
				c.resizes, c.engines, c.callers, c.apart, c.brief = true, 1+int(seed/2%2), 3, 15*second, true
			}
			f := playReplies(c, seed, false)
			if f.broken != "" {
				f = playReplies(c, seed, true)
				t.Fatalf("%s\nseed %d: %s", f.lastLines(), seed, f.broken)
			}
			t.Logf("%d commands, %d of them failed, %d reloads, %d flushes; %v", f.asked, f.errors, f.edition, f.flushes, f.moments)
			lock.Lock()
			defer lock.Unlock()
			for m, n := range f.moments {
				moments[m] += n
			}
		})
	}
}

func (f *fleet) lastLines() string {
	var lines []string
	for _, l := range f.trace[max(0, len(f.trace)-*traceLines):] {
		lines = append(lines, l.text)
	}
	return strings.Join(lines, "\n")
}

// playReplies runs one simulation.
func playReplies(c scenario, seed uint64, traced bool) (f *fleet) {
	defer func() {
		if r := recover(); r != nil {
			if f == nil {
				panic(r)
			}
			f.wrong("", "panic: %v\n%s", r, debug.Stack())
		}
	}()
	f = newFleet(c, seed, traced)
	f.run(f.now + 2*second)
	until := f.now + 20*second
	switch {
	case f.decisions != nil: // a fuzzer plays many runs
		until = f.now + 200*milli
	case f.bare:
		until = f.now + 4*second
	case f.resizes && (os.Getenv("RINGSIDE_FULL") != "" || os.Getenv("RINGSIDE_SEEDS") != ""):
		until = f.now + 60*second
	case f.resizes && !testing.Short():
		until = f.now + 40*second
	case os.Getenv("RINGSIDE_FULL") != "":
		until = f.now + 60*second
	case testing.Short():
		until = f.now + 3*second
	}
	var reloads func()
	reloads = func() {
		if f.now < until {
			f.momentsOf()
			f.reload(func(*layout) { f.features = f.drawFeatures() })
			f.after(f.upTo(f.pause()), reloads)
		}
	}
	if !f.steady {
		reloads()
	}
	for f.now < until && f.broken == "" {
		if len(f.faults) > 0 {
			f.fault()
		}
		f.run(f.now + f.upTo(cmp.Or(2*f.apart, 4*second)))
	}
	f.run(max(f.now, f.trouble))
	if f.decisions == nil {
		f.run(f.now + 5*second)
	}
	f.quiet = true
	f.run(f.now + 30*second)
	for _, c := range f.clients {
		if f.broken == "" && len(c.wants) > 0 {
			f.wrong("", "c%d waits for the reply to %s", c.id, c.wants[0])
		}
		c.leave()
	}
	f.run(f.now + 70*second)
	for _, s := range f.sidecars {
		sum := s.snapshot()
		if f.broken == "" && (sum.Clients > 0 || sum.Parked > 0 || sum.Lines > 0 || sum.InFlight > 0) {
			f.wrong("", "p%d: %d clients, %d parked writes, %d lines of writes and %d commands are left", s.id, sum.Clients, sum.Parked, sum.Lines, sum.InFlight)
		}
		if f.bare && f.broken == "" {
			s.empty()
		}
	}
	return f
}

// pause returns the maximum time until the next reload. A change of servers takes longer than the usual pause.
func (f *fleet) pause() int64 {
	switch {
	case f.resizes && f.isStable():
		return 12 * second
	case f.resizes:
		return 2 * second
	case !f.bare && f.one(6):
		return 4 * second
	}
	return 700 * milli
}

// momentsOf records what is in progress when a reload begins.
func (f *fleet) momentsOf() {
	if f.bare {
		return
	}
	for _, s := range f.sidecars {
		switch {
		case s.dead:
			f.moments["an instance is down"]++
			continue
		case s.stops:
			f.moments["an instance stops"]++
		}
		for _, m := range s.phases() {
			f.moments[m.Phase.String()]++
		}
		sum := s.snapshot()
		for _, p := range sum.Resizes {
			f.moments[momentOf(p.Stage())]++
		}
		if len(sum.Lacks) > 0 {
			f.moments["replicas are missing"]++
		}
	}
}

func momentOf(stage resize.Stage) string { return fmt.Sprint("stage ", stage) }

// features are the settings that a reload has given to routes, pools and listeners.
type features struct {
	routes []routeFeatures
	pools  [3]poolFeatures // main, spare, far
	mode   table.Mode
	strict bool
	rejoin health.OnRejoin
	there  bool // a second listener exists

	misses, slowLog bool
	limits          table.Limits
	deadline        time.Duration // of the pools; 0: the one of the fleet

	resize    table.ResizeMode // of the pool main
	usual     bool             // this mode is a default
	single    bool             // no route keeps replicas, so keys can move in each mode
	reweighed bool             // keys of the pool main have other servers
	slowly    bool             // few keys move in a second
	warmFrom  bool             // the pool main has a former list
	fills     bool             // the pool main fills from another one, and has no other features
	renamed   bool             // the pool main has another name
	impatient bool             // writes do not wait for an ejection
	namespace string           // of the tags
	command   string           // that invalidates a tag
}

type routeFeatures struct {
	prefix                                                   string
	gone                                                     bool // the keys belong to the route without prefix
	copies, also, fastest, guard, stale, early, fails        bool
	tags, tagsRead, near, autocreate, buffer, loud, strip    bool
	total, far, spread, ackAll, through, bufferLast, nearHot bool
	after, waitsFirst                                        bool // settings of the guard: sets: after_miss; old values after a wait
	hides, auto, noRepair, one                               bool // guard: hide; early: auto; repair: off; a near cache for few values

	clients table.GuardClients
	read    replicate.Read
}

type poolFeatures struct {
	gone                                  int // server that is missing; -1: none
	loud, inOrder, join, ahead, denyFlush bool
	connections                           int
	keepalive                             bool
	queue                                 int // limit of the queue of a connection; 0: the one of the fleet
}

// prefixes are the prefixes of the routes; the first route has none.
var prefixes = []string{"", "r:", "g:", "t:", "n:", "c:", "b:", "x:"}

// drawFeatures returns a random configuration that package config would accept.
func (f *fleet) drawFeatures() *features {
	if f.bare {
		return f.drawBare()
	}
	some := func() bool { return f.one(2) }
	d := &features{limits: limits, mode: table.Mode(f.rand.IntN(3)), strict: f.one(3), rejoin: health.OnRejoin(f.rand.IntN(2)), there: some(), misses: some()}
	d.limits.TagKeys = 100
	if f.one(4) {
		d.limits.InFlight = 2
	}
	d.slowLog = some()
	for i := range d.pools {
		d.pools[i] = poolFeatures{gone: -1, loud: some(), inOrder: f.one(4), join: some(), ahead: some(), denyFlush: f.one(6), connections: 1 + f.rand.IntN(2), keepalive: some()}
	}
	if f.one(4) {
		d.pools[0].gone = f.rand.IntN(3)
	}
	for _, prefix := range prefixes {
		r := routeFeatures{prefix: prefix, gone: prefix != "" && f.one(6), loud: some(), strip: prefix == "x:" && some(), total: f.one(4), far: f.one(6), spread: some(), ackAll: f.one(3), through: some(), bufferLast: some()}
		r.copies = f.one(3) || prefix == "r:" && some()
		r.also = r.copies && !r.far && f.one(3)
		r.fastest = r.copies && f.one(3)
		counts := prefix == "c:" || prefix == "b:" || f.one(6)
		if counts {
			r.autocreate, r.buffer = some(), some()
		}
		r.read, r.noRepair = replicate.Read(f.rand.IntN(4)), f.one(4)
		if !counts || f.one(3) { // a route may have both
			r.guard = f.one(3) || prefix == "g:" && some()
			r.tags = prefix == "t:" && some() && !r.copies
			r.tagsRead = r.tags && f.one(4)
			r.guard = r.guard || r.tags
			r.stale = r.guard && !r.copies && some()
			r.early, _, r.fails = some(), some(), f.one(4) // the second draw belongs to a setting that was removed
			r.near = !d.strict && (f.one(3) || prefix == "n:" && some())
			r.nearHot = r.near && some()
			r.clients = table.GuardClients(f.rand.IntN(4))
			r.after, r.waitsFirst = f.one(4), r.stale && some()
			r.auto, r.one = r.early && some(), some()
		}
		r.hides = !r.guard && f.one(6)
		d.routes = append(d.routes, r)
	}
	f.drawServers(d)
	if f.resizes {
		f.drawResize(d)
	}
	return d
}

// drawResize changes d so that the servers change step by step: another list when the last change has ended, now and
// then a list in the middle of a change, and now and then replicas or a gutter, with which keys do not move.
func (f *fleet) drawResize(d *features) {
	d.mode, d.strict, d.resize, d.usual, d.renamed, d.fills, d.pools[0].denyFlush = table.Rehash, f.seed/2%2 == 0, table.ResizeWarm, true, false, false, false
	if last := f.features; last == nil {
		d.reweighed, d.pools[0].gone = false, -1
	} else {
		d.reweighed, d.pools[0].gone = last.reweighed, last.pools[0].gone
		d.rejoin, d.slowly = last.rejoin, last.slowly
		switch {
		case f.isStable() && f.one(3) || f.one(20):
			d.reweighed = !d.reweighed
		case f.isStable() || f.one(20):
			if d.pools[0].gone = -1; last.pools[0].gone < 0 {
				d.pools[0].gone = f.rand.IntN(3)
			}
		}
	}
	if f.one(20) {
		d.mode = table.Gutter
	}
	copies := f.one(20)
	for i := range d.routes {
		r := &d.routes[i]
		r.copies = r.copies && copies
		r.also, r.fastest = r.also && copies, r.fastest && copies
	}
}

// drawServers draws the settings of the servers, and what happens when these change.
func (f *fleet) drawServers(d *features) {
	some := func() bool { return f.one(2) }
	l := &d.limits
	l.TagKeys, l.Tags = []int{100, 2}[f.rand.IntN(2)], []int{16, 1}[f.rand.IntN(2)]
	l.Waiting, l.Tickets = []int{10_000, 1}[f.rand.IntN(2)], []int{65_536, 2}[f.rand.IntN(2)]
	d.resize, d.usual, d.slowly, d.warmFrom = table.ResizeMode(f.rand.IntN(3)), some(), some(), f.one(4)
	if last := f.features; last != nil && !f.one(20) { // a change takes several reloads
		d.resize, d.usual, d.single, d.pools[0].gone, d.reweighed, d.mode, d.strict = last.resize, last.usual, last.single, last.pools[0].gone, last.reweighed, last.mode, last.strict
	} else {
		d.reweighed, d.single = some(), some()
	}
	d.renamed, d.impatient = f.one(8), f.one(3)
	d.namespace, d.command = []string{"", "other"}[f.rand.IntN(2)], []string{"tag:", "drop:"}[f.rand.IntN(2)]
	for i := range d.routes {
		if d.strict {
			d.routes[i].near = false
		}
	}
	for i := range d.routes {
		if r := &d.routes[i]; d.single {
			r.copies, r.also, r.fastest = false, false, false
		}
	}
	if d.fills = f.one(8); !d.fills {
		return
	}
	d.mode, d.resize, d.warmFrom, d.pools[0].denyFlush = table.FailFast, table.ResizePlain, false, true
	for i := range d.routes {
		if r := &d.routes[i]; !r.far {
			*r = routeFeatures{prefix: r.prefix, gone: r.gone, loud: r.loud, strip: r.strip, total: r.total}
		}
	}
}

// featured returns the table with the current features.
func (f *fleet) featured(pool func(name string, from, n, gone int) *table.Pool) *table.Table {
	d := f.features
	t := &table.Table{Limits: d.limits, Misses: d.misses, TagCommand: d.command}
	if d.slowLog {
		t.LogSlow = 100 * time.Millisecond
	}
	for i, at := range [][2]int{{0, f.servers}, {f.servers, 1}, {f.servers + 1, 1}} {
		is := d.pools[i]
		p := pool([]string{"main", "spare", "far"}[i], at[0], at[1], is.gone)
		p.GetErrors, p.InOrder, p.JoinGets, p.Preconnect, p.DenyFlush, p.Connections = is.loud, is.inOrder, is.join, is.ahead, is.denyFlush, is.connections
		if is.keepalive {
			p.Keepalive = time.Second
		}
		p.QueueLimit, p.Timeouts.Deadline = cmp.Or(is.queue, p.QueueLimit), cmp.Or(d.deadline, p.Timeouts.Deadline)
		t.Pools = append(t.Pools, p)
	}
	main, spare, far := t.Pools[0], t.Pools[1], t.Pools[2]
	settings := health.Settings{Strict: d.strict, OnRejoin: d.rejoin,
		EjectAfter: health.EjectAfter{Refused: min(refusedFor, f.eject), Silent: f.eject, Restart: max(f.restart, f.eject)},
		Ping:       250 * time.Millisecond, Lease: time.Second, Request: f.request, AfterFailures: 3}
	for _, p := range t.Pools {
		p.Failover = table.Failover{Settings: settings, SubstituteTTL: 10 * time.Minute}
		if d.strict && !d.impatient {
			p.Failover.Wait = p.Timeouts.Deadline
		}
	}
	if main.Resize, main.ResizeUsual, main.ResizeRate = d.resize, d.usual && d.resize == table.ResizeWarm, 0; d.slowly {
		main.ResizeRate = 1
	}
	if main.Resize != table.ResizePlain {
		main.ReadList = f.readList(main)
	}
	if d.warmFrom && main.Resize == table.ResizeWarm {
		former := pool("main", 0, f.servers, (d.pools[0].gone+2)%f.servers)
		main.From, main.Former = former.List(), "former"
	}
	if d.fills {
		main.Fill = &table.Fill{From: pool("source", f.servers+1, 1, -1), Rate: 100, Remember: time.Hour}
	}
	if d.renamed {
		main.Name = "cache"
	}
	if main.Failover.Mode = d.mode; d.mode == table.Gutter {
		main.Failover.Gutter = spare
	}
	var routes []table.Route
	for i := range d.routes {
		if r := &d.routes[i]; !r.gone {
			route := r.route(main, far)
			if route.Tags != nil {
				route.Tags.Namespace = stamp.In(d.namespace)
			}
			routes = append(routes, route)
		}
	}
	t.Listeners = []table.Listener{{Network: "tcp", Address: "here", Routes: routes}}
	if d.there {
		t.Listeners = append(t.Listeners, table.Listener{Network: "tcp", Address: "there", Routes: routes})
	}
	for _, p := range t.Pools { // as package config does
		if p.Copied(t) || p.Failover.Mode == table.Gutter {
			p.Resize, p.From = table.ResizePlain, nil
		}
		p.Failover.Strict = p.Failover.Strict && p.NeedsKeeper(t)
	}
	return t
}

func (r *routeFeatures) route(main, far *table.Pool) table.Route {
	to := table.Route{Prefix: r.prefix, Pool: main, Strip: r.strip}
	switch {
	case r.far:
		to.Pool = far
	case r.copies:
		to.Copies = replicate.Policy{Copies: 2, Apart: replicate.Servers, ReadThrough: r.through, RepairRate: 1000}
		if r.also {
			to.Also, to.Copies.Copies = []*table.Pool{far}, 0
		}
		if r.spread {
			to.Copies.Read = r.read
		}
		if r.noRepair {
			to.Copies.RepairRate = 0
		}
		if r.fastest {
			to.Copies.Read = replicate.Fastest
		}
		if r.ackAll {
			to.Copies.Ack = replicate.AckAll
		}
	}
	if r.loud {
		loud := true
		to.GetErrors = &loud
	}
	if r.total {
		total := 2 * time.Second
		to.Total = &total
	}
	if r.autocreate {
		to.Autocreate = &table.Autocreate{Initial: 3, TTL: time.Minute}
	}
	if r.buffer {
		to.Buffer = &table.Buffer{Every: 200 * time.Millisecond, Keep: 2 * time.Second, Last: r.bufferLast, Keys: 6}
	}
	if r.guard {
		to.Guard = &table.GuardSettings{Lease: 2 * time.Second, LeaseMax: 10 * time.Second, Wait: 300 * time.Millisecond}
		to.Guard.Clients, to.Guard.OnlyAfterMiss = r.clients, r.after
		switch {
		case r.waitsFirst:
			to.Guard.Late = table.LateStale
		case r.fails:
			to.Guard.Late = table.LateError
		}
		if r.stale {
			to.Guard.Stale = 3 * time.Second
		}
		if r.early {
			to.Guard.Early, to.Guard.Auto = 2*time.Second, r.auto
		}
	}
	if r.hides {
		to.Guard = &table.GuardSettings{Hide: true}
	}
	if r.tags {
		to.Tags = &table.TagSettings{Rule: stamp.Rule{Namespace: stamp.In("")}, Suffix: ";tags=", Read: r.tagsRead}
		to.Guard.Hide = r.tagsRead
	}
	if r.near {
		to.Near = &table.NearSettings{Memory: 1 << 16, All: !r.nearHot, TTL: 300 * time.Millisecond}
		if r.one {
			to.Near.Memory = 1 << 12
		}
	}
	return to
}

// caller is a client that sends several commands at a time and counts the replies.
type caller struct {
	f      *fleet
	id     int
	s      *sidecar
	at     int // index of the engine it uses
	binary bool
	there  bool // it uses the second listener
	quits  bool // it has sent quit, so its connection is closed after the replies to all earlier commands
	d      *driver
	link   *link.Link
	got    []byte
	wants  []want
	fences int // commands of the batch that wait for earlier ones
	batch  int
	opaque uint32
	hangs  bool
	keys   []*ownKey // keys that only it writes
	text   []byte    // commands of the batch that the engine has not received
	sent   int       // number of bytes of the batch that the engine has received
	paused bool      // the engine does not read
}

// want is a command that was sent, with the expected reply.
type want struct {
	text string

	line   *regexp.Regexp // matches a one-line reply; nil: see below
	read   bool           // VALUE … END
	stats  bool           // STAT … END
	opaque string         // opaque of a meta command, which the reply repeats
	group  []quietMeta    // quiet meta commands followed by mn

	frame  uint32 // opaque of a frame
	opcode byte
	quiet  bool

	effects
	end int // offset in the batch
}

// effects is what a command does with keys.
type effects struct {
	reads   []read
	wrote   *ownKey // the key of a caller that it writes or removes; nil: none
	version int     // the version that it writes if it succeeds; 0: none
}

func (w want) String() string { return w.text }

// quietMeta is a quiet meta command.
type quietMeta struct {
	command, opaque string
	effects
}

func (f *fleet) newCaller(s *sidecar, j int) *caller {
	c := &caller{f: f, id: len(f.clients), s: s, at: j % f.engines, binary: j%3 == 2 && !f.text, there: j%2 == 1}
	c.think()
	return c
}

func (c *caller) Peer() string { return fmt.Sprintf("c%d", c.id) }

// Unread implements link.Sock.
func (c *caller) Unread() int { return 0 }

// Unsent returns 0: the kernel of a client has received all that its socket has accepted.
func (c *caller) Unsent() int { return 0 }

func (c *caller) think() { c.f.after(c.f.upTo(40*milli), c.next) }

// next sends a batch of commands.
func (c *caller) next() {
	f := c.f
	switch {
	case len(c.wants) > 0 || c.quits || c.hangs || f.quiet:
		return
	case c.s.dead || c.s.stops || f.now < f.silent || c.s.paused && c.link == nil:
		c.think()
		return
	}
	var text []byte
	c.fences = 0
	for range 1 + f.rand.IntN(5) {
		if f.bare && (f.narrow || f.one(2)) {
			text = c.composeOwn(text)
		} else {
			text = c.compose(text)
		}
	}
	switch c.quits = f.one(12); {
	case c.quits && c.binary:
		text = c.addFrame(text, []byte{0x07, 0x17}[f.rand.IntN(2)], nil, "", "")
	case c.quits:
		text = append(text, "quit\r\n"...)
	case c.binary:
		text = c.addFrame(text, 0x0a, nil, "", "") // noop
	default:
		text = c.line(text, `MN`, "mn\r\n")
	}
	c.batch++
	batch := c.batch
	f.asked += len(c.wants)
	f.note("", "c%d p%d sends %.300q", c.id, c.s.id, text)
	f.after(c.bound(), func() { c.late(batch) })
	d := c.s.drivers[c.at]
	d.input(func() {
		if c.batch != batch || d.dead || len(c.wants) == 0 && !c.quits {
			return
		}
		if c.link == nil {
			address := "here"
			if c.there {
				address = "there"
			}
			c.d, c.link = d, d.e.Accepted("tcp", address, c)
		}
		c.text, c.sent = text, 0
		c.send(batch)
	})
}

// send passes the batch to the engine. In a bare fleet it does so in parts, and only while the engine reads.
func (c *caller) send(batch int) {
	f, n := c.f, len(c.text)
	if f.bare {
		n = f.part(n)
	}
	if c.paused {
		n = 0
	}
	b := c.text[:n]
	c.text, c.sent = c.text[n:], c.sent+n
	if n > 0 {
		if f.traced && f.bare {
			f.note("", "c%d sends %d of %d bytes", c.id, n, n+len(c.text))
		}
		c.d.e.Bytes(c.link, b)
	}
	switch l, d := c.link, c.d; {
	case l == nil:
	case f.one(30): // it disconnects with everything in flight
		l.Sock = nil
		c.cutOff()
		d.e.Closed(l, errReset)
	case f.bare && !c.paused && f.one(30): // it sends no more
		c.endInput()
		d.e.Closed(l, nil)
	case len(c.text) > 0:
		f.after(f.upTo(3*milli), func() {
			d.input(func() {
				if c.batch == batch && c.link == l && len(c.text) > 0 {
					c.send(batch)
				}
			})
		})
	}
}

// endInput drops what the engine has not received. The connection is closed after the replies to complete commands.
func (c *caller) endInput() { c.text, c.quits = nil, true }

// bound returns how long a batch may take. Commands after a flush_all start when all
// earlier ones have their replies. If few commands may be in flight, this applies to
// every command.
func (c *caller) bound() (extra int64) {
	if c.f.bare { // sockets are slow
		extra = 20 * second
	}
	return extra + 2*c.f.bound()*int64(1+2*c.fences) + c.f.bound()*int64(len(c.wants))
}

func (c *caller) late(batch int) {
	f := c.f
	switch {
	case c.batch != batch || len(c.wants) == 0 && !c.quits || c.s.dead:
	case c.s.paused:
		f.after(c.bound(), func() { c.late(batch) })
	case f.now < c.s.resumed+c.bound():
		f.at(c.s.resumed+c.bound(), func() { c.late(batch) })
	case len(c.wants) == 0:
		f.wrong("", "c%d p%d has said quit, and its connection is there", c.id, c.s.id)
	default:
		f.wrong("", "c%d p%d has no reply to %s", c.id, c.s.id, c.wants[0])
	}
}

// ended checks that the engine was allowed to close the connection. It may do so after
// quit, inside a value that its server has not completed, and on the second listener,
// which reloads remove.
func (c *caller) ended(by link.EffectKind) {
	f := c.f
	c.wants = slices.DeleteFunc(c.wants, func(w want) bool { return w.quiet || w.end > c.sent })
	switch begun := len(c.got) > 0; {
	case by == link.Abort && f.bare:
		f.aborted++
	case len(c.wants) > 0 && begun && f.bare:
		f.cut++
	case len(c.wants) > 0 && !begun && (!c.there || f.bare):
		f.wrong("", "c%d p%d is cut off, and has no reply to %s", c.id, c.s.id, c.wants[0])
	}
	c.cutOff()
}

// cutOff records the end of the connection: no more replies are expected.
func (c *caller) cutOff() {
	c.link, c.d, c.got, c.wants, c.quits, c.text, c.paused = nil, nil, nil, nil, false, nil, false
	c.keys = nil // it is not known which of its commands are carried out
	c.think()
}

func (c *caller) leave() {
	c.hangs = true
	if l, d := c.link, c.d; l != nil {
		c.link, l.Sock = nil, nil
		d.input(func() { d.e.Closed(l, errReset) })
	}
}

func (c *caller) key() string {
	return prefixes[c.f.rand.IntN(len(prefixes))] + "k" + strconv.Itoa(c.f.rand.IntN(4))
}

func (c *caller) body() string {
	switch c.f.rand.IntN(12) {
	case 0:
		return strings.Repeat("x", 3000)
	case 1:
		return strings.Repeat("y", 70_000)
	case 2, 3:
		return "text"
	}
	return "5"
}

var (
	linesLock sync.Mutex // runs are concurrent
	failures  = `SERVER_ERROR .*|CLIENT_ERROR .*`
	lines     = map[string]*regexp.Regexp{} // compiled expressions
)

func (c *caller) line(text []byte, replies, format string, args ...any) []byte {
	return c.add(text, want{line: lineOf(replies)}, format, args...)
}

// lineOf returns an expression that matches a line with one of the replies.
func lineOf(replies string) *regexp.Regexp {
	linesLock.Lock()
	defer linesLock.Unlock()
	if lines[replies] == nil {
		lines[replies] = regexp.MustCompile(`^(` + replies + `)$`)
	}
	return lines[replies]
}

func (c *caller) add(text []byte, w want, format string, args ...any) []byte {
	n := len(text)
	text = fmt.Appendf(text, format, args...)
	w.text, w.end = fmt.Sprintf("%.60q", text[n:]), len(text)
	c.wants = append(c.wants, w)
	return text
}

// compose adds a random command to text.
func (c *caller) compose(text []byte) []byte {
	f, k := c.f, c.key()
	if c.binary {
		return c.composeFrame(text, k)
	}
	noreply := f.one(6)
	line := func(replies, format string, args ...any) []byte {
		command := fmt.Sprintf(format, args...)
		if noreply {
			head, rest, _ := strings.Cut(command, "\r\n")
			return append(text, head+" noreply\r\n"+rest...)
		}
		return c.line(text, replies+`|`+failures, "%s", command)
	}
	body := c.body()
	if !f.bare && f.one(12) {
		switch f.rand.IntN(4) {
		case 0:
			keys := []string{k}
			for range 20 + f.rand.IntN(200) {
				keys = append(keys, c.key())
			}
			return c.readsOf(text, "get", keys...)
		case 1:
			return line(`DELETED|NOT_FOUND`, "delete drop:x\r\n")
		default:
			return line(`STORED|NOT_STORED`, "set %s;tags=x,y 0 0 %d\r\n%s\r\n", k, len(body), body)
		}
	}
	switch f.rand.IntN(25) {
	case 0, 1:
		return c.readsOf(text, []string{"get", "get", "get", "bget"}[f.rand.IntN(4)], k)
	case 2:
		return c.readsOf(text, "get", k, c.key(), c.key(), c.key())
	case 3:
		return c.readsOf(text, "gets", k, c.key())
	case 4:
		return c.readsOf(text, []string{"gat 60", "gats 60"}[f.rand.IntN(2)], k)
	case 5, 6:
		return line(`STORED`+`|NOT_STORED`, "set %s 0 %d %d\r\n%s\r\n", k, f.rand.IntN(5), len(body), body)
	case 7:
		return line(`STORED|NOT_STORED`, "%s %s 0 0 %d\r\n%s\r\n", []string{"add", "replace", "append", "prepend"}[f.rand.IntN(4)], k, len(body), body)
	case 8:
		return line(`STORED|EXISTS|NOT_FOUND|NOT_STORED`, "cas %s 0 0 %d %d\r\n%s\r\n", k, len(body), f.rand.IntN(9), body)
	case 9, 10, 11:
		return line(`[0-9]+|NOT_FOUND`, "incr %s %d\r\n", k, 1+f.rand.IntN(3))
	case 12:
		return line(`[0-9]+ *|NOT_FOUND`, "decr %s 1\r\n", k)
	case 13:
		return line(`TOUCHED|NOT_FOUND`, "touch %s %d\r\n", k, f.rand.IntN(60))
	case 14, 15:
		return line(`DELETED|NOT_FOUND`, "delete %s\r\n", k)
	case 16:
		return c.line(text, `VERSION .*|`+failures, "version\r\n")
	case 17:
		if f.one(2) && !f.bare { // while stats waits for other loops, it is in no queue
			return c.add(text, want{stats: true}, "stats%s\r\n", []string{"", " proxy", " routes", " conns", " settings"}[f.rand.IntN(5)])
		}
		return c.odd(text)
	case 18:
		if c.fences > 0 || !f.one(4) || f.faultless() {
			return line(`DELETED|NOT_FOUND`, "delete tag:x\r\n")
		}
		c.fences++
		return line(`OK`, "flush_all\r\n")
	case 19:
		lines, group := c.quiets(1 + f.rand.IntN(4))
		return c.add(text, want{group: group}, "%smn\r\n", lines)
	case 20:
		return c.line(text, `ME .*|EN|`+failures, "me %s\r\n", k)
	case 21:
		if f.one(2) {
			return line(`OK`, "verbosity 1\r\n")
		}
		return c.line(text, `OK|ERROR.*|`+failures, "%s\r\n", []string{"cache_memlimit 64", "slabs automove 0", "lru_crawler tocrawl 10", "watch", "shutdown", "refresh_certs", "extstore free_memchunks 1"}[f.rand.IntN(7)])
	}
	return c.metas(text, k, body)
}

// readsOf adds a read of keys that several callers write.
func (c *caller) readsOf(text []byte, command string, keys ...string) []byte {
	w := want{read: true}
	for _, k := range keys {
		w.reads = append(w.reads, read{name: k, exact: -1})
	}
	return c.add(text, w, "%s %s\r\n", command, strings.Join(keys, " "))
}

// odd adds an invalid command, or one that can't be carried out.
func (c *caller) odd(text []byte) []byte {
	k, long := c.key(), strings.Repeat("k", 251)
	switch c.f.rand.IntN(8) {
	case 0:
		return c.line(text, `CLIENT_ERROR .*`, "get %s%s\r\n", k, long)
	case 1:
		return c.line(text, `CLIENT_ERROR .*`, "set %s 0 0 3\r\n12345", k) // no line end after the value
	case 2:
		return c.line(text, `SERVER_ERROR .*`, "set %s 0 0 %d\r\n%s\r\n", k, c.tooLarge(), strings.Repeat("z", c.tooLarge()))
	case 3:
		return c.line(text, `CLIENT_ERROR .*`, "incr %s x\r\n", k)
	case 4:
		return c.line(text, `ERROR|CLIENT_ERROR .*`, "get\r\n")
	case 5:
		return c.line(text, `CLIENT_ERROR .*`, "mg %s%s v q\r\n", k, long)
	case 6:
		return c.line(text, `ERROR|CLIENT_ERROR .*`, "\r\n")
	}
	return c.line(text, `ERROR`, "what is this\r\n")
}

func (c *caller) nextOpaque() string {
	c.opaque++
	return fmt.Sprintf("O%d", c.opaque)
}

// metas adds a meta command.
func (c *caller) metas(text []byte, k, body string) []byte {
	o := c.nextOpaque()
	w := want{opaque: o}
	switch c.f.rand.IntN(7) {
	case 0:
		return c.add(text, w, "mg %s v f t c k %s\r\n", k, o)
	case 1:
		return c.add(text, w, "mg %s v b k %s\r\n", base64.StdEncoding.EncodeToString([]byte(k+[]string{"", " x"}[c.f.rand.IntN(2)])), o)
	case 5:
		return c.add(text, w, "mg %s v E1 T30 %s\r\n", k, o)
	case 2:
		return c.add(text, w, "ms %s %d %s%s\r\n%s\r\n", k, len(body), o, []string{"", " MA", " ME", " I"}[c.f.rand.IntN(4)], body)
	case 3:
		return c.add(text, w, "md %s %s\r\n", k, o)
	case 4:
		return c.add(text, w, "mg %s v N10 %s\r\n", k, o)
	}
	return c.add(text, w, "ma %s v %s%s\r\n", k, o, []string{"", " MD", " N10 J5"}[c.f.rand.IntN(3)])
}

// quiets returns n quiet meta commands.
func (c *caller) quiets(n int) (lines string, group []quietMeta) {
	for range n {
		k, o := c.key(), c.nextOpaque()
		format := []string{"mg %s v q %s\r\n", "ms %s 1 q %s\r\n5\r\n", "md %s q %s\r\n", "ma %s q %s\r\n", "ma %s v N10 q %s\r\n"}[c.f.rand.IntN(5)]
		lines += fmt.Sprintf(format, k, o)
		group = append(group, quietMeta{command: format[:2], opaque: o})
	}
	return lines, group
}

// hides reports whether a quiet meta command hides this reply.
func (q quietMeta) hides(reply string) bool {
	switch q.command {
	case "mg":
		return reply == "EN"
	case "ma":
		return reply == "HD" || reply == "VA"
	}
	return reply == "HD"
}

// composeFrame adds a command of the binary protocol.
func (c *caller) composeFrame(text []byte, k string) []byte {
	f, body := c.f, c.body()
	counts := binary.BigEndian.AppendUint64(nil, 1)
	counts = binary.BigEndian.AppendUint64(counts, 3)
	counts = binary.BigEndian.AppendUint32(counts, []uint32{0, 0xffffffff}[f.rand.IntN(2)])
	quiet := f.one(3)
	or := func(loud, silent byte) byte {
		if quiet {
			return silent
		}
		return loud
	}
	if f.one(20) { // a key that can't be written in a text line
		k += " x"
	}
	switch f.rand.IntN(18) {
	case 0, 1:
		return c.addFrame(text, or(0x00, 0x09), nil, k, "")
	case 2:
		return c.addFrame(text, or(0x0c, 0x0d), nil, k, "")
	case 3: // quiet gets are batched
		for range 3 {
			text = c.addFrame(text, 0x0d, nil, c.key(), "")
		}
		return text
	case 4:
		return c.addFrame(text, or(0x01, 0x11), make([]byte, 8), k, body)
	case 5:
		text = c.addFrame(text, or(0x01, 0x11), make([]byte, 8), k, body)
		text[len(text)-len(body)-len(k)-8-1] = byte(f.rand.IntN(9)) // the cas
		return text
	case 6:
		return c.addFrame(text, or(0x02, 0x12), make([]byte, 8), k, body)
	case 7:
		return c.addFrame(text, or(0x03, 0x13), make([]byte, 8), k, body)
	case 8:
		return c.addFrame(text, or(0x04, 0x14), nil, k, "")
	case 9, 10:
		return c.addFrame(text, or(0x05, 0x15), counts, k, "")
	case 11:
		return c.addFrame(text, or(0x06, 0x16), counts, k, "")
	case 12:
		return c.addFrame(text, or(0x0e, 0x19), nil, k, body)
	case 15:
		return c.addFrame(text, or(0x0f, 0x1a), nil, k, body)
	case 16:
		return c.addFrame(text, or(0x23, 0x24), make([]byte, 4), k, "") // gatk
	case 13:
		return c.addFrame(text, 0x1c, make([]byte, 4), k, "") // touch
	case 14:
		return c.addFrame(text, or(0x1d, 0x1e), make([]byte, 4), k, "") // gat
	}
	switch f.rand.IntN(5) {
	case 3:
		return c.addFrame(text, []byte{0x1b, 0x20, 0x40}[f.rand.IntN(3)], nil, "", "") // unknown opcodes
	case 4:
		return c.addFrame(text, or(0x01, 0x11), make([]byte, 8), k, strings.Repeat("z", c.tooLarge()))
	case 0:
		if !f.bare {
			return c.addFrame(text, 0x10, nil, "", "") // stat
		}
		fallthrough
	case 1:
		return c.addFrame(text, 0x0b, nil, "", "") // version
	}
	if c.fences++; c.fences > 1 || f.faultless() {
		return c.addFrame(text, 0x0a, nil, "", "")
	}
	return c.addFrame(text, or(0x08, 0x18), nil, "", "") // flush
}

// silent are the opcodes of quiet commands.
var silent = []byte{0x09, 0x0d, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1e, 0x24}

func (c *caller) addFrame(text []byte, opcode byte, extras []byte, key, value string) []byte {
	c.opaque++
	c.wants = append(c.wants, want{text: fmt.Sprintf("frame %#x #%d %s", opcode, c.opaque, key), frame: c.opaque, opcode: opcode, quiet: slices.Contains(silent, opcode)})
	text = append(text, 0x80, opcode, byte(len(key)>>8), byte(len(key)), byte(len(extras)), 0, 0, 0)
	text = binary.BigEndian.AppendUint32(text, uint32(len(extras)+len(key)+len(value)))
	text = binary.BigEndian.AppendUint32(text, c.opaque)
	text = binary.BigEndian.AppendUint64(text, 0)
	text = append(append(append(text, extras...), key...), value...)
	c.wants[len(c.wants)-1].end = len(text)
	return text
}

// hears processes bytes from the engine.
func (c *caller) hears(b []byte) {
	c.got = append(c.got, b...)
	for len(c.got) > 0 && c.f.broken == "" {
		if len(c.wants) == 0 {
			c.f.wrong("", "c%d p%d gets %.100q, and every command has its reply", c.id, c.s.id, c.got)
			return
		}
		size, done := c.take(&c.wants[0])
		if size == 0 && !done {
			return
		}
		if w := &c.wants[0]; size > 0 && done && w.end > c.sent && !w.early(c.got) { // a value may be rejected before it has arrived
			c.f.wrong("", "c%d p%d gets %.60q as the reply to %s, which it has not sent", c.id, c.s.id, c.got, w)
		}
		c.got = c.got[size:]
		if done {
			c.wants = c.wants[1:]
		}
	}
	if len(c.wants) == 0 && !c.quits {
		c.think()
	}
}

// take consumes a complete part of the reply to w, and reports whether the reply is
// complete.
func (c *caller) take(w *want) (size int, done bool) {
	if c.binary {
		return c.takeFrame(w)
	}
	end := bytes.Index(c.got, []byte("\r\n"))
	if end < 0 {
		return 0, false
	}
	line := string(c.got[:end])
	size = end + 2
	if data := dataOf(line); data >= 0 {
		if size += data + 2; size > len(c.got) {
			return 0, false
		}
	}
	word, _, _ := strings.Cut(line, " ")
	failed := word == "SERVER_ERROR" || word == "CLIENT_ERROR"
	if failed {
		c.f.errors++
		c.f.note("", "c%d: %.60q for %s", c.id, line, w)
	}
	good := false
	switch {
	case w.line != nil && w.wrote != nil:
		good, done = w.line.MatchString(line) || failed && !c.f.faultless(), true
		c.judgeWrite(w.effects, failed)
	case w.line != nil:
		good, done = w.line.MatchString(line), true
	case w.read:
		done = word == "END" || failed && !c.f.faultless()
		good = done || word == "VALUE"
		if at := strings.Fields(line); word == "VALUE" {
			c.judgeValue(w.reads, at[1], at[2], c.got[end+2:size-2])
		} else if word == "END" {
			c.judgeMisses(w.reads)
		}
	case w.stats:
		done = word == "END" || failed || word == "RESET" || word == "ERROR"
		good = done || word == "STAT"
	case w.group != nil && line == "MN":
		good, done = true, true
		c.judgeQuiet(w.group)
	case w.group != nil && failed:
		good = len(w.group) > 0 && !(c.f.faultless() && w.group[0].touches())
		w.group = w.group[min(1, len(w.group)):]
	case w.group != nil:
		i := slices.IndexFunc(w.group, func(q quietMeta) bool { return slices.Contains(strings.Fields(line), q.opaque) })
		if good = i >= 0 && !w.group[i].hides(word); good {
			c.judgeMeta(w.group[i].effects, line, c.got[end+2:size])
			c.judgeQuiet(w.group[:i])
			w.group = w.group[i+1:]
		}
	default:
		good, done = failed && !(c.f.faultless() && w.touches()) || word == "EN" || word == "NF" || slices.Contains(strings.Fields(line), w.opaque), true
		c.judgeMeta(w.effects, line, c.got[end+2:size])
	}
	if !good {
		c.f.wrong("", "c%d p%d gets %.100q as the reply to %s", c.id, c.s.id, c.got[:min(size, len(c.got))], w)
	}
	return size, done
}

// dataOf returns how many bytes of data follow a line, or -1 if none do.
func dataOf(line string) int {
	w := strings.Fields(line)
	at := 0
	switch {
	case len(w) >= 4 && w[0] == "VALUE":
		at = 3
	case len(w) >= 2 && w[0] == "VA":
		at = 1
	default:
		return -1
	}
	n, _ := strconv.Atoi(w[at])
	return n
}

// takeFrame is take for a client of the binary protocol.
func (c *caller) takeFrame(w *want) (size int, done bool) {
	if len(c.got) < 24 {
		return 0, false
	}
	body := int(binary.BigEndian.Uint32(c.got[8:]))
	if len(c.got) < 24+body {
		return 0, false
	}
	switch opaque := binary.BigEndian.Uint32(c.got[12:]); {
	case opaque != w.frame && w.quiet:
		c.judgeFrame(w, nil)
		return 0, true
	case opaque != w.frame || c.got[0] != 0x81 || c.got[1] != w.opcode:
		c.f.wrong("", "c%d p%d gets a frame of opcode %#x and opaque %d as the reply to %s", c.id, c.s.id, c.got[1], opaque, w)
	}
	status := binary.BigEndian.Uint16(c.got[6:])
	if status >= 0x80 {
		c.f.errors++
	}
	if reads := slices.Contains([]byte{0x09, 0x0d, 0x1e, 0x24}, w.opcode); w.quiet && (reads && status == 1 || !reads && status == 0) {
		c.f.wrong("", "c%d p%d gets a frame of status %d as the reply to the quiet %s", c.id, c.s.id, status, w)
	}
	c.judgeFrame(w, c.got[:24+body])
	return 24 + body, w.opcode != 0x10 || body == 0 || status != 0
}
