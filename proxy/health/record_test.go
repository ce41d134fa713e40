package health

// Tests of the view record: written records are read back, and the order of merging
// does not matter.

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"ringside/proxy/ablation"
	"ringside/proxy/health/resize"
)

func testServers(names ...string) ([]Server, map[string]int) {
	var m []Server
	index := make(map[string]int)
	for i, name := range names {
		m = append(m, Server{Name: name})
		index[name] = i
	}
	return m, index
}

func TestRecordSaysWhatItWasTold(t *testing.T) {
	members, index := testServers("c0", "10.0.0.1:11211", "with space=%\n", "ü")
	r := record{hash: 0xabc, stage: 38, incarnation: 99, entries: []entry{{}, {n: 8}, {n: 12, renamed: 4}, {n: 3, overrides: 2}}}
	value := appendRecord(nil, r, plainly(members))
	if want := "rs1 24c,12 2r 10.0.0.1:11211=8 with%20space%3D%25%0A=c,4 %C3%BC=3,0,2"; string(value) != want {
		t.Errorf("%q, want %q", value, want)
	}
	got, err := parseRecord(value, by(index), len(members))
	if err != nil || got.hash != r.hash || got.stage != r.stage || got.incarnation != r.incarnation || !slices.Equal(got.entries, r.entries) || got.others != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestRecordKeepsWhatItDoesNotKnow(t *testing.T) {
	members, index := testServers("c0")
	value := "rs1 1 1 c0=2 gone=8,3 new=1,0,1"
	r, err := parseRecord([]byte(value), by(index), 1)
	if err != nil {
		t.Fatal(err)
	}
	r.entries[0].n = 3
	if got := appendRecord(nil, r, plainly(members)); string(got) != "rs1 1 1 c0=3 gone=8,3 new=1,0,1" {
		t.Errorf("%q", got)
	}
}

// TestRecordAnnounces checks what a record has while a pause is announced, and what a release without announcements reads and
// keeps there.
func TestRecordAnnounces(t *testing.T) {
	members, index := testServers("c0")
	value := "rs1 1 1 %20resize=7 %20list=8 %20next=1 %20announced=9 c0=3"
	r, err := parseRecord([]byte(value), by(index), 1)
	if want := (resize.State{N: 7, List: 8, Next: 9, Announced: true}); err != nil || r.resize != want || r.others != nil {
		t.Fatalf("%+v, %v", r, err)
	}
	if got := appendRecord(nil, r, plainly(members)); string(got) != value {
		t.Errorf("%q", got)
	}
	older := New("main", members, Settings{}, 1)
	older.SetLists(resize.Lists{Mine: 8, Wish: 9, Warm: true}, 1)
	older.Ablate(ablation.Set{Announced: true})
	r, err = older.parse([]byte(value))
	older.readResize(r, 1)
	if is := older.resize.Status; err != nil || is.Serves() != resize.Nothing {
		t.Errorf("an older release is in %+v, %v", is, err)
	}
	r.resize = resize.State{N: 8, List: 8, Next: 9}
	text := older.format(r)
	if want := "rs1 1 1 %20resize=8 %20list=8 %20next=9 c0=3 %20announced=9"; string(text) != want {
		t.Errorf("%q, want %q", text, want)
	}
	if r, err = parseRecord(text, by(index), 1); err != nil || r.resize.Announced || r.resize.Next != 9 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestRecordHasSettings(t *testing.T) {
	members, index := testServers("c0")
	value := "rs1 1 1 %20settings=z c0=3 new=1"
	r, err := parseRecord([]byte(value), by(index), 1)
	if err != nil || r.settings != 35 || string(r.others) != " new=1" {
		t.Fatalf("%+v, %v", r, err)
	}
	if got := appendRecord(nil, r, plainly(members)); string(got) != value {
		t.Errorf("%q", got)
	}
	last := Settings{Strict: true, Ping: 300 * time.Millisecond}
	if a, b, c := settingsHash(last), settingsHash(Settings{Ping: last.Ping}), settingsHash(Settings{Strict: true}); a == b || a == c || max(a, b, c) > mostSteps || min(a, b, c) == 0 {
		t.Error(a, b, c)
	}
}

func TestBrokenRecordsAreRefused(t *testing.T) {
	_, index := testServers("c0")
	for _, value := range []string{
		"", "rs1", "rs1 1", "rs2 1 1", "rs1 ? 1", "rs1 1, 1", "rs1 1,? 1", "rs1 1,2,3 1", "rs1 1 -1", "rs1 1 1 ", "rs1 1 1 c0", "rs1 1 1 =1", "rs1 1 1 c0=", "rs1 1 1 c0=1,", "rs1 1 1 c0=1,2,3,4",
		"rs1 1 1 c0=zzzzzzzz", "rs1 1 1 c0=1,2", "rs1 1 1 %4=1", "rs1 1 1 %zz=1", "rs1 1 1\n", strings.Repeat("x", recordLimit+1),
	} {
		if r, err := parseRecord([]byte(value), by(index), 1); !errors.Is(err, errRecord) {
			t.Errorf("%.40q is read as %+v, %v", value, r, err)
		}
	}
}

func TestMergeTakesNothingBack(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	draw := func() entry {
		n := r.Uint32N(20)
		return entry{n: n, renamed: r.Uint32N(n + 1), overrides: r.Uint32N(5)}
	}
	for range 10000 {
		a, b, c := draw(), draw(), draw()
		m := merge(a, b)
		if m != merge(b, a) || merge(m, a) != m || merge(a, a) != a || merge(m, c) != merge(a, merge(b, c)) {
			t.Fatalf("merging %v, %v, %v depends on the order", a, b, c)
		}
		if m.n < a.n || m.n < b.n || m.overrides < a.overrides {
			t.Fatalf("merging %v and %v lowers: %v", a, b, m)
		}
	}
}

func TestOrdersAreCounted(t *testing.T) {
	e := entry{n: 7}
	for _, o := range []Override{Drain, Down, Restore, Down, Drain, Restore, Restore} {
		next := e.overridden(o)
		if next.override() != o || next.overrides < e.overrides || next.n != e.n {
			t.Errorf("%v after %v: %v", o, e, next)
		}
		e = next
	}
}

func FuzzRecord(f *testing.F) {
	members, index := testServers("c0", "c 1", "c2")
	f.Add([]byte("rs1 24c 2r c0=8 c%201=c,4 c2=3,0,2 other=1"))
	f.Add([]byte("rs1 0,0 0"))
	f.Add([]byte("rs1 1 1 c0=1 c0=2,1"))
	f.Fuzz(func(t *testing.T, value []byte) {
		r, err := parseRecord(value, by(index), len(members))
		if err != nil {
			return
		}
		again, err := parseRecord(appendRecord(nil, r, plainly(members)), by(index), len(members))
		if err != nil || again.hash != r.hash || again.incarnation != r.incarnation || again.settings != r.settings ||
			!slices.Equal(again.entries, r.entries) || string(again.others) != string(r.others) {
			t.Fatalf("%q is read as %+v and then as %+v, %v", value, r, again, err)
		}
	})
}

// FuzzAnswers sends a keeper arbitrary replies to its first requests: it must not
// panic.
func FuzzAnswers(f *testing.F) {
	for _, s := range []string{"EN\r\n", "ERROR\r\n", "VA 7 c1\r\nrs1 1 1\r\n", "VA 9 c5\r\nrs1 1 1 c\r\n", "VA -1 c\r\n", "HD\r\n", ""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		members, _ := testServers("c0", "c1", "c2")
		k := New("p", members, Settings{Strict: true}, 1)
		k.Tick(1)
		for _, r := range k.Requests() {
			k.Answered(r.ID, answer, 2)
		}
		for _, r := range k.Requests() {
			k.Answered(r.ID, answer, 3)
		}
		for i := range members {
			k.Verdict(i)
		}
	})
}

// TestImplausibleNumbers checks that a record with a number that could soon wrap counts as
// damaged.
func TestImplausibleNumbers(t *testing.T) {
	_, index := testServers("a")
	for text, ok := range map[string]bool{
		"rs1 1 1 a=1z141z3":       false, // 1<<32 - 1
		"rs1 1 1 a=1z141yu":       false,
		"rs1 1 1 a=1,0,1z141z3":   false,
		"rs1 1 1 other=1z141z3":   false,
		"rs1 1,1z141z3 1":         false,
		"rs1 1,hra0hs 1":          true, // 1<<30
		"rs1 1 1 a=zzzz,zz,zzzzz": true,
	} {
		if _, err := parseRecord([]byte(text), by(index), 1); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// by returns the argument of parseRecord if records have the names of index.
func by(index map[string]int) func(*record, []string) map[string]int {
	return func(*record, []string) map[string]int { return index }
}

// plainly returns the argument of appendRecord if records have the names of members.
func plainly(members []Server) func(int) (name, own string) {
	return func(i int) (name, own string) { return members[i].Name, "" }
}

// TestRemovedServersAreBounded checks that a keeper remembers a limited number of removed servers, whatever the
// view records on the servers contain.
func TestRemovedServersAreBounded(t *testing.T) {
	k := New("p", []Server{{Name: "a", Address: "tcp a:1"}}, Settings{}, 1)
	for record := range 3 {
		var others []byte
		for i := range 2 * mostRemoved {
			others = appendEntry(others, fmt.Sprintf("%s%d-%d", removedMark, record, i), entry{n: uint32(Out)})
		}
		k.readRemoved(others)
	}
	if n := len(k.departed); n != mostRemoved {
		t.Errorf("it remembers %d servers, want %d", n, mostRemoved)
	}
}
