package drill

// Tests of the drill with a cache that sends false replies on purpose. The drill must
// detect all of them.

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ringside/internal/testenv"
	"ringside/proxy/admin"
	"ringside/proxy/fault"
	"ringside/proxy/live"
)

// liar is a cache with a control API. While a fault is set it sends false replies of
// one kind.
type liar struct {
	lie     string // stale, wrong, miss, refuse, silent, cut, down, repeat, torn, doubled, twice; none
	other   string // when a second server is down: before or during the fault; empty: never
	deaf    int    // number of queries about servers that are not answered during a fault
	ends    string // what ends the drill: restart (the fault is lost), or removed (the server is); empty: nothing
	allowed bool

	mu     sync.Mutex
	items  map[string][]string // all values of a key, the last is current; "" means deleted
	broken bool
	lifted int
}

func (l *liar) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	state := live.Up
	switch r.Method {
	case "POST":
		l.broken = true
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, `{"id":1,"server":"s1","kind":"hang"}`)
		return
	case "DELETE":
		l.broken = false
		l.lifted++
		io.WriteString(w, `{}`)
		return
	}
	if l.broken && l.lie == "down" {
		state = live.Down
	}
	if r.URL.Path == "/control/faults" {
		faults := ""
		if l.broken {
			faults = `{"id":1,"server":"s1","kind":"hang"}`
		}
		fmt.Fprintf(w, `{"allowed":%v,"faults":[%s]}`, l.allowed, faults)
		return
	}
	if l.broken && l.ends == "removed" {
		io.WriteString(w, `{"servers":[]}`)
		return
	}
	l.broken = l.broken && l.ends != "restart"
	if l.broken && l.deaf > 0 {
		l.deaf--
		w.WriteHeader(http.StatusServiceUnavailable)
		io.WriteString(w, `{"error":"a loop did not answer within a second"}`)
		return
	}
	second := live.Up
	if l.other == "before" || l.other == "during" && l.broken {
		second = live.Down
	}
	json.NewEncoder(w).Encode(map[string]any{"servers": []live.ServerState{{Pool: "p", Server: "s1", Address: "a:1", State: state},
		{Pool: "q", Server: "again", Address: "a:1", State: state}, {Pool: "p", Server: "s2", Address: "a:2", State: second, Why: "connection refused"}}})
}

func (l *liar) serve(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	for n := 0; ; n++ {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		f := strings.Fields(line)
		body := ""
		if f[0] == "set" || f[0] == "add" || f[0] == "append" {
			size := 0
			fmt.Sscan(f[4], &size)
			b := make([]byte, size+2)
			if _, err := io.ReadFull(r, b); err != nil {
				return
			}
			body = string(b[:size])
		}
		answer := l.answer(f, body, n)
		if answer == "" {
			return
		}
		if _, err := io.WriteString(c, answer); err != nil {
			return
		}
	}
}

func (l *liar) answer(f []string, body string, n int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lie := ""
	if l.broken && n%3 == 0 {
		lie = l.lie
	}
	key := f[1]
	had := l.items[key]
	now, add := "", ""
	if len(had) > 0 {
		now = had[len(had)-1]
	}
	switch {
	case lie == "cut":
		return ""
	case lie == "refuse":
		return "SERVER_ERROR no\r\n"
	case f[0] == "incr" && lie == "repeat" && now != "":
		return now + "\r\n"
	case f[0] == "incr" && now != "":
		n := 0
		fmt.Sscan(now, &n)
		add = fmt.Sprint(n + 1)
		l.items[key] = append(had, add)
		return add + "\r\n"
	case f[0] == "incr":
		return "NOT_FOUND\r\n"
	case f[0] == "append" && now == "", f[0] == "add" && now != "" && lie != "twice":
		return "NOT_STORED\r\n"
	case f[0] == "append" && lie == "torn":
		return "STORED\r\n"
	case f[0] == "append" && lie == "doubled":
		l.items[key] = append(had, now+body+body)
		return "STORED\r\n"
	case f[0] == "append":
		l.items[key] = append(had, now+body)
		return "STORED\r\n"
	case f[0] == "set", f[0] == "add":
		l.items[key] = append(had, body)
		return "STORED\r\n"
	case f[0] == "delete" && now == "":
		return "NOT_FOUND\r\n"
	case f[0] == "delete":
		l.items[key] = append(had, "")
		return "DELETED\r\n"
	case lie == "miss":
		now = ""
	case lie == "stale" && len(had) > 1:
		now = had[0]
	case lie == "wrong" && now != "":
		now = now[:len(now)-1] + "?"
	}
	if now == "" {
		return "END\r\n"
	}
	return fmt.Sprintf("VALUE %s 0 %d\r\n%s\r\nEND\r\n", key, len(now), now)
}

// start runs l and returns the options of a drill against it.
func (l *liar) start(t *testing.T) Options {
	l.items, l.allowed = map[string][]string{}, true
	cache := Address{Network: "tcp", Address: testenv.Serve(t, "127.0.0.1", l.serve)}
	h := httptest.NewServer(l)
	t.Cleanup(h.Close)
	control := admin.NewClient("tcp", h.Listener.Addr().String())
	t.Cleanup(control.Close)
	return Options{Through: []Address{cache, cache}, Control: control, Server: "s1",
		Faults: []Fault{{Kind: fault.Hang}}, For: 300 * time.Millisecond, Before: 50 * time.Millisecond, Settle: 50 * time.Millisecond, Return: testenv.Hang,
		Clients: 4, Rate: 2000, Keys: 16, Prefix: "drill:"}
}

func TestSeesLies(t *testing.T) {
	for lie, seen := range map[string]func(r *Result) bool{
		"none": func(r *Result) bool {
			return r.trouble()+r.Misses == 0 && r.Notice == Never && r.Eject == Never && r.Return == 0
		},
		"stale":   func(r *Result) bool { return r.Stale > 0 && r.trouble() == r.Stale+r.Torn },
		"wrong":   func(r *Result) bool { return r.Wrong > 0 && r.trouble() == r.Wrong },
		"miss":    func(r *Result) bool { return r.Misses > 0 && r.trouble() == 0 && r.Failed == 0 && r.Notice == Never },
		"refuse":  func(r *Result) bool { return r.Refused > 0 && r.Errors > 0 && r.trouble() == r.Refused+r.Errors },
		"cut":     func(r *Result) bool { return r.Errors > 0 && r.trouble() == r.Errors && r.Stuck == 0 },
		"repeat":  func(r *Result) bool { return r.Repeated > 0 && r.trouble() == r.Repeated },
		"torn":    func(r *Result) bool { return r.Torn > 0 && r.trouble() == r.Torn },
		"doubled": func(r *Result) bool { return r.Torn > 0 && r.trouble() == r.Torn },
		"twice":   func(r *Result) bool { return r.Twice > 0 && r.trouble() == r.Twice && r.Failed == 0 },
		"down":    func(r *Result) bool { return r.trouble() == 0 && r.Eject >= 0 && r.Notice == r.Eject && r.Return >= 0 },
	} {
		t.Run(lie, func(t *testing.T) {
			l, r := drilled(t, lie, 300*time.Millisecond)
			for last := time.Second; lie != "none" && !anything(r) && last < testenv.Hang; last *= 4 {
				l, r = drilled(t, lie, last) // there were too few requests to see the false replies
			}
			if r.Requests == 0 || !seen(r) {
				t.Errorf("%+v", *r)
			}
			if l.lifted != 1 {
				t.Errorf("lifted %d times", l.lifted)
			}
			for key, had := range l.items {
				if had[len(had)-1] != "" {
					t.Errorf("%s is left", key)
				}
			}
		})
	}
}

// drilled runs a drill with a fault of this duration, during which a cache sends false
// replies of kind lie.
func drilled(t *testing.T, lie string, last time.Duration) (*liar, *Result) {
	t.Helper()
	l := &liar{lie: lie}
	o := l.start(t)
	o.For = last
	var got []*Result
	if err := Run(t.Context(), o, func(r *Result) { got = append(got, r) }); err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 {
		t.Fatalf("%d results", len(got))
	}
	return l, got[0]
}

// anything reports whether a drill has detected any problem.
func anything(r *Result) bool { return r.trouble()+r.Misses+r.Refused > 0 || r.Eject != Never }

func TestRunNeedsPermission(t *testing.T) {
	l := &liar{}
	o := l.start(t)
	l.allowed = false
	if err := Run(t.Context(), o, nil); !errors.Is(err, ErrNotAllowed) || len(l.items) > 0 {
		t.Errorf("%v; %d items", err, len(l.items))
	}
}

// TestTroubleBefore checks that problems before the fault are not attributed to it.
func TestTroubleBefore(t *testing.T) {
	var err error
	for before := 500 * time.Millisecond; err == nil && before < testenv.Hang; before *= 4 { // until a request has detected it
		l := &liar{lie: "stale"}
		o := l.start(t)
		o.Before = before
		l.broken = true
		err = Run(t.Context(), o, func(*Result) {})
	}
	if err == nil || !strings.Contains(err.Error(), "trouble before the fault") {
		t.Error(err)
	}
}

// TestOtherServers checks a second server of the pool. If it is down before the fault
// the drill does not start. If it fails during the fault it is named, and the verdict
// is never good.
func TestOtherServers(t *testing.T) {
	l := &liar{other: "before"}
	o := l.start(t)
	if err := Run(t.Context(), o, nil); err == nil || !strings.Contains(err.Error(), "server s2 of pool p is down: connection refused") || l.lifted != 0 {
		t.Errorf("before: %v", err)
	}
	l = &liar{other: "during"}
	o = l.start(t)
	var r *Result
	if err := Run(t.Context(), o, func(is *Result) { r = is }); err != nil {
		t.Fatal(err)
	}
	none := Limits{Stale: -1, Errors: -1, Misses: -1, Refused: -1, Twice: -1}
	if bad := none.Judge(r); !bad || !strings.Contains(r.Words(), "server s2 of pool p is down: connection refused") ||
		len(r.Exceeded) != 1 || !strings.Contains(r.Exceeded[0], "another server failed meanwhile: server s2") {
		t.Errorf("during: %s, %q", r.Words(), r.Exceeded)
	}
	if words, good := Verdict([]*Result{r}, none, 1); good || !strings.HasPrefix(words, "NOT GOOD") {
		t.Error(words)
	}
}

// TestOtherRingsideEnds checks the case that another instance, which the drill also
// uses, ends during the fault. The verdict names it and does not say that the server
// did not come back.
func TestOtherRingsideEnds(t *testing.T) {
	l := &liar{}
	o := l.start(t)
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var conns []net.Conn
	testenv.ServeOn(t, other, func(c net.Conn) {
		mu.Lock()
		conns = append(conns, c)
		mu.Unlock()
		l.serve(c)
	})
	o.Through[1] = Address{Network: "tcp", Address: other.Addr().String()}
	o.Settle, o.Return = time.Second, 3*time.Second
	o.Progress = func(p Progress) {
		if p.Stage != "during" {
			return
		}
		other.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, c := range conns {
			c.Close()
		}
	}
	var r *Result
	if err := Run(t.Context(), o, func(is *Result) { r = is }); err != nil {
		t.Fatal(err)
	}
	none := Limits{Stale: -1, Errors: -1, Misses: -1, Refused: -1, Twice: -1}
	if bad := none.Judge(r); !bad || len(r.Exceeded) != 1 || !strings.Contains(r.Exceeded[0], "the server returned, but requests failed until the end: ") ||
		!strings.Contains(r.Exceeded[0], other.Addr().String()) {
		t.Errorf("%q", r.Exceeded)
	}
	if words := r.Words(); strings.Contains(words, "did not return") || !strings.Contains(words, other.Addr().String()) {
		t.Error(words)
	}
}

// TestOtherRingsideHangs checks the case that another instance, which the drill also
// uses, hangs during the fault. No request fails until its client times out, but the
// verdict must not be good.
func TestOtherRingsideHangs(t *testing.T) {
	l := &liar{}
	o := l.start(t)
	var hangs atomic.Bool
	o.Through[1] = Address{Network: "tcp", Address: testenv.Serve(t, "127.0.0.1", func(c net.Conn) {
		here, there := net.Pipe()
		go l.serve(there)
		go io.Copy(c, here)
		b := make([]byte, 4096)
		for {
			n, err := c.Read(b)
			if hangs.Load() {
				<-t.Context().Done()
			}
			if err != nil || hangs.Load() {
				return
			}
			here.Write(b[:n])
		}
	})}
	o.Return = 2 * time.Second
	o.Progress = func(p Progress) {
		if p.Stage == "during" {
			hangs.Store(true)
		}
	}
	var r *Result
	if err := Run(t.Context(), o, func(is *Result) { r = is }); err != nil {
		t.Fatal(err)
	}
	if none := (Limits{Stale: -1, Errors: -1, Misses: -1, Refused: -1, Twice: -1}); !none.Judge(r) || r.Return != Never || !strings.Contains(r.Words(), "a client has been waiting for its answer for ") {
		t.Errorf("%q: %s", r.Exceeded, r.Words())
	}
}

// TestUnseen checks that a control API which sometimes does not reply, as under load,
// does not end a drill.
func TestUnseen(t *testing.T) {
	l := &liar{deaf: 1}
	o := l.start(t)
	var r *Result
	if err := Run(t.Context(), o, func(is *Result) { r = is }); err != nil || r.Unseen != 1 || !strings.Contains(r.Words(), "1 looks at the servers' state were not answered") {
		t.Errorf("%v; %+v", err, r)
	}
}

// TestEnds checks that a drill has no result if an instance has lost the fault, or if a
// reload removes the server. The error says so.
func TestEnds(t *testing.T) {
	for ends, want := range map[string]string{
		"restart": "the fault has ended early: the instance at %s does not have it any more, because it was started again, or an operator removed the fault",
		"removed": `there is no server "s1" any more at %s: a reload has removed or renamed it`,
	} {
		l := &liar{ends: ends}
		o := l.start(t)
		want = "hang: " + fmt.Sprintf(want, o.Control.Address())
		if err := Run(t.Context(), o, func(r *Result) { t.Errorf("%s: %+v", ends, r) }); err == nil || err.Error() != want || l.lifted != 1 {
			t.Errorf("%s: %v; lifted %d times", ends, err, l.lifted)
		}
	}
}

func TestVerdict(t *testing.T) {
	none := Limits{Stale: 0, Errors: -1, Misses: -1, Refused: -1, Twice: -1}
	limited := none
	limited.Errors = 900
	for _, c := range []struct {
		r       Result
		l       Limits
		planned int
		want    string
		good    bool
	}{
		{Result{Requests: 7993}, none, 1, "good: no request failed; no read returned", true},
		{Result{Requests: 7993, Errors: 700, Refused: 45}, none, 1, "745 of 7993 requests failed, and no limit says whether that is good", true},
		{Result{Requests: 7993, Errors: 700, Refused: 45}, limited, 1, "good: within the limits", true},
		{Result{Requests: 7993}, none, 3, "NONE: 2 of 3 faults have no result", false},
		{Result{Exceeded: []string{"x"}}, none, 3, "NOT GOOD: 1 of 1 fault", false},
	} {
		if words, good := Verdict([]*Result{&c.r}, c.l, c.planned); !strings.HasPrefix(words, c.want) || good != c.good {
			t.Errorf("%+v: %q, %v", c.r, words, good)
		}
	}
}

// TestCancelled checks that cancelling the drill lifts the fault.
func TestCancelled(t *testing.T) {
	l := &liar{}
	o := l.start(t)
	o.For = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for {
			l.mu.Lock()
			broken := l.broken
			l.mu.Unlock()
			if broken {
				cancel()
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	if err := Run(ctx, o, nil); !errors.Is(err, context.Canceled) || l.lifted != 1 {
		t.Errorf("%v; lifted %d times", err, l.lifted)
	}
}

func TestJudgeReads(t *testing.T) {
	k := &key{writer: writer{name: "k", acked: 22}, size: 50, sent: 25}
	other := &key{writer: writer{name: "kk"}, size: 50}
	for _, c := range []struct {
		what  string
		value string
		acked uint64
		want  ending
	}{
		{"the last acknowledged", k.value(22), 22, good},
		{"one in doubt", k.value(25), 22, good},
		{"an older one", k.value(21), 22, staleRead},
		{"an older one that was the last when the read was sent", k.value(21), 21, good},
		{"one before a delete", k.value(19), 20, staleRead},
		{"nothing", "", 22, miss},
		{"nothing, though what is in doubt is a set", "", 21, miss},
		{"nothing after a delete", "", 20, good},
		{"nothing, while a delete is in doubt", "", 19, good},
		{"nothing before anything", "", 0, good},
		{"the number of a delete", k.value(20), 20, wrongValue},
		{"one that was never sent", k.value(26), 22, wrongValue},
		{"another key's", other.value(22), 22, wrongValue},
		{"a part", k.value(22)[:30], 22, wrongValue},
		{"a mixture", k.value(22)[:30] + k.value(23)[30:], 22, wrongValue},
		{"no number", "k x y", 22, wrongValue},
	} {
		if got, _ := k.judge(c.value, c.value != "", c.acked); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
}

func TestLimits(t *testing.T) {
	none := Limits{Stale: -1, Errors: -1, Misses: -1, Refused: -1, Twice: -1}
	second := Time(time.Second)
	for _, c := range []struct {
		r    Result
		l    Limits
		want string // "": within the limits
	}{
		{Result{Errors: 9, Misses: 9, Refused: 9, Stale: 9, Notice: second, Eject: second, Return: second, Failed: second}, none, ""},
		{Result{Notice: Never, Eject: Never}, Limits{Notice: 1, Eject: 1, Return: 1, Failed: 1}, ""},
		{Result{Wrong: 1}, none, "1 wrong values, at most 0"},
		{Result{Repeated: 1}, none, "1 increments that came to a number twice"},
		{Result{Torn: 1}, none, "1 reads of a torn journal"},
		{Result{Twice: 1}, none, ""},
		{Result{Twice: 1}, Limits{}, "1 locks held twice"},
		{Result{Stuck: 1}, none, "1 clients stuck"},
		{Result{Stale: 1}, Limits{}, "1 stale reads, at most 0"},
		{Result{Errors: 3}, Limits{Errors: 2}, "3 errors, at most 2"},
		{Result{Misses: 3}, Limits{Misses: 2}, "3 misses"},
		{Result{Refused: 3}, Limits{Refused: 2}, "3 refused writes"},
		{Result{Failed: second}, Limits{Failed: time.Millisecond}, "requests failed for 1s, at most 1ms"},
		{Result{Notice: second}, Limits{Notice: time.Millisecond}, "noticed after 1s"},
		{Result{Eject: second}, Limits{Eject: time.Millisecond}, "ejected after 1s"},
		{Result{Return: second}, Limits{Return: time.Millisecond}, "returned after 1s"},
		{Result{Return: Never}, none, "did not return"},
	} {
		bad := c.l.Judge(&c.r)
		if got := strings.Join(c.r.Exceeded, "; "); bad != (c.want != "") || !strings.Contains(got, c.want) {
			t.Errorf("%+v: %q, want %q", c.r, got, c.want)
		}
	}
}

// TestRates checks that the time below half of the previous rate is the longest
// uninterrupted one.
func TestRates(t *testing.T) {
	for _, c := range []struct {
		steps []int // requests per 100 ms; before the fault there were 10
		want  string
	}{
		{[]int{10, 10, 10, 10, 10, 10}, "<1ms"},
		{[]int{5, 5, 5, 5, 5, 5}, "<1ms"},
		{[]int{4, 9, 0, 0, 4, 10}, "300ms"},
		{[]int{0, 0}, "600ms"}, // no more replies
		{[]int{9, 9, 9, 9, 9, 9, 0}, "<1ms"},
	} {
		r := &Result{Return: 1}
		r.rates(100, c.steps, 600*time.Millisecond+rateStep/2)
		if got := r.BelowHalf.String(); got != c.want {
			t.Errorf("%v: below half for %s, want %s", c.steps, got, c.want)
		}
		limits := Limits{BelowHalf: time.Millisecond}
		if words := r.Words(); limits.Judge(r) != (c.want != "<1ms") || strings.Contains(words, "less than half of the 100 answers a second of before") != (c.want != "<1ms") {
			t.Errorf("%v: %s, %v", c.steps, words, r.Exceeded)
		}
	}
}

func TestShow(t *testing.T) {
	r := &Result{Fault: "hang", Server: "s1", Requests: 7, Notice: Time(1500 * time.Microsecond), Eject: Never, Return: Time(12345 * time.Millisecond), Exceeded: []string{"too bad"}, Example: "SERVER_ERROR x"}
	var out bytes.Buffer
	Print(&out, []*Result{r}, Limits{}, 1)
	for _, want := range []string{"noticed", " 2ms ", " never ", " 12.35s ", "hang: EXCEEDED: too bad", "hang: SERVER_ERROR x", "verdict: NOT GOOD: 1 of 1 fault did more than the limits allow"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	b, err := json.Marshal(r)
	for _, want := range []string{`"notice_ms":1.5,`, `"eject_ms":null,`, `"return_ms":12345,`, `"exceeded":["too bad"]`} {
		if err != nil || !strings.Contains(string(b), want) {
			t.Errorf("no %s in %s, %v", want, b, err)
		}
	}
}
