package live

// This file computes the state of all pools together. The dashboard, ringside top with its exit
// status, and ringside server list show its results.

import (
	"fmt"
	"slices"

	"ringside/proxy/table"
)

// Overall is the state of all pools together.
type Overall struct {
	Health  Health       `json:"health"`  // health of the pool in the worst state; if there are several pools, the title has its name
	Worst   string       `json:"worst"`   // name of the pool in the worst state; the first pool if all are equally healthy
	Pools   []PoolHealth `json:"pools"`   // state of each pool, in the order of the configuration
	Resizes []Resize     `json:"resizes"` // changes of the servers of pools that have not ended, in the same order
}

// PoolHealth is the state of one pool.
type PoolHealth struct {
	Pool  string `json:"pool"`
	Level string `json:"level"`
	Title string `json:"title"`
}

// Severities of the state of a pool, the least severe first. keysMoved is less severe than
// keysFail: after a server is out, other servers have its keys, while the keys of a suspect server
// fail.
const (
	healthy = iota
	warned
	keysMoved
	keysFail
)

// severity returns how severe the health h of a pool is. c has the states of its servers.
func severity(h *Health, c *Columns) int {
	switch {
	case h.Level == Good:
		return healthy
	case h.Level == Warn:
		return warned
	}
	away := false
	for i, s := range c.State {
		if StateOf(s).Away && !c.byOperator(i) {
			if s != "out" {
				return keysFail
			}
			away = true
		}
	}
	if !away { // the pool as a whole is not served
		return keysFail
	}
	return keysMoved
}

// mostAlso is the maximum number of unhealthy pools that the text names in addition to the worst
// pool.
const mostAlso = 3

// overall combines the health of all pools. ticks has the states of each pool's servers, and list
// has the health of each pool. Both have the order of pools.
func overall(pools []*table.Pool, ticks []*Tick, list []Health) Overall {
	is := Overall{Pools: make([]PoolHealth, len(pools))}
	worst, worstSeverity := 0, healthy
	for i, h := range list {
		is.Pools[i] = PoolHealth{pools[i].Name, h.Level, h.Title}
		if s := severity(&h, &ticks[i].S); s > worstSeverity {
			worst, worstSeverity = i, s
		}
	}
	if len(pools) == 0 {
		is.Health = Health{Bad, "There is no pool", "Nothing can be stored."}
		return is
	}
	is.Worst, is.Health = pools[worst].Name, list[worst]
	if len(pools) == 1 {
		return is
	}
	if worstSeverity == healthy {
		is.Health = ticks[worst].healthyPools(pools)
		return is
	}
	is.Health.Title = "Pool " + is.Worst + ": " + is.Health.Title
	more := 0
	for i, h := range list {
		if i == worst || h.Level == Good {
			continue
		}
		if more++; more <= mostAlso {
			is.Health.Text += fmt.Sprintf(" Also pool %s: %s.", pools[i].Name, h.Title)
		}
	}
	if more > mostAlso {
		is.Health.Text += fmt.Sprintf(" %d more pools are not well.", more-mostAlso)
	}
	return is
}

// healthyPools returns the sentence for the case that there are several pools and all are healthy.
func (t *Tick) healthyPools(pools []*table.Pool) Health {
	servers := map[string]bool{}
	for _, p := range pools {
		for _, s := range p.Servers {
			servers[s.Network+" "+s.Address] = true
		}
	}
	w := wording{Tick: t, pools: len(pools)}
	if t.Requests() == 0 && t.Clients == 0 {
		return Health{Good, fmt.Sprintf("%d servers of %d pools are ready", len(servers), len(pools)), "No client is connected."}
	}
	return Health{Good, fmt.Sprintf("All %d servers of %d pools serve", len(servers), len(pools)), w.flow() + w.failures()}
}

// ticksBetween returns what happened between two samples. The result has a tick for each pool of
// the later sample's table, in the order of the table. All ticks have the same Overall.
func ticksBetween(before, after *Sample) []*Tick {
	pools := after.Table.Pools
	all := between(before, after)
	ticks, health := make([]*Tick, len(pools)), make([]Health, len(pools))
	rest, joining := after.Servers, make([][]ServerState, len(pools))
	failing := false // true if requests to some server fail, or if some server does not serve
	for i, pool := range pools {
		t := *all
		for _, target := range pool.Servers {
			t.S.add(&rest[0], before, after, target)
			rest = rest[1:]
		}
		n := len(pool.Newcomers())
		joining[i], rest = rest[:n], rest[n:]
		ticks[i] = &t
		failing = failing || slices.ContainsFunc(t.S.Fail, func(f float64) bool { return f > 0 })
		for i, s := range t.S.State {
			failing = failing || StateOf(s).Away && !t.S.byOperator(i)
		}
	}
	resizes, fill := []Resize{}, []*filling(nil)
	for i, pool := range pools {
		health[i] = ticks[i].health(pool, lossOf(after.Table, pool), len(pools), failing)
		if is := after.Sum.Resizes[pool.Name]; is != nil && is.Mine != 0 && is.N == 0 && health[i].Level != Bad {
			health[i] = Health{Bad, "It is not known yet which server list is in force", "Until most servers have answered, this instance serves no keys of the pool."}
		}
		if r := ResizeOf(after.Sum, pool); r != nil {
			if !r.Back && (r.Step == moving || r.Step == checking || r.Step == ending) { // when keys move back, they move to the servers of this pool
				health[i].addNew(all, before, after, pool, len(pools))
			}
			r.show(&health[i])
			resizes = append(resizes, *r)
		}
		if r := RollOf(after.Sum, pool.Name); r != nil {
			for _, text := range r.trouble() {
				health[i].warn(text)
			}
		}
		if text := ejectedElsewhere(after.Sum, pool.Name); text != "" {
			health[i].warn(text)
		}
		health[i].warnOfSources(after.Sources, pool.Name)
		if f := fillingOf(before, after, pool); f != nil {
			f.show(&health[i])
			fill = append(fill, f)
		}
	}
	is := overall(pools, ticks, health)
	if is.Health.Level == Good && len(pools) > 1 { // then the text is not that of a pool
		for _, f := range fill {
			f.show(&is.Health)
		}
	}
	is.Resizes = resizes
	for _, path := range after.Gone {
		is.Health.warn("No client can connect to unix:" + path + ": its file was removed. ringside reload creates it again.")
	}
	if after.Refused {
		is.Health.warn("The configuration read last was refused; the old one is in force.")
	}
	for i, t := range ticks {
		t.Overall = is
		for j, target := range pools[i].Newcomers() { // after the health, because that is about the servers of the list
			t.S.add(&joining[i][j], before, after, target)
		}
	}
	return ticks
}

// tickBetween returns what happened in one pool between two samples. It returns nil if the later
// sample's table does not have the pool.
func tickBetween(before, after *Sample, pool string) *Tick {
	i := slices.IndexFunc(after.Table.Pools, func(p *table.Pool) bool { return p.Name == pool })
	if i < 0 {
		return nil
	}
	return ticksBetween(before, after)[i]
}

// Servers returns the servers of all pools with their states, and the state of all pools together.
func (s *Sampler) Servers() ([]ServerState, *Overall, error) {
	now, err := s.Sample()
	if err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	before := s.last
	s.mu.Unlock()
	if before == nil {
		before = now
	}
	is := overall(nil, nil, nil)
	is.Resizes = []Resize{}
	if ticks := ticksBetween(before, now); len(ticks) > 0 {
		is = ticks[0].Overall
	}
	return now.Servers, &is, nil
}
