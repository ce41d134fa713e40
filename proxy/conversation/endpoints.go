package conversation

// This file simulates the clients and servers of a conversation, and executes the effects of the
// engine.

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"ringside/proxy"
	"ringside/proxy/failover"
	"ringside/proxy/link"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// Endpoint is a client or a server of a conversation.
type Endpoint struct {
	Name   string
	Link   *link.Link    // the engine's connection to the endpoint; nil: none
	Got    bytes.Buffer  // bytes that the endpoint has received, and that were not yet compared with the file of the conversation
	State  string        // "closed" or "aborted" after the engine has closed or aborted the connection
	Mode   string        // how a server behaves: "refuses", "hangs" or "silent"; empty: normally
	Full   bool          // the socket accepts no more bytes from the engine
	Paused bool          // the engine does not read from the connection
	loop   *proxy.Engine // the loop that has the connection to the endpoint; nil: the first loop
	greet  bool          // the endpoint is a server that has not read the greeting yet, the version request with which Ringside begins each connection
	unsent int           // number of bytes that the socket has accepted and that are still in the kernel
	Sent   int           // number of bytes that the endpoint has sent and that the driver has not read

	names    []string                     // the names in the certificate of a client; nil: it has none
	version  string                       // the version that a server reports; empty: Harness.Release
	itemSize string                       // the item_size_max that a server reports; empty: it does not report one
	noCas    bool                         // a server reports that it has no cas
	Serve    func(requests []byte) []byte // a server that replies to all requests; nil: the file has the replies
}

// CertificateNames returns the names in the certificate of a client.
func (a *Endpoint) CertificateNames() []string { return a.names }

// Peer implements link.Sock.
func (a *Endpoint) Peer() string { return a.Name }

// Unsent implements link.Sock.
func (a *Endpoint) Unsent() int { return a.unsent }

// Unread implements link.Sock.
func (a *Endpoint) Unread() int { return a.Sent }

// Begin applies the configuration that the file has described so far.
func (s *Harness) Begin() {
	if s.ready {
		return
	}
	s.ready = true
	s.Listen()
	if s.Engine == nil {
		log := slog.New(slog.DiscardHandler)
		if !s.Quiet {
			var to io.Writer = s.T.Output()
			if s.Logs != nil {
				to = s.Logs
			}
			log = slog.New(slog.NewTextHandler(to, nil))
		}
		s.Proxy = proxy.NewProxy(s.Table, "test", log)
		s.Proxy.Hash = Hash
		s.Engine = s.Proxy.NewEngine(link.DefaultTune)
		s.Engine.Local = func(*link.Link) string { return "[::ffff:10.0.0.5]:11211" }
		s.Engine.Post = func(f func(*proxy.Engine)) { s.Wakeup(func() { f(s.Engine) }) }
		for range s.loops - 1 {
			s.more = append(s.more, s.Proxy.NewEngine(link.DefaultTune))
		}
		if len(s.more) > 0 {
			for _, e := range s.engines() {
				e.Post = func(f func(*proxy.Engine)) { s.posted = append(s.posted, func() { s.wakeup(e, func() { f(e) }) }) }
			}
		}
	} else {
		s.Proxy.SetTable(s.Table)
	}
	for _, e := range s.engines() {
		s.wakeup(e, func() {})
		e.Watch.Left = 1 << 20 // large, so that no request of a conversation is sampled
		if s.RunKeepers {
			continue
		}
		e.Agents = nil
		for _, srv := range e.ByAddress {
			e.Registrations[srv] = slices.DeleteFunc(e.Registrations[srv], func(m failover.Registration) bool { return !m.Copies })
		}
	}
}

// engines returns all loops.
func (s *Harness) engines() []*proxy.Engine { return append([]*proxy.Engine{s.Engine}, s.more...) }

// loopOf returns the loop that has the connection of the endpoint a.
func (s *Harness) loopOf(a *Endpoint) *proxy.Engine { return cmp.Or(a.loop, s.Engine) }

// Leader returns the number of the loop, from 1, that executes the commands on a key.
func (s *Harness) Leader(key string) int { return int(Hash([]byte(key))%uint64(max(s.loops, 1))) + 1 }

// suffix returns the end of the names of a loop's endpoints: "/2" for the second loop, and nothing
// for the first.
func (s *Harness) suffix(e *proxy.Engine) string {
	if i := slices.Index(s.more, e); i >= 0 {
		return fmt.Sprintf("/%d", i+2)
	}
	return ""
}

// Listen adds to the table a route for each pool that has none, and the listener. It returns the
// table.
func (s *Harness) Listen() *table.Table {
	routed := map[*table.Pool]bool{}
	for _, r := range s.Routes {
		routed[r.Pool] = true
	}
	for _, p := range s.Table.Pools {
		if !routed[p] {
			s.Routes = append(s.Routes, table.Route{Pool: p})
		}
	}
	s.Table.TagCommand = "tag:"
	s.Table.Listeners = []table.Listener{{Network: "tcp", Address: "here", Routes: s.Routes, Users: s.users}}
	return s.Table
}

// Endpoint returns the endpoint with a name, and creates it if it does not exist. A name that
// starts with c is a client, which connects at once. Others are servers.
func (s *Harness) Endpoint(name string) *Endpoint {
	a := s.Endpoints[name]
	if a == nil {
		a = &Endpoint{Name: name, names: s.certificates[name]}
		s.Endpoints[name] = a
		for _, e := range s.more {
			if strings.HasSuffix(name, s.suffix(e)) {
				a.loop = e
			}
		}
		if name[0] == 'c' {
			s.wakeup(s.loopOf(a), func() { a.Link = s.loopOf(a).Accepted("tcp", "here", a) })
		}
	}
	return a
}

func (s *Harness) times(text string) (int, string) {
	count, text, _ := strings.Cut(text, " ")
	n, err := strconv.Atoi(count)
	if err != nil {
		s.Fatalf("%v", err)
	}
	return n, s.unquote(text)
}

func (s *Harness) says(a *Endpoint, verb, text string) {
	var data string
	switch {
	case verb == ">*":
		n, text := s.times(text)
		data = strings.Repeat(text, n)
	case strings.HasSuffix(text, `\`):
		data = s.unquote(strings.TrimSuffix(text, `\`))
	default:
		data = s.unquote(text) + "\r\n"
	}
	if a.Link == nil || a.State != "" {
		s.Fatalf("%s has no connection", a.Name)
	}
	if c, ok := a.Link.End.(*upstream.Conn); ok && !s.ShowOpaques {
		data = string(AddOpaques(c, []byte(data)))
	}
	s.wakeup(s.loopOf(a), func() { s.loopOf(a).Bytes(a.Link, []byte(data)) })
}

func (s *Harness) hears(a *Endpoint, nothing bool, text string) {
	if nothing {
		if a.Got.Len() > 0 {
			s.Fatalf("%s has got %q", a.Name, a.Got.String())
		}
		return
	}
	var want string
	if whole, cut := strings.CutSuffix(text, `\`); cut {
		want = s.unquote(whole)
	} else {
		want = s.unquote(text) + "\r\n"
	}
	s.hasGot(a, want)
}

func (s *Harness) hasGot(a *Endpoint, want string) {
	if got := string(a.Got.Next(len(want))); got != want {
		s.Fatalf("%s has got %q, want %q", a.Name, got+a.Got.String(), want)
	}
}

// Wall returns the wall-clock time at a time of the driver's clock.
func Wall(now int64) int64 { return 1_800_000_000 + now/int64(time.Second) }

// Wakeup runs one wakeup of the first loop, as its driver would. f passes events to the loop.
func (s *Harness) Wakeup(f func()) { s.wakeup(s.Engine, f) }

// wakeup runs one wakeup of a loop, and then the functions that loops have posted to each other.
func (s *Harness) wakeup(e *proxy.Engine, f func()) {
	e.Begin(s.Now, Wall(s.Now))
	f()
	s.end(e)
	for e.HasBacklog() {
		e.Begin(s.Now, Wall(s.Now))
		s.end(e)
	}
	if s.posting {
		return
	}
	for s.posting = true; len(s.posted) > 0; {
		f := s.posted[0]
		s.posted = s.posted[1:]
		f()
	}
	s.posting = false
}

// End executes the effects that the first loop has requested.
func (s *Harness) End() { s.end(s.Engine) }

func (s *Harness) end(e *proxy.Engine) {
	for effects := e.End(); len(effects) > 0; effects = e.End() {
		for _, x := range effects {
			s.effect(e, x)
		}
	}
}

func (s *Harness) effect(e *proxy.Engine, x link.Effect) {
	l := x.Link
	a, _ := l.Sock.(*Endpoint)
	switch x.Kind {
	case link.Dial:
		_, address := l.Server().Target()
		a = s.Endpoint(address + s.suffix(e))
		if a.Link != nil {
			a = s.older(a)
		}
		a.Link, a.State, a.unsent, l.Sock = l, "", 0, a
		switch a.Mode {
		case "refuses":
			a.Link, l.Sock = nil, nil
			e.Closed(l, errors.New("connection refused"))
		case "hangs":
		default:
			a.greet = true
			e.Up(l)
		}
	case link.Write:
		s.Send(a)
	case link.Close, link.Abort:
		a.State = map[link.EffectKind]string{link.Close: "closed", link.Abort: "aborted"}[x.Kind]
		a.Link, l.Sock = nil, nil
		if s.OnEnd != nil {
			s.OnEnd(a)
		}
	case link.Pause, link.Resume:
		a.Paused = x.Kind == link.Pause
	}
}

// older keeps a, which has the older connection to a server, under a name with one more ' at
// its end. It returns a new Endpoint for the next connection.
func (s *Harness) older(a *Endpoint) *Endpoint {
	name := a.Name + "'"
	for s.Endpoints[name] != nil && s.Endpoints[name].Link != nil {
		name += "'"
	}
	for ; len(name) > len(a.Name)+1; name = name[:len(name)-1] {
		s.Endpoints[name] = s.Endpoints[name[:len(name)-1]]
	}
	fresh := &Endpoint{Name: a.Name, loop: a.loop, Mode: a.Mode, version: a.version, itemSize: a.itemSize, noCas: a.noCas, Serve: a.Serve}
	s.Endpoints[name], s.Endpoints[a.Name] = a, fresh
	return fresh
}

// Send sends the engine's pending output to the endpoint a. If that is a server, Send also replies
// to the greeting, the version request with which Ringside begins each connection, and to a request
// for the settings of the server.
func (s *Harness) Send(a *Endpoint) {
	if a == nil || a.Link == nil {
		return
	}
	e := s.loopOf(a)
	if a.Full {
		e.Wrote(a.Link, 0, true)
		return
	}
	var sent []byte
	for n := 1; n > 0; { // Pending returns a limited number of slices, as many as one system call can send
		n = 0
		for _, b := range a.Link.Pending(nil) {
			sent = append(sent, b...)
			n += len(b)
		}
		e.Wrote(a.Link, n, false)
	}
	if !s.ShowOpaques {
		sent = ownOpaques.ReplaceAll(sent, nil)
	}
	a.Got.Write(sent)
	if a.Serve != nil {
		if answer := a.Serve(a.Got.Next(a.Got.Len())); a.Mode != "silent" && len(answer) > 0 {
			e.Bytes(a.Link, answer)
		}
		return
	}
	if a.greet && bytes.HasPrefix(a.Got.Bytes(), upstream.AskVersion) {
		a.greet = false
		if a.Mode == "silent" {
			return
		}
		a.Got.Next(len(upstream.AskVersion))
		answer := "VERSION " + cmp.Or(a.version, s.Release, "1.6.18") + "\r\n"
		if bytes.HasPrefix(a.Got.Bytes(), upstream.AskSettings) {
			a.Got.Next(len(upstream.AskSettings))
			answer += a.settings()
		}
		in := e.Registrations[a.Link.End.(*upstream.Conn).Server]
		copies := slices.ContainsFunc(in, func(m failover.Registration) bool { return m.Copies }) // true: a pool of this server has replicas. Then the harness does not answer Ringside's stats request: the conversation file has the reply
		if asked := []byte("stats\r\n"); bytes.HasPrefix(a.Got.Bytes(), asked) && len(in) > 0 && !copies {
			a.Got.Next(len(asked))
			answer += "STAT pid 1\r\nSTAT uptime 0\r\nSTAT time 1000\r\nEND\r\n"
		}
		e.Bytes(a.Link, []byte(answer))
	} else if bytes.Equal(a.Got.Bytes(), upstream.AskSettings) { // after a reload
		a.Got.Reset()
		e.Bytes(a.Link, []byte(a.settings()))
	}
}

// settings returns the reply of a server to AskSettings.
func (a *Endpoint) settings() string {
	switch {
	case a.noCas:
		return "STAT cas_enabled no\r\nEND\r\n"
	case a.itemSize == "":
		return "END\r\n"
	}
	return "STAT item_size_max " + a.itemSize + "\r\nSTAT cas_enabled yes\r\nEND\r\n"
}

// countsMarks fails the test unless the counters of replica tombstones are those in want.
func (s *Harness) countsMarks(want string) {
	var got []string
	for event, users := range s.Engine.Count.Marks {
		for user, n := range users {
			if n > 0 {
				got = append(got, fmt.Sprintf("%v %v %d", stats.TombstoneEvent(event), stats.TombstoneUser(user), n))
			}
		}
	}
	if got := cmp.Or(strings.Join(got, ", "), "none"); got != want {
		s.Fatalf("marks %s, want %s", got, want)
	}
}

// AddOpaques adds opaques to the replies that start in data, which a server sends on c. Ringside
// adds these opaques to its own meta commands, and a real server returns them.
func AddOpaques(c *upstream.Conn, data []byte) (out []byte) {
	var rep wire.Reply
	for a := c.Head; a != nil && c.In == nil && c.StreamLeft == 0; {
		n, _ := wire.NextReply(a.Op, a.Dialect, data, &rep)
		if rep.Size == 0 {
			break
		}
		if end := rep.Line.End; a.OwnOpaque && a.AsText == nil && !rep.Kind.Failed() {
			_, opaque := a.Named()
			out = append(append(append(out, data[:end]...), ' '), opaque...)
			out = append(out, data[end:max(n, int(end))]...)
			data = data[max(n, int(end)):]
		} else {
			out = append(out, data[:n]...)
			data = data[n:]
		}
		if n == 0 {
			break
		}
		if rep.Last {
			a = a.Next
		}
	}
	return append(out, data...)
}

// ownOpaques matches the opaques that Ringside adds to its own meta commands.
var ownOpaques = regexp.MustCompile(" Ors[0-9]+")
