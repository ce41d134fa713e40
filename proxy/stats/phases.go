package stats

// This file describes the decisions of keepers, for operators.

import (
	"time"

	"ringside/proxy/health"
	"ringside/proxy/table"
)

// PhaseSnapshot is the state of one server of a pool or of its gutter, as the pool's
// keeper sees it.
type PhaseSnapshot struct {
	Pool     string
	Target   table.Target
	Phase    health.Phase
	Number   uint32 // number of the phase, which grows by one with each phase; Phase is Number modulo 6
	Suspect  bool
	Why      string // why the server is suspect; if it is not suspect, why it is in its phase
	Override health.Override
	Renamed  bool          // true if the server has refused flush_all; its keys have other names now
	Since    time.Duration // how long the server has been suspect; if it is not suspect, how long it has been in its phase
	InPhase  time.Duration // how long the server has been in its phase, whether it is suspect or not
	Lease    time.Duration // how long the lease of the server is still valid; negative: it has expired
	ValidFor time.Duration // how long the replies of the server can still be trusted; without strict consistency: unlimited
	Step     string        // what the keeper does next with the server, in words, for operators
	Due      time.Duration // time until Step happens; 0: Step depends on other instances or servers, not on time
}

// PhaseEvents counts how often a keeper has made one kind of decision.
type PhaseEvents struct {
	Pool   string
	Server string // name of the server; empty: the decision is about the pool
	To     string // new state of the server or the pool: up, suspect, a phase, or a state of the pool
	Count  uint64
}

// Roll lists the instances that serve a pool.
type Roll struct {
	Pool string
	health.Roll
}

// Phase returns the state of one server of a pool. It returns nil if the pool has no keeper or no
// such server. Two servers can have the same name while the servers of the pool change: the address counts then.
func (s *Snapshot) Phase(pool string, server table.Target) (is *PhaseSnapshot) {
	for i := range s.Phases {
		if m := &s.Phases[i]; m.Pool == pool && m.Target.Name == server.Name {
			if is == nil || m.Target.SameAddress(server) {
				is = m
			}
		}
	}
	return is
}

// Outages returns how often the server was ejected, including the current outage.
func (m *PhaseSnapshot) Outages() uint32 { return health.Outages(m.Number) }

// State returns one word for how the pool uses the server: up, suspect, or the name of its phase.
func (m *PhaseSnapshot) State() string {
	switch {
	case m.Phase != health.In:
		return m.Phase.String()
	case m.Suspect:
		return "suspect"
	}
	return "up"
}

// Report appends lines about the server's phase to a reply to `stats servers`.
func (m *PhaseSnapshot) Report(r *Report) {
	of := ":" + m.Pool
	r.Text("phase"+of, m.Phase.String())
	r.Figures(m.Figures())
	if m.Suspect {
		r.Text("suspect"+of, "1")
	}
	if m.Why != "" {
		r.Text("why"+of, m.Why)
	}
	if m.Override != health.Restore {
		r.Text("order"+of, m.Override.String())
	}
	r.Int("since_ms"+of, int(m.Since.Milliseconds()))
	r.Int("lease_ms"+of, int(m.Lease.Milliseconds()))
	if m.Step != "" {
		r.Text("next"+of, m.Step)
	}
	if m.Due > 0 {
		r.Int("next_ms"+of, int(m.Due.Milliseconds()))
	}
}
