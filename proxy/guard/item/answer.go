package item

// Answers as clients get them, made of what a server has said.

import (
	"strconv"

	"ringside/proxy/tags/stamp"
	"ringside/proxy/wire"
)

// AppendText appends the value r, whose bytes are b, as the answer to a text get of key;
// token: with its cas.
func AppendText(dst, key []byte, r *wire.Reply, b []byte, s *Seen, token bool) []byte {
	dst = append(append(append(dst, "VALUE "...), key...), ' ')
	dst = append(append(dst, s.Shown()...), ' ')
	dst = strconv.AppendInt(dst, int64(r.Body.Len()), 10)
	if token && len(s.Cas) > 0 {
		dst = append(append(dst, ' '), s.Cas...)
	}
	dst = append(append(dst, wire.CRLF...), b[r.Body.Start:r.Size]...)
	return append(dst, wire.AnswerEnd...)
}

// AppendMeta appends the answer r, whose bytes are b, without what is not asked for. What
// is kept so many seconds longer than its client has said lives so much shorter.
func AppendMeta(dst []byte, asked wire.Letters, longer int64, r *wire.Reply, b []byte, s *Seen) []byte {
	body := b[r.Line.End:r.Size]
	switch {
	case r.Kind == wire.Value && !asked.Has('v'): // it was fetched for its head
		dst, body = append(dst, "HD"...), []byte(wire.CRLF)
	case r.Kind == wire.Value:
		dst = strconv.AppendInt(append(dst, "VA "...), int64(r.Body.Len()), 10)
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
			dst = append(append(dst, " f"...), s.Shown()...)
		case letter == 't' && longer > 0 && s.Left() < 1<<40:
			dst = strconv.AppendInt(append(dst, " t"...), max(s.Left()-longer, 0), 10)
		default:
			dst = append(append(dst, ' '), flag.Of(b)...)
		}
	}
	return append(dst, body...)
}

// AppendBare appends the answer r, whose bytes are b, to an mg of a value with the head h
// as if the value had none.
func AppendBare(dst, b []byte, r *wire.Reply, h stamp.Head) []byte {
	body := r.Body.Of(b)[len(h):]
	dst = strconv.AppendInt(append(dst, "VA "...), int64(len(body)), 10)
	for rest := r.MetaFlags; ; {
		var word wire.Span
		if word, rest = wire.NextKey(b, rest); word.Len() == 0 {
			break
		}
		switch dst = append(dst, ' ', b[word.Start]); b[word.Start] {
		case 'f':
			dst = strconv.AppendUint(dst, uint64(h.Flags()), 10)
		case 's':
			dst = strconv.AppendInt(dst, int64(len(body)), 10)
		default:
			dst = append(dst, b[word.Start+1:word.End]...)
		}
	}
	return append(append(append(dst, wire.CRLF...), body...), wire.CRLF...)
}
