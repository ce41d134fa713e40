package admin

// Access to the admin pages, over real sockets where that matters.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ringside/internal/testenv"
	"ringside/proxy"
	"ringside/proxy/fault"
	"ringside/proxy/table"
)

// serve runs s on a listener of its own and returns its address.
func serve(t *testing.T, s *Server, network, address string) net.Addr {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := s.Shutdown(context.Background()); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return l.Addr()
}

func running() *proxy.Proxy {
	p := newProxy(pool("main"))
	newLoop(p)
	return p
}

func TestMethods(t *testing.T) {
	h := New(running(), Options{Access: Access{Pprof: Everybody}}).Handler()
	for _, path := range []string{"/", "/metrics", "/healthz", "/readyz", "/debug/pprof/", "/debug/pprof/cmdline"} {
		for _, method := range []string{"GET", "HEAD"} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
			if w.Code != 200 {
				t.Errorf("%s %s: %d", method, path, w.Code)
			}
			if w.Header().Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s %s: browsers may guess the type", method, path)
			}
		}
		for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW"} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader("x")))
			if w.Code != 405 || w.Header().Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: %d, allow %q", method, path, w.Code, w.Header().Get("Allow"))
			}
		}
	}
	for _, path := range []string{"/nothing", "/metrics/x", "/healthz/", "/index.html"} {
		if w := get(h, path); w.Code != 404 {
			t.Errorf("GET %s: %d", path, w.Code)
		}
	}
}

func TestIndex(t *testing.T) {
	for _, test := range []struct {
		pprof Who
		shown bool
	}{{"", true}, {Loopback, true}, {Everybody, true}, {Nobody, false}, {"of", false}} {
		w := get(New(running(), Options{Access: Access{Pprof: test.pprof}}).Handler(), "/")
		page := w.Body.String()
		for _, want := range []string{`href="metrics"`, `href="healthz"`, `href="readyz"`, "1.2.3-&lt;b&gt;"} {
			if !strings.Contains(page, want) {
				t.Errorf("the index has no %s:\n%s", want, page)
			}
		}
		if strings.Contains(page, "pprof") != test.shown {
			t.Errorf("pprof %q: the index says\n%s", test.pprof, page)
		}
		if got := w.Header().Get("Content-Type"); got != "text/html; charset=utf-8" {
			t.Errorf("the index is %s", got)
		}
	}
}

// The input of a client must not be part of a reply.
func TestNoReflection(t *testing.T) {
	const mark = "evil<script>"
	h := New(running(), Options{Ready: func() error { return errors.New("starting") }}).Handler()
	for _, path := range []string{"/", "/metrics", "/healthz", "/readyz", "/debug/pprof/", "/debug/pprof/evil", "/evil", "//evil/../metrics"} {
		r := httptest.NewRequest("GET", path, nil)
		r.Host = mark
		for _, name := range []string{"X-Forwarded-Host", "X-Forwarded-For", "Origin", "Referer", "User-Agent", "Accept"} {
			r.Header.Set(name, mark)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if strings.Contains(w.Body.String(), mark) || strings.Contains(fmt.Sprint(w.Header()), mark) {
			t.Errorf("%s: %v %s", path, w.Header(), w.Body)
		}
	}
}

func TestHealth(t *testing.T) {
	p := newProxy(pool("main"))
	var notReady error
	h := New(p, Options{Ready: func() error { return notReady }}).Handler()
	want := func(path string, code int, body string) {
		t.Helper()
		if w := get(h, path); w.Code != code || w.Body.String() != body {
			t.Errorf("%s: %d %q, want %d %q", path, w.Code, w.Body, code, body)
		}
	}
	want("/healthz", 503, "not ok: no loop runs yet\n")
	want("/readyz", 503, "not ready: no loop runs yet\n")
	l := newLoop(p)
	want("/healthz", 200, "ok\n")
	want("/readyz", 200, "ready\n")
	notReady = errors.New("stopping")
	want("/healthz", 200, "ok\n")
	want("/readyz", 503, "not ready: stopping\n")
	notReady = nil

	// With every server down the instance is still ready.
	l.dead[alpha], l.dead[beta] = true, true
	l.mustSay(t, l.client(), "get a\r\nget b\r\n", "END\r\nEND\r\n")
	want("/readyz", 200, "ready\n")
}

// A loop that hangs gets only one check, even with many callers.
func TestHealthOfAHungLoop(t *testing.T) {
	t.Parallel()
	p := running()
	var asked []func()
	e := newLoop(p).e
	e.Post = func(f func(*proxy.Engine)) { asked = append(asked, func() { f(e) }) }
	h := New(p, Options{}).Handler()
	for _, path := range []string{"/healthz", "/readyz"} {
		if w := get(h, path); w.Code != 503 || !strings.Contains(w.Body.String(), "1 of 2 loops did not answer within 1s") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if len(asked) != 1 {
		t.Fatalf("asked %d times", len(asked))
	}
	asked[0]() // the loop continues
	e.Post = func(f func(*proxy.Engine)) { f(e) }
	if w := get(h, "/healthz"); w.Code != 200 {
		t.Errorf("/healthz: %d %s", w.Code, w.Body)
	}
}

func TestWhoMayProfile(t *testing.T) {
	for _, test := range []struct {
		pprof      Who
		peer, host string
		code       int
	}{
		{"", "127.0.0.1:4000", "127.0.0.1:9151", 200},
		{"", "[::1]:4000", "[::1]:9151", 200},
		{"", "[::ffff:127.0.0.1]:4000", "localhost", 200},
		{"", "127.0.0.1:4000", "localhost:9151", 200},
		{"", "127.0.0.1:4000", "[::1]", 200},
		{"", "127.0.0.1:4000", "", 200},
		{"", "127.0.0.1:4000", "rebound.example:9151", 403},
		{"", "127.0.0.1:4000", "127.0.0.1.example", 403},
		{"", "10.0.0.9:4000", "127.0.0.1:9151", 403},
		{"", "10.0.0.9:4000", "localhost", 403},
		{"", "nonsense", "localhost", 403},
		{Loopback, "127.0.0.1:4000", "127.0.0.1:9151", 200},
		{Loopback, "10.0.0.9:4000", "127.0.0.1:9151", 403},
		{Everybody, "10.0.0.9:4000", "cache1:9151", 200},
		{Nobody, "127.0.0.1:4000", "127.0.0.1:9151", 404},
		{"of", "127.0.0.1:4000", "127.0.0.1:9151", 404},
	} {
		h := New(running(), Options{Access: Access{Pprof: test.pprof}}).Handler()
		for _, path := range []string{"/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=1", "/debug/pprof/symbol"} {
			r := httptest.NewRequest("GET", path, nil)
			r.RemoteAddr, r.Host = test.peer, test.host
			r.Header.Set("X-Forwarded-For", "127.0.0.1")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != test.code {
				t.Errorf("pprof %q, %s for %s of host %q: %d, want %d", test.pprof, path, test.peer, test.host, w.Code, test.code)
			}
		}
	}
}

// TestProfilesBound checks that a few profiles are taken at a time, and that a next one is
// refused until one of them has ended.
func TestProfilesBound(t *testing.T) {
	h := New(running(), Options{}).Handler()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	profile := func(ctx context.Context, path string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", path, nil).WithContext(ctx)
		r.RemoteAddr, r.Host = "127.0.0.1:4000", "localhost"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	ended := make(chan struct{})
	for range maxProfiles {
		go func() {
			// The requests of refused below take a place too, so a profile can be refused.
			for ctx.Err() == nil {
				profile(ctx, "/debug/pprof/heap?seconds=60")
			}
			ended <- struct{}{}
		}()
	}
	refused := func() bool {
		w := profile(context.Background(), "/debug/pprof/cmdline")
		return w.Code == http.StatusServiceUnavailable && strings.Contains(w.Body.String(), "profiles are being taken")
	}
	for end := time.Now().Add(testenv.Hang); !refused(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("one more profile is taken")
		}
	}
	stop()
	for range maxProfiles {
		<-ended
	}
	if refused() {
		t.Error("profiles are refused although none is being taken")
	}
}

// A unix socket is on this machine, whatever Host the client sends.
func TestUnixSocket(t *testing.T) {
	addr := serve(t, New(running(), Options{}), "unix", filepath.Join(t.TempDir(), "admin.sock"))
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return net.Dial(addr.Network(), addr.String())
		},
	}}
	for _, path := range []string{"/metrics", "/debug/pprof/cmdline"} {
		res, err := client.Get("http://ringside" + path)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != 200 {
			t.Errorf("%s: %s", path, res.Status)
		}
	}
}

// A profile may take longer than other replies. Its write timeout starts when it ends, and the
// read timeout of the request does not end it.
func TestLongProfile(t *testing.T) {
	t.Parallel()
	s := New(running(), Options{})
	s.http.ReadTimeout = 500 * time.Millisecond
	inner, handled := s.http.Handler, make(chan *deadlineWriter, 1)
	s.http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d := &deadlineWriter{ResponseWriter: w, start: time.Now()}
		inner.ServeHTTP(d, r)
		d.ended = r.Context().Err()
		handled <- d
	})
	addr := serve(t, s, "tcp", "127.0.0.1:0")
	for end := time.Now().Add(testenv.Hang); time.Now().Before(end); { // until a request is read in time
		res, err := http.Get("http://" + addr.String() + "/debug/pprof/profile?seconds=1")
		if err != nil {
			continue
		}
		defer res.Body.Close()
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			t.Error(err)
		}
		d := <-handled
		if d.ended != nil {
			t.Errorf("the profile was ended: %v", d.ended)
		}
		if given := d.until.Sub(d.start); given < s.http.WriteTimeout+time.Second {
			t.Errorf("the profile had %v from its start", given)
		}
		return
	}
	t.Error("no request was served")
}

// deadlineWriter records the write deadline.
type deadlineWriter struct {
	http.ResponseWriter
	start, until time.Time
	ended        error // why the request ended before its reply
}

func (d *deadlineWriter) SetWriteDeadline(t time.Time) error {
	d.until = t
	return http.NewResponseController(d.ResponseWriter).SetWriteDeadline(t)
}

// A connection beyond the limit replaces the one that has waited longest; others stay open. If
// requests are in progress on all of them, only health probes are served.
func TestTooManyConnections(t *testing.T) {
	s := New(running(), Options{})
	addr := serve(t, s, "tcp", "127.0.0.1:0")
	healthy := func(c net.Conn) bool {
		io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
		var got bytes.Buffer
		for b := make([]byte, 4096); !strings.HasSuffix(got.String(), "ok\n"); {
			n, err := c.Read(b)
			if err != nil {
				return false
			}
			got.Write(b[:n])
		}
		return true
	}
	var conns []net.Conn
	for range maxConnections + 1 {
		c, err := net.Dial("tcp", addr.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	for i, c := range conns[1:] {
		if !healthy(c) {
			t.Fatalf("connection %d is not served", i+2)
		}
	}
	if healthy(conns[0]) {
		t.Error("the connection that has waited longest is served")
	}
	if n := s.Closed(); n != 1 {
		t.Errorf("%d connections are counted, want 1", n)
	}
}

// While 256 requests are in progress, further connections serve only probes.
func TestProbesBesideBusyConnections(t *testing.T) {
	s := New(running(), Options{})
	hang, entered := make(chan bool), make(chan bool, maxConnections)
	h := s.http.Handler
	s.http.Handler = s.withHeaders(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hang" {
			entered <- true
			<-hang
			return
		}
		h.ServeHTTP(w, r)
	}))
	defer close(hang)
	addr := serve(t, s, "tcp", "127.0.0.1:0")
	for range maxConnections {
		c, err := net.Dial("tcp", addr.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, "GET /hang HTTP/1.1\r\nHost: x\r\n\r\n")
	}
	for range maxConnections {
		<-entered
	}
	for range 3 * spareConnections {
		for path, want := range map[string]int{"/healthz": 200, "/metrics": 503} {
			answer, err := (&http.Client{Transport: &http.Transport{}}).Get("http://" + addr.String() + path)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if answer.StatusCode != want || !answer.Close {
				t.Fatalf("%s: %d, closes: %v; want %d and a close", path, answer.StatusCode, answer.Close, want)
			}
		}
	}
}

// smallBuffers is a listener. Its connections have small buffers in the kernel.
type smallBuffers struct{ net.Listener }

func (l smallBuffers) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		c.(*net.TCPConn).SetWriteBuffer(4 << 10)
	}
	return c, err
}

// Clients that keep as many connections open as there may be, in whatever state, cannot prevent
// health probes.
func TestProbesBesideWaitingConnections(t *testing.T) {
	script := ""
	for path := range pageParts {
		if strings.HasSuffix(path, ".js") {
			script = path
		}
	}
	const (
		nothing = iota // what the test waits for before it opens the next connection
		begin          // the beginning of a handler
		end            // the end of a handler
		reply          // the first byte of a reply
	)
	const wrongLogin = "a wrong login, whose reply is delayed"
	users, err := table.ParseUsers([]byte("ops:s"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, sends string
		await       int
	}{
		{"half a header", "GET /x HTTP/1.1\r\nHost: x\r\n", nothing},
		{"header too large", "GET /x HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", maxHeader+8<<10), reply},
		{"idle", "GET /x HTTP/1.1\r\nHost: x\r\n\r\n", reply},
		{"half a body", "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc", end},
		{"half a chunk", "GET /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc", end},
		{"a probe with half a body", "GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc", end},
		{"half a body after an unknown expectation", "GET /x HTTP/1.1\r\nHost: x\r\nExpect: x\r\nContent-Length: 10\r\n\r\nabc", reply},
		{"half a body that is read", "POST /control/faults HTTP/1.1\r\nHost: 127.0.0.1\r\nRingside-Control: 1\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", begin},
		{"a body that is awaited", "POST /control/reload HTTP/1.1\r\nHost: 127.0.0.1\r\nRingside-Control: 1\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n", begin},
		{wrongLogin, "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Basic b3BzOm5v\r\n\r\n", begin},
		{"replies that are not read", strings.Repeat("GET "+script+" HTTP/1.1\r\nHost: x\r\n\r\n", 4), begin},
	} {
		t.Run(c.name, func(t *testing.T) {
			access := Access{Faults: true}
			if c.name == wrongLogin {
				access.Users = users
			}
			s := New(running(), Options{Access: access, FaultSet: new(fault.Set)})
			// The channels are large enough for the requests of all connections.
			events := map[int]chan bool{begin: make(chan bool, 1<<16), end: make(chan bool, 1<<16)}
			h := s.http.Handler
			s.http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				events[begin] <- true
				h.ServeHTTP(w, r)
				events[end] <- true
			})
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			served := make(chan error, 1)
			go func() { served <- s.Serve(smallBuffers{l}) }()
			var held []net.Conn
			defer func() {
				for _, c := range held {
					c.Close()
				}
				s.http.Close()
				if err := <-served; err != nil {
					t.Error(err)
				}
				s.Shutdown(context.Background())
			}()
			hold := func() {
				conn, err := (&net.Dialer{}).Dial("tcp", l.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				held = append(held, conn)
				conn.(*net.TCPConn).SetReadBuffer(4 << 10)
				io.WriteString(conn, c.sends)
				switch c.await {
				case begin, end:
					<-events[c.await]
				case reply:
					if _, err := conn.Read(make([]byte, 1)); err != nil {
						t.Fatal(err)
					}
				}
			}
			for range maxConnections + spareConnections {
				hold()
			}
			if c.name == wrongLogin { // other clients are served too
				r, _ := http.NewRequest("GET", "http://"+l.Addr().String()+"/metrics", nil)
				r.SetBasicAuth("ops", "s")
				answer, err := http.DefaultTransport.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				answer.Body.Close()
				if answer.StatusCode != 200 {
					t.Fatalf("a right login: %s", answer.Status)
				}
			}
			for range 8 {
				for _, path := range []string{"/healthz", "/readyz"} {
					answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get("http://" + l.Addr().String() + path)
					if err != nil {
						t.Fatal(err)
					}
					answer.Body.Close()
					if answer.StatusCode != 200 {
						t.Fatalf("%s: %d", path, answer.StatusCode)
					}
				}
			}
		})
	}
}

// Shutdown waits for requests in progress, but only until its deadline.
func TestShutdown(t *testing.T) {
	asked, goOn := make(chan bool, 1), make(chan bool)
	s := New(running(), Options{Ready: func() error {
		asked <- true
		<-goOn
		return nil
	}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served, answered := make(chan error, 1), make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	go func() {
		_, err := http.Get("http://" + l.Addr().String() + "/readyz")
		answered <- err
	}()
	<-asked
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Shutdown(over); !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown: %v", err)
	}
	if err := <-answered; err == nil {
		t.Error("a request outlived Shutdown's context")
	}
	close(goOn)
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}
