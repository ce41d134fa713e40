package admin

// Access to the dashboard, its content, orders of a browser, and the limits of the stream.

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"ringside/internal/testenv"
	"ringside/proxy/live"
	"ringside/proxy/table"
)

func TestPageGuard(t *testing.T) {
	type request struct{ path, peer, host, site string }
	here, there := "127.0.0.1:9999", "192.0.2.7:9999"
	for _, test := range []struct {
		access Access
		request
		want int // 0: the short list of links
	}{
		{Access{}, request{"/api/route?key=a", here, "127.0.0.1:9151", ""}, 200},
		{Access{}, request{"/api/route?key=a", here, "localhost:9151", "same-origin"}, 200},
		{Access{}, request{"/api/route?key=a", here, "[::1]:9151", "none"}, 200},
		{Access{}, request{"/api/route?key=a", there, "192.0.2.1:9151", ""}, 403},
		{Access{}, request{"/api/route?key=a", here, "evil.example", ""}, 421},
		{Access{}, request{"/api/route?key=a", here, "127.0.0.1:9151", "cross-site"}, 403},
		{Access{}, request{"/api/ring", here, "127.0.0.1:9151", "same-site"}, 403},
		{Access{}, request{"/api/stream", here, "evil.example", ""}, 421},
		{Access{}, request{"/api/now", here, "evil.example:9151", ""}, 421},
		{Access{}, request{"/api/trace?pattern=a", here, "evil.example", ""}, 421},
		{Access{}, request{"/api/trace?pattern=a", here, "127.0.0.1:9151", "cross-site"}, 403},
		{Access{}, request{"/api/trace?pattern=a", there, "192.0.2.1:9151", ""}, 403},
		{Access{Page: Everybody}, request{"/api/trace?pattern=a", there, "evil.example", ""}, 421},
		{Access{Page: Nobody}, request{"/api/trace?pattern=a", here, "127.0.0.1:9151", ""}, 404},
		{Access{Names: []string{"cache.example"}}, request{"/api/ring", here, "Cache.Example:9151", ""}, 200},
		{Access{Names: []string{"cache.example"}}, request{"/api/ring", there, "cache.example", ""}, 403},
		{Access{Page: Everybody}, request{"/api/ring", there, "192.0.2.1:9151", ""}, 200},
		{Access{Page: Everybody}, request{"/api/ring", there, "evil.example", ""}, 421},
		{Access{Page: Everybody, Names: []string{"cache.example"}}, request{"/api/ring", there, "cache.example", ""}, 200},
		{Access{Page: Everybody}, request{"/api/ring", there, "192.0.2.1:9151", "cross-site"}, 403},
		{Access{Page: Nobody}, request{"/api/ring", here, "127.0.0.1:9151", ""}, 404},
		{Access{}, request{"/", here, "127.0.0.1:9151", "cross-site"}, 200}, // any site may link to it
		{Access{}, request{"/", here, "evil.example", ""}, 0},
		{Access{}, request{"/", there, "192.0.2.1:9151", ""}, 0},
		{Access{Page: Nobody}, request{"/", here, "127.0.0.1:9151", ""}, 0},
	} {
		h := New(running(), Options{Access: test.access}).Handler()
		r := httptest.NewRequest("GET", test.path, nil)
		r.RemoteAddr, r.Host = test.peer, test.host
		if test.site != "" {
			r.Header.Set("Sec-Fetch-Site", test.site)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		page := strings.Contains(w.Body.String(), "app.js")
		if want := max(200, test.want); w.Code != want || test.path == "/" && page != (test.want != 0) {
			t.Errorf("%+v of %+v: %d, want %d: %.80s", test.access, test.request, w.Code, want, w.Body)
		}
		if page && w.Header().Get("Content-Security-Policy") != pagePolicy {
			t.Errorf("the page has the policy %q", w.Header().Get("Content-Security-Policy"))
		}
	}
}

// An order of a browser is only accepted from the dashboard of this process.
func TestOrdersOfBrowsers(t *testing.T) {
	s := New(running(), Options{Access: Access{Names: []string{"cache.example"}}})
	for _, test := range []struct {
		host, origin, site, token string
		want                      int
	}{
		{"127.0.0.1:9151", "", "", "1", 200}, // a tool
		{"127.0.0.1:9151", "", "", "", 403},
		{"127.0.0.1:9151", "http://127.0.0.1:9151", "same-origin", s.token, 200},
		{"localhost:9151", "http://localhost:9151", "", s.token, 200},
		{"cache.example", "https://cache.example", "same-origin", s.token, 200}, // behind a reverse proxy on this machine
		{"127.0.0.1:9151", "http://127.0.0.1:9151", "same-origin", "1", 403},
		{"127.0.0.1:9151", "http://127.0.0.1:9151", "same-origin", "", 403},
		{"127.0.0.1:9151", "http://127.0.0.1:9152", "same-site", s.token, 403},
		{"127.0.0.1:9151", "http://127.0.0.1:9151", "cross-site", s.token, 403},
		{"127.0.0.1:9151", "", "cross-site", "1", 403},
		{"127.0.0.1:9151", "", "none", "1", 403},
		{"127.0.0.1:9151", "null", "", s.token, 403},
		{"evil.example", "http://evil.example", "same-origin", s.token, 403}, // rebound
		{"127.0.0.1:9151", "http://evil.example", "", s.token, 403},
	} {
		r := httptest.NewRequest("POST", "/control/servers/a/restore", nil)
		r.RemoteAddr, r.Host = "127.0.0.1:9999", test.host
		for name, value := range map[string]string{"Origin": test.origin, "Sec-Fetch-Site": test.site, steering: test.token} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		if w.Code != test.want {
			t.Errorf("%+v: %d %s", test, w.Code, w.Body)
		}
	}
	// Even if all clients may control, a page of a foreign name that resolves to this instance may not.
	open := New(running(), Options{Access: Access{Control: Everybody}})
	for host, want := range map[string]int{"192.0.2.1:9151": 200, "evil.example": 421} {
		r := httptest.NewRequest("POST", "/control/servers/a/restore", nil)
		r.RemoteAddr, r.Host = "192.0.2.7:9999", host
		r.Header.Set("Origin", "http://"+host)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		r.Header.Set(steering, open.token)
		w := httptest.NewRecorder()
		open.Handler().ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("an order at %s: %d %s", host, w.Code, w.Body)
		}
	}
	if other := New(running(), Options{}).token; other == s.token || len(other) != 22 {
		t.Errorf("tokens %q and %q", other, s.token)
	}
}

// stream opens the stream of the server with the address a, and reads it.
func stream(t *testing.T, a net.Addr, query string) (*http.Response, *bufio.Reader) {
	t.Helper()
	w, err := http.Get("http://" + a.String() + "/api/stream" + query)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Body.Close() })
	return w, bufio.NewReader(w.Body)
}

// next reads until the next event of a topic.
func next(t *testing.T, from *bufio.Reader, topic string) (data string) {
	t.Helper()
	is := ""
	for {
		line, err := from.ReadString('\n')
		if err != nil {
			t.Fatalf("no %s: %v", topic, err)
		}
		line = strings.TrimSuffix(line, "\n")
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			is = name
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok && is == topic {
			return data
		}
	}
}

func TestStream(t *testing.T) {
	p := newProxy(pool("main"), pool("second"))
	l := newLoop(p)
	events := &live.Events{}
	c := l.client()
	l.answer["get b"] = "END\r\n"
	l.mustSay(t, c, "get b\r\n", "END\r\n")
	l.run(t)
	s := New(p, Options{Events: events})
	a := serve(t, s, "tcp", "127.0.0.1:0")
	_, from := stream(t, a, "?pool=second")
	var h hello
	if err := json.Unmarshal([]byte(next(t, from, "hello")), &h); err != nil || h.Token != s.token || !h.Control || h.Faults || h.Loops != 1 {
		t.Errorf("hello is %+v %v", h, err)
	}
	var topo live.Topo
	if err := json.Unmarshal([]byte(next(t, from, "topo")), &topo); err != nil || topo.Pool != "second" || len(topo.Pools) != 2 || len(topo.Servers) != 2 || topo.Servers[1].Weight != 2 {
		t.Errorf("topo is %+v %v", topo, err)
	}
	next(t, from, "history")
	var tick live.Tick
	if err := json.Unmarshal([]byte(next(t, from, "tick")), &tick); err != nil || tick.Clients != 1 || len(tick.S.State) != 2 || tick.Health.Title == "" || tick.Gen != 1 {
		t.Errorf("tick is %+v %v", tick, err)
	}
	p.Log.Info("never seen")
	_, again := stream(t, a, "")
	if h := next(t, again, "history"); !strings.HasPrefix(h, `{"list":[`) {
		t.Errorf("the history is %s", h)
	}
	if w, _ := stream(t, a, "?pool=third"); w.StatusCode != 404 {
		t.Errorf("a pool that is none: %s", w.Status)
	}
	if w, _ := stream(t, a, "?pol=main"); w.StatusCode != 400 {
		t.Errorf("a parameter that is none: %s", w.Status)
	}
}

// TestStreamEndsWithTheAccess checks that a reload ends the streams of clients that may no longer have them,
// and no others.
func TestStreamEndsWithTheAccess(t *testing.T) {
	users := func(text string) *table.Users {
		u, err := table.ParseUsers([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	both := Security{Users: users("ops:s\nroot:s")}
	permissions := table.NewPermissions([]table.Permission{{Name: "root", Admin: true}, {Name: "ops", Read: true}})
	p := newProxy(pool("main"))
	newLoop(p).run(t)
	for _, test := range []struct {
		name  string
		after Access
		other bool // the stream of the user root goes on
	}{
		{"user removed", Access{Security: Security{Users: users("root:s")}}, true},
		{"password changed", Access{Security: Security{Users: users("ops:t\nroot:s")}}, true},
		{"permission removed", Access{Security: Security{Users: both.Users, Permissions: permissions}}, true},
		{"certificate required", Access{Security: Security{Certificate: true}}, false},
		{"page off", Access{Page: Nobody, Security: both}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := New(p, Options{Access: Access{Security: both}})
			a := serve(t, s, "tcp", "127.0.0.1:0")
			open := func(user string) *bufio.Reader {
				r, _ := http.NewRequest("GET", "http://"+a.String()+"/api/stream", nil)
				r.SetBasicAuth(user, "s")
				w, err := http.DefaultClient.Do(r)
				if err != nil || w.StatusCode != 200 {
					t.Fatal(w, err)
				}
				t.Cleanup(func() { w.Body.Close() })
				from := bufio.NewReader(w.Body)
				next(t, from, "hello")
				return from
			}
			ends, other := open("ops"), open("root")
			s.Allow(test.after)
			mustEnd(t, ends)
			if test.other {
				next(t, other, "tick")
				next(t, other, "tick")
			} else {
				mustEnd(t, other)
			}
		})
	}
}

// mustEnd checks that a stream ends, after at most two more ticks.
func mustEnd(t *testing.T, from *bufio.Reader) {
	t.Helper()
	for ticks := 0; ticks < 3; {
		line, err := from.ReadString('\n')
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if line == "event: tick\n" {
			ticks++
		}
	}
	t.Fatal("the stream continues")
}

// TestLongRepliesCheckTheAccessAgain checks requests with one reply, which is complete only after some time.
func TestLongRepliesCheckTheAccessAgain(t *testing.T) {
	p := newProxy(pool("main"))
	newLoop(p).run(t)
	for _, test := range []struct {
		path          string
		status, waits int
	}{{"/api/now?for=100ms", 404, 1}, {"/debug/pprof/profile?seconds=60", 200, 0}} {
		s := New(p, Options{})
		r := request("GET", test.path, "")
		w := do(s.Handler(), r.WithContext(&waiting{r.Context(), func() { s.Allow(Access{Page: Nobody, Pprof: Nobody}) }, test.waits}))
		if w.Code != test.status || test.status == 200 && w.Body.Len() > 0 {
			t.Errorf("%s: %d, %d bytes", test.path, w.Code, w.Body.Len())
		}
	}
}

// waiting is a context that calls a function when a request begins to wait. It has ended after a number
// of waits.
type waiting struct {
	context.Context
	begun func()
	waits int
}

func (c *waiting) Done() <-chan struct{} {
	c.begun()
	if c.waits--; c.waits >= 0 {
		return nil
	}
	ended := make(chan struct{})
	close(ended)
	return ended
}

// Watchers are limited. One that reads nothing delays neither the others nor the shutdown.
func TestWatchersAreBounded(t *testing.T) {
	p := newProxy(pool("main"))
	newLoop(p).run(t)
	a := serve(t, New(p, Options{}), "tcp", "127.0.0.1:0")
	stalled, err := net.Dial("tcp", a.String())
	if err != nil {
		t.Fatal(err)
	}
	defer stalled.Close()
	fmt.Fprintf(stalled, "GET /api/stream HTTP/1.1\r\nHost: %s\r\n\r\n", a)
	if _, err := stalled.Read(make([]byte, 1)); err != nil { // it is watching
		t.Fatal(err)
	}
	var last *bufio.Reader
	var lastBody io.Closer
	for range live.MostWatchers - 1 {
		w, from := stream(t, a, "")
		next(t, from, "hello")
		last, lastBody = from, w.Body
	}
	w, _ := stream(t, a, "")
	var said struct{ Error string }
	if err := json.NewDecoder(w.Body).Decode(&said); err != nil || w.StatusCode != 503 || said.Error != live.ErrCrowded.Error() {
		t.Errorf("one too many gets %s %+v %v", w.Status, said, err)
	}
	next(t, last, "tick")
	next(t, last, "tick")
	lastBody.Close()
	for end := time.Now().Add(testenv.Hang); ; time.Sleep(10 * time.Millisecond) {
		if w, from := stream(t, a, ""); w.StatusCode == 200 {
			next(t, from, "hello")
			break
		} else if time.Now().After(end) {
			t.Fatal("a place does not become free")
		}
	}
}

// TestRouteOfThePage checks that the page displays the same as the command `ringside
// route`, whatever bytes the key has.
func TestRouteOfThePage(t *testing.T) {
	p := newProxy(pool("main"))
	newLoop(p)
	h := New(p, Options{}).Handler()
	listener := &p.Table().Listeners[0]
	for i := range 1000 {
		key := fmt.Sprintf("%c<b>%d\x00\xff\u202e", 'a'+i%3, i)
		plan := listener.Plan([]byte(key))
		want, _ := json.Marshal(plan.JSON(""))
		r := httptest.NewRequest("GET", "/api/route?key="+url.QueryEscape(key), nil)
		r.RemoteAddr, r.Host = "127.0.0.1:1", "localhost"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		var got, told map[string]any
		if err := errors.Join(json.Unmarshal(w.Body.Bytes(), &got), json.Unmarshal(want, &told)); err != nil {
			t.Fatalf("%s: %v", w.Body, err)
		}
		for name, value := range told {
			if fmt.Sprint(got[name]) != fmt.Sprint(value) {
				t.Fatalf("%q: %s is %v, ringside route says %v", key, name, got[name], value)
			}
		}
	}
	for query, status := range map[string]int{"": 400, "?key=": 400, "?key64=%25": 400, "?key=a&x=1": 400, "?key=" + strings.Repeat("a", 300): 200} {
		r := httptest.NewRequest("GET", "/api/route"+query, nil)
		r.RemoteAddr, r.Host = "127.0.0.1:1", "localhost"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != status || status == 200 && !strings.Contains(w.Body.String(), "at most 250") {
			t.Errorf("%.20q: %d %s", query, w.Code, w.Body)
		}
	}
}

func TestNow(t *testing.T) {
	p := newProxy(pool("main"))
	l := newLoop(p)
	c := l.client()
	l.says(c, "get b\r\n")
	l.run(t)
	a := serve(t, New(p, Options{}), "tcp", "127.0.0.1:0")
	w, err := http.Get("http://" + a.String() + "/api/now?for=100ms")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	var now live.Now
	if err := json.NewDecoder(w.Body).Decode(&now); err != nil || now.Pool != "main" || len(now.List) != 2 || now.Total.Clients != 1 || now.Health.Level == "" || now.Span < 100 {
		t.Errorf("now is %+v %v", now, err)
	}
	for _, bad := range []string{"?for=1ms", "?for=2h", "?for=x", "?pool=none", "?x=1"} {
		if w, err := http.Get("http://" + a.String() + "/api/now" + bad); err != nil || w.StatusCode/100 != 4 {
			t.Errorf("%s: %v %v", bad, w, err)
		}
	}
}
