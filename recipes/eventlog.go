package recipes

// A log of events, in keys that die by themselves.

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Event is what a log keeps.
type Event struct {
	Time time.Time
	Data []byte
	id   eventID
}

// eventID tells an event from all others: a record that is found twice is one event.
type eventID [8]byte

// EventLog keeps events of the last while: one key for each chunk of time, written
// by append. The number of the chunk is in the key, and a key's expiry is counted
// from the chunk's start, so a late event neither keeps its key alive into another
// round nor goes with it. A key that is full is followed by a second one, and so
// on.
//
// Guarantee: while no key is lost, each event whose Put succeeds is read once by
// Fetch, and once by who polls from cursor to cursor, as long as polls are closer
// than the log is long. An append that ends with an error is sent again, twice at
// most: the event has a number of its own by which readers know it again. A Put
// that ends with an error may have written its event.
//
// Cost in round trips: Put 1 (2 for the first of a chunk; 5, and without a Sizer
// a read of the key, when one is full), Fetch and Poll 1: a multi-get of all parts
// of all chunks that may hold something.
//
// On one copy the loss of a server loses the chunks that it had, and what was
// written to others meanwhile is lost when an ejection ends; what is there is
// never read twice. On two copies the loss of one server keeps them; what
// copies can't do is in Ringside's docs/failover.md, and no reader can tell where that
// costs events.
type EventLog struct {
	s     *Store
	name  string
	chunk time.Duration
	o     EventLogOptions

	mu   sync.Mutex
	full map[int64]int // chunks, and how many of their parts this process knows to be full
}

// EventLogOptions say how much a log keeps.
type EventLogOptions struct {
	Chunk  time.Duration // time in one key, whole seconds; 1 minute unless set
	Chunks int           // whole chunks that are kept; 10 unless set, 1000 at most
	Parts  int           // keys that one chunk may fill; 4 unless set, 64 at most. A read asks for Chunks × Parts keys
	Late   time.Duration // how old an event may be at its Put; unless set, as old as the log. A Poll reads no chunk that was closed so long before the last one
}

const (
	maxChunks    = 1000
	maxParts     = 64
	recordHead   = len(eventID{}) + 8 // and the length of the data
	putTries     = 3
	chunksOfLead = 1 // chunks that an event may be ahead of this process's clock
)

// NewEventLog is a log with a name.
func NewEventLog(s *Store, name string, o EventLogOptions) (*EventLog, error) {
	o.Chunk, o.Chunks, o.Parts = cmp.Or(o.Chunk, time.Minute), cmp.Or(o.Chunks, 10), cmp.Or(o.Parts, 4)
	if o.Chunks < 1 || o.Chunks > maxChunks || o.Parts < 1 || o.Parts > maxParts {
		return nil, fmt.Errorf("recipes: log %s of %d chunks of %d parts; at most %d and %d are possible: %w", name, o.Chunks, o.Parts, maxChunks, maxParts, ErrArgument)
	}
	if o.Chunk < time.Second || o.Chunk%time.Second != 0 {
		return nil, fmt.Errorf("recipes: log %s with chunks of %v; whole seconds are needed: %w", name, o.Chunk, ErrExpiry)
	}
	if o.Late < 0 {
		return nil, fmt.Errorf("recipes: log %s takes events that are %v late: %w", name, o.Late, ErrArgument)
	}
	if o.Late == 0 {
		o.Late = time.Duration(o.Chunks+1) * o.Chunk
	}
	if _, err := expiry("what log "+name+" keeps", time.Duration(o.Chunks+chunksOfLead+1)*o.Chunk+slack); err != nil {
		return nil, err
	}
	if err := s.checkName("log", name, "log", strconv.FormatInt(1<<62, 10), "63"); err != nil {
		return nil, err
	}
	return &EventLog{s: s, name: name, chunk: o.Chunk, o: o, full: map[int64]int{}}, nil
}

func (l *EventLog) number(t time.Time) int64 { return floor(t.Unix(), int64(l.chunk/time.Second)) }

func (l *EventLog) key(chunk int64, part int) string {
	return l.s.key("log", l.name, strconv.FormatInt(chunk, 10), strconv.Itoa(part))
}

// kept are the first and the last chunk that the log keeps now.
func (l *EventLog) kept() (first, last int64) {
	now := l.number(l.s.now())
	return now - int64(l.o.Chunks), now + chunksOfLead
}

// Put writes an event; a zero Time is now. ErrTime says that its time is not one
// that the log keeps, ErrFull that all parts of its chunk are full.
func (l *EventLog) Put(ctx context.Context, e Event) error {
	if e.Time.IsZero() {
		e.Time = l.s.now()
	}
	chunk := l.number(e.Time)
	if first, last := l.kept(); chunk < first || chunk > last || l.s.now().Sub(e.Time) > l.o.Late {
		return fmt.Errorf("recipes: log %s, event of %v: %w", l.name, e.Time, ErrTime)
	}
	end := time.Unix((chunk+1+int64(l.o.Chunks))*int64(l.chunk/time.Second), 0)
	seconds, err := expiry("expiry", end.Sub(l.s.now())+slack)
	if err != nil {
		return err
	}
	rand.Read(e.id[:])
	data := e.write()
	for part := l.firstPart(chunk); part < l.o.Parts; part++ {
		if err = l.put(ctx, l.key(chunk, part), data, seconds); !errors.Is(err, ErrFull) {
			return err
		}
		l.setFull(chunk, part)
	}
	if err == nil {
		err = fmt.Errorf("recipes: log %s: all %d parts of a chunk: %w", l.name, l.o.Parts, ErrFull)
	}
	return err
}

// put appends a record's bytes, again where it is not known whether it is there.
func (l *EventLog) put(ctx context.Context, key string, data []byte, seconds int32) (err error) {
	for i := range putTries {
		err = l.s.appendTo(ctx, key, data, seconds)
		for _, sure := range []error{nil, ErrFull, ErrTooLarge, ErrContended, context.Canceled, context.DeadlineExceeded} {
			if errors.Is(err, sure) {
				return err
			}
		}
		if wait := pause(ctx, 3+i); wait != nil {
			return errors.Join(err, wait)
		}
	}
	return err
}

func (l *EventLog) firstPart(chunk int64) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.full[chunk]
}

func (l *EventLog) setFull(chunk int64, part int) {
	first, _ := l.kept()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.full[chunk] = max(l.full[chunk], part+1)
	for old := range l.full {
		if old < first {
			delete(l.full, old)
		}
	}
}

// write is the event as a record: number, time, length, data.
func (e Event) write() []byte {
	b := append(make([]byte, 0, recordHead+binary.MaxVarintLen64+len(e.Data)), e.id[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(e.Time.UnixNano()))
	b = binary.AppendUvarint(b, uint64(len(e.Data)))
	return append(b, e.Data...)
}

// parseRecord reads the first event of data, and how many bytes it has.
func parseRecord(data []byte) (e Event, n int, ok bool) {
	if len(data) < recordHead {
		return e, 0, false
	}
	copy(e.id[:], data)
	e.Time = time.Unix(0, int64(binary.BigEndian.Uint64(data[len(e.id):])))
	length, used := binary.Uvarint(data[recordHead:])
	n = recordHead + used
	if used <= 0 || uint64(len(data)-n) < length {
		return e, 0, false
	}
	e.Data = bytes.Clone(data[n : n+int(length)])
	return e, n + int(length), true
}

// Fetch reads the events from first to last, both included, by their time.
func (l *EventLog) Fetch(ctx context.Context, first, last time.Time) ([]Event, error) {
	from, to := l.kept()
	keys := l.keys(max(from, l.number(first)), min(to, l.number(last)))
	events := []Event{}
	seen := map[eventID]bool{}
	err := l.read(ctx, keys, func(_ string, e Event) {
		if !seen[e.id] && !e.Time.Before(first) && !e.Time.After(last) {
			seen[e.id] = true
			events = append(events, e)
		}
	})
	slices.SortStableFunc(events, func(a, b Event) int { return a.Time.Compare(b.Time) })
	return events, err
}

// keys are those of chunks.
func (l *EventLog) keys(from, to int64) (keys []string) {
	for chunk := from; chunk <= to; chunk++ {
		for part := range l.o.Parts {
			keys = append(keys, l.key(chunk, part))
		}
	}
	return keys
}

// read walks the events of keys; one that was written twice comes twice.
func (l *EventLog) read(ctx context.Context, keys []string, each func(key string, e Event)) error {
	if len(keys) == 0 {
		return nil
	}
	items, err := l.s.getMulti(ctx, keys)
	if err != nil {
		return err
	}
	for _, key := range keys {
		item := items[key]
		if item == nil {
			continue
		}
		for rest := item.Value; len(rest) > 0; {
			e, n, ok := parseRecord(rest)
			if !ok {
				return fmt.Errorf("recipes: %s: byte %d: %w", key, len(item.Value)-len(rest), ErrCorrupt)
			}
			each(key, e)
			rest = rest[n:]
		}
	}
	return nil
}

// Cursor is what a reader has read: the numbers of the events, not a place in a
// key, as a key's end may be lost with a server that nobody had copied it from, and
// be written anew by others. It has 8 bytes for each event in the chunks that the
// next Poll asks for. The zero value has read nothing. It can be written as JSON and
// used by another process.
type Cursor struct {
	Time time.Time         // of the poll
	Seen map[string][]byte // numbers of events, by key
}

// Poll reads the events that were written since the cursor, in the order of
// chunks and, within one, of writing, and returns the cursor behind them. Events
// that come late, or from a clock that is behind, are found too. With an error
// the cursor stays where it was.
func (l *EventLog) Poll(ctx context.Context, since Cursor) ([]Event, Cursor, error) {
	from, to := l.kept()
	next := Cursor{Time: l.s.now(), Seen: map[string][]byte{}}
	if !since.Time.IsZero() {
		from = max(from, l.number(since.Time.Add(-l.o.Late-slack)))
	}
	keys := l.keys(from, to)
	seen := map[eventID]bool{}
	for _, key := range keys { // also of one that is not there now: its server may only hang
		for ids := range slices.Chunk(since.Seen[key], len(eventID{})) {
			seen[eventID(ids)] = true
		}
		if ids := since.Seen[key]; len(ids) > 0 {
			next.Seen[key] = bytes.Clone(ids)
		}
	}
	events := []Event{}
	err := l.read(ctx, keys, func(key string, e Event) {
		if !seen[e.id] {
			seen[e.id] = true
			events = append(events, e)
			next.Seen[key] = append(next.Seen[key], e.id[:]...)
		}
	})
	if err != nil {
		return nil, since, err
	}
	return events, next, nil
}
