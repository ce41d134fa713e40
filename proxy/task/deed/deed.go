// Package deed spells what a rule of package replicate asks of one server in Ringside's
// own words, and reads the answers.
//
// A key is copied by package copies from one of its holders to another, and by package
// failover from the interim server to the key's own. Both are a replicate.Mend, so both
// leave the same marks, know those of others by their flags, and take no item of a
// client's for one: the requests are spelled here, once.
package deed

import (
	"bytes"
	"slices"
	"strconv"
	"time"

	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
	"ringside/replicate"
)

// MarkWait is the time for the owner of a mark to end what it is doing.
const MarkWait = 20 * time.Millisecond

// Spell is the request of a deed that shows nothing of t's own request, on a key as the
// server knows it. guard is the flag for the cas that must still be there (Guard), life the
// TTL of a mark in seconds. The comments at package replicate's deeds say what each has to show.
func Spell(t *task.Task, d replicate.Deed, key []byte, guard string, life int) []byte {
	mark := " F" + wire.MarkFlags + " T" + strconv.Itoa(life) + " c"
	switch d {
	case replicate.Remove:
		return t.Meta("md", key, "", nil)
	case replicate.Fetch:
		return t.Meta("mg", key, " v f t s c", nil)
	case replicate.Claim:
		return t.Meta("ms", key, " ME"+mark, []byte{})
	case replicate.Bury:
		return t.Meta("ms", key, mark, []byte{})
	case replicate.Remark:
		return t.Meta("ms", key, guard+mark, []byte{})
	case replicate.Drop:
		return t.Meta("md", key, guard, nil)
	}
	return t.Meta("mg", key, " s f c", nil) // Look, Weigh, Review, Check, Preview
}

// Fill stores what the answer from has fetched, as Spell does. With chosen the copy gets
// the cas that was fetched, too.
func Fill(t *task.Task, key []byte, guard string, from *upstream.Result, chosen bool) []byte {
	ttl := Arg(from, 't')
	if ttl == "-1" {
		ttl = "0"
	}
	flags := guard + " F" + Arg(from, 'f') + " T" + ttl
	if chosen {
		flags += " E" + Arg(from, 'c')
	}
	return t.Meta("ms", key, flags, from.Reply.Body.Of(from.Bytes))
}

// Guard is the flag by which a request is done only if the cas that r shows is still there.
func Guard(r *upstream.Result) string { return " C" + Arg(r, 'c') }

// Arg is the argument of a meta flag in an answer; "0" if it is not there.
func Arg(r *upstream.Result, letter byte) string {
	at, ok := wire.FlagArg(r.Bytes, r.Reply.MetaFlags, letter)
	if !ok {
		return "0"
	}
	return string(at.Of(r.Bytes))
}

// Kind is what the answer r to a deed means.
func Kind(d replicate.Deed, r *upstream.Result) replicate.Kind {
	switch k := kinds[r.Reply.Kind]; {
	case r.Reply.Kind == wire.NoReply && r.Unsent:
		return replicate.Unsent
	case r.Reply.Kind == wire.NoReply:
		return replicate.InDoubt
	case k == 0:
		return replicate.ClientError
	case k == replicate.Hit && Marked(r):
		return replicate.Marked
	case k == replicate.Hit && d == replicate.Fetch && task.Expiring(r.Bytes, &r.Reply):
		return replicate.Miss
	default:
		return k
	}
}

// Marked says whether an answer that shows flags shows those of a mark.
func Marked(r *upstream.Result) bool {
	return string(r.Reply.ClientFlags.Of(r.Bytes)) == wire.MarkFlags || Arg(r, 'f') == wire.MarkFlags
}

// kinds are what replies mean, whatever was asked.
var kinds = [wire.NumKinds]replicate.Kind{
	wire.Value: replicate.Hit, wire.Header: replicate.Hit, wire.Item: replicate.Hit, wire.End: replicate.Miss, wire.Miss: replicate.Miss,
	wire.Stored: replicate.Stored, wire.NotStored: replicate.NotStored, wire.Exists: replicate.Exists, wire.NotFound: replicate.NotFound,
	wire.Deleted: replicate.Deleted, wire.Touched: replicate.Touched, wire.OK: replicate.OK, wire.ServerError: replicate.ServerError,
}

// Show is the edit that adds flags to the client's meta request: letter (0: none), if the
// client has not asked for it, and more. added is what Hide takes out of the answer, or 0.
func Show(t *task.Task, letter byte, more string) (edit task.Edit, added byte) {
	if letter != 0 && !t.Req.Letters.Has(letter) {
		added = letter
		more += " " + string(letter)
	}
	end := t.Req.Line.End
	return task.Edit{At: wire.Span{Start: end, End: end}, With: []byte(more)}, added
}

// Hide takes the flag that Show has added out of the answer to a request of that kind.
func Hide(r *upstream.Result, op wire.Op, dialect wire.Dialect, added byte) {
	rep := &r.Reply
	if added == 0 {
		return
	}
	if added == 'v' {
		if rep.Kind == wire.Value {
			flags := rep.MetaFlags.Of(r.Bytes)
			line := append([]byte("HD"), bytes.TrimRight(append([]byte(" "), flags...), " \r\n")...)
			r.SetAnswer(op, dialect, append(line, wire.CRLF...))
		}
		return
	}
	if at, ok := wire.FlagArg(r.Bytes, rep.MetaFlags, added); ok {
		from := at.Start - 1
		if r.Bytes[from-1] == ' ' {
			from--
		}
		r.SetAnswer(op, dialect, append(slices.Clone(r.Bytes[:from]), r.Bytes[at.End:]...))
	}
}
