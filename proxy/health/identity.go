package health

// Detection of the process that replies at a server's address. If a server has lost its
// record, it was flushed or restarted, or it is a stranger. A stranger is another
// memcached that ran before the known process was last seen, so it has other data.
// That happens because addresses are reused.

// identity describes the process that replies at a server's address.
type identity struct {
	process  Process // zero: not known yet
	asking   bool
	known    bool  // the process was identified after the server's record was last lost or changed
	heard    int64 // when the last request that this process answered was sent
	stranger bool  // the process has other data and must be flushed
}

// recognized reports whether replies of server i can be trusted. If no process is known
// yet, any process is accepted.
func (k *Keeper) recognized(i int) bool {
	s := &k.servers[i]
	return s.known || s.process == Process{} || k.off.Stranger
}

// identify asks server i for its process ID and start time.
func (k *Keeper) identify(i int, now int64) {
	if s := &k.servers[i]; !s.asking && !s.known {
		s.asking = true
		k.send(ask{kind: askProcess, server: i, about: i}, now, []byte("stats\r\n"))
	}
}

// identified handles the reply to the request of identify. If the reply names no process, the
// process counts as unchanged.
func (k *Keeper) identified(a ask, answer []byte, now int64) {
	s := &k.servers[a.server]
	held := !k.recognized(a.server)
	s.asking, s.known = false, true
	if held {
		s.pingAt = min(s.pingAt, now) // ping now: a lease, or the creation of a record, has waited until the process was identified
	}
	p, ok := ParseProcess(answer)
	if !ok {
		return
	}
	before, heard := s.process, s.heard
	s.process, s.heard = p, a.sent
	if before == (Process{}) || p.Is(before) || k.off.Stranger {
		return
	}
	if s.stranger = k.present(a.server) && !k.parting && p.Stranger(now-heard); s.stranger {
		s.suspect = false // markSuspect below must record the new reason
		k.markSuspect(a.server, p.Answers(), now)
	}
}
