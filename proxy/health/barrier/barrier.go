// Package barrier coordinates a handover: all proxies of a pool switch to a new
// placement of replicated keys together.
//
// A placement is called an arrangement. The progress of a handover is one number, which
// the view records contain next to the hash of the server list. It only grows, and its
// value mod 4 is the stage of all proxies with that list:
//
//	n mod 4  stage    keys are served                         the next stage begins
//	1        Waiting  by the old arrangement                  when a proxy has waited long enough and has seen no other server list
//	                                                          recently
//	2        Pausing  by the old arrangement; keys that       when the number has been on all servers for a WAIT; but a proxy
//	                  move are not written                    that has recently seen another list starts with Waiting again (5)
//	3        Decided  as in Pausing                           when the number has been there for a WAIT, and all earlier writes
//	                                                          have ended
//	0        Done     by the new arrangement                  with the next arrangement
//
// A proxy that reads a higher number for its server list adopts it at once. So all
// proxies are within one stage of each other, whatever each of them sees. Two proxies
// may see a third one with another list at different times. But if that proxy has
// written a record, perhaps before its server hung, the first proxy that reads and
// overwrites the record sees it.
package barrier

import (
	"sync/atomic"
	"time"
)

// Stage is the progress of a handover.
type Stage uint8

// The stages. The stage of a handover number N is N mod 4.
const (
	Done Stage = iota
	Waiting
	Pausing
	Decided

	stages = 4
)

// Of returns the stage of the number n.
func Of(n uint32) Stage { return Stage(n % stages) }

// waitPings is the duration of Waiting, in pings. The last proxy to reload may see no other server
// list in the records. But its former list still has an effect on the other proxies, for about
// twenty pings. So the last proxy must wait nearly as long, although it sees no difference.
const waitPings = 18

// patience is how long, in pings, a further handover waits for proxies that have not completed the
// current one. It is limited because an unreachable proxy must not block reloads.
const patience = 60

// Status is the published state of a handover.
type Status struct {
	Arrangement uint64 // hash of the arrangement that the configuration of this process requires; 0: no key has replicas
	N           uint32 // number of the handover and its stage: see Of
	Settled     bool   // all proxies are done, or the time limit has passed
	top         uint32 // the highest N seen in any view record
	list        uint64 // hash of the server list in the record that had the highest number (top)
}

// Open reports whether a handover to a new arrangement may start. It must not start while proxies
// change to the arrangement of an earlier handover (Pausing, Decided, and Done until all proxies are
// Done): one proxy could then still serve by the arrangement before that, and another by the new
// one. It may start while keys still move after that. s may be nil.
func (s *Status) Open() bool { return s == nil || s.Settled || Of(s.N) == Waiting }

// Stage returns the stage of a process whose configuration requires arrangement. It is Waiting
// until the keeper knows the arrangement. s may be nil.
func (s *Status) Stage(arrangement uint64) Stage {
	if s == nil || s.Arrangement != arrangement {
		return Waiting
	}
	return Of(s.N)
}

// Barrier is what a keeper knows about a handover. Times are on the keeper's clock.
type Barrier struct {
	Status
	Since    int64   // when this process adopted N; 0 in a new keeper, until its first Step
	Held     []int64 // for each server with a view record: the time from which its record has contained N without interruption; 0: it does not contain N
	deadline int64   // maximum duration of this process's commands, in nanoseconds
}

// New returns the barrier of a pool. servers is the number of its servers with a view record.
func New(servers int) Barrier {
	return Barrier{Status: Status{Settled: true}, Held: make([]int64, servers)}
}

// Begin sets the arrangement that the configuration of this process requires; list is the hash of
// its server list. The first arrangement is in effect at once. Any other one starts a handover with
// Waiting. If other proxies with the same list have started it already, the process adopts their
// stage.
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

// again returns the number with which the handover starts again in stage Waiting.
func (b *Barrier) again() uint32 { return (max(b.N, b.top)+stages-1)/stages*stages + 1 }

func (b *Barrier) set(n uint32, list uint64, now int64) {
	b.N, b.Since, b.Settled = n, now, false
	clear(b.Held)
	if n >= b.top {
		b.top, b.list = n, list
	}
}

// Read handles the handover number n from the record of a server. The parameter list is
// the hash of the server list in that record; same means that this proxy has the same
// server list. Read reports whether the stage may have changed.
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

// Hold records whether the view record of a server contains N.
func (b *Barrier) Hold(server int, says bool, now int64) {
	switch {
	case !says:
		b.Held[server] = 0
	case b.Held[server] == 0:
		b.Held[server] = now
	}
}

// Step moves to the next stage if it is time, and reports whether it did. The parameter agreed
// means that no record with another server list was read recently. The function replicated reports
// whether N has been in enough records for as long as the keeper's waits last. A process whose
// routes keep no replicas takes no step by itself, because it does not know how long commands on
// replicas last. It only adopts the numbers of other processes. But if it reads a record with
// another server list, it returns to Waiting, because it may be the only process that has read it.
func (b *Barrier) Step(list uint64, now int64, agreed bool, replicated func() bool, ping time.Duration) bool {
	if b.Since == 0 { // a new keeper continues the handover at the stage that N says, but does not know yet whether another instance has another server list
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

// wanted is what the loops of this process have set by Published.Arrange.
type wanted struct {
	arrangement uint64
	deadline    int64
}

// Arrange sets the arrangement that the routing table of this process requires, and the maximum
// duration of its commands.
func (o *Published) Arrange(arrangement uint64, deadline time.Duration) {
	o.wanted.Store(&wanted{arrangement, int64(deadline)})
}

// Status returns the state that the keeper has published; nil: none yet.
func (o *Published) Status() *Status { return o.status.Load() }

// Tell passes the values set by Arrange to b, the Barrier of the keeper, and reports whether they
// are new.
func (o *Published) Tell(b *Barrier, list uint64, now int64) bool {
	w := o.wanted.Load()
	if w == nil || w.arrangement == b.Arrangement && w.deadline == b.deadline {
		return false
	}
	b.deadline = w.deadline
	b.Begin(w.arrangement, list, now)
	return true
}

// Publish publishes the state of b to the loops.
func (o *Published) Publish(b *Barrier) {
	if was := o.status.Load(); was == nil || *was != b.Status {
		is := b.Status
		o.status.Store(&is)
	}
}
