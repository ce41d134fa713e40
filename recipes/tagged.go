package recipes

// This file contains TaggedCache, a cache of values that become invalid together with
// their tags.

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

// TaggedCache stores values under tags. Invalidating a tag invalidates every value
// that has it, without a list of those values. A tag is a key that contains a
// version. A value contains the versions of its tags, and it is valid only while
// they equal the current ones.
//
// A version is the time in microseconds and 64 random bits. Versions are only
// compared for equality, so a tag that was lost gets a version that no value
// contains. Its values then miss, and an invalidated value never becomes valid
// again. A counted version could not guarantee that. Only ReadFromMaster depends
// on the clock.
//
// A value is stored with the tag versions that Get read when it missed, not with
// those at the time of Set. If a tag was invalidated after the data was read from
// the database, the stored value is invalid, however late Set is called.
//
// Guarantee: after a successful Invalidate, no Get returns a value that was built
// for a miss before that Invalidate. While the server of a tag does not reply, a
// Get of a value with that tag returns an error or a miss. If Invalidate returns
// an error, it names the tags that may still be valid; repeat it.
//
// Cost in round trips: Get 1 (a multi-get of the value and its tags; 3 if a tag
// has no version yet, plus 1 for each further such tag), Set 1, Invalidate 1 per
// tag.
//
// With one copy and during an ejection, the guarantee is as strong as Ringside's.
// With consistency: relaxed, while instances disagree about a server, a read
// through another instance may return an older value. The loss of a server causes
// misses: for the values on it, and for all values with a tag on it.
type TaggedCache struct {
	s    *Store
	name string
}

const (
	maxTags    = 64
	maxTagName = 120 // maximum length in bytes of the cache's name and a tag's name together
)

// NewTaggedCache returns a cache with the given name. Caches with different names share
// neither values nor tags.
func NewTaggedCache(s *Store, name string) (*TaggedCache, error) {
	if err := s.checkName("tagged cache", name, "tagged", "250"); err != nil {
		return nil, err
	}
	if len(name) > maxTagName-20 {
		return nil, fmt.Errorf("recipes: tagged cache %.20s…: a name of %d bytes, at most %d are possible: %w", name, len(name), maxTagName-20, ErrKey)
	}
	return &TaggedCache{s, name}, nil
}

func (c *TaggedCache) tag(tag string) (string, error) {
	if err := CheckKey(tag); err != nil {
		return "", fmt.Errorf("tag of cache %s: %w", c.name, err)
	}
	return c.s.pair("cache "+c.name+", tag", "tag", c.name, tag)
}

// Fill is the result of a Get that missed. Its method Set stores the value that the
// caller builds after that miss.
type Fill struct {
	c     *TaggedCache
	key   string
	stamp []byte
	newer time.Time // latest time at which one of the value's tags was invalidated or created
}

// Get returns the value of key if it was stored with exactly these tags, and if none of
// the tags was invalidated since then. Otherwise it returns ErrMiss and a Fill, with
// which the caller stores the value that it builds.
func (c *TaggedCache) Get(ctx context.Context, key string, tags ...string) ([]byte, *Fill, error) {
	full, tagKeys, err := c.keys(key, tags)
	if err != nil {
		return nil, nil, err
	}
	items, err := c.s.getMulti(ctx, append([]string{full}, tagKeys...))
	if err != nil {
		return nil, nil, err
	}
	versions := make([]string, len(tagKeys))
	made := false
	for i, k := range tagKeys {
		item := items[k]
		if item == nil {
			made = true
			if item, err = c.make(ctx, k); err != nil {
				return nil, nil, err
			}
		}
		versions[i] = string(item.Value)
	}
	f := &Fill{c: c, key: full}
	if f.stamp, f.newer, err = stamp(tagKeys, versions); err != nil {
		return nil, nil, err
	}
	if item := items[full]; item != nil && !made {
		if v, ok := bytes.CutPrefix(item.Value, f.stamp); ok {
			return v, nil, nil
		}
	}
	return nil, f, fmt.Errorf("recipes: %s: %w", full, ErrMiss)
}

// keys returns the key full, under which the value is stored, and the keys of its tags.
// The keys of tags are sorted and have no duplicates.
func (c *TaggedCache) keys(key string, tags []string) (full string, tagKeys []string, err error) {
	if err := CheckKey(key); err != nil {
		return "", nil, fmt.Errorf("cache %s: %w", c.name, err)
	}
	if full, err = c.s.pair("cache "+c.name+", key", "tagged", c.name, key); err != nil {
		return "", nil, err
	}
	if len(tags) > maxTags {
		return "", nil, fmt.Errorf("recipes: %s: %d tags, at most %d are possible: %w", full, len(tags), maxTags, ErrArgument)
	}
	for _, t := range tags {
		k, err := c.tag(t)
		if err != nil {
			return "", nil, err
		}
		tagKeys = append(tagKeys, k)
	}
	slices.Sort(tagKeys)
	return full, slices.Compact(tagKeys), nil
}

// make creates the first version of the tag with this key. If another caller has just
// created it, make returns that version.
func (c *TaggedCache) make(ctx context.Context, key string) (item *memcache.Item, err error) {
	err = c.s.again(ctx, "tag", key, func() (bool, error) {
		item = &memcache.Item{Key: key, Value: c.version()}
		if added, err := c.s.add(ctx, "tag", item); added || err != nil {
			return added, err
		}
		item, err = c.s.get(ctx, key)
		return item != nil, err
	})
	return item, err
}

// version returns a version that no tag has had before.
func (c *TaggedCache) version() []byte {
	var bits [8]byte
	rand.Read(bits[:])
	return fmt.Appendf(nil, "%d.%016x", c.s.now().UnixMicro(), binary.BigEndian.Uint64(bits[:]))
}

// stamp returns the header of a stored value, which lists the keys of its tags and
// their versions. newest is the latest time in these versions.
func stamp(keys, versions []string) (stamp []byte, newest time.Time, err error) {
	for i, key := range keys {
		micros, _, ok := strings.Cut(versions[i], ".")
		n, failure := strconv.ParseInt(micros, 10, 64)
		if !ok || failure != nil {
			return nil, newest, fmt.Errorf("recipes: %s: version %.40q: %w", key, versions[i], ErrCorrupt)
		}
		if t := time.UnixMicro(n); t.After(newest) {
			newest = t
		}
		stamp = fmt.Appendf(stamp, "%s %s ", key, versions[i])
	}
	return append(stamp, '\n'), newest, nil
}

// Set stores the value that the caller has built after the miss. If a tag was
// invalidated since the miss, no Get returns the stored value.
func (f *Fill) Set(ctx context.Context, value []byte, expires time.Duration) error {
	seconds, err := expiry("expiry of "+f.key, expires)
	if err != nil {
		return err
	}
	full := append(bytes.Clone(f.stamp), value...)
	if err := f.c.s.fits(f.key, len(full)); err != nil {
		return err
	}
	return f.c.s.set(ctx, "set", &memcache.Item{Key: f.key, Value: full, Expiration: seconds})
}

// ReadFromMaster reports whether one of the tags was invalidated during the last lag.
// lag is the replication delay of the database. If the result is true, the caller must
// build the value from the master database. A tag that was lost counts as invalidated
// now.
func (f *Fill) ReadFromMaster(lag time.Duration) bool {
	return f.c.s.now().Sub(f.newer) < lag
}

// Invalidate makes all values with one of these tags invalid, so that they miss. If it
// fails for one tag, it still tries the other tags.
func (c *TaggedCache) Invalidate(ctx context.Context, tags ...string) error {
	keys := make([]string, len(tags))
	for i, t := range tags {
		var err error
		if keys[i], err = c.tag(t); err != nil {
			return err
		}
	}
	var failures []string
	var cause error
	for i, key := range keys {
		err := ctx.Err()
		if err == nil {
			err = c.s.Client.Set(&memcache.Item{Key: key, Value: c.version()})
		}
		if err != nil {
			failures, cause = append(failures, tags[i]), err
		}
	}
	if cause != nil {
		return fmt.Errorf("recipes: cache %s: tags that may not be invalidated: %s: %w", c.name, strings.Join(failures, ", "), cause)
	}
	return nil
}
