package resize

import "testing"

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
