package seeds

// Logs, lists, tables and rows: the articles' versions and those of package
// recipes.

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"ringside/internal/testenv"
	"ringside/recipes"
)

func logs(t *testing.T, s *setting) []row {
	// A key at the item limit.
	limit := testenv.StartMemcached(t)
	mc := testenv.Client(t, limit.Address)
	printed := MCEventLog{mc, "log", 60, 5, time.Now}
	now := time.Now().Unix()
	mc.Set(item(printed.key(now), strings.Repeat("x", 1_000_000), 0))
	is(t, "an event of 100 kB in a key of 1 MB", printed.Put(now, strings.Repeat("y", 100_000)), ErrEndless)

	// A late event keeps its key alive into the next round. The events of that
	// round then expire with it.
	st := newStage(t)
	late := MCEventLog{st.mc, "late", 60, 5, st.Now}
	for _, put := range []struct{ wait, ago time.Duration }{{0, 2 * time.Minute}, {3*time.Minute + 30*time.Second, 0}} {
		st.sleep(put.wait)
		if err := late.Put(st.Now().Add(-put.ago).Unix(), "event"); err != nil {
			t.Error(err)
		}
	}
	st.sleep(40 * time.Second)
	found := late.Fetch(st.Now().Add(-time.Minute).Unix(), st.Now().Unix())
	is(t, "events of the last minute, as printed", len(found), 0)

	st = newStage(t)
	ours := must(recipes.NewEventLog(st.store(), "late", recipes.EventLogOptions{Chunk: time.Minute, Chunks: 5}))
	for _, put := range []struct{ wait, ago time.Duration }{{0, 2 * time.Minute}, {3*time.Minute + 30*time.Second, 0}} {
		st.sleep(put.wait)
		if err := ours.Put(ctx, recipes.Event{Time: st.Now().Add(-put.ago)}); err != nil {
			t.Error(err)
		}
	}
	st.sleep(40 * time.Second)
	is(t, "events of the last minute", len(must(ours.Fetch(ctx, st.Now().Add(-time.Minute), st.Now()))), 1)

	// A reader continues from the last second that it has seen.
	polled := MCEventLog{st.mc, "polled", 60, 5, st.Now}
	seen := st.Now().Unix()
	polled.Put(seen, "1")
	doubled := len(polled.Fetch(seen, seen)) + len(polled.Fetch(seen, seen)) - 1
	polled.Put(seen-5, "late")
	missed := 1 - len(slices.DeleteFunc(polled.Fetch(seen, seen), func(e string) bool { return e != "late" }))
	is(t, "doubled, as printed", doubled, 1)
	is(t, "missed, as printed", missed, 1)

	log := must(recipes.NewEventLog(s.store(), "l", recipes.EventLogOptions{}))
	const writers, events = 8, 100
	var cursor recipes.Cursor
	got := map[string]int{}
	poll := func() {
		es, next, err := log.Poll(ctx, cursor)
		if err != nil {
			t.Error(err)
		}
		cursor = next
		for _, e := range es {
			got[string(e.Data)]++
		}
	}
	done := make(chan bool)
	go func() {
		defer close(done)
		each(writers, func(w int) {
			for i := range events {
				if err := log.Put(ctx, recipes.Event{Data: fmt.Appendf(nil, "%d.%d", w, i)}); err != nil {
					t.Error(err)
				}
			}
		})
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		case <-time.After(5 * time.Millisecond):
		}
		poll()
	}
	twice := 0
	for _, n := range got {
		twice += n - 1
	}
	is(t, "events of 8 writers that were polled", len(got), writers*events)
	is(t, "polled twice", twice, 0)
	small := must(recipes.NewEventLog(&recipes.Store{Client: mc}, "full", recipes.EventLogOptions{Parts: 1, Chunk: time.Hour}))
	big := make([]byte, 600_000)
	err := errors.Join(small.Put(ctx, recipes.Event{Data: big}))
	is(t, "first event", err, nil)
	if err := small.Put(ctx, recipes.Event{Data: big}); !errors.Is(err, recipes.ErrFull) {
		t.Errorf("a key that is full: %v", err)
	}
	return []row{
		{"S-50, S-52", "event log", fmt.Sprintf("polling from the last second seen: %d event doubled, %d late one missed", doubled, missed), fmt.Sprintf("8 writers: %d of 800 polled, %d twice; late ones too", len(got), twice), "log"},
		{"S-51", "event log, late events", "the event after a late one is gone with its key after 40 s", "expiry from the chunk's end: it stays", ""},
		{"S-53", "event log, key at the item limit", "the loop never ends", "a second key, and so on; then ErrFull", ""},
	}
}

func arrays(t *testing.T, s *setting) []row {
	// The lock of five seconds expires in the middle of a change.
	st := newStage(t)
	array := MCArray1{st.mc, "a"}
	add := func(e string) func([]string) []string {
		return func(l []string) []string { return append(l, e) }
	}
	err := array.Change(add("slow"), func() {
		st.sleep(6 * time.Second)
		if err := array.Change(add("lost"), nil); err != nil {
			t.Error(err)
		}
	})
	is(t, "change, as printed", err, nil)
	is(t, "list, as printed", fmt.Sprint(array.Fetch()), "[slow]")

	n, err := MCArray2Add(st.mc, "missing", "x")
	_, missing := st.mc.Get("missing")
	is(t, "second array's add to nothing", n == 0 && err == nil && missing != nil, true)
	st.mc.Set(item("there", "x ", 0))
	n, err = MCArray2Add(st.mc, "there", "y")
	is(t, "second array's add to a list", n == Endless && err == ErrEndless, true)

	const writers, times = 8, 20
	byCAS := must(recipes.NewArray(s.store(), "a", recipes.ArrayOptions{}))
	byAppend := must(recipes.NewArray(s.store(), "a", recipes.ArrayOptions{}))
	each(writers, func(w int) {
		for i := range times {
			e := fmt.Sprintf("%d.%d", w, i)
			for {
				if err := byCAS.Update(ctx, add(e)); err == nil {
					break
				} else if !errors.Is(err, recipes.ErrContended) {
					t.Error(err)
					break
				}
			}
			if err := errors.Join(byAppend.Add(ctx, e, "gone"+e), byAppend.Remove(ctx, "gone"+e)); err != nil {
				t.Error(err)
			}
		}
	})
	count := func(a *recipes.Array) (all, twice int) {
		list := must(a.Fetch(ctx))
		slices.Sort(list)
		return len(list), len(list) - len(slices.Compact(slices.Clone(list)))
	}
	cas, casTwice := count(byCAS)
	appended, appendedTwice := count(byAppend)
	is(t, "by cas", fmt.Sprint(cas, casTwice), "160 0")
	is(t, "by append", fmt.Sprint(appended, appendedTwice), "160 0")
	return []row{
		{"S-54", "MCArray1: list under a lock", "a change that takes longer than its lock: 1 of 2 changes lost", fmt.Sprintf("cas: %d of 160 by 8 writers, %d twice", cas, casTwice), ""},
		{"S-55", "MCArray2: list by append", "nothing is stored in a list that is not there; in one that is, the loop appends for ever (cut after 1,000)", fmt.Sprintf("%d of 160 by 8 writers, %d twice", appended, appendedTwice), ""},
		{"S-56", "removal by marks", "described only", "+1 +3 +4 -3 +5 is 1, 4, 5; dead marks are dropped by cas", "array"},
	}
}

func tables(t *testing.T, s *setting) []row {
	st := newStage(t)
	table := MCTable{st.mc, "t"}
	table.Add("a", func() {})
	is(t, "crash in an add, as printed", fmt.Sprint(table.Has("a"), table.Fetch()), "true []")
	table.Add("b", nil)
	st.mc.Delete("t_v_b") // an eviction
	is(t, "eviction, as printed", fmt.Sprint(table.Has("b"), table.Fetch()), "false [b]")
	is(t, "a member with a blank, as printed", table.Add("a b", nil) != nil, true)

	ours := must(recipes.NewTable(st.store(), "t", recipes.TableOptions{Audit: 1}))
	for _, m := range []string{"a", "b", "a b"} {
		if err := ours.Add(ctx, m, []byte("v")); err != nil {
			t.Error(err)
		}
	}
	st.mc.Delete("member:1:t:b")
	is(t, "after an eviction", fmt.Sprint(must(ours.Has(ctx, "b")), must(ours.Members(ctx))), "true [a b a b]")
	through := must(recipes.NewTable(s.store(), "t", recipes.TableOptions{}))
	each(8, func(w int) {
		for i := range 20 {
			if err := through.Add(ctx, fmt.Sprint(w, i), nil); err != nil {
				t.Error(err)
			}
		}
	})
	is(t, "members by 8 writers", len(must(through.Members(ctx))), 160)
	return []row{{"S-58", "MCTable", "crash in an add: has() knows a member that fetch() does not; eviction: the other way round; a blank in a name fails",
		"list first, then index; removal the other way; audits repair: both agree; 160 of 160 members by 8 writers", "table"}}
}

func rowsOfServers(t *testing.T, s *setting) []row {
	var printed Rows
	for i, server := range []string{"web1", "web2", "web3"} {
		printed.Flush(server, 10*(i+1))
	}
	is(t, "sum of three", printed.Total(), 60)
	for range 100 { // web3 is dead
		printed.Flush("web1", 10)
		printed.Flush("web2", 20)
	}
	is(t, "as printed, 100 intervals after a server died", printed.Total(), 60)

	st := newStage(t)
	ids := []string{"web1", "web2", "web3"}
	var all []*recipes.DistributedCounter
	for i, id := range ids {
		all = append(all, must(recipes.NewDistributedCounter(st.store(), "n", recipes.DistributedOptions{ID: id, IDs: ids})))
		all[i].Add(uint64(10 * (i + 1)))
	}
	st.sleep(10 * time.Second)
	sums := []uint64{}
	for interval := range 4 {
		for i, c := range all {
			if interval == 0 || i < 2 {
				if err := c.Flush(ctx); err != nil {
					t.Error(err)
				}
				c.Add(uint64(10 * (i + 1)))
			}
		}
		sum, _, err := all[0].Total(ctx)
		if err != nil {
			t.Error(err)
		}
		sums = append(sums, sum)
		st.sleep(10 * time.Second)
	}
	is(t, "sums by interval, web3 is dead", fmt.Sprint(sums), "[60 60 60 30]")
	return []row{{"S-61 to S-64", "distributed counter", "a dead server's row counts for ever: 60 instead of 30 after 100 intervals", "rows expire: 60, then 30 three intervals later; a flush that failed is repeated and counts once", "rows"}}
}
