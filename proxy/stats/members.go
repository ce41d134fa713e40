package stats

// What the keepers have decided, for people.

import (
	"time"

	"ringside/proxy/health"
	"ringside/proxy/table"
)

// MemberSnapshot is one server of a pool, or of the pool's gutter, as the pool's
// keeper sees it.
type MemberSnapshot struct {
	Pool     string
	Target   table.Target
	Gutter   bool // it is a server of the pool's gutter, not of the pool
	Phase    health.Phase
	Number   uint32 // Phase is this modulo 6; it counts outages
	Suspect  bool
	Why      string // of the suspicion, else of the phase
	Override health.Override
	Renamed  bool          // it refused to be flushed: its keys have other names now
	Since    time.Duration // how long it has been suspect, else in the phase
	InPhase  time.Duration // how long it has been in the phase, suspect or not
	Lease    time.Duration // what is left of it; negative: it has run out
	ValidFor time.Duration // how long its answers count yet; without strict consistency for ever
	Step     string        // what happens next, for people
	Due      time.Duration // until then; 0: it depends on others
}

// MemberEvents is how often a keeper has decided one thing.
type MemberEvents struct {
	Pool   string
	Server string // empty: about the pool
	To     string // up, suspect, a phase, or what the pool is
	Count  uint64
}

// Roll is which Ringsides serve a pool.
type Roll struct {
	Pool string
	health.Roll
}

// Member finds a server of a pool among the members; nil if the pool has no
// keeper.
func (s *Snapshot) Member(pool, server string) *MemberSnapshot {
	for i := range s.Members {
		if m := &s.Members[i]; m.Pool == pool && m.Target.Name == server {
			return m
		}
	}
	return nil
}

// Outages is how often the member was taken out, the one that lasts included.
func (m *MemberSnapshot) Outages() uint32 { return health.Outages(m.Number) }

// State is a word for what the pool does with the keys of a member: up,
// suspect, or its phase.
func (m *MemberSnapshot) State() string {
	switch {
	case m.Phase != health.In:
		return m.Phase.String()
	case m.Suspect:
		return "suspect"
	}
	return "up"
}

// Report appends the lines of stats servers that say all this.
func (m *MemberSnapshot) Report(r *Report) {
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
