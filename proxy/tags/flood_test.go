package tags_test

import (
	"bytes"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"ringside/internal/memnode"
	"ringside/proxy/client"
	"ringside/proxy/conversation"
	"ringside/proxy/task"
)

// TestFlood checks that invalidations wait while too many of Ringside's own requests wait for a server, and that all of them
// are carried out when it replies. The slow server is one of the pool, or of its gutter.
func TestFlood(t *testing.T) {
	const all, each = 600, 8 // each: number of commands of a client
	for _, slow := range []string{"s1", "g1"} {
		s := conversation.New(t)
		s.Quiet = true
		if s.Line("pool spare servers=g1"); slow == "g1" {
			s.Line("pool main servers=s1 gutter=spare deadline=5s")
		} else {
			s.Line("pool main servers=s1")
		}
		s.Line("route - main tags=suffix,a{n}>x")
		answer := func(name string) int {
			got := &s.Endpoint(name).Got
			n := strings.Count(got.String(), "md __rs_t:")
			if got.Reset(); n > 0 {
				s.Line(name + " > " + strings.TrimSuffix(strings.Repeat(`HD\r\nHD\r\n`, n), `\r\n`))
			}
			return n
		}
		for i := range all {
			s.Line(fmt.Sprintf("c%d > delete tag:t%d", i/each, i))
			if slow == "g1" {
				answer("s1")
			}
		}
		for left, round := all, 0; left > 0; round++ {
			if slow == "g1" {
				answer("s1")
			}
			n := answer(slow)
			if n == 0 || n > 512 || round == 0 && n == all {
				t.Fatalf("%s: in round %d, %d of %d invalidations are sent", slow, round, n, left)
			}
			left -= n
			s.Line("wait 20ms")
		}
		for i := range all / each {
			if got, want := s.Endpoints[fmt.Sprint("c", i)].Got.String(), strings.Repeat("DELETED\r\n", each); got != want {
				t.Errorf("%s: client %d has got %q", slow, i, got)
			}
		}
	}
}

// model is a server that executes a limited number of commands in each step.
type model struct {
	*conversation.Endpoint
	node *memnode.Node
	line *memnode.Line
	done int // number of commands that were executed
}

func newModel(t *testing.T, s *conversation.Harness) *model {
	node, err := memnode.New(memnode.Options{Now: func() time.Time { return time.Unix(conversation.Wall(s.Now), 0) }})
	if err != nil {
		t.Fatal(err)
	}
	return &model{Endpoint: s.Endpoint("s1"), node: node, line: node.Line()}
}

// step executes n commands, and sends their replies.
func (m *model) step(s *conversation.Harness, n int) {
	var out []byte
	for ; n > 0; n-- {
		command, err := m.Got.ReadString('\n')
		if err != nil {
			m.Got.WriteString(command)
			break
		}
		if f := strings.Fields(command); f[0] == "ms" {
			size, _ := strconv.Atoi(f[2])
			command += string(m.Got.Next(size + 2))
		}
		m.done++
		out = append(out, m.line.Do([]byte(command))...)
	}
	if len(out) > 0 {
		s.Wakeup(func() { s.Engine.Bytes(m.Link, out) })
	}
}

// writing is a client that reads a value with tags again and again, and stores it after a miss. Before every fifth command it
// invalidates a tag of its key.
type writing struct {
	*conversation.Endpoint
	number, round int
	state         string // the command that waits for its reply: get, set or delete
	began         int    // how many commands the server had executed when the present command was sent
	old           int    // values up to this number must not be read any more
	value, reads  int    // number of the last value that was stored; reads with a value
	longest       int    // the most commands of others that a server has executed during one command
}

// send sends the next command.
func (w *writing) send(s *conversation.Harness, m *model) {
	text := fmt.Sprintf("get a%d1\r\n", w.number)
	if w.round++; w.state == "miss" {
		w.state = "set"
		w.value++
		text = fmt.Sprintf("set a%d1 7 0 5\r\n%05d\r\n", w.number, w.value)
	} else if w.state = "get"; w.round%5 == 0 {
		w.state = "delete"
		text = fmt.Sprintf("delete tag:x%d1\r\n", w.number)
	}
	w.began = m.done
	s.Wakeup(func() { s.Engine.Bytes(w.Link, []byte(text)) })
}

// heard handles the reply, if it is complete.
func (w *writing) heard(t *testing.T, s *conversation.Harness, m *model) {
	got := w.Got.String()
	if !strings.HasSuffix(got, "\r\n") || w.state == "get" && !strings.HasSuffix(got, "END\r\n") && !strings.Contains(got, "ERROR") {
		return
	}
	w.Got.Reset()
	w.longest = max(w.longest, m.done-w.began)
	switch value := 0; {
	case w.state == "get" && got == "END\r\n":
		w.state = "miss"
	case w.state == "get":
		if n, _ := fmt.Sscanf(got, fmt.Sprintf("VALUE a%d1 7 5\r\n%%d\r\nEND", w.number), &value); n != 1 {
			t.Fatalf("a get has got %q", got)
		}
		if w.reads++; value <= w.old || value != w.value {
			t.Fatalf("client %d reads value %d; the last one is %d, and those up to %d are invalid", w.number, value, w.value, w.old)
		}
	case w.state == "set" && got == "STORED\r\n":
	case w.state == "delete" && got == "DELETED\r\n":
		w.old = w.value
	default:
		t.Fatalf("client %d: the reply to a %s is %q", w.number, w.state, got)
	}
	w.send(s, m)
}

// heap returns how many bytes of memory are in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestManyInvalidations lets clients pipeline invalidations of very many tags. Beside them, other clients read, invalidate and
// store values with tags, one command at a time, and all their replies must be right. The invalidations that have begun or wait
// for room are at most 16 × client.TaskKeys, when the loop is busy, and client.ShareTasks of each client. That bounds the
// memory, and how much the server executes while another client waits.
func TestManyInvalidations(t *testing.T) {
	for _, c := range []struct {
		flooders int
		end      string // of each command
	}{{1, ""}, {60, ""}, {20, " noreply"}} {
		t.Run(fmt.Sprint(c.flooders, c.end), func(t *testing.T) {
			s := conversation.New(t)
			s.Quiet, s.ShowOpaques = true, true
			s.Line("pool main servers=s1 deadline=2s")
			s.Line("route - main tags=a{n}>x{n}+y{n}+all")
			s.Begin()
			m := newModel(t, s)
			var honest []*writing
			for i := range 8 {
				honest = append(honest, &writing{Endpoint: s.Endpoint(fmt.Sprintf("chonest%d", i)), number: i})
				honest[i].send(s, m)
			}
			floods, sent := make([]*conversation.Endpoint, c.flooders), make([]int, c.flooders)
			for i := range floods {
				floods[i] = s.Endpoint(fmt.Sprintf("c%d", i))
			}
			waiting := 16*client.TaskKeys + (len(honest)+c.flooders)*client.ShareTasks
			memory := 512<<10 + int64(waiting)*(task.TaskSize+client.ExchangeSize+512) + int64(c.flooders*(64<<10+1024)) // each client has an input buffer
			before, held, used, replies := heap(), int64(0), int64(0), 0
			for step := range 1200 {
				s.Now += int64(time.Millisecond)
				for i, f := range floods {
					if !f.Paused {
						var text []byte
						for range 1000 {
							text = fmt.Appendf(text, "delete tag:t%d%s\r\n", sent[i]*c.flooders+i, c.end)
							sent[i]++
						}
						s.Wakeup(func() { s.Engine.Bytes(f.Link, text) })
					}
					replies += bytes.Count(f.Got.Bytes(), []byte("DELETED\r\n"))
					if got := bytes.ReplaceAll(f.Got.Bytes(), []byte("DELETED\r\n"), nil); len(got) > 0 {
						t.Fatalf("step %d: a client that invalidates gets %.200q", step, got)
					}
					f.Got.Reset()
				}
				s.Wakeup(func() {})
				if step < 400 || step > 600 { // the server stops for a while
					m.step(s, 20)
				}
				for _, w := range honest {
					w.heard(t, s, m)
				}
				if held = max(held, s.Engine.Buffers.Held); step%150 == 0 {
					used = max(used, heap()-before)
				}
			}
			longest := 0
			for _, w := range honest {
				if longest = max(longest, w.longest); w.reads < 5 {
					t.Errorf("a client has read %d values in %d commands", w.reads, w.round)
				}
			}
			if most := 2 * waiting; longest > most {
				t.Errorf("the server executes %d commands while a client waits, want at most %d", longest, most)
			}
			if held > memory || used > memory {
				t.Errorf("%d bytes are counted and %d are used, want at most %d", held, used, memory)
			}
			if want := m.done / 4; replies+len(m.node.Keys()) < want && c.end == "" || c.end != "" && replies > 0 {
				t.Errorf("%d invalidations have ended, want %d", replies, want)
			}
			t.Logf("%d commands while a client waits; %d bytes counted, %d used, bound %d; %d invalidations", longest, held, used, memory, replies)
		})
	}
}
