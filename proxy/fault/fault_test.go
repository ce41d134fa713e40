package fault

import (
	"strings"
	"testing"
	"time"
)

func TestAddAndLift(t *testing.T) {
	var s Set
	told := 0
	s.Watch(func() { told++ })
	slow, err := s.Add(Fault{Network: "tcp", Address: "a:1", Kind: Delay, Delay: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	s.Add(Fault{Network: "tcp", Address: "a:1", Kind: Drop, Percent: 30})
	s.Add(Fault{Network: "tcp", Address: "b:1", Kind: Hang})
	if got := s.Of("tcp", "a:1"); got != (State{Delay: time.Second, Drop: 30}) {
		t.Errorf("a:1 has %+v", got)
	}
	again, _ := s.Add(Fault{Network: "tcp", Address: "a:1", Kind: Delay, Delay: time.Minute})
	if got := s.Of("tcp", "a:1"); got.Delay != time.Minute || len(s.List()) != 3 {
		t.Errorf("a:1 has %+v of %v", got, s.List())
	}
	if s.Lift(slow.ID) || !s.Lift(again.ID) {
		t.Error("the replaced fault was there, or the new one was not")
	}
	if n := s.LiftAll(); n != 2 || len(s.List()) != 0 || s.Of("tcp", "b:1") != (State{}) {
		t.Errorf("%d lifted, %v left", n, s.List())
	}
	if told != 6 {
		t.Errorf("told %d times, want 6", told)
	}
}

// TestFor checks that a fault with For set is removed after that time. The timer of a replaced
// fault must not remove its successor.
func TestFor(t *testing.T) {
	var s Set
	told := make(chan struct{}, 10)
	s.Watch(func() { told <- struct{}{} })
	s.Add(Fault{Network: "tcp", Address: "a:1", Kind: Hang, For: time.Hour})
	s.Add(Fault{Network: "tcp", Address: "a:1", Kind: Hang, For: time.Millisecond})
	for range 3 {
		<-told
	}
	if len(s.List()) != 0 || len(s.timers) != 0 {
		t.Errorf("%v is left, and %d timers", s.List(), len(s.timers))
	}
}

func TestRefused(t *testing.T) {
	var s Set
	s.Watch(func() { t.Error("a refused fault was told") })
	for want, f := range map[string]Fault{
		`unknown kind of fault "melt"`: {Kind: "melt"},
		"more than 0":                  {Kind: Delay},
		"at most 1m0s":                 {Kind: Delay, Delay: time.Hour},
		"hang has no delay":            {Kind: Hang, Delay: 1},
		"from 1 to 100":                {Kind: Drop, Percent: 101},
		"reset has no percent":         {Kind: Reset, Percent: 1},
		"until it is lifted":           {Kind: Hang, For: -1},
	} {
		if _, err := s.Add(f); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", f, err, want)
		}
	}
	if len(s.List()) != 0 {
		t.Error(s.List())
	}
}

func TestNone(t *testing.T) {
	var s *Set
	if s.Of("tcp", "a:1") != (State{}) || s.List() != nil {
		t.Error("a nil set has faults")
	}
}
