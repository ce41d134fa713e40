package stats

// This file has the counters of a route with tags, and the tags of keys that it remembers. Both are
// for all loops together.

import (
	"sync"
	"sync/atomic"

	"ringside/proxy/tags/stamp"
)

// TagEvent is an event on a route with tags.
type TagEvent uint8

// The events on a route with tags.
const (
	TagHit         TagEvent = iota // a value was found, and none of its tags had been invalidated
	TagInvalid                     // a tag of the value was invalidated, or the value lacks a tag that its key must have
	TagBroken                      // the header of a value, which lists its tags, could not be parsed
	TagLateSet                     // a set was not stored because one of its tags may have been invalidated since the miss
	TagSecondRound                 // a value had tags that were not requested together with the value, so their versions needed a second request
	TagTooMany                     // a client named more tags than limits.tags_per_value
	NumTagEvents
)

// TagStats has the counters of one route with tags and the tags of keys that it remembers. It is
// for all loops and reloads of a process.
type TagStats struct {
	Route string // label of the route; see table.Route

	count [NumTagEvents]atomic.Uint64

	mu    sync.RWMutex
	known map[uint64][]stamp.Tag // tags of a key that clients have named and no pattern yields, by the hash of the key
}

// Count counts one event on the route.
func (t *TagStats) Count(e TagEvent) { t.count[e].Add(1) }

// TagSnapshot is a copy of the counters of a route with tags.
type TagSnapshot struct {
	Events [NumTagEvents]uint64
	Known  int // number of keys with remembered tags
}

// Snapshot returns a copy of the counters of the route.
func (t *TagStats) Snapshot() TagSnapshot {
	is := TagSnapshot{Known: t.Remembered()}
	for e := range is.Events {
		is.Events[e] = t.count[e].Load()
	}
	return is
}

// Remember records the tags of a key, for at most `most` keys. The hash identifies the key. If two
// keys have the same hash, some requests ask for more tags than they need.
func (t *TagStats) Remember(hash uint64, tags []stamp.Tag, most int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == nil {
		t.known = map[uint64][]stamp.Tag{}
	}
	if _, ok := t.known[hash]; !ok && len(t.known) >= most {
		for old := range t.known { // deletes a random key, because a map yields its keys in random order
			delete(t.known, old)
			break
		}
	}
	t.known[hash] = tags
}

// AppendKnown appends to dst the tags that are remembered for a key, without duplicates.
func (t *TagStats) AppendKnown(dst []stamp.Tag, hash uint64) []stamp.Tag {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, tag := range t.known[hash] {
		dst = stamp.Add(dst, tag)
	}
	return dst
}

// Remembered returns the number of keys with remembered tags.
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

// InvalidationCounts is a copy of the counts of Invalidations.
type InvalidationCounts struct {
	Taken   Histogram
	Bad     uint64 // number of invalidations that at least one server did not confirm
	Foreign uint64 // number of invalidations while another instance had another server list, so they may not have reached all its servers
}

// Ended counts one invalidation. ns is its duration in nanoseconds. all means that every server has
// confirmed it. foreign means that another instance has another server list.
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

// Snapshot returns a copy of the counts so far.
func (i *Invalidations) Snapshot() InvalidationCounts {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.ended
}

// Metrics of tags. Those for one route have its name as a label.
var (
	tagKeys = PerRoute.Gauge("tags_learned_keys",
		"Keys for which the instance remembers tags that clients named.")
	tagInvalidations = NewHistogram("tags_invalidation_seconds",
		"Time from the start of an invalidation to the reply of the last server, in seconds.")
	tagErrors = NewCounter("tags_invalidation_errors_total",
		"Invalidations that at least one server did not confirm.")
	tagForeign = NewCounter("tags_invalidation_foreign_total",
		"Invalidations while other instances had a different server list for a pool. They may not have reached all servers of these "+
			"instances.")
)

// tagEvents has the metric of each kind of event on a route with tags.
var tagEvents = [NumTagEvents]*Metric{
	TagHit: PerRoute.Counter("tags_hits_total",
		"Values with tags that were found and valid, because none of their tags was invalidated."),
	TagInvalid: PerRoute.Counter("tags_invalid_total",
		"Values that were found but not valid. A tag was invalidated, or a tag that the key must have was missing."),
	TagBroken: PerRoute.Counter("tags_broken_total",
		"Values with a header that could not be parsed. Any value other than 0 usually means that a client stores such values without Ringside."),
	TagLateSet: PerRoute.Counter("tags_late_sets_total",
		"Sets not stored because one of their tags may have been invalidated since the miss."),
	TagSecondRound: PerRoute.Counter("tags_second_round_total",
		"Values found with tags that were not requested together with them, so that a second round trip was needed."),
	TagTooMany: PerRoute.Counter("tags_too_many_total",
		"Storage commands rejected because they have more tags than limits.tags_per_value."),
}

// Figures returns the numbers of the route.
func (t *TagStats) Figures() []Figure {
	is := t.Snapshot()
	list := []Figure{{tagKeys, "", "", is.Known}}
	for e, m := range tagEvents {
		list = append(list, Figure{m, "", "", is.Events[e]})
	}
	return list
}

// Figures returns the numbers of the invalidations.
func (c *InvalidationCounts) Figures() []Figure {
	return []Figure{{tagInvalidations, "", "", &c.Taken}, {tagErrors, "", "", c.Bad}, {tagForeign, "", "", c.Foreign}}
}
