package proxy_test

// Tests of the reasons of misses and of rebuild times that the engine records, with a
// clock that the test moves.

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"ringside/proxy/conversation"
	"ringside/proxy/watch/missreason"
)

// model is a memcached model that uses the harness's clock.
type model struct {
	s     *conversation.Harness
	items map[string]map[string]int64 // by server and key: when the item expires; 0: never
}

func newModel(t *testing.T, more ...string) *model {
	m := &model{s: conversation.New(t), items: map[string]map[string]int64{"s1": {}, "s2": {}, "s3": {}}}
	m.s.Quiet = true
	m.s.Pool([]string{"main", "servers=s1,s2,s3"})
	for _, line := range more {
		m.s.Line(line)
	}
	m.s.Table.Misses = true
	m.s.Begin()
	m.s.Engine.Watch.Left = math.MaxInt
	return m
}

// ask sends a request and returns what the client gets.
func (m *model) ask(request string) string {
	c := m.s.Endpoint("c1")
	m.s.Wakeup(func() { m.s.Engine.Bytes(c.Link, []byte(request)) })
	for again := true; again; {
		again = false
		for name := range m.items {
			a := m.s.Endpoints[name]
			if a == nil || a.Link == nil || a.Got.Len() == 0 {
				continue
			}
			again = true
			answer := m.answer(name, string(a.Got.Next(a.Got.Len())))
			m.s.Wakeup(func() { m.s.Engine.Bytes(a.Link, []byte(answer)) })
		}
	}
	got := c.Got.String()
	c.Got.Reset()
	return got
}

func (m *model) answer(server, text string) (answer string) {
	lines := strings.Split(text, "\r\n")
	items := m.items[server]
	live := func(key string) bool {
		until, ok := items[key]
		return ok && (until == 0 || m.s.Now < until)
	}
	until := func(ttl string) int64 {
		if n, _ := strconv.Atoi(ttl); n > 0 {
			return m.s.Now + int64(n)*int64(time.Second)
		}
		return 0
	}
	for i := 0; i < len(lines); i++ {
		switch f := strings.Fields(lines[i]); {
		case len(f) == 0:
		case f[0] == "get":
			for _, key := range f[1:] {
				if live(key) {
					answer += "VALUE " + key + " 0 1\r\nx\r\n"
				}
			}
			answer += "END\r\n"
		case f[0] == "set":
			items[f[1]] = until(f[3])
			answer += "STORED\r\n"
			i++
		case f[0] == "touch" && live(f[1]):
			items[f[1]] = until(f[2])
			answer += "TOUCHED\r\n"
		case f[0] == "delete" && live(f[1]):
			delete(items, f[1])
			answer += "DELETED\r\n"
		case f[0] == "delete", f[0] == "touch":
			answer += "NOT_FOUND\r\n"
		case f[0] == "flush_all":
			clear(items)
			answer += "OK\r\n"
		default:
			m.s.Fatalf("the model knows no %q", lines[i])
		}
	}
	return answer
}

func (m *model) judged() *missreason.Report {
	is, err := m.s.Proxy.MissReport()
	if err != nil {
		m.s.T.Fatal(err)
	}
	return is
}

// TestWhyKeysMiss runs a load on three servers in which the reason of each miss is
// known, and compares it with the recorded reason. It flushes values, loses them with a
// server, and moves them by a reload, in turn.
func TestWhyKeysMiss(t *testing.T) {
	m := newModel(t)
	r := rand.New(rand.NewPCG(5, 6))
	var asked, right [missreason.NumReasons]int
	last, its := m.judged(), "1" // suffix of the keys of s1
	check := func(key string, want missreason.Reason) {
		if got := m.ask("get " + key + "\r\n"); got != "END\r\n" {
			t.Fatalf("get %s, which is %s: %q", key, want, got)
		}
		is := m.judged()
		asked[want]++
		if is.Routes[0].Reasons[want] == last.Routes[0].Reasons[want]+1 {
			right[want]++
		}
		last = is
	}
	m.s.Engine.CountEvictions(1, "tcp s1", "tcp s2", "tcp s3")
	for round := range 20 {
		truth := map[string]missreason.Reason{}
		var order []string
		for i := range 300 {
			m.s.Now += int64(10 * time.Millisecond)
			key := fmt.Sprintf("k:%d:%d:%d", round, i, 1+r.IntN(3)) // the last digit selects the server
			order = append(order, key)
			is := []missreason.Reason{missreason.Never, missreason.Expired, missreason.Deleted, missreason.Evicted}[r.IntN(4)]
			truth[key] = is
			if is == missreason.Never {
				continue
			}
			ttl := "0"
			if is == missreason.Expired || r.IntN(2) == 0 {
				ttl = "5"
			}
			m.ask("set " + key + " 0 " + ttl + " 1\r\nx\r\n")
			if is != missreason.Expired && ttl == "5" { // the item stays alive
				m.ask("touch " + key + " 1000000\r\n")
			}
		}
		gone := missreason.Evicted
		switch m.s.Now += int64(6 * time.Second); round % 4 { // items stored with 5 s have expired
		case 1:
			gone = missreason.Flushed
			m.ask("flush_all\r\n")
		case 2:
			gone = missreason.Out
			m.s.Line("s1 refuses")
			m.s.Line("s1 dies")
			m.ask("get a" + its + "\r\n")
			clear(m.items["s1"])
			m.s.Line("s1 accepts")
			m.s.Line("wait 3s")
			if m.ask("get a" + its + "\r\n"); m.s.Endpoints["s1"].Link == nil {
				t.Fatal("s1 is not asked again")
			}
			last = m.judged()
		case 3: // each key moves to another server
			gone = missreason.Moved
			its = []string{"3", "2", "1"}[round/4%3]
			m.s.Line("reload")
			m.s.Pool([]string{"main", map[string]string{"3": "servers=s2,s3,s1", "2": "servers=s3,s1,s2", "1": "servers=s1,s2,s3"}[its]})
			m.s.Table.Misses = true
			m.s.Begin()
		}
		for _, key := range order {
			if truth[key] == missreason.Deleted && gone != missreason.Flushed && gone != missreason.Moved && (gone != missreason.Out || !strings.HasSuffix(key, its)) {
				m.ask("delete " + key + "\r\n")
			} else if truth[key] == missreason.Deleted {
				truth[key] = gone
			}
		}
		m.ask("get a" + its + "\r\n")
		m.s.Engine.CountEvictions(uint64(round+2), "tcp s1", "tcp s2", "tcp s3")
		last = m.judged()
		for _, key := range order {
			m.s.Now += int64(10 * time.Millisecond)
			want := truth[key]
			if want == missreason.Evicted {
				if want = gone; gone == missreason.Out && !strings.HasSuffix(key, its) {
					want = missreason.Evicted
				}
				for _, items := range m.items {
					delete(items, key)
				}
			}
			check(key, want)
		}
	}
	all, good := 0, 0
	for is := range missreason.NumReasons {
		all, good = all+asked[is], good+right[is]
		t.Logf("%s: %d of %d", is, right[is], asked[is])
	}
	if good*100 < all*95 || all < 5000 {
		t.Errorf("%d of %d are right", good, all)
	}
}

// TestMissesOfMany checks that a multi-key read records exactly the keys that were
// missing.
func TestMissesOfMany(t *testing.T) {
	m := newModel(t, "route a: main strip", "route - main")
	for _, key := range []string{"b1", "b3", "a:b1"} {
		m.ask("set " + key + " 0 0 1\r\nx\r\n")
	}
	m.ask("get b1 b2 b3 d1 a:b1 a:b2 c3\r\n")
	is, got := m.judged(), map[string]uint64{}
	for _, l := range append(is.Routes, is.Prefixes...) {
		got[l.Name] += l.Reasons[missreason.Never]
	}
	if fmt.Sprint(got) != "map[:6 a::2]" { // 3 of the last route and 3 without a colon; 1 of each a:
		t.Errorf("misses by route and prefix: %v", got)
	}
}

// TestInvalidated checks that a value with an invalidated tag is not recorded with
// another reason.
func TestInvalidated(t *testing.T) {
	s := conversation.New(t)
	for _, line := range []string{"pool main servers=s1,s2", "route - main tags=suffix,post:{id}>post:{id}+posts"} {
		s.Line(line)
	}
	s.Table.Misses = true
	for _, line := range []string{
		"c1 > get post:1",
		`s1 > HD c25\r\nHD c64\r\nVA 45 kpost:1 f1381192775 c71\r\n[head 5 post:1=25 posts=63]A`,
		`s1 > HD\r\nHD s45 f1381192775 c80 t9 W X`,
		"c1 < END",
	} {
		s.Line(line)
	}
	is, _ := s.Proxy.MissReport()
	sum := uint64(0)
	for _, l := range is.Routes {
		sum += l.Reasons[missreason.Invalidated]
	}
	if sum != 1 {
		t.Errorf("%d misses were told as invalidated, want 1", sum)
	}
}

// TestWorth rebuilds values from origins that take 10, 100 and 1,000 ms, each for the
// keys of one prefix. It checks the recorded times and which prefix costs most.
func TestWorth(t *testing.T) {
	m := newModel(t, "route a:fast: main", "route a:usual: main", "route a:slow: main")
	origins := map[string]time.Duration{"a:fast:": 10 * time.Millisecond, "a:usual:": 100 * time.Millisecond, "a:slow:": time.Second}
	start := m.s.Now
	for i := range 200 {
		for _, route := range []string{"a:fast:", "a:usual:", "a:slow:"} {
			key := fmt.Sprintf("%s%d:%d", route, i, 1+i%3)
			if got := m.ask("get " + key + "\r\n"); got != "END\r\n" {
				t.Fatalf("get %s: %q", key, got)
			}
			m.s.Now += int64(origins[route])
			m.ask("set " + key + " 0 0 1\r\nx\r\n")
		}
	}
	is := m.judged()
	seconds := float64(m.s.Now-start) / 1e9
	near := func(what string, got, want float64) {
		if math.Abs(got/want-1) > .1 {
			t.Errorf("%s: %.4f, in truth %.4f", what, got, want)
		}
	}
	cost := 0.0
	for _, l := range is.Routes {
		took, ok := origins[l.Name]
		if !ok {
			continue
		}
		near(l.Name+" p50", l.P50, took.Seconds())
		near(l.Name+" p99", l.P99, took.Seconds())
		near(l.Name+" mean", l.Mean, took.Seconds())
		near(l.Name+" sets a second", l.Fills, 200/seconds)
		near(l.Name+" cost", l.Cost, 200*took.Seconds()/seconds)
		cost += l.Cost
	}
	if is.Prefixes[0].Name != "a:" {
		t.Errorf("%q costs most", is.Prefixes[0].Name)
	}
	near("all", is.Prefixes[0].Cost, cost)
}
