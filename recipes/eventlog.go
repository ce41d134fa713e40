package recipes

// This file contains EventLog, a log of events in keys that expire by themselves.

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

// Event is an entry of an EventLog.
type Event struct {
	Time time.Time
	Data []byte
	id   eventID
}

// eventID identifies an event. Two records with the same ID are the same event, written
// twice.
type eventID [8]byte

// EventLog keeps recent events. It uses one key for each chunk of time, written by
// append. The key contains the number of the chunk. Its expiry depends only on the end
// of the chunk, so a late event does not prolong the life of the key. When a key is
// full, further events of its chunk are written to a second key, and so on.
//
// Guarantee: while no key is lost, Fetch returns each event once if its Put succeeded.
// A reader that calls Poll with the cursor of the previous Poll also reads each such
// event once, if the time between two polls is shorter than the log. Put repeats an
// append that failed, at most twice. Readers recognize the repetition by the event's
// ID. A Put that returns an error may have written its event.
//
// Cost in round trips: Put 1 (2 for the first event of a chunk; 5 if a key is full,
// plus a read of the key if the client is no Sizer). Fetch and Poll 1: a multi-get of
// all keys of all chunks that may contain events.
//
// With one copy, the loss of a server loses its chunks. Events that are written to
// other servers during an ejection are lost when it ends. Events that still exist are
// never read twice. With two copies, the log survives the loss of one server.
// Ringside's docs/failover.md describes the limits of copies. A reader cannot detect
// the loss of events.
type EventLog struct {
	s     *Store
	name  string
	chunk time.Duration
	o     EventLogOptions

	mu   sync.Mutex
	full map[int64]int // by chunk number: how many keys of the chunk this process has found full; guarded by mu
}

// EventLogOptions say how many events a log keeps, and for how long.
type EventLogOptions struct {
	Chunk  time.Duration // time of which one key stores the events, in whole seconds; 0 means 1 minute
	Chunks int           // number of whole chunks that the log keeps; 0 means 10, at most 1000
	Parts  int           // number of keys that one chunk may fill; 0 means 4, at most 64. a Poll requests up to (Chunks + 2) × Parts keys
	Late   time.Duration // greatest age of an event when it is written; 0 means the length of the log. Poll does not read chunks that had ended for longer than Late at the previous Poll
}

const (
	maxChunks    = 1000
	maxParts     = 64
	recordHead   = len(eventID{}) + 8 // bytes at the start of a record: ID and time; the length of the data follows them
	putTries     = 3
	chunksOfLead = 1 // number of chunks by which the time of an event may be ahead of this process's clock
)

// NewEventLog returns a log with the given name. It sends no request.
func NewEventLog(s *Store, name string, o EventLogOptions) (*EventLog, error) {
	o.Chunk, o.Chunks, o.Parts = cmp.Or(o.Chunk, time.Minute), cmp.Or(o.Chunks, 10), cmp.Or(o.Parts, 4)
	if o.Chunks < 1 || o.Chunks > maxChunks || o.Parts < 1 || o.Parts > maxParts {
		return nil, fmt.Errorf("recipes: log %s of %d chunks of %d parts; at most %d and %d are possible: %w", name, o.Chunks, o.Parts, maxChunks, maxParts, ErrArgument)
	}
	if err := wholeSeconds("chunks of log "+name, o.Chunk); err != nil {
		return nil, err
	}
	if o.Late < 0 {
		return nil, fmt.Errorf("recipes: log %s takes events that are %v late: %w", name, o.Late, ErrArgument)
	}
	o.Late = cmp.Or(o.Late, time.Duration(o.Chunks+1)*o.Chunk)
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

// kept returns the numbers of the first and of the last chunk that the log keeps now.
func (l *EventLog) kept() (first, last int64) {
	now := l.number(l.s.now())
	return now - int64(l.o.Chunks), now + chunksOfLead
}

// Put writes an event to the log. It replaces a zero Time by the current time. It
// returns ErrTime if the log does not keep events of that time. It returns ErrFull if
// all keys of the chunk are full.
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

// put appends a record to a key. If the append has failed with an unknown outcome, put
// repeats it.
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

// write encodes the event as a record: its ID, its time, the length of its data, and
// the data.
func (e Event) write() []byte {
	b := append(make([]byte, 0, recordHead+binary.MaxVarintLen64+len(e.Data)), e.id[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(e.Time.UnixNano()))
	b = binary.AppendUvarint(b, uint64(len(e.Data)))
	return append(b, e.Data...)
}

// parseRecord decodes the first record in data. n is the length of that record in
// bytes. ok is false if data does not begin with a complete record.
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

// Fetch returns the events with times from first to last, both included, sorted by
// time.
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

// keys returns the keys of the chunks with the numbers `from` to `to`. One chunk has
// Parts keys.
func (l *EventLog) keys(from, to int64) (keys []string) {
	for chunk := from; chunk <= to; chunk++ {
		for part := range l.o.Parts {
			keys = append(keys, l.key(chunk, part))
		}
	}
	return keys
}

// read calls the function each for every record in keys. An event that was written
// twice has two records.
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

// Cursor records which events a reader has read. It contains their IDs, and not an
// offset in a key. An offset would be wrong after the loss of a server: the end of a
// key may be lost with it, and other events are then appended in its place. The size of
// a Cursor is 8 bytes for each event in the chunks that the next Poll requests. The
// zero Cursor means that nothing was read. A Cursor can be marshaled as JSON and used
// by another process.
type Cursor struct {
	Time time.Time         // time of the Poll that returned this Cursor
	Seen map[string][]byte // by key: the IDs of the events that were read from it, 8 bytes each
}

// Poll returns the events that were written since the Poll that returned the cursor
// since, and the next cursor. The events are sorted by chunk, and within a chunk by the
// time of writing. Poll also finds late events, and the events of a process with a
// clock that is behind. After an error, Poll returns the old cursor.
func (l *EventLog) Poll(ctx context.Context, since Cursor) ([]Event, Cursor, error) {
	from, to := l.kept()
	next := Cursor{Time: l.s.now(), Seen: map[string][]byte{}}
	if !since.Time.IsZero() {
		from = max(from, l.number(since.Time.Add(-l.o.Late-slack)))
	}
	keys := l.keys(from, to)
	seen := map[eventID]bool{}
	for _, key := range keys { // copy the IDs of a missing key too: the server with the key may only be unresponsive
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
