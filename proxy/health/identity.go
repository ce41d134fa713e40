package health

// This file detects which process replies at a server's address. If a server has lost its
// view record, it was flushed or restarted, or another process is a stranger there. A
// stranger is a memcached that was already running when the known process last replied, so
// it has other data. Strangers occur because addresses are reused.

// identity describes the process that replies at a server's address.
type identity struct {
	process  Process // the process that was identified last; zero: none yet
	asking   bool
	known    bool  // the process was identified after the server's view record was last lost or replaced
	heard    int64 // when the last request was sent that the process has replied to
	stranger bool  // the process is another memcached with data of its own, so it must be flushed
	rejected int64 // when a loop last rejected a process that replied at the address (see Keeper.Rejected); 0: never
	memory   memory
	asks     bool // the request for the server's settings has no reply yet
}

// memory is what happens to a server's items when its process ends.
type memory uint8

const (
	memoryUnknown memory = iota
	memoryLost           // the items are lost
	memoryKept           // the next process may have them: the server has restartable memory (memcached -e)
)

// askMemory asks server i whether it has restartable memory, unless that is known. The process must
// have been identified first, because the reply is about the process that runs now.
func (k *Keeper) askMemory(i int, now int64) {
	if s := &k.servers[i]; s.known && s.memory == memoryUnknown && !s.asks {
		s.asks = true
		k.send(ask{kind: askMemory, server: i, about: i}, now, askSettings)
	}
}

// refusalMeansLoss reports whether a refused connection shows that server i has lost its items. It does
// not if the server may have restartable memory. Such a server is treated as if it were silent,
// because it may still have the only copy of a key.
func (k *Keeper) refusalMeansLoss(i int) bool {
	return k.servers[i].memory == memoryLost || k.off.Memory
}

// recognized reports whether the process that replies at the address of server i is identified, so
// that its replies count. Before the first process of a server is identified, any process counts.
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

// Rejected reports to the keeper that a loop is about to reject the process that replies at the address of a server, because it may
// be a stranger. It may also be the server itself, restarted with its memory. A ping shows which is the case. So the keeper pings
// the server at once, and does not eject it during the time of one ping. The caller then reports the failure by ServerFailed.
func (k *Keeper) Rejected(server int, now int64) {
	s := &k.servers[server]
	s.rejected, s.pingAt = now, min(s.pingAt, now)
}

// identified handles the reply to the stats request that Keeper.identify has sent. If the reply has no
// start time, the process counts as unchanged.
func (k *Keeper) identified(a ask, answer []byte, now int64) {
	s := &k.servers[a.server]
	held := !k.recognized(a.server)
	s.asking, s.known = false, true
	if held {
		s.pingAt = min(s.pingAt, now) // ping now: the lease or the new view record had to wait until the process was identified
	}
	p, ok := ParseProcess(answer)
	if !ok {
		return
	}
	before, heard := s.process, s.heard
	s.process, s.heard = p, a.sent
	if !p.Is(before) {
		s.memory = memoryUnknown
	}
	if before == (Process{}) || p.Is(before) || k.off.Stranger {
		return
	}
	if s.stranger = k.present(a.server) && !k.parting && !k.set.Stays && p.Stranger(now-heard); s.stranger {
		s.suspect = false // so that markSuspect, which is called next, records the new reason
		k.markSuspect(a.server, p.Answers(), now)
	}
}
