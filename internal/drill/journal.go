package drill

// This file implements journals. A journal is a key to which its writer appends entries. Reads
// check which entries it has.

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxEntries is the number of entries after which the writer replaces a journal by an empty one.
const maxEntries = 40

// journal is a key that its writer starts with a set and then appends entries to. The set contains
// the key's name and the number of the set. Entries have consecutive numbers.
type journal struct {
	writer           // acked is the number of the last set that was acknowledged
	begun   uint64   // number of the last set that was sent
	whole   bool     // true if the last set was acknowledged and the journal still exists, as far as the writer knows
	last    uint64   // number of the last entry that was sent
	entries []uint64 // numbers of the acknowledged entries since the set with number `acked`
}

// change appends an entry. If the journal is missing or full, change starts it again with a set.
func (k *journal) change(t *traffic, c *client) (how ending, why string) {
	k.mu.Lock()
	again := !k.whole || len(k.entries) >= maxEntries
	var line string
	if again {
		k.begun++
		k.whole = false
		v := k.head(k.begun)
		line = fmt.Sprintf("set %s 0 %d %d\r\n%s", k.name, lifetime, len(v), v)
	} else {
		k.last++
		v := "," + strconv.FormatUint(k.last, 10)
		line = fmt.Sprintf("append %s 0 0 %d\r\n%s", k.name, len(v), v)
	}
	k.mu.Unlock()
	return t.write(c, line, func(answer string) (how ending, why string) {
		k.mu.Lock()
		defer k.mu.Unlock()
		switch {
		case answer == "STORED" && again:
			k.acked, k.whole, k.entries = k.begun, true, nil
		case answer == "STORED":
			k.entries = append(k.entries, k.last)
		case answer == "NOT_STORED" && !again:
			k.whole = false
			return miss, ""
		default:
			return refused, answer
		}
		return good, ""
	})
}

func (k *journal) head(n uint64) string { return k.name + " " + strconv.FormatUint(n, 10) }

// acknowledged is what a journal must at least have: the number of the last set that was acknowledged,
// and the entries that were acknowledged since.
type acknowledged struct {
	set     uint64
	entries []uint64
}

func (k *journal) known() any {
	k.mu.Lock()
	defer k.mu.Unlock()
	return acknowledged{k.acked, slices.Clip(k.entries)}
}

func (k *journal) judge(value string, found bool, known any) (how ending, why string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	acked, entries := known.(acknowledged).set, known.(acknowledged).entries
	if !found {
		if acked == 0 {
			return good, ""
		}
		k.whole = k.whole && k.acked != acked // a journal that is missing is not whole; its writer will start it again
		return miss, ""
	}
	head, rest, _ := strings.Cut(value, ",")
	text, ok := strings.CutPrefix(head, k.name+" ")
	n, err := strconv.ParseUint(text, 10, 64)
	switch {
	case !ok || err != nil || n == 0 || n > k.begun:
		return wrongValue, fmt.Sprintf("wrong: %s is %.60q", k.name, value)
	case n < acked:
		return staleRead, fmt.Sprintf("stale: %s is of the set %d, %d was acknowledged", k.name, n, acked)
	}
	has := map[uint64]bool{}
	for text := range strings.FieldsFuncSeq(rest, func(r rune) bool { return r == ',' }) {
		e, err := strconv.ParseUint(text, 10, 64)
		switch {
		case err != nil || e > k.last:
			return wrongValue, fmt.Sprintf("wrong: %s has %.20q in it, which was never appended", k.name, text)
		case has[e]:
			return torn, fmt.Sprintf("torn: %s has the entry %d twice: %.200q", k.name, e, value)
		}
		has[e] = true
	}
	if i := slices.IndexFunc(entries, func(e uint64) bool { return !has[e] }); i >= 0 && n == acked {
		return torn, fmt.Sprintf("torn: the entry %d of %s was acknowledged and is lost: %.200q", entries[i], k.name, value)
	}
	return good, ""
}
