package guard

// This file records which replica has answered the last step of a command, and which server has a key that moves.

import (
	"bytes"
	"slices"
	"strconv"

	"ringside/proxy/health"
	"ringside/proxy/health/divert"
	"ringside/proxy/routing"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// replicaReply describes the last reply that a command in steps has got: from a replica of a replicated
// key, or from the new owner of a key that moves.
type replicaReply struct {
	Server *upstream.Server // the server that has sent the last reply
	Looked bool             // the command has got a miss from the primary without a placeholder, which means that the primary has a tombstone

	seal  uint64              // XOR of the cas in the last reply and the token of this cas; 0: not known. The guard uses only tokens
	token func(uint64) uint64 // converts the cas in the last reply to a token; nil: the reply shows the token already

	moves bool               // the key has one copy, and moves to another server
	place itemPlace          // of such a key: its new owner
	via   upstream.ConnEpoch // of such a key: epoch of the reply that has shown the cas which the next request uses; zero: not known
}

// movingReplyFor returns the replicaReply of a command on a key that moves, and the place of the key at its
// new owner.
func movingReplyFor(rt *routing.Route, key []byte) (*replicaReply, health.Route) {
	is := rt.View.Resize()
	to := rt.Arrival(is, key)
	at := itemPlace{Server: rt.Server(to.First.Server), Name: string(divert.AppendKey(nil, to.First.Number, key)), Seal: divert.TagCas(0, to.Tag), Moves: true}
	at.Gen = uint64(is.Change())<<32 | uint64(rt.View.N(to.First.Server))
	return &replicaReply{Server: at.Server, moves: true, place: at}, health.Route{First: to.First}
}

// replicaReplyFor returns the replicaReply of a command that has sent no request yet. It names
// the server of the first replica. It returns nil if no server has the key, or if one has no cas. The
// guard is off then: the key has no placeholders, because writes to it are rejected.
func replicaReplyFor(rt *routing.Route, key []byte) *replicaReply {
	list := rt.Holders(nil, key)
	if len(list) == 0 || slices.ContainsFunc(list, func(h routing.Holder) bool { return h.Server.LacksCas() }) {
		return nil
	}
	return &replicaReply{Server: list[0].Server}
}

// Heard records which server has sent r, the reply to the request `line`. It replaces the cas in
// r by the token of that cas.
func (c *replicaReply) Heard(r *upstream.Result, token func(uint64) uint64, line []byte) {
	if r.Server != nil && !c.moves {
		c.Server = r.Server
	}
	c.token = token
	switch at, has := wire.FlagArg(r.Bytes, r.Reply.MetaFlags, 'c'); {
	case token == nil || line[0] != 'm' || !has:
	default:
		c.via = r.ConnEpoch
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

// Spot returns the server that answered last, and the key's name there. While
// instances reload their configuration, that server may be one that no longer has the
// key after the reload.
func (c *replicaReply) Spot(rt *routing.Route, key []byte) itemPlace {
	if c.moves {
		return c.place
	}
	name := key
	for _, bp := range append([]*routing.BoundPool{rt.BoundPool}, rt.Also...) {
		if i := slices.Index(bp.Servers, c.Server); i >= 0 && bp.View.Renamed(i) != 0 {
			name = divert.AppendKey(nil, uint64(bp.View.Renamed(i)), key)
		}
	}
	return itemPlace{Server: c.Server, Name: string(name), Seal: c.seal, Copied: true}
}

// Tag returns the cas token that the client gets for the cas n of the last reply.
func (c *replicaReply) Tag(n uint64) uint64 {
	if c.token != nil {
		return c.token(n)
	}
	return n
}

// dueBelow returns the argument of the flag R in the given meta flags, 0 if there is none. A
// value with a lower TTL, in seconds, is due for a rebuild.
func dueBelow(flags []byte) int64 {
	_, due, _ := bytes.Cut(flags, []byte(" R"))
	n, _ := strconv.ParseInt(string(due), 10, 64)
	return n
}
