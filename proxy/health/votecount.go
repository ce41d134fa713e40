package health

// The majority vote about a server, from the counters on the other servers.

// ejectShare is the percentage of proxies that must suspect a server. If more do, it is
// ejected.
const ejectShare = 50

// voteCount adds up the votes about one server that several other servers have counted.
type voteCount struct {
	asked, heard      bool
	suspects, proxies uint64
}

// voteResult is the result of a vote about one server.
type voteResult uint8

// The results.
const (
	noData    voteResult = iota // a server replied, but has no complete count yet
	notAsked                    // no other server replies, so votes can't be read
	reachable                   // no majority suspects the server
	rejected                    // the majority suspects the server
)

// Count adds the counters of one server. The tally live counts all proxies. The tally suspects
// counts those that suspect the server voted on; nil: no proxy has suspected any server. refused is
// the number of proxies that the server voted on has refused recently. The parameter `every` is the
// time between two votes of a proxy.
func (p *voteCount) Count(live, suspects *tally, refused uint64, every, now int64) {
	p.asked = true
	counted := suspects != nil && suspects.Fresh(every, now)
	if counted {
		refused = max(refused, suspects.Rate())
	}
	if refused == 0 && !counted || !live.Fresh(every, now) {
		return
	}
	p.heard = true
	p.suspects += refused
	p.proxies += live.Rate()
}

// Result returns the result.
func (p *voteCount) Result() voteResult {
	switch {
	case !p.asked:
		return notAsked
	case !p.heard:
		return noData
	case p.suspects*100 > p.proxies*ejectShare:
		return rejected
	}
	return reachable
}
