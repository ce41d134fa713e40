package health

import (
	"fmt"
	"strings"
	"testing"

	"ringside/proxy/health/resize"
)

// lists are those of a change in which server b gets another address, and c and d exchange their names.
var lists = resize.Lists{Mine: 7, Wish: 9, Warm: true, Again: true}

// changing returns a keeper that knows both lists, and one that only knows the next list.
func changing() (both, started *Keeper) {
	both = New("p", []Server{
		{Name: "a", Address: "1", Next: "a"}, {Name: "b", Address: "2"}, {Name: "c", Address: "3", Next: "d"}, {Name: "d", Address: "4", Next: "c"},
		{Name: "b", Address: "5", Next: "b", Joins: true}, {Name: "e", Address: "6", Next: "e", Joins: true},
	}, Settings{}, 1)
	both.SetLists(lists, 1)
	started = New("p", []Server{{Name: "a", Address: "1"}, {Name: "b", Address: "5"}, {Name: "c", Address: "4"}, {Name: "d", Address: "3"}, {Name: "e", Address: "6"}}, Settings{}, 2)
	started.SetLists(resize.Lists{Mine: 9, Wish: 9, Warm: true}, 1)
	return both, started
}

// hears passes a record to a keeper, and returns the phase numbers of its servers and the record that it would write.
func (k *Keeper) hears(t *testing.T, record string) (numbers, text string) {
	t.Helper()
	r, err := k.parse([]byte(strings.TrimSpace(record)))
	if err != nil {
		t.Fatal(err)
	}
	k.read(0, r, 1, 1)
	for i := range k.servers {
		numbers += fmt.Sprint(k.servers[i].n, " ")
	}
	_, text, _ = strings.Cut(string(k.format(k.known(r))), "%20wish=")
	_, text, _ = strings.Cut(text, " ")
	return strings.TrimSpace(numbers), text
}

const (
	before = "rs1 1 1 %20resize=6 %20list=7 "           // the list in force is the first one
	moving = "rs1 1 1 %20resize=8 %20list=7 %20next=9 " // keys move
	after  = "rs1 1 1 %20resize=c %20list=9 "           // the next list is in force
)

func TestNamesWhileServersChange(t *testing.T) {
	for _, c := range []struct{ what, record, both, wants, started, writes string }{
		{"the first record",
			before + "a=6 b=8 c=1 gone=2", "6 8 1 0 0 0", "a=6 b=8 c=1 %20joining%201%209%20d=1 %20joining%201%209%20c=0 %20joining%201%209%20b=0 gone=2",
			"6 8 1 0 0", "a=6 b=8 c=1 gone=2"},
		{"both servers have their own entries",
			moving + "a=6 b=8 c=1 %20joining%201%209%20d=1 %20joining%201%209%20c=0 %20joining%201%209%20b=2", "6 8 1 0 2 0",
			"a=6 b=8 c=1 %20joining%201%209%20d=1 %20joining%201%209%20c=0 %20joining%201%209%20b=2",
			"6 2 0 1 0", "a=6 %20joining%201%209%20b=2 %20joining%201%209%20c=0 %20joining%201%209%20d=1 b=8 c=1"},
		{"entries of a former change and of another list",
			moving + "%20joining%200%209%20b=2 %20joining%201%208%20b=2", "0 0 0 0 0 0",
			"%20joining%201%209%20d=0 %20joining%201%209%20c=0 %20joining%201%209%20b=0 %20joining%201%208%20b=2", "0 0 0 0 0", "%20joining%201%208%20b=2"},
		{"the change has ended",
			after + "a=6 b=6 c=2 %20joining%201%209%20b=2", "6 0 6 2 6 0", "a=6 d=6 c=2 b=6", "6 6 2 0 0", "a=6 b=6 c=2"},
	} {
		both, started := changing()
		if numbers, text := both.hears(t, c.record); numbers != c.both || text != c.wants {
			t.Errorf("%s: %s, and writes %s", c.what, numbers, text)
		}
		if numbers, text := started.hears(t, c.record); numbers != c.started || text != c.writes {
			t.Errorf("%s: an instance that has started: %s, and writes %s", c.what, numbers, text)
		}
	}
}

// TestNamesCarryOver follows the state of a server that joins to the end of the change. An instance that has started
// has read the entry of the former server with this name before.
func TestNamesCarryOver(t *testing.T) {
	both, started := changing()
	started.hears(t, before+"b=8")
	if numbers, _ := started.hears(t, moving+"b=8 %20joining%201%209%20b=6"); numbers != "0 6 0 0 0" {
		t.Errorf("an instance that has started: %s", numbers)
	}
	if numbers, _ := started.hears(t, moving+"b=8"); numbers != "0 6 0 0 0" {
		t.Errorf("an instance that has started, and reads a record without the entry: %s", numbers)
	}
	both.hears(t, moving+"b=e %20joining%201%209%20b=6")
	numbers, text := both.hears(t, after)
	if numbers != "0 14 0 0 18 0" || text != "b=i" {
		t.Errorf("the number of the name has decreased: %s, and writes %s", numbers, text)
	}
	if numbers, text := started.hears(t, after+text); numbers != "0 18 0 0 0" || text != "b=i" {
		t.Errorf("an instance that has started: %s, and writes %s", numbers, text)
	}
	_, later := changing()
	later.hears(t, after+text)
	for _, k := range []*Keeper{started, later} {
		if numbers, text := k.hears(t, moving+"b=e %20joining%201%209%20b=6"); numbers != "0 18 0 0 0" || text != "b=i" {
			t.Errorf("an older record: %s, and writes %s", numbers, text)
		}
	}
	both, _ = changing()
	both.hears(t, moving+"b=e %20joining%201%209%20b=8")
	if numbers, text := both.hears(t, after); numbers != "0 14 0 0 8 0" || text != "b=8" {
		t.Errorf("a server that is out at the end: %s, and writes %s", numbers, text)
	}
	if n := both.leaving(4); n != 19 {
		t.Errorf("the next outage has the number %d", n)
	}
}

// TestNamesOfKeysThatMoveBack follows the entries if keys move from the next list to the one of this process.
func TestNamesOfKeysThatMoveBack(t *testing.T) {
	k := New("p", []Server{{Name: "a", Next: "a"}, {Name: "b"}, {Name: "c"}, {Name: "b", Next: "b", Joins: true}}, Settings{}, 1)
	k.SetLists(lists, 1)
	k.hears(t, moving+"b=8 c=6 %20joining%201%209%20b=6")
	numbers, text := k.hears(t, "rs1 1 1 %20resize=d %20list=9 %20next=7 b=c c=6 %20joining%202%207%20b=8")
	if numbers != "0 8 6 12" || text != "b=c c=6 %20joining%202%207%20b=8" && text != "%20joining%202%207%20b=8 c=6 b=c" {
		t.Errorf("keys move back: %s, and writes %s", numbers, text)
	}
	if numbers, text = k.hears(t, "rs1 1 1 %20resize=i %20list=7 b=8 c=6"); numbers != "0 8 6 12" || text != "b=8 c=6 %20joining%203%209%20b=c" {
		t.Errorf("they have moved back: %s, and writes %s", numbers, text)
	}
}

// TestNamesOfCounters checks that the servers with one name have counters of their own.
func TestNamesOfCounters(t *testing.T) {
	both, started := changing()
	for _, record := range []string{moving + "%20joining%201%209%20b=0", after} {
		both.hears(t, record)
		started.hears(t, record)
		both.nameCounters()
		started.nameCounters()
		if one, other := both.keys.Suspects[4], started.keys.Suspects[1]; one != other || one == both.keys.Suspects[1] || len(one) > keyLimit {
			t.Errorf("%s: %q, %q and %q", record, both.keys.Suspects[1], one, other)
		}
	}
	if k := started.keys.Refused[1]; k != makeKey("ref", "p", "b") {
		t.Errorf("after the change: %q", k)
	}
}
