package proxy

// The stage of a conversation: its clients and servers, and what the engine does with them.

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"ringside/proxy/failover"
	"ringside/proxy/link"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/upstream"
)

// actor is a client or a server of a conversation.
type actor struct {
	name   string
	link   *link.Link
	got    bytes.Buffer
	state  string // "closed" or "aborted" once it is
	mode   string // of a server: "refuses", "hangs", "silent"
	full   bool
	paused bool
	greet  bool // the greeting has not been read yet
	unsent int  // bytes that have not arrived, though the socket took them

	version string     // of a server, unless the stage's
	old     *oldServer // it answers by itself
}

func (a *actor) Peer() string { return a.name }

func (a *actor) Unsent() int { return a.unsent }

// begin puts what the file has described so far in force.
func (s *stage) begin() {
	if s.ready {
		return
	}
	s.ready = true
	s.listen()
	if s.e == nil {
		log := slog.New(slog.DiscardHandler)
		if !s.quiet {
			var to io.Writer = s.t.Output()
			if s.logs != nil {
				to = s.logs
			}
			log = slog.New(slog.NewTextHandler(to, nil))
		}
		s.p = NewProxy(s.table, "test", log)
		s.p.Hash = simHash
		s.e = s.p.NewEngine(link.DefaultTune)
		s.e.Post = func(f func(*Engine)) { s.wakeup(func() { f(s.e) }) }
	} else {
		s.p.Swap(s.table)
	}
	s.wakeup(func() {})
	s.e.Watch.Left = 1 << 20 // the first requests are not looked at
	if s.keeps {
		return
	}
	s.e.Agents = nil
	for _, srv := range s.e.ByAddress {
		s.e.Registrations[srv] = slices.DeleteFunc(s.e.Registrations[srv], func(m failover.Registration) bool { return !m.Copies })
	}
}

// listen completes the table.
func (s *stage) listen() *table.Table {
	routed := map[*table.Pool]bool{}
	for _, r := range s.routes {
		routed[r.Pool] = true
	}
	for _, p := range s.table.Pools {
		if !routed[p] {
			s.routes = append(s.routes, table.Route{Pool: p})
		}
	}
	s.table.TagCommand = "tag:"
	s.table.Listeners = []table.Listener{{Network: "tcp", Address: "here", Routes: s.routes, Users: s.users}}
	return s.table
}

func (s *stage) actor(name string) *actor {
	a := s.actors[name]
	if a == nil {
		a = &actor{name: name}
		s.actors[name] = a
		if name[0] == 'c' {
			s.wakeup(func() { a.link = s.e.Accepted("tcp", "here", a) })
		}
	}
	return a
}

func (s *stage) times(text string) (int, string) {
	count, text, _ := strings.Cut(text, " ")
	n, err := strconv.Atoi(count)
	if err != nil {
		s.fatalf("%v", err)
	}
	return n, s.unquote(text)
}

func (s *stage) says(a *actor, verb, text string) {
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
	if a.link == nil || a.state != "" {
		s.fatalf("%s has no connection", a.name)
	}
	if c, ok := a.link.End.(*upstream.Conn); ok && !s.shown {
		data = string(seal(c, []byte(data)))
	}
	s.wakeup(func() { s.e.Bytes(a.link, []byte(data)) })
}

func (s *stage) hears(a *actor, nothing bool, text string) {
	if nothing {
		if a.got.Len() > 0 {
			s.fatalf("%s has got %q", a.name, a.got.String())
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

func (s *stage) hasGot(a *actor, want string) {
	if got := string(a.got.Next(len(want))); got != want {
		s.fatalf("%s has got %q, want %q", a.name, got+a.got.String(), want)
	}
}

// wall is what a clock on the wall says at a time of the driver's clock.
func wall(now int64) int64 { return 1_800_000_000 + now/int64(time.Second) }

// wakeup is one round of a driver.
func (s *stage) wakeup(f func()) {
	s.e.Begin(s.now, wall(s.now))
	f()
	for effects := s.e.End(); len(effects) > 0; effects = s.e.End() {
		for _, x := range effects {
			s.effect(x)
		}
	}
}

func (s *stage) effect(x link.Effect) {
	l := x.Link
	a, _ := l.Sock.(*actor)
	switch x.Kind {
	case link.Dial:
		_, address := l.Server().Target()
		a = s.actor(address)
		if a.link != nil {
			a = s.older(a)
		}
		a.link, a.state, a.unsent, l.Sock = l, "", 0, a
		switch a.mode {
		case "refuses":
			a.link, l.Sock = nil, nil
			s.e.Closed(l, errors.New("connection refused"))
		case "hangs":
		default:
			a.greet = true
			s.e.Up(l)
		}
	case link.Write:
		s.send(a)
	case link.Close, link.Abort:
		a.state = map[link.EffectKind]string{link.Close: "closed", link.Abort: "aborted"}[x.Kind]
		a.link, l.Sock = nil, nil
		if s.ended != nil {
			s.ended(a)
		}
	case link.Pause, link.Resume:
		a.paused = x.Kind == link.Pause
	}
}

// older makes a the older connection to its server, and returns the actor of
// the newer one.
func (s *stage) older(a *actor) *actor {
	name := a.name + "'"
	for s.actors[name] != nil && s.actors[name].link != nil {
		name += "'"
	}
	for ; len(name) > len(a.name)+1; name = name[:len(name)-1] {
		s.actors[name] = s.actors[name[:len(name)-1]]
	}
	fresh := &actor{name: a.name, mode: a.mode, version: a.version, old: a.old}
	s.actors[name], s.actors[a.name] = a, fresh
	return fresh
}

// send moves what the engine has for a, and answers the greeting.
func (s *stage) send(a *actor) {
	if a == nil || a.link == nil {
		return
	}
	if a.full {
		s.e.Wrote(a.link, 0, true)
		return
	}
	var sent []byte
	for n := 1; n > 0; { // one call to the system takes so many pieces and no more
		n = 0
		for _, b := range a.link.Pending(nil) {
			sent = append(sent, b...)
			n += len(b)
		}
		s.e.Wrote(a.link, n, false)
	}
	if !s.shown {
		sent = sealed.ReplaceAll(sent, nil)
	}
	a.got.Write(sent)
	if a.old != nil {
		if answer := a.old.serve(a.got.Next(a.got.Len())); a.mode != "silent" && len(answer) > 0 {
			s.e.Bytes(a.link, answer)
		}
		return
	}
	if a.greet && bytes.HasPrefix(a.got.Bytes(), upstream.AskVersion) {
		a.greet = false
		if a.mode == "silent" {
			return
		}
		a.got.Next(len(upstream.AskVersion))
		answer := "VERSION " + cmp.Or(a.version, s.release, "1.6.18") + "\r\n"
		in := s.e.Registrations[a.link.End.(*upstream.Conn).Server]
		copies := slices.ContainsFunc(in, func(m failover.Registration) bool { return m.Copies }) // where the file says who answers
		if asked := []byte("stats\r\n"); bytes.HasPrefix(a.got.Bytes(), asked) && len(in) > 0 && !copies {
			a.got.Next(len(asked))
			answer += "STAT pid 1\r\nSTAT uptime 0\r\nSTAT time 1000\r\nEND\r\n"
		}
		s.e.Bytes(a.link, []byte(answer))
	}
}

// countsMarks compares what was counted of marks of copies.
func (s *stage) countsMarks(want string) {
	var got []string
	for event, users := range s.e.Count.Marks {
		for user, n := range users {
			if n > 0 {
				got = append(got, fmt.Sprintf("%v %v %d", stats.MarkEvent(event), stats.MarkUser(user), n))
			}
		}
	}
	if got := cmp.Or(strings.Join(got, ", "), "none"); got != want {
		s.fatalf("marks %s, want %s", got, want)
	}
}
