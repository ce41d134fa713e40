package live

// This file keeps what new watchers get of the past.

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"ringside/proxy/table"
)

// Limits of a history.
const (
	historyGap   = 5 * time.Second  // length of a moment that is kept
	historySpan  = 15 * time.Minute // moments that are older are dropped
	ratesSpan    = 3 * time.Minute  // time for which the request rates of single servers are kept
	historyBytes = 1 << 20          // maximum size of a history
	momentBytes  = 128              // size of a moment without its lists, including the allocator's rounding
)

// history contains what happened since the start of the sampler, but at most for historySpan. The
// moments follow each other without a gap. So a moment is also complete if there was a watcher,
// and the samples were closer together.
type history struct {
	end   *Sample // sample at the end of the newest moment; nil: there is no sample yet
	list  []pastMoment
	ticks []*Tick      // last tick of each pool, in the order of the pools of table
	table *table.Table // table of ticks
}

// pastMoment is a Moment that is kept.
type pastMoment struct {
	at    time.Time
	json  []byte      // the Moment as JSON
	rates [][]float32 // requests per second to the servers of each pool, in the order of the history's table; nil: not kept
}

// due reports whether a moment that ends at the sample now has to be kept.
func (h *history) due(now *Sample) bool { return now.At.Sub(h.end.At) >= historyGap-Every/2 }

// begin starts the first moment at the sample now.
func (h *history) begin(now *Sample) { h.end = now }

// show replaces the last ticks. After a reload, the rates of the servers before it are dropped.
func (h *history) show(ticks []*Tick, t *table.Table) {
	if h.table != t {
		for i := range h.list {
			h.list[i].rates = nil
		}
	}
	h.ticks, h.table = ticks, t
}

// add ends a moment at the sample now. ticks describes that moment.
func (h *history) add(ticks []*Tick, now *Sample) error {
	h.end = now
	if len(ticks) == 0 {
		return nil
	}
	b, err := json.Marshal(ticks[0].Moment)
	if err != nil {
		return err
	}
	m := pastMoment{at: now.At, json: b}
	for _, t := range ticks {
		rates := make([]float32, len(t.S.Rate))
		for i, v := range t.S.Rate {
			rates[i] = float32(v)
		}
		m.rates = append(m.rates, rates)
	}
	h.list = append(h.list, m)
	h.limit(now.At)
	return nil
}

// limit drops what is too old, and the oldest parts of what is too large.
func (h *history) limit(now time.Time) {
	old := func(m pastMoment) bool { return now.Sub(m.at) > historySpan }
	h.list = slices.DeleteFunc(h.list, old)
	size := 0
	for i := len(h.list) - 1; i >= 0; i-- {
		m := &h.list[i]
		if now.Sub(m.at) > ratesSpan || size+m.size() > historyBytes/2 {
			m.rates = nil
		}
		if size += m.size(); size > historyBytes {
			h.list = slices.Delete(h.list, 0, i+1)
			return
		}
	}
}

// size returns how much memory m needs, in bytes.
func (m *pastMoment) size() int {
	n := momentBytes + len(m.json)
	for _, rates := range m.rates {
		n += 64 + 4*len(rates)
	}
	return n
}

// events returns the moments and the last tick as events of a stream, for a watcher of one pool.
func (h *history) events(pool string) (list [][]byte, err error) {
	at := -1
	if h.table != nil {
		at = slices.IndexFunc(h.table.Pools, func(p *table.Pool) bool { return p.Name == pool })
	}
	for _, m := range h.list {
		rates := []byte("null")
		if at >= 0 && at < len(m.rates) {
			if rates, err = json.Marshal(m.rates[at]); err != nil {
				return nil, err
			}
		}
		list = append(list, fmt.Appendf(nil, `["past",{"moment":%s,"rates":%s}]`, m.json, rates))
	}
	if at >= 0 {
		b, err := json.Marshal(h.ticks[at])
		if err != nil {
			return nil, err
		}
		list = append(list, fmt.Appendf(nil, `["tick",%s]`, b))
	}
	return list, nil
}

// Past is an event of the past that a new watcher gets, before the first tick.
type Past struct {
	Moment Moment    `json:"moment"`
	Rates  []float64 `json:"rates"` // requests per second to each server of the watched pool, in the order of the table; null: not kept
}
