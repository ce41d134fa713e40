package recipes

// A set of members with values.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

// Table is a set of members, each with a value. Each member has a key, its index,
// so that one round trip finds it. An Array lists all members. The list decides
// what is a member.
//
// Add writes the list and then the index. Remove marks the index as removed and
// then writes the list. A crash between the two writes leaves a member in the list
// without an index. It is still a member. Has and Get compare one of every
// TableOptions.Audit answers with the list, and Repair checks all members. Both
// restore the index.
//
// The list may lack a member that has an index: an Add and a Remove ran at once,
// or the list was lost. An audit then adds the member to the list. The mark that
// Remove writes lasts some ten seconds, so that a repair that read the list before
// the Remove cannot restore the member.
//
// Guarantee: while no key is lost and no process crashes between two writes, Has,
// Get and Members agree with all successful Adds and Removes. If an Add and a
// Remove of one member run at once, either may win. After a crash or the loss of
// an index, they agree again after Repair or the first audit. An Add or Remove
// that returns an error was executed, was not executed, or was executed by half;
// repeat it.
//
// Cost in round trips: Add 3 (2 for an existing member), Remove 2, Has and Get 1
// (plus 2 or 3 for an audit), Members 1, All 2, Repair 2 and one for each missing
// index.
//
// With one copy, a lost server loses its indexes, which are repaired without their
// values. It may also lose the list. Members then returns only those members that
// audits or Adds have added again. With two copies, the loss of one server loses
// nothing but what Array describes.
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
	// Expires is how long the key of a member lives after its last Add; 0 is for
	// ever. The list expires as in ArrayOptions.
	Expires time.Duration
	// Audit is how many answers of Has and Get there are for each one that is
	// compared with the list. 0 is 100; 1 compares every answer.
	Audit int
	// Shards is the number of keys of the list: see ArrayOptions.
	Shards int
}

const (
	removedFor  = 10 // seconds until the mark of a Remove expires
	repairsTake = 5 * time.Second
)

// NewTable returns a table with a name.
func NewTable(s *Store, name string, o TableOptions) (*Table, error) {
	if o.Audit < 0 {
		return nil, fmt.Errorf("recipes: table %s with an audit of %d: %w", name, o.Audit, ErrArgument)
	}
	if o.Audit == 0 {
		o.Audit = 100
	}
	list, err := NewArray(s, name, ArrayOptions{Expires: o.Expires, Shards: o.Shards, Unique: true})
	if err != nil {
		return nil, fmt.Errorf("list of table %s: %w", name, err)
	}
	for i := range list.keys { // not the keys of an Array with this name
		list.keys[i] = s.key("table", name, fmt.Sprint(i))
	}
	return &Table{s: s, name: name, list: list, expiry: list.expiry, audit: uint64(o.Audit)}, nil
}

// index returns the key of a member. Key escapes illegal bytes and hashes long
// members.
func (t *Table) index(member string) (string, error) {
	id, err := Key(member)
	if err != nil {
		return "", err
	}
	key := t.s.pair("member", t.name, id)
	if len(key) > maxKey {
		return "", fmt.Errorf("recipes: table %s, member %.20q…: names of %d and %d bytes are too long together: %w", t.name, member, len(t.name), len(member), ErrKey)
	}
	return key, nil
}

// First byte of an index's value.
const (
	present = '='
	removed = '-'
)

// value parses an index: the value of its member, and its first byte, which is 0
// if there is no index.
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
	// A member that already has an index is not listed again. If it is removed at
	// the same time, either may win.
	item, err := t.s.get(ctx, key)
	if err != nil {
		return err
	}
	if item == nil || len(item.Value) == 0 || item.Value[0] != present {
		if err := t.list.Add(ctx, member); err != nil {
			return err
		}
	}
	err = t.s.Client.Set(&memcache.Item{Key: key, Value: append([]byte{present}, value...), Expiration: t.expiry})
	if err != nil {
		return failed("add", key, err)
	}
	return nil
}

// Remove removes a member. It returns no error if there is no such member.
func (t *Table) Remove(ctx context.Context, member string) error {
	key, err := t.index(member)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return failed("remove", key, err)
	}
	if err := t.s.Client.Set(&memcache.Item{Key: key, Value: []byte{removed}, Expiration: removedFor}); err != nil {
		return failed("remove", key, err)
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

// Get returns the value of a member. It returns ErrMiss if there is no such
// member. If the index was lost, the value is lost too, and Get returns an empty
// one.
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

// mend compares an index with the list, and restores the one that lacks the
// member. It reports whether the member is in the table.
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
		return true, t.reindex(key, began)
	}
	return found, nil
}

// reindex creates the index of a member that was in the list at the time listed.
// It does nothing if that is more than repairsTake ago, because a later Remove's
// mark may have expired since.
func (t *Table) reindex(key string, listed time.Time) error {
	if time.Since(listed) > repairsTake {
		return nil
	}
	err := t.s.Client.Add(&memcache.Item{Key: key, Value: []byte{present}, Expiration: t.expiry})
	if err != nil && !isNotStored(err) {
		return failed("repair", key, err)
	}
	return nil
}

// Members returns all listed members, in the order of addition within each shard.
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

// Repair creates missing indexes, and returns how many were missing.
func (t *Table) Repair(ctx context.Context) (repaired int, err error) {
	began := time.Now()
	err = t.each(ctx, func(_, key string, item *memcache.Item) error {
		if item != nil {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return failed("repair", key, err)
		}
		repaired++
		return t.reindex(key, began)
	})
	return repaired, err
}

// each calls do with each listed member and its index.
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
	const atOnce = 1000 // keys, about 100 kB in one request line
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

// chunked iterates over two lists of equal length, n elements of each at a time.
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
