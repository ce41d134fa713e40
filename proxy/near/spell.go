package near

// This file builds replies to mg from kept values.

import (
	"strconv"

	"ringside/proxy/wire"
)

// spelled are the meta flags of an mg that a kept value can answer. Their results do not change as
// long as the value does not change.
const spelled wire.Letters = 1<<('v'-'A') | 1<<('f'-'A') | 1<<('s'-'A') | 1<<('k'-'A') | 1<<('O'-'A') | 1<<('q'-'A')

// Fits reports whether a kept value can answer r, an mg.
func Fits(r *wire.Request) bool { return r.Letters&^spelled == 0 }

// Append appends to dst the reply to r with the value v. r is an mg that Fits and was parsed
// from buf.
func (v *Value) Append(dst, buf []byte, r *wire.Request) []byte {
	shown := r.Letters.Has('v')
	if shown {
		dst = strconv.AppendInt(append(dst, "VA "...), int64(len(v.Data)), 10)
	} else {
		dst = append(dst, "HD"...)
	}
	for t, rest := wire.NextKey(buf, r.MetaFlags); t.Len() > 0; t, rest = wire.NextKey(buf, rest) {
		switch buf[t.Start] {
		case 'f':
			dst = append(append(dst, " f"...), v.Flags...)
		case 's':
			dst = strconv.AppendInt(append(dst, " s"...), int64(len(v.Data)), 10)
		case 'k':
			dst = append(append(dst, " k"...), r.Key.Of(buf)...)
		case 'O':
			dst = append(append(dst, ' '), t.Of(buf)...)
		}
	}
	dst = append(dst, wire.CRLF...)
	if shown {
		dst = append(append(dst, v.Data...), wire.CRLF...)
	}
	return dst
}
