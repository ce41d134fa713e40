package recipes

// This file contains Array, a list that is written by append and updated by cas.

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

// Array is a list of strings. Its value is a sequence of marks: "+1 +3 +4 -3 +5 "
// is the list 1, 4, 5. Add and Remove append marks. Update reads, changes and
// writes the value by cas. An append changes the cas id too, so appends and Updates
// may run at once. A mark is dead if its element was removed. If a key has more dead
// marks than elements, the next Fetch rewrites the key by cas.
//
// Guarantee: while no key is lost, a successful Add, Remove or Update is neither
// lost nor executed twice, whatever other processes write. A Remove removes all
// equal elements that were added before it. Elements are in the order of addition
// within each shard. A call that returns an error may or may not have been
// executed. Remove can be repeated without harm. A repeated Add may add an element
// twice, which Unique hides. An Add to several shards may have been executed in
// some of them.
//
// Cost in round trips: Add and Remove 1 for each shard that they change (2 for the
// first write), Fetch 1 and sometimes 2, Update 2 per try. A full array costs 5
// before ErrFull, plus a read of the whole value if the client is no Sizer.
//
// With one copy, each shard is lost as a whole with its server, and starts empty
// during an ejection. With two copies, the array survives the loss of one server.
// Ringside's docs/failover.md describes the limits of copies. This type cannot
// detect the loss of elements.
type Array struct {
	s      *Store
	name   string
	keys   []string
	expiry int32
	unique bool
}

// ArrayOptions are the options of an Array. The zero value is a list in one key
// that never expires.
type ArrayOptions struct {
	// Expires is how long a key lives after its first Add, after an Update, and after a
	// compaction of its marks. 0 means for ever.
	Expires time.Duration
	// Shards is the number of keys of the array, at most 64. 0 means 1. The hash of an
	// element selects its key. Each key has room for one memcached item.
	Shards int
	// Unique makes Fetch return only the first of several equal elements.
	Unique bool
}

const maxShards = 64

// NewArray returns an array with the given name. It sends no request.
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

// Add appends elements to the array. It returns ErrFull if a key has no room, even
// after its dead marks were removed.
func (a *Array) Add(ctx context.Context, elements ...string) error { return a.mark(ctx, '+', elements) }

// Remove removes from the array all elements that are equal to one of the arguments.
func (a *Array) Remove(ctx context.Context, elements ...string) error {
	return a.mark(ctx, '-', elements)
}

// mark appends a mark for each element to the value of the element's key: "+element"
// adds the element, "-element" removes it. sign is + or -.
func (a *Array) mark(ctx context.Context, sign byte, elements []string) error {
	marks := make([]strings.Builder, len(a.keys))
	for _, e := range elements {
		writeMark(&marks[a.shard(e)], sign, e)
	}
	for i := range marks { // check the sizes of all marks before the first request is sent
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

// Fetch returns the elements of the array. The result is empty if the array has no keys
// on the servers.
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
			a.rewrite(item, part) // remove dead marks; if another process changes the item first, a later Fetch tries again
		}
	}
	if a.unique {
		list = firstOfEach(list)
	}
	return list, nil
}

// compactFrom is the smallest number of marks from which Fetch removes the dead ones.
const compactFrom = 16

// Update changes the list by cas. It calls the function change with the current list
// and stores the result. If another process wrote in between, Update calls change again
// with the new list. Update returns an error for an array with several shards.
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
		return a.s.add(ctx, "update", &memcache.Item{Key: key, Value: value, Expiration: a.expiry})
	})
}

// compact removes the dead marks from the value of a key, if there are at least `least`
// of them. A mark is dead if the element was removed again. compact reports whether the
// key has more room now.
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

// rewrite replaces the value of an item by marks for the elements of list. It uses cas
// and returns false if the item has changed in between.
func (a *Array) rewrite(item *memcache.Item, list []string) (bool, error) {
	value := writeMarks(list)
	if err := a.s.fits(item.Key, len(value)); err != nil {
		return false, err
	}
	item.Value, item.Expiration = value, a.expiry
	return a.s.swap("update", item)
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

// parseMarks returns the elements of the list in the item, and the number of all marks,
// including dead ones.
func parseMarks(item *memcache.Item) (list []string, marks int, err error) {
	type element struct {
		text string
		dead bool
	}
	var all []element
	at := map[string][]int{} // by element: indexes in all of the marks that have added it and are not dead
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

// firstOfEach removes from list all elements that are equal to an earlier one.
func firstOfEach(list []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(list, func(e string) bool {
		again := seen[e]
		seen[e] = true
		return again
	})
}
