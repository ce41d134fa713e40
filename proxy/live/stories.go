package live

// This file summarizes the events of each traced key in one line.

import (
	"fmt"
	"iter"
	"strings"

	"ringside/proxy/watch"
)

// Stories summarizes the events of traced keys. Each key has a line of letters with the newest
// event at the right. Consecutive hits, misses, increments or refused locks become one letter with
// a number. The events of a lock are in the line of the key that it protects. If the cause of a
// miss is known, it follows the letter: MX, MF.
type Stories struct {
	Events  int // number of events that were added so far
	Dropped int // number of events that were dropped because there was no room for them

	keys, length int // maximum number of keys, and of bytes of a line; a longer line loses its beginning
	by           map[string]*story
	order        []*story // the keys with events, in the order of their first events
}

// story has the events of one key, as letters.
type story struct {
	key   string // the key of the events; for events of a lock, the key that it protects
	began int64  // time of the first event, in Unix milliseconds
	ended int64  // time of the last event, in milliseconds since 1970
	text  strings.Builder
	last  string // letter of the last event, with its cause; it is not in text yet
	times int    // number of consecutive events with the last letter
}

// NewStories returns Stories with the given limits: the number of keys, and about how many bytes
// each line has.
func NewStories(keys, length int) *Stories {
	return &Stories{keys: keys, length: length, by: map[string]*story{}}
}

// Keys returns the number of keys with events.
func (s *Stories) Keys() int { return len(s.order) }

// Add adds the events that a Follower has received. A Follower is a reader of the events of traced
// keys.
func (s *Stories) Add(is *Traced) {
	s.Dropped += is.Dropped
	for i := range is.Rows {
		s.add(&is.Rows[i])
	}
}

func (s *Stories) add(r *Row) {
	s.Events += r.Times
	key := strings.TrimPrefix(string(r.Key), watch.Lock)
	of := s.by[key]
	if of == nil {
		if len(s.order) == s.keys {
			s.Dropped += r.Times
			return
		}
		of = &story{key: key, began: r.T}
		s.by[key], s.order = of, append(s.order, of)
	}
	of.ended = r.T
	letter := r.Letter + r.Cause
	if of.last == letter && strings.Contains("HIMl", r.Letter) {
		of.times += r.Times
		return
	}
	of.end()
	of.last, of.times = letter, r.Times
	if of.text.Len() > 2*s.length {
		kept := of.text.String()
		kept = kept[len(kept)-s.length:]
		of.text.Reset()
		of.text.WriteString(kept[strings.IndexByte(kept, ' '):])
	}
}

// end appends the letter of the last event to the text.
func (of *story) end() {
	of.text.WriteString(of.latest())
	of.last = ""
}

// latest returns the letter of the last event, followed by the number of equal events in a row.
func (of *story) latest() string {
	switch {
	case of.last == "":
		return ""
	case of.times > 1:
		return fmt.Sprint(" ", of.last, of.times)
	}
	return " " + of.last
}

// Line has the events of one key as letters.
type Line struct {
	Key   string
	Began int64  // time of the first event, in Unix milliseconds
	Ended int64  // time of the last event
	Text  string // letters of the events; each is preceded by a space
}

// Lines returns the line of each key, in the order of the keys' first events.
func (s *Stories) Lines() iter.Seq[Line] {
	return func(yield func(Line) bool) {
		for _, of := range s.order {
			if !yield(Line{of.key, of.began, of.ended, of.text.String() + of.latest()}) {
				return
			}
		}
	}
}
