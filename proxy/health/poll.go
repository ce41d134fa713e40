package health

// The majority vote about a server, from the counters on the other servers.

// ejectShare is the percentage of proxies that must suspect a server. If more do, it is
// ejected.
const ejectShare = 50

// Poll adds up the votes about one server that several other servers have counted.
type Poll struct {
	asked, heard      bool
	suspects, proxies uint64
}

// Opinion is the result of a poll.
type Opinion uint8

// The results.
const (
	Unheard  Opinion = iota // a server replied, but has no complete count yet
	Unasked                 // no other server could be asked
	Reached                 // no majority suspects the server
	Rejected                // the majority suspects the server
)

// Count adds the counters of one server. The Tally live counts all proxies. The Tally
// suspects counts those that suspect the polled server; nil: no proxy has suspected any
// server. refused is the number of proxies that were refused by it recently. The
// parameter `every` is the time between two votes of a proxy.
func (p *Poll) Count(live, suspects *Tally, refused uint64, every, now int64) {
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

// Opinion returns the result.
func (p *Poll) Opinion() Opinion {
	switch {
	case !p.asked:
		return Unasked
	case !p.heard:
		return Unheard
	case p.suspects*100 > p.proxies*ejectShare:
		return Rejected
	}
	return Reached
}
