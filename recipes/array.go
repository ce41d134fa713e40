package recipes

// A list that is written by append and changed by cas.

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

// Array is a list of texts. Its value is marks, one behind another: "+1 +3 +4 -3
// +5 " is the list 1, 4, 5. Add and Remove append marks; Update reads, changes and
// writes by cas. An append changes the cas id too, so both may be used at once.
// A key with more dead marks than living ones is written anew, by cas, by the next
// Fetch that sees it.
//
// Guarantee: while no key is lost, no Add, Remove or Update that succeeds is lost
// or done twice, whoever else writes. A Remove takes away all equal elements that
// were added before it. Order is the order of additions, in each shard for itself.
// What ends with an error has been done or not; Remove may be repeated without
// harm, Add may double an element, which Unique hides. An Add of several elements
// to several shards may have been done in some of them.
//
// Cost in round trips: Add and Remove 1 for each shard they touch (2 for the
// first), Fetch 1 and sometimes 2, Update 2 for each try. An array that is full
// costs 5 and, without a Sizer, a read of the whole value, before ErrFull.
//
// On one copy it is lost with its server, whole, each shard for itself, and through
// an ejection it begins anew. On two copies the loss of one server keeps it; what
// copies can't do is in Ringside's docs/failover.md, and this type can't tell where that
// costs elements.
type Array struct {
	s      *Store
	name   string
	keys   []string
	expiry int32
	unique bool
}

// ArrayOptions are what an Array may have. The zero value is a list in one key
// that never expires.
type ArrayOptions struct {
	// Expires is how long a key lives from its first Add, Update or compaction on.
	Expires time.Duration
	// Shards is over how many keys elements are spread, by their hash: each has room
	// for an item. At most 64; 1 unless set.
	Shards int
	// Unique hides all but the first of equal elements at Fetch.
	Unique bool
}

const maxShards = 64

// NewArray is an array with a name.
func NewArray(s *Store, name string, o ArrayOptions) (*Array, error) {
	seconds, err := expiryOrNever("expiry of array "+name, o.Expires)
	if err != nil {
		return nil, err
	}
	if o.Shards < 0 || o.Shards > maxShards {
		return nil, fmt.Errorf("recipes: array %s with %d shards, at most %d are possible: %w", name, o.Shards, maxShards, ErrArgument)
	}
	if err := s.checkName("array", name, "array", "63"); err != nil {
		return nil, err
	}
	a := &Array{s: s, name: name, expiry: seconds, unique: o.Unique}
	for i := range max(o.Shards, 1) {
		a.keys = append(a.keys, s.key("array", name, strconv.Itoa(i)))
	}
	return a, nil
}

// Add puts elements at the end. ErrFull says that a key has no room, also after
// compaction.
func (a *Array) Add(ctx context.Context, elements ...string) error { return a.mark(ctx, '+', elements) }

// Remove takes all that equal these elements away.
func (a *Array) Remove(ctx context.Context, elements ...string) error {
	return a.mark(ctx, '-', elements)
}

// mark appends a mark for each element.
func (a *Array) mark(ctx context.Context, sign byte, elements []string) error {
	marks := make([]strings.Builder, len(a.keys))
	for _, e := range elements {
		writeMark(&marks[a.shard(e)], sign, e)
	}
	for i := range marks { // before anything is sent
		if err := a.s.fits(a.keys[i], marks[i].Len()); err != nil {
			return err
		}
	}
	for i := range marks {
		if marks[i].Len() == 0 {
			continue
		}
		data := []byte(marks[i].String())
		err := a.s.appendTo(ctx, a.keys[i], data, a.expiry)
		if errors.Is(err, ErrFull) {
			if shrunk, failure := a.compact(ctx, a.keys[i], 1); failure != nil {
				err = failure
			} else if shrunk {
				err = a.s.appendTo(ctx, a.keys[i], data, a.expiry)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *Array) shard(element string) int {
	h := fnv.New32a()
	h.Write([]byte(element))
	return int(h.Sum32() % uint32(len(a.keys)))
}

// Fetch reads the list. One that nobody has written is empty.
func (a *Array) Fetch(ctx context.Context) ([]string, error) {
	items, err := a.s.getMulti(ctx, a.keys)
	if err != nil {
		return nil, err
	}
	list := []string{}
	for _, key := range a.keys {
		item := items[key]
		if item == nil {
			continue
		}
		part, marks, err := parseMarks(item)
		if err != nil {
			return nil, err
		}
		list = append(list, part...)
		if dead := marks - len(part); marks >= compactFrom && dead > len(part) {
			a.rewrite(item, part) // if others were faster they have seen it too
		}
	}
	if a.unique {
		list = firstOfEach(list)
	}
	return list, nil
}

// compactFrom is the number of marks from which on a list is worth compaction.
const compactFrom = 16

// Update changes the list by cas: change gets what is there and returns what is
// to be there, and is called again when somebody else was faster. An array with
// several shards has no Update.
func (a *Array) Update(ctx context.Context, change func([]string) []string) error {
	if len(a.keys) > 1 {
		return fmt.Errorf("recipes: update of array %s, which has %d shards: %w", a.name, len(a.keys), ErrArgument)
	}
	key := a.keys[0]
	return a.s.again(ctx, "update", key, func() (bool, error) {
		item, err := a.s.get(ctx, key)
		if err != nil {
			return false, err
		}
		var list []string
		if item != nil {
			if list, _, err = parseMarks(item); err != nil {
				return false, err
			}
		}
		list = change(list)
		if item != nil {
			return a.rewrite(item, list)
		}
		value := writeMarks(list)
		if len(value) == 0 {
			return true, nil
		}
		if err := a.s.fits(key, len(value)); err != nil {
			return false, err
		}
		err = a.s.Client.Add(&memcache.Item{Key: key, Value: value, Expiration: a.expiry})
		if err == nil || isNotStored(err) {
			return err == nil, nil
		}
		return false, failed("update", key, err)
	})
}

// compact drops dead marks if there are so many at least, and says whether it did.
func (a *Array) compact(ctx context.Context, key string, least int) (shrunk bool, err error) {
	err = a.s.again(ctx, "compact", key, func() (bool, error) {
		item, err := a.s.get(ctx, key)
		if err != nil || item == nil {
			shrunk = item == nil
			return true, err
		}
		list, marks, err := parseMarks(item)
		if err != nil || marks-len(list) < least {
			return true, err
		}
		shrunk, err = a.rewrite(item, list)
		return shrunk, err
	})
	return shrunk, err
}

// rewrite puts a list in an item's place by cas, and says whether it was in time.
func (a *Array) rewrite(item *memcache.Item, list []string) (bool, error) {
	value := writeMarks(list)
	if err := a.s.fits(item.Key, len(value)); err != nil {
		return false, err
	}
	item.Value, item.Expiration = value, a.expiry
	if err := a.s.Client.CompareAndSwap(item); isChanged(err) {
		return false, nil
	} else if err != nil {
		return false, failed("update", item.Key, err)
	}
	return true, nil
}

func writeMark(b *strings.Builder, sign byte, element string) {
	b.WriteByte(sign)
	escape(b, element)
	b.WriteByte(' ')
}

func writeMarks(list []string) []byte {
	var b strings.Builder
	for _, e := range list {
		writeMark(&b, '+', e)
	}
	return []byte(b.String())
}

// parseMarks reads a list, and how many marks it is made of.
func parseMarks(item *memcache.Item) (list []string, marks int, err error) {
	type element struct {
		text string
		dead bool
	}
	var all []element
	at := map[string][]int{} // where each living element stands
	for mark := range strings.SplitAfterSeq(string(item.Value), " ") {
		if mark == "" {
			continue
		}
		text, ended := strings.CutSuffix(mark, " ")
		if !ended || text == "" || text[0] != '+' && text[0] != '-' {
			return nil, 0, fmt.Errorf("recipes: %s: mark %.20q: %w", item.Key, mark, ErrCorrupt)
		}
		e, ok := unescape(text[1:])
		if !ok {
			return nil, 0, fmt.Errorf("recipes: %s: mark %.20q: %w", item.Key, mark, ErrCorrupt)
		}
		marks++
		if text[0] == '+' {
			at[e] = append(at[e], len(all))
			all = append(all, element{text: e})
			continue
		}
		for _, i := range at[e] {
			all[i].dead = true
		}
		delete(at, e)
	}
	for _, e := range all {
		if !e.dead {
			list = append(list, e.text)
		}
	}
	return list, marks, nil
}

// firstOfEach drops all but the first of equal elements.
func firstOfEach(list []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(list, func(e string) bool {
		again := seen[e]
		seen[e] = true
		return again
	})
}
