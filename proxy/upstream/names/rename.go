package names

// The key as the client knows it.

import (
	"bytes"
	"encoding/base64"

	"ringside/proxy/wire"
)

// Renames says whether a reply must be changed before the client gets it: the
// client knows the key by another name, or has asked to see it and the server was
// not asked.
func (n *Names) Renames() bool { return n.Strip != "" || n.Echo != nil }

// Rename appends the reply b to dst with the key as the client knows it.
func (n *Names) Rename(dst, b []byte, r *wire.Reply) []byte {
	if n.Echo != nil {
		if here, ok := n.Echo.At(b, r); ok {
			return append(append(append(dst, b[:here]...), n.Echo.Text...), b[here:]...)
		}
	}
	asked, _ := n.Named()
	key := r.Key.Of(b)
	dst = append(dst, b[:r.Key.Start]...)
	switch {
	case len(key) == 0:
	case r.Letters.Has('b') || r.Kind == wire.Item && !bytes.Equal(key, asked): // the item was made in base64
		dst = base64.StdEncoding.AppendEncode(dst, append([]byte(n.Strip), asked...))
	default:
		dst = append(append(dst, n.Strip...), key...)
	}
	return append(dst, b[r.Key.End:]...)
}
