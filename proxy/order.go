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
	first  map[string]int // by key: its first value not sent yet
}

type orderedValue struct {
	block queue // VALUE line and data
	next  int   // the next value of the same key; -1: none
}

// orderKeys makes x answer in the order of the keys of the request in e.req.
func (x *Exchange) orderKeys(e *Engine, raw []byte) {
	x.order = &ordered{keys: append([]byte(nil), e.req.Keys.Of(raw)...), first: map[string]int{}}
}

// keep takes the block of one value of the key that the client knows as key.
func (o *ordered) keep(e *Engine, key string, block []byte) {
	v := orderedValue{next: -1}
	v.block.append(&e.pool, block)
	o.values = append(o.values, v)
	at := len(o.values) - 1
	if i, ok := o.first[key]; ok { // asked for twice
		for o.values[i].next >= 0 {
			i = o.values[i].next
		}
		o.values[i].next = at
		return
	}
	o.first[key] = at
}

// send moves the values to q in the order of the keys.
func (o *ordered) send(e *Engine, q *queue) {
	rest := wire.Span{End: uint32(len(o.keys))}
	for {
		var key wire.Span
		if key, rest = wire.NextKey(o.keys, rest); key.Len() == 0 {
			return
		}
		name := string(key.Of(o.keys))
		i, ok := o.first[name]
		if !ok || i < 0 {
			continue
		}
		o.first[name] = o.values[i].next
		o.values[i].block.moveTo(&e.pool, q)
	}
}

// drop lets go of what was not sent.
func (o *ordered) drop(e *Engine) {
	for i := range o.values {
		o.values[i].block.drop(&e.pool)
	}
}
