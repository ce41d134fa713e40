package upstream

// This file changes the key in a reply to the form that the client knows.

import (
	"bytes"
	"encoding/base64"

	"ringside/proxy/wire"
)

// Renames reports whether the key in a reply must be changed before the reply is sent to the client:
// the route has removed a prefix from the client's key, or the server does not return the key that
// the client has requested.
func (n *Names) Renames() bool { return n.Strip != "" || n.Echo != nil }

// Rename appends to dst the reply b, parsed into r, with the key in the form that the client knows.
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
