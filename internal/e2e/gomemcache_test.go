package e2e

// This file runs the checks of the client programs with github.com/bradfitz/gomemcache.

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

// gomemcacheChecks runs the checks and returns what a client program would print.
func gomemcacheChecks(address, prefix string) string {
	c := memcache.New(address)
	c.Timeout = patience
	defer c.Close()

	var printed strings.Builder
	check := func(name string, run func(key string) error) {
		if err := run(prefix + name); err != nil {
			fmt.Fprintf(&printed, "not ok %s: %v\n", name, err)
		} else {
			fmt.Fprintf(&printed, "ok %s\n", name)
		}
	}
	item := func(key, value string) *memcache.Item { return &memcache.Item{Key: key, Value: []byte(value)} }
	// holds returns trouble if it is set. Otherwise it checks that key has that value.
	holds := func(key, value string, trouble error) error {
		if trouble != nil {
			return trouble
		}
		got, err := c.Get(key)
		if err == nil && string(got.Value) != value {
			err = fmt.Errorf("got %s, want %s", brief(string(got.Value)), brief(value))
		}
		return err
	}
	// refused checks that err is want.
	refused := func(err, want error) error {
		if !errors.Is(err, want) {
			return fmt.Errorf("got error %v, want %v", err, want)
		}
		return nil
	}
	gone := func(key string) error {
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			if _, err := c.Get(key); errors.Is(err, memcache.ErrCacheMiss) {
				return nil
			} else if err != nil {
				return err
			}
		}
		return fmt.Errorf("still there after %v", patience)
	}

	check("set", func(k string) error { return c.Set(item(k, "one")) })
	check("get", func(k string) error {
		_, err := c.Get(k)
		return errors.Join(refused(err, memcache.ErrCacheMiss), holds(k, "a\r\nEND\r\n\x00b", c.Set(item(k, "a\r\nEND\r\n\x00b"))))
	})
	check("multiget", func(k string) error {
		keys := []string{k + ":absent"}
		for i := range 100 {
			key := fmt.Sprintf("%s:%d", k, i)
			keys = append(keys, key)
			if err := c.Set(item(key, strings.Repeat(key, i))); err != nil {
				return err
			}
		}
		got, err := c.GetMulti(keys)
		if err == nil && len(got) != 100 {
			err = fmt.Errorf("%d keys came back, want 100", len(got))
		}
		for i, key := range keys[1:] {
			if err == nil && string(got[key].Value) != strings.Repeat(key, i) {
				err = fmt.Errorf("%s has a wrong value", key)
			}
		}
		return err
	})
	check("add", func(k string) error {
		return errors.Join(c.Add(item(k, "one")), holds(k, "one", refused(c.Add(item(k, "two")), memcache.ErrNotStored)))
	})
	check("replace", func(k string) error {
		return errors.Join(refused(c.Replace(item(k, "one")), memcache.ErrNotStored),
			c.Set(item(k, "one")), holds(k, "two", c.Replace(item(k, "two"))))
	})
	check("append", func(k string) error {
		return errors.Join(refused(c.Append(item(k, "x")), memcache.ErrNotStored),
			c.Set(item(k, "one")), holds(k, "one two", c.Append(item(k, " two"))))
	})
	check("prepend", func(k string) error {
		return errors.Join(refused(c.Prepend(item(k, "x")), memcache.ErrNotStored),
			c.Set(item(k, "one")), holds(k, "two one", c.Prepend(item(k, "two "))))
	})
	number := func(got uint64, err error, want uint64) error {
		if err == nil && got != want {
			err = fmt.Errorf("got %d, want %d", got, want)
		}
		return err
	}
	// The overflow uses a large delta, not a large value. After a large value, memcached
	// 1.6.18 also looks for a minus sign in the bytes that follow, which may belong to
	// another item.
	check("incr", func(k string) error {
		_, err := c.Increment(k, 1)
		err = errors.Join(refused(err, memcache.ErrCacheMiss), c.Set(item(k, "25")))
		got, failed := c.Increment(k, 1<<64-13)
		return errors.Join(err, number(got, failed, 12))
	})
	check("decr", func(k string) error {
		_, err := c.Decrement(k, 1)
		err = errors.Join(refused(err, memcache.ErrCacheMiss), c.Set(item(k, "12")))
		got, failed := c.Decrement(k, 5)
		below, failedToo := c.Decrement(k, 50)
		return errors.Join(err, number(got, failed, 7), number(below, failedToo, 0))
	})
	check("cas", func(k string) error {
		if err := c.Set(item(k, "one")); err != nil {
			return err
		}
		first, err := c.Get(k)
		if err != nil {
			return err
		}
		second := *first
		first.Value, second.Value = []byte("two"), []byte("three")
		return errors.Join(c.CompareAndSwap(first),
			holds(k, "two", refused(c.CompareAndSwap(&second), memcache.ErrCASConflict)))
	})
	check("touch", func(k string) error {
		return errors.Join(refused(c.Touch(k, 100), memcache.ErrCacheMiss), c.Set(item(k, "one")), c.Touch(k, 1), gone(k))
	})
	check("delete", func(k string) error {
		err := errors.Join(refused(c.Delete(k), memcache.ErrCacheMiss), c.Set(item(k, "one")), c.Delete(k))
		_, missing := c.Get(k)
		return errors.Join(err, refused(missing, memcache.ErrCacheMiss))
	})
	check("flags", func(k string) error {
		if err := c.Set(&memcache.Item{Key: k, Value: []byte("one"), Flags: 1<<32 - 1}); err != nil {
			return err
		}
		got, err := c.Get(k)
		if err == nil && got.Flags != 1<<32-1 {
			err = fmt.Errorf("got flags %d, want %d", got.Flags, uint32(1<<32-1))
		}
		return err
	})
	check("expiry", func(k string) error {
		err := c.Set(&memcache.Item{Key: k + ":stays", Value: []byte("one"), Expiration: 3600})
		var before error
		for _, ttl := range []int32{2, 20, 60} { // tries a longer one if this process slept for so long
			before = holds(k, "one", c.Set(&memcache.Item{Key: k, Value: []byte("one"), Expiration: ttl}))
			if !errors.Is(before, memcache.ErrCacheMiss) {
				break
			}
		}
		return errors.Join(err, before, gone(k), holds(k+":stays", "one", nil))
	})
	for _, size := range []struct {
		label string
		bytes int
	}{{"0", 0}, {"1", 1}, {"100k", 100 << 10}, {"1m", 1 << 20}} {
		check("value-"+size.label, func(k string) error {
			value := make([]byte, size.bytes)
			rand.Read(value)
			if err := c.Set(&memcache.Item{Key: k, Value: value}); err != nil {
				return err
			}
			got, err := c.Get(k)
			if err == nil && !bytes.Equal(got.Value, value) {
				err = fmt.Errorf("%d bytes came back wrong as %d", len(value), len(got.Value))
			}
			return err
		})
	}
	return printed.String()
}
