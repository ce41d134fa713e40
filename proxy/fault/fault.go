// Package fault records the faults that an operator injects into servers.
//
// An operator sets a fault to see how an application copes with an outage.
// Ringside applies the fault to its own connections to the server (package loop).
// The server itself notices at most that connections close.
//
//	refuse     connections are reset and new ones are refused, as if the server's process had exited
//	hang       no byte moves in either direction and no connection is made; after the fault everything continues
//	delay      every reply arrives later by Delay
//	drop       Percent of the TCP segments are lost and arrive late, as if TCP had sent them again: after
//	           200 ms, 600 ms, 1.4 s …; connection attempts are delayed by 1 s, 3 s …
//	reset      a connection is reset in the middle of the first reply after the greeting
//	partition  bytes are accepted and discarded in both directions, and no connection is made; after the
//	           fault, connections that have lost bytes are reset
//
// # Choices
//
//   - A server may have several faults, at most one of each kind. Setting a kind
//     again replaces it.
//   - A byte stream has no requests to drop: TCP sends lost segments again, and all
//     later bytes wait for them. So drop is a delay, in steps. At
//     100 percent each segment is late by minutes (ten losses in a row). In practice
//     a timeout closes the connection earlier.
//   - Lifting a fault releases at once all bytes that it has held up.
//   - A fault applies to the address of a server. All pools that use the address
//     share it.
package fault

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Kind is a kind of fault.
type Kind string

// The kinds of faults. The package comment describes them.
const (
	Refuse    Kind = "refuse"
	Hang      Kind = "hang"
	Delay     Kind = "delay"
	Drop      Kind = "drop"
	Reset     Kind = "reset"
	Partition Kind = "partition"
)

// Kinds returns all kinds of faults.
func Kinds() []Kind { return []Kind{Refuse, Hang, Delay, Drop, Reset, Partition} }

// The maximum delay and the maximum duration of a fault. Set.Add enforces them.
const (
	MaxDelay = time.Minute
	MaxFor   = 24 * time.Hour
)

// Fault is one fault of one server.
type Fault struct {
	ID               int    // number of the fault in its Set; Add sets it
	Network, Address string // address of the server
	Kind             Kind
	Delay            time.Duration // delay of each reply; only for kind Delay
	Percent          int           // percentage of lost TCP segments, 1 to 100; only for kind Drop
	For              time.Duration // duration of the fault; 0: until Lift
	Since            time.Time     // when the fault began; Add sets it
}

// Check returns an error if k is not a known kind.
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

// check returns an error if a field of f is out of range or does not fit its kind.
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

// State is the combination of all faults of one server. The zero State means no
// fault.
type State struct {
	Refuse, Hang, Reset, Partition bool
	Delay                          time.Duration
	Drop                           int // percentage of lost TCP segments; 0: none
}

func (s *State) add(f Fault) {
	s.Refuse, s.Hang = s.Refuse || f.Kind == Refuse, s.Hang || f.Kind == Hang
	s.Reset, s.Partition = s.Reset || f.Kind == Reset, s.Partition || f.Kind == Partition
	s.Delay, s.Drop = max(s.Delay, f.Delay), max(s.Drop, f.Percent) // only faults of these kinds have one: see Fault.check
}

// Set is the set of all faults of a process. Its methods are safe for concurrent
// use. A nil Set is always empty.
type Set struct {
	states atomic.Pointer[map[string]State] // states by "network address"; immutable once stored, so drivers read it without a lock

	mu     sync.Mutex
	last   int // ID of the newest fault
	list   []Fault
	timers map[int]*time.Timer // running timers of faults with For, by ID
	watch  []func()
}

// Watch registers f. Every method that adds or removes faults calls f after each change, and
// waits until f returns.
func (s *Set) Watch(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watch = append(s.watch, f)
}

// Of returns the combined faults of a server.
func (s *Set) Of(network, address string) State {
	if s == nil {
		return State{}
	}
	if m := s.states.Load(); m != nil {
		return (*m)[network+" "+address]
	}
	return State{}
}

// List returns the faults in the order in which they were added.
func (s *Set) List() []Fault {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list)
}

// Add adds f and returns it with ID and Since set. It replaces a fault of the same
// kind on the same server. It returns an error if f is invalid.
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

// Lift removes the fault with the given ID. It reports whether there was such a fault.
func (s *Set) Lift(id int) bool {
	return s.lift(func(f Fault) bool { return f.ID == id }) > 0
}

// LiftAll removes all faults and returns how many there were.
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

// publish stores the new states of all servers, and calls the functions registered with Watch. The
// caller must have locked mu. publish unlocks mu before these calls, so that the functions may call
// Of and List.
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
