// Package resize coordinates a change of the server list of a pool, for keys with one copy: no proxy
// reads a value that is older than the last acknowledged write.
//
// A server list is everything that decides which server owns a key: servers, weights and
// distribution. All proxies serve by the list in force, which the view records name by its hash. The
// configuration of a proxy is only its wish. The progress is one number n, which only grows. A WAIT is
// the time in which all proxies learn what one of them has published (package health).
//
//	n     stage   keys that move                    the next stage begins
//	even  Stable  are served by the list in force   when all proxies have wished the same other list for some time, and the
//	                                                servers that gain keys are flushed
//	odd   Clear   reads miss, mutations wait        when n has been in the records of all servers for a WAIT
//
// A proxy that reads a higher n adopts the whole State. So all proxies are within one stage of each
// other. The stage Clear is needed because a proxy in the stage before may read the old value at the old
// owner, and one in the stage after may write a newer value at the new owner.
//
// The flush is done while the list is in force. No proxy stores a moving key at its next owner then. So
// the next owner has no value of it when the next list comes into force.
//
// A proxy that does not know the list in force serves no key. This happens to a proxy that was started
// with another list than that of its peers. When all proxies wish its list, one of them begins the next
// stage. If all proxies are in this state, none knows which servers gain keys. After a longer
// time one of them flushes all servers.
package resize

import "time"

// Stage is the progress of a change.
type Stage uint8

// The stages.
const (
	Stable Stage = iota // all keys are served by the list in force
	Clear               // keys that move are not served
)

// State is what all proxies must agree on. The zero State means that nothing is known yet.
type State struct {
	N    uint32 // number of the stage: it only grows; odd: Clear
	List uint32 // hash of the list in force
	Next uint32 // in Clear, the hash of the list that will be in force; else 0
}

// First returns the state of a pool without records: its first list is in force at once.
func First(list uint32) State { return State{N: 2, List: list} }

// Stage returns the stage of s.
func (s State) Stage() Stage { return Stage(s.N % 2) }

// Merge returns the later of two states. Two proxies that do not reach each other may have begun the
// same stage with different lists. The higher hash wins then.
func Merge(a, b State) State {
	if b.N > a.N || b.N == a.N && (b.List > a.List || b.List == a.List && b.Next > a.Next) {
		return b
	}
	return a
}

// advanced returns the state after s. wish is the list that all proxies wish; only Stable uses it.
func (s State) advanced(wish uint32) State {
	if s.Stage() == Clear {
		return State{N: s.N + 1, List: s.Next}
	}
	return State{N: s.N + 1, List: s.List, Next: wish}
}

// Service says which keys a proxy may serve.
type Service uint8

// The kinds of service.
const (
	All     Service = iota // all keys, by the proxy's own list
	Staying                // the keys that have the same server in both lists
	Nothing                // no key, because the proxy does not know the list in force
)

// Status is the published state of a keeper.
type Status struct {
	State
	Mine uint32 // hash of the list by which the loops of this process find servers
	Wish uint32 // hash of the list that the configuration requires
}

// Serves returns which keys this process may serve.
func (s Status) Serves() Service {
	switch {
	case s.Stage() == Stable && s.List == s.Mine && s.N != 0:
		return All
	case s.Mine != s.Wish && s.Stage() == Clear && s.List == s.Mine && s.Next == s.Wish, s.Superseded():
		return Staying
	}
	return Nothing
}

// Superseded reports whether the list that the configuration requires is in force, and the loops must
// now use it.
func (s Status) Superseded() bool {
	return s.Stage() == Stable && s.Mine != s.Wish && s.List == s.Wish
}

// Holds reports whether the keys of this process still have their servers by the list Mine. If they do,
// a reload must not use another list at once.
func (s Status) Holds() bool { return s.N != 0 && s.List == s.Mine }

const (
	waitPings  = 18 // minimum time between two changes, and from a wish until the stage Clear, in pings
	aloneTimes = 2  // a proxy that does not know the list in force waits this many times longer
)

// Resize is what a keeper knows about a change. Times are in nanoseconds on the keeper's clock. The
// zero Resize is that of a pool that does not coordinate changes: Mine is 0.
type Resize struct {
	Status
	Since  int64   // when this process adopted the state
	Held   []int64 // for each view server, the time from which its record has contained N without interruption; 0: it does not contain N
	wished int64   // when the wish was set
	swept  [2]uint32
	sweeps bool
}

// Set sets the list by which this process finds servers, and the list that its configuration requires.
func (r *Resize) Set(mine, wish uint32, now int64) {
	if r.Mine != mine || r.Wish != wish {
		r.Mine, r.Wish, r.wished, r.sweeps = mine, wish, now, false
	}
}

// Read adopts the state s from a view record if it is later, and reports whether it did.
func (r *Resize) Read(s State, now int64) bool {
	if m := Merge(r.State, s); m != r.State {
		r.set(m, now)
		return true
	}
	return false
}

func (r *Resize) set(s State, now int64) {
	r.State, r.Since, r.sweeps = s, now, false
	clear(r.Held)
}

// Hold records whether the view record of a server contains the current state (says).
func (r *Resize) Hold(server int, says bool, now int64) {
	switch {
	case !says:
		r.Held[server] = 0
	case r.Held[server] == 0:
		r.Held[server] = now
	}
}

// Step begins the next stage if that is due, and reports whether it did. agreed means that no other
// wish was seen recently. ready means that no server that stays is between two phases or out. The
// function replicated reports whether all proxies must know the state by now.
func (r *Resize) Step(now int64, agreed, ready bool, replicated func() bool, ping time.Duration) bool {
	r.sweeps = false
	wait := waitPings * int64(ping)
	if r.List != r.Mine { // perhaps no proxy knows the list in force; a peer that does is earlier
		wait *= aloneTimes
	}
	switch {
	case r.Mine == 0 || r.N == 0:
		return false
	case r.Stage() == Clear:
		if !replicated() {
			return false
		}
	case r.List == r.Wish || r.List != r.Mine && r.Mine != r.Wish:
		return false
	case !agreed || !ready || now < max(r.Since, r.wished)+wait:
		return false
	case r.swept != [2]uint32{r.N, r.Wish}:
		r.sweeps = true
		return false
	}
	r.set(r.advanced(r.Wish), now)
	return true
}

// Sweeps reports whether the servers that gain keys must be flushed now, and under which number. The
// number belongs to one change: a flush for another change does not count.
func (r *Resize) Sweeps() (change [2]uint32, ok bool) {
	return [2]uint32{r.N, r.Wish}, r.sweeps
}

// Swept records that the servers that gain keys are flushed for a change.
func (r *Resize) Swept(change [2]uint32) { r.swept = change }
