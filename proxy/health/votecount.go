package health

// This file computes the result of a vote about a server, from the counters on the other servers.

// ejectShare is a percentage of the proxies. A server is ejected if more proxies than that suspect it.
const ejectShare = 50

// voteCount adds up the votes of the instances about one server. The votes are counters that several
// other servers store.
type voteCount struct {
	asked, heard      bool
	suspects, proxies uint64
}

// voteResult is the result of a vote about one server.
type voteResult uint8

// The results of a vote about one server.
const (
	noData    voteResult = iota // no other server has recent counts of votes yet
	notAsked                    // no other server replies, so votes can't be read
	reachable                   // at most half of the proxies suspect the server
	rejected                    // more than half of the proxies suspect the server
)

// Count adds to p the counters on one server. The vote is about another server. live follows the
// counter of all proxies. suspects follows the counter of the proxies that suspect the other server;
// nil: no suspicion was counted yet. refused is the number of proxies that the other server has
// refused recently. The parameter `every` is the time between two votes of a proxy.
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

// Result returns the result of the vote, from all counters that Count has added.
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
