package task

// This file formats the requests of a replication rule (package replicate) to one server, and
// parses the replies. The kind of such a request is a replicate.Step.
//
// Package replication copies a key from one replica to another. Package failover copies a key
// from the substitute server to the key's own server. Both use replicate.Mend. So both must
// store the same tombstones, recognize those of the other by their flags, and not mistake a
// client's item for a tombstone. Therefore only this package formats these requests.

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"time"

	"ringside/proxy/tags/stamp"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
	"ringside/replicate"
)

// MarkWait is how long other commands wait for the owner of a tombstone to finish.
const MarkWait = 20 * time.Millisecond

// StepRequest returns the request line of the step d of a rule, which must not need anything
// from the client's request. key is the key as the server knows it. guard is the meta flag that
// makes the request depend on an item's cas (see CasFlag). life is the TTL of a tombstone in
// seconds. The comments at the constants of replicate.Step say which meta flags each reply must
// contain.
func StepRequest(t *Task, d replicate.Step, key []byte, guard string, life int) []byte {
	mark := " F" + wire.TombstoneFlags + " T" + strconv.Itoa(life) + " c"
	switch d {
	case replicate.Remove:
		return t.Meta("md", key, "", nil)
	case replicate.Fetch:
		return t.Meta("mg", key, " v f t s c", nil)
	case replicate.Claim:
		return t.Meta("ms", key, " ME"+mark, []byte{})
	case replicate.PlaceTombstone:
		return t.Meta("ms", key, mark, []byte{})
	case replicate.RefreshTombstone:
		return t.Meta("ms", key, guard+mark, []byte{})
	case replicate.Drop:
		return t.Meta("md", key, guard, nil)
	}
	return t.Meta("mg", key, " s f c", nil) // the steps that only read the item: Look, Check, Preview
}

// FillRequest returns the request that stores a copy of the item in the reply `from` as key.
// guard is the meta flag that makes the request depend on an item's cas (see CasFlag).
func FillRequest(t *Task, key []byte, guard string, from *upstream.Result) []byte {
	ttl := Arg(from, 't')
	if left, err := strconv.ParseInt(ttl, 10, 64); ttl == "-1" {
		ttl = "0"
	} else if err == nil {
		ttl = strconv.FormatInt(ExptimeFor(left, t.Loop.Wall), 10)
	}
	return t.Meta("ms", key, guard+" F"+Arg(from, 'f')+" T"+ttl, from.Reply.Body.Of(from.Bytes))
}

// The limits of exptimes, in seconds.
const (
	MaxRelative = 30 * 24 * 60 * 60 // the longest exptime that memcached treats as relative to now
	MaxExptime  = math.MaxInt32     // the latest date
)

// ExptimeFor returns the exptime with which an item lives for another `left` seconds. now is the Unix
// time. memcached treats a longer exptime than 30 days as a date.
func ExptimeFor(left, now int64) int64 {
	if left > MaxRelative {
		return min(now+left, MaxExptime)
	}
	return left
}

// CasFlag returns the meta flag that makes a request run only if the item still has the cas
// in the reply r.
func CasFlag(r *upstream.Result) string { return " C" + Cas(r) }

// Cas returns the cas in a reply, or "0" if it has none.
func Cas(r *upstream.Result) string {
	if at := r.Reply.Unique; at.Len() > 0 {
		return string(at.Of(r.Bytes))
	}
	return Arg(r, 'c')
}

// Arg returns the argument of a meta flag in a reply, or "0" if it is missing.
func Arg(r *upstream.Result, letter byte) string {
	at, ok := wire.FlagArg(r.Bytes, r.Reply.MetaFlags, letter)
	if !ok {
		return "0"
	}
	return string(at.Of(r.Bytes))
}

// OutcomeKind returns what the reply r to the step d means to a replication rule.
func OutcomeKind(d replicate.Step, r *upstream.Result) replicate.Kind {
	switch k := kinds[r.Reply.Kind]; {
	case r.Reply.Kind == wire.NoReply && r.Unsent:
		return replicate.Unsent
	case r.Reply.Kind == wire.NoReply:
		return replicate.InDoubt
	case k == 0:
		return replicate.ClientError
	case k == replicate.Hit && HasTombstone(r):
		return replicate.Marked
	case k == replicate.Hit && d == replicate.Fetch && HasPlaceholder(r):
		return replicate.Miss
	case k == replicate.Hit && d == replicate.Fetch && Arg(r, 'f') == stamp.Flags: // the versions of tags in its header are those of its server
		return replicate.Stale
	case k == replicate.Hit && d == replicate.Fetch && Expiring(r.Bytes, &r.Reply):
		if !r.Reply.Letters.Has('X') && Arg(r, 't') == "1" {
			return replicate.Expiring
		}
		return replicate.Stale
	default:
		return k
	}
}

// HasTombstone reports whether the client flags in a reply are those of a tombstone. It returns
// false for a reply without flags.
func HasTombstone(r *upstream.Result) bool {
	return string(r.Reply.ClientFlags.Of(r.Bytes)) == wire.TombstoneFlags || Arg(r, 'f') == wire.TombstoneFlags
}

// HasPlaceholder reports whether r shows the placeholder that the guard, or a client's mg N, stores
// while a value is rebuilt. A copy of it would not have the flag Z, so clients would get it as an empty value.
func HasPlaceholder(r *upstream.Result) bool {
	empty := r.Reply.Body.Len() == 0
	if r.Reply.Kind == wire.Header {
		empty = Arg(r, 's') == "0"
	}
	return empty && Arg(r, 'f') == "0" && (r.Reply.Letters.Has('W') || r.Reply.Letters.Has('Z'))
}

// kinds maps kinds of replies to outcomes of replication rules, whatever the request was.
var kinds = [wire.NumKinds]replicate.Kind{
	wire.Value: replicate.Hit, wire.Header: replicate.Hit, wire.Item: replicate.Hit, wire.End: replicate.Miss, wire.Miss: replicate.Miss,
	wire.Stored: replicate.Stored, wire.NotStored: replicate.NotStored, wire.Exists: replicate.Exists, wire.NotFound: replicate.NotFound,
	wire.Deleted: replicate.Deleted, wire.Touched: replicate.Touched, wire.OK: replicate.OK, wire.ServerError: replicate.ServerError,
}

// Show returns the edit that adds meta flags to the client's meta request: those in `more`, and
// the flag letter (0: none) unless the client has requested it. The result `added` is letter if
// Show adds it, and Hide must then remove it from the reply; else 0.
func Show(t *Task, letter byte, more string) (edit Edit, added byte) {
	if letter != 0 && !t.Req.Letters.Has(letter) {
		added = letter
		more += " " + string(letter)
	}
	end := t.Req.Line.End
	return Edit{At: wire.Span{Start: end, End: end}, With: []byte(more)}, added
}

// Hide removes the flag that Show has added from the reply r. op and dialect are those of
// the request.
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
