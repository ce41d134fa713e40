package guard

// incr and decr of guarded values.

import (
	"bytes"
	"slices"
	"strconv"

	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// count serves incr and decr. It sends the command unchanged, unless the value may be
// old or may have tags.
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

// noNumber handles the cases in which there may be no value to count. If there is one,
// it calls the function `value`. A placeholder is not a value. A meta command that
// creates its item deletes the placeholder, and then the function `again` is called.
func (l *rule) noNumber(t *task.Task, s *Item, epoch upstream.ConnEpoch, value, again func()) {
	switch creates := t.Req.Dialect == wire.Meta && t.Req.Letters.Has('N'); {
	case !l.isGone(s):
		value()
	case !creates:
		l.nothing(t, s, epoch)
		l.say(t, wire.NotFound)
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

// countOver reads the item, and increments or decrements it only if it is still the
// same. So it does not change a deleted value.
func (l *rule) countOver(t *task.Task) {
	l.inspectItem(t, func(s *Item, epoch upstream.ConnEpoch) {
		l.noNumber(t, s, epoch, func() {
			if l.tags != nil && l.tags.head != nil {
				l.recount(t, s, func() { l.countOver(t) })
				return
			}
			flags := " C" + string(s.Cas)
			line := t.WithKey(l.name, appendToLine(t, flags))
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

// recount serves incr and decr of a value with tags: it computes the number and stores
// it with the head.
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
	number := strconv.AppendUint(nil, n, 10)
	l.change(t, s, number, func() {
		line := append(slices.Clone(number), wire.CRLF...)
		if t.Req.Dialect == wire.Meta {
			line = wire.AppendAnswer(nil, t.Raw, &t.Req, wire.Header)
			if t.Req.Letters.Has('v') {
				flags := bytes.TrimPrefix(bytes.TrimSuffix(line, []byte(wire.CRLF)), []byte("HD"))
				line = strconv.AppendInt([]byte("VA "), int64(len(number)), 10)
				line = slices.Concat(line, flags, []byte(wire.CRLF), number, []byte(wire.CRLF))
			}
		}
		l.end(t, func() { t.Answer(t.Result(l.server(t), line), nil) })
	}, again)
}
