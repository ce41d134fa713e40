package drill

// This file implements locks: keys that clients add and delete. A lock also has the name of the
// client that has obtained it.

import (
	"fmt"
	"strconv"
	"sync"
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
	how, _ := t.write(c, fmt.Sprintf("add %s 0 %d %d\r\n%s", key, lifetime, len(who), who), func(answer string) (how ending, why string) {
		k.mu.Lock()
		defer k.mu.Unlock()
		switch {
		case answer != "STORED" && answer != "NOT_STORED":
			return refused, answer
		case answer == "NOT_STORED" || k.now() != key: // another client has the lock, or has replaced its key while this add ran
			return good, ""
		case k.holder != "":
			how, why = twice, fmt.Sprintf("%s has got the lock %s, and so has %s", who, key, k.holder)
		}
		k.holder, got = who, &held{k, key}
		return how, why
	})
	k.replaceAfter(how, key)
	return got
}

func (h *held) give(t *traffic, c *client, who string) {
	h.mu.Lock()
	if h.holder == who {
		h.holder = ""
	}
	h.mu.Unlock()
	how, _ := t.write(c, "delete "+h.key, func(answer string) (how ending, why string) {
		switch answer {
		case "DELETED":
			return good, ""
		case "NOT_FOUND":
			return miss, ""
		}
		return refused, answer
	})
	h.replaceAfter(how, h.key)
}

// replaceAfter makes the lock use its next key, if it still uses the given key and a write of that
// key has failed.
func (k *lock) replaceAfter(how ending, key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if (how == unanswered || how == refused) && k.now() == key {
		k.number++
		k.holder = ""
	}
}
