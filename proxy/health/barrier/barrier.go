// Package barrier coordinates a handover: all proxies of a pool switch to a new
// placement of replicated keys together.
//
// A placement is called an arrangement. The progress of a handover is one number n, which
// the view records contain next to the hash of the server list. It only grows, and n mod 4
// is the stage of all proxies with that list. A WAIT is the time in which all proxies learn
// what one of them has published (package health).
//
//	n mod 4  stage    keys are served                         the next stage begins
//	1        Waiting  by the old arrangement                  when a proxy has waited long enough and has seen no other server list
//	                                                          recently
//	2        Pausing  by the old arrangement; keys that       when n has been in the records of all servers for a WAIT; but a proxy
//	                  move are not written                    that has recently seen another server list starts again with Waiting
//	3        Decided  as in Pausing                           when n has been in the records of all servers for a WAIT, and all
//	                                                          earlier writes have ended
//	0        Done     by the new arrangement                  with the next arrangement
//
// A proxy that reads a higher number for its server list adopts that number at once. So all
// proxies are within one stage of each other, whatever each of them sees.
//
// Proxies may notice a proxy with another server list at different times. But that proxy
// writes its list to the view records. The first proxy that overwrites such a record has
// read the other list in it, even if the server has hung in between. If the stage is Pausing
// then, that proxy returns to Waiting, and all others follow.
//
// A reload that removes a server takes it out. With strict consistency, other proxies eject it as after
// a failure: it is LEAVING first, and they write none of its keys until all proxies know that. The proxy that
// reloads has no such server any more. So it writes no keys that move until all proxies have read that,
// or have no valid leases (Status.Withheld). Otherwise they could read older values from that server.
package barrier

import (
	"sync/atomic"
	"time"
)

// Stage is the progress of a handover.
type Stage uint8

// The stages of a handover. The stage of a handover number N is N mod 4.
const (
	Done Stage = iota
	Waiting
	Pausing
	Decided

	stages = 4
)

// Of returns the stage of a handover with the handover number n.
func Of(n uint32) Stage { return Stage(n % stages) }

// waitPings is the minimum duration of stage Waiting, in intervals between two pings. The last proxy
// that reloads sees no other server list in the view records. But other proxies have read its former
// list there, and do not let a handover proceed for about twenty pings after that. So the last
// proxy waits nearly as long as the others.
const waitPings = 18

// patience is how long, in intervals between two pings, a new handover waits for proxies that have
// not completed the current handover. It is limited, because an unreachable proxy must not block
// reloads.
const patience = 60

// Status is the published state of a handover.
type Status struct {
	Arrangement uint64 // hash of the arrangement that the configuration of this process requires; None: no key has replicas; 0: not known yet
	N           uint32 // handover number: it grows by one with each stage, and N mod 4 is the stage (Of)
	Settled     bool   // all proxies have completed the handover, or the time limit (patience) has passed
	Withheld    bool   // other proxies may still read from a server that a reload of this process has removed, so keys that move must not be written
	top         uint32 // the highest handover number in any view record that was read
	list        uint64 // hash of the server list in the record that had the highest number (top)
}

// Open reports whether a new handover may start. It must not start while proxies still switch to the
// arrangement of the current handover: in Pausing, in Decided, and in Done until all proxies are
// Done. Otherwise one proxy could serve by the oldest of three arrangements, and another by the
// newest. A new handover may start while keys are still copied for the current one. s may be nil.
func (s *Status) Open() bool { return s == nil || s.Settled || Of(s.N) == Waiting }

// Stage returns the stage of the handover to an arrangement, which the configuration of this process
// requires. It is Waiting until the keeper knows the arrangement. s may be nil.
func (s *Status) Stage(arrangement uint64) Stage {
	if s == nil || s.Arrangement != arrangement {
		return Waiting
	}
	return Of(s.N)
}

// None is the arrangement of a pool that takes part in no handover, because no key has replicas in it. A handover
// starts when the pool gets another arrangement.
const None = 1

// Barrier is what a keeper knows about a handover. Times are in nanoseconds on the keeper's clock.
type Barrier struct {
	Status
	Since    int64   // when this process adopted the handover number N; 0 in a new keeper, until its first Step
	Held     []int64 // for each view server: the time from which its record has contained the handover number N without interruption; 0: the record does not contain N
	deadline int64   // maximum duration of this process's commands, in nanoseconds
}

// New returns the Barrier of a pool without a handover so far. servers is the number of the pool's
// view servers.
func New(servers int) Barrier {
	return Barrier{Status: Status{Settled: true}, Held: make([]int64, servers)}
}

// Begin sets the arrangement that the configuration of this process requires. list is the hash of
// its server list. The first arrangement is in effect at once, and so is the arrangement None. Any other arrangement starts a handover with stage Waiting. If other proxies with
// the same server list have already started that handover, this process adopts their stage.
func (b *Barrier) Begin(arrangement, list uint64, now int64) {
	switch before := b.Arrangement; {
	case before == arrangement:
		return
	case before == 0 || arrangement == None:
	case b.list == list && b.top > b.N:
		b.set(b.top, list, now)
	default:
		b.set(b.again(), list, now)
	}
	b.Arrangement = arrangement
}

// Reached returns what a process that is started later must know of the handover, if it can't read a view record of it: the handover
// number N if the stage is Done, and otherwise the number with which this handover began.
func (b *Barrier) Reached() uint32 {
	if Of(b.N) == Done {
		return max(b.N, stages)
	}
	return b.N - (b.N+stages-1)%stages
}

// Learn makes a process that was started while keys move, and has learned the former server lists, begin as if it was reloaded.
// reached is what Reached has returned at another process, or at this one before it was started again. If this process has read no such
// number in a view record, it begins with Done if the others have completed the handover, and with Waiting if not. A lower
// number is that of an earlier handover to the same list.
func (b *Barrier) Learn(reached uint32, list uint64, now int64) {
	switch {
	case b.N >= reached:
	case Of(reached) == Done:
		b.set(reached, list, now)
	default:
		b.set(b.again(), list, now)
	}
}

// again returns the next handover number with stage Waiting: the handover starts again with it.
func (b *Barrier) again() uint32 { return (max(b.N, b.top)+stages-1)/stages*stages + 1 }

func (b *Barrier) set(n uint32, list uint64, now int64) {
	b.N, b.Since, b.Settled = n, now, false
	clear(b.Held)
	if n >= b.top {
		b.top, b.list = n, list
	}
}

// Read handles the handover number n from the view record of a server. The parameter list is
// the hash of the server list in that record; same means that this proxy has the same
// server list. Read reports whether this proxy has adopted n.
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

// Hold records whether the view record of a server contains the current handover number (says).
func (b *Barrier) Hold(server int, says bool, now int64) {
	switch {
	case !says:
		b.Held[server] = 0
	case b.Held[server] == 0:
		b.Held[server] = now
	}
}

// Step moves the handover to its next stage if that is due, and reports whether it did. The
// parameter agreed means that no view record with another server list was read recently. The
// function replicated reports whether all proxies must know the current handover number by now.
//
// A process without replicated keys does not know how long commands on replicas last. So it never
// begins the next stage itself. It only adopts higher handover numbers that it reads. There is one
// exception: if it is in the stage Pausing and reads a view record with another server list, it begins
// again with Waiting, because it is perhaps the only process that has read that record.
func (b *Barrier) Step(list uint64, now int64, agreed bool, replicated func() bool, ping time.Duration) bool {
	if b.Since == 0 { // a new keeper: the stage follows from its handover number, but the waiting time starts again, because it does not know yet whether another instance has another server list
		b.Since = now
	}
	next := b.N + 1
	switch stage := Of(b.N); {
	case b.Arrangement <= None && (stage != Pausing || agreed):
		return false
	case stage == Waiting:
		if !agreed || now < b.Since+waitPings*int64(ping) {
			return false
		}
	case stage == Pausing:
		if !agreed {
			next = b.again()
		} else if !replicated() {
			next = 0
		}
	case stage == Decided:
		if now < b.Since+b.deadline || !replicated() {
			next = 0
		}
	default:
		next = 0
		b.Settled = b.Settled || replicated()
	}
	if next != 0 {
		b.set(next, list, now)
		return true
	}
	b.Settled = b.Settled || now >= b.Since+patience*int64(ping)
	return false
}

// Published passes the state of a handover between the loops of a process and the keeper of a pool.
type Published struct {
	wanted atomic.Pointer[wanted]
	status atomic.Pointer[Status]
}

// wanted has the values that the loops of this process have set with Published.Arrange.
type wanted struct {
	arrangement uint64
	deadline    int64
	joins       bool
}

// Arrange sets the arrangement that the routing table of this process requires, and the maximum
// duration of its commands. joins means that the peers use this arrangement. It replaces the
// configured one, with which this process has served no key. So it is like a first arrangement.
func (o *Published) Arrange(arrangement uint64, deadline time.Duration, joins bool) {
	o.wanted.Store(&wanted{arrangement, int64(deadline), joins})
}

// Status returns the state that the keeper has published; nil: none yet.
func (o *Published) Status() *Status { return o.status.Load() }

// Tell passes the values that Arrange has set to b, the Barrier of the keeper, and reports whether
// they are new. list is the hash of the keeper's server list.
func (o *Published) Tell(b *Barrier, list uint64, now int64) bool {
	w := o.wanted.Load()
	if w == nil || w.arrangement == b.Arrangement && w.deadline == b.deadline {
		return false
	}
	if b.deadline = w.deadline; w.joins {
		b.Arrangement = w.arrangement
	} else {
		b.Begin(w.arrangement, list, now)
	}
	return true
}

// Publish makes the state of b visible to the loops, as the result of Status.
func (o *Published) Publish(b *Barrier) {
	if was := o.status.Load(); was == nil || *was != b.Status {
		is := b.Status
		o.status.Store(&is)
	}
}
