package guard

// This file builds the replies to clients from the replies of servers.

import (
	"strconv"

	"ringside/proxy/wire"
)

// appendText appends to dst the reply to a text-protocol get of key. r is the server's reply with
// the value, and b are its bytes. If token is set, the reply shows the cas.
func appendText(dst, key []byte, r *wire.Reply, b []byte, s *Item, token bool) []byte {
	dst = append(append(append(dst, "VALUE "...), key...), ' ')
	dst = append(append(dst, s.ClientFlags()...), ' ')
	dst = strconv.AppendInt(dst, int64(r.Body.Len()), 10)
	if token && len(s.Cas) > 0 {
		dst = append(append(dst, ' '), s.Cas...)
	}
	dst = append(append(dst, wire.CRLF...), b[r.Body.Start:r.Size]...)
	return append(dst, wire.AnswerEnd...)
}

// appendMeta appends the server's reply r, with the bytes b, but without the meta flags that the
// client has not requested. The server keeps the item for `longer` seconds more than the client
// wanted. appendMeta subtracts this time from the TTL that the client sees.
func appendMeta(dst []byte, asked wire.Letters, longer int64, r *wire.Reply, b []byte, s *Item) []byte {
	shown := r.Kind == wire.Value && asked.Has('v')
	switch {
	case shown:
		dst = strconv.AppendInt(append(dst, "VA "...), int64(s.Size), 10)
	case r.Kind == wire.Value: // the client has not requested the value: the guard has read it only for the header with its tag versions
		dst = append(dst, "HD"...)
	default:
		dst = append(dst, r.Line.Of(b)[:2]...)
	}
	for rest := r.MetaFlags; ; {
		var flag wire.Span
		if flag, rest = wire.NextKey(b, rest); flag.Len() == 0 {
			break
		}
		switch letter := b[flag.Start]; {
		case !asked.Has(letter), letter == 'c' && len(s.Cas) == 0:
			continue
		case letter == 'f':
			dst = append(append(dst, " f"...), s.ClientFlags()...)
		case letter == 's':
			dst = strconv.AppendInt(append(dst, " s"...), int64(s.Size), 10)
		case letter == 't' && longer > 0 && s.SecondsLeft() < 1<<40:
			left := max(s.SecondsLeft()-longer, 0)
			if s.IsInvalidated() {
				left = 0
			}
			dst = strconv.AppendInt(append(dst, " t"...), left, 10)
		default:
			dst = append(append(dst, ' '), flag.Of(b)...)
		}
	}
	if dst = append(dst, wire.CRLF...); shown {
		dst = append(dst, b[r.Body.Start:r.Size]...)
	}
	return dst
}
