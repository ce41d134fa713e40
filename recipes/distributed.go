package recipes

// This file contains a counter for many processes. Most counts need no request.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

// DistributedCounter counts in the memory of each process. It shows the count of the
// last whole interval, for one process and for all processes. Each process has two
// numbers: the count of the current interval and the count of the last whole interval.
// Once per interval, the process writes the latter number to its row, a key that
// expires by itself. The total is one multi-get of all rows.
//
// Guarantee: a row contains what its process counted in the last interval that has
// ended. The row is written by set. After a set with an unknown outcome, the process
// can repeat it, and nothing counts twice. Until then the row may be missing, because
// Ringside deletes the key after a set that failed. A process that has ended disappears
// from the total after at most three intervals.
//
// Cost in round trips: Add 0, Visit 1, Flush 1, Own 0, Total 1.
//
// If a process dies, its counts since the end of its last interval are lost. With one
// copy, the rows of a server are missing from the total after the loss of the server,
// and when an ejection begins or ends. Their processes write them again after one
// interval. Total also returns the number of rows that it found. With two copies, the
// loss of one server loses nothing. A visitor that two processes count is counted
// twice, unless they use Visit, which asks memcached.
type DistributedCounter struct {
	s    *Store
	name string
	o    DistributedOptions
	own  string
	rows []string

	mu       sync.Mutex
	counting uint64 // count of the current interval; guarded by mu
	interval int64  // number of the current interval since 1970; guarded by mu
	shown    uint64 // count of the last interval that has ended; guarded by mu
	written  bool   // whether the count shown has been written to this process's row; guarded by mu
}

// DistributedOptions describe the processes that count, and how often they write.
type DistributedOptions struct {
	ID    string        // ID of this process
	IDs   []string      // IDs of all processes that count, including this one; at most 1000
	Every time.Duration // length of an interval, in whole seconds; 0 means 10s
}

const (
	maxRows    = 1000
	rowExpires = 3 // number of intervals after which a row expires
)

// NewDistributedCounter returns a counter with the given name. It sends no request.
func NewDistributedCounter(s *Store, name string, o DistributedOptions) (*DistributedCounter, error) {
	o.Every = cmp.Or(o.Every, 10*time.Second)
	if err := wholeSeconds("interval of distributed counter "+name, o.Every); err != nil {
		return nil, err
	}
	if _, err := expiry("three intervals of distributed counter "+name, rowExpires*o.Every); err != nil {
		return nil, err
	}
	if !slices.Contains(o.IDs, o.ID) || len(o.IDs) > maxRows {
		return nil, fmt.Errorf("recipes: distributed counter %s: %q must be one of the ids, of which there are %d and may be %d: %w", name, o.ID, len(o.IDs), maxRows, ErrArgument)
	}
	c := &DistributedCounter{s: s, name: name, o: o}
	for _, id := range o.IDs {
		if err := CheckKey(id); err != nil {
			return nil, fmt.Errorf("id of distributed counter %s: %w", name, err)
		}
		if err := s.checkName("distributed counter", name, "row", strconv.Itoa(len(id)), id); err != nil {
			return nil, err
		}
		c.rows = append(c.rows, c.row(id))
	}
	slices.Sort(c.rows)
	c.rows = slices.Compact(c.rows)
	c.own = c.row(o.ID)
	c.interval = c.number()
	return c, nil
}

// row returns the key of the row of a process. checkName has compared its length with the limit.
func (c *DistributedCounter) row(id string) string {
	return c.s.key("row", c.name, strconv.Itoa(len(id)), id)
}

// number returns the number of the current interval: the intervals since 1970.
func (c *DistributedCounter) number() int64 {
	return floor(c.s.now().Unix(), int64(c.o.Every/time.Second))
}

// Add adds delta to the count of this process. It sends no request.
func (c *DistributedCounter) Add(delta uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endInterval()
	c.counting += delta
}

// Visit counts a visitor, unless some process has counted the same visitor less than
// one interval ago. It reports whether it counted.
func (c *DistributedCounter) Visit(ctx context.Context, visitor string) (bool, error) {
	first, err := c.s.first(ctx, "row", c.name, visitor, c.o.Every)
	if first {
		c.Add(1)
	}
	return first, err
}

// endInterval starts a new interval if the current one is over. The caller must hold the mutex mu.
func (c *DistributedCounter) endInterval() {
	now := c.number()
	if now == c.interval {
		return
	}
	if c.shown = c.counting; now != c.interval+1 { // more than one interval has passed: nothing was counted in the last whole interval
		c.shown = 0
	}
	c.counting, c.interval, c.written = 0, now, false
}

// Own returns what this process counted in the last whole interval.
func (c *DistributedCounter) Own() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endInterval()
	return c.shown
}

// Flush writes the row of this process: its count of the last whole interval. It does
// nothing if that count is already written. After an error, the next Flush tries again.
func (c *DistributedCounter) Flush(ctx context.Context) error {
	c.mu.Lock()
	c.endInterval()
	shown, interval, written := c.shown, c.interval, c.written
	c.mu.Unlock()
	if written {
		return nil
	}
	seconds, err := expiry("expiry", rowExpires*c.o.Every)
	if err != nil {
		return err
	}
	if err := c.s.set(ctx, "flush", &memcache.Item{Key: c.own, Value: strconv.AppendUint(nil, shown, 10), Expiration: seconds}); err != nil {
		return err
	}
	c.mu.Lock()
	c.written = c.written || c.interval == interval
	c.mu.Unlock()
	return nil
}

// Run calls Flush four times per interval until ctx ends. It returns the error of ctx.
// If the last Flush failed, the result also contains the error of that Flush.
func (c *DistributedCounter) Run(ctx context.Context) error {
	var last error
	for tick := time.Tick(c.o.Every / 4); ; {
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), last)
		case <-tick:
			last = c.Flush(ctx)
		}
	}
}

// Total returns the sum of the rows of all processes, and the number of rows that it
// found.
func (c *DistributedCounter) Total(ctx context.Context) (sum uint64, rows int, err error) {
	return c.s.sum(ctx, c.rows)
}
