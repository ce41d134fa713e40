package resize

import (
	"testing"
	"time"
)

func TestChanging(t *testing.T) {
	const mine, next = 7, 8
	for _, c := range []struct {
		name string
		Status
		want bool
	}{
		{"no coordinated changes", Status{}, false},
		{"nothing is known yet", Status{Lists: Lists{Mine: mine, Wish: mine}}, false},
		{"no change", Status{State: State{N: 12, List: mine, Next: mine}, Lists: Lists{Mine: mine, Wish: mine}}, false},
		{"a wish", Status{State: State{N: 12, List: mine, Next: mine}, Lists: Lists{Mine: mine, Wish: next}}, true},
		{"keys move", Status{State: State{N: 14, List: mine, Next: next}, Lists: Lists{Mine: mine, Wish: next, Warm: true}}, true},
		{"the new list is in force", Status{State: State{N: 18, List: next, Next: next}, Lists: Lists{Mine: mine, Wish: next}}, false},
		{"another list is in force", Status{State: State{N: 18, List: 9, Next: 9}, Lists: Lists{Mine: mine, Wish: mine}}, false},
	} {
		if got := c.Changing(); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TestVoteForNames checks that an instance of an older release and a newer one do not agree to a change that gives a
// server the name of another one. An instance that does not know the list in force does not flush servers then, either.
func TestVoteForNames(t *testing.T) {
	vote := func(again bool) Status {
		return Status{State: First(1), Lists: Lists{Mine: 1, Wish: 2, Warm: true, Again: again}}
	}
	newer, older, started := vote(true), vote(false), Status{State: First(1), Lists: Lists{Mine: 2, Wish: 2, Warm: true}}
	if newer.Agrees(older.Vote()) || older.Agrees(newer.Vote()) || started.Agrees(newer.Vote()) {
		t.Error("they agree")
	}
	if !newer.Agrees(newer.Vote()) || !older.Agrees(older.Vote()) || !newer.Agrees(started.Vote()) {
		t.Error("they do not agree")
	}
}

// TestOpposed checks that a process which gets another list does not know what the others wish, until a server in use replies.
func TestOpposed(t *testing.T) {
	r := New(3)
	if r.Set(Lists{Mine: 1, Wish: 1}, 1); r.Opposed {
		t.Error("the first list is taken for a change")
	}
	if r.Set(Lists{Mine: 1, Wish: 1, Warm: true}, 1); r.Opposed {
		t.Error("a setting is taken for a list")
	}
	if r.Set(Lists{Mine: 1, Wish: 2}, 1); !r.Opposed {
		t.Error("the other list is known to be that of the others")
	}
	if r.Set(Lists{Mine: 1, Wish: 2, Warm: true}, 1); !r.Opposed {
		t.Error("a setting ends that")
	}
	r.Opposed = false
	if r.Set(Lists{Mine: 1, Wish: 2, Later: 3}, 1); !r.Opposed {
		t.Error("the later list is known to be that of the others")
	}
}

// TestReloadInAnnouncement reloads an instance that serves by the list in force, and does not know the next one yet, while a
// pause is announced. It must go on to serve, learn the next list, and then take part in the change.
func TestReloadInAnnouncement(t *testing.T) {
	const inForce, next, other = 7, 8, 9
	announced := State{N: stable(1) + uint32(Pause), List: inForce, Next: next, Announced: true}
	started := Status{State: announced, Lists: Lists{Mine: inForce, Wish: inForce, Warm: true}}
	for name, c := range map[string]struct{ is, want Status }{
		"another list":            {started.reloaded(other), Status{State: announced, Lists: Lists{Mine: inForce, Wish: next, Later: other, Warm: true}}},
		"the next list":           {started.reloaded(next), Status{State: announced, Lists: Lists{Mine: inForce, Wish: next, Warm: true}}},
		"started with both lists": {Status{State: announced, Lists: Lists{Mine: inForce, Wish: other, Warm: true}}, Status{State: announced, Lists: Lists{Mine: inForce, Wish: next, Later: other, Warm: true}}},
	} {
		is := c.is.settled()
		if is.Serves() != All {
			t.Errorf("%s: it serves no keys: %+v", name, is)
		}
		if is = is.learned(); is != c.want {
			t.Errorf("%s: it has learned %+v", name, is)
		}
	}
}

// TestNoFlushInAnnouncement checks that an instance which serves by the list in force flushes nothing while a pause is announced for a list that it
// does not know. It waits until the announcement is taken back.
func TestNoFlushInAnnouncement(t *testing.T) {
	const inForce, next = 7, 8
	announced := State{N: stable(1) + uint32(Pause), List: inForce, Next: next, Announced: true}
	r := Resize{Status: Status{State: announced, Lists: Lists{Mine: inForce, Wish: inForce, Warm: true}}, wished: 1}
	if r.Step(int64(time.Hour), true, true, func(time.Duration) bool { return true }, time.Second); r.State != announced {
		t.Errorf("it begins %+v", r.State)
	}
	if _, sweeps := r.Sweeps(); sweeps {
		t.Error("it flushes all servers")
	}
	if r.Recalls = true; !r.Recall(announced, int64(time.Hour), true, time.Second) {
		t.Error("it does not take the announcement back")
	}
}
