package admin

// Access to the control API, rejected requests, and that these change nothing.

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ringside/internal/testenv"
	"ringside/proxy"
	"ringside/proxy/fault"
	"ringside/proxy/health"
	"ringside/proxy/live"
	"ringside/proxy/table"
)

// steered returns a proxy of two pools with the servers a and beta. In the second pool beta has
// another address, and there is a server on a unix socket.
func steered(o Options) (*proxy.Proxy, http.Handler) {
	second := pool("second")
	second.Servers[1].Address = "10.0.0.3:11211"
	second.Servers = append(second.Servers, table.Target{Name: "sock", Network: "unix", Address: "/run/m.sock", Weight: 1})
	second.Place = place(3)
	second.Next = &table.List{Servers: append(second.Servers[:3:3], table.Target{Name: "joins", Network: "tcp", Address: "10.0.0.8:11211"}), Place: place(4)}
	second.Later = &table.List{Servers: append(second.Servers[:3:3], table.Target{Name: "waits", Network: "tcp", Address: "10.0.0.9:11211"}), Place: place(4)}
	p := newProxy(pool("first"), second)
	newLoop(p)
	return p, New(p, o).Handler()
}

// request returns a request from this machine that may change things.
func request(method, path, body string) *http.Request {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.RemoteAddr, r.Host = "127.0.0.1:1234", "localhost:9151"
	r.Header.Set(steering, "1")
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	return r
}

func do(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestBadControlRequests(t *testing.T) {
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"GET", "/control/", "", 404, "/control/tags/invalidate"},
		{"GET", "/control/nothing", "", 404, "there is no such page"},
		{"POST", "/control/servers", "", 405, "takes GET"},
		{"DELETE", "/control/servers/a/drain", "", 405, "takes POST"},
		{"PUT", "/control/faults", "{}", 405, "or"},
		{"GET", "/control/faults/1", "", 405, "takes DELETE"},
		{"POST", "/control/servers/nobody/drain?pool=first", "", 404, `no server "nobody"; there are a, 10.0.0.2:11211`},
		{"POST", "/control/servers/joins/drain", "", 409, `server "joins" of pool second is new: `},
		{"POST", "/control/servers/10.0.0.9:11211/restore", "", 409, `of pool second is new: `},
		{"POST", "/control/servers/joins/drain?pool=first", "", 404, `no server "joins"`},
		{"POST", "/control/faults", `{"server":"joins","kind":"hang"}`, 409, "is new"},
		{"POST", "/control/servers/a/drain?pool=third", "", 404, `no pool "third"; there are first, second`},
		{"POST", "/control/servers/a/drain", "", 409, "first, second"},
		{"POST", "/control/servers/a/drain?pool=first&force=1", "", 400, "force is true, or not there"},
		{"POST", "/control/servers/a/restore?pool=first&force=true", "", 400, "force is for drain and down"},
		{"POST", "/control/servers/a/drain?pol=first", "", 400, `unknown parameter "pol"`},
		{"POST", "/control/servers/a/destroy?pool=first", "", 404, `"destroy" is not an order`},
		{"POST", "/control/servers/a/drain?pool=first", "{}", 400, "no body"},
		{"POST", "/control/servers//drain", "", 0, ""},
		{"POST", "/control/clients", "", 405, "takes GET"},
		{"GET", "/control/clients?sort=size", "", 400, `clients can't be sorted by "size": want one of age, held, id, idle`},
		{"GET", "/control/clients?limit=0", "", 400, "a number from 1 to 10000"},
		{"GET", "/control/clients?limit=10001", "", 400, "a number from 1 to 10000"},
		{"GET", "/control/clients?order=held", "", 400, `unknown parameter "order"`},
		{"POST", "/control/faults", "", 415, "application/json"},
		{"POST", "/control/faults", `{`, 400, "the body is invalid"},
		{"POST", "/control/faults", `[]`, 400, "the body is invalid"},
		{"POST", "/control/faults", `{"server":"a","kind":"hang"} x`, 400, "the body is invalid"},
		{"POST", "/control/faults", `{"server":"a","kind":"hang"}{}`, 400, "one object"},
		{"POST", "/control/faults", `{"server":"a","kind":"hang","color":"red"}`, 400, `unknown field "color"`},
		{"POST", "/control/faults", `{"server":"a","kind":"hang","id":3}`, 400, "id, address and since"},
		{"POST", "/control/faults", `{"kind":"hang"}`, 400, "which server?"},
		{"POST", "/control/faults", `{"server":"c","kind":"hang"}`, 404, "no server"},
		{"POST", "/control/faults", `{"server":"a","kind":"melt"}`, 400, "unknown kind of fault"},
		{"POST", "/control/faults", `{"server":"a"}`, 400, "unknown kind of fault"},
		{"POST", "/control/faults", `{"server":"a","kind":"delay"}`, 400, "more than 0"},
		{"POST", "/control/faults", `{"server":"a","kind":"delay","delay":"soon"}`, 400, "soon"},
		{"POST", "/control/faults", `{"server":"a","kind":"delay","delay":100}`, 400, "the body is invalid"},
		{"POST", "/control/faults", `{"server":"a","kind":"drop","percent":0}`, 400, "1 to 100"},
		{"POST", "/control/faults", `{"server":"a","kind":"drop","percent":1000}`, 400, "1 to 100"},
		{"POST", "/control/faults", `{"server":"a","kind":"drop","percent":1.5}`, 400, "the body is invalid"},
		{"POST", "/control/faults", `{"server":"a","kind":"hang","for":"-1s"}`, 400, "until it is lifted"},
		{"POST", "/control/faults", `{"server":"10.0.0.2:11211","kind":"hang"}`, 409, "first, second"},
		{"POST", "/control/faults", `{"server":"` + strings.Repeat("x", 5000) + `"}`, 413, "larger than 4096 bytes"},
		{"POST", "/control/tags/invalidate", `{"names":[]}`, 400, `the body must be {"names": ["NAME"]}`},
		{"POST", "/control/tags/invalidate", `{"names":["a"]}{"names":["b"]}`, 400, `one object is enough`},
		{"POST", "/control/tags/invalidate", "{\"names\":[\"caf\xe9\"]}", 400, `must be UTF-8 here`},
		{"POST", "/control/tags/invalidate", `{"names":["` + strings.Repeat("a", 5000) + `"]}`, 413, `the body is larger than 4096 bytes`},
		{"POST", "/control/tags/invalidate", `{"names":["user:7", "a b"]}`, 400, `"a b": the name of a tag has a comma, blank or control character`},
		{"POST", "/control/tags/invalidate", `{"names":[""]}`, 400, `"": a tag has no name`},
		{"POST", "/control/tags/invalidate", `{"names":["user:7"]}`, 409, "no route has tags"},
		{"POST", "/control/tags/invalidate", `{"names":["user:7"],"pool":"third"}`, 404, `no pool "third"; there are first, second`},
		{"DELETE", "/control/faults/7", "", 404, `no fault "7"`},
		{"DELETE", "/control/faults/x", "", 404, `no fault "x"`},
	} {
		t.Run(c.method+" "+c.path+" "+fmt.Sprintf("%.60s", c.body), func(t *testing.T) {
			faults := &fault.Set{}
			p, h := steered(Options{Access: Access{Faults: true}, FaultSet: faults})
			w := do(h, request(c.method, c.path, c.body))
			if c.status == 0 { // the mux handles empty segments itself
				if w.Code < 300 {
					t.Errorf("%d", w.Code)
				}
			} else {
				var said map[string]string
				if err := json.Unmarshal(w.Body.Bytes(), &said); err != nil || len(said) != 1 || !strings.Contains(said["error"], c.says) || w.Code != c.status {
					t.Errorf("%d %s, %v; want %d %q", w.Code, w.Body, err, c.status, c.says)
				}
				if c.status == 405 && w.Header().Get("Allow") == "" {
					t.Error("no Allow")
				}
			}
			for _, pool := range p.Table().Pools {
				for _, s := range pool.Servers {
					if o := p.OverrideOf(pool.Name, s.Name); o != (proxy.OverrideSince{}) {
						t.Errorf("%s of %s has an order: %v", s.Name, pool.Name, o)
					}
				}
			}
			if len(faults.List()) > 0 {
				t.Error(faults.List())
			}
		})
	}
}

func TestWhoMaySteer(t *testing.T) {
	from := func(peer, host string, more ...string) *http.Request {
		r := request("POST", "/control/servers/a/drain?pool=first", "")
		r.RemoteAddr, r.Host = peer, host
		for i := 0; i < len(more); i += 2 {
			r.Header.Set(more[i], more[i+1])
		}
		return r
	}
	for _, c := range []struct {
		name   string
		who    Who
		r      *http.Request
		status int
	}{
		{"loopback", "", from("127.0.0.1:1", "localhost"), 200},
		{"IPv6 loopback", "", from("[::1]:1", "[::1]:9151"), 200},
		{"elsewhere", "", from("10.0.0.9:1", "localhost"), 403},
		{"elsewhere, opened", Everybody, from("10.0.0.9:1", "ringside.example"), 200},
		{"off", Nobody, from("127.0.0.1:1", "localhost"), 404},
		{"a wrong value", "om", from("127.0.0.1:1", "localhost"), 404},
		{"a page that names its host 127.0.0.1", "", from("127.0.0.1:1", "evil.example"), 403},
		{"without the header", Everybody, from("127.0.0.1:1", "localhost", steering, ""), 403},
		{"a browser", Everybody, from("127.0.0.1:1", "localhost", "Origin", "http://localhost"), 403},
		{"a browser, privately", Everybody, from("127.0.0.1:1", "localhost", "Origin", "null"), 403},
	} {
		p, h := steered(Options{Access: Access{Control: c.who}})
		w := do(h, c.r)
		if w.Code != c.status {
			t.Errorf("%s: %d %s, want %d", c.name, w.Code, w.Body, c.status)
		}
		if done := p.OverrideOf("first", "a").Override == health.Drain; done != (c.status == 200) {
			t.Errorf("%s: done is %v", c.name, done)
		}
	}
	_, h := steered(Options{}) // reading needs the same access as changing
	r := request("GET", "/control/servers", "")
	r.RemoteAddr = "10.0.0.9:1"
	if w := do(h, r); w.Code != 403 {
		t.Errorf("GET from elsewhere: %d", w.Code)
	}
}

// TestCommandsAreLogged checks that the log has the address and the user of each operator command, and
// nothing of commands that are not permitted, which anybody could send in any number.
func TestCommandsAreLogged(t *testing.T) {
	var log strings.Builder
	p := running()
	p.Log = slog.New(slog.NewTextHandler(&log, nil))
	h := New(p, Options{}).Handler()
	for _, test := range []struct{ method, path, from, user, want string }{
		{"POST", "/control/servers/a/restore", "127.0.0.1:9999", "alice", `msg="operator command" command="POST /control/servers/a/restore" address=127.0.0.1:9999 user=alice` + "\n"},
		{"POST", "/control/servers/none/drain", "127.0.0.1:9999", "", `user=unknown error=`},
		{"POST", "/control/servers/a/restore", "192.0.2.1:9999", "mallory", ""},
		{"GET", "/control/servers", "127.0.0.1:9999", "alice", ""},
	} {
		log.Reset()
		r := httptest.NewRequest(test.method, test.path, nil)
		r.RemoteAddr, r.Host = test.from, "127.0.0.1:9151"
		r.Header.Set(steering, "1")
		r.Header.Set(operatorHeader, test.user)
		h.ServeHTTP(httptest.NewRecorder(), r)
		if test.want == "" && strings.Contains(log.String(), "operator command") || !strings.Contains(log.String(), test.want) {
			t.Errorf("%+v: the log is %s", test, log.String())
		}
	}
}

// TestCommandsAreLimited checks that the log has each of a few commands, and that a client can't fill it with
// more, whether they are executed or rejected.
func TestCommandsAreLimited(t *testing.T) { synctest.Test(t, testCommandsAreLimited) }

func testCommandsAreLimited(t *testing.T) {
	var log testenv.Output
	p := running()
	p.Log = slog.New(slog.NewTextHandler(&log, nil))
	h := New(p, Options{Access: Access{Faults: true}, FaultSet: &fault.Set{}, HandOver: func() (HandOver, error) { return HandOver{}, nil }}).Handler()
	for _, test := range []struct {
		method, path, body string
		lines              int // of 100 commands
	}{
		{"POST", "/control/faults", "{", 1},
		{"POST", "/control/faults", `{"server": "a", "kind": "delay", "delay": "1ms"}`, 5 + 5},
		{"DELETE", "/control/faults", "", 5 + 1},
		{"POST", "/control/hand-over", "", 5},
		{"POST", "/control/servers/a/restore", "", 5},
		{"POST", "/control/servers/10.0.0.2:11211/restore", "", 5},
		{"POST", "/control/servers/none/restore", "", 1},
	} {
		log.Reset()
		for range 100 {
			do(h, request(test.method, test.path, test.body))
		}
		if lines := strings.Count(log.String(), "\n"); lines != test.lines {
			t.Errorf("%s %s: %d lines, want %d, in\n%s", test.method, test.path, lines, test.lines, log.String())
		}
		time.Sleep(time.Minute) // lines that wait are written, and none is limited any more
		synctest.Wait()
	}
}

func TestFaultsNotAllowed(t *testing.T) {
	_, h := steered(Options{})
	for _, r := range []*http.Request{
		request("POST", "/control/faults", `{"server":"a","kind":"hang"}`),
		request("DELETE", "/control/faults", ""),
		request("DELETE", "/control/faults/1", ""),
	} {
		if w := do(h, r); w.Code != 403 || !strings.Contains(w.Body.String(), "admin.allow_faults") {
			t.Errorf("%s: %d %s", r.Method, w.Code, w.Body)
		}
	}
	if w := do(h, request("GET", "/control/faults", "")); w.Code != 200 || w.Body.String() != `{"allowed":false,"faults":[]}`+"\n" {
		t.Errorf("GET: %d %s", w.Code, w.Body)
	}
}

// Client and Server over real sockets: orders and faults are set, listed and lifted.
func TestClient(t *testing.T) {
	second := pool("second")
	second.Servers = append(second.Servers, table.Target{Name: "sock", Network: "unix", Address: "/run/m.sock", Weight: 1})
	second.Place = place(3)
	p := newProxy(pool("first"), second)
	l := newLoop(p)
	l.dead[beta] = true
	client := l.client()
	l.says(client, "get b1\r\n")
	faults := &fault.Set{}
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			s := New(p, Options{Access: Access{Faults: true}, FaultSet: faults})
			address := "127.0.0.1:0"
			if network == "unix" {
				address = filepath.Join(t.TempDir(), "s")
			}
			at := serve(t, s, network, address)
			c, ctx := NewClient(network, at.String()), context.Background()
			defer c.Close()
			list, err := c.Servers(ctx)
			if err != nil || len(list) != 5 || list[0].State != live.Unknown || list[1].State != live.Down || list[1].LoopsDown != 1 ||
				!strings.Contains(list[1].Why, "refused") || list[0].Failover != nil || time.Since(list[1].Since) > time.Minute {
				t.Fatalf("%+v, %v", list, err)
			}
			clients, err := c.Clients(ctx, "requests", 1)
			if err != nil || clients.All != 1 || len(clients.Clients) != 1 || clients.Clients[0].Requests != 1 || clients.Clients[0].In != 8 || clients.Clients[0].Listener != "l" {
				t.Fatalf("%+v, %v", clients, err)
			}
			list, err = c.Order(ctx, "", "unix:/run/m.sock", "drain", false)
			if err != nil || len(list) != 1 || list[0].Server != "sock" || list[0].Pool != "second" || list[0].State != live.Drained || list[0].Order != "drain" {
				t.Fatalf("%+v, %v", list, err)
			}
			if list, err = c.Order(ctx, "second", "a", "down", false); err != nil || list[0].State != live.Down || list[0].Why != "taken down by an operator" {
				t.Fatalf("%+v, %v", list, err)
			}
			got := scrape(t, s.Handler())
			for name, want := range map[string]float64{
				`ringside_server_override{address="10.0.0.1:11211",order="down",pool="second",server="a"}`:                1,
				`ringside_server_override{address="unix:/run/m.sock",order="drain",pool="second",server="sock"}`:          1,
				`ringside_server_requests_refused_total{address="10.0.0.2:11211",reason="ordered",server="` + beta + `"}`: 0,
			} {
				if v, ok := got[name]; !ok || v != want {
					t.Errorf("%s is %v", name, v)
				}
			}
			if _, ok := got[`ringside_server_override{address="10.0.0.1:11211",order="down",pool="first",server="a"}`]; ok {
				t.Error("an order that nobody has given is shown")
			}
			for _, name := range []string{"sock", "a"} {
				if list, err = c.Order(ctx, "second", name, "restore", false); err != nil || list[0].Order != "" {
					t.Fatalf("%+v, %v", list, err)
				}
			}

			f, err := c.Fault(ctx, FaultState{Server: beta, Kind: fault.Delay, Delay: Duration(time.Second), For: Duration(time.Hour)})
			if err != nil || f.ID == 0 || f.Address != beta || f.Since == nil || f.For != Duration(time.Hour) {
				t.Fatalf("%+v, %v", f, err)
			}
			if got := faults.Of("tcp", beta); got != (fault.State{Delay: time.Second}) {
				t.Errorf("%+v", got)
			}
			all, allowed, err := c.Faults(ctx)
			if err != nil || !allowed || len(all) != 1 || all[0].ID != f.ID || all[0].Server != beta || all[0].Delay != Duration(time.Second) {
				t.Errorf("%+v, %v, %v", all, allowed, err)
			}
			if err := c.Lift(ctx, f.ID); err != nil || len(faults.List()) > 0 {
				t.Error(err, faults.List())
			}
			var status *StatusError
			if err := c.Lift(ctx, f.ID); !errors.As(err, &status) || status.Status != 404 {
				t.Errorf("lifted twice: %v", err)
			}
		})
	}
}

// The time of a server in its phase counts from the start of Ringside, not of the machine.
func TestStatesAreThoseSinceTheStart(t *testing.T) {
	moves := pool("moves")
	moves.Failover.Mode = table.Rehash
	p := newProxy(moves)
	l := newLoopAt(p, int64(30*24*time.Hour), nil)
	const later = 5 * time.Second
	l.now += int64(later)
	l.wakeup(func() {})
	s, err := p.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range live.States(p, s) {
		if ms := s.Failover.SinceMS; ms < later.Milliseconds() || ms > 2*later.Milliseconds() {
			t.Errorf("%s is in for %d ms, the loop runs for %v", s.Server, ms, later)
		}
	}
}

// TestClientLimitsAnswers checks that what is sent without an end is an error that says so.
func TestClientLimitsAnswers(t *testing.T) {
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "data: ")
		for text := bytes.Repeat([]byte("a"), 1<<16); r.Context().Err() == nil; {
			w.Write(text)
		}
	}))
	defer h.Close()
	c := NewClient("tcp", h.Listener.Addr().String())
	defer c.Close()
	_, ready := c.Ready(t.Context())
	_, servers := c.Servers(t.Context())
	trace := c.Trace(t.Context(), []string{"a"}, time.Minute, func(string, []byte) error { return nil })
	for i, got := range []error{ready, servers, trace} {
		parts := []string{"an answer of more than 1 MiB", "an answer of more than 16 MiB", "a line of more than 16 MiB"}
		if want := "the admin interface at " + c.Address() + " sends " + parts[i] + ": is it a Ringside instance?"; got == nil || got.Error() != want {
			t.Errorf("%v, want %s", got, want)
		}
	}
}

// TestSilentStream checks that the client ends a stream on which nothing arrives, also if the instance
// does not even accept the request. A slow line, and a slow reader of events, do not end it.
func TestSilentStream(t *testing.T) {
	for _, test := range []struct {
		name  string
		serve func(conn net.Conn)
		took  time.Duration
		want  string
	}{
		{"no reply", func(net.Conn) {}, 8 * time.Second, "has sent nothing for more than 8s"},
		{"an event, then nothing", func(conn net.Conn) {
			time.Sleep(5 * time.Second)
			io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\nevent: tick\ndata: {}\n\n")
		}, (5 + 20 + 8) * time.Second, "has sent nothing for more than 8s"},
		{"a slow line", func(conn net.Conn) {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\ndata: ")
			for range 20 {
				time.Sleep(5 * time.Second)
				io.WriteString(conn, "a")
			}
			conn.Close()
		}, (20*5 + 20) * time.Second, "unexpected EOF"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := NewClient("tcp", "127.0.0.1:1")
				here, there := net.Pipe()
				defer there.Close()
				c.http.Transport = &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) { return here, nil }}
				go io.Copy(io.Discard, there)
				go test.serve(there)
				begin := time.Now()
				err := c.Stream(t.Context(), "", func(string, []byte) error {
					time.Sleep(20 * time.Second)
					return nil
				})
				if took := time.Since(begin); err == nil || !strings.Contains(err.Error(), test.want) || took != test.took {
					t.Errorf("after %v: %v", took, err)
				}
			})
		})
	}
}

// TestLongOrderToHungInstance checks that the client does not wait two minutes for an instance that hangs, also if it
// hangs after it has accepted the order. It does wait for an order that takes long.
func TestLongOrderToHungInstance(t *testing.T) {
	const done = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
	for _, order := range []struct {
		name string
		send func(context.Context, *Client) error
	}{
		{"reload", func(ctx context.Context, c *Client) error { _, err := c.Reload(ctx, Consent{}); return err }},
		{"tags", func(ctx context.Context, c *Client) error { _, err := c.InvalidateTags(ctx, Invalidate{}); return err }},
	} {
		for _, test := range []struct {
			name   string
			hangs  time.Duration // time until the instance answers no request any more
			takes  time.Duration // time that the order takes
			want   string        // "": the order succeeds
			unsure bool          // whether the error says that the result is unknown
		}{
			{"at once", 0, 0, "no answer from the admin interface", false},
			{"later", 20 * time.Second, time.Hour, "has sent nothing for more than 15s: it hangs", true},
			{"never", time.Hour, time.Minute, "", false},
		} {
			t.Run(order.name+" "+test.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := NewClient("tcp", "127.0.0.1:1")
					begin := time.Now()
					c.http.Transport = &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
						here, there := net.Pipe()
						go func() {
							defer there.Close()
							r, err := http.ReadRequest(bufio.NewReader(there))
							if err != nil {
								return
							}
							if r.Method == "POST" {
								time.Sleep(test.takes)
							}
							if time.Since(begin) >= test.hangs {
								io.Copy(io.Discard, there)
								return
							}
							io.WriteString(there, done)
						}()
						return here, nil
					}}
					err := order.send(t.Context(), c)
					took := time.Since(begin)
					if test.want == "" {
						if err != nil || took != test.takes {
							t.Errorf("after %v: %v", took, err)
						}
						return
					}
					unsure := err != nil && strings.Contains(err.Error(), "it is not known whether this was done")
					if err == nil || !strings.Contains(err.Error(), test.want) || unsure != test.unsure || took > test.hangs+15*time.Second+5*time.Second {
						t.Errorf("after %v: %v", took, err)
					}
					time.Sleep(2 * time.Hour) // until the instance has ended
				})
			})
		}
	}
}

func TestClientFindsNoRingside(t *testing.T) {
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "hello")
	}))
	c := NewClient("tcp", h.Listener.Addr().String())
	if _, err := c.Servers(t.Context()); err == nil || !strings.Contains(err.Error(), "is it a Ringside instance?") {
		t.Error(err)
	}
	h.Close()
	c.Close()
	if _, err := c.Servers(t.Context()); err == nil || !strings.Contains(err.Error(), "no answer from the admin interface at 127.0.0.1:") {
		t.Error(err)
	}
}

// A FaultState is encoded with the documented names.
func TestFaultNames(t *testing.T) {
	var f FaultState
	err := json.Unmarshal([]byte(`{"server":"a","pool":"p","kind":"drop","delay":"100ms","percent":30,"for":"5s"}`), &f)
	if want := (FaultState{Server: "a", Pool: "p", Kind: fault.Drop, Delay: Duration(100 * time.Millisecond), Percent: 30, For: Duration(5 * time.Second)}); err != nil || !reflect.DeepEqual(f, want) {
		t.Errorf("%+v, %v", f, err)
	}
}

// A reload returns its changes or the error. It needs the access of the control API.
func TestReload(t *testing.T) {
	for _, c := range []struct {
		name   string
		again  func(Consent) (Reloaded, error)
		status int
		says   string
	}{
		{"done", func(Consent) (Reloaded, error) {
			return Reloaded{File: "f", Generation: 2, Changes: []string{"pool main: +server c"}}, nil
		}, 200, `{"file":"f","generation":2,"changes":["pool main: +server c"],"next_start":null}`},
		{"refused", func(Consent) (Reloaded, error) { return Reloaded{}, errors.New("f:1:2: wrong") }, 422, `{"error":"f:1:2: wrong"}`},
		{"not cut off", func(Consent) (Reloaded, error) { return Reloaded{}, ErrNotCutOff }, 409, "--servers-dead is not needed"},
		{"stopping", func(Consent) (Reloaded, error) { return Reloaded{}, ErrStopping }, 503, "stopping"},
		{"no file", nil, 409, "no configuration file"},
	} {
		_, h := steered(Options{ReadAgain: c.again})
		if w := do(h, request("POST", "/control/reload", "")); w.Code != c.status || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s: %d %s, want %d %s", c.name, w.Code, w.Body, c.status, c.says)
		}
	}
	for path, want := range map[string]Consent{"/control/reload": {}, "/control/reload?accept=true": {Moves: true}, "/control/reload?dead=true": {Dead: true}} {
		_, h := steered(Options{ReadAgain: func(accepts Consent) (Reloaded, error) {
			if accepts != want {
				t.Errorf("%s: the operator accepts %+v", path, accepts)
			}
			return Reloaded{}, nil
		}})
		do(h, request("POST", path, ""))
	}
	_, h := steered(Options{ReadAgain: func(Consent) (Reloaded, error) { t.Error("it was done"); return Reloaded{}, nil }})
	for _, r := range []*http.Request{request("POST", "/control/reload?file=x", ""), request("POST", "/control/reload?accept=yes", ""), request("POST", "/control/reload?dead=yes", ""), request("POST", "/control/reload", "x"), request("GET", "/control/reload", "")} {
		if w := do(h, r); w.Code < 400 {
			t.Errorf("%s %s: %d %s", r.Method, r.URL, w.Code, w.Body)
		}
	}
}

// A reload waits while keys are about to move, so its reply may take longer than others.
func TestAReloadMayTakeLong(t *testing.T) {
	_, h := steered(Options{ReadAgain: func(Consent) (Reloaded, error) { return Reloaded{}, nil }})
	w := &deadlineWriter{ResponseWriter: httptest.NewRecorder(), start: time.Now()}
	h.ServeHTTP(w, request("POST", "/control/reload", ""))
	if given := w.until.Sub(w.start); given < steerLife {
		t.Errorf("its answer may take %v, and the client waits for %v", given, steerLife)
	}
}

// The access can change while the server runs.
func TestAllow(t *testing.T) {
	s := New(newProxy(pool("first")), Options{FaultSet: &fault.Set{}})
	fault := func() int {
		return do(s.Handler(), request("POST", "/control/faults", `{"server":"a","kind":"hang"}`)).Code
	}
	if code := fault(); code != 403 {
		t.Errorf("not allowed yet: %d", code)
	}
	s.Allow(Access{Faults: true})
	if code := fault(); code != 201 {
		t.Errorf("allowed: %d", code)
	}
	s.Allow(Access{Control: Nobody, Faults: true})
	if code := fault(); code != 404 {
		t.Errorf("control is off: %d", code)
	}
}

func TestConfig(t *testing.T) {
	_, h := steered(Options{Config: func() ConfigAnswer { return ConfigAnswer{File: "a.yaml", Text: "pools: <&>\n"} }})
	r := httptest.NewRequest("GET", "/control/config", nil)
	r.RemoteAddr, r.Host = "127.0.0.1:4000", "localhost"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	var got ConfigAnswer
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 || got.File != "a.yaml" || got.Text != "pools: <&>\n" {
		t.Errorf("%d %s %v", w.Code, w.Body, err)
	}
	_, h = steered(Options{})
	w = httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != 409 || !strings.Contains(w.Body.String(), "no configuration file") {
		t.Errorf("without a file: %d %s", w.Code, w.Body)
	}
	r.RemoteAddr = "10.0.0.9:4000"
	w = httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != 403 {
		t.Errorf("from another host: %d %s", w.Code, w.Body)
	}
}
