package guard

// Tickets: what clients that were told a miss are bound to.

import (
	"slices"

	"ringside/proxy/guard/ticket"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
)

// here is where l's key is served now.
func (l *rule) here(t *task.Task) ticket.Spot {
	if l.copies != nil {
		return l.copies.Spot(t.Route, t.Key)
	}
	s := ticket.Spot{Server: l.server(t), Name: string(l.name)}
	if l.View != nil {
		s.Gen = uint64(l.View.N(l.Owner))<<32 | uint64(l.View.N(l.Place(l.at).Server))
	}
	return s
}

func (g *Guard) grant(t *task.Task, l *rule, tk ticket.Ticket) {
	if l.Hide || l.party == nil {
		return
	}
	tk.Holder, tk.Route, tk.Hash = &l.party.Holder, l.Guard, t.Hash
	if tk.First = tk.Cas; l.tags != nil && l.tags.via.Same(tk.Via) {
		tk.Known = slices.Clone(l.tags.known)
	}
	if !tk.Void {
		tk.Spot = l.here(t)
	}
	if tk.Cas == "" || tk.Cas == "0" {
		tk.Void = true
	}
	if tk.At == 0 {
		tk.At = g.Now
	}
	if l.party.gone.Load() {
		g.giveBack(&tk)
		return
	}
	loops, _ := g.Loops.Count(g.Tasks)
	g.tickets.Grant(tk, nameOf(t), l.pooled(), g.Now, max(g.Clients.Limits.Tickets/max(loops, 1), 1))
}

// good says that a set with tk on c meets the item of its cas, or none.
func (g *Guard) good(tk *ticket.Ticket, here ticket.Spot, c *upstream.Conn) bool {
	if elsewhere := tk.Spot != here; g.Ablation.Phase && elsewhere || g.Ablation.Life && !elsewhere {
		return c != nil && !tk.Void
	}
	return tk.Good(here, c)
}

// ownTicket is the one that t's connection holds for its key.
func (g *Guard) ownTicket(t *task.Task, l *rule) *ticket.Ticket {
	return g.tickets.Of(nameOf(t), &l.party.Holder)
}

// leave forgets a client that is gone, and gives back what it was to rebuild.
func (g *Guard) leave(p *party) {
	g.endWaits(p)
	for _, tk := range g.tickets.Leave(&p.Holder) {
		if !p.Shared.Load() && tk.Route.Clients != table.Pooled && !tk.Doubtful {
			g.giveBack(tk)
		}
	}
}

// giveBack lets another client rebuild at once. Only a winner has something to
// give back: a ticket for what another rebuilds is not.
func (g *Guard) giveBack(tk *ticket.Ticket) {
	if !tk.Win && !g.Ablation.GiveBack || tk.Void {
		return
	}
	tk.Route.Learned.Count(stats.GuardGivenBack)
	if tk.Strike {
		g.barren.Strike(tk.Hash, -1, tk.Route, g.Now)
	}
	g.giveBackAt(tk.Spot, tk.Cas, tk.Via, tk.Stub)
}
