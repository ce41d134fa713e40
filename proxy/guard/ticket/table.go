package ticket

// All tickets of a loop.

import (
	"slices"
	"time"

	"ringside/proxy/guard/item"
	"ringside/proxy/stats"
)

// Table has the tickets of one loop.
type Table struct {
	keys           map[string]*key
	holders        map[uint64][]*Ticket // by client
	oldest, newest *Ticket
	count          int
	aging          []*Ticket // wins, oldest first, that have not come to an end
}

// key is a key with tickets.
type key struct {
	name    string
	tickets []*Ticket // oldest first
}

// NewTable is a table without tickets.
func NewTable() *Table {
	return &Table{keys: map[string]*key{}, holders: map[uint64][]*Ticket{}}
}

// Grant adds a ticket of a key; pooled: the set may come on another connection. Of so many
// tickets it forgets the oldest.
func (t *Table) Grant(tk Ticket, name string, pooled bool, now int64, most int) {
	if k := t.keys[name]; k != nil {
		for _, old := range slices.Clone(k.tickets) {
			if !pooled && old.Holder == tk.Holder || pooled && now-old.At > int64(tk.Route.LeaseMax) {
				t.drop(old)
			}
		}
	}
	k := t.keys[name]
	if k == nil {
		k = &key{name: name}
		t.keys[name] = k
	}
	made := &tk
	made.key = k
	k.tickets = append(k.tickets, made)
	t.holders[tk.Holder.ID] = append(t.holders[tk.Holder.ID], made)
	if made.older = t.newest; made.older != nil {
		made.older.next = made
	} else {
		t.oldest = made
	}
	t.newest = made
	if t.age(now); made.Win {
		t.aging = append(t.aging, made)
	}
	t.count++
	made.Route.Learned.Tickets.Add(1)
	for t.count > most {
		t.oldest.Route.Learned.Count(stats.GuardForgotten)
		t.drop(t.oldest)
	}
}

// drop takes a ticket away, whose win was not filled.
func (t *Table) drop(tk *Ticket) {
	t.Take(tk)
	tk.Ended(false)
}

// Take takes a ticket whose set has come.
func (t *Table) Take(tk *Ticket) {
	same := func(o *Ticket) bool { return o == tk }
	if tk.key.tickets = slices.DeleteFunc(tk.key.tickets, same); len(tk.key.tickets) == 0 {
		delete(t.keys, tk.key.name)
	}
	if rest := slices.DeleteFunc(t.holders[tk.Holder.ID], same); len(rest) > 0 {
		t.holders[tk.Holder.ID] = rest
	} else {
		delete(t.holders, tk.Holder.ID)
	}
	if tk.older != nil {
		tk.older.next = tk.next
	} else {
		t.oldest = tk.next
	}
	if tk.next != nil {
		tk.next.older = tk.older
	} else {
		t.newest = tk.older
	}
	t.count--
	tk.Route.Learned.Tickets.Add(-1)
}

// age counts the wins that were not filled within a lease as not filled.
func (t *Table) age(now int64) {
	for len(t.aging) > 0 {
		tk := t.aging[0]
		if !tk.counted && now-tk.At < int64(time.Second)*item.Lease(tk.Route) {
			return
		}
		tk.Ended(false)
		t.aging[0] = nil
		t.aging = t.aging[1:]
	}
}

// Of is the ticket for a key that a client holds; nil: it has none.
func (t *Table) Of(name string, h *Holder) *Ticket {
	if k := t.keys[name]; k != nil {
		for i := len(k.tickets) - 1; i >= 0; i-- {
			if k.tickets[i].Holder == h {
				return k.tickets[i]
			}
		}
	}
	return nil
}

// Rebuilding says that one who was told to rebuild a key may still do it.
func (t *Table) Rebuilding(name string, now int64) bool {
	t.age(now)
	k := t.keys[name]
	return k != nil && slices.ContainsFunc(k.tickets, func(tk *Ticket) bool { return tk.Win && !tk.counted })
}

// Owed are the tickets for a key, none older than that, whose sets may come on any
// connection.
func (t *Table) Owed(name string, now int64, most time.Duration) (list []*Ticket) {
	if k := t.keys[name]; k != nil {
		for _, tk := range k.tickets {
			if !tk.Doubtful && now-tk.At < int64(most) {
				list = append(list, tk)
			}
		}
	}
	return list
}

// Leave drops the tickets of a client that is gone, and returns them.
func (t *Table) Leave(h *Holder) []*Ticket {
	list := slices.Clone(t.holders[h.ID])
	for _, tk := range list {
		t.drop(tk)
	}
	return list
}
