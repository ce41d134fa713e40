package trace

// What has happened to keys, in a line each.

import (
	"fmt"
	"iter"
	"strings"

	"ringside/proxy/watch"
)

// Stories tells what has happened to keys: for each a line of letters, the newest at the
// right. What happens several times in a row, and is a hit, a miss, a count or a lock that is
// refused, is one letter and a number. A lock is a part of the story of what it locks. Behind
// a miss stands what it follows from, if that is known: MX, MF.
type Stories struct {
	Events  int // told so far
	Dropped int // events that there was no room for

	keys, length int // the most of both; of a line that gets longer the end is kept
	by           map[string]*story
	order        []*story // as they began
}

// story is that of one key.
type story struct {
	key   string // or what it locks
	began int64  // Unix milliseconds
	ended int64  // and when something has happened to it last
	text  strings.Builder
	last  string // letter, and what it follows from
	times int    // of that, so far
}

// NewStories makes a Stories of so many keys at most, of each of which that many bytes are
// kept, or a little more.
func NewStories(keys, length int) *Stories {
	return &Stories{keys: keys, length: length, by: map[string]*story{}}
}

// Keys is how many keys it tells of.
func (s *Stories) Keys() int { return len(s.order) }

// Add adds what a Follower was told.
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

// end writes the last letter.
func (of *story) end() {
	of.text.WriteString(of.latest())
	of.last = ""
}

// latest is the last letter.
func (of *story) latest() string {
	switch {
	case of.last == "":
		return ""
	case of.times > 1:
		return fmt.Sprint(" ", of.last, of.times)
	}
	return " " + of.last
}

// Line is the story of a key.
type Line struct {
	Key   string
	Began int64  // Unix milliseconds
	Ended int64  // the same of its last event
	Text  string // with a blank before each letter
}

// Lines are the stories, in the order in which they began.
func (s *Stories) Lines() iter.Seq[Line] {
	return func(yield func(Line) bool) {
		for _, of := range s.order {
			if !yield(Line{of.key, of.began, of.ended, of.text.String() + of.latest()}) {
				return
			}
		}
	}
}
