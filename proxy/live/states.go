package live

// This file describes the current state of the servers of all pools.

import (
	"slices"
	"strings"
	"time"

	"ringside/proxy"
	"ringside/proxy/health"
	"ringside/proxy/health/roll"
	"ringside/proxy/stats"
	"ringside/proxy/table"
)

// ServerState is the current state of one server in one pool.
type ServerState struct {
	Pool    string    `json:"pool"`
	Server  string    `json:"server"` // name of the server
	Address string    `json:"address"`
	At      string    `json:"at,omitempty"` // where a server that a source lists is now; empty: at Address
	Weight  int       `json:"weight"`
	State   string    `json:"state"`         // state of the server: up, unknown, down, drained, or joins, or a phase of the failover in lower case
	Since   time.Time `json:"since"`         // time at which the state began
	Why     string    `json:"why,omitempty"` // why the server is not up; empty: no reason is known

	Order     string `json:"order,omitempty"` // an operator's order for the server, drain or down; empty: none
	LoopsDown int    `json:"loops_down"`      // number of loops on which the server is down
	Version   string `json:"version,omitempty"`
	Waiting   int    `json:"waiting"`         // number of requests to the server without a reply
	Joins     bool   `json:"joins,omitempty"` // true if the pool does not use the server before its servers change: see Resize

	// Replicas is the state of the replicas on the server. It is nil if no route keeps replicas in
	// the pool.
	Replicas *ReplicaState `json:"replicas,omitempty"`

	// Failover is the state of the pool's keeper for the server. It is nil if the pool
	// never moves keys.
	Failover *Failover `json:"failover,omitempty"`
}

// Failover is what the keeper of a pool knows about one server.
type Failover struct {
	Phase   string `json:"phase"` // phase of the server: IN, LEAVING, OUT, RETURN, WARM or SETTLE
	Outages uint32 `json:"outages"`
	Suspect bool   `json:"suspect"`
	Why     string `json:"why,omitempty"`
	SinceMS int64  `json:"since_ms"` // how long the server has been suspect, or, if it is not suspect, how long it has been in its phase, in milliseconds
	LeaseMS int64  `json:"lease_ms"` // how long the lease is still valid, in milliseconds
	Next    string `json:"next,omitempty"`
	NextMS  int64  `json:"next_ms,omitempty"` // time until the keeper takes the step Next, in milliseconds; 0: the step depends on other instances or servers, not on time
	Unsure  bool   `json:"unsure,omitempty"`  // true if replies of the server can't be trusted now: the instance has no valid leases (consistency: strict)
	Renamed bool   `json:"renamed,omitempty"` // true if the server rejects flush_all; its keys have other names now instead
}

// States of a server, in addition to the phases of the failover.
const (
	Up      = "up"
	Unknown = "unknown" // the server has neither replied to a request nor failed yet
	Down    = "down"
	Drained = "drained" // an operator has ordered that the server gets no new requests
	Joins   = "joins"   // the pool does not use the server before its servers change; it would otherwise be up or unknown
)

// Address returns a server's address as the configuration file spells it.
func Address(t table.Target) string {
	if t.Network == "tcp" {
		return t.Address
	}
	return t.Network + ":" + t.Address
}

// ListenerAddress returns a listener's address as the configuration file spells it. network is the
// network of the address; it is shown only for a unix socket.
func ListenerAddress(network, at string) string {
	if network == "unix" {
		return "unix:" + at
	}
	return at
}

// shown returns the servers of a pool that the views show: those of its list, and then those that
// join by a change of its servers, or by a further one.
func shown(p *table.Pool) []table.Target { return slices.Concat(p.Servers, p.Newcomers()) }

// stateIn returns the state of a server by the snapshot sum alone. since is when the state of a server that has
// had no request began.
func stateIn(sum *stats.Snapshot, pool string, t table.Target, since, now time.Time) ServerState {
	is := ServerState{Pool: pool, Server: t.Name, Address: Address(t), Weight: t.Weight, State: Unknown, Since: since}
	if seen := sum.Servers[t.Network+" "+t.Address]; seen != nil {
		is.Since = now.Add(-time.Duration(seen.Age))
		is.LoopsDown, is.Version, is.Waiting = seen.Down, seen.Version, seen.Waiting
		if is.State = seen.State(); is.State == Down {
			is.Why = seen.Why
		}
	}
	return is
}

// join sets that the pool does not use the server before its servers change. r is that change; nil: none is due. later
// means that a further change must follow. Then this instance does not know the server yet. A state that is a problem stays.
func (is *ServerState) join(r *Resize, later bool, now time.Time) {
	is.Joins = true
	if later && r != nil {
		is.Since = now.Add(-time.Duration(r.Seconds) * time.Second)
	}
	if is.State != Up && is.State != Unknown {
		return
	}
	is.State, is.Why = Joins, "new, not used yet"
	switch {
	case r == nil, later:
	case r.Back:
		is.Why = "its keys move back"
	case r.Step == moving || r.Step == checking || r.Step == ending:
		is.Why = "new, keys move to it"
	}
}

// States returns the state of all servers that the current table of p shows. sum is a snapshot of the
// counters of p.
func States(p *proxy.Proxy, sum *stats.Snapshot) []ServerState {
	now, t := time.Now(), p.Table()
	list := []ServerState{}
	for _, pool := range t.Pools {
		for i, t := range shown(pool) {
			is := stateIn(sum, pool.Name, t, p.Started, now)
			newcomer := i >= len(pool.Servers) // an order for its name concerns the server with that name that is in use
			if o := p.OverrideOf(pool.Name, t.Name); o.Override != health.Restore && !newcomer {
				is.Order, is.Since = o.Override.String(), o.Since
				is.State, is.Why = Drained, describeOverride(is.Order)
				if o.Override == health.Down {
					is.State = Down
				}
			}
			if m := sum.Phase(pool.Name, t); m != nil {
				is.keeperSays(m, now)
			}
			if newcomer {
				if s := sum.Resizes[pool.Name]; s != nil && s.For.SameAddress(t) && (is.State == Up || is.State == Unknown) {
					if _, reason, down := strings.Cut(s.Waiting(), " is down: "); down { // mode flush: a server that joins gets no pings
						is.State, is.Why = Down, reason
					}
				}
				is.join(ResizeOf(sum, pool), i >= len(pool.Servers)+len(pool.Joining()), now)
			}
			list = append(list, is)
		}
	}
	addReplicas(list, t, func(is *ServerState) bool { return sum.Lacks[[2]string{is.Pool, is.Server}].Filling }, func(is *ServerState) bool {
		i := slices.IndexFunc(sum.Rolls, func(r stats.Roll) bool { return r.Pool == is.Pool })
		return i >= 0 && slices.ContainsFunc(sum.Rolls[i].Others, func(e roll.Instance) bool { return e.SaysLacks(is.Server) })
	})
	return list
}

// addReplicas sets the field Replicas of all servers of the table t that do not join. list has the order of the
// table. filling reports whether this instance fills the server; others reports whether another
// instance does. This instance may not know it if it was started later.
func addReplicas(list []ServerState, t *table.Table, filling, others func(*ServerState) bool) {
	lacking := map[string][]*ServerState{}
	for i := range list {
		if is := &list[i]; !is.Joins && (is.State != Up || filling(is) || others(is)) {
			lacking[is.Pool] = append(lacking[is.Pool], is)
		}
	}
	for _, pool := range t.Pools {
		for range pool.Servers {
			is := &list[0]
			list = list[1:]
			is.Replicas = replicasIn(t, pool, func(p *table.Pool) (n int, how []string) {
				for _, other := range lacking[p.Name] {
					if other == is {
						continue
					}
					if n++; n <= mostReasons {
						how = append(how, other.lack(p != pool, filling(other)))
					}
				}
				return n, how
			})
			if is.Replicas != nil {
				is.Replicas.Filling = filling(is)
			}
		}
		list = list[len(pool.Newcomers()):]
	}
}

// mostReasons is the maximum number of servers per pool that are named as lacking replicas.
const mostReasons = 4

// lack describes why the replicas on the server do not count. elsewhere means that the server
// belongs to another pool. filling means that this instance is filling the server.
func (is *ServerState) lack(elsewhere, filling bool) string {
	name := is.Server
	if elsewhere {
		name += " of pool " + is.Pool
	}
	switch {
	case is.State != Up && is.Why != "":
		return name + " is " + is.State + ": " + is.Why
	case is.State != Up:
		return name + " is " + is.State
	case filling:
		return name + " is being filled"
	}
	return name + " lacks replicas, as another instance reports"
}

// keeperSays sets the fields that come from the keeper of the pool. m has what the keeper knows
// about the server.
func (is *ServerState) keeperSays(m *stats.PhaseSnapshot, now time.Time) {
	is.Failover = &Failover{
		Phase: m.Phase.String(), Outages: m.Outages(), Suspect: m.Suspect, Why: m.Why, SinceMS: m.Since.Milliseconds(),
		LeaseMS: m.Lease.Milliseconds(), Next: m.Step, NextMS: m.Due.Milliseconds(), Unsure: m.ValidFor <= 0, Renamed: m.Renamed,
	}
	if m.Override != health.Restore {
		is.Order = m.Override.String()
	}
	state := strings.ToLower(m.State())
	if state == Up && (is.State == Up || is.State == Unknown) {
		return
	}
	if state != Up || is.State != Down {
		is.State, is.Why, is.Since = state, m.Why, now.Add(-m.Since)
	}
	if is.Order != "" && m.Phase == health.Out {
		is.State, is.Why, is.Since = Drained, describeOverride(is.Order), now.Add(-m.InPhase)
		if m.Suspect && m.Override == health.Drain { // only for the order drain, because a server with the order down is always suspect
			is.Why += alsoSuspect + m.Why
		}
	}
}

// alsoSuspect is the text between an operator's order and the reason for which the server would be
// ejected without the order.
const alsoSuspect = ", and suspect: "

// describeOverride describes an operator's order in words.
func describeOverride(order string) string {
	if order == health.Down.String() {
		return "taken down by an operator"
	}
	return "drained by an operator"
}
