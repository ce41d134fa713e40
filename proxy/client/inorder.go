package client

// Reads of many keys whose values go to the client in the order of its keys.

import (
	"ringside/proxy/link"
	"ringside/proxy/wire"
)

// inOrder keeps the values of one read of many keys until all servers have
// answered. Cache::Memcached::Fast reads an answer key by key and takes a
// value that comes out of order for a miss; twemproxy answers in order. It
// costs the wait for the slowest server and a copy of the keys.
type inOrder struct {
	keys   []byte                // of the request, as the client wrote them
	Values []inOrderValue        // as they came
	of     map[string]inOrderKey // where in Values those of a key are, as the client knows it
	Held   int                   // bytes beside the values' own
}

type inOrderValue struct {
	Block link.Queue // VALUE line and data
	next  int        // the next value of the same key, which was asked for twice; -1: none
}

// inOrderKey is where the values of one key are: the first that is not sent
// yet, -1 if there is none, and the last.
type inOrderKey struct{ first, last int }

// KeepOrder makes x answer in the order of the keys of the request in e.Req, whose
// bytes are raw.
func (x *Exchange) KeepOrder(raw []byte) {
	x.InOrder = &inOrder{keys: append([]byte(nil), x.e.Req.Keys.Of(raw)...), of: map[string]inOrderKey{}}
	x.InOrder.hold(&x.e.Buffers, len(x.InOrder.keys))
}

// hold counts n more bytes, or fewer.
func (o *inOrder) hold(p *link.Buffers, n int) {
	o.Held += n
	p.Hold(n)
}

// Keep takes the block of one value of the key that the client knows as key.
func (o *inOrder) Keep(p *link.Buffers, key string, block []byte) {
	v := inOrderValue{next: -1}
	v.Block.Append(p, block)
	o.hold(p, valueSize+len(key))
	o.Values = append(o.Values, v)
	at := len(o.Values) - 1
	k, ok := o.of[key]
	if ok {
		o.Values[k.last].next = at
	} else {
		k.first = at
	}
	k.last = at
	o.of[key] = k
}

// send moves the values to q in the order of the keys.
func (o *inOrder) send(p *link.Buffers, q *link.Queue) {
	rest := wire.Span{End: uint32(len(o.keys))}
	for {
		var key wire.Span
		if key, rest = wire.NextKey(o.keys, rest); key.Len() == 0 {
			return
		}
		name := string(key.Of(o.keys))
		k, ok := o.of[name]
		if !ok || k.first < 0 {
			continue
		}
		o.Values[k.first].Block.MoveTo(p, q)
		k.first = o.Values[k.first].next
		o.of[name] = k
	}
}

// drop lets go of what was not sent.
func (o *inOrder) drop(p *link.Buffers) {
	for i := range o.Values {
		o.Values[i].Block.Drop(p)
	}
	o.hold(p, -o.Held)
}
