package discover

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"ringside/config"
	"ringside/internal/testenv"
	"ringside/proxy/live"
	"ringside/proxy/serverlist"
)

func init() { leastGap, fileEvery = 10*time.Millisecond, 20*time.Millisecond }

var quiet = slog.New(slog.DiscardHandler)

// TestWatch follows a DNS name through changes and failures. A refused connection causes each lookup,
// because the interval is long.
func TestWatch(t *testing.T) {
	ns, resolver := startDNS(t)
	ns.set("mc. A", "10.0.0.1", "10.0.0.2")
	log := &testenv.Output{}
	w := NewWatch(&Asker{Resolver: resolver}, slog.New(slog.NewTextHandler(log, nil)))
	defer w.Stop()
	const source = "dns+mc.:11211"
	f := fileOf(t, `{discover: "`+source+`", every: 1h, keep: off}`)
	w.Use(f, true)
	for _, ended := range w.First(f) {
		<-ended
	}
	awaitList(t, w, source, "10.0.0.1:11211 10.0.0.2:11211")
	<-w.Changed
	if is := w.States()[0]; is.Servers != 0 {
		t.Errorf("%d servers count before they are in force", is.Servers)
	}
	fit := func() {
		t.Helper()
		_, settle, err := w.Fit(f, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		settle(true)
	}
	fit()
	refused := func() { w.Refused(func(pool, name string) bool { return pool == "m" && name == "10.0.0.2:11211" }) }
	w.Refused(func(pool, name string) bool { return name == "10.0.0.3:11211" }) // a server of another source
	ns.set("mc. A", "10.0.0.1", "10.0.0.2", "10.0.0.3")
	if is := w.States()[0]; is.Succeeded != 1 || is.State != "ok" || is.Servers != 2 || is.At.IsZero() {
		t.Errorf("%+v", is)
	}
	refused()
	awaitList(t, w, source, "10.0.0.1:11211 10.0.0.2:11211 10.0.0.3:11211")
	<-w.Changed
	if is := w.States()[0]; is.Servers != 2 {
		t.Errorf("%d servers count, and 2 are in force", is.Servers)
	}
	fit()
	await := func(state string) live.Source {
		t.Helper()
		for end := time.Now().Add(hang); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if is := w.States()[0]; is.State == state {
				return is
			}
		}
		t.Fatalf("%+v is not %s", w.States()[0], state)
		return live.Source{}
	}
	ns.mu.Lock()
	ns.rcode = dns.RcodeServerFailure
	ns.mu.Unlock()
	refused()
	if is := await("failing"); is.Servers != 3 || is.Failed != 1 || !strings.Contains(is.Problem, "server misbehaving") {
		t.Errorf("%+v", is)
	}
	refused()
	for w.States()[0].Failed < 2 {
		time.Sleep(time.Millisecond)
	}
	if n := strings.Count(log.String(), "the servers of a source stay as they are"); n != 1 {
		t.Errorf("%d warnings", n)
	}
	ns.mu.Lock()
	ns.rcode = 0
	ns.mu.Unlock()
	ns.set("mc. A", "10.0.0.7")
	refused()
	if is := await("held"); is.Added != 1 || is.Removed != 3 || is.Servers != 3 {
		t.Errorf("%+v", is)
	}
	for _, inForce := range []bool{false, true, true} { // the first configuration is rejected, and the last one has nothing to accept
		_, settle, err := w.Fit(f, true, nil)
		if err != nil {
			t.Fatal(err)
		}
		if settle(inForce); !inForce && w.States()[0].State != "held" {
			t.Error("a rejected configuration has accepted the answer")
		}
	}
	awaitList(t, w, source, "10.0.0.7:11211")
	if strings.Count(log.String(), "operator accepted") != 1 || strings.Count(log.String(), "level=WARN") != 2 {
		t.Error(log.String())
	}
	w.Use(fileOf(t, "[a]"), true)
	if _, known := w.Servers("m", source); known || len(w.States()) != 0 {
		t.Error("a source that is not used any more has servers")
	}
}

// TestResolverHangs checks that a lookup that ignores its time limit blocks nothing, and that there is
// only one of them.
func TestResolverHangs(t *testing.T) {
	ended := make(chan struct{})
	defer close(ended)
	hangs := &Asker{ReadFile: func(string) ([]byte, error) { <-ended; return nil, nil }}
	f := &feed{Watch: NewWatch(hangs, quiet), text: mustParse(t, "file+/servers"), tried: make(chan struct{}), memory: newMemory(0), lookups: map[serverlist.State]uint64{}}
	f.source.Source = f.text
	f.limit = 10 * time.Millisecond
	for range 3 {
		f.lookUp(t.Context())
	}
	<-f.tried
	if f.lookups[serverlist.Failing] != 3 || f.list.Problem != "no answer within 10ms" || !f.asking {
		t.Errorf("%d failures, %q, a lookup runs: %v", f.lookups[serverlist.Failing], f.list.Problem, f.asking)
	}
}

func TestNextGap(t *testing.T) {
	gap := leastGap
	for i, want := range []time.Duration{2 * leastGap, 4 * leastGap, 5 * leastGap, 5 * leastGap} {
		if gap = nextGap(gap, 5*leastGap, true); gap != want {
			t.Errorf("after %d lookups: %v, want %v", i+1, gap, want)
		}
	}
	if is := nextGap(gap, 5*leastGap, false); is != leastGap {
		t.Error(is)
	}
	if is := nextGap(leastGap, 0, true); is != leastGap {
		t.Error(is)
	}
}

// TestPipe checks that a pipe without a writer does not block a lookup.
func TestPipe(t *testing.T) {
	if _, err := (&Asker{}).Ask(t.Context(), mustParse(t, "file+"+fifo(t))); err == nil || !strings.HasSuffix(err.Error(), "it is not a regular file") {
		t.Error(err)
	}
}

// TestUnfitSource checks that a source with servers that do not fit the configuration affects no other
// source: its pool keeps the servers that it had.
func TestUnfitSource(t *testing.T) {
	log := &testenv.Output{}
	one, two := serverlist.Server{Name: "10.0.0.1:1", Address: "10.0.0.1:1"}, serverlist.Server{Name: "10.0.0.2:1", Address: "10.0.0.2:1"}
	w := NewWatch(&Asker{}, slog.New(slog.NewTextHandler(log, nil)))
	f, err := config.Parse("f", []byte("listen: 127.0.0.1:1\npools:\n  a: {distribution: jump, servers: [10.0.0.9:1, file+/a]}\n  b: {distribution: jump, servers: [file+/b]}\nroutes: [{prefix: \"a\", pool: a}, {pool: b}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range f.Pools {
		s := f.Pools[i].Sources[0]
		w.feeds = append(w.feeds, &feed{Watch: w, pool: f.Pools[i].Name, text: s.Source, source: s, tried: make(chan struct{}), lookups: map[serverlist.State]uint64{}})
	}
	fits := func(pools ...string) {
		t.Helper()
		g, settle, err := w.Fit(f, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		settle(true)
		for i := range g.Pools {
			var names []string
			for _, s := range g.Pools[i].Servers {
				names = append(names, s.Address.Address)
			}
			if is := strings.Join(names, " "); is != pools[i] {
				t.Errorf("pool %s has %q, want %q", g.Pools[i].Name, is, pools[i])
			}
		}
	}
	bad := serverlist.Server{Name: "10.0.0.9:1", Address: "10.0.0.8:1"} // also listed as fixed, with another address
	w.feeds[0].take(time.Now(), answer{servers: []serverlist.Server{bad}})
	w.feeds[1].take(time.Now(), answer{servers: []serverlist.Server{one}})
	fits("", "10.0.0.1:1") // the pool a has no usable answer yet
	if is := w.States(); is[0].State != "failing" || is[0].Problem == "" || is[1].State != "ok" {
		t.Errorf("%+v", is)
	}
	if list := w.Lists(); !strings.Contains(list[0].Problem, "10.0.0.9:1") || list[1].Problem != "" {
		t.Errorf("%+v", list)
	}
	w.feeds[0].source.MaxChange, w.feeds[1].source.MaxChange = 100, 100
	three := serverlist.Server{Name: "10.0.0.3:1", Address: "10.0.0.3:1"}
	w.feeds[0].take(time.Now(), answer{servers: []serverlist.Server{three}})
	fits("10.0.0.9:1 10.0.0.3:1", "10.0.0.1:1")
	w.feeds[0].take(time.Now(), answer{servers: []serverlist.Server{one, three}}) // both pools eject, so they can't share a server
	w.feeds[1].take(time.Now(), answer{servers: []serverlist.Server{one, two}})
	fits("10.0.0.9:1 10.0.0.3:1", "10.0.0.1:1 10.0.0.2:1")

	// Each mistake and each recovery is logged once.
	for i := range 2 {
		if n := strings.Count(log.String(), "stay as they are"); n != i+2 {
			t.Errorf("round %d: %d warnings\n%s", i, n, log.String())
		}
		for range 2 {
			w.feeds[0].take(time.Now(), answer{servers: []serverlist.Server{three}})
			fits("10.0.0.9:1 10.0.0.3:1", "10.0.0.1:1 10.0.0.2:1")
		}
		if n := strings.Count(log.String(), "answers again"); n != i+2 {
			t.Errorf("round %d: %d recoveries\n%s", i, n, log.String())
		}
		for range 2 {
			w.feeds[0].take(time.Now(), answer{servers: []serverlist.Server{three, bad}})
			fits("10.0.0.9:1 10.0.0.3:1", "10.0.0.1:1 10.0.0.2:1")
			fits("10.0.0.9:1 10.0.0.3:1", "10.0.0.1:1 10.0.0.2:1")
		}
	}

	// A server that has returned is not removed at once after a wrong answer, although it was gone for a time.
	b := w.feeds[1]
	now := time.Now()
	b.source.Keep = time.Minute
	for _, step := range []struct {
		after   time.Duration
		servers []serverlist.Server
	}{
		{0, []serverlist.Server{one}},             // the server two is gone
		{0, []serverlist.Server{one, two}},        // it returns
		{time.Hour, []serverlist.Server{three}},   // a wrong answer: the pool a has this server
		{time.Hour, []serverlist.Server{one}},     // it is gone again
		{time.Hour + 1, []serverlist.Server{one}}, // not for long
	} {
		b.take(now.Add(step.after), answer{servers: step.servers})
		fits("10.0.0.9:1 10.0.0.3:1", "10.0.0.1:1 10.0.0.2:1")
	}
}

// TestRejectedFile checks that servers that were only part of a rejected file do not replace those in force,
// and that a source that only that file has is not used.
func TestRejectedFile(t *testing.T) {
	parsed := func(fixed string) *config.File {
		f, err := config.Parse("f", []byte("listen: 127.0.0.1:1\npools: {a: {distribution: jump, servers: ["+fixed+"file+/a]}}\n"))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	inForce, rejected := parsed("10.0.0.9:1, "), parsed("")
	s := inForce.Pools[0].Sources[0]
	s.MaxChange = 100
	w := NewWatch(&Asker{}, quiet)
	for _, pool := range []string{"a", "b"} {
		w.feeds = append(w.feeds, &feed{Watch: w, pool: pool, text: s.Source, source: s, tried: make(chan struct{}), lookups: map[serverlist.State]uint64{}})
	}
	list := func(f *config.File, adopted bool) (names string) {
		g, settle, err := w.Fit(f, true, nil)
		if err != nil {
			t.Fatal(err)
		}
		if f == inForce {
			settle(adopted)
		}
		for _, s := range g.Pools[0].Servers {
			names += s.Address.Address + " "
		}
		return names
	}
	one, bad := serverlist.Server{Name: "10.0.0.1:1", Address: "10.0.0.1:1"}, serverlist.Server{Name: "10.0.0.9:1", Address: "10.0.0.9:1"}
	w.feeds[0].take(time.Now(), answer{servers: []serverlist.Server{one}})
	if is := list(inForce, true); is != "10.0.0.9:1 10.0.0.1:1 " {
		t.Error(is)
	}
	w.feeds[0].take(time.Now(), answer{servers: []serverlist.Server{one, bad}})
	if is := list(rejected, false); is != "10.0.0.1:1 10.0.0.9:1 " {
		t.Error(is)
	}
	for range 2 {
		if is := list(inForce, false); is != "10.0.0.9:1 10.0.0.1:1 " {
			t.Error(is)
		}
	}
	if w.feeds[1].good != nil || len(w.feeds[0].good) != 1 {
		t.Errorf("in force: %v, %v", w.feeds[0].good, w.feeds[1].good)
	}
}

func TestFileIsWatched(t *testing.T) {
	path := filepath.Join(t.TempDir(), "servers")
	w := NewWatch(&Asker{}, quiet)
	defer w.Stop()
	source := "file+" + path
	w.Use(fileOf(t, `{discover: "`+source+`", every: 1h}`), true)
	for _, ended := range w.First(fileOf(t, source)) {
		<-ended
	}
	if is := w.States()[0]; is.State != "failing" || w.Why("m") == "" {
		t.Errorf("%+v", is)
	}
	if err := os.WriteFile(path, []byte("10.0.0.1 name=a\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	awaitList(t, w, source, "a=10.0.0.1:11211")
	if w.Why("m") != "" {
		t.Error(w.Why("m"))
	}
}

// Servers returns the servers that a source has now.
func (w *Watch) Servers(pool, source string) (servers []serverlist.Server, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f := w.find(pool, source); f != nil {
		return f.list.Servers()
	}
	return nil, false
}

// TestTooManyServersAreLogged checks that the log has a warning when servers of a source are removed
// before the time keep has passed, because there are too many.
func TestTooManyServersAreLogged(t *testing.T) {
	log := &testenv.Output{}
	f := &feed{Watch: NewWatch(nil, slog.New(slog.NewTextHandler(log, nil))), tried: make(chan struct{}), lookups: map[serverlist.State]uint64{}}
	f.source.Settings = serverlist.Settings{Keep: time.Hour, MaxChange: 100}
	for round, warnings := range []int{0, 0, 1, 1} {
		a := answer{}
		for i := range 400 {
			name := fmt.Sprintf("mc-%d-%d:1", min(round, 2), i)
			a.servers = append(a.servers, serverlist.Server{Name: name, Address: name, Weight: 1})
		}
		f.take(time.Unix(int64(round), 0), a)
		if n := strings.Count(log.String(), "removed=200 most=1000"); n != warnings || strings.Count(log.String(), "level=WARN") != n {
			t.Errorf("round %d: %d warnings, want %d", round, n, warnings)
		}
	}
}

// TestLookupAfterKeep checks that the end of the time keep of a missing server causes one lookup. After
// a lookup that has failed, the next one waits for the usual time.
func TestLookupAfterKeep(t *testing.T) {
	f := &feed{Watch: NewWatch(nil, quiet), source: config.Source{Every: time.Hour, Settings: serverlist.Settings{Keep: time.Minute, MaxChange: 100}}}
	began := time.Unix(1000, 0)
	for _, names := range [][]string{{"a:1", "b:1"}, {"a:1"}} {
		var answer []serverlist.Server
		for _, name := range names {
			answer = append(answer, serverlist.Server{Name: name, Address: name})
		}
		f.list.Answer(began, answer, f.source.Settings)
	}
	if due, _ := f.next(began.Add(time.Second)); !due.Equal(began.Add(time.Minute)) {
		t.Errorf("before the time has passed: the next lookup is %v after the first", due.Sub(began))
	}
	ended := began.Add(time.Minute + time.Second)
	f.list.Fail(os.ErrDeadlineExceeded)
	if due, _ := f.next(ended); !due.Equal(ended.Add(time.Hour)) {
		t.Errorf("after a failed lookup: the next one is %v later", due.Sub(ended))
	}
}
