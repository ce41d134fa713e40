package recipes

// Values that die with their tags.

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

// TaggedCache keeps values that name tags, and forgets them all when one of
// their tags is invalidated, without knowing them. A tag is a key with a version; a
// value carries the versions of its tags, and is there only if they are equal to
// what the tags have now.
//
// A version is the time in microseconds and 64 random bits, and is compared for
// equality only. So a tag that was lost, by whatever cause, gets a version that no
// value has: its values miss, and none that was invalidated ever comes back, which
// a counted version can't promise. Clocks matter to ReadFromMaster alone.
//
// The versions that a value carries are those that Get read when it missed, not
// those of the moment in which it is stored: what was read from the database before
// an invalidation is invalid when it comes, however late that is.
//
// Guarantee: after an Invalidate that succeeded, no Get returns a value whose Get
// had missed before it began. While a tag's server can't answer, a Get of its
// values is an error or a miss. An Invalidate that ends with an error names the tags
// that may still be as they were; repeat it.
//
// Cost in round trips: Get 1, a multi-get of the value and its tags (3 where a tag
// has no version yet, and 1 more for each further one), Set 1, Invalidate 1 for each
// tag.
//
// The guarantee holds on one copy and through an ejection as far as Ringside's
// does: with consistency: relaxed, a read through another Ringside may still be an
// older one while they disagree about a server. The loss of a server costs misses:
// of its values, and of all values with the tags that it had.
type TaggedCache struct {
	s    *Store
	name string
}

const (
	maxTags    = 64
	maxTagName = 120 // bytes of the cache's and a tag's name together
)

// NewTaggedCache is a cache with a name: caches of different names share neither
// values nor tags.
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
	key := c.s.pair("tag", c.name, tag)
	if len(key) > maxKey {
		return "", fmt.Errorf("recipes: cache %s, tag %.20s…: %d bytes make a key of %d, at most %d are possible: %w", c.name, tag, len(tag), len(key), maxKey, ErrKey)
	}
	return key, nil
}

// Fill is a miss, and the right to store what is built because of it.
type Fill struct {
	c     *TaggedCache
	key   string
	stamp []byte
	newer time.Time // when the youngest of its tags was invalidated
}

// Get reads a value that carries exactly these tags. ErrMiss says that there is
// none; the Fill is then not nil, and takes what the caller builds.
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

// keys are those of a value and of its tags, in the order of their names, each once.
func (c *TaggedCache) keys(key string, tags []string) (full string, tagKeys []string, err error) {
	if err := CheckKey(key); err != nil {
		return "", nil, fmt.Errorf("cache %s: %w", c.name, err)
	}
	full = c.s.pair("tagged", c.name, key)
	if len(full) > maxKey {
		return "", nil, fmt.Errorf("recipes: cache %s, key %.20s…: %d bytes make a key of %d, at most %d are possible: %w", c.name, key, len(key), len(full), maxKey, ErrKey)
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

// make gives a tag its first version, or reads that of who was faster.
func (c *TaggedCache) make(ctx context.Context, key string) (item *memcache.Item, err error) {
	err = c.s.again(ctx, "tag", key, func() (bool, error) {
		item = &memcache.Item{Key: key, Value: c.version()}
		if err := c.s.Client.Add(item); err == nil {
			return true, nil
		} else if !isNotStored(err) {
			return false, failed("tag", key, err)
		}
		item, err = c.s.get(ctx, key)
		return item != nil, err
	})
	return item, err
}

// version is one that no tag has had.
func (c *TaggedCache) version() []byte {
	var bits [8]byte
	rand.Read(bits[:])
	return fmt.Appendf(nil, "%d.%016x", c.s.now().UnixMicro(), binary.BigEndian.Uint64(bits[:]))
}

// stamp is what a value carries in front: its tags and their versions.
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

// Set stores what was built after the miss. If a tag has been invalidated since,
// it is stored in vain, and no Get returns it.
func (f *Fill) Set(ctx context.Context, value []byte, expires time.Duration) error {
	seconds, err := expiry("expiry of "+f.key, expires)
	if err != nil {
		return err
	}
	full := append(bytes.Clone(f.stamp), value...)
	if err := f.c.s.fits(f.key, len(full)); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return failed("set", f.key, err)
	}
	if err := f.c.s.Client.Set(&memcache.Item{Key: f.key, Value: full, Expiration: seconds}); err != nil {
		return failed("set", f.key, err)
	}
	return nil
}

// ReadFromMaster says whether a tag was invalidated within lag, the time by which
// the database's replicas are behind: what is built must then be read from its
// master. A tag that was lost counts as just invalidated.
func (f *Fill) ReadFromMaster(lag time.Duration) bool {
	return f.c.s.now().Sub(f.newer) < lag
}

// Invalidate makes all values with one of these tags miss. It tries all tags,
// also when one fails.
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
