package replicate

// What is remembered about single keys for a while: who missed a write. Keys are known
// by their hash; two that collide cost a needless lookup or a repair that is not made.

// DirtyKeys remembers the keys to which one server has missed a write. Its room
// is fixed. It is not safe for concurrent use.
type DirtyKeys struct {
	keys     map[uint64]struct{}
	capacity int
	overflow bool
}

// NewDirtyKeys returns an empty table with room for capacity keys.
func NewDirtyKeys(capacity int) *DirtyKeys {
	return &DirtyKeys{keys: make(map[uint64]struct{}), capacity: capacity}
}

// Add says that the server missed a write to key. false: there was no room for
// it. Then all keys count as dirty until Clear: only a flush makes the server right
// again.
func (d *DirtyKeys) Add(key uint64) bool {
	if _, ok := d.keys[key]; ok || d.overflow {
		return !d.overflow
	}
	if len(d.keys) >= d.capacity {
		d.overflow = true
		return false
	}
	d.keys[key] = struct{}{}
	return true
}

// Has reports whether the server may have missed a write to key.
func (d *DirtyKeys) Has(key uint64) bool {
	if d.overflow {
		return true
	}
	if len(d.keys) == 0 {
		return false // nearly always
	}
	_, ok := d.keys[key]
	return ok
}

// Remove says that the server's copy of key is repaired or gone.
func (d *DirtyKeys) Remove(key uint64) { delete(d.keys, key) }

// Clear forgets everything: the server was flushed.
func (d *DirtyKeys) Clear() {
	clear(d.keys)
	d.overflow = false
}

// Len is the number of keys that are remembered.
func (d *DirtyKeys) Len() int { return len(d.keys) }
