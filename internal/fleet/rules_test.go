package fleet

// The rules of package health that hold at every step. The replies to clients can't show each
// violation of them.

import (
	"bytes"
	"slices"
	"time"

	"ringside/proxy/ablation"
	"ringside/proxy/health"
	"ringside/proxy/stats"
)

// lease is the duration of a lease in all fleets.
const lease = time.Second

// ping is the beginning of a keeper's ping.
const ping = "mg " + viewKey + " "

// steadily reports whether the rules can be checked: all keepers have the same list of servers.
func (f *fleet) steadily() bool {
	return f.edition == 0 && f.features == nil && !f.beside && !f.others && f.spare == 0
}

// decides checks what the keeper of s has decided since `before`: no phase number decreases, and
// each server goes from phase to phase in the allowed order.
func (f *fleet) decides(s *sidecar, before []stats.PhaseSnapshot) {
	if !f.steadily() {
		return
	}
	if f.top == nil {
		f.top = make([]uint32, len(f.nodes))
	}
	for i, m := range s.members {
		if before != nil && m.Number < before[i].Number {
			f.wrong("", "p%d lowers the phase number of s%d from %d to %d", s.id, i, before[i].Number, m.Number)
		}
		top := f.top[i]
		if m.Number <= top {
			continue
		}
		leaves := m.Phase == health.Leaving && m.Number < top+6 && health.PhaseOf(top) != health.Leaving && health.PhaseOf(top) != health.Out
		if m.Number != top+1 && !leaves && f.ablate.Set == (ablation.Set{}) {
			f.wrong("", "p%d takes s%d from %d (%v) to %d (%v)", s.id, i, top, health.PhaseOf(top), m.Number, m.Phase)
		}
		f.top[i] = m.Number
	}
}

// usable is until when a proxy may use a server, by its own clock, and the state of that server.
type usable struct {
	stats.PhaseSnapshot
	until int64
}

// uses returns what s may use. In a strict pool, it checks the leases that this requires.
func (s *sidecar) uses() (all []usable) {
	f := s.f
	for _, d := range s.drivers {
		for _, m := range d.e.Keepers.Phases(nil) {
			all = append(all, usable{m, d.e.Now + int64(m.ValidFor)})
		}
	}
	if !f.strict || f.unlike {
		return all
	}
	leases := make([]int64, len(f.nodes))
	for i := range leases {
		if at := s.pinged[i]; at != 0 {
			leases[i] = at + int64(lease)
		}
	}
	most := slices.Sorted(slices.Values(leases))
	for i, u := range all {
		until := min(leases[i], most[len(most)-len(most)/2-1])
		if len(all) == 2 && all[1-i].Phase == health.Out {
			until = leases[i]
		}
		if u.until > max(until, s.clock(f.now)) {
			f.wrong("", "p%d uses s%d until %d, and its leases end at %d", s.id, i, u.until, until)
		}
	}
	return all
}

// hears records that a ping has returned a record.
func (s *sidecar) hears(n *node, pinged int64) {
	if pinged > s.pinged[n.id] {
		s.pinged[n.id] = pinged
		s.records++
	}
}

// leased checks the leases of s after every few pings.
func (s *sidecar) leased() {
	if s.records > 3 && s.f.steadily() {
		s.records = 0
		s.uses()
	}
}

// empties checks that no proxy of a strict pool reads from a server that a keeper flushes. A late
// flush only costs misses, and can't be prevented.
func (f *fleet) empties(n *node, c *pipe) {
	if !f.steadily() || !f.strict || f.ablate.Set != (ablation.Set{}) || c.over || f.now > c.asked+int64(f.request) || f.now < f.flushing {
		return
	}
	for _, s := range f.sidecars {
		if s.dead {
			continue
		}
		m := s.uses()[n.id]
		reads := m.Phase == health.In || m.Phase == health.Warming || m.Phase == health.Settling
		if reads && !m.Suspect && s.clock(f.now) < m.until {
			f.wrong("", "s%d is flushed while p%d reads from it (%v)", n.id, s.id, m.Phase)
		}
	}
}

// pingsIn returns how many pings are in b.
func pingsIn(b []byte) int { return bytes.Count(b, []byte(ping)) }
