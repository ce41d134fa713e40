package top

// This file runs the terminal session: it reads keys, shows screens, and sends orders to the
// instance.

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"ringside/proxy/admin"
	"ringside/proxy/live"
)

// Options are the arguments of Run.
type Options struct {
	Client  *admin.Client
	Pool    string // name of the pool to show; empty: the first pool
	In, Out *os.File
	Colours bool
	ASCII   bool     // true if only ASCII characters may be drawn
	Trace   []string // patterns of keys that are traced from the start
}

// message is an event of the stream from the instance, or the error that ended the stream.
type message struct {
	topic string
	data  []byte
	err   error
}

// Run shows on the terminal what the instance does, until the user quits or ctx ends.
func Run(ctx context.Context, o Options) error {
	back, err := raw(o.In)
	if err != nil {
		return fmt.Errorf("this is not a terminal: say --once for a single screen: %w", err)
	}
	defer back()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	events, keys, winch := make(chan message), make(chan string), make(chan os.Signal, 1)
	signal.Notify(winch, resized)
	defer signal.Stop(winch)
	go o.follow(ctx, events)
	go read(ctx, o.In, keys)
	s := &screen{Options: o, w: bufio.NewWriterSize(o.Out, 1<<16), view: &View{rates: map[string]*rates{}}, traces: traces{to: events}}
	s.trace(ctx, o.Trace)
	s.w.WriteString("\x1b[?1049h\x1b[?25l")
	defer func() {
		s.w.WriteString("\x1b[?25h\x1b[?1049l")
		s.w.Flush()
	}()
	var shown time.Time // time when the state of the last complete second was displayed
	for due := true; ; {
		if due {
			if err := s.show(); err != nil {
				return err
			}
		}
		due = true
		select {
		case m := <-events:
			if m.err == nil && m.topic != "hello" { // A state consists of several events, of which the tick is the first. Events arrive some milliseconds early or late.
				past := time.Since(shown)
				if m.topic == "tick" && past > s.view.pace()-paces[0]/2 {
					shown, past = time.Now(), 0
				}
				due = s.view.Pace == 0 || past < paces[0]/2
			}
			switch {
			case m.err != nil:
				text := live.Clean(m.err.Error())
				s.view.Trouble = strings.ToUpper(text[:1]) + text[1:] + ". Trying again every 2 s."
			case m.topic == "untraced":
				s.view.Untraced = string(m.data)
			case !s.held || m.topic == "hello":
				s.view.Trouble = ""
				if err := s.view.Take(m.topic, m.data); err != nil {
					return fmt.Errorf("the admin interface sends what is not an event: %w", err)
				}
			}
		case k := <-keys:
			if end := s.key(ctx, k); end {
				return nil
			}
		case <-winch:
			s.before = nil
		case <-ctx.Done():
			return nil
		}
	}
}

// follow forwards the events of the stream of the instance to a channel, and the errors that end it.
func (o *Options) follow(ctx context.Context, to chan<- message) {
	repeat(ctx, to, func(take taker) message { return message{err: o.Client.Stream(ctx, o.Pool, take)} })
}

// taker is called with each event of a stream.
type taker func(topic string, data []byte) error

// repeat opens a stream with the function open, which returns when the stream has ended, and
// forwards the events to a channel, and then the message that open returns. It opens the stream
// again 2 s later, until ctx ends.
func repeat(ctx context.Context, to chan<- message, open func(take taker) message) {
	send := func(m message) {
		select {
		case to <- m:
		case <-ctx.Done():
		}
	}
	for ctx.Err() == nil {
		send(open(func(topic string, data []byte) error {
			send(message{topic, append([]byte(nil), data...), nil})
			return ctx.Err()
		}))
		select {
		case <-time.After(2 * time.Second):
		case <-ctx.Done():
		}
	}
}

// read forwards the keys that the user presses to a channel.
func read(ctx context.Context, in *os.File, to chan<- string) {
	b := make([]byte, 256)
	for {
		n, err := in.Read(b)
		if err != nil {
			return
		}
		for _, k := range keysOf(string(b[:n])) {
			select {
			case to <- k:
			case <-ctx.Done():
				return
			}
		}
	}
}

// keysOf returns the keys in text, which is the result of one read. A key is a character, or "up",
// "down" or "esc". An escape sequence arrives in one read. Escape sequences of other keys are
// ignored.
func keysOf(text string) (keys []string) {
	for text != "" {
		if len(text) > 2 && text[0] == 0x1b && (text[1] == '[' || text[1] == 'O') {
			end := 2
			for end < len(text)-1 && text[end] < '@' {
				end++
			}
			switch text[end] {
			case 'A':
				keys = append(keys, "up")
			case 'B':
				keys = append(keys, "down")
			}
			text = text[end+1:]
			continue
		}
		_, n := utf8.DecodeRuneInString(text)
		if k := text[:n]; k == "\x1b" {
			keys = append(keys, "esc")
		} else {
			keys = append(keys, k)
		}
		text = text[n:]
	}
	return keys
}

// screen is the state of the terminal session.
type screen struct {
	Options
	w             *bufio.Writer
	view          *View
	traces        traces
	before        []Line // lines that the terminal shows now; nil: all lines must be written again
	width, height int
	held          bool   // true if the user has stopped the updates of the screen
	order         string // order that waits until the user presses y: drain or restore; empty: none
	escaped       bool   // the last key was escape; a second escape quits
}

var codes = map[Style]string{Plain: "", Good: "\x1b[32m", Warn: "\x1b[33m", Bad: "\x1b[31m", Dim: "\x1b[90m", Bold: "\x1b[1m", Reverse: "\x1b[7m"}

// show draws the screen and writes the lines that have changed since the last time.
func (s *screen) show() error {
	if w, h := Size(s.Out); w != s.width || h != s.height {
		s.width, s.height, s.before = w, h, nil
	}
	lines := s.view.Draw(s.width, s.height)
	s.w.WriteString("\x1b[?2026h")
	if s.before == nil {
		s.w.WriteString("\x1b[2J")
	}
	for i := range max(len(lines), len(s.before)) {
		var line Line
		if i < len(lines) {
			line = lines[i]
		}
		if i < len(s.before) && s.before[i] == line {
			continue
		}
		style, text := line.Style, line.Text
		if s.ASCII {
			text = ASCII(text)
		}
		if !s.Colours && style != Reverse && style != Bold {
			style = Plain
		}
		if line.Style == Reverse {
			text += strings.Repeat(" ", max(0, s.width-utf8.RuneCountInString(text)))
		}
		fmt.Fprintf(s.w, "\x1b[%d;1H%s", i+1, style.Paint(text))
		if utf8.RuneCountInString(text) < s.width { // erases the rest of the line; in the last column, this would erase the last character
			s.w.WriteString("\x1b[K")
		}
	}
	s.w.WriteString("\x1b[?2026l")
	s.before = lines
	return s.w.Flush()
}

// key does what the key k means. It returns true if the user quits.
func (s *screen) key(ctx context.Context, k string) (end bool) {
	v := s.view
	again := s.escaped && k == "esc"
	s.escaped = k == "esc"
	switch {
	case k == "\x03" || again:
		return true
	case s.order != "":
		s.answer(ctx, k)
	case v.Typing:
		switch typed(&v.Filter, k) {
		case entered:
			v.Typing = false
		case gaveUp:
			v.Typing, v.Filter = false, ""
		}
	case v.Asking:
		switch typed(&v.Asked, k) {
		case entered:
			v.Asking = false
			s.trace(ctx, strings.Fields(v.Asked))
		case gaveUp:
			v.Asking = false
		}
	case k == "q" || k == "x":
		return true
	case strings.Contains("rhpwmen", k):
		v.Reversed = v.Sort == k[0] && !v.Reversed
		v.Sort = k[0]
	case k == "/":
		v.Typing, v.Filter = true, ""
	case k == "t":
		v.Asking, v.Asked = true, strings.Join(v.Patterns, " ")
	case k == " ":
		s.held = !s.held
		v.Message = ""
		if s.held {
			v.Message = "paused: space resumes"
		}
	case k == "?":
		v.Help = !v.Help
	case len(k) == 1 && k[0] >= '1' && k[0] <= '6':
		v.Opened, v.Help = false, false
		if v.Part != k[0] {
			v.Part = k[0]
		} else {
			v.Part = 0
		}
	case k == "\r" || k == "\n":
		if v.Selected == "" {
			v.Message = "which server? choose one with the arrows"
		}
		v.Opened = v.Selected != "" && !v.Opened
	case k == "+" || k == "-":
		v.Pace = max(0, min(len(paces)-1, v.Pace+map[string]int{"+": -1, "-": 1}[k]))
		v.Message = "an update every " + v.pace().String()
	case k == "esc":
		v.Opened, v.Part = false, 0
		v.Selected, v.Message, v.Help, v.Filter = "", "", false, ""
	case k == "up" || k == "down":
		s.choose(k)
	case k == "d" || k == "u":
		s.prepare(k)
	}
	return false
}

// Results of typed. The first one means that the user is still typing.
const (
	goesOn  = iota
	entered // the user has confirmed the text
	gaveUp  // the user has canceled the input
)

// typed changes the text as a key press demands, for a text that the user is typing.
func typed(text *string, k string) int {
	switch {
	case k == "\r" || k == "\n":
		return entered
	case k == "esc":
		return gaveUp
	case k == "\x7f" || k == "\b":
		_, n := utf8.DecodeLastRuneInString(*text)
		*text = (*text)[:len(*text)-n]
	case len(k) > 0 && k[0] >= ' ' && k != "up" && k != "down":
		*text += k
	}
	return goesOn
}

// choose selects the next or the previous server of the table.
func (s *screen) choose(k string) {
	rows := s.view.Rows()
	at := slices.IndexFunc(rows, func(r *live.NowServer) bool { return r.Name == s.view.Selected }) + map[string]int{"down": 1, "up": -1}[k]
	if len(rows) > 0 {
		s.view.Selected = rows[min(max(at, 0), len(rows)-1)].Name
	}
}

// prepare asks the user to confirm an order to drain or restore a server.
func (s *screen) prepare(k string) {
	v := s.view
	switch {
	case !v.Control:
		v.Message = "no orders from here: see admin.control"
	case v.Selected == "" || v.Now() == nil:
		v.Message = "which server? choose one with the arrows"
	default:
		i := slices.IndexFunc(v.Topo.Servers, func(t live.TopoServer) bool { return t.Name == v.Selected })
		if i >= 0 && v.Topo.Servers[i].Joins {
			v.Message = "no orders for a new server before it is in use"
			return
		}
		if s.order = map[string]string{"d": "drain", "u": "restore"}[k]; i >= 0 {
			title, text := v.Topo.Orders[s.order].About(&v.Topo.Servers[i], v.Tick.S.Rate[i])
			v.Message = title + " y or n. " + text
		}
	}
}

// answer sends the prepared order if the key k is y. With any other key it drops the order.
func (s *screen) answer(ctx context.Context, k string) {
	order := s.order
	s.order, s.view.Message = "", ""
	if k != "y" || s.view.Topo == nil {
		return
	}
	s.view.Message = order + " " + s.view.Selected + ": done"
	if _, err := s.Client.Order(ctx, s.view.Topo.Pool, s.view.Selected, order, false); err != nil {
		s.view.Message = live.Clean(err.Error())
	}
}
