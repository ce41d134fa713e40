package near

// This file builds replies to mg from kept values.

import "ringside/proxy/wire"

// spelled are the meta flags of an mg that a kept value can answer. Their results do not change as
// long as the value does not change.
const spelled wire.Letters = 1<<('v'-'A') | 1<<('f'-'A') | 1<<('s'-'A') | 1<<('k'-'A') | 1<<('O'-'A') | 1<<('q'-'A')

// Fits reports whether a kept value can answer r, an mg.
func Fits(r *wire.Request) bool { return r.Letters&^spelled == 0 }

// Append appends to dst the reply to r with the value v. r is an mg that Fits and was parsed
// from buf.
func (v *Value) Append(dst, buf []byte, r *wire.Request) []byte {
	return wire.AppendShown(dst, buf, r, v.Data, v.Flags, nil)
}
