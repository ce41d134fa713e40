package live

// The keys and prefixes that are asked for most.

import (
	"math"

	"ringside/proxy/table"
	"ringside/proxy/watch"
)

// mostHot is how many keys and prefixes are told.
const mostHot = 20

// Hot is what was asked for most lately. Rates are per second.
type Hot struct {
	Off      bool     `json:"off"`    // it is not watched: admin.hot
	Window   float64  `json:"win"`    // seconds over which was counted
	OneIn    float64  `json:"one_in"` // of so many requests one was looked at
	Rate     float64  `json:"rps"`    // of all keys of the proxy, each key of a multi-get a request
	Keys     []HotKey `json:"keys"`
	Prefixes []HotKey `json:"prefixes"`
}

// HotKey is a key, or what keys begin with up to the first colon.
type HotKey struct {
	Key     []byte   `json:"key"`             // empty of a prefix: keys without a colon
	Rate    float64  `json:"rps"`             // asked for
	Off     float64  `json:"off"`             // by how much Rate may be off
	Share   float64  `json:"share"`           // of Hot.Rate, 0 to 1
	Hit     *float64 `json:"hit"`             // part of the reads, 0 to 1; null without any
	Bytes   float64  `json:"bps"`             // of values that were read, and of requests that wrote
	Server  *int     `json:"server"`          // of the pool, that owns the key; null: nobody, and of prefixes
	Copies  int      `json:"copies"`          // how many servers keep it
	StandIn *int     `json:"stand,omitempty"` // of the pool, that takes its place when it is out
}

// HotOf tells what a report says of the keys that go to a pool, and of all prefixes.
func HotOf(r *watch.Report, t *table.Table, pool *table.Pool) *Hot {
	is := &Hot{Off: t.NoHotKeys, Keys: []HotKey{}, Prefixes: []HotKey{}}
	if r.Requests == 0 {
		return is
	}
	span := max(r.Span, 1)
	is.Window, is.OneIn, is.Rate = round(span), max(1, math.Round(r.Requests/r.Looks)), round(r.Requests/span)
	told := func(row *watch.Row) HotKey {
		k := HotKey{Key: []byte(row.Key), Rate: round(row.Likely() / span), Off: round(row.MoreOrLess() / span),
			Share: min(row.Likely()/r.Requests, 1), Bytes: math.Round(row.Bytes / span)}
		if row.Reads > 0 {
			hit := row.Hits / row.Reads
			k.Hit = &hit
		}
		return k
	}
	for i := range r.Keys {
		if len(is.Keys) == mostHot {
			break
		}
		if plan := planIn(t, pool, []byte(r.Keys[i].Key)); plan != nil {
			k := told(&r.Keys[i])
			k.Copies = max(1, len(plan.Copies))
			if plan.Owner >= 0 {
				k.Server = &plan.Owner
			}
			if len(plan.Interim) > 0 && plan.Interim[0].Pool == pool {
				k.StandIn = &plan.Interim[0].Server
			}
			is.Keys = append(is.Keys, k)
		}
	}
	for i := range r.Prefixes[:min(len(r.Prefixes), mostHot)] {
		is.Prefixes = append(is.Prefixes, told(&r.Prefixes[i]))
	}
	return is
}

// planIn says where a key goes on the first listener that leads it to pool; nil: none
// does.
func planIn(t *table.Table, pool *table.Pool, key []byte) *table.Plan {
	for i := range t.Listeners {
		if p := t.Listeners[i].Plan(key); p.Pool == pool {
			return &p
		}
	}
	return nil
}
