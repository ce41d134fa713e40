// Package barrier lets all proxies of a pool come to another arrangement of keys together.
//
// A number stands in the view records beside the list of servers that it is about. It only
// grows, and says in which stage all are who have that list:
//
//	n mod 4  stage    keys are served                       the next number comes
//	1        Waiting  by the arrangement of before          when whoever has waited long enough has seen no other list of late
//	2        Pausing  there, and those that move are not    when this has stood on all servers for a WAIT; but if one has seen
//	                  written                               another list of late, he makes all wait again: 5
//	3        Decided  the same                              when this has stood for a WAIT, and whatever was written before has ended
//	0        Done     by the new one                        with another arrangement
//
// Whoever reads a higher number of his list goes there at once. So all are within one stage of
// each other, whatever each of them sees: two don't see the same of a third with another list,
// for a record that he has written, perhaps before its server hung, is seen by the first who
// reads it and writes over it.
package barrier

import (
	"sync/atomic"
	"time"
)

// Stage is where all are with their arrangement.
type Stage uint8

// The stages, as n mod 4 has them.
const (
	Done Stage = iota
	Waiting
	Pausing
	Decided

	stages = 4
)

// Of is the stage of the number n.
func Of(n uint32) Stage { return Stage(n % stages) }

// Who reloads last may see no other list any more, and is seen for twenty pings by those
// before, give or take those between two looks. So it waits nearly as long by itself.
const waitPings = 18

// patience is for how long another arrangement waits for those who have not come to the
// present one, in pings: one who is cut off must not hold up whoever reloads.
const patience = 60

// Standing is what a keeper publishes of it.
type Standing struct {
	Arrangement uint64 // that the process has told the keeper; 0: none
	N           uint32
	Settled     bool   // all are done, or it has taken too long
	top         uint32 // the highest number seen
	list        uint64 // of whoever has written that
}

// Open reports whether no other arrangement needs to wait: else some may pause while keys move
// at others, and who got one then would serve by that of before once more, or let others do so,
// while those serve by the next. s may be nil.
func (s *Standing) Open() bool { return s == nil || s.Settled || Of(s.N) == Waiting }

// Stage is where a process is that has an arrangement: Waiting as long as its keeper has not
// heard of it. s may be nil.
func (s *Standing) Stage(arrangement uint64) Stage {
	if s == nil || s.Arrangement != arrangement {
		return Waiting
	}
	return Of(s.N)
}

// Barrier is what a keeper knows of it. Times are on the keeper's clock.
type Barrier struct {
	Standing
	Since    int64   // of N; 0: it was not looked at yet
	Held     []int64 // by view server: since when its record has been seen to say N, without a gap; 0: it doesn't
	deadline int64   // of the commands of the process
}

// New is that of a pool with so many view servers.
func New(servers int) Barrier {
	return Barrier{Standing: Standing{Settled: true}, Held: make([]int64, servers)}
}

// Begin says which arrangement the process wants, whose list is list. The first one is taken
// as it is. With another one all begin to wait, or the process comes to where others are who
// have the same list already.
func (b *Barrier) Begin(arrangement, list uint64, now int64) {
	switch before := b.Arrangement; {
	case before == arrangement:
		return
	case before == 0 || arrangement == 0:
	case b.list == list && b.top > b.N:
		b.set(b.top, list, now)
	default:
		b.set(b.again(), list, now)
	}
	b.Arrangement = arrangement
}

// again is the next number with which all wait.
func (b *Barrier) again() uint32 { return (max(b.N, b.top)+stages-1)/stages*stages + 1 }

func (b *Barrier) set(n uint32, list uint64, now int64) {
	b.N, b.Since, b.Settled = n, now, false
	clear(b.Held)
	if n >= b.top {
		b.top, b.list = n, list
	}
}

// Read takes the number of a record. same: it is of the own list. It reports whether the
// stage may be another one.
func (b *Barrier) Read(n uint32, list uint64, same bool, now int64) bool {
	if n > b.top || n == b.top && same {
		b.top, b.list = n, list
	}
	if !same || n <= b.N {
		return false
	}
	b.set(n, list, now)
	return true
}

// Hold notes what the record of a server says.
func (b *Barrier) Hold(server int, says bool, now int64) {
	switch {
	case !says:
		b.Held[server] = 0
	case b.Held[server] == 0:
		b.Held[server] = now
	}
}

// Step goes on to the next stage if it is time, and reports whether it has. agreed: no other
// list was seen of late. stood reports whether the number has stood for a WAIT. A process that
// keeps no copies goes on where others do, for it doesn't know how long commands on them last;
// but it lets all wait again, for nobody else may have seen the other list.
func (b *Barrier) Step(list uint64, now int64, agreed bool, stood func() bool, ping time.Duration) bool {
	if b.Since == 0 { // a keeper that was made anew goes on with N, and has yet to see who has another list
		b.Since = now
	}
	next := b.N + 1
	switch stage := Of(b.N); {
	case b.Arrangement == 0 && (stage != Pausing || agreed):
		return false
	case stage == Waiting:
		if !agreed || now < b.Since+waitPings*int64(ping) {
			return false
		}
	case stage == Pausing:
		if !agreed {
			next = b.again()
		} else if !stood() {
			next = 0
		}
	case stage == Decided:
		if now < b.Since+b.deadline || !stood() {
			next = 0
		}
	default:
		next = 0
		b.Settled = b.Settled || stood()
	}
	if next != 0 {
		b.set(next, list, now)
		return true
	}
	b.Settled = b.Settled || now >= b.Since+patience*int64(ping)
	return false
}

// Board is where the loops of a process and the keeper of a pool tell each other.
type Board struct {
	wanted atomic.Pointer[wanted]
	stands atomic.Pointer[Standing]
}

// wanted is what routes want of keys that have several copies.
type wanted struct {
	arrangement uint64
	deadline    int64
}

// Arrange says by which arrangement this process wants keys to be held, and how long its
// commands may take.
func (o *Board) Arrange(arrangement uint64, deadline time.Duration) {
	o.wanted.Store(&wanted{arrangement, int64(deadline)})
}

// Standing is how far all are, as the keeper has published it; nil: it hasn't yet.
func (o *Board) Standing() *Standing { return o.stands.Load() }

// Tell tells the keeper's b what loops have said, and reports whether that is new.
func (o *Board) Tell(b *Barrier, list uint64, now int64) bool {
	w := o.wanted.Load()
	if w == nil || w.arrangement == b.Arrangement && w.deadline == b.deadline {
		return false
	}
	b.deadline = w.deadline
	b.Begin(w.arrangement, list, now)
	return true
}

// Publish lets the loops see b.
func (o *Board) Publish(b *Barrier) {
	if was := o.stands.Load(); was == nil || *was != b.Standing {
		is := b.Standing
		o.stands.Store(&is)
	}
}
