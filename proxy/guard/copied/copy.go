package copied

// The copy that has answered last.

import (
	"bytes"
	"slices"
	"strconv"

	"ringside/proxy/guard/misses"
	"ringside/proxy/health/divert"
	"ringside/proxy/routing"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// Copy is what a command on a key of several copies knows of these.
type Copy struct {
	Server *upstream.Server // that has answered last
	Looked bool             // a read has met a mark already, or what is as good as one

	seal  uint64              // between its cas and the token of it, which is what all cas are to the guard
	token func(uint64) uint64 // of its last answer, if that shows a cas as it is
}

// Of is what is known of a key of the route that nobody has been asked for; nil: nobody has it.
func Of(rt *routing.Route, key []byte) *Copy {
	list := rt.Holders(nil, key)
	if len(list) == 0 {
		return nil
	}
	return &Copy{Server: list[0].Server}
}

// Heard takes what the answer to line says of the copies, and lets it show the token in
// the place of the cas.
func (c *Copy) Heard(r *upstream.Result, token func(uint64) uint64, line []byte) {
	if r.Server != nil {
		c.Server = r.Server
	}
	c.token = token
	switch at, has := wire.FlagArg(r.Bytes, r.Reply.MetaFlags, 'c'); {
	case token == nil || line[0] != 'm' || !has:
	default:
		op := wire.Get
		switch line[1] {
		case 's':
			op = wire.Set
		case 'a':
			op = wire.Incr
		}
		n, _ := strconv.ParseUint(string(at.Of(r.Bytes)), 10, 64)
		shown := token(n)
		c.seal, c.token = shown^n, nil
		r.SetAnswer(op, wire.Meta, slices.Concat(r.Bytes[:at.Start], strconv.AppendUint(nil, shown, 10), r.Bytes[at.End:]))
	}
}

// Spot is where what has answered keeps the key. While a reload goes round the Ringsides
// that may be a server which is to keep it no more.
func (c *Copy) Spot(rt *routing.Route, key []byte) misses.Spot {
	name := key
	for _, bp := range append([]*routing.BoundPool{rt.BoundPool}, rt.Also...) {
		if i := slices.Index(bp.Servers, c.Server); i >= 0 && bp.View.Renamed(i) != 0 {
			name = divert.AppendKey(nil, uint64(bp.View.Renamed(i)), key)
		}
	}
	return misses.Spot{Server: c.Server, Name: string(name), Seal: c.seal, Copied: true}
}

// Tag is the token that a client is shown for the cas of the last answer.
func (c *Copy) Tag(n uint64) uint64 {
	if c.token != nil {
		return c.token(n)
	}
	return n
}

// DueBelow is the TTL below which a read with these flags finds a value due.
func DueBelow(flags []byte) int64 {
	_, due, _ := bytes.Cut(flags, []byte(" R"))
	n, _ := strconv.ParseInt(string(due), 10, 64)
	return n
}
