package e2e

// This file checks that no client gets bytes of another one. It tests attackers, a server
// that sends wrong replies, and keys of arbitrary bytes.

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ringside/internal/testenv"
)

// TestIsolation runs attackers that send odd commands, next to a victim that checks each
// of its replies. They share one server connection, which must not be lost either.
func TestIsolation(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		r := startRingside(t, driver, front(startMemcacheds(t, 1)))
		v := newVictim(dial(t, r.address))
		var stop atomic.Bool
		var attackers sync.WaitGroup
		for i := range 3 {
			attackers.Go(func() {
				random := rand.New(rand.NewPCG(uint64(i), 11))
				for !stop.Load() {
					attack(r.address, random)
				}
			})
		}
		defer attackers.Wait()
		defer stop.Store(true)
		random := rand.New(rand.NewPCG(7, 11))
		for range 600 {
			v.pipeline(random)
		}
		if n := r.metric(t, "ringside_desyncs_total"); n != 0 {
			t.Errorf("%v connections were aborted", n)
		}
	})
}

// victim is a client that knows each reply that it must get.
type victim struct {
	*conn
	values map[string]string
	names  []string
	asked  int
}

func newVictim(c *conn) *victim {
	v := &victim{conn: c, values: map[string]string{}}
	for i := range 9 {
		key := fmt.Sprintf("victim%d", i)
		v.names = append(v.names, key)
		v.values[key] = strings.Repeat(fmt.Sprintf("<%s>", key), 1+i*i)
	}
	v.values["victim8"] = strings.Repeat("<victim8>", 10000) // large enough to be forwarded in several pieces
	for key, value := range v.values {
		c.store(key, value)
	}
	return v
}

// pipeline sends some commands at once and checks the replies.
func (v *victim) pipeline(random *rand.Rand) {
	v.t.Helper()
	var sent, want strings.Builder
	for range 1 + random.IntN(8) {
		v.asked++
		key := v.names[random.IntN(len(v.names))]
		value := v.values[key]
		switch random.IntN(9) {
		case 0:
			fmt.Fprintf(&sent, "get %s absent %s\r\n", key, key)
			fmt.Fprintf(&want, "VALUE %s 0 %d\r\n%[3]s\r\nVALUE %[1]s 0 %[2]d\r\n%[3]s\r\nEND\r\n", key, len(value), value)
		case 1:
			fmt.Fprintf(&sent, "mg %s k v O%d\r\n", key, v.asked)
			fmt.Fprintf(&want, "VA %d k%s O%d\r\n%s\r\n", len(value), key, v.asked, value)
		case 2:
			fmt.Fprintf(&sent, "mg %s v\r\n", key)
			fmt.Fprintf(&want, "VA %d\r\n%s\r\n", len(value), value)
		case 3:
			fmt.Fprintf(&sent, "set %s 0 0 %d\r\n%s\r\n", key, len(value), value)
			want.WriteString("STORED\r\n")
		case 4:
			fmt.Fprintf(&sent, "ms %s %d k q\r\n%s\r\nmg absent q v\r\nmg %[1]s s q\r\nmn\r\n", key, len(value), value)
			fmt.Fprintf(&want, "HD s%d\r\nMN\r\n", len(value))
		case 5:
			fmt.Fprintf(&sent, "delete absent%d\r\nmd absent k O%[1]d q\r\n", v.asked)
			fmt.Fprintf(&want, "NOT_FOUND\r\nNF kabsent O%d\r\n", v.asked)
		case 6:
			fmt.Fprintf(&sent, "gat 0 %s\r\nincr absent 1\r\n", key)
			fmt.Fprintf(&want, "VALUE %s 0 %d\r\n%s\r\nEND\r\nNOT_FOUND\r\n", key, len(value), value)
		default:
			fmt.Fprintf(&sent, "get %s\r\n", key)
			fmt.Fprintf(&want, "VALUE %s 0 %d\r\n%s\r\nEND\r\n", key, len(value), value)
		}
	}
	v.send(sent.String())
	v.expect(want.String())
}

// attack is one connection of an attacker. It sends some commands and reads what it gets.
func attack(address string, random *rand.Rand) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	var b strings.Builder
	wild := random.IntN(2) == 0
	for range 1 + random.IntN(40) {
		b.WriteString(odd(random, wild))
	}
	sent := b.String()
	if random.IntN(4) == 0 {
		sent = sent[:random.IntN(len(sent)+1)]
	}
	if random.IntN(3) == 0 { // closes without reading the replies
		io.WriteString(c, sent)
		return
	}
	go func() {
		io.WriteString(c, sent+"\r\nquit\r\n")
		c.(*net.TCPConn).CloseWrite()
	}()
	io.Copy(io.Discard, c)
}

// evil are keys with bytes that look like replies.
var evil = []string{
	"\r\nVALUE victim1 0 4\r\nEVIL\r\nEND\r\n", "\r\nVALUE victim2 0 4\r\nEVIL", "x\r\nVA 4 kvictim3 O1\r\nEVIL",
	"x\r\nEND", "\r\nEND\r\nEND\r\nEND", "x\r\nHD\r\nHD", "\nEN\r\n", "x\r\nSTORED\r\nSTORED", "x\r\nMN\r\n", "x\r\nVA 4\r\nEVIL\r\nHD",
	"\r\nCLIENT_ERROR no", "\r\nget victim1\r\n", "user 1/2", " ", "\x00\x01\xff\n", "evil", "evil\tkey", strings.Repeat("\r\n", 90),
}

// odd returns a command, or nearly one. None of them changes the victim's keys. If wild
// is set, a command may state a wrong length, so its data block may be parsed as
// commands. Data blocks are therefore harmless as commands in that case.
func odd(random *rand.Rand, wild bool) string {
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	name := pick(evil...)
	encoded := base64.StdEncoding.EncodeToString([]byte(name))
	plain := pick("evil", "evil2", "evil\tkey", "__rsx", "__rs_view__:main", encoded, strings.Repeat("e", 250), strings.Repeat("e", 251), "evil\x00x", "Zm9v")
	flags := func() string {
		var b strings.Builder
		for range random.IntN(7) {
			b.WriteString(pick(" ", " ", " ", "  "))
			b.WriteString(pick("b", "b", "b", "k", "k", "k", "v", "v", "q", "t", "s", "c", "f", "h", "l", "u", "I", "N30", "N30", "R30", "T30", "F1", "C1", "J7", "D2", "MI", "ME", "MA",
				"kx", "bx", "O"+encoded, "O1", "O", "O"+strings.Repeat("o", 40), "E5", "X", "Z", "0"))
		}
		return b.String()
	}
	key := pick(encoded, encoded, encoded, plain)
	b := " b"
	if key != encoded || random.IntN(6) == 0 {
		b = ""
	}
	harmless := []string{"x", "7", "", "get victim1\r\n", "VALUE victim1 0 4\r\nEVIL\r\nEND\r\n", strings.Repeat("END\r\n", 5000)}
	data := pick(harmless...)
	if !wild && random.IntN(4) == 0 {
		data = "set victim1 0 0 4\r\nEVIL\r\nflush_all\r\nquit\r\n"
	}
	end := pick("\r\n", "\r\n", "\r\n", "\n")
	switch random.IntN(19) {
	case 0, 1, 2, 3:
		return pick("mg", "mg", "md", "ma") + " " + key + b + flags() + end
	case 4, 5:
		return fmt.Sprintf("ms %s %d%s%s%s%s\r\n", key, len(data), b, flags(), end, data)
	case 6: // an item that memcached creates without recording that its key is base64
		return fmt.Sprintf("%s %s b N30%s%smg %s b k v%s%s", pick("mg", "ma"), encoded, flags(), end, encoded, flags(), end)
	case 7:
		return fmt.Sprintf("me %s%s%s%s", key, b, pick("", "", " v", " b"), end)
	case 8:
		return fmt.Sprintf("mg %s v b%s", encoded, end) + pick("mn"+end, "")
	case 9:
		return pick("get", "gets", "bget", "gat 5", "gats 5", "gat x") + " " + plain + pick("", " evil", " evil evil2 evil", " __rsx") + end
	case 10:
		return fmt.Sprintf("%s %s 0 0 %d%s%s%s\r\n", pick("set", "add", "replace", "append", "prepend"), pick("evil", "evil2", "Zm9v"), len(data), pick("", " noreply", " junk"), end, data)
	case 11:
		return fmt.Sprintf("cas evil 0 0 %d %d%s%s%s\r\n", len(data), random.IntN(9), pick("", " noreply"), end, data)
	case 12:
		return pick("incr", "decr", "touch") + " " + plain + pick(" 1", " x", "", " 18446744073709551616") + pick("", " noreply") + end
	case 13:
		return "delete " + plain + pick("", " 0", " noreply", " 0 noreply", " 5") + end
	case 14, 15, 16: // a rejected command with its data block
		word, size := pick("set", "add", "replace", "append", "prepend"), len(data)
		line := pick(
			fmt.Sprintf("%s %s 0 0 %d", word, strings.Repeat("e", 251), size),
			fmt.Sprintf("%s evil\x00 0 0 %d", word, size),
			fmt.Sprintf("%s evil %s 0 %d", word, pick("x", "-1", "1x", "4294967296"), size),
			fmt.Sprintf("%s evil 0 %s %d", word, pick("x", "1x", "99999999999999999999"), size),
			fmt.Sprintf("cas evil 0 0 %d%s", size, pick("", " x", " -1", " 18446744073709551616")),
			fmt.Sprintf("ms evil %d %s", size, pick("Tx", "v v", "MX", "{", "C", strings.Repeat("v ", 30))),
		)
		return fmt.Sprintf("%s%s%s%s\r\n", line, pick("", "", " noreply", " junk"), end, data)
	case 17:
		if !wild {
			return ""
		}
		return fmt.Sprintf("%s evil %s%s%s%s", pick("set", "ms", "add"), pick("0 0 x", "-1", "0 0 -1", "5 5", "", "99999999999"), end, pick("get victim1", "x", "mn"), end)
	}
	return pick("version", "verbosity 1", "stats", "stats settings", "mn", "mn x", "shutdown", "nonsense", "", " ", "\x00", "mg", "ms", "get", "stats "+encoded, "lru_crawler metadump all", "cache_memlimit 5") + end
}

// TestKeysInBase64 checks that replies for base64 keys equal memcached's byte for byte,
// although Ringside requests fewer fields. It compares only items that memcached knows to
// have base64 keys. It leaves out items created by N and items counted by ma.
func TestKeysInBase64(t *testing.T) {
	var program strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&program, format+"\r\n", args...) }
	for _, name := range []string{"foo", "user 1/2", "a\r\nb", "\x00\xff", strings.Repeat("z", 180)} {
		key := base64.StdEncoding.EncodeToString([]byte(name))
		for _, flags := range []string{"b k", "k b", "O1 k b", "b k O1", "kx O2 bx", "b O3"} {
			for _, more := range []string{"", " q"} {
				say("mg %s %s v%s", key, flags, more)
				say("md %s %s%s", key, flags, more)
				say("ma %s %s v%s", key, flags, more)
				say("ms %s 2 %s C98765432109%s\r\n70", key, flags, more)
				say("ms %s 2 MR %s%s\r\n70", key, flags, more)
				say("ms %s 2 %s T0 F5%s\r\n70", key, flags, more)
				say("ms %s 2 %s ME%s\r\n70", key, flags, more)
				say("ms %s 2 C98765432109 %s%s\r\n70", key, flags, more)
				say("mg %s s %s f t v%s", key, flags, more)
				say("mg %s %s s t%s", key, flags, more)
				say("ma %s t %s v%s", key, flags, more)
				say("ms %s 2 b T0\r\n70", key)
				say("ma %s %s C98765432109%s", key, flags, more)
				say("ma %s %s D5%s", key, flags, more)
				say("ms %s 2 b T0\r\n70", key)
				say("md %s %s C98765432109%s", key, flags, more)
				say("md %s %s I T30%s", key, flags, more)
				say("mg %s %s s v%s", key, flags, more)
				say("mg %s %s s v%s", key, flags, more)
				say("md %s %s%s", key, flags, more)
				say("mn")
			}
		}
	}
	say("ms Zm9v 1 b\r\n7\r\nmg foo k v\r\nmg foo k O1 s\r\nmn") // stored with a base64 key and read with the plain key
	say("quit")
	want := everything(t, startMemcached(t).address, program.String())
	eachDriver(t, func(t *testing.T, driver string) {
		for _, routes := range []string{"", "routes:\n  - {pool: main, replicas: 2, replicas_on: server}\n"} {
			r := startRingside(t, driver, front(startMemcacheds(t, 2))+routes)
			if got := everything(t, r.address, program.String()); got != want {
				at := 0
				for at < min(len(got), len(want)) && got[at] == want[at] {
					at++
				}
				from := max(at-100, 0)
				t.Errorf("%q: at byte %d\n got %s\nwant %s", routes, at, brief(got[from:]), brief(want[from:]))
			}
		}
	})
}

// everything sends a complete program and returns all replies.
func everything(t testing.TB, address, program string) string {
	c := dial(t, address)
	go io.WriteString(c, program)
	return c.closed()
}

// TestServerThatLies checks that a server which returns another key or opaque than
// requested loses its connection.
func TestServerThatLies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ ask, lie string }{
		"get":    {"get a", "VALUE b 0 1\r\nB\r\nEND"},
		"many":   {"get a b", "VALUE b 0 1\r\nB\r\nVALUE a 0 1\r\nA\r\nEND"},
		"twice":  {"gets a", "VALUE a 0 1 1\r\nA\r\nVALUE a 0 1 1\r\nA\r\nEND"},
		"large":  {"get a", "VALUE b 0 300000\r\n" + strings.Repeat("B", 300000) + "\r\nEND"},
		"key":    {"mg a v k", "VA 1 kb\r\nB"},
		"opaque": {"mg a v O1", "VA 1 O2\r\nB"},
		"quiet":  {"mg a v q O1\r\nmg b v q O2\r\nmn", "EN O2\r\nVA 1 O2\r\nB"},
		"ms":     {"ms a 1 k\r\nA", "HD kb"},
	} {
		t.Run(name, func(t *testing.T) {
			eachDriver(t, func(t *testing.T, driver string) {
				liar := startLiar(t, c.ask, c.lie)
				r := startRingside(t, driver, fmt.Sprintf("pools:\n  main:\n    distribution: ketama\n    get_errors: error\n    servers: [%q]\n", liar))
				client := dial(t, r.address)
				client.send(c.ask + "\r\n")
				line := client.line()
				for strings.HasPrefix(line, "VALUE ") { // the first value is not a lie yet
					client.line()
					line = client.line()
				}
				if !strings.HasPrefix(line, "SERVER_ERROR") || !strings.Contains(line, "another key or opaque than requested") {
					t.Errorf("%q is answered with %q", c.ask, line)
				}
				if n := r.metric(t, "ringside_desyncs_total"); n != 1 {
					t.Errorf("%v connections were aborted, want 1", n)
				}
			})
		})
	}
}

// startLiar runs a server that replies to version. It sends lie once it has received all
// lines of asked, except mn, which Ringside does not forward.
func startLiar(t testing.TB, asked, lie string) (address string) {
	lines := strings.Count(strings.TrimSuffix(asked, "\r\nmn"), "\r\n") + 1
	return testenv.Serve(t, ownHost(), func(c net.Conn) {
		in := bufio.NewScanner(c)
		for n := 0; in.Scan(); {
			if in.Text() == "version" {
				io.WriteString(c, "VERSION 1.6.18\r\n")
			} else if n++; n == lines {
				io.WriteString(c, lie+"\r\n")
			}
		}
	})
}
