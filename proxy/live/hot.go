package live

// This file reports the most requested keys and prefixes.

import (
	"math"

	"ringside/proxy/table"
	"ringside/proxy/watch"
)

// mostHot is the maximum number of keys and prefixes in a report.
const mostHot = 20

// Hot contains the most requested keys of the last seconds. Rates are per second.
type Hot struct {
	Off      bool     `json:"off"`    // observation is disabled: admin.hot
	Window   float64  `json:"win"`    // seconds covered by the counts
	OneIn    float64  `json:"one_in"` // one request in this many was sampled
	Rate     float64  `json:"rps"`    // for all keys of the proxy; each key of a multi-get is a request
	Keys     []HotKey `json:"keys"`
	Prefixes []HotKey `json:"prefixes"`
}

// HotKey is a key, or a prefix of keys up to the first colon.
type HotKey struct {
	Key        []byte   `json:"key"`                  // empty for a prefix: keys without a colon
	Rate       float64  `json:"rps"`                  // requests
	Off        float64  `json:"off"`                  // maximum error of Rate
	Share      float64  `json:"share"`                // fraction of Hot.Rate, 0 to 1
	Hit        *float64 `json:"hit"`                  // hit rate of the reads, 0 to 1; null: no reads
	Bytes      float64  `json:"bps"`                  // bytes of values read and of write requests
	Server     *int     `json:"server"`               // index of the key's server in the pool; null: none, and for prefixes
	Replicas   int      `json:"replicas"`             // number of replicas
	Substitute *int     `json:"substitute,omitempty"` // index of the substitute server while Server is out; null: none in this pool
}

// hotOf converts a report: the keys that belong to a pool, and all prefixes.
func hotOf(r *watch.Report, t *table.Table, pool *table.Pool) *Hot {
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

// planIn returns the plan for a key on the first listener that routes it to pool, or nil
// if there is none.
func planIn(t *table.Table, pool *table.Pool, key []byte) *table.Plan {
	for i := range t.Listeners {
		if p := t.Listeners[i].Plan(key); p.Pool == pool {
			return &p
		}
	}
	return nil
}
