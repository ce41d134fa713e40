package drill

// This file implements locks: keys that clients add and delete. A lock also has the name of the
// client that has obtained it.

import (
	"fmt"
	"strconv"
	"sync"
	"time"
)

// lock is a sequence of keys, of which only the last one is in use. After an add or a delete
// without a reply, it is unknown whether a client has the lock, and the command may still be
// executed later. The next key of the sequence is then used.
type lock struct {
	name string

	mu     sync.Mutex
	number int
	holder string // name of the client that has the lock and has not begun to release it; empty: none
}

// now returns the key of the lock that is in use now.
func (k *lock) now() string { return k.name + "." + strconv.Itoa(k.number) }

// keys returns all keys that the lock has used.
func (k *lock) keys() (all []string) {
	for n := range k.number + 1 {
		all = append(all, k.name+"."+strconv.Itoa(n))
	}
	return all
}

// held is a lock that a client has obtained, with the key that the client added.
type held struct {
	*lock
	key string
}

func (k *lock) take(t *traffic, c *client, who string) (got *held) {
	k.mu.Lock()
	key := k.now()
	k.mu.Unlock()
	began := time.Now()
	answer, err := c.ask(fmt.Sprintf("add %s 0 %d %d\r\n%s", key, lifetime, len(who), who))
	switch {
	case err != nil:
		k.replace(key)
		t.tally.count(began, unanswered, err.Error())
	case answer == "NOT_STORED":
		t.tally.count(began, good, "")
	case answer != "STORED":
		k.replace(key)
		t.tally.count(began, refused, answer)
	default:
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.now() != key { // another client has replaced the key of the lock while this add ran
			t.tally.count(began, good, "")
			return nil
		}
		if k.holder != "" {
			t.tally.count(began, twice, fmt.Sprintf("%s has got the lock %s, and so has %s", who, key, k.holder))
		} else {
			t.tally.count(began, good, "")
		}
		k.holder = who
		return &held{k, key}
	}
	return nil
}

func (h *held) give(t *traffic, c *client, who string) {
	h.mu.Lock()
	if h.holder == who {
		h.holder = ""
	}
	h.mu.Unlock()
	began := time.Now()
	answer, err := c.ask("delete " + h.key)
	switch {
	case err != nil:
		h.replace(h.key)
		t.tally.count(began, unanswered, err.Error())
	case answer == "DELETED":
		t.tally.count(began, good, "")
	case answer == "NOT_FOUND":
		t.tally.count(began, miss, "")
	default:
		h.replace(h.key)
		t.tally.count(began, refused, answer)
	}
}

// replace makes the lock use its next key if it still uses the given key.
func (k *lock) replace(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.now() == key {
		k.number++
		k.holder = ""
	}
}
