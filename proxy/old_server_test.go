package proxy

// Ringside in front of a memcached of before the meta commands.

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// oldServer is a memcached 1.4.25 as far as commands go. What it doesn't know is
// one ERROR, and the next line is the next command: so it takes the data block
// of an ms for commands, as the real one does.
type oldServer struct {
	input    []byte
	items    map[string]oldItem
	cas      int
	flushed  int
	unknown  []string // the commands it did not know
	commands map[string]int
}

type oldItem struct {
	flags, value string
	cas          int
}

func newOldServer() *oldServer {
	return &oldServer{items: map[string]oldItem{}, commands: map[string]int{}}
}

// serve takes more input and returns what it answers to it.
func (o *oldServer) serve(more []byte) (out []byte) {
	o.input = append(o.input, more...)
	for {
		end := bytes.Index(o.input, []byte("\r\n"))
		if end < 0 {
			return out
		}
		line := string(o.input[:end])
		f := strings.Fields(line)
		rest := o.input[end+2:]
		var block []byte
		stores := len(f) > 4 && slices.Contains([]string{"set", "add", "replace", "append", "prepend", "cas"}, f[0])
		if stores {
			n, _ := strconv.Atoi(f[4])
			if len(rest) < n+2 {
				return out
			}
			block, rest = rest[:n], rest[n+2:]
		}
		out = append(out, o.command(f, string(block), line)...)
		o.input = rest
	}
}

func (o *oldServer) command(f []string, block, line string) string {
	if len(f) == 0 {
		return "ERROR\r\n"
	}
	o.commands[f[0]]++
	key := ""
	if len(f) > 1 {
		key = f[1]
	}
	item, there := o.items[key]
	put := func(value string) string {
		o.cas++
		o.items[key] = oldItem{f[2], value, o.cas}
		return "STORED\r\n"
	}
	switch f[0] {
	case "get", "gets":
		var b strings.Builder
		for _, k := range f[1:] {
			if it, ok := o.items[k]; ok {
				fmt.Fprintf(&b, "VALUE %s %s %d", k, it.flags, len(it.value))
				if f[0] == "gets" {
					fmt.Fprintf(&b, " %d", it.cas)
				}
				fmt.Fprintf(&b, "\r\n%s\r\n", it.value)
			}
		}
		return b.String() + "END\r\n"
	case "set":
		return put(block)
	case "add", "replace", "append", "prepend":
		if there != (f[0] != "add") {
			return "NOT_STORED\r\n"
		}
		if f[0] == "append" || f[0] == "prepend" {
			f[2] = item.flags
			block = map[string]string{"append": item.value + block, "prepend": block + item.value}[f[0]]
		}
		return put(block)
	case "cas":
		switch {
		case !there:
			return "NOT_FOUND\r\n"
		case strconv.Itoa(item.cas) != f[5]:
			return "EXISTS\r\n"
		}
		return put(block)
	case "delete":
		delete(o.items, key)
		return map[bool]string{true: "DELETED\r\n", false: "NOT_FOUND\r\n"}[there]
	case "incr", "decr":
		n, err := strconv.ParseUint(item.value, 10, 64)
		by, _ := strconv.ParseUint(f[2], 10, 64)
		switch {
		case !there:
			return "NOT_FOUND\r\n"
		case err != nil:
			return "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"
		case f[0] == "incr":
			n += by
		default:
			n -= min(n, by)
		}
		value := strconv.FormatUint(n, 10)
		f[2] = item.flags
		put(value)
		return value + "\r\n"
	case "touch":
		return map[bool]string{true: "TOUCHED\r\n", false: "NOT_FOUND\r\n"}[there]
	case "flush_all":
		clear(o.items)
		o.flushed++
		return "OK\r\n"
	case "version":
		return "VERSION 1.4.25\r\n"
	case "stats":
		return "STAT pid 1\r\nSTAT uptime 5\r\nSTAT time 1000\r\nEND\r\n"
	}
	o.unknown = append(o.unknown, line)
	return "ERROR\r\n"
}

// oldStage is a stage whose server s1 is an oldServer.
func oldStage(t *testing.T, script ...string) (*stage, *oldServer) {
	s, o := newStage(t), newOldServer()
	s.quiet = true
	for _, line := range script {
		s.line(line)
	}
	s.begin()
	s.actor("s1").old = o
	return s, o
}

// TestAttackOnOldServer: a client beside another on one server connection sends
// data blocks that are commands, cut anywhere. The other's answers stay its own.
func TestAttackOnOldServer(t *testing.T) {
	blocks := []string{"flush_all", "get secret1", "set victim1 0 0 4\r\nEVIL", "delete victim1", "get victim1\r\nget victim1\r\nget victim1", "\r\n\r\n", ""}
	flags := []string{"", " T0", " F5 T0", " I", " q", " O1 k", " c", " E5", " ME N30", " MA", " F99999999999", " b", " Z"}
	keys := []string{"a1", "YTE=", "YSAx"}
	broken := 0
	for run := range 20 {
		random := rand.New(rand.NewPCG(uint64(run), 9))
		s, o := oldStage(t, "pool main servers=s1")
		o.items["victim1"], o.items["secret1"] = oldItem{"0", "mine", 1}, oldItem{"0", "secret", 2}
		bad := ""
		for range 50 {
			block := blocks[random.IntN(len(blocks))]
			attack := fmt.Sprintf("ms %s %d%s\r\n%s\r\n", keys[random.IntN(len(keys))], len(block), flags[random.IntN(len(flags))], block)
			if random.IntN(4) == 0 {
				attack = []string{"mg victim1 v N30\r\n", "me victim1\r\n", "ma n1 N0 J5\r\n", "md victim1 I\r\n"}[random.IntN(4)]
			}
			cut := random.IntN(len(attack))
			ask := func() {
				s.line("c1 > get victim1\\r\\nget miss1")
				s.line("wait 2ms")
			}
			s.wakeup(func() { s.e.Bytes(s.actor("c2").link, []byte(attack[:cut])) })
			ask()
			s.wakeup(func() { s.e.Bytes(s.actor("c2").link, []byte(attack[cut:])) })
			ask()
			const want = "VALUE victim1 0 4\r\nmine\r\nEND\r\nEND\r\n"
			if got := s.actor("c1").got.String(); got != want+want {
				bad = fmt.Sprintf("after %q the victim gets %q", attack, got)
				break
			}
			s.actor("c1").got.Reset()
			if o.flushed > 0 || len(o.unknown) > 0 {
				bad = fmt.Sprintf("after %q the server was flushed %d times and did not know %q", attack, o.flushed, o.unknown)
				break
			}
			if random.IntN(10) == 0 {
				s.line("s1 dies")
			}
		}
		if bad != "" {
			broken++
			t.Log(bad)
		}
	}
	if broken > 0 {
		t.Errorf("%d of 20 runs", broken)
	}
}

// TestKeeperOfOldServer: the keeper of a pool whose keys would move finds out
// that a server has no meta commands, without sending it one, and still notices
// when it hangs.
func TestKeeperOfOldServer(t *testing.T) {
	s, o := newStage(t), newOldServer()
	s.quiet, s.keeps = true, true
	s.line("pool main servers=s1,s2,s3 failover=rehash request=100ms")
	f := &s.pools["main"].Failover
	f.AfterFailures, f.EjectAfter.Silent, f.Ping, f.Lease, f.Request, f.GoodPings = 3, time.Second, 200*time.Millisecond, time.Second, 100*time.Millisecond, 2
	s.actors["s1"] = &actor{name: "s1", old: o}
	s.actors["s2"], s.actors["s3"] = &actor{name: "s2", old: newOldServer()}, &actor{name: "s3", old: newOldServer()}
	s.begin()
	s.line("wait 3s")
	w := s.e.Agents[0]
	for i, name := range []string{"s1", "s2", "s3"} {
		if v := w.Keeper.Verdict(i); v.Suspect || v.N != 0 || s.actors[name].old.commands["version"] < 5 {
			t.Errorf("%s: %+v, after %v", name, v, s.actors[name].old.commands)
		}
		if o := s.actors[name].old; len(o.unknown) > 0 || len(o.items) > 0 {
			t.Errorf("%s was sent %q and has %v", name, o.unknown, o.items)
		}
	}
	if n := w.Events[[2]string{"", "suspect only: a server doesn't know meta commands"}]; n != 1 {
		t.Errorf("what was decided: %v", w.Events)
	}
	s.line("c1 > ms a1 9\\r\\nflush_all\\r\\nmg a1 v")
	s.line("wait 2ms")
	if got := s.actor("c1").got.String(); got != "HD\r\nVA 9\r\nflush_all\r\n" || o.flushed > 0 {
		t.Errorf("%q, flushed %d times", got, o.flushed)
	}
	s.actor("s2").mode = "silent"
	s.line("wait 3s")
	if v := w.Keeper.Verdict(1); !v.Suspect || v.N != 0 {
		t.Errorf("a server that hangs: %+v", v)
	}
}
