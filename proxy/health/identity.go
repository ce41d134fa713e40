package health

// Which process answers at a server's address. One that has lost its record was
// flushed, or was started anew and is empty; or it is a stranger: another memcached,
// which was there before the one that this proxy knew was lost, and has values of
// its own. Addresses are used again.

import "ringside/proxy/health/process"

// identity is which process answers, in what state it was recognized.
type identity struct {
	process  process.Process // the zero one: not known yet
	asking   bool
	known    bool  // it is the one that has the record, or lacks it, as that was last seen
	heard    int64 // when the last request was sent that it has answered
	stranger bool  // it has values of its own, and is to be emptied
}

// recognized says whether what answers at server i may be believed. Nobody knows the
// process at the first look, and then all are.
func (k *Keeper) recognized(i int) bool {
	s := &k.servers[i]
	return s.known || s.process == process.Process{} || k.off.Stranger
}

// identify asks server i which process it is.
func (k *Keeper) identify(i int, now int64) {
	if s := &k.servers[i]; !s.asking && !s.known {
		s.asking = true
		k.send(ask{kind: askProcess, server: i, about: i}, now, []byte("stats\r\n"))
	}
}

// identified takes the answer. A server that doesn't tell counts as one process for ever.
func (k *Keeper) identified(a ask, answer []byte, now int64) {
	s := &k.servers[a.server]
	held := !k.recognized(a.server)
	s.asking, s.known = false, true
	if held {
		s.pingAt = min(s.pingAt, now) // for the lease or the record that waits for this
	}
	p, ok := process.Parse(answer)
	if !ok {
		return
	}
	before, heard := s.process, s.heard
	s.process, s.heard = p, a.sent
	if before == (process.Process{}) || p.Is(before) || k.off.Stranger {
		return
	}
	if s.stranger = k.present(a.server) && !k.parting && p.Stranger(now-heard); s.stranger {
		s.suspect = false // for another reason than now
		k.isSuspect(a.server, p.Answers(), now)
	}
}
