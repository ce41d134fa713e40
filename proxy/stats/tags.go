package stats

// The counters and learned values of a route with tags, over all loops.

import (
	"sync"
	"sync/atomic"

	"ringside/proxy/tags/stamp"
)

// TagEvent is an event on a route with tags.
type TagEvent uint8

// The events.
const (
	TagHit         TagEvent = iota // a value was found, and none of its tags had been invalidated
	TagInvalid                     // a tag of the value was invalidated, or the value lacks a tag that its key must have
	TagBroken                      // the head of a value, which lists its tags, could not be parsed
	TagLateSet                     // a set was not stored because a tag may have been invalidated since its miss
	TagSecondRound                 // a value had tags that were not requested with it, so their versions needed a second request
	TagTooMany                     // a client named more tags than limits.tags_per_value
	NumTagEvents
)

// TagStats is what is known about one route with tags, over all loops and reloads of a
// process.
type TagStats struct {
	Route string // the label of the route: see table.Route

	count [NumTagEvents]atomic.Uint64

	mu    sync.RWMutex
	known map[uint64][]stamp.Tag // tags of a key that no pattern yields, by the hash of the key
}

// Count counts an event.
func (t *TagStats) Count(e TagEvent) { t.count[e].Add(1) }

// Counted returns how often an event happened.
func (t *TagStats) Counted(e TagEvent) uint64 { return t.count[e].Load() }

// Remember records the tags of a key's value. The parameter `most` limits the number of
// keys. Keys are identified by their hash only: if two keys share one, some requests
// ask for more tags than they need.
func (t *TagStats) Remember(hash uint64, tags []stamp.Tag, most int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == nil {
		t.known = map[uint64][]stamp.Tag{}
	}
	if _, ok := t.known[hash]; !ok && len(t.known) >= most {
		for old := range t.known { // the map yields a random key
			delete(t.known, old)
			break
		}
	}
	t.known[hash] = tags
}

// AppendKnown appends the remembered tags of a key, without duplicates.
func (t *TagStats) AppendKnown(dst []stamp.Tag, hash uint64) []stamp.Tag {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, tag := range t.known[hash] {
		dst = stamp.Add(dst, tag)
	}
	return dst
}

// Remembered returns the number of keys with known tags.
func (t *TagStats) Remembered() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.known)
}

// Invalidations counts the tag invalidations of this process.
type Invalidations struct {
	mu    sync.Mutex
	ended InvalidationCounts
}

// InvalidationCounts is a snapshot of Invalidations.
type InvalidationCounts struct {
	Taken   Histogram
	Bad     uint64 // at least one server did not get it
	Foreign uint64 // other instances have another server list, so it may not have reached all of their servers
}

// Ended counts one invalidation. ns is how long it took, all whether every server got
// it, foreign whether other instances may know more servers.
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

// Snapshot returns the counts so far.
func (i *Invalidations) Snapshot() InvalidationCounts {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.ended
}
