package tally

// What proxies think of a server, by what the other servers have counted.

// ejectShare is the percentage of the proxies that a suspicion needs: if more share it,
// the server is taken out.
const ejectShare = 50

// Poll adds up what several servers have counted of the proxies that suspect one server.
type Poll struct {
	asked, heard      bool
	suspects, proxies uint64
}

// Opinion is what proxies think of a server.
type Opinion uint8

// What they can think.
const (
	Unheard  Opinion = iota // some server answers, but hasn't counted yet
	Unasked                 // no other server answers that could count
	Reached                 // most proxies reach it
	Rejected                // most proxies suspect it
)

// Count adds what one server has counted: live counts all proxies, suspects those that
// suspect the server, where anybody is suspected at all, and refused are as many as have
// said at once that it refuses them.
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

// Opinion is what came of it.
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
