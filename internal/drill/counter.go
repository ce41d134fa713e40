package drill

// This file implements counters: the increments that the writer of a counter has made, and what a
// number that is read proves.

import (
	"fmt"
	"strconv"
	"strings"
)

// counter is a key with a number as its value. Only its writer increments it, always by one.
type counter struct {
	writer        // acked is the last number that an acknowledged increment returned
	asked  uint64 // greatest number that the counter can have, if all requests so far were executed
	exists bool   // the counter exists, as far as its writer knows
}

// change increments the counter. A counter that does not exist is created with the number after the
// last one.
func (k *counter) change(t *traffic, c *client) (how ending, why string) {
	k.mu.Lock()
	exists, acked := k.exists, k.acked
	k.asked++
	number := strconv.FormatUint(k.asked, 10)
	k.mu.Unlock()
	line := "incr " + k.name + " 1"
	if !exists {
		line = fmt.Sprintf("add %s 0 %d %d\r\n%s", k.name, lifetime, len(number), number)
	}
	return t.write(c, line, func(answer string) (how ending, why string) {
		n, noNumber := strconv.ParseUint(strings.TrimSpace(answer), 10, 64)
		k.mu.Lock()
		defer k.mu.Unlock()
		switch {
		case !exists && answer == "STORED":
			k.exists, k.acked = true, k.asked
		case !exists && answer == "NOT_STORED": // the key exists because an earlier add without a reply was executed
			k.exists = true
		case exists && answer == "NOT_FOUND":
			k.exists = false
			return miss, ""
		case !exists || noNumber != nil:
			return refused, answer
		case n <= acked:
			return repeated, fmt.Sprintf("%s was incremented to %d, which it had before: it was %d", k.name, n, acked)
		case n > k.asked:
			return wrongValue, fmt.Sprintf("wrong: %s was incremented to %d, only %d was asked for", k.name, n, k.asked)
		default:
			k.acked = n
		}
		return good, ""
	})
}

func (k *counter) judge(value string, found bool, known any) (how ending, why string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	acked := known.(uint64)
	n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
	switch {
	case !found && acked > 0:
		return miss, ""
	case found && (err != nil || n > k.asked):
		return wrongValue, fmt.Sprintf("wrong: %s is %.60q, at most %d was asked for", k.name, value, k.asked)
	case found && n < acked:
		return staleRead, fmt.Sprintf("stale: %s is %d, %d was acknowledged", k.name, n, acked)
	}
	return good, ""
}
