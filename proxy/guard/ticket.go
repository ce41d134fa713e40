package guard

// Tickets: what clients that were told a miss are bound to.

import (
	"slices"
	"time"

	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/tags/stamp"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
)

// ticket is a miss of which the set is awaited. That set is stored only if nothing
// has touched the key since: its item has the ticket's cas still.
type ticket struct {
	key   *key
	hash  uint64
	party *party
	spot
	cas string
	via upstream.Via // of the cas
	tagsRead
	at   int64 // when the miss was asked for
	win  bool  // it is this client that rebuilds
	stub bool  // of what no value is left
	void bool  // nothing is known of the item: its set is not stored

	// Of a pooled client: another one's set may have used it up, or not. A set of its
	// own connection goes out with it all the same.
	doubtful bool

	counted     bool  // what has come of its win is counted
	route       *rule // that it came to be by
	older, next *ticket
}

// tagsRead is what was known at a miss of the key's tags. What is stored can't be
// newer.
type tagsRead struct {
	known stamp.Known // versions
	first string      // the cas, whatever it has followed to since
}

// spot is where a key is, in which of its server's lives.
type spot struct {
	srv  *upstream.Server
	name string // there
	gen  uint64 // changes with the phases
}

// here is where l's key is served now.
func (l *rule) here(t *task.Task) spot {
	s := spot{srv: l.server(t), name: string(l.name)}
	if l.View != nil {
		s.gen = uint64(l.View.N(l.Owner))<<32 | uint64(l.View.N(l.Place(l.at).Server))
	}
	return s
}

// grant gives t's client a ticket.
func (g *Guard) grant(t *task.Task, l *rule, tk ticket) {
	if l.Hide || l.party == nil {
		return
	}
	tk.party, tk.route = l.party, l
	if tk.first = tk.cas; l.tags != nil && l.tags.via.Same(tk.via) {
		tk.known = slices.Clone(l.tags.known)
	}
	if !tk.void {
		tk.spot = l.here(t)
	}
	if tk.cas == "" || tk.cas == "0" {
		tk.void = true
	}
	if tk.at == 0 {
		tk.at = g.Now
	}
	if l.party.gone.Load() {
		g.giveBack(&tk)
		return
	}
	for _, old := range slices.Clone(g.key(t).tickets) {
		if pooled := l.pooled(); !pooled && old.party == l.party || pooled && g.Now-old.at > int64(l.LeaseMax) {
			g.drop(old)
		}
	}
	k := g.key(t) // another one, if that was all that was known of it
	tk.key, tk.hash = k, t.Hash
	made := &tk
	k.tickets = append(k.tickets, made)
	g.holders[tk.party.id] = append(g.holders[tk.party.id], made)
	if made.older = g.newest; made.older != nil {
		made.older.next = made
	} else {
		g.oldest = made
	}
	g.newest = made
	if g.age(); made.win {
		g.aging = append(g.aging, made)
	}
	g.tickets++
	l.Learned.Tickets.Add(1)
	loops, _ := g.Loops.Count(g.Tasks)
	for most := max(g.Clients.Limits.Tickets/max(loops, 1), 1); g.tickets > most; {
		g.oldest.route.Learned.Count(stats.GuardForgotten)
		g.drop(g.oldest)
	}
}

// drop takes a ticket away.
func (g *Guard) drop(tk *ticket) {
	same := func(o *ticket) bool { return o == tk }
	tk.key.tickets = slices.DeleteFunc(tk.key.tickets, same)
	g.forget(tk.key)
	if rest := slices.DeleteFunc(g.holders[tk.party.id], same); len(rest) > 0 {
		g.holders[tk.party.id] = rest
	} else {
		delete(g.holders, tk.party.id)
	}
	if tk.older != nil {
		tk.older.next = tk.next
	} else {
		g.oldest = tk.next
	}
	if tk.next != nil {
		tk.next.older = tk.older
	} else {
		g.newest = tk.older
	}
	g.tickets--
	tk.route.Learned.Tickets.Add(-1)
	tk.ended(false)
}

// ended counts, once, what has come of a win.
func (tk *ticket) ended(filled bool) {
	if tk.win && !tk.counted {
		tk.counted = true
		tk.route.Learned.Ended(filled)
	}
}

// age counts the wins that were not filled within a lease as not filled.
func (g *Guard) age() {
	for len(g.aging) > 0 {
		tk := g.aging[0]
		if !tk.counted && g.Now-tk.at < int64(time.Second)*lease(tk.route.Guard) {
			return
		}
		tk.ended(false)
		g.aging[0] = nil
		g.aging = g.aging[1:]
	}
}

// ownTicket is the one that t's connection holds for its key.
func (g *Guard) ownTicket(t *task.Task, l *rule) *ticket {
	if k := g.keys[nameOf(t)]; k != nil {
		return k.of(l.party)
	}
	return nil
}

// of is the ticket of k that p's connection holds.
func (k *key) of(p *party) *ticket {
	for i := len(k.tickets) - 1; i >= 0; i-- {
		if k.tickets[i].party == p {
			return k.tickets[i]
		}
	}
	return nil
}

// owed are the tickets of k whose sets may come on any connection.
func (k *key) owed(now int64, most time.Duration) (list []*ticket) {
	for _, tk := range k.tickets {
		if !tk.doubtful && now-tk.at < int64(most) {
			list = append(list, tk)
		}
	}
	return list
}

// good says that a set with tk on c meets the item of its cas, or none.
func (tk *ticket) good(here spot, c *upstream.Conn) bool {
	return !tk.void && tk.spot == here && c != nil && c.Reaches(tk.via)
}

// sameTags says that two misses knew the same of the key's tags: what is stored by
// either may be stored by both.
func (tk *ticket) sameTags(o *ticket) bool {
	return tk.first == o.first && slices.Equal(tk.known, o.known)
}

// leave forgets a client that is gone, and gives back what it was to rebuild.
func (g *Guard) leave(p *party) {
	g.hurry(p)
	for _, tk := range slices.Clone(g.holders[p.id]) {
		g.drop(tk)
		if !p.shared.Load() && tk.route.Clients != table.Pooled && !tk.doubtful {
			g.giveBack(tk)
		}
	}
}

// giveBack lets another client rebuild at once. Only a winner has something to
// give back: a ticket for what another rebuilds is not.
func (g *Guard) giveBack(tk *ticket) {
	if !tk.win || tk.void {
		return
	}
	tk.route.Learned.Count(stats.GuardGivenBack)
	g.strike(tk.hash, -1, tk.route)
	tk.route.rearmAt(tk.spot, tk.cas, tk.via, tk.stub)
}
