package live

// This file requests the memory stats from the servers of the watched pools, one server after the
// other.

import (
	"slices"
	"time"

	"ringside/proxy/table"
)

// runErrands requests stats from servers until Close. While there are watchers, it asks all servers
// of the watched pools. It also asks servers on which values are missing for an unknown reason.
func (s *Sampler) runErrands() {
	asked := false
	for {
		began := time.Now()
		watched := s.pools()
		t := s.p.Table()
		var targets []table.Target
		seen, doubtful := map[string]bool{}, s.p.CountersToRead()
		for _, pool := range t.Pools {
			for _, server := range shown(pool) {
				if at := at(server); (watched[pool.Name] || slices.Contains(doubtful, at)) && !seen[at] {
					seen[at] = true
					targets = append(targets, server)
				}
			}
		}
		if len(targets) == 0 && asked {
			asked = false
			s.p.EndStats()
			clear(s.saidNow)
			clear(s.saidOld)
		}
		for i, server := range targets {
			asked = true
			pause := time.Until(began.Add(errandGap * 3 / 4 * time.Duration(i+1) / time.Duration(len(targets))))
			if s.saidNow[at(server)] == nil {
				pause = 0 // no pause, because a new watcher waits for the first stats of the server
			}
			if !s.errand(server) || !s.sleep(pause) {
				return
			}
		}
		for _, pool := range t.Pools {
			if watched[pool.Name] {
				s.tellMemory(pool)
			}
		}
		pause := time.Until(began.Add(errandGap))
		if len(targets) == 0 {
			pause = Every / 4 // a short pause, so that a new watcher soon gets the stats
		}
		if !s.sleep(pause) {
			s.p.EndStats()
			return
		}
	}
}

// at returns a name for a server that is the same in all pools: its network and address.
func at(t table.Target) string { return t.Network + " " + t.Address }

// sleep waits for the duration d. It returns false at once if the sampler is closed.
func (s *Sampler) sleep(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-s.ended:
		return false
	}
}

// errand requests the stats of one server and stores them. It returns false if the sampler has been
// closed.
func (s *Sampler) errand(server table.Target) bool {
	answer := make(chan [][]byte, 1)
	s.p.AskStats(server, statsAsked, func(answers [][]byte, _ string) { answer <- answers })
	late := time.NewTimer(errandGap)
	defer late.Stop()
	var got [][]byte
	select {
	case got = <-answer:
	case <-late.C:
	case <-s.ended:
		return false
	}
	key := at(server)
	if got == nil {
		delete(s.saidNow, key)
		delete(s.saidOld, key)
		return true
	}
	if is := s.saidNow[key]; is != nil {
		s.saidOld[key] = is
	}
	said := parseStats(got, time.Now())
	said.rates(s.saidOld[key])
	s.saidNow[key] = said
	return true
}

// tellMemory sends the memory stats of a pool's servers to the watchers of the pool.
func (s *Sampler) tellMemory(pool *table.Pool) {
	var names []string
	var now, before []*Said
	for _, t := range shown(pool) {
		names = append(names, t.Name)
		now, before = append(now, s.saidNow[at(t)]), append(before, s.saidOld[at(t)])
	}
	is := memoryOf{memory(now, before), slabs(names, now)}
	s.mu.Lock()
	s.memory[pool.Name] = is
	s.mu.Unlock()
	s.publishJSON(pool.Name, "mem", is.Memory)
	s.publishJSON(pool.Name, "slabs", is.Slabs)
}
