package live

// This file summarizes the events of each key in one line.

import (
	"fmt"
	"iter"
	"strings"

	"ringside/proxy/watch"
)

// Stories summarizes the events of keys: for each key a line of letters, newest at the
// right. Consecutive hits, misses, counts or refused locks become one letter with a
// number. A lock belongs to the story of the key that it locks. The cause of a miss
// follows its letter, if it is known: MX, MF.
type Stories struct {
	Events  int // events added so far
	Dropped int // events without room

	keys, length int // limits; of a longer line the end is kept
	by           map[string]*story
	order        []*story // in the order of their first events
}

// story is the summary of one key.
type story struct {
	key   string // the key, or the key that a lock protects
	began int64  // time of the first event, in Unix milliseconds
	ended int64  // time of the last event
	text  strings.Builder
	last  string // last letter and its cause
	times int    // number of consecutive events with it
}

// NewStories returns Stories for up to keys keys, with about length bytes for each.
func NewStories(keys, length int) *Stories {
	return &Stories{keys: keys, length: length, by: map[string]*story{}}
}

// Keys returns the number of keys.
func (s *Stories) Keys() int { return len(s.order) }

// Add adds the rows that a Follower (a reader of traced events) has received.
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

// end appends the pending letter, which stands for the last event, to the text.
func (of *story) end() {
	of.text.WriteString(of.latest())
	of.last = ""
}

// latest formats the pending letter, and how often its event has happened in a row.
func (of *story) latest() string {
	switch {
	case of.last == "":
		return ""
	case of.times > 1:
		return fmt.Sprint(" ", of.last, of.times)
	}
	return " " + of.last
}

// Line is the summary of one key.
type Line struct {
	Key   string
	Began int64  // time of the first event, in Unix milliseconds
	Ended int64  // time of the last event
	Text  string // each letter is preceded by a space
}

// Lines returns the lines in the order of their first events.
func (s *Stories) Lines() iter.Seq[Line] {
	return func(yield func(Line) bool) {
		for _, of := range s.order {
			if !yield(Line{of.key, of.began, of.ended, of.text.String() + of.latest()}) {
				return
			}
		}
	}
}
