package stats

// The decisions of the keepers, for operators.

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
	Gutter   bool // the server belongs to the pool's gutter, not to the pool
	Phase    health.Phase
	Number   uint32 // grows by one with each phase; Phase is Number mod 6
	Suspect  bool
	Why      string // reason of the suspicion; if there is none, reason of the phase
	Override health.Override
	Renamed  bool          // the server refused flush_all, so its keys have other names now
	Since    time.Duration // how long the server has been suspect, or in the phase if it is not suspect
	InPhase  time.Duration // how long the server has been in the phase, suspect or not
	Lease    time.Duration // time left of the lease; negative: it has expired
	ValidFor time.Duration // how long the server's replies can still be trusted; unlimited without strict consistency
	Step     string        // what happens next, for operators
	Due      time.Duration // time until Step happens; 0: it depends on other instances or servers
}

// PhaseEvents counts one kind of keeper decision.
type PhaseEvents struct {
	Pool   string
	Server string // empty: the decision is about the pool
	To     string // the new state: up, suspect, a phase, or a state of the pool
	Count  uint64
}

// Roll lists the instances that serve a pool.
type Roll struct {
	Pool string
	health.Roll
}

// Phase finds a server of a pool. It returns nil if the pool has no keeper.
func (s *Snapshot) Phase(pool, server string) *PhaseSnapshot {
	for i := range s.Phases {
		if m := &s.Phases[i]; m.Pool == pool && m.Target.Name == server {
			return m
		}
	}
	return nil
}

// Outages returns how often the server was ejected, including the current outage.
func (m *PhaseSnapshot) Outages() uint32 { return health.Outages(m.Number) }

// State returns one word for how the pool uses the server: up, suspect, or its phase.
func (m *PhaseSnapshot) State() string {
	switch {
	case m.Phase != health.In:
		return m.Phase.String()
	case m.Suspect:
		return "suspect"
	}
	return "up"
}

// Report appends the server's state as lines of stats servers.
func (m *PhaseSnapshot) Report(r *Report) {
	of := ":" + m.Pool
	r.Text("phase"+of, m.Phase.String())
	r.Int("outages"+of, int(m.Outages()))
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
