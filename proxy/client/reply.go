package client

// This file checks, at the end of each exchange, that the command gets exactly one reply,
// unless it is quiet.

import (
	"flag"
	"fmt"
	"log/slog"

	"ringside/proxy/stats"
	"ringside/proxy/wire"
)

// A reply fault is a bug of Ringside: a command would get no reply, or got two. A client of a
// text protocol then assigns every later reply to the wrong command. A command without a reply
// gets an error, so that its client is not affected. In a test binary a fault panics.

const (
	unexplained = "the command failed without a reason: this is a bug in Ringside"
	noReplyMade = "the command ended without a reply: this is a bug in Ringside"
)

// replyFault counts and logs a reply fault of the command op.
func (e *Clients) replyFault(s *Session, op wire.Op, what string) {
	e.Count.ReplyFaults++
	what = fmt.Sprintf("%s: %s", op, what)
	switch {
	case e.OnReplyFault != nil:
		e.OnReplyFault(what)
	case flag.Lookup("test.v") != nil:
		panic("reply fault: " + what)
	}
	peer := "-"
	if s != nil {
		peer = s.Peer()
	}
	e.LogLimited(slog.LevelError, "", "reply fault: please report this bug", "client", peer, "fault", what, "faults", e.Count.ReplyFaults)
}

// CheckLocal returns the reply to a command that Ringside answers itself, without an exchange.
// It returns an error if there is no reply and the command is not quiet.
func (e *Clients) CheckLocal(s *Session, reply []byte) []byte {
	if len(reply) > 0 || e.Req.Flags&wire.Quiet != 0 || e.Req.Op == wire.Bad { // Bad: its parser decides whether memcached would reply
		return reply
	}
	e.replyFault(s, e.Req.Op, noReplyMade)
	return wire.AppendServerError(nil, noReplyMade)
}

// checkReplies is called at the end of x. It reports a reply fault unless x has exactly one
// reply, or none if it is quiet.
func (x *Exchange) checkReplies() {
	switch {
	case x.cut: // the client is closed in the middle of a value, so nothing after that matters
	case x.isTextRead(): // finish writes END, or the error instead of it
		if x.ended && (x.trouble != "" || len(x.ErrLine) > 0) {
			x.e.replyFault(x.Session, x.Op, "an error follows END")
		}
	case x.replies > 1:
		x.e.replyFault(x.Session, x.Op, fmt.Sprintf("%d replies", x.replies))
	case x.replies == 1 && x.dialect == wire.Text && x.Flags&wire.Quiet != 0 && x.Flags&wire.Binary == 0:
		x.e.replyFault(x.Session, x.Op, "a reply in spite of noreply")
	case x.replies == 0 && !x.Quiet() && x.Op != wire.Bad: // the parser decides whether a bad command gets a reply
		x.e.replyFault(x.Session, x.Op, noReplyMade)
		x.Outcome = stats.ServerFault
		x.e.Line = wire.AppendServerError(x.e.Line[:0], noReplyMade)
		x.Emit(x.e.Line)
	}
}

// isTextRead reports whether x is a read in the text protocol. The reply to such a read is any
// number of values and END. A binary get has at most one value.
func (x *Exchange) isTextRead() bool {
	return x.dialect == wire.Text && x.Op <= wire.Gats && x.Op >= wire.Get && x.Flags&wire.Binary == 0
}

// checkBatch ends the gets of a batch that were never answered. Otherwise the values of later
// gets would wait forever.
func (x *Exchange) checkBatch() {
	b := x.InOrder.batch
	if x.cut || b.Settled() { // after a cut, an error would be taken for the rest of the value
		return
	}
	x.e.replyFault(x.Session, x.Op, "a quiet get never ended")
	x.Fail(NoShare, noReplyMade, stats.ServerFault)
	for i := range b.places {
		if !b.IsSettled(i) {
			x.failPlace(int32(i + 1))
		}
	}
}
