package guard

// This file serves incr and decr of guarded values.

import (
	"bytes"
	"math"
	"slices"
	"strconv"

	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// count sends an incr or decr of the value s.
func (l *rule) count(t *task.Task, s *Item) {
	if l.tags != nil && l.tags.head != nil {
		l.recount(t, s)
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
	l.ask(t, line, (*rule).counted)
}

// counted handles the reply to the ma of count.
func (l *rule) counted(t *task.Task, r *upstream.Result) {
	switch rep, text := &r.Reply, t.Req.Dialect == wire.Text; {
	case rep.Kind == wire.Exists || rep.Kind == wire.NotFound && t.Req.Letters.Has('N'):
		l.again(t)
	case text && rep.Kind == wire.Value:
		l.pass(t, t.Result(r.Server, append(slices.Clone(rep.Body.Of(r.Bytes)), wire.CRLF...)))
	case text && rep.Kind == wire.NotFound:
		l.say(t, wire.NotFound)
	default:
		l.pass(t, r)
	}
}

// recount serves an incr or decr of a value with tags. It computes the new number and stores it
// with the header that contains the tag versions.
func (l *rule) recount(t *task.Task, s *Item) {
	n, err := strconv.ParseUint(string(bytes.TrimRight(l.tags.body, " ")), 10, 64)
	if err != nil {
		l.end(t, 0, t.Result(nil, wire.AppendClientError(nil, "cannot increment or decrement non-numeric value")))
		return
	}
	if t.Op == wire.Incr {
		n += t.Delta()
	} else {
		n -= min(n, t.Delta())
	}
	l.number, l.left, l.created = strconv.AppendUint(nil, n, 10), s.SecondsLeft(), false
	flags := " c"
	if _, exptime := l.echo(t, nil); exptime != "" {
		flags = " T" + exptime + flags
	}
	l.change(t, s, l.number, flags)
}

// create serves an incr or decr that creates its item. If the item s is a placeholder, create removes it
// first. On a key with tags, Ringside computes the value, because it has a header.
func (l *rule) create(t *task.Task, s *Item) {
	switch {
	case !s.IsAbsent():
		l.ask(t, t.Meta("md", l.name, " C"+string(s.Cas), nil), (*rule).cleared)
	case l.tags != nil && !l.tags.Read && len(l.tags.mine()) > 0:
		first := uint64(0)
		if at, ok := wire.FlagArg(t.Raw, t.Req.MetaFlags, 'J'); ok {
			first = wire.Unsigned(at.Of(t.Raw))
		}
		l.number, l.left, l.created = strconv.AppendUint(nil, first, 10), forEver, true
		l.stamp(t)
	default:
		l.sendAsIs(t)
	}
}

// cleared starts t again, after the reply r to a request that has changed an item which t can't use.
func (l *rule) cleared(t *task.Task, r *upstream.Result) {
	if l.answered(t, r) {
		l.again(t)
	}
}

// forEver is the remaining time to live of an item that does not expire.
const forEver = math.MaxInt64

// echo returns the meta flags of the reply to a command, if Ringside has computed the command's
// value. It also returns the exptime that an incr or decr sets for the item. An empty exptime
// means that the item keeps its own exptime. Like memcached, echo handles the flags in their order: a
// t before T shows the earlier time to live.
func (l *rule) echo(t *task.Task, cas []byte) (flags []byte, exptime string) {
	left := l.left
	for flag, rest := wire.NextKey(t.Raw, t.Req.MetaFlags); flag.Len() > 0; flag, rest = wire.NextKey(t.Raw, rest) {
		switch letter := t.Raw[flag.Start]; letter {
		case 'T', 'N':
			if letter == 'T' || l.created {
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
