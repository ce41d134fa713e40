package guard

// This file serves incr and decr of guarded values.

import (
	"bytes"
	"math"
	"slices"
	"strconv"

	"ringside/proxy/tags/stamp"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// count serves incr and decr. It sends the client's command unchanged, unless the value may be old
// or may have tags.
func (l *rule) count(t *task.Task) {
	if l.Stale > 0 || l.tags != nil {
		l.countOver(t)
		return
	}
	l.ask(t, t.WithKey(l.name), func(r *upstream.Result) {
		if r.Reply.Kind != wire.ClientError {
			l.pass(t, r)
			return
		}
		kept := t.Keep(r)
		l.inspectItem(t, func(s *Item, epoch upstream.ConnEpoch) {
			l.noNumber(t, s, epoch, func() { l.pass(t, &kept) }, func() { l.count(t) })
		})
	})
}

// noNumber handles an incr or decr after a read of its item s. If clients see a value in s,
// noNumber calls the function `value`. Otherwise it replies NOT_FOUND, unless the command creates
// a missing counter. The command then creates the counter, with a header if the key has tags. A
// placeholder is deleted first, and then the function `again` is called.
func (l *rule) noNumber(t *task.Task, s *Item, epoch upstream.ConnEpoch, value, again func()) {
	switch creates := t.Req.Dialect == wire.Meta && t.Req.Letters.Has('N'); {
	case !l.isGone(s):
		value()
	case !creates:
		l.nothing(t, s, epoch)
		l.say(t, wire.NotFound)
	case s.IsAbsent() && l.tags != nil && !l.tags.Read && len(l.tags.mine()) > 0:
		l.create(t, again)
	case s.IsAbsent():
		l.ask(t, t.WithKey(l.name), func(r *upstream.Result) { l.pass(t, r) })
	default:
		l.ask(t, t.Meta("md", l.name, " C"+string(s.Cas), nil), func(r *upstream.Result) {
			if l.answered(t, r) {
				l.again(t, again)
			}
		})
	}
}

// countOver reads the item, and increments or decrements the item only if it has not changed
// since. So it does not change a value that was deleted in between.
func (l *rule) countOver(t *task.Task) {
	l.inspectItem(t, func(s *Item, epoch upstream.ConnEpoch) {
		l.noNumber(t, s, epoch, func() {
			if !l.matches(t, s) {
				l.say(t, wire.Exists)
				return
			}
			if l.tags != nil && l.tags.head != nil {
				l.recount(t, s, func() { l.countOver(t) })
				return
			}
			flags := " C" + string(s.Cas)
			edit := appendToLine(t, flags)
			if at := t.TokenSpan(); at.Len() > 0 {
				edit = task.Edit{At: at, With: s.Cas}
			}
			line := t.WithKey(l.name, edit)
			if t.Req.Dialect == wire.Text {
				flags += " v D" + strconv.FormatUint(t.Delta(), 10)
				if t.Op == wire.Decr {
					flags += " MD"
				}
				line = t.Meta("ma", l.name, flags, nil)
			}
			l.ask(t, line, func(r *upstream.Result) {
				switch rep, text := &r.Reply, t.Req.Dialect == wire.Text; {
				case rep.Kind == wire.Exists || rep.Kind == wire.NotFound && t.Req.Letters.Has('N'):
					l.again(t, func() { l.countOver(t) })
				case text && rep.Kind == wire.Value:
					l.pass(t, t.Result(r.Server, append(slices.Clone(rep.Body.Of(r.Bytes)), wire.CRLF...)))
				case text && rep.Kind == wire.NotFound:
					l.say(t, wire.NotFound)
				default:
					l.pass(t, r)
				}
			})
		}, func() { l.countOver(t) })
	})
}

// recount serves an incr or decr of a value with tags. It computes the new number and stores it
// with the header that contains the tag versions.
func (l *rule) recount(t *task.Task, s *Item, again func()) {
	n, err := strconv.ParseUint(string(bytes.TrimRight(l.tags.body, " ")), 10, 64)
	if err != nil {
		l.end(t, func() {
			t.Reject(wire.AppendClientError(nil, "cannot increment or decrement non-numeric value"))
		})
		return
	}
	if t.Op == wire.Incr {
		n += t.Delta()
	} else {
		n -= min(n, t.Delta())
	}
	number, flags := strconv.AppendUint(nil, n, 10), " c"
	left := s.SecondsLeft()
	if _, exptime := l.echo(t, left, false, nil); exptime != "" {
		flags = " T" + exptime + flags
	}
	l.change(t, s, number, flags, func(r *upstream.Result) { l.counted(t, number, left, false, r) }, again)
}

// create serves an incr or decr that creates its item, on a key with tags.
func (l *rule) create(t *task.Task, again func()) {
	first := uint64(0)
	if at, ok := wire.FlagArg(t.Raw, t.Req.MetaFlags, 'J'); ok {
		first = wire.Unsigned(at.Of(t.Raw))
	}
	number := strconv.AppendUint(nil, first, 10)
	_, exptime := l.echo(t, forEver, true, nil)
	l.stamp(t, func(bool) { // the result is ignored: a new counter follows no miss, so no tag change can have made it invalid
		line := t.Meta("ms", l.name, " ME F"+stamp.Flags+" T"+exptime+" c", slices.Concat(l.tags.head, number))
		l.ask(t, line, func(r *upstream.Result) {
			switch {
			case !l.answered(t, r):
			case r.Reply.Kind == wire.Stored:
				l.wrote = true
				l.counted(t, number, forEver, true, r)
			default:
				l.again(t, again)
			}
		})
	})
}

// counted answers an incr or decr after Ringside has stored its number with an ms. left is the
// time to live that the item had before, and r is the reply to the ms.
func (l *rule) counted(t *task.Task, number []byte, left int64, created bool, r *upstream.Result) {
	l.knows(t, Changed)
	line := append(slices.Clone(number), wire.CRLF...)
	if t.Req.Dialect == wire.Meta {
		is := parseItem(&r.Reply, r.Bytes)
		flags, _ := l.echo(t, left, created, is.Cas)
		line = strconv.AppendInt([]byte("VA "), int64(len(number)), 10)
		line = slices.Concat(line, flags, []byte(wire.CRLF), number, []byte(wire.CRLF))
		whole := t.Result(nil, line)
		is = parseItem(&whole.Reply, whole.Bytes)
		line = l.asMeta(t, whole, &is)
	}
	l.end(t, func() { t.Answer(t.Result(l.server(t), line), l.token()) })
}

// forEver is the remaining time to live of an item that does not expire.
const forEver = math.MaxInt64

// echo returns the meta flags of the reply to a command, if Ringside has computed the command's
// value. It also returns the exptime that an incr or decr sets for the item. An empty exptime
// means that the item keeps its own exptime. left is the time to live that the item had before.
// Like memcached, echo handles the flags in their order: a t before T shows the earlier time to
// live.
func (l *rule) echo(t *task.Task, left int64, created bool, cas []byte) (flags []byte, exptime string) {
	for flag, rest := wire.NextKey(t.Raw, t.Req.MetaFlags); flag.Len() > 0; flag, rest = wire.NextKey(t.Raw, rest) {
		switch letter := t.Raw[flag.Start]; letter {
		case 'T', 'N':
			if letter == 'T' || created {
				n := wire.Signed(t.Raw[flag.Start+1 : flag.End])
				exptime, left = strconv.FormatInt(n, 10), n
				switch {
				case n == 0:
					left = forEver
				case n > maxRelative:
					left = n - l.g.Wall
				}
			}
		case 't':
			if t.Op != wire.Incr && t.Op != wire.Decr { // memcached shows no TTL in the reply to an ms
				break
			}
			flags = append(flags, " t-1"...)
			if left != forEver {
				flags = strconv.AppendInt(flags[:len(flags)-2], max(left, 0), 10)
			}
		case 'c':
			flags = append(append(flags, " c"...), cas...)
		case 'O':
			flags = append(append(flags, ' '), flag.Of(t.Raw)...)
		case 'k':
			flags = append(append(flags, " k"...), t.Req.Key.Of(t.Raw)...)
			if t.Req.Flags&wire.Base64 != 0 {
				flags = append(flags, " b"...)
			}
		}
	}
	return flags, exptime
}
