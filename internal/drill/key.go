package drill

// This file implements keys that are set and deleted, and checks what a read of such a key returns.

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// key is one key, and the changes that its writer makes. Changes are numbered from 1, and every
// tenth change is a delete.
type key struct {
	writer
	size  int    // approximate size of the key's values
	owner int    // index of the client that writes the key
	sent  uint64 // number of the last change that was sent
}

func deletes(n uint64) bool { return n%10 == 0 }

// value returns the value that the change with number n writes. It contains the key and the number.
// The rest of it is text that depends on the number.
func (k *key) value(n uint64) string {
	v := k.name + " " + strconv.FormatUint(n, 10) + " "
	fill := strconv.FormatUint(n*7919, 36) + "."
	return v + strings.Repeat(fill, max(1, (k.size-len(v))/len(fill)))
}

// judge evaluates a read. A miss is right if no change was acknowledged, if the last one was a delete,
// or if a delete was sent after it.
func (k *key) judge(value string, found bool, known any) (how ending, why string) {
	k.mu.Lock()
	sent := k.sent
	k.mu.Unlock()
	acked := known.(uint64)
	rest, ok := strings.CutPrefix(value, k.name+" ")
	number, _, _ := strings.Cut(rest, " ")
	n, err := strconv.ParseUint(number, 10, 64)
	switch {
	case !found && (acked == 0 || deletes(acked) || sent/10 > acked/10):
		return good, ""
	case !found:
		return miss, ""
	case !ok || err != nil || n == 0 || n > sent || deletes(n) || value != k.value(n):
		return wrongValue, fmt.Sprintf("wrong: %s is %.60q", k.name, value)
	case n < acked:
		return staleRead, fmt.Sprintf("stale: %s is %.60q, %d was acknowledged", k.name, value, acked)
	}
	return good, ""
}

// change makes the next change to the key. It returns an error if the change is not acknowledged.
func (k *key) change(t *traffic, c *client) (how ending, why string) {
	k.mu.Lock()
	k.sent++
	n := k.sent
	k.mu.Unlock()
	v := k.value(n)
	line, acks := fmt.Sprintf("set %s 0 %d %d\r\n%s", k.name, lifetime, len(v), v), []string{"STORED"}
	if deletes(n) {
		line, acks = "delete "+k.name, []string{"DELETED", "NOT_FOUND"}
	}
	return t.write(c, line, func(answer string) (how ending, why string) {
		if !slices.Contains(acks, answer) {
			return refused, answer
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		k.acked = n
		return good, ""
	})
}
