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

// Table is a set of members, each with a value: a key for each member, by which
// one is found in one round trip, and a list of all (an Array), by which they can
// be enumerated. The list says who is a member; a member's key is its index.
//
// Add writes the list first and then the index, Remove marks the index first and
// then the list. So who dies between the two leaves a member that the list knows
// and the index does not, which is still a member: Has and Get look in the list
// once in so many of their answers (TableOptions.Audit), and Repair looks for all,
// and mend it. An index whose member is not in the list (both were written at once
// by two, or the list was lost) puts the member back into the list. The mark that
// Remove leaves stays for some ten seconds, so that a repair that read the list
// before can't bring the member back.
//
// Guarantee: while no key is lost and nobody died between two writes, Has, Get
// and Members agree with all Adds and Removes that have succeeded; of an Add and a
// Remove of one member at once either may win. After a crash or the loss of an
// index they agree again after Repair, or at the first audit. An Add or Remove that
// ends with an error has been done, not at all, or by half; repeat it.
//
// Cost in round trips: Add 3 (2 for who is a member), Remove 2, Has and Get 1 (an
// audit 2 or 3), Members 1, All 2, Repair 2 and one for each index that is missing.
//
// On one copy a server that is lost takes its indexes, which are repaired without
// their values, and it may take the list: then Members is short until audits or Adds
// have put back those that are asked for. On two copies the loss of one server
// loses nothing but what Array says.
type Table struct {
	s      *Store
	name   string
	list   *Array
	expiry int32
	audit  uint64
	asked  atomic.Uint64
}

// TableOptions are what a Table may have.
type TableOptions struct {
	// Expires is how long a table's keys live from their last write on; 0: for ever.
	Expires time.Duration
	// Audit is how many answers of Has and Get one is compared with the list for; 100
	// unless set, and 1 makes all of them sure.
	Audit int
	// Shards of the list: see ArrayOptions.
	Shards int
}

const (
	removedFor  = 10 // seconds that the mark of a Remove stands
	repairsTake = 5 * time.Second
)

// NewTable is a table with a name.
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
	for i := range list.keys { // not those of an array of this name
		list.keys[i] = s.key("table", name, fmt.Sprint(i))
	}
	return &Table{s: s, name: name, list: list, expiry: list.expiry, audit: uint64(o.Audit)}, nil
}

// index is a member's key. A member that is long or not legal is escaped and
// hashed by Key.
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

// In front of an index's value.
const (
	present = '='
	removed = '-'
)

// value is what an index says of its member.
func value(item *memcache.Item) (v []byte, is byte, err error) {
	if item == nil {
		return nil, 0, nil
	}
	if len(item.Value) == 0 || item.Value[0] != present && item.Value[0] != removed {
		return nil, 0, fmt.Errorf("recipes: %s: %.20q: %w", item.Key, item.Value, ErrCorrupt)
	}
	return item.Value[1:], item.Value[0], nil
}

// Add makes a member, or gives one another value.
func (t *Table) Add(ctx context.Context, member string, value []byte) error {
	key, err := t.index(member)
	if err != nil {
		return err
	}
	if err := t.s.fits(key, 1+len(value)); err != nil {
		return err
	}
	// One that is a member already is not listed twice. If it is removed meanwhile,
	// either may win.
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

// Remove takes a member away; one that is none is no error.
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

// Has says whether somebody is a member.
func (t *Table) Has(ctx context.Context, member string) (bool, error) {
	_, err := t.Get(ctx, member)
	if errors.Is(err, ErrMiss) {
		return false, nil
	}
	return err == nil, err
}

// Get is a member's value. ErrMiss says that it is no member. The value of a
// member whose index was lost is lost too: Get then has an empty one.
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

// mend compares an index with the list, and says whether it is of a member.
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

// reindex makes the index of a member that was listed at a moment, unless that
// is so long ago that the mark of a Remove since may be gone.
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

// Members are all that are listed, in the order of their adding within a shard.
func (t *Table) Members(ctx context.Context) ([]string, error) { return t.list.Fetch(ctx) }

// All are the members and their values; one whose index is lost has a nil value.
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

// Repair makes the indexes that are missing, and returns how many they were.
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
	const atOnce = 1000 // keys, some 100 kB of a line
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

// chunked walks two lists of one length, n of each at a time.
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
