package health

import (
	"strings"
	"testing"
)

// replaced runs a pool in which server 0 refuses connections for a moment. Then another
// process replies at its address, which was started at began and has one value. kept
// reports whether that value still exists in the end.
func replaced(t *testing.T, began func(w *world) int64, change func(w *world)) (w *world, kept bool) {
	t.Helper()
	w = newWorld(t, scenario{proxies: 2, pool: 3, set: Settings{Strict: true}})
	for _, n := range w.nodes {
		n.began = w.now - 100*sec
	}
	w.settle(20 * sec)
	w.run(w.now + 2*sec)
	w.nodes[0].restart()
	w.nodes[0].down = true
	for _, p := range w.proxies {
		w.input(p, func() { p.k.ServerFailed(0, true, "refused", w.now) })
	}
	w.run(w.now + 300*ms)
	w.nodes[0].down = false
	w.nodes[0].began = began(w)
	w.nodes[0].put("old", "x")
	if change != nil {
		change(w)
	}
	w.run(w.now + 2*sec)
	w.settle(60 * sec)
	_, kept = w.nodes[0].value("old")
	return w, kept
}

func TestStrangerIsEmptied(t *testing.T) {
	w, kept := replaced(t, func(w *world) int64 { return w.now - 50*sec }, nil)
	if kept || w.flushes != 1 || !w.logged("another memcached process answers at its address; its uptime of 5") {
		t.Errorf("kept %t, %d flushes: %s", kept, w.flushes, strings.Join(w.log, "\n"))
	}
}

// TestStrangerWithARecordIsEmptied checks that a process with a view record is a
// stranger too, even if the record is of this pool.
func TestStrangerWithARecordIsEmptied(t *testing.T) {
	w, kept := replaced(t, func(w *world) int64 { return w.now - 50*sec }, func(w *world) {
		record, _ := w.nodes[1].value("__rs_view__:p")
		w.nodes[0].put("__rs_view__:p", record)
	})
	if kept || w.flushes != 1 {
		t.Errorf("kept %t, %d flushes: %s", kept, w.flushes, strings.Join(w.log, "\n"))
	}
}

// TestStrangerStaysWhereKeysMoveNoMore checks that no server is flushed after Part, as
// in fail_fast.
func TestStrangerStaysWhereKeysMoveNoMore(t *testing.T) {
	w, kept := replaced(t, func(w *world) int64 { return w.now - 50*sec }, func(w *world) {
		for _, p := range w.proxies {
			p.k.Part(true)
		}
	})
	if !kept || w.flushes != 0 {
		t.Errorf("kept %t, %d flushes: %s", kept, w.flushes, strings.Join(w.log, "\n"))
	}
}

// TestRestartIsNoStranger checks that a process which was started after the old one was
// lost is accepted: its data is new.
func TestRestartIsNoStranger(t *testing.T) {
	w, kept := replaced(t, func(w *world) int64 { return w.now }, nil)
	if !kept || w.flushes != 0 {
		t.Errorf("kept %t, %d flushes: %s", kept, w.flushes, strings.Join(w.log, "\n"))
	}
}

// TestLostRecordIsNoStranger checks that a process with a flushed record is
// recognized as the same.
func TestLostRecordIsNoStranger(t *testing.T) {
	w, kept := replaced(t, func(w *world) int64 { return w.nodes[1].began }, nil)
	if !kept || w.flushes != 0 {
		t.Errorf("kept %t, %d flushes: %s", kept, w.flushes, strings.Join(w.log, "\n"))
	}
}

// TestMemoryThatComesBackIsEmptiedOnce checks a process that restarts with its memory,
// and so with the record that was read last. It is flushed once, and then all loops
// recognize it as the same process.
func TestMemoryThatComesBackIsEmptiedOnce(t *testing.T) {
	w := newWorld(t, scenario{proxies: 2, pool: 3, set: Settings{Strict: true}})
	for _, n := range w.nodes {
		n.began = w.now - 100*sec
	}
	w.settle(20 * sec)
	w.nodes[0].down = true
	w.until(0, Out)
	w.nodes[0].down = false
	w.nodes[0].began = w.now - 50*sec
	w.settle(60 * sec)
	if w.flushes != 1 || w.logged("another memcached") {
		t.Errorf("%d flushes: %s", w.flushes, strings.Join(w.log, "\n"))
	}
	v := NewView(3)
	v.Publish(w.proxies[0].k, true)
	is := Process{PID: 1, Started: w.nodes[0].began/sec - 2}
	if !v.Recognized(0, is) || v.Recognized(0, Process{PID: 2, Started: is.Started}) {
		t.Errorf("recognized is %+v", w.proxies[0].k.servers[0].process)
	}
}

// TestStrangerIsTakenByOrder checks that an operator can accept a stranger with
// Restore.
func TestStrangerIsTakenByOrder(t *testing.T) {
	w := whole(t, 1, 2, Settings{})
	k := w.proxies[0].k
	w.cutAll(1, true)
	w.until(1, Out) // no server can replace server 0
	k.servers[0].stranger = true
	w.input(w.proxies[0], func() { k.markSuspect(0, "another memcached", w.now) })
	w.stays(0, In, 10*sec)
	if v := k.Verdict(0); !v.Suspect || v.Step != "will be flushed when other servers can take over" {
		t.Errorf("%+v", v)
	}
	w.input(w.proxies[0], func() {
		if err := k.Override(0, Restore, w.now); err != nil {
			t.Error(err)
		}
	})
	w.run(w.now + 3*sec)
	if k.Verdict(0).Suspect {
		t.Errorf("%+v", k.Verdict(0))
	}
}
