package live

// This file reports the most requested keys and prefixes.

import (
	"math"

	"ringside/proxy/table"
	"ringside/proxy/watch"
)

// mostHot is the maximum number of keys, and of prefixes, in a report of hot keys.
const mostHot = 20

// Hot contains the most requested keys and prefixes of the last seconds. Rates are per second.
type Hot struct {
	Window   float64  `json:"win"`    // length of the counted time, in seconds
	OneIn    float64  `json:"one_in"` // on average, one of this many requests was sampled
	Rate     float64  `json:"rps"`    // requests per second for all keys of the proxy; each key of a multi-get counts as a request
	Keys     []HotKey `json:"keys"`
	Prefixes []HotKey `json:"prefixes"`
}

// HotKey is a hot key, or a hot prefix. A prefix is the part of a key up to its first colon.
type HotKey struct {
	Key        []byte   `json:"key"`                  // the key or prefix; an empty prefix means all keys without a colon
	Rate       float64  `json:"rps"`                  // requests per second
	Off        float64  `json:"off"`                  // maximum error of Rate, upwards and downwards
	Share      float64  `json:"share"`                // fraction of the requests for all keys of the proxy, 0 to 1
	Hit        *float64 `json:"hit"`                  // fraction of the reads that hit, 0 to 1; null: there were no reads
	Bytes      float64  `json:"bps"`                  // bytes per second of values that were read and of write requests
	Server     *int     `json:"server"`               // index of the key's server in the pool; null: it has none, or this is a prefix
	Replicas   int      `json:"replicas"`             // number of replicas of the key
	Substitute *int     `json:"substitute,omitempty"` // index of the substitute server that has the key if Server is out; null: none in this pool
}

// hotOf converts a report of hot keys for the dashboard: the keys that belong to the pool, and all
// prefixes.
func hotOf(r *watch.Report, t *table.Table, pool *table.Pool) *Hot {
	is := &Hot{Keys: []HotKey{}, Prefixes: []HotKey{}}
	if r.Requests == 0 {
		return is
	}
	span := max(r.Span, 1)
	is.Window, is.OneIn, is.Rate = round(span), max(1, math.Round(r.Requests/r.Looks)), round(r.Requests/span)
	told := func(row *watch.Row) HotKey {
		k := HotKey{Key: []byte(row.Key), Rate: round(row.Likely() / span), Off: round(row.MoreOrLess() / span),
			Share: min(row.Likely()/r.Requests, 1), Bytes: math.Round(row.Bytes / span)}
		if row.Reads > 0 {
			k.Hit = new(row.Hits / row.Reads)
		}
		return k
	}
	for i := range r.Keys {
		if len(is.Keys) == mostHot {
			break
		}
		if plan := planIn(t, pool, []byte(r.Keys[i].Key)); plan != nil {
			k := told(&r.Keys[i])
			k.Replicas = max(1, len(plan.Copies))
			if plan.Owner >= 0 {
				k.Server = &plan.Owner
			}
			if len(plan.Substitutes) > 0 && plan.Substitutes[0].Pool == pool {
				k.Substitute = &plan.Substitutes[0].Server
			}
			is.Keys = append(is.Keys, k)
		}
	}
	for i := range r.Prefixes[:min(len(r.Prefixes), mostHot)] {
		is.Prefixes = append(is.Prefixes, told(&r.Prefixes[i]))
	}
	return is
}

// planIn returns where the key is stored, for the first listener that routes the key to the pool.
// It returns nil if there is no such listener.
func planIn(t *table.Table, pool *table.Pool, key []byte) *table.Plan {
	for i := range t.Listeners {
		if p := t.Listeners[i].Plan(key); p.Pool == pool {
			return &p
		}
	}
	return nil
}
