package live

import (
	"fmt"
	"strings"
	"testing"
)

// TestStories checks the one-line summaries of keys.
func TestStories(t *testing.T) {
	s := NewStories(2, 64)
	add := func(key, letter, cause string, times int) {
		s.Add(&Traced{Rows: []Row{{T: 7, Key: []byte(key), Letter: letter, Cause: cause, Times: times}}, Dropped: 1})
	}
	for _, one := range [][2]string{{"home:top", "M"}, {"lock:home:top", "L"}, {"\xff\x1b", "H"}, {"lock:home:top", "l"}, {"lock:home:top", "l"}, {"home:top", "W"}, {"home:top", "H"}, {"home:top", "H"}, {"home:top", "W"}, {"home:top", "W"}} {
		add(one[0], one[1], "", 1)
	}
	add("home:top", "H", "", 87)
	add("home:top", "M", "X", 1)
	add("home:top", "M", "X", 2)
	add("home:top", "M", "", 1)
	add("one too many", "H", "", 3)
	var lines []string
	for l := range s.Lines() {
		lines = append(lines, fmt.Sprintf("%q%s at %d", l.Key, l.Text, l.Began))
	}
	const want = `"home:top" M L l2 W H2 W W H87 MX3 M at 7, "\xff\x1b" H at 7`
	if got := strings.Join(lines, ", "); got != want {
		t.Errorf("told\n%s, want\n%s", got, want)
	}
	if s.Keys() != 2 || s.Events != 104 || s.Dropped != 15+3 {
		t.Errorf("%d keys, %d events, %d dropped", s.Keys(), s.Events, s.Dropped)
	}
	for range 10_000 {
		add("home:top", "H", "", 3)
		add("home:top", "W", "", 1)
	}
	for l := range s.Lines() {
		if n := len(l.Text); n > 3*64 || !strings.HasPrefix(l.Text, " ") || l.Key == "home:top" && !strings.HasSuffix(l.Text, " H3 W H3 W") {
			t.Errorf("a line of %d bytes: %q", n, l.Text)
		}
	}
}

// TestFold checks that consecutive equal hits of a key are merged, and nothing else.
func TestFold(t *testing.T) {
	var rows []Row
	for _, one := range []string{"aH", "bH", "aH", "aM", "aM", "aH", "aI", "aI", "bH"} {
		rows = append(rows, Row{Key: []byte(one[:1]), Letter: one[1:], Times: 1})
	}
	var got []string
	for _, r := range fold(rows) {
		got = append(got, fmt.Sprint(string(r.Key), r.Letter, r.Times))
	}
	if got, want := strings.Join(got, " "), "aH2 bH2 aM1 aM1 aH1 aI2"; got != want {
		t.Errorf("folded to %s, want %s", got, want)
	}
}
