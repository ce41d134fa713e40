package upstream

// The key in the form that the client knows.

import (
	"bytes"
	"encoding/base64"

	"ringside/proxy/wire"
)

// Renames reports whether a reply must be changed before it is sent to the client: the client
// knows the key by another name, or has requested a key that the server did not return.
func (n *Names) Renames() bool { return n.Strip != "" || n.Echo != nil }

// Rename appends the reply b to dst, with the key in the form that the client knows.
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
	case r.Letters.Has('b') || r.Kind == wire.Item && !bytes.Equal(key, asked): // the item was created with a base64 key
		dst = base64.StdEncoding.AppendEncode(dst, append([]byte(n.Strip), asked...))
	default:
		dst = append(append(dst, n.Strip...), key...)
	}
	return append(dst, b[r.Key.End:]...)
}
