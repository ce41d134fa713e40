package proxy

// Reads of many keys whose values go to the client in the order of its keys.

import "ringside/proxy/wire"

// ordered keeps the values of one read of many keys until all servers have
// answered. Cache::Memcached::Fast reads an answer key by key and takes a
// value that comes out of order for a miss; twemproxy answers in order. It
// costs the wait for the slowest server and a copy of the keys.
type ordered struct {
	keys   []byte // as the client wrote them
	values []orderedValue
	of     map[string]orderedKey
	held   int // bytes beside the values' blocks
}

type orderedValue struct {
	block queue // VALUE line and data
	next  int   // the next value of the same key, which was asked for twice; -1: none
}

// orderedKey is where the values of one key are: the first that is not sent
// yet, -1 if there is none, and the last.
type orderedKey struct{ first, last int }

// orderKeys makes x answer in the order of the keys of the request in e.req.
func (x *Exchange) orderKeys(raw []byte) {
	x.order = &ordered{keys: append([]byte(nil), x.e.req.Keys.Of(raw)...), of: map[string]orderedKey{}}
	x.order.hold(&x.e.pool, len(x.order.keys))
}

func (o *ordered) hold(p *pool, n int) {
	o.held += n
	p.hold(n)
}

// keep takes the block of one value of the key that the client knows as key.
func (o *ordered) keep(p *pool, key string, block []byte) {
	v := orderedValue{next: -1}
	v.block.append(p, block)
	o.hold(p, valueSize+len(key))
	o.values = append(o.values, v)
	at := len(o.values) - 1
	k, ok := o.of[key]
	if ok {
		o.values[k.last].next = at
	} else {
		k.first = at
	}
	k.last = at
	o.of[key] = k
}

// send moves the values to q in the order of the keys.
func (o *ordered) send(p *pool, q *queue) {
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
		o.values[k.first].block.moveTo(p, q)
		k.first = o.values[k.first].next
		o.of[name] = k
	}
}

// drop lets go of what was not sent.
func (o *ordered) drop(p *pool) {
	for i := range o.values {
		o.values[i].block.drop(p)
	}
	o.hold(p, -o.held)
}
