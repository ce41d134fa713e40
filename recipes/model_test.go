package recipes_test

// Array, EventLog and Table against models: random calls, crashes between two
// requests, lost replies and lost keys.

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
	"pgregory.net/rapid"

	"ringside/internal/testenv"
	"ringside/recipes"
)

// Run 30 cases per test; -rapid.checks overrides this.
func init() { flag.Set("rapid.checks", "30") }

var names = rapid.SampledFrom([]string{"", "1", "a b", "a:b", "-", "+", "%", "ü", strings.Repeat("x", 300)})

func TestArrayModel(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	n := 0
	rapid.Check(t, func(r *rapid.T) {
		n++
		a := must(recipes.NewArray(s.Store, fmt.Sprint("a", n), recipes.ArrayOptions{}))
		var model []string
		remove := func(e string) {
			model = slices.DeleteFunc(model, func(m string) bool { return m == e })
		}
		r.Repeat(map[string]func(*rapid.T){
			"add": func(r *rapid.T) {
				es := rapid.SliceOfN(names, 1, 3).Draw(r, "elements")
				if err := a.Add(ctx, es...); err != nil {
					r.Fatal(err)
				}
				model = append(model, es...)
			},
			"remove": func(r *rapid.T) {
				e := names.Draw(r, "element")
				if err := a.Remove(ctx, e); err != nil {
					r.Fatal(err)
				}
				remove(e)
			},
			"update": func(r *rapid.T) {
				// An Add runs between the read and the cas of the Update, which
				// must retry.
				e := names.Draw(r, "element")
				s.before = func(command, _ string) error {
					if command == "cas" || command == "add" {
						s.before = nil
						if err := a.Add(ctx, e); err != nil {
							r.Fatal(err)
						}
						model = append(model, e)
					}
					return nil
				}
				reverse := func(l []string) []string { slices.Reverse(l); return l }
				if err := a.Update(ctx, reverse); err != nil {
					r.Fatal(err)
				}
				s.before = nil
				slices.Reverse(model)
			},
			"": func(r *rapid.T) {
				if got := must(a.Fetch(ctx)); !slices.Equal(got, model) {
					r.Fatalf("%q, want %q", got, model)
				}
			},
		})
	})
}

// TestArrayMarks checks what an Array stores in memcached, with the example in the
// comment of recipes.Array.
func TestArrayMarks(t *testing.T) {
	s := newStage(t)
	a := must(recipes.NewArray(s.Store, "a", recipes.ArrayOptions{}))
	for _, err := range []error{a.Add(ctx, "1", "3"), a.Add(ctx, "4"), a.Remove(ctx, "3"), a.Add(ctx, "5")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want(t, "on the server", string(must(s.spy.Client.Get("array:0:a")).Value), "+1 +3 +4 -3 +5 ")
	want(t, "list", fmt.Sprint(must(a.Fetch(ctx))), "[1 4 5]")
	for range 10 {
		if err := errors.Join(a.Add(ctx, "x"), a.Remove(ctx, "x")); err != nil {
			t.Fatal(err)
		}
	}
	want(t, "list with many dead marks", fmt.Sprint(must(a.Fetch(ctx))), "[1 4 5]")
	want(t, "after compaction", string(must(s.spy.Client.Get("array:0:a")).Value), "+1 +4 +5 ")

	twice := must(recipes.NewArray(s.Store, "u", recipes.ArrayOptions{Unique: true, Shards: 4}))
	if err := twice.Add(ctx, "a", "b", "a"); err != nil {
		t.Fatal(err)
	}
	got := must(twice.Fetch(ctx))
	slices.Sort(got)
	want(t, "unique", fmt.Sprint(got), "[a b]")
}

// full returns a store with a memcached that accepts only items up to 2 kB.
func full(t *testing.T) *recipes.Store {
	m := testenv.StartMemcached(t, "-I", "2k", "-o", "slab_chunk_max=1024")
	return &recipes.Store{Client: testenv.Client(t, m.Address), MaxItem: 2048}
}

func TestArrayFull(t *testing.T) {
	t.Parallel()
	a := must(recipes.NewArray(full(t), "a", recipes.ArrayOptions{}))
	element := strings.Repeat("e", 100)
	n := 0
	var err error
	for ; err == nil; n++ {
		err = a.Add(ctx, fmt.Sprintf("%s%03d", element, n))
	}
	wantErr(t, "no room", err, recipes.ErrFull)
	want(t, "elements before it was full", len(must(a.Fetch(ctx))), n-1)
	// Elements that were removed make room.
	if err := a.Update(ctx, func(l []string) []string { return l[:5] }); err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		e := fmt.Sprintf("%s-%03d", element, i)
		if err := errors.Join(a.Add(ctx, e), a.Remove(ctx, e)); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
	}
	want(t, "elements", len(must(a.Fetch(ctx))), 5)
}

func TestEventLogFull(t *testing.T) {
	t.Parallel()
	log := must(recipes.NewEventLog(full(t), "l", recipes.EventLogOptions{Parts: 3, Chunk: time.Hour}))
	data := make([]byte, 150)
	n := 0
	var err error
	for ; err == nil && n < 1000; n++ {
		err = log.Put(ctx, recipes.Event{Data: data})
	}
	wantErr(t, "no room", err, recipes.ErrFull)
	events := must(log.Fetch(ctx, time.Now().Add(-time.Hour), time.Now().Add(time.Hour)))
	want(t, "events in three keys", len(events), n-1)
	if n < 30 {
		t.Errorf("only %d events had room", n)
	}
}

func TestEventLogModel(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	n := 0
	rapid.Check(t, func(r *rapid.T) {
		n++
		o := recipes.EventLogOptions{Chunk: 10 * time.Second, Chunks: 3, Parts: 2}
		if rapid.Bool().Draw(r, "late events") {
			o.Late = 15 * time.Second
		}
		name := fmt.Sprint("l", n)
		// Each put uses another EventLog, as another process would: it does not
		// share its knowledge of full keys.
		open := func() *recipes.EventLog { return must(recipes.NewEventLog(s.Store, name, o)) }
		log := open()
		type event struct {
			when time.Time
			data string
		}
		var model []event
		var cursor recipes.Cursor
		polled := map[string]int{}
		puts := 0
		poll := func(r *rapid.T) {
			events, next, err := log.Poll(ctx, cursor)
			if err != nil {
				r.Fatal(err)
			}
			for _, e := range events {
				polled[string(e.Data)]++
			}
			// A cursor can be passed to another process.
			text := must(json.Marshal(next))
			cursor = recipes.Cursor{}
			if err := json.Unmarshal(text, &cursor); err != nil {
				r.Fatal(err)
			}
		}
		r.Repeat(map[string]func(*rapid.T){
			"put": func(r *rapid.T) {
				puts++
				late := time.Duration(rapid.IntRange(-5, 45).Draw(r, "late")) * time.Second
				e := event{s.clock.Now().Add(-late), fmt.Sprint(puts)}
				err := open().Put(ctx, recipes.Event{Time: e.when, Data: []byte(e.data)})
				if tooLate := o.Late > 0 && late > o.Late; errors.Is(err, recipes.ErrTime) && (late > 29*time.Second || tooLate) {
					return
				} else if err != nil || tooLate {
					r.Fatalf("an event %v late: %v", late, err)
				}
				model = append(model, e)
			},
			"put with an answer lost": func(r *rapid.T) {
				puts++
				e := event{s.clock.Now(), fmt.Sprint(puts)}
				s.after = func(string, string) error { s.after = nil; return errBroken }
				err := log.Put(ctx, recipes.Event{Time: e.when, Data: []byte(e.data)})
				s.after = nil
				if err != nil {
					r.Fatal(err)
				}
				model = append(model, e)
			},
			"poll": func(r *rapid.T) { poll(r) },
			"time": func(r *rapid.T) {
				poll(r) // read all events before the log drops them
				s.sleep(time.Duration(rapid.IntRange(1, 12).Draw(r, "seconds")) * time.Second)
			},
			"": func(r *rapid.T) {
				now := s.clock.Now()
				first, last := now.Add(-20*time.Second), now.Add(5*time.Second)
				var want []string
				for _, e := range slices.SortedStableFunc(slices.Values(model), func(a, b event) int { return a.when.Compare(b.when) }) {
					if !e.when.Before(first) && !e.when.After(last) {
						want = append(want, e.data)
					}
				}
				var got []string
				for _, e := range must(log.Fetch(ctx, first, last)) {
					got = append(got, string(e.Data))
				}
				slices.Sort(want) // events of the same time have no defined order
				slices.Sort(got)
				if !slices.Equal(got, want) {
					r.Fatalf("fetched %q, want %q", got, want)
				}
			},
		})
		poll(r)
		for _, e := range model {
			if polled[e.data] != 1 {
				r.Fatalf("event %s, of %v, was polled %d times; now it is %v", e.data, e.when, polled[e.data], s.clock.Now())
			}
		}
	})
}

func TestTableModel(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	n := 0
	rapid.Check(t, func(r *rapid.T) {
		n++
		o := recipes.TableOptions{Shards: rapid.IntRange(1, 3).Draw(r, "shards")}
		table := must(recipes.NewTable(s.Store, fmt.Sprint("t", n), o))
		model := map[string]string{}
		half := map[string]bool{} // members with a call that crashed half-way; either result is right
		look := func(r *rapid.T) {
			s.sleep(11 * time.Second) // the marks of Remove expire
			must(table.Repair(ctx))
			members := must(table.Members(ctx))
			all := must(table.All(ctx))
			if slices.Sort(members); !slices.Equal(members, slices.Sorted(maps.Keys(all))) {
				r.Fatalf("members %q, all %q", members, slices.Sorted(maps.Keys(all)))
			}
			for _, m := range []string{"", "1", "a b", "a:b", "-", "+", "%", "ü", strings.Repeat("x", 300)} {
				has, listed := must(table.Has(ctx, m)), slices.Contains(members, m)
				v, is := model[m]
				if has != listed || !half[m] && has != is {
					r.Fatalf("%q: has %t, listed %t, want %t (crashed: %t)", m, has, listed, is, half[m])
				}
				if is && !half[m] && string(all[m]) != v {
					r.Fatalf("%q: %q, want %q", m, all[m], v)
				}
			}
		}
		failing := func(r *rapid.T, do func() error) error {
			left := rapid.IntRange(0, 3).Draw(r, "requests before the crash")
			s.before = func(string, string) error {
				if left--; left < 0 {
					return errBroken
				}
				return nil
			}
			defer func() { s.before = nil }()
			return do()
		}
		r.Repeat(map[string]func(*rapid.T){
			"add": func(r *rapid.T) {
				m, v := names.Draw(r, "member"), names.Draw(r, "value")
				if err := table.Add(ctx, m, []byte(v)); err != nil {
					r.Fatal(err)
				}
				model[m] = v
				delete(half, m)
			},
			"remove": func(r *rapid.T) {
				m := names.Draw(r, "member")
				if err := table.Remove(ctx, m); err != nil {
					r.Fatal(err)
				}
				delete(model, m)
				delete(half, m)
			},
			"crash in an add": func(r *rapid.T) {
				m := names.Draw(r, "member")
				if failing(r, func() error { return table.Add(ctx, m, nil) }) == nil {
					model[m] = ""
					delete(half, m)
				} else {
					half[m] = true
				}
			},
			"crash in a remove": func(r *rapid.T) {
				m := names.Draw(r, "member")
				if failing(r, func() error { return table.Remove(ctx, m) }) == nil {
					delete(model, m)
					delete(half, m)
				} else {
					half[m] = true
				}
			},
			"look": look,
		})
		look(r)
	})
}

// TestTableRepair causes each kind of loss that a table can repair.
func TestTableRepair(t *testing.T) {
	s := newStage(t)
	sure := must(recipes.NewTable(s.Store, "t", recipes.TableOptions{Audit: 1}))
	lazy := must(recipes.NewTable(s.Store, "t", recipes.TableOptions{Audit: 100}))
	for _, m := range []string{"a", "b", "c"} {
		if err := sure.Add(ctx, m, []byte("value of "+m)); err != nil {
			t.Fatal(err)
		}
	}
	lose := func(key string) {
		t.Helper()
		if err := s.spy.Client.Delete(key); err != nil {
			t.Fatal(err)
		}
	}
	lose("member:1:t:a")
	wrong := 0
	for range 99 {
		if !must(lazy.Has(ctx, "a")) {
			wrong++
		}
	}
	want(t, "wrong answers before the audit", wrong, 99)
	want(t, "the audit's answer", must(lazy.Has(ctx, "a")), true)
	want(t, "the next answer", must(lazy.Has(ctx, "a")), true)

	lose("member:1:t:b")
	want(t, "repaired", must(lazy.Repair(ctx)), 1)
	want(t, "b's value is lost", string(must(lazy.Get(ctx, "b"))), "")

	lose("table:0:t") // the list
	want(t, "list", len(must(lazy.Members(ctx))), 0)
	want(t, "an audit puts it back", must(sure.Has(ctx, "c")), true)
	want(t, "list after it", fmt.Sprint(must(lazy.Members(ctx))), "[c]")

	// An audit reads the list, the member is removed, and the audit creates its
	// index: the mark of the Remove prevents that.
	lose("member:1:t:c")
	s.before = func(command, key string) error {
		if command == "add" {
			s.before = nil
			if err := sure.Remove(ctx, "c"); err != nil {
				t.Error(err)
			}
		}
		return nil
	}
	must(sure.Has(ctx, "c"))
	want(t, "removed under an audit", must(sure.Has(ctx, "c")), false)
	want(t, "list after the removal", len(must(lazy.Members(ctx))), 0)
}

// Eight writers per type at once. Nothing is lost and nothing is stored twice.
func TestWritersAtOnce(t *testing.T) {
	t.Parallel()
	m := testenv.StartMemcached(t)
	s := &recipes.Store{Client: testenv.Client(t, m.Address)}
	array := must(recipes.NewArray(s, "a", recipes.ArrayOptions{}))
	sharded := must(recipes.NewArray(s, "s", recipes.ArrayOptions{Shards: 4}))
	table := must(recipes.NewTable(s, "t", recipes.TableOptions{}))
	log := must(recipes.NewEventLog(s, "l", recipes.EventLogOptions{}))
	const writers, each = 8, 20
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range each {
				e, gone := fmt.Sprintf("%d.%d", w, i), fmt.Sprintf("gone %d.%d", w, i)
				err := errors.Join(
					retry(func() error {
						return array.Update(ctx, func(l []string) []string { return append(l, e) })
					}),
					array.Add(ctx, gone), array.Remove(ctx, gone),
					sharded.Add(ctx, e, gone), sharded.Remove(ctx, gone),
					table.Add(ctx, e, []byte(e)), table.Add(ctx, gone, nil), table.Remove(ctx, gone),
					log.Put(ctx, recipes.Event{Data: []byte(e)}),
				)
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	check := func(what string, got []string) {
		t.Helper()
		slices.Sort(got)
		if different := slices.Compact(slices.Clone(got)); len(got) != writers*each || len(different) != len(got) {
			t.Errorf("%s: %d entries, %d different, want %d", what, len(got), len(different), writers*each)
		}
	}
	check("array", must(array.Fetch(ctx)))
	check("shards", must(sharded.Fetch(ctx)))
	check("table", must(table.Members(ctx)))
	events := must(log.Fetch(ctx, time.Now().Add(-5*time.Minute), time.Now().Add(time.Minute)))
	check("log", texts(events))
	if !slices.IsSortedFunc(events, func(a, b recipes.Event) int { return cmp.Compare(a.Time.UnixNano(), b.Time.UnixNano()) }) {
		t.Error("events are not in the order of time")
	}
}

// retry repeats a call until other writers were not faster.
func retry(do func() error) error {
	for {
		if err := do(); !errors.Is(err, recipes.ErrContended) {
			return err
		}
	}
}

func texts(events []recipes.Event) (all []string) {
	for _, e := range events {
		all = append(all, string(e.Data))
	}
	return all
}

// Late events neither prolong the life of their key nor expire early. A key that
// was lost and created again is read from its start.
func TestEventLogInTime(t *testing.T) {
	s := newStage(t)
	log := must(recipes.NewEventLog(s.Store, "l", recipes.EventLogOptions{Chunk: 10 * time.Second, Chunks: 3}))
	put := func(ago time.Duration, data string) {
		t.Helper()
		if err := log.Put(ctx, recipes.Event{Time: s.clock.Now().Add(-ago), Data: []byte(data)}); err != nil {
			t.Fatal(err)
		}
	}
	poll := func(what string, c *recipes.Cursor, want ...string) {
		t.Helper()
		events, next, err := log.Poll(ctx, *c)
		if err != nil || !slices.Equal(texts(events), want) {
			t.Errorf("%s: %q, %v; want %q", what, texts(events), err, want)
		}
		*c = next
	}
	var c recipes.Cursor
	put(0, "1")
	poll("one", &c, "1")
	put(0, "2") // within the same second
	put(15*time.Second, "late")
	poll("two more", &c, "late", "2")
	poll("none", &c)
	s.flush(t)
	poll("lost", &c)
	put(0, "3")
	poll("after the loss", &c, "3")

	// The end of a key is lost, as with a server that dies before it acknowledges
	// its last append. Others then append more. The reader does not get the events
	// that it has read again, and it gets those that replaced the lost end.
	key := s.asked[len(s.asked)-2]
	key = key[strings.IndexByte(key, ' ')+1:]
	before := must(s.spy.Client.Get(key))
	put(0, "unacknowledged")
	poll("before its loss", &c, "unacknowledged")
	lost := must(s.spy.Client.Get(key)).Value[len(before.Value):]
	if err := s.spy.Client.Set(before); err != nil {
		t.Fatal(err)
	}
	put(0, "in its place 1")
	if err := s.spy.Client.Append(&memcache.Item{Key: key, Value: lost}); err != nil { // as a retry would
		t.Fatal(err)
	}
	put(0, "in its place 2")
	poll("after its loss", &c, "in its place 1", "in its place 2")
	s.sleep(30 * time.Second)
	put(29*time.Second, "4") // into the chunk of event 3, which is about to expire
	poll("late", &c, "4")
	s.sleep(10 * time.Second)
	put(0, "5")
	poll("next round", &c, "5")
}
