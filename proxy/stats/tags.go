package stats

// What a route with tags has counted and learned, over all loops.

import (
	"sync"
	"sync/atomic"

	"ringside/proxy/tags/stamp"
)

// TagEvent is what happens on a route with tags.
type TagEvent uint8

// The events.
const (
	TagHit         TagEvent = iota // a value with tags was found, and all of them were the same still
	TagInvalid                     // a tag had changed since, or a tag was missing that the key must have
	TagBroken                      // its head could not be read
	TagUnordered                   // a set was not stored: a tag may have changed since its miss
	TagSecondRound                 // a value had tags that were not asked for with it
	TagTooMany                     // a client named more than limits.tags_per_value
	NumTagEvents
)

// Tags is one route with tags, over all loops and tables of a process.
type Tags struct {
	Route string // its label: see table.Route

	count [NumTagEvents]atomic.Uint64

	mu    sync.RWMutex
	known map[uint64][]stamp.Tag // of keys, by hash: tags that no pattern says
}

// Count counts an event.
func (t *Tags) Count(e TagEvent) { t.count[e].Add(1) }

// Counted is how often an event has happened.
func (t *Tags) Counted(e TagEvent) uint64 { return t.count[e].Load() }

// Remember notes which tags the value of a key has had, of at most so many keys.
// Keys are told apart by their hash alone: who shares one asks for more tags than it
// needs.
func (t *Tags) Remember(hash uint64, tags []stamp.Tag, most int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == nil {
		t.known = map[uint64][]stamp.Tag{}
	}
	if _, ok := t.known[hash]; !ok && len(t.known) >= most {
		for old := range t.known { // any
			delete(t.known, old)
			break
		}
	}
	t.known[hash] = tags
}

// AppendKnown appends the tags that the value of a key has had, each once.
func (t *Tags) AppendKnown(dst []stamp.Tag, hash uint64) []stamp.Tag {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, tag := range t.known[hash] {
		dst = stamp.Add(dst, tag)
	}
	return dst
}

// Remembered is of how many keys the tags are known.
func (t *Tags) Remembered() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.known)
}

// Invalidations are those of tags, by this process.
type Invalidations struct {
	mu    sync.Mutex
	ended InvalidationCounts
}

// InvalidationCounts is what was counted of invalidations.
type InvalidationCounts struct {
	Taken   Histogram
	Bad     uint64 // a server has not got it
	Foreign uint64 // other Ringsides have another list of servers: it may not have reached all of theirs
}

// Ended counts one that took so long, whether all servers have it, and whether other
// Ringsides may know more of them.
func (i *Invalidations) Ended(ns int64, all, foreign bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ended.Taken.Observe(ns)
	if !all {
		i.ended.Bad++
	}
	if foreign {
		i.ended.Foreign++
	}
}

// Snapshot is what was counted so far.
func (i *Invalidations) Snapshot() InvalidationCounts {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.ended
}
