package near

// What one loop keeps, and what its commands in flight have to do with that.

import (
	"ringside/proxy/link"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/wire"
)

// Near is what one loop keeps of all routes.
type Near struct {
	// On says that a route of the table in force keeps values, so that writes must be told.
	On bool

	io     *link.IO
	hash   func(key []byte) uint64 // the same on all loops
	marks  *Marks                  // of the process; nil until a table has a route that keeps values
	stores map[Name]*Store
	free   *Stake // kept for reuse
}

// Name says which store is meant: over reloads, and for all listeners that have the
// route.
type Name struct{ Pool, Route, Strip string }

// New keeps values for one loop. It must not be copied once it is used.
func New(io *link.IO, hash func(key []byte) uint64) Near {
	return Near{io: io, hash: hash, stores: map[Name]*Store{}}
}

// Begin begins to take up a table, and End ends it: stores that were not asked for in
// between are no more. marks are those of the process; nil: no route keeps values. Writes
// that are in flight then still end on the marks on which they began, so these stay.
func (n *Near) Begin(marks *Marks) {
	if n.On = marks != nil; n.On {
		n.marks = marks
	}
	for _, s := range n.stores {
		s.used = false
	}
}

// Store is that of a route, which may keep so many bytes here.
func (n *Near) Store(name Name, settings *table.Near, most int, learned *stats.Near) *Store {
	s := n.stores[name]
	if s == nil {
		s = &Store{io: n.io, marks: n.marks, strip: name.Strip, values: map[uint64]*Value{}}
		n.stores[name] = s
	}
	s.Near, s.Learned, s.most, s.used = *settings, learned, most, true
	for s.held > most {
		s.drop(s.first)
	}
	return s
}

// End ends Begin.
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

// Sweep drops the values that are over.
func (n *Near) Sweep() {
	for _, s := range n.stores {
		s.sweep()
	}
}

// Stake is what a command in flight has to do with what is kept: keys that it writes,
// and keys whose values it may bring.
type Stake struct {
	n     *Near
	asked int64  // when the command was taken up
	all   bool   // it writes all keys
	keys  []held // in the order in which they were added
	at    int    // where the next answer is expected
	next  *Stake // in the list of free ones
}

// held is a key of a Stake.
type held struct {
	hash  uint64
	share int32 // of the exchange: which route it is of
	mark  mark
	store *Store // that may keep its value; nil: it is written
}

// Stake begins what a command has to do with what is kept.
func (n *Near) Stake() *Stake {
	k := n.free
	if k == nil {
		k = &Stake{n: n}
	} else {
		n.free, k.next = k.next, nil
	}
	k.asked = n.io.Now
	return k
}

// Asks says that the command asks a server for a key, of that share and as servers know
// it, whose value s may keep. Others can wait for it if it asks for that key alone: else
// one that is a part of the command itself might.
func (k *Stake) Asks(s *Store, hash uint64, share int32, alone bool) {
	m := s.marks.of(hash)
	if !m.quiet() {
		return
	}
	k.keys = append(k.keys, held{hash, share, m, s})
	if v := s.values[hash]; alone && v != nil && v.asked && v.by == nil {
		v.by = k
	}
}

// Writes says that the command may change a key, as servers know it.
func (k *Stake) Writes(key []byte) {
	h := k.n.hash(key)
	k.n.marks.slot[h%slots].Add(begun)
	k.keys = append(k.keys, held{hash: h})
}

// WritesAll says that the command may change all keys.
func (k *Stake) WritesAll() {
	k.n.marks.all.Add(begun)
	k.all = true
}

// found keeps a value that the command has found; known says that it was asked for in
// meta, and nothing was said of it.
func (k *Stake) found(share int32, key, flags, data []byte, known bool) {
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

// FoundText keeps the value that the reply r is, a VALUE, whose bytes are b. Most commands
// have no stake: all that is asked of one that is nil is nothing, where it stands.
func (k *Stake) FoundText(share int32, r *wire.Reply, b []byte) {
	if k != nil {
		k.foundText(share, r, b)
	}
}

func (k *Stake) foundText(share int32, r *wire.Reply, b []byte) {
	if r.Key.Len() > 0 { // else it is one in meta, of a key in base64
		k.found(share, r.Key.Of(b), r.ClientFlags.Of(b), r.Body.Of(b), false)
	}
}

// Named is who knows what key was asked for.
type Named interface{ Named() (key, opaque []byte) }

// FoundShown keeps a value that the client is shown with these flags, whatever the
// server has said.
func (k *Stake) FoundShown(share int32, asked Named, flags, data []byte) {
	if k != nil {
		key, _ := asked.Named()
		k.found(share, key, flags, data, false)
	}
}

// FoundMeta keeps the value that the reply r may be, whose bytes are b, if the server says
// nothing else of it: not that it is old, or to be made anew.
func (k *Stake) FoundMeta(share int32, asked Named, r *wire.Reply, b []byte) {
	if k != nil {
		k.foundMeta(share, asked, r, b)
	}
}

func (k *Stake) foundMeta(share int32, asked Named, r *wire.Reply, b []byte) {
	if r.Kind != wire.Value || !r.Letters.Has('f') || r.Letters.Has('W') || r.Letters.Has('X') || r.Letters.Has('Z') {
		return
	}
	key, _ := asked.Named()
	flags, _ := wire.FlagArg(b, r.MetaFlags, 'f')
	k.found(share, key, flags.Of(b), r.Body.Of(b), true)
}

// Over says that the command has its answer, or that it will get none. Then it has no
// stake any more: nil.
func (k *Stake) Over() *Stake {
	if k != nil {
		k.over()
	}
	return nil
}

func (k *Stake) over() {
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
	*k = Stake{n: k.n, keys: keys, next: k.n.free}
	k.n.free = k
}

// manyKeys is of how many keys a Stake keeps room when it is not used.
const manyKeys = 64
