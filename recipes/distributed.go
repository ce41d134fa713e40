package recipes

// A counter that many processes share without asking a server at each count.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

// DistributedCounter counts in the process and shows the counts of the last whole
// interval, of this process and of all. Each process has two numbers: one that
// counts, and one that is shown; at the end of an interval the first becomes the
// second, and is written as this process's row, which expires by itself. The sum
// over all is one multi-get of the rows.
//
// Guarantee: a row says what its process counted in the last interval that it
// ended. It is written by set, so that a write whose outcome is unknown is
// repeated without harm: nothing counts twice; until then the row may be missing, as
// Ringside deletes behind a set that it answers with an error. A process that has
// ended drops out of the sum three intervals later at most.
//
// Cost in round trips: Add none, Visit 1, Flush 1, Own none, Total 1.
//
// The loss of a process loses what it counted since its last interval ended. The
// loss of a server, on one copy or at an ejection's beginning and end, leaves its
// rows out of the sum until their processes write the next ones: one interval, and
// Total says how many rows it has found. On two copies the loss of one server
// loses nothing. A visitor whom two processes see counts in both, unless Visit
// decides, which asks memcached.
type DistributedCounter struct {
	s    *Store
	name string
	o    DistributedOptions
	own  string
	rows []string

	mu       sync.Mutex
	counting uint64 // since the interval began
	interval int64  // that is being counted
	shown    uint64 // of the last interval that ended
	written  bool   // the row of it
}

// DistributedOptions say who counts.
type DistributedOptions struct {
	ID    string        // of this process
	IDs   []string      // of all processes, this one among them; at most 1000
	Every time.Duration // interval, in whole seconds; 10s unless set
}

const (
	maxRows    = 1000
	rowExpires = 3 // intervals
)

// NewDistributedCounter is a counter with a name.
func NewDistributedCounter(s *Store, name string, o DistributedOptions) (*DistributedCounter, error) {
	if o.Every == 0 {
		o.Every = 10 * time.Second
	}
	if o.Every < time.Second || o.Every%time.Second != 0 {
		return nil, fmt.Errorf("recipes: distributed counter %s with an interval of %v; whole seconds are needed: %w", name, o.Every, ErrExpiry)
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
		c.rows = append(c.rows, s.pair("row", id, name))
	}
	slices.Sort(c.rows)
	c.rows = slices.Compact(c.rows)
	c.own = s.pair("row", o.ID, name)
	c.interval = c.number()
	return c, nil
}

// number is the interval that it is now.
func (c *DistributedCounter) number() int64 {
	return floor(c.s.now().Unix(), int64(c.o.Every/time.Second))
}

// Add counts, in this process only.
func (c *DistributedCounter) Add(delta uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endInterval()
	c.counting += delta
}

// Visit counts a visitor whom no process has counted within one interval, and
// says whether it did.
func (c *DistributedCounter) Visit(ctx context.Context, visitor string) (bool, error) {
	first, err := c.s.first(ctx, "row", c.name, visitor, c.o.Every)
	if first {
		c.Add(1)
	}
	return first, err
}

// endInterval ends the interval if its time is over.
func (c *DistributedCounter) endInterval() {
	now := c.number()
	if now == c.interval {
		return
	}
	if c.shown = c.counting; now != c.interval+1 { // nothing was counted in the last one
		c.shown = 0
	}
	c.counting, c.interval, c.written = 0, now, false
}

// Own is what this process counted in the last whole interval.
func (c *DistributedCounter) Own() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endInterval()
	return c.shown
}

// Flush writes this process's row, unless that of the last whole interval is
// written already. After an error the next Flush tries again.
func (c *DistributedCounter) Flush(ctx context.Context) error {
	c.mu.Lock()
	c.endInterval()
	shown, interval, written := c.shown, c.interval, c.written
	c.mu.Unlock()
	if written {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return failed("flush", c.own, err)
	}
	seconds, err := expiry("expiry", rowExpires*c.o.Every)
	if err != nil {
		return err
	}
	err = c.s.Client.Set(&memcache.Item{Key: c.own, Value: strconv.AppendUint(nil, shown, 10), Expiration: seconds})
	if err != nil {
		return failed("flush", c.own, err)
	}
	c.mu.Lock()
	c.written = c.written || c.interval == interval
	c.mu.Unlock()
	return nil
}

// Run flushes four times in an interval until the context ends, and returns the
// errors of the last flush, if it failed.
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

// Total is the sum of all rows that are there, and how many they are.
func (c *DistributedCounter) Total(ctx context.Context) (sum uint64, rows int, err error) {
	return c.s.sum(ctx, c.rows)
}
