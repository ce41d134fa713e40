// What a proxy remembers about single keys for a while: who missed a write,
// and what was deleted a moment ago.

package replicate

// DirtyKeys remembers which keys members have missed a write to. Its capacity
// is fixed. Not safe for concurrent use.
type DirtyKeys struct{}

// NewDirtyKeys returns a table for up to capacity keys.
func NewDirtyKeys(capacity int) *DirtyKeys { panic("not yet") }

// Add says that server missed a write to the key with this hash. false: there
// is no room, so the whole member is incomplete and must be flushed or warmed.
func (d *DirtyKeys) Add(server int, key uint64) bool { panic("not yet") }

// Has reports whether server missed a write to the key.
func (d *DirtyKeys) Has(server int, key uint64) bool { panic("not yet") }

// Remove says that the server's copy is repaired or gone.
func (d *DirtyKeys) Remove(server int, key uint64) { panic("not yet") }

// Forget removes all keys of a server: it was flushed.
func (d *DirtyKeys) Forget(server int) { panic("not yet") }

// Len is the number of keys of a server.
func (d *DirtyKeys) Len(server int) int { panic("not yet") }

// Tombstones remembers keys that were deleted a moment ago, so that nobody
// repairs them from a copy that was read before. Not safe for concurrent use.
type Tombstones struct{}

// NewTombstones returns a table that remembers at least the last capacity keys.
func NewTombstones(capacity int) *Tombstones { panic("not yet") }

// Add says that the key was deleted; until is when that is forgotten, in the
// caller's unit of time.
func (t *Tombstones) Add(key uint64, until int64) { panic("not yet") }

// Has reports whether the key was deleted and that is not yet forgotten.
func (t *Tombstones) Has(key uint64, now int64) bool { panic("not yet") }
