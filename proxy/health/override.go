package health

// This file defines the overrides: the orders of an operator about one server.

import "fmt"

// Override is an operator's setting for one server of one pool. A keeper publishes it
// to all proxies in the view record. In a pool without a keeper it applies to this
// process only.
type Override uint8

// The overrides. View records contain these numbers, so they must not change.
const (
	Restore Override = iota // no override: the server serves its keys if it replies
	Drain                   // the server gets no new requests, and requests in flight finish; a keeper ejects the server phase by phase
	Down                    // the server gets no requests from now on; requests in flight fail, and its connections close except for late deletes
	overrideKinds
)

// String returns the name of the override on the command line and in metrics.
func (o Override) String() string {
	return [...]string{"restore", "drain", "down", "?"}[min(o, overrideKinds)]
}

// Refusal returns the error line for requests to a server with this override, in a pool
// without a keeper.
func (o Override) Refusal(server string) string {
	how := "drained"
	if o == Down {
		how = "taken down"
	}
	return fmt.Sprintf("server %s is %s by an operator: ringside server restore %s", server, how, server)
}

// order is an operator's override that this proxy has received, until most view servers have it. Before that, view
// records may contain an earlier override with a higher number, which this proxy does not know: it has just started,
// a reload has just created its keeper, or another proxy has just received that override.
type order struct {
	is    Override
	at    int64  // when this proxy received the override
	lacks []bool // the view servers whose records have not contained the override since then; nil: no order is pending
}

// order publishes the entry e of server i, which contains the override o. The order is then pending.
func (k *Keeper) order(i int, o Override, e entry, now int64) {
	s := &k.servers[i]
	s.order = order{is: o, at: now, lacks: make([]bool, len(k.servers))}
	for j := range s.order.lacks {
		s.order.lacks[j] = true
	}
	k.publish(i, e, "by an operator", now)
}

// obey returns m, what this proxy knows about a server after it has read the view record on server i, with the pending
// order o. An override that differs is an earlier one if the record has not contained the order before.
func (o *order) obey(i int, m entry) entry {
	if o.lacks == nil || m.override() == o.is {
		return m
	}
	if o.lacks[i] {
		return m.overridden(o.is)
	}
	o.lacks = nil
	return m
}

// endOrders ends the pending orders that most view servers have. It is called when this proxy has read or written the view
// record on server i, with a request that it sent at the given time.
func (k *Keeper) endOrders(i int, sent int64) {
	for j := range k.servers {
		s := &k.servers[j]
		if o := &s.order; o.lacks != nil && sent >= o.at && k.servers[i].record.entries[j].overrides == s.overrides {
			o.lacks[i] = false
			has := 0
			for _, lacks := range o.lacks {
				if !lacks {
					has++
				}
			}
			if has >= k.majority() {
				o.lacks = nil
			}
		}
	}
}

// TakeOrders copies the pending orders of the keeper that k replaces after a reload. The view records may not contain them.
func (k *Keeper) TakeOrders(former *Keeper, now int64) {
	for j, m := range former.members {
		o := &former.servers[j].order
		i, ok := k.index[m.Name]
		if o.lacks == nil || !ok || k.servers[i].order.lacks != nil {
			continue
		}
		s := &k.servers[i]
		if s.down = o.is == Down; s.down {
			k.markSuspect(i, "by an operator", now)
		}
		k.order(i, o.is, s.overridden(o.is), now)
	}
}
