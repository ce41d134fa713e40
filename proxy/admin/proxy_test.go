package admin

// A real proxy without sockets, for the other tests: the tests feed the engines, and the
// servers reply to each line as configured.

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"ringside/proxy"
	"ringside/proxy/link"
	"ringside/proxy/table"
	"ringside/ring"
)

// byFirstByte places keys that begin with a on server 0, and with b on server 1.
type byFirstByte int

func (n byFirstByte) Len() int { return int(n) }

func (n byFirstByte) At(key []byte, h uint64, try int) int {
	if try > 0 {
		return -1
	}
	return int(h) % int(n)
}

func place(n int) ring.Placement {
	return ring.Placement{
		Hash: func(key []byte) uint64 { return uint64(key[0] - 'a') },
		Ring: byFirstByte(n),
	}
}

const (
	alpha = "10.0.0.1:11211"
	beta  = "10.0.0.2:11211"
)

// pool has the servers alpha (named a) and beta.
func pool(name string) *table.Pool {
	return &table.Pool{
		Name: name,
		Servers: []table.Target{
			{Name: "a", Network: "tcp", Address: alpha, Weight: 1},
			{Name: beta, Network: "tcp", Address: beta, Weight: 2},
		},
		Place:        place(2),
		Connections:  1,
		QueueLimit:   100,
		Timeouts:     table.Timeouts{Connect: 1e9, Request: 1e9, Deadline: 1e9},
		RetryBackoff: table.Backoff{First: 1e9, Max: 1e9},
	}
}

// routesTo routes keys with the prefix s: to the second pool, if there is one, and the others
// to the first.
func routesTo(pools []*table.Pool) []table.Route {
	routes := []table.Route{{Pool: pools[0]}}
	if len(pools) > 1 {
		routes = append(routes, table.Route{Prefix: "s:", Pool: pools[1]})
	}
	return routes
}

func tableOf(pools ...*table.Pool) *table.Table {
	return &table.Table{
		Listeners: []table.Listener{{Network: "tcp", Address: "l", Routes: routesTo(pools)}},
		Pools:     pools,
		Limits: table.Limits{Clients: 2, Key: 250, Line: 1 << 16, Value: 1 << 20, InFlight: 100,
			Output: 1 << 20, OutputHard: 1 << 24, Memory: 1 << 26},
	}
}

// loop drives one engine, and acts as its servers.
type loop struct {
	e      *proxy.Engine
	now    int64
	answer map[string]string // by request line; a server does not reply to other lines
	items  map[string]string // items that keepers have stored, by address and key; nil: the servers have no meta commands
	dead   map[string]bool   // addresses that refuse connections
	sent   map[*link.Link]*strings.Builder
}

func newProxy(pools ...*table.Pool) *proxy.Proxy {
	return newProxyOf(tableOf(pools...))
}

func newProxyOf(t *table.Table) *proxy.Proxy {
	return proxy.NewProxy(t, `1.2.3-<b>"test"`, slog.New(slog.DiscardHandler))
}

func newLoop(p *proxy.Proxy) *loop { return newLoopAt(p, 0, nil) }

// newLoopAt returns a loop with a clock that started with the machine, and is at now.
func newLoopAt(p *proxy.Proxy, now int64, items map[string]string) *loop {
	l := &loop{
		now:    now,
		e:      p.NewEngine(link.Tune{}),
		answer: map[string]string{"version": "VERSION 1.6.18\r\n", "stats": "STAT pid 1\r\nSTAT uptime 0\r\nSTAT time 1000\r\nEND\r\n", "stats settings": "END\r\n"},
		items:  items,
		dead:   map[string]bool{},
		sent:   map[*link.Link]*strings.Builder{},
	}
	l.e.Post = func(f func(*proxy.Engine)) { f(l.e) }
	l.wakeup(func() {})
	return l
}

// run makes l handle posted functions on a separate goroutine, until the test ends.
func (l *loop) run(t *testing.T) {
	posted, end := make(chan func(*proxy.Engine), 1000), make(chan struct{})
	t.Cleanup(func() { close(end) })
	l.e.Post = func(f func(*proxy.Engine)) { posted <- f }
	go func() {
		for {
			select {
			case f := <-posted:
				l.wakeup(func() { f(l.e) })
			case <-end:
				return
			}
		}
	}()
}

// wakeup is one wakeup of a driver, and all that follow from it.
func (l *loop) wakeup(f func()) {
	l.now += 1e6
	l.e.Begin(l.now, time.Now().Unix())
	f()
	for effects := l.e.End(); len(effects) > 0; effects = l.e.End() {
		var next []func()
		for _, effect := range effects {
			sock := effect.Link
			switch effect.Kind {
			case link.Dial:
				if _, addr := sock.Server().Target(); l.dead[addr] {
					next = append(next, func() { l.e.Closed(sock, errors.New("connection refused")) })
				} else {
					next = append(next, func() { l.e.Up(sock) })
				}
			case link.Write:
				var got strings.Builder
				for _, b := range sock.Pending(nil) {
					got.Write(b)
				}
				l.e.Wrote(sock, got.Len(), false)
				if out := l.sent[sock]; out != nil { // a client's socket
					out.WriteString(got.String())
					continue
				}
				for line := range strings.Lines(got.String()) {
					reply := l.answer[strings.TrimSpace(line)]
					if l.items != nil && reply == "" {
						_, addr := sock.Server().Target()
						reply = l.meta(addr, strings.TrimSpace(line))
					}
					if reply != "" {
						next = append(next, func() { l.e.Bytes(sock, []byte(reply)) })
					}
				}
			}
		}
		for _, f := range next {
			f()
		}
	}
}

// meta replies to a keeper. It stores what is written, but does not add up counters.
func (l *loop) meta(addr, line string) string {
	f := strings.Fields(line)
	switch {
	case line == "mn":
		return "MN\r\n"
	case len(f) < 2 || l.items[addr] != "": // an existing value
		if key := l.items[addr]; key != "" {
			l.items[key] = line
			delete(l.items, addr)
		}
		return ""
	}
	opaque := ""
	for _, flag := range f[2:] {
		if flag[0] == 'O' {
			opaque = " " + flag
		}
	}
	key := addr + " " + f[1]
	switch f[0] {
	case "ms":
		l.items[addr] = key
		return "HD" + opaque + "\r\n"
	case "ma":
		return "VA 1" + opaque + "\r\n1\r\n"
	case "mg":
		if v, ok := l.items[key]; ok {
			return fmt.Sprintf("VA %d c1%s\r\n%s\r\n", len(v), opaque, v)
		}
		return "EN" + opaque + "\r\n"
	}
	return ""
}

// client connects a client.
func (l *loop) client() (link *link.Link) {
	l.wakeup(func() {
		link = l.e.Accepted("tcp", "l", nil)
		l.sent[link] = &strings.Builder{}
	})
	return link
}

// says sends bytes of a client, and returns what the client has received when nothing is left
// to do.
func (l *loop) says(client *link.Link, text string) string {
	l.wakeup(func() { l.e.Bytes(client, []byte(text)) })
	got := l.sent[client].String()
	l.sent[client].Reset()
	return got
}

func (l *loop) mustSay(t *testing.T, client *link.Link, text, want string) {
	t.Helper()
	if got := l.says(client, text); got != want {
		t.Fatalf("client says %q and gets %q, want %q", text, got, want)
	}
}
