package near

// This file implements the near cache of one loop, and how its commands in flight use it.

import (
	"ringside/proxy/link"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/wire"
)

// Near is the near cache of one loop, for all routes.
type Near struct {
	// On reports whether a route of the current table keeps values, so that writes must be
	// recorded.
	On bool

	from   int64 // values requested before this time (on the loop's clock) are not kept: see Begin
	io     *link.IO
	hash   func(key []byte) uint64 // hash of a key; the same on all loops
	marks  *Marks                  // counts the writes of keys, for all loops; nil until a table has a route that keeps values
	stores map[Name]*Store
	free   link.Free[Lookup]
}

// Name identifies a store. It stays the same after a reload, and is the same for all listeners that
// have the route.
type Name struct{ Pool, Route, Strip string }

// New returns the near cache of one loop. The Near must not be copied after its first use.
func New(io *link.IO, hash func(key []byte) uint64) Near {
	return Near{io: io, hash: hash, stores: map[Name]*Store{}}
}

// Begin starts the adoption of a table, and End ends it. A store is removed if Store is not
// called for it in between. marks are those of the process; nil: no route keeps values. If it
// is nil, the old marks stay in use, because writes in flight still end on the marks on which
// they began.
//
// until is the time at which all writes in flight will have ended. If no route has kept values so
// far, these writes are not recorded. So values are not kept that were requested before that time.
func (n *Near) Begin(marks *Marks, until int64) {
	if marks != nil && !n.On {
		n.from = until
	}
	if n.On = marks != nil; n.On {
		n.marks = marks
	}
	for _, s := range n.stores {
		s.used = false
	}
}

// Store returns the store of a route on this loop. The parameter `most` is its maximum size in
// bytes.
func (n *Near) Store(name Name, settings *table.NearSettings, most int, learned *stats.Near) *Store {
	s := n.stores[name]
	if s == nil {
		s = &Store{io: n.io, marks: n.marks, strip: name.Strip, values: map[uint64]*Value{}}
		n.stores[name] = s
	}
	s.NearSettings, s.Learned, s.most, s.used = *settings, learned, most, true
	for s.held > most {
		s.drop(s.first())
	}
	return s
}

// End ends the adoption of a table. See Begin.
func (n *Near) End() {
	for name, s := range n.stores {
		if !s.used {
			s.clear()
			delete(n.stores, name)
		}
	}
}

// Clear drops all values.
func (n *Near) Clear() {
	for _, s := range n.stores {
		s.clear()
	}
}

// Sweep drops the expired values.
func (n *Near) Sweep() {
	for _, s := range n.stores {
		s.sweep()
	}
}

// Lookup records the keys of a command in flight that matter to the near cache: keys that it writes,
// and keys for which it may fetch a value.
type Lookup struct {
	n     *Near
	asked int64  // when the command arrived, in nanoseconds of the loop's clock
	all   bool   // the command writes all keys
	keys  []held // the keys, in the order in which they were added
	at    int    // index in keys where the key of the next reply is expected
}

// held is one key of a Lookup.
type held struct {
	hash  uint64
	share int32 // index of the command's route in the shares of its Exchange: a share is all keys of a command that one route has
	mark  mark
	store *Store // the store that may keep the value that the command reads; nil: the command writes the key
}

// NewLookup returns a new Lookup for a command.
func (n *Near) NewLookup() *Lookup {
	k := n.free.Take()
	k.n, k.asked = n, n.io.Now
	return k
}

// Asks records that the command requests a key whose value the store s may keep. hash is the
// hash of the key as servers know it. alone means that the command has no other key. Other
// reads may wait only for such a command. Otherwise a read of another key of the same command
// could wait for the command itself.
func (k *Lookup) Asks(s *Store, hash uint64, share int32, alone bool) {
	m := s.marks.of(hash)
	if !m.quiet() || k.asked < k.n.from {
		return
	}
	k.keys = append(k.keys, held{hash, share, m, s})
	if v := s.values[hash]; alone && v != nil && v.asked && v.by == nil {
		v.by = k
	}
}

// Writes records that the command may change key (as servers know it).
func (k *Lookup) Writes(key []byte) {
	h := k.n.hash(key)
	k.n.marks.slot[h%slots].Add(begun)
	k.keys = append(k.keys, held{hash: h})
}

// WritesAll records that the command may change all keys.
func (k *Lookup) WritesAll() {
	k.n.marks.all.Add(begun)
	k.all = true
}

// found keeps a value that the command has fetched. known means that the value was in a meta
// reply without a stale or win flag.
func (k *Lookup) found(share int32, key, flags, data []byte, known bool) {
	h := k.n.hash(key)
	for i := range k.keys {
		at := (k.at + i) % len(k.keys)
		if a := &k.keys[at]; a.hash == h && a.share == share && a.store != nil {
			k.at = at
			a.store.keep(h, a.mark, k.asked, key, flags, data, known)
			return
		}
	}
}

// FoundText keeps the value of the VALUE reply r, which was parsed from b. Most commands have
// no Lookup, so the nil check is inlined here.
func (k *Lookup) FoundText(share int32, r *wire.Reply, b []byte) {
	if k != nil {
		k.foundText(share, r, b)
	}
}

func (k *Lookup) foundText(share int32, r *wire.Reply, b []byte) {
	if r.Key.Len() > 0 { // a meta reply for a base64 key has no key here, and its value is not kept
		k.found(share, r.Key.Of(b), r.ClientFlags.Of(b), r.Body.Of(b), false)
	}
}

// Named returns the key that was requested.
type Named interface{ Named() (key, opaque []byte) }

// FoundShown keeps a value that the command has fetched. flags are the client flags that the
// client sees, which may differ from those that the server sent.
func (k *Lookup) FoundShown(share int32, asked Named, flags, data []byte) {
	if k != nil {
		key, _ := asked.Named()
		k.found(share, key, flags, data, false)
	}
}

// FoundMeta keeps the value of the meta reply r, which was parsed from b. It does nothing if r
// has no value or no flags, or if the server marks the value as stale or to be regenerated.
func (k *Lookup) FoundMeta(share int32, asked Named, r *wire.Reply, b []byte) {
	if k != nil {
		k.foundMeta(share, asked, r, b)
	}
}

func (k *Lookup) foundMeta(share int32, asked Named, r *wire.Reply, b []byte) {
	if r.Kind != wire.Value || !r.Letters.Has('f') || r.Letters.Has('W') || r.Letters.Has('X') || r.Letters.Has('Z') {
		return
	}
	key, _ := asked.Named()
	flags, _ := wire.FlagArg(b, r.MetaFlags, 'f')
	k.found(share, key, flags.Of(b), r.Body.Of(b), true)
}

// Close is called when the command has its reply, or will get none. It releases the Lookup and
// returns nil.
func (k *Lookup) Close() *Lookup {
	if k != nil {
		k.over()
	}
	return nil
}

func (k *Lookup) over() {
	for i := range k.keys {
		if a := &k.keys[i]; a.store == nil {
			k.n.marks.slot[a.hash%slots].Add(ended)
		} else if v := a.store.values[a.hash]; v != nil && v.by == k {
			v.by = nil
			if a.store.over(v) {
				a.store.drop(v)
			}
		}
	}
	if k.all {
		k.n.marks.all.Add(ended)
	}
	keys := k.keys[:0]
	if cap(keys) > manyKeys {
		keys = nil
	}
	n := k.n
	*k = Lookup{keys: keys}
	n.free.Keep(k)
}

// manyKeys is the maximum capacity of keys that an unused Lookup keeps for its next use.
const manyKeys = 64
