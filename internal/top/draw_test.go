package top

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"ringside/proxy/live"
)

// viewOf returns a view of n servers; the second one is out.
func viewOf(t *testing.T, n int) *View {
	t.Helper()
	us, hit, used, limit, ev := 38_000.0, .846, 12e6, 16e6, 94.4
	topo := live.Topo{Pool: "main", Distribution: "ketama-points"}
	tick := live.Tick{Moment: live.Moment{T: 1e12, Ops: map[string]float64{"get": 3000, "set": 509}, Rate: 3509, Hit: &hit, Keys: [3]float64{846, 154}, Latency: [3]*float64{&us, &us, &us},
		Clients: 14}, Overall: live.Overall{Health: live.Health{Level: live.Bad, Title: "cache-1 is out", Text: "Connection refused, 19 s ago."}}}
	var m live.Memory
	for i := range n {
		topo.Servers = append(topo.Servers, live.TopoServer{Name: fmt.Sprint("cache-", i), Addr: "10.0.0.1:11211", Share: 1 / float64(n)})
		state := live.Up
		if i == 1 {
			state = "out"
		}
		s := &tick.S
		s.State, s.Since, s.Why, s.Rate, s.Fail = append(s.State, state), append(s.Since, 1e12-19000), append(s.Why, ""), append(s.Rate, float64(1000*i)), append(s.Fail, 0)
		s.Next, s.Own = append(s.Next, ""), append(s.Own, 2)
		s.P50, s.P99, s.Queue, s.Conns = append(s.P50, &us), append(s.P99, &us), append(s.Queue, 7), append(s.Conns, 1)
		m.Used, m.Held, m.Limit, m.Items = append(m.Used, &used), append(m.Held, &used), append(m.Limit, &limit), append(m.Items, &us)
		m.Evicted, m.Unread, m.Hit = append(m.Evicted, &ev), append(m.Unread, &ev), append(m.Hit, &hit)
	}
	slabs := live.Slabs{Page: 1 << 20, Servers: [][]live.Class{}, Warnings: []live.Warning{{Server: "cache-0", Text: "evicts 69 items/s", Command: "slabs automove 1"}}}
	for i := range 24 {
		slabs.Sum = append(slabs.Sum, live.Class{Chunk: float64(96 + 100*i), Pages: float64(1 + i%5), PerPage: 100, Used: 100, Asked: 5000, Evicted: float64(i)})
	}
	v := &View{}
	for _, one := range []struct {
		topic string
		is    any
	}{{"hello", map[string]any{"control": true}}, {"topo", topo}, {"tick", tick}, {"tick", tick}, {"mem", m}, {"slabs", slabs},
		{"event", map[string]any{"t": 1e12, "told": live.Description{Tone: live.Bad, Text: "x\x1b[2J\u202e is out", More: "connection refused"}}}} {
		b, err := json.Marshal(one.is)
		if err != nil {
			t.Fatal(err)
		}
		if err := v.Take(one.topic, b); err != nil {
			t.Fatal(err)
		}
	}
	return v
}

// A screen of 80 columns has the whole sentence and the evictions. Slow commands
// in a row share one line.
func TestNothingIsCut(t *testing.T) {
	v := viewOf(t, 3)
	v.Tick.Health = live.Health{Level: live.Bad, Title: "cache-1 is out", Text: "Connection refused, 19 s ago. Its 31.2 % of the keys are on cache-0 and cache-2 until it is back."}
	for n := range 5 {
		b, _ := json.Marshal(map[string]any{"t": 1e12, "told": live.Description{Tone: live.Warn, Text: fmt.Sprintf("get of %d took 120 ms", n), Minor: true}})
		if err := v.Take("event", b); err != nil {
			t.Fatal(err)
		}
	}
	narrow, wide := textOf(v.Draw(80, 24)), textOf(v.Draw(120, 40))
	for _, want := range []string{"cache-2 until it is back.", " EV/s", "· get of 4 took 120 ms, and 4 such before", "✗ x"} {
		if !strings.Contains(narrow, want) {
			t.Errorf("80x24 has no %q:\n%s", want, narrow)
		}
	}
	for _, want := range []string{" p50 ", " p99 ", " EV/s ", "ITEMS"} {
		if !strings.Contains(wide, want) {
			t.Errorf("120x40 has no %q:\n%s", want, wide)
		}
	}
}

func TestDraw(t *testing.T) {
	if is := fmt.Sprint(viewOf(t, 3).Draw(80, 24)); !strings.Contains(is, `✗ x\x1b[2J\xe2\x80\xae is out: connection refused`) {
		t.Errorf("the event is not there as it should be: %s", is)
	}
	for _, n := range []int{0, 1, 3, 200} {
		v := viewOf(t, n)
		for _, size := range [][2]int{{80, 24}, {120, 40}, {60, 10}, {59, 9}, {300, 100}, {1, 1}, {112, 34}} {
			width, height := size[0], size[1]
			lines := v.Draw(width, height)
			text := ""
			for _, l := range lines {
				if got := utf8.RuneCountInString(l.Text); got > width {
					t.Errorf("%d servers at %dx%d: a line of %d columns: %q", n, width, height, got, l.Text)
				}
				if strings.ContainsAny(l.Text, "\x1b\u202e\n") {
					t.Errorf("a line that does harm: %q", l.Text)
				}
				text += l.Text + "\n"
			}
			full := width >= 60 && height >= 10
			if len(lines) > height || full && len(lines) != height {
				t.Errorf("%d servers at %dx%d: %d lines", n, width, height, len(lines))
			}
			if width > 50 && !strings.Contains(text, "✗ cache-1 is out. Connection refused") {
				t.Errorf("%d servers at %dx%d: no sentence:\n%s", n, width, height, text)
			}
			for want, is := range map[string]bool{
				"SERVER": full, "SHARE": width >= 112 && full, "MEMORY by item size": height >= 34, "cache-2": full && n >= 3 && height > 20,
				"3,509/s": full, "more: / finds them": full && (n == 200 || n == 3 && height < 20),
			} {
				if strings.Contains(text, want) != is {
					t.Errorf("%d servers at %dx%d: %q is there: %v\n%s", n, width, height, want, !is, text)
				}
			}
		}
	}
}

// TestLostConnection checks that a screen without a connection says that its figures are old, and how old.
func TestLostConnection(t *testing.T) {
	v := viewOf(t, 3)
	v.Trouble = "The instance is silent. Trying again every 2 s."
	for _, size := range [][2]int{{120, 40}, {80, 24}, {59, 9}} {
		want := "✗ No connection to Ringside. The instance is silent. Trying again every 2 s. What you see is old, from 01:46:40 UTC."
		if size[0] < leastWidth { // the figures are not shown, but the sentence may say since when
			want = "01:46:40"
		}
		text := strings.Join(strings.Fields(textOf(v.Draw(size[0], size[1]))), " ")
		if !strings.Contains(text, want) {
			t.Errorf("at %v:\n%s", size, text)
		}
	}
	v.Tick = nil
	if text := textOf(v.Draw(120, 40)); strings.Contains(text, "old") {
		t.Error(text)
	}
}

// With several pools, the first line is the state of the worst one, and --once
// lists all.
func TestSeveralPools(t *testing.T) {
	v := viewOf(t, 3)
	v.Tick.Overall = live.Overall{Health: live.Health{Level: live.Bad, Title: "Pool sessions: s1 refuses connections", Text: "For 19 s."}, Worst: "sessions",
		Pools: []live.PoolHealth{{Pool: "main", Level: live.Good, Title: "All 3 servers serve"}, {Pool: "sessions", Level: live.Bad, Title: "s1 refuses connections"}}}
	if text := textOf(v.Draw(120, 40)); !strings.Contains(text, "✗ Pool sessions: s1 refuses connections. For 19 s.") || !strings.Contains(text, "main (1 of 2 pools)") {
		t.Error(text)
	}
	var once strings.Builder
	if err := Print(&once, v.Now(), false, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Pool sessions: s1 refuses connections. For 19 s.\n", " ● pool main: All 3 servers serve\n", " ✗ pool sessions: s1 refuses connections\n"} {
		if !strings.Contains(once.String(), want) {
			t.Errorf("no %q in:\n%s", want, once.String())
		}
	}
}

// Each part, an opened server and the help fill the screen and do not exceed it.
func TestParts(t *testing.T) {
	for _, n := range []int{0, 1, 3, 200} {
		for part, want := range map[byte]string{'1': "SERVER", '2': "HOT KEY", '3': "MEMORY by item size", '4': "no keys are traced", '5': "is out", '6': "no key has missed recently", '?': "1 servers  2 keys", 'o': "next       it is flushed"} {
			for _, size := range [][2]int{{60, 10}, {80, 24}, {120, 40}} {
				v := viewOf(t, n)
				switch part {
				case '?':
					v.Help = true
				case 'o':
					v.Selected, v.Opened = "cache-1", true
					if n < 3 {
						continue
					}
				default:
					v.Part = part
				}
				lines, text := v.Draw(size[0], size[1]), ""
				for _, l := range lines {
					if utf8.RuneCountInString(l.Text) > size[0] {
						t.Errorf("part %c: a line of more than %d columns: %q", part, size[0], l.Text)
					}
					text += l.Text + "\n"
				}
				if len(lines) != size[1] || !strings.Contains(text, want) || !strings.Contains(text, "1-6 parts") {
					t.Errorf("part %c of %d servers at %v: %d lines\n%s", part, n, size, len(lines), text)
				}
				if part == '1' && n == 200 && !strings.Contains(text, fmt.Sprintf("and %d more", n-(size[1]-7))) {
					t.Errorf("the table of %d servers does not have all the room:\n%s", n, text)
				}
			}
		}
	}
	s := &screen{view: viewOf(t, 3)}
	v := s.view
	for _, c := range []struct {
		keys string
		is   func() bool
	}{
		{"2", func() bool { return v.Part == '2' }}, {"2", func() bool { return v.Part == 0 }}, {"3", func() bool { return v.Part == '3' }},
		{"esc", func() bool { return v.Part == 0 }}, {"\r", func() bool { return !v.Opened && strings.Contains(v.Message, "which server") }},
		{"down", func() bool { return v.Selected != "" }}, {"\r", func() bool { return v.Opened }}, {"5", func() bool { return !v.Opened && v.Part == '5' }},
		{"\r", func() bool { return v.Opened }}, {"\r", func() bool { return !v.Opened }}, {"-", func() bool { return v.pace().Seconds() == 2 }},
		{"-", func() bool { return v.pace().Seconds() == 5 }}, {"-", func() bool { return v.pace().Seconds() == 10 }}, {"-", func() bool { return v.pace().Seconds() == 10 }},
		{"+", func() bool { return v.pace().Seconds() == 5 }}, {"?", func() bool { return v.Help }},
	} {
		if s.key(t.Context(), c.keys); !c.is() {
			t.Errorf("after %q: %+v", c.keys, v)
		}
	}
}

// Servers in trouble are first. The same sort key again reverses the order. A
// filter hides other servers.
func TestRows(t *testing.T) {
	v := viewOf(t, 4)
	for _, test := range []struct {
		sort     byte
		reversed bool
		filter   string
		want     string
	}{{0, false, "", "1 0 2 3"}, {'r', false, "", "3 2 1 0"}, {'r', true, "", "0 1 2 3"}, {'n', false, "", "0 1 2 3"}, {0, false, "CACHE-2", "2"}, {0, false, "out", "1"}} {
		v.Sort, v.Reversed, v.Filter = test.sort, test.reversed, test.filter
		var got []string
		for _, s := range v.Rows() {
			got = append(got, strings.TrimPrefix(s.Name, "cache-"))
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
}

// A screen in ASCII has only ASCII characters, and its columns stay aligned.
func TestASCII(t *testing.T) {
	v := viewOf(t, 3)
	v.Patterns, v.Traced = []string{"home:*"}, live.NewStories(mostTraced, mostLetters)
	v.Traced.Add(&live.Traced{Rows: []live.Row{{Key: []byte("home:ключ"), Letter: "H", Times: 3}}})
	for _, size := range [][2]int{{80, 24}, {120, 40}, {59, 9}} {
		for _, l := range v.Draw(size[0], size[1]) {
			is := ASCII(l.Text)
			if utf8.RuneCountInString(l.Text) != len(is) || strings.ContainsFunc(is, func(r rune) bool { return r > '~' || r < ' ' }) {
				t.Errorf("%q is %q", l.Text, is)
			}
			if signs := strings.Count(is, "?"); signs > 0 && !strings.Contains(is, "home:") && !strings.Contains(is, "? help") {
				t.Errorf("something has no sign of its own: %q in %q", l.Text, is)
			}
		}
	}
	if got := ASCII(spark([]float64{0, 1, 2, 3, 6, 6}, 4)); got != " _.^" {
		t.Errorf("the past is drawn %q", got)
	}
}

// Traced keys are shown where there is room, with the newest letter at the right.
func TestTraced(t *testing.T) {
	v := viewOf(t, 3)
	v.Patterns = []string{"home:*"}
	for want, is := range map[string]*live.Stories{"no": nil, "nothing has happened": live.NewStories(9, 64)} {
		if v.Traced = is; !strings.Contains(fmt.Sprint(v.Draw(80, 24)), "TRACE home:*: nothing has happened to such keys yet") {
			t.Errorf("%s: %v", want, v.Draw(80, 24))
		}
	}
	for i := range 300 {
		for _, letter := range "MLWUHH" {
			v.Traced = cmp.Or(v.Traced, live.NewStories(mostTraced, mostLetters))
			v.Traced.Add(&live.Traced{Rows: []live.Row{{Key: fmt.Append(nil, "home:", i%9), Letter: string(letter), Times: 1}}})
		}
	}
	for _, size := range [][2]int{{80, 24}, {120, 40}, {80, 20}, {300, 100}} {
		text := ""
		for _, l := range v.Draw(size[0], size[1]) {
			if utf8.RuneCountInString(l.Text) > size[0] {
				t.Errorf("a line of more than %d columns: %q", size[0], l.Text)
			}
			text += l.Text + "\n"
		}
		if !strings.Contains(text, "TRACE home:*  1,800 events, 0 dropped") || !strings.Contains(text, "home:0") || !strings.Contains(text, " M L W U H2\n") {
			t.Errorf("at %v is shown\n%s", size, text)
		}
		if strings.Contains(text, "HOT KEY") != (size[1] >= slabHeight) {
			t.Errorf("at %v hot keys are there or not\n%s", size, text)
		}
	}
	v.Untraced = "4 already follow"
	if text := fmt.Sprint(v.Draw(80, 24)); !strings.Contains(text, "TRACE home:*: 4 already follow") {
		t.Errorf("it is not said why nothing is followed: %s", text)
	}
}

func TestSpark(t *testing.T) {
	for _, n := range []int{0, 1, 2, 7, 8, 9, 40} {
		list := make([]float64, n)
		for i := range list {
			list[i] = float64(i)
		}
		if got := spark(list, 4); utf8.RuneCountInString(got) != 4 {
			t.Errorf("%d numbers are drawn %q", n, got)
		}
	}
	if got := spark([]float64{0, 9}, 2); got != "\u2800\u28f8" {
		t.Errorf("drawn %q", got)
	}
	if got := spark([]float64{1000, 1090, 930, 1030, 880, 1100, 1040, 960}, 4); got != strings.Repeat("\u28f6", 4) {
		t.Errorf("a steady rate is drawn %q", got)
	}
	if got := ASCII(spark([]float64{1000, 1000, 1000, 1000, 3000, 3000}, 3)); got != "__^" {
		t.Errorf("a rise is drawn %q", got)
	}
	if got := bar(.8, 8); got != "██████▍░" {
		t.Errorf("0.8 is drawn %q", got)
	}
}

// A chart begins with the past that the stream has sent, and a number of it is the mean of the ticks
// of five seconds.
func TestRates(t *testing.T) {
	v := viewOf(t, 2)
	v.rates = map[string]*rates{}
	take := func(topic string, is any) {
		b, err := json.Marshal(is)
		if err == nil {
			err = v.Take(topic, b)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range int64(4) {
		past := live.Past{Moment: live.Moment{T: 1e12 + 5000*i, Rate: 100}}
		if i > 1 {
			past.Rates = []float64{60, 40}
		}
		take("past", past)
	}
	for i := range int64(5) {
		tick := *v.Tick
		tick.T, tick.Rate, tick.S.Rate = 1e12+20000+1000*i, float64(80+10*i), []float64{70, 30}
		take("tick", tick)
	}
	if is := fmt.Sprint(v.recent(""), v.recent("cache-0"), v.recent("cache-1"), v.recent("none")); is != "[100 100 100 100 100] [60 60 70] [40 40 30] []" {
		t.Errorf("the past is %s", is)
	}
}

func TestKeys(t *testing.T) {
	for text, want := range map[string]string{
		"n\x1b[Bd": "n down d", "\x1bOA\x1b[A": "up up", "\x1b": "esc", "\x1b\x1b": "esc esc", "\x1b[5~x": "x", "é\r": "é \r", "\x1b[": "esc [", "\x1b[1;5Ax": "up x",
	} {
		if got := strings.Join(keysOf(text), " "); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

// textOf returns the text of lines without their styles.
func textOf(lines []Line) (text string) {
	for _, l := range lines {
		text += l.Text + "\n"
	}
	return text
}
