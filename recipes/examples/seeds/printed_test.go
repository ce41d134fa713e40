package seeds

// This file contains the locks, counters and logs of the articles, as printed there.

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"ringside/recipes"
)

// Endless is the number of rounds after which a loop of an article is stopped.
const Endless = 1000

// ErrEndless is the error of a loop that was stopped after Endless rounds, because it
// would run for ever.
var ErrEndless = errors.New("this loop never ends")

// Now is a function that returns the current time.
type Now func() time.Time

func item(key, value string, expires int32) *memcache.Item {
	return &memcache.Item{Key: key, Value: []byte(value), Expiration: expires}
}

// GetSetLock is a lock with get and set, as printed in an article on caching (scheme
// S-26). The article calls it "wrong but tolerable".
func GetSetLock(mc recipes.Client, name string) (bool, error) {
	if _, err := mc.Get(name); err == nil {
		return false, nil
	}
	return true, mc.Set(item(name, "1", 5))
}

// MCLock is a lock with add and delete, as printed in two articles (schemes S-27 and
// S-45). An article calls it "quite correct".
type MCLock struct {
	MC      recipes.Client
	Name    string
	Timeout int32
}

// TryLock tries once to get the lock, and reports whether it succeeded. It is one round
// of the article's loop.
func (l MCLock) TryLock() bool { return l.MC.Add(item(l.Name, "1", l.Timeout)) == nil }

// Lock gets the lock. As in the article, it waits for ever and without a pause between
// tries. Here it ends after Endless tries.
func (l MCLock) Lock() error {
	for range Endless {
		if l.TryLock() {
			return nil
		}
	}
	return ErrEndless
}

// Unlock releases the lock, even if another caller holds it.
func (l MCLock) Unlock() { l.MC.Delete(l.Name) }

// GetSetCount counts with get and set. An article shows this scheme (S-17) as a mistake
// to avoid.
func GetSetCount(mc recipes.Client, name string) error {
	n := 0
	if i, err := mc.Get(name); err == nil {
		n, _ = strconv.Atoi(string(i.Value))
	}
	return mc.Set(item(name, strconv.Itoa(n+1), 0))
}

// MCCounter is a counter with incr and add, as printed in an article on data structures
// (scheme S-46). The client of the article reports every error as a KeyError.
func MCCounter(mc recipes.Client, name string, value uint64) error {
	for range Endless {
		if _, err := mc.Increment(name, value); err == nil {
			return nil
		}
		if err := mc.Add(item(name, strconv.FormatUint(value, 10), 0)); err == nil {
			return nil
		}
	}
	return ErrEndless
}

// CountView counts a view, as printed in an article on caching (scheme S-20). If incr
// fails, CountView stores the database's number plus one with set.
func CountView(mc recipes.Client, name string, database func() int) error {
	if _, err := mc.Increment(name, 1); err == nil {
		return nil
	}
	return mc.Set(item(name, strconv.Itoa(database()+1), 0))
}

// Online is a counter of visitors with six keys, one for each minute, as printed in an
// article on caching (scheme S-21).
type Online struct {
	MC  recipes.Client
	Now Now
}

func (c Online) minute() int64 { return c.Now().Unix() / 60 }

// Count counts one visitor in the key of the current minute.
func (c Online) Count() error {
	key := fmt.Sprintf("c_%d", c.minute()%6)
	if _, err := c.MC.Increment(key, 1); err == nil {
		return nil
	}
	return c.MC.Set(item(key, "1", 6*60))
}

// Value returns the sum of five keys, one for each of the last five minutes. It does
// not count the current minute.
func (c Online) Value() (n int) {
	for i := range int64(6) {
		if i == c.minute()%6 {
			continue
		}
		if v, err := c.MC.Get(fmt.Sprintf("c_%d", i)); err == nil {
			one, _ := strconv.Atoi(string(v.Value))
			n += one
		}
	}
	return n
}

// MCVisitorCounter is a counter of visitors with two keys, as printed in an article on
// data structures (schemes S-22 and S-47). It is the first version that the article
// prints.
type MCVisitorCounter struct {
	MC      recipes.Client
	Name    string
	Timeout int64 // seconds that each of the two keys is active
	Now     Now
}

func (c MCVisitorCounter) active() int64 {
	if c.Now().Unix()%(2*c.Timeout) < c.Timeout {
		return 0
	}
	return 1
}

// Count counts one visitor in the key that is active now.
func (c MCVisitorCounter) Count() error {
	key := fmt.Sprintf("%s_%d", c.Name, c.active())
	for range Endless {
		if _, err := c.MC.Increment(key, 1); err == nil {
			return nil
		}
		if err := c.MC.Add(item(key, "1", int32(2*c.Timeout))); err == nil {
			return nil
		}
	}
	return ErrEndless
}

// Value returns the count in the key that is not active now: the count of the last
// whole period.
func (c MCVisitorCounter) Value() (n int) {
	if v, err := c.MC.Get(fmt.Sprintf("%s_%d", c.Name, 1-c.active())); err == nil {
		n, _ = strconv.Atoi(string(v.Value))
	}
	return n
}

// MCEventLog is an event log, as printed in an article on data structures (scheme
// S-50). The page of the article has lost the "less than" signs of Fetch. They are
// restored here.
type MCEventLog struct {
	MC        recipes.Client
	Name      string
	Chunk     int64 // seconds of which one key has the events
	NumChunks int64
	Now       Now
}

func (l MCEventLog) key(when int64) string {
	return fmt.Sprintf("%s_%d", l.Name, when/l.Chunk%l.NumChunks)
}

// Put appends an event to the key of its chunk of time.
func (l MCEventLog) Put(when int64, what string) error {
	event := fmt.Sprintf("%d %s\n", when, what)
	for range Endless {
		if err := l.MC.Append(item(l.key(when), event, 0)); err == nil {
			return nil
		}
		if err := l.MC.Add(item(l.key(when), event, int32(l.Chunk*(l.NumChunks-1)))); err == nil {
			return nil
		}
	}
	return ErrEndless
}

// Fetch returns the events with times from first to last.
func (l MCEventLog) Fetch(first, last int64) (events []string) {
	last = min(last, l.Now().Unix())
	first = max(first, l.Now().Unix()-l.Chunk*(l.NumChunks-1))
	for chunk := first / l.Chunk; chunk <= last/l.Chunk; chunk++ {
		i, err := l.MC.Get(l.key(chunk * l.Chunk))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(i.Value)) {
			when, what, _ := strings.Cut(strings.TrimSpace(line), " ")
			if n, _ := strconv.ParseInt(when, 10, 64); first <= n && n <= last {
				events = append(events, what)
			}
		}
	}
	return events
}
