// Package fault says what is wrong, on purpose, with which server.
//
// An operator who wants to know what an outage does to his application sets a
// fault and looks. Ringside applies it to its own connections to the server
// (package loop); the server itself notices at most that connections end.
//
//	refuse     its connections are reset and new ones are refused, as when its process has ended
//	hang       bytes stand still in both directions, new connections are not made; when it is lifted all goes on
//	delay      every answer comes later by Delay
//	drop       Percent of the segments are lost and come later, as TCP sends them again: after 200 ms, 600 ms,
//	           1.4 s …; so do attempts to connect, after 1 s, 3 s …
//	reset      a connection is reset in the middle of the first answer behind the greeting
//	partition  bytes are taken and never delivered, in both directions, and new connections are not made; when
//	           it is lifted, connections that have lost bytes are reset
//
// # Choices
//
//   - A server may have several faults, one of each kind. Setting a kind again
//     replaces it.
//   - A byte stream has no requests to drop: what a network drops, TCP sends
//     again, and everything behind it waits. So drop is lateness, in steps. At
//     100 percent nothing comes before it is lifted or the connection is given up.
//   - A fault that is lifted lets go at once of what it has kept.
//   - A server is meant by its address: pools that share it share the fault.
package fault

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Kind is one way to be broken.
type Kind string

// The kinds. See the package doc.
const (
	Refuse    Kind = "refuse"
	Hang      Kind = "hang"
	Delay     Kind = "delay"
	Drop      Kind = "drop"
	Reset     Kind = "reset"
	Partition Kind = "partition"
)

// Kinds lists all kinds.
func Kinds() []Kind { return []Kind{Refuse, Hang, Delay, Drop, Reset, Partition} }

// Bounds of what may be asked for.
const (
	MaxDelay = time.Minute
	MaxFor   = 24 * time.Hour
)

// Fault is one thing that is wrong with one server.
type Fault struct {
	ID               int    // given by Add
	Network, Address string // of the server
	Kind             Kind
	Delay            time.Duration // of kind Delay
	Percent          int           // of kind Drop, 1 to 100
	For              time.Duration // it lifts itself after this; 0: it stays until it is lifted
	Since            time.Time     // given by Add
}

// Check says what is wrong with k: it may be no kind at all.
func (k Kind) Check() error {
	if slices.Contains(Kinds(), k) {
		return nil
	}
	names := make([]string, 0, len(Kinds()))
	for _, k := range Kinds() {
		names = append(names, string(k))
	}
	return fmt.Errorf("unknown kind of fault %q: it is one of %s", k, strings.Join(names, ", "))
}

// check says what is wrong with f itself.
func (f Fault) check() error {
	if err := f.Kind.Check(); err != nil {
		return err
	}
	switch {
	case f.Kind == Delay && (f.Delay <= 0 || f.Delay > MaxDelay):
		return fmt.Errorf("a delay is more than 0 and at most %v", MaxDelay)
	case f.Kind != Delay && f.Delay != 0:
		return fmt.Errorf("a fault of kind %s has no delay", f.Kind)
	case f.Kind == Drop && (f.Percent < 1 || f.Percent > 100):
		return fmt.Errorf("drop takes a percent from 1 to 100")
	case f.Kind != Drop && f.Percent != 0:
		return fmt.Errorf("a fault of kind %s has no percent", f.Kind)
	case f.For < 0 || f.For > MaxFor:
		return fmt.Errorf("a fault lasts from 0 (until it is lifted) to %v", MaxFor)
	}
	return nil
}

// State is all that is wrong with one server.
type State struct {
	Refuse, Hang, Reset, Partition bool
	Delay                          time.Duration
	Drop                           int // percent
}

func (s *State) add(f Fault) {
	switch f.Kind {
	case Refuse:
		s.Refuse = true
	case Hang:
		s.Hang = true
	case Delay:
		s.Delay = f.Delay
	case Drop:
		s.Drop = f.Percent
	case Reset:
		s.Reset = true
	case Partition:
		s.Partition = true
	}
}

// Set is the faults of a process. Its methods are safe for concurrent use; a
// nil Set has none and never will.
type Set struct {
	states atomic.Pointer[map[string]State] // by network and address; what drivers read

	mu     sync.Mutex
	last   int // ID
	list   []Fault
	timers map[int]*time.Timer // by ID
	watch  []func()
}

// Watch makes Add and the lifting of a fault call f when Of says something
// new, and wait for it.
func (s *Set) Watch(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watch = append(s.watch, f)
}

// Of is what is wrong with a server.
func (s *Set) Of(network, address string) State {
	if s == nil {
		return State{}
	}
	if m := s.states.Load(); m != nil {
		return (*m)[network+" "+address]
	}
	return State{}
}

// List returns the faults, in the order in which they were set.
func (s *Set) List() []Fault {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list)
}

// Add sets f, and returns it with its ID. The error says what is wrong with it.
func (s *Set) Add(f Fault) (Fault, error) {
	if err := f.check(); err != nil {
		return Fault{}, err
	}
	s.mu.Lock()
	s.list = slices.DeleteFunc(s.list, func(o Fault) bool {
		same := o.Network == f.Network && o.Address == f.Address && o.Kind == f.Kind
		if same {
			s.forget(o.ID)
		}
		return same
	})
	s.last++
	f.ID, f.Since = s.last, time.Now()
	s.list = append(s.list, f)
	if f.For > 0 {
		if s.timers == nil {
			s.timers = map[int]*time.Timer{}
		}
		s.timers[f.ID] = time.AfterFunc(f.For, func() { s.Lift(f.ID) })
	}
	s.publish()
	return f, nil
}

// Lift ends the fault with that ID. It reports whether there was one.
func (s *Set) Lift(id int) bool {
	return s.lift(func(f Fault) bool { return f.ID == id }) > 0
}

// LiftAll ends all faults and returns how many there were.
func (s *Set) LiftAll() int { return s.lift(func(Fault) bool { return true }) }

func (s *Set) lift(which func(Fault) bool) int {
	s.mu.Lock()
	before := len(s.list)
	s.list = slices.DeleteFunc(s.list, func(f Fault) bool {
		if !which(f) {
			return false
		}
		s.forget(f.ID)
		return true
	})
	n := before - len(s.list)
	if n == 0 {
		s.mu.Unlock()
		return 0
	}
	s.publish()
	return n
}

func (s *Set) forget(id int) {
	if t := s.timers[id]; t != nil {
		t.Stop()
		delete(s.timers, id)
	}
}

// publish tells the drivers. It is called with mu held and releases it.
func (s *Set) publish() {
	m := map[string]State{}
	for _, f := range s.list {
		st := m[f.Network+" "+f.Address]
		st.add(f)
		m[f.Network+" "+f.Address] = st
	}
	s.states.Store(&m)
	watch := slices.Clone(s.watch)
	s.mu.Unlock()
	for _, f := range watch {
		f()
	}
}
