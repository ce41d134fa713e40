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
	Weight  int       `json:"weight"`
	State   string    `json:"state"`         // up, unknown, down, drained, or a phase of failover
	Since   time.Time `json:"since"`         // start of the state
	Why     string    `json:"why,omitempty"` // why the server is not up

	Order     string `json:"order,omitempty"` // override by an operator: drain, down
	LoopsDown int    `json:"loops_down"`      // number of loops on which it is down
	Version   string `json:"version,omitempty"`
	Waiting   int    `json:"waiting"` // requests without a reply

	// Replicas is set if routes keep replicas in the pool.
	Replicas *ReplicaState `json:"replicas,omitempty"`

	// Failover is the state of the pool's keeper for the server. It is nil if the pool
	// never moves keys.
	Failover *Failover `json:"failover,omitempty"`
}

// Failover is a keeper's state for one server.
type Failover struct {
	Phase   string `json:"phase"` // IN, LEAVING, OUT, RETURN, WARM, SETTLE
	Outages uint32 `json:"outages"`
	Suspect bool   `json:"suspect"`
	Why     string `json:"why,omitempty"`
	SinceMS int64  `json:"since_ms"` // milliseconds for which it has been suspect, or else in the phase
	LeaseMS int64  `json:"lease_ms"` // milliseconds that the lease remains valid
	Next    string `json:"next,omitempty"`
	NextMS  int64  `json:"next_ms,omitempty"` // milliseconds until Next
	Renamed bool   `json:"renamed,omitempty"` // the server rejects flush_all, so its keys have other names now
}

// States of a server.
const (
	Up      = "up"
	Unknown = "unknown" // the server has neither replied nor failed yet
	Down    = "down"
	Drained = "drained" // by an operator
)

// Address returns a server's address as the configuration file spells it.
func Address(t table.Target) string {
	if t.Network == "tcp" {
		return t.Address
	}
	return t.Network + ":" + t.Address
}

// ListenerAddress returns a listener's address as the configuration file spells it,
// without the address family.
func ListenerAddress(network, at string) string {
	if network == "unix" {
		return "unix:" + at
	}
	return at
}

// States returns the state of all servers of the table in force, from a snapshot of the
// counters of p.
func States(p *proxy.Proxy, sum *stats.Snapshot) []ServerState {
	now, t := time.Now(), p.Table()
	list := []ServerState{}
	for _, pool := range t.Pools {
		for _, t := range pool.Servers {
			is := ServerState{Pool: pool.Name, Server: t.Name, Address: Address(t), Weight: t.Weight, State: Unknown, Since: p.Started}
			if seen := sum.Servers[t.Network+" "+t.Address]; seen != nil {
				is.Since = now.Add(-time.Duration(seen.Age))
				is.LoopsDown, is.Version, is.Waiting = seen.Down, seen.Version, seen.Waiting
				if seen.Known {
					is.State = Up
				}
				if seen.Down > 0 {
					is.State, is.Why = Down, seen.Why
				}
			}
			if o := p.OverrideOf(pool.Name, t.Name); o.Override != health.Restore {
				is.Order, is.Since = o.Override.String(), o.Since
				is.State, is.Why = Drained, describeOverride(is.Order)
				if o.Override == health.Down {
					is.State = Down
				}
			}
			if m := sum.Phase(pool.Name, t.Name); m != nil {
				is.keeperSays(m, now)
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

// addReplicas sets Replicas for all servers of t, in their order. Another instance may know
// that a server is being filled although this one does not, because this one was
// started later.
func addReplicas(list []ServerState, t *table.Table, filling, others func(*ServerState) bool) {
	lacking := map[string][]*ServerState{}
	for i := range list {
		if is := &list[i]; is.State != Up || filling(is) || others(is) {
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
	}
}

// mostReasons is the maximum number of servers per pool that are named because they
// lack replicas.
const mostReasons = 4

// lack describes why the replicas on this server do not count. elsewhere means that it
// belongs to another pool.
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

// keeperSays sets the fields that come from the pool's keeper.
func (is *ServerState) keeperSays(m *stats.PhaseSnapshot, now time.Time) {
	is.Failover = &Failover{
		Phase: m.Phase.String(), Outages: m.Outages(), Suspect: m.Suspect, Why: m.Why, SinceMS: m.Since.Milliseconds(),
		LeaseMS: m.Lease.Milliseconds(), Next: m.Step, NextMS: m.Due.Milliseconds(), Renamed: m.Renamed,
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
		if m.Suspect && m.Override == health.Drain { // down makes it suspect whether it replies or not
			is.Why += alsoSuspect + m.Why
		}
	}
}

// alsoSuspect separates an operator's override from the reason for which the server
// would be ejected without it.
const alsoSuspect = ", and suspect: "

// describeOverride describes an operator's override.
func describeOverride(order string) string {
	if order == health.Down.String() {
		return "taken down by an operator"
	}
	return "drained by an operator"
}
