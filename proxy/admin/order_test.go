package admin

// The results of orders: two at once, and those with an unknown result.

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"ringside/internal/testenv"
	"ringside/proxy"
	"ringside/proxy/health"
	"ringside/proxy/live"
	"ringside/proxy/table"
	"ringside/replicate"
)

// copied returns a proxy with the servers one, two and three, which are up and keep two replicas of
// each key.
func copied(t *testing.T) (*proxy.Proxy, *loop) {
	t.Helper()
	main := pool("main")
	main.Servers = nil
	for _, name := range []string{"one", "two", "three"} {
		main.Servers = append(main.Servers, table.Target{Name: name, Network: "tcp", Address: name + ":11211", Weight: 1})
	}
	main.Place = place(3)
	main.Failover.Mode, main.Failover.Settings = table.Rehash, health.Settings{Ping: 100 * time.Millisecond, Lease: time.Second, Request: time.Second}
	tab := tableOf(main)
	tab.Listeners[0].Routes[0].Copies = replicate.Policy{Copies: 2}
	p := newProxyOf(tab)
	l := newLoopAt(p, 0, map[string]string{})
	for range 5000 {
		l.wakeup(func() {})
	}
	return p, l
}

// Two operators drain at once, and each server has the last replica for the other. Only one
// check may run before the first order is executed: the second order is rejected.
func TestDrainsAtOnce(t *testing.T) {
	p, l := copied(t)
	h := New(p, Options{}).Handler()
	l.run(t)
	post, mu, held, met := l.e.Post, sync.Mutex{}, []func(*proxy.Engine){}, false
	release := func() {
		for _, f := range held {
			post(f)
		}
		held, met = nil, true
	}
	l.e.Post = func(f func(*proxy.Engine)) { // the first check waits for the second one, if that starts
		mu.Lock()
		defer mu.Unlock()
		if held = append(held, f); met || len(held) == 2 {
			release()
			return
		}
		time.AfterFunc(200*time.Millisecond, func() {
			mu.Lock()
			defer mu.Unlock()
			release()
		})
	}
	answers := make(chan *httptest.ResponseRecorder, 2)
	for _, name := range []string{"one", "two"} {
		go func() { answers <- do(h, request("POST", "/control/servers/"+name+"/drain", "")) }()
	}
	a, b := <-answers, <-answers
	if a.Code > b.Code {
		a, b = b, a
	}
	var said serversAnswer
	if err := json.Unmarshal(a.Body.Bytes(), &said); a.Code != 200 || err != nil || len(said.Servers) != 1 || said.Servers[0].Order != "drain" || said.Servers[0].Replicas.Left != 1 {
		t.Errorf("one is drained: %d %s", a.Code, a.Body)
	}
	if why := said.Servers[0].Server + " is leaving: by an operator"; b.Code != 409 || !strings.Contains(b.Body.String(), why) {
		t.Errorf("the other is refused, for %q: %d %s", why, b.Code, b.Body)
	}
}

// An order may be executed although its loop does not answer in time. The error must say so,
// with the same text through the client.
func TestOrderNobodyKnows(t *testing.T) {
	p, l := copied(t)
	h := New(p, Options{}).Handler()
	l.run(t)
	post, late := l.e.Post, make(chan func(*proxy.Engine), 10)
	n := 0
	l.e.Post = func(f func(*proxy.Engine)) { // the check is answered, the order is late
		if n++; n == 2 {
			late <- f
			return
		}
		post(f)
	}
	w := do(h, request("POST", "/control/servers/one/drain", ""))
	if w.Code != 504 || !strings.Contains(w.Body.String(), "it is not known whether this was done") || strings.Contains(w.Body.String(), "was accepted") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	l.e.Post = post
	post(<-late)
	if w := do(h, request("POST", "/control/servers/two/drain", "")); w.Code != 409 || !strings.Contains(w.Body.String(), "one is leaving: by an operator") {
		t.Errorf("once it is carried out it counts: %d %s", w.Code, w.Body)
	}
}

// An order that was executed is not a failed order, even if the state of the server can't be
// read afterwards.
func TestOrderGiven(t *testing.T) {
	p, l := copied(t)
	h := New(p, Options{}).Handler()
	l.run(t)
	post, n := l.e.Post, 0
	l.e.Post = func(f func(*proxy.Engine)) {
		if n++; n < 3 {
			post(f)
		}
	}
	if w := do(h, request("POST", "/control/servers/one/drain", "")); w.Code != 504 || !strings.Contains(w.Body.String(), "the order to drain one was accepted") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	l.e.Post = post
	list, err := New(p, Options{}).servers()
	if err != nil || list[0].Order != health.Drain.String() || list[0].State == live.Up {
		t.Errorf("%+v, %v", list, err)
	}
}

// A tag may be invalidated although no server has replied in time. A tag without a route is
// rejected.
func TestUnsureIsNotRefused(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
	}{
		{refuse(http.StatusConflict, "%w", proxy.ErrUnsure), 504},
		{refuse(http.StatusConflict, "no route has tags"), 409},
	} {
		w := httptest.NewRecorder()
		if tell(w, 0, nil, c.err); w.Code != c.status || strings.Contains(w.Body.String(), "it is not known") != (c.status == 504) {
			t.Errorf("%v: %d %s", c.err, w.Code, w.Body)
		}
	}
}

// A client that gets no reply to an order, or a part of it, must not report a failure. It must
// if it has reached no instance, or only sent a query.
func TestClientHearsNothing(t *testing.T) {
	unsure := func(err error) bool {
		return err != nil && strings.Contains(err.Error(), "it is not known whether this was done") && strings.Contains(err.Error(), "the admin interface at ")
	}
	for what, answer := range map[string]string{"nothing": "", "half": "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		testenv.ServeOn(t, l, func(c net.Conn) {
			http.ReadRequest(bufio.NewReader(c))
			io.WriteString(c, answer)
		})
		c := NewClient("tcp", l.Addr().String())
		if _, err := c.Order(t.Context(), "", "one", "drain", false); !unsure(err) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := c.Servers(t.Context()); err == nil || unsure(err) {
			t.Errorf("%s, to a question: %v", what, err)
		}
		l.Close()
		c.Close()
		if _, err := c.Order(t.Context(), "", "one", "drain", false); err == nil || unsure(err) || errors.As(err, new(*refused)) {
			t.Errorf("nobody listens: %v", err)
		}
	}
}
