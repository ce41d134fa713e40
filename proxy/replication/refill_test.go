package replication_test

// Tests of filling replicas with many keys, with simulated memcacheds.

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"ringside/proxy/conversation"
	"ringside/proxy/health"
	"ringside/proxy/link"
	"ringside/proxy/replication"
	"ringside/proxy/stats"
	"ringside/proxy/upstream"
)

// copyServer simulates a memcached with all commands that copies uses.
type copyServer struct {
	pid   int
	cas   int
	items map[string]copyItem
	dumps []string
	mute  string // prefix of commands that get no reply
}

type copyItem struct {
	value string
	cas   int
	flags string // empty means 0
}

// troupe is a harness with simulated servers.
type troupe struct {
	*conversation.Harness
	servers map[string]*copyServer
	most    int // highest number of picks of a replica
}

func newTroupe(t *testing.T, script string) *troupe {
	tr := &troupe{Harness: conversation.New(t), servers: map[string]*copyServer{}}
	tr.Quiet = true
	for line := range strings.Lines(script) {
		tr.Line(strings.TrimSpace(line))
	}
	tr.Begin()
	for _, srv := range tr.Engine.List {
		tr.servers[srv.Target.Name] = &copyServer{pid: 1, items: map[string]copyItem{}}
	}
	tr.play()
	return tr
}

// play delivers requests and replies until no request is left.
func (tr *troupe) play() {
	for busy := true; busy; {
		busy = false
		var names []string
		for name := range tr.Endpoints {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			a, m := tr.Endpoints[name], tr.servers[strings.TrimRight(name, "'")]
			if m == nil {
				continue
			}
			if a.Link == nil { // unread requests are lost
				a.Got.Reset()
			}
			for a.Link != nil {
				answer, n := m.answer(a.Got.Bytes())
				if n == 0 {
					break
				}
				busy = true
				a.Got.Next(n)
				if answer != "" {
					tr.Wakeup(func() { tr.Engine.Bytes(a.Link, conversation.AddOpaques(a.Link.End.(*upstream.Conn), []byte(answer))) })
				}
			}
		}
		for _, w := range tr.Engine.Ledgers {
			for i := range w.Members {
				if f := w.Members[i].Resync; f != nil {
					tr.most = max(tr.most, len(f.Picks))
				}
			}
		}
	}
}

// answer serves the first request in b, and returns its length.
func (m *copyServer) answer(b []byte) (string, int) {
	end := bytes.Index(b, []byte("\r\n"))
	if end < 0 || m.mute != "" && strings.HasPrefix(string(b), m.mute) {
		return "", 0
	}
	f := strings.Fields(string(b[:end]))
	n := end + 2
	key := ""
	if len(f) > 1 {
		key = f[1]
	}
	if slices.Contains(f, "b") {
		raw, _ := base64.StdEncoding.DecodeString(key)
		key = string(raw)
	}
	arg := func(c byte) string {
		for _, w := range f[2:] {
			if w[0] == c && len(w) > 1 {
				return w[1:]
			}
		}
		return ""
	}
	it, ok := m.items[key]
	put := func(value, flags string) {
		m.cas++
		m.items[key] = copyItem{value, m.cas, flags}
	}
	switch f[0] {
	case "mn":
		return "MN\r\n", n
	case "stats":
		return fmt.Sprintf("STAT pid %d\r\nSTAT uptime 9\r\nSTAT time %d\r\nEND\r\n", m.pid, 1000*m.pid), n
	case "flush_all":
		clear(m.items)
		return "OK\r\n", n
	case "lru_crawler":
		m.dumps = append(m.dumps, f[2])
		var out strings.Builder
		for key := range m.items {
			fmt.Fprintf(&out, "key=%s exp=-1 la=1 cas=1 fetch=no cls=1 size=70\n", strings.ReplaceAll(url.QueryEscape(key), "+", "%20"))
		}
		return out.String() + "END\r\n", n
	case "get":
		if !ok {
			return "END\r\n", n
		}
		return fmt.Sprintf("VALUE %s 0 %d\r\n%s\r\nEND\r\n", key, len(it.value), it.value), n
	case "delete":
		delete(m.items, key)
		return map[bool]string{true: "DELETED\r\n", false: "NOT_FOUND\r\n"}[ok], n
	case "set":
		size, _ := strconv.Atoi(f[4])
		put(string(b[n:n+size]), f[2])
		return "STORED\r\n", n + size + 2
	case "mg":
		if !ok {
			return "EN\r\n", n
		}
		if !slices.Contains(f, "v") {
			return fmt.Sprintf("HD f%s t-1 s%d c%d\r\n", cmp.Or(it.flags, "0"), len(it.value), it.cas), n
		}
		return fmt.Sprintf("VA %d f%s t-1 s%d c%d\r\n%s\r\n", len(it.value), cmp.Or(it.flags, "0"), len(it.value), it.cas, it.value), n
	case "ms":
		size, _ := strconv.Atoi(f[2])
		value, n := string(b[n:n+size]), n+size+2
		switch want := arg('C'); {
		case want != "" && !ok:
			return "NF\r\n", n
		case want != "" && want != strconv.Itoa(it.cas):
			return "EX\r\n", n
		case arg('M') == "E" && ok:
			return "NS\r\n", n
		}
		put(value, arg('F'))
		if slices.Contains(f, "c") {
			return fmt.Sprintf("HD c%d\r\n", m.cas), n
		}
		return "HD\r\n", n
	case "md":
		if want := arg('C'); ok && want != "" && want != strconv.Itoa(it.cas) {
			return "EX\r\n", n
		}
		delete(m.items, key)
		return map[bool]string{true: "HD\r\n", false: "NF\r\n"}[ok], n
	}
	return "ERROR\r\n", n
}

// restart empties a server and closes its connections.
func (tr *troupe) restart(name string) {
	m := tr.servers[name]
	m.pid++
	clear(m.items)
	tr.hangUp(name)
}

func (tr *troupe) hangUp(name string) {
	for actor, a := range tr.Endpoints {
		if l := a.Link; l != nil && strings.TrimRight(actor, "'") == name {
			a.Link = nil
			a.Got.Reset()
			tr.Wakeup(func() { tr.Engine.Closed(l, nil) })
		}
	}
}

// client sends a command to the proxy and returns the reply.
func (tr *troupe) client(text string) string {
	c := tr.Endpoint("c1")
	tr.Wakeup(func() { tr.Engine.Bytes(c.Link, []byte(text+"\r\n")) })
	tr.play()
	defer c.Got.Reset()
	return c.Got.String()
}

// pass advances the clock until ok, and returns by how much. It fails after an hour.
func (tr *troupe) pass(what string, ok func() bool) time.Duration {
	tr.T.Helper()
	begin := tr.Now
	for !ok() {
		if tr.Now-begin > int64(time.Hour) {
			tr.T.Fatalf("an hour later: not %s", what)
		}
		tr.Now = max(tr.Engine.Next(), tr.Now+int64(time.Millisecond))
		tr.Wakeup(func() {})
		tr.play()
	}
	return time.Duration(tr.Now - begin)
}

func (tr *troupe) lacks(name string) bool {
	for _, w := range tr.Engine.Ledgers {
		for i, srv := range w.Servers {
			if srv.Target.Name == name && (w.Members[i].Incomplete || srv.Unidentified) {
				return true
			}
		}
	}
	return false
}

func (tr *troupe) whole(names ...string) func() bool {
	return func() bool {
		is := &stats.Snapshot{}
		tr.Engine.Snapshot(is)
		return !is.Moving && !slices.ContainsFunc(names, tr.lacks)
	}
}

// notice makes the proxy notice that servers were restarted.
func (tr *troupe) notice() {
	for i := range 3 {
		tr.client(fmt.Sprintf("get none%d", i+1))
	}
}

const twoOfThree = "pool main servers=s1,s2,s3\nroute - main copies=2\n"

// TestRefill fills a server with more keys than the window of a pass.
func TestRefill(t *testing.T) {
	const keys = 3*replication.Window + 100
	tr := newTroupe(t, twoOfThree)
	for i := range keys {
		key := fmt.Sprintf("key %d 1", i) // of s1 and s2
		tr.servers["s2"].items[key] = copyItem{value: key}
		tr.servers["s3"].items[fmt.Sprintf("%d.2", i)] = copyItem{value: "of s2 and s3"}
	}
	tr.notice()
	tr.restart("s1")
	tr.notice()
	if !tr.lacks("s1") || tr.lacks("s2") || tr.lacks("s3") {
		t.Fatal("s1 alone should lack something")
	}
	took := tr.pass("whole", tr.whole("s1"))
	if got := len(tr.servers["s1"].items); got != keys {
		t.Errorf("s1 has %d keys, want %d", got, keys)
	}
	if v := tr.servers["s1"].items["key 77 1"].value; v != "key 77 1" {
		t.Errorf("s1 has %q", v)
	}
	if tr.most >= 2*replication.Window {
		t.Errorf("%d keys were remembered at once, want less than %d", tr.most, 2*replication.Window)
	}
	if least := time.Duration(keys-101) * time.Millisecond; took < least {
		t.Errorf("%d keys in %v, want at least %v", keys, took, least)
	}
	if n := len(tr.servers["s2"].dumps); n != 8 {
		t.Errorf("%d listings of s2, want 8: four to copy what is missing, four to find that nothing is", n)
	}
	if tr.Engine.Count.Refilled != keys || len(tr.Engine.Lines) != 0 || tr.Engine.Copying != 0 {
		t.Errorf("%d keys counted, %d keys in use, %d repairs at work", tr.Engine.Count.Refilled, len(tr.Engine.Lines), tr.Engine.Copying)
	}
}

// TestRefillByHash checks that a server with complete listings is listed once.
func TestRefillByHash(t *testing.T) {
	tr := newTroupe(t, "pool main servers=s1,s2\nroute - main copies=2\n")
	tr.Release = "1.6.31"
	tr.notice()
	tr.client("set a1 0 0 1\r\nx")
	tr.restart("s1")
	tr.notice()
	tr.pass("whole", tr.whole("s1"))
	if len(tr.servers["s1"].items) != 1 || !slices.Equal(tr.servers["s2"].dumps, []string{"hash"}) {
		t.Errorf("s1 has %v after listings %q of s2, want one by hash", tr.servers["s1"].items, tr.servers["s2"].dumps)
	}
}

// TestRefillBoth empties two servers, one after the other. In the end both must have
// the keys that either of them got in between.
func TestRefillBoth(t *testing.T) {
	tr := newTroupe(t, "pool main servers=s1,s2\nroute - main copies=2 repair=10\n")
	tr.notice()
	for i := range 30 {
		tr.client(fmt.Sprintf("set %d.1 0 0 1\r\nx", i))
	}
	tr.restart("s1")
	tr.notice()
	tr.pass("half filled", func() bool { return len(tr.servers["s1"].items) > 15 })
	tr.restart("s2")
	tr.notice()
	tr.client("set new.2 0 0 1\r\nx")
	had := len(tr.servers["s1"].items)
	tr.pass("whole", tr.whole("s1", "s2"))
	if a, b := len(tr.servers["s1"].items), len(tr.servers["s2"].items); a < had || b != a {
		t.Errorf("s1 has %d keys, s2 %d; want %d", a, b, had)
	}
}

// TestRefillInterrupted checks that a refill is completed after each kind of
// interruption.
func TestRefillInterrupted(t *testing.T) {
	for name, f := range map[string]func(tr *troupe){
		"the source's connections end": func(tr *troupe) { tr.hangUp("s2") },
		"the target's connections end": func(tr *troupe) { tr.hangUp("s1") },
		"the target is started again":  func(tr *troupe) { tr.restart("s1"); tr.notice() },
		"the target hangs": func(tr *troupe) {
			tr.servers["s1"].mute = "m"
			tr.pass("noticed", func() bool { return tr.Engine.List[0].Down })
			tr.servers["s1"].mute = ""
			tr.hangUp("s1")
		},
		"the target is away": func(tr *troupe) {
			tr.Endpoint("s1").Mode = "refuses"
			tr.hangUp("s1")
			tr.notice()
			tr.pass("waited", func() bool { return tr.Now > int64(2*time.Hour) })
			tr.Endpoint("s1").Mode = ""
		},
		"the source is away": func(tr *troupe) {
			tr.Endpoint("s2").Mode = "refuses"
			tr.hangUp("s2")
			tr.notice()
			start := tr.Now
			tr.pass("waited", func() bool { return tr.Now > start+int64(time.Minute) })
			if !tr.lacks("s1") {
				tr.T.Error("s1 is taken to be whole, though s2 could not be asked")
			}
			tr.Endpoint("s2").Mode = ""
		},
		"a reload": func(tr *troupe) {
			tr.Line("reload")
			for line := range strings.Lines(twoOfThree) {
				tr.Line(strings.TrimSpace(line))
			}
			tr.Begin()
		},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTroupe(t, twoOfThree)
			tr.Now = int64(time.Hour)
			tr.notice()
			for i := range 300 {
				tr.servers["s2"].items[fmt.Sprintf("%d.1", i)] = copyItem{value: "x"}
			}
			tr.restart("s1")
			tr.notice()
			tr.pass("begun", func() bool { return len(tr.servers["s1"].items) > 110 })
			f(tr)
			tr.notice()
			tr.pass("whole", tr.whole("s1"))
			if got := len(tr.servers["s1"].items); got != 300 {
				t.Errorf("s1 has %d keys, want 300", got)
			}
			tr.pass("quiet", func() bool { return tr.Engine.Copying == 0 && len(tr.Engine.Lines) == 0 })
		})
	}
}

// TestRefillRoutes checks that only keys of routes with replicas are copied, under the
// names that servers know.
func TestRefillRoutes(t *testing.T) {
	tr := newTroupe(t, "pool main servers=s1,s2,s3\nroute sess: main copies=2 strip\nroute one: main\nroute two: main copies=2\nroute two:not main\nroute - main\nroute - main match=*:never\n")
	tr.notice()
	for _, key := range []string{"one:a1", "two:b1", "two:notc1", "__rs~2~d1", "two:e2", "two:f3"} {
		tr.servers["s2"].items[key] = copyItem{value: key}
	}
	tr.client("set sess:g1 0 0 1\r\nx")
	tr.restart("s1")
	tr.client("get two:x1")
	tr.pass("whole", tr.whole("s1"))
	var got []string
	for key := range tr.servers["s1"].items {
		got = append(got, key)
	}
	slices.Sort(got)
	// Servers can't tell one:a1 from the key of sess:one:a1. The copy on s1 does no harm,
	// because a key with one replica is read from its own server.
	want := []string{"g1", "one:a1", "two:b1", "two:notc1"}
	if !slices.Equal(got, want) {
		t.Errorf("s1 has %q, want %q", got, want)
	}
	if got := tr.client("get sess:g1"); got != "VALUE sess:g1 0 1\r\nx\r\nEND\r\n" {
		t.Errorf("got %q", got)
	}
}

// TestRefillNewServers checks that all servers are filled after a reload has changed
// the servers of the pool.
func TestRefillNewServers(t *testing.T) {
	tr := newTroupe(t, "pool main servers=s1,s2\nroute - main\n")
	for i := range 50 {
		tr.client(fmt.Sprintf("set %d.%d 0 0 1\r\nx", i, i%2+1))
	}
	if n := len(tr.servers["s1"].items); n != 25 {
		t.Fatalf("s1 has %d keys of one replica, want 25", n)
	}
	for _, script := range []string{"pool main servers=s1,s2\nroute - main copies=2", "pool main servers=s1,s2,s3\nroute - main copies=3"} {
		tr.Line("reload")
		for line := range strings.Lines(script) {
			tr.Line(strings.TrimSpace(line))
		}
		tr.Begin()
		for _, srv := range tr.Engine.List {
			if tr.servers[srv.Target.Name] == nil {
				tr.servers[srv.Target.Name] = &copyServer{pid: 1, items: map[string]copyItem{}}
			}
		}
		tr.play()
		tr.Line("handover is done")
		tr.pass("whole", tr.whole("s1", "s2", "s3"))
		for name, m := range tr.servers {
			if len(m.items) != 50 {
				t.Errorf("%s has %d keys, want 50", name, len(m.items))
			}
		}
	}
}

// TestRefillOff checks that without repairs a replica counts as complete after a time,
// with nothing copied.
func TestRefillOff(t *testing.T) {
	tr := newTroupe(t, "pool main servers=s1,s2\nroute - main copies=2 repair=0\n")
	tr.notice()
	tr.client("set a1 0 0 1\r\nx")
	tr.restart("s1")
	tr.notice()
	if got := tr.client("get a1"); got != "VALUE a1 0 1\r\nx\r\nEND\r\n" {
		t.Errorf("got %q", got)
	}
	tr.pass("taken for whole", tr.whole("s1"))
	if len(tr.servers["s1"].items) != 0 || len(tr.servers["s2"].dumps) != 0 {
		t.Error("something was copied")
	}
}

// TestViewMadeAnew checks a reload that changes only the failover settings of a pool,
// which creates a new view. The numbers that the view learns are no flush, unless one
// is higher than before. So missed writes stay remembered.
func TestViewMadeAnew(t *testing.T) {
	tr := newTroupe(t, "pool main servers=s1,s2\nroute - main copies=2 ack=one\n")
	while := func() {
		t.Helper()
		end := tr.Now + int64(5*time.Second)
		tr.pass("later", func() bool { return tr.Now >= end })
	}
	tr.notice()
	tr.SetPhase("s2", "OUT")
	tr.SetPhase("s2", "IN")
	while()
	m := &tr.Engine.Ledgers["main"].Members[1]
	m.MissedWrite(1, []byte("key"), []byte("key"), false) // stays dirty after its delete there
	before := tr.Engine.Pools[0].View
	view := health.NewView(before.Len())
	learn := func(n uint32) {
		view.Set(0, before.N(0), false, 0, link.Never)
		view.Set(1, n, false, 0, link.Never)
		view.Done(uint64(n), true)
		while()
	}
	tr.Engine.Pools[0].View = view
	while()
	if learn(before.N(1)); !m.Dirty(1) {
		t.Error("it counts as flushed, and what it has missed is forgotten")
	}
	if learn(before.N(1) + 6); m.Dirty(1) {
		t.Error("its flush is not noticed")
	}
}

// TestOverfull checks that an overflowed server is not read. The ledger must not flush
// it, because other instances would not know. Instead it asks the keepers to eject it,
// but not while another server is incomplete.
func TestOverfull(t *testing.T) {
	tr := newTroupe(t, "pool main servers=s1,s2\nroute - main copies=2 ack=one\n")
	tr.notice()
	tr.client("set old1 0 0 1\r\nx")
	tr.SetPhase("s2", "SUSPECT")
	for i := range replication.DirtyKeys + 1 {
		tr.client(fmt.Sprintf("set %d.1 0 0 1\r\nx", i))
	}
	view := tr.Engine.Pools[0].View
	tr.servers["s2"].items["7.1"] = copyItem{value: "older"}
	tr.Engine.Ledgers["main"].Members[0].Incomplete = true
	tr.SetPhase("s2", "IN")
	if got := tr.client("get 7.1"); got != "VALUE 7.1 0 1\r\nx\r\nEND\r\n" {
		t.Errorf("got %q", got)
	}
	tr.pass("s1 is whole", tr.whole("s1"))
	tr.pass("s2 is to leave", func() bool { return view.Unfit(1) })
	if n := len(tr.servers["s2"].items); n == 0 {
		t.Error("s2 was emptied, and only this process knows")
	}
	tr.SetPhase("s2", "OUT")
	if view.Unfit(1) {
		t.Error("it is to leave once more")
	}
	clear(tr.servers["s2"].items)
	tr.SetPhase("s2", "IN")
	tr.pass("s2 lacks all", func() bool { return tr.lacks("s2") })
	tr.pass("whole", tr.whole("s2"))
	if a, b := len(tr.servers["s2"].items), len(tr.servers["s1"].items); a != b || b != replication.DirtyKeys+2 {
		t.Errorf("s2 has %d keys, s1 %d, want %d", a, b, replication.DirtyKeys+2)
	}
	if view.Unfit(1) {
		t.Error("it is to leave again")
	}
}

// TestFlushedOnTheWayBackToAnotherPool checks that every ledger with a server notices
// each flush of it, also a flush by another pool's keepers.
func TestFlushedOnTheWayBackToAnotherPool(t *testing.T) {
	tr := newTroupe(t, "pool main servers=s1,s2\npool also servers=s1,s2\nroute a: also copies=2\nroute - main copies=2\n")
	tr.notice()
	tr.client("set a:1.1 0 0 1\r\nx")
	for _, w := range tr.Proxy.Agents() {
		if w.Pool == "main" {
			w.View.Set(1, 6, false, 0, link.Never)
			w.View.Done(w.View.Gen()+1, true)
		}
	}
	clear(tr.servers["s2"].items)
	tr.client("get a:2.1") // a miss, which uses the ledger
	if !tr.Engine.Ledgers["also"].Members[1].Incomplete {
		t.Error("the other pool takes s2 for whole")
	}
	tr.pass("whole", tr.whole("s2"))
	if _, has := tr.servers["s2"].items["a:1.1"]; !has {
		t.Errorf("s2 has not got the other pool's key back")
	}
}
