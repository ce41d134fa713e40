package recipes

// This file contains Table, a set of members with values.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

// Table is a set of members, each with a value. Each member has a key, its index, so
// that one round trip finds the member. An Array lists all members. The list decides
// what is a member.
//
// Add writes the list and then the index. Remove marks the index as removed and then
// changes the list. A crash between the two writes leaves a member in the list without
// an index. It is still a member. Has and Get compare one of every TableOptions.Audit
// answers with the list; this is an audit. Repair checks all members. Audits and Repair
// restore a missing index.
//
// The list may lack a member that has an index: an Add and a Remove ran at once, or the
// list was lost. An audit then adds the member to the list. A removed index stays for
// 10 seconds. A repair that has read the list before the Remove therefore cannot
// restore the member.
//
// Guarantee: while no key is lost and no process crashes between two writes, Has, Get
// and Members agree with all successful Adds and Removes. If an Add and a Remove of one
// member run at once, either may win. After a crash or the loss of an index, Has, Get
// and Members agree again after Repair or the first audit. An Add or Remove that
// returns an error was executed, was not executed, or was executed by half; repeat it.
//
// Cost in round trips: Add 3 (2 for an existing member), Remove 2, Has and Get 1 (plus
// 2 or 3 for an audit), Members 1, All 2, Repair 2 and one for each missing index.
//
// With one copy, a lost server loses its indexes, which are repaired without their
// values. It may also lose the list. Members then returns only those members that
// audits or Adds have added again. With two copies, the table survives the loss of one
// server as an Array does.
type Table struct {
	s      *Store
	name   string
	list   *Array
	expiry int32
	audit  uint64
	asked  atomic.Uint64
}

// TableOptions are the options of a Table.
type TableOptions struct {
	// Expires is how long the index of a member lives after the last Add of the member;
	// 0 means for ever. The list expires as ArrayOptions.Expires describes.
	Expires time.Duration
	// Audit is the number of answers of Has and Get of which one is compared with the
	// list. 0 means 100; 1 compares every answer.
	Audit int
	// Shards is the number of keys of the list of members; ArrayOptions.Shards
	// describes it.
	Shards int
}

const (
	removedFor  = 10 // seconds after which the removed index of a member expires
	repairsTake = 5 * time.Second
)

// NewTable returns a table with the given name. It sends no request.
func NewTable(s *Store, name string, o TableOptions) (*Table, error) {
	if o.Audit < 0 {
		return nil, fmt.Errorf("recipes: table %s with an audit of %d: %w", name, o.Audit, ErrArgument)
	}
	o.Audit = cmp.Or(o.Audit, 100)
	list, err := NewArray(s, name, ArrayOptions{Expires: o.Expires, Shards: o.Shards, Unique: true})
	if err != nil {
		return nil, fmt.Errorf("list of table %s: %w", name, err)
	}
	for i := range list.keys { // use the kind "table" in the keys: an Array with the same name has other keys
		list.keys[i] = s.key("table", name, fmt.Sprint(i))
	}
	return &Table{s: s, name: name, list: list, expiry: list.expiry, audit: uint64(o.Audit)}, nil
}

// index returns the key that stores a member's value. The function Key escapes illegal
// bytes in it, and hashes long names of members.
func (t *Table) index(member string) (string, error) {
	id, err := Key(member)
	if err != nil {
		return "", err
	}
	return t.s.pair("member of table "+t.name, "member", t.name, id)
}

// These are the possible first bytes of the value of a member's key.
const (
	present = '='
	removed = '-'
)

// value parses the item of a member's key. v is the value of the member. The result
// `is` is the first byte of the item: present or removed, or 0 if there is no item.
func value(item *memcache.Item) (v []byte, is byte, err error) {
	if item == nil {
		return nil, 0, nil
	}
	if len(item.Value) == 0 || item.Value[0] != present && item.Value[0] != removed {
		return nil, 0, fmt.Errorf("recipes: %s: %.20q: %w", item.Key, item.Value, ErrCorrupt)
	}
	return item.Value[1:], item.Value[0], nil
}

// Add adds a member with a value. If the member exists, Add replaces its value.
func (t *Table) Add(ctx context.Context, member string, value []byte) error {
	key, err := t.index(member)
	if err != nil {
		return err
	}
	if err := t.s.fits(key, 1+len(value)); err != nil {
		return err
	}
	// If the member's key exists, the member is already in the list. If another process
	// removes the member at the same time, either of them may win.
	item, err := t.s.get(ctx, key)
	if err != nil {
		return err
	}
	if item == nil || len(item.Value) == 0 || item.Value[0] != present {
		if err := t.list.Add(ctx, member); err != nil {
			return err
		}
	}
	return t.s.set(ctx, "add", &memcache.Item{Key: key, Value: append([]byte{present}, value...), Expiration: t.expiry})
}

// Remove removes a member. It returns no error if there is no such member.
func (t *Table) Remove(ctx context.Context, member string) error {
	key, err := t.index(member)
	if err != nil {
		return err
	}
	if err := t.s.set(ctx, "remove", &memcache.Item{Key: key, Value: []byte{removed}, Expiration: removedFor}); err != nil {
		return err
	}
	return t.list.Remove(ctx, member)
}

// Has reports whether member is in the table.
func (t *Table) Has(ctx context.Context, member string) (bool, error) {
	_, err := t.Get(ctx, member)
	if errors.Is(err, ErrMiss) {
		return false, nil
	}
	return err == nil, err
}

// Get returns the value of a member. It returns ErrMiss if there is no such member. If
// the key with the value was lost, Get returns an empty value.
func (t *Table) Get(ctx context.Context, member string) ([]byte, error) {
	key, err := t.index(member)
	if err != nil {
		return nil, err
	}
	item, err := t.s.get(ctx, key)
	if err != nil {
		return nil, err
	}
	v, is, err := value(item)
	if err != nil {
		return nil, err
	}
	found := is == present
	if t.asked.Add(1)%t.audit == 0 && is != removed {
		if found, err = t.mend(ctx, key, member, found); err != nil {
			return nil, err
		}
	}
	if !found {
		return nil, fmt.Errorf("recipes: table %s, member %.40q: %w", t.name, member, ErrMiss)
	}
	return v, nil
}

// mend compares the index of a member with the list of members. If the list lacks the
// member, mend adds it. If the index is missing, mend creates it. found says whether
// the index exists. mend reports whether the member is in the table.
func (t *Table) mend(ctx context.Context, key, member string, found bool) (bool, error) {
	began := time.Now()
	list, err := t.list.Fetch(ctx)
	if err != nil {
		return found, err
	}
	switch listed := slices.Contains(list, member); {
	case found && !listed:
		return true, t.list.Add(ctx, member)
	case !found && listed:
		return true, t.reindex(ctx, key, began)
	}
	return found, nil
}

// reindex creates the key (index) of a member. The parameter listed is the time at
// which the member was in the list. reindex does nothing if that is longer ago than
// repairsTake: since then, another process may have removed the member.
func (t *Table) reindex(ctx context.Context, key string, listed time.Time) error {
	if time.Since(listed) > repairsTake {
		return nil
	}
	_, err := t.s.add(ctx, "repair", &memcache.Item{Key: key, Value: []byte{present}, Expiration: t.expiry})
	return err
}

// Members returns all members of the table, in the order of addition within each shard
// of the list.
func (t *Table) Members(ctx context.Context) ([]string, error) { return t.list.Fetch(ctx) }

// All returns all members and their values. The value of a member is nil if
// the key that has it (the member's index) was lost.
func (t *Table) All(ctx context.Context) (map[string][]byte, error) {
	all := map[string][]byte{}
	err := t.each(ctx, func(member, _ string, item *memcache.Item) error {
		v, is, err := value(item)
		if is != removed {
			all[member] = v
		}
		return err
	})
	return all, err
}

// Repair creates the missing keys (indexes) of members, and returns how many were
// missing.
func (t *Table) Repair(ctx context.Context) (repaired int, err error) {
	began := time.Now()
	err = t.each(ctx, func(_, key string, item *memcache.Item) error {
		if item != nil {
			return nil
		}
		err := t.reindex(ctx, key, began)
		if err == nil {
			repaired++
		}
		return err
	})
	return repaired, err
}

// each calls do for each member of the list, with the member's key and the item of that
// key.
func (t *Table) each(ctx context.Context, do func(member, key string, item *memcache.Item) error) error {
	members, err := t.list.Fetch(ctx)
	if err != nil || len(members) == 0 {
		return err
	}
	keys := make([]string, len(members))
	for i, m := range members {
		if keys[i], err = t.index(m); err != nil {
			return err
		}
	}
	const atOnce = 1000 // number of keys in one request line, which then has about 100 kB
	for keys, members := range chunked(keys, members, atOnce) {
		items, err := t.s.getMulti(ctx, keys)
		if err != nil {
			return err
		}
		for i, key := range keys {
			if err := do(members[i], key, items[key]); err != nil {
				return err
			}
		}
	}
	return nil
}

// chunked iterates over two lists of equal length. Each round yields the next n
// elements of both lists.
func chunked(a, b []string, n int) func(yield func(a, b []string) bool) {
	return func(yield func(a, b []string) bool) {
		for i := 0; i < len(a); i += n {
			end := min(i+n, len(a))
			if !yield(a[i:end], b[i:end]) {
				return
			}
		}
	}
}
