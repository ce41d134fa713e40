package seeds

// This file contains the lists, tables, caches and the distributed counter of the
// articles, as printed there.

import (
	"crypto/md5"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"ringside/recipes"
)

// MCArray1 is a list that is changed under a lock, with get and set. It is the first
// array of an article on data structures (scheme S-54).
type MCArray1 struct {
	MC   recipes.Client
	Name string
}

// Change changes the list under a lock that expires after 5 seconds. If between is not
// nil, Change calls it after the read and before the write.
func (a MCArray1) Change(change func([]string) []string, between func()) error {
	lock := MCLock{a.MC, a.Name + "_lock", 5}
	if err := lock.Lock(); err != nil {
		return err
	}
	defer lock.Unlock()
	list := a.Fetch()
	if between != nil {
		between()
	}
	return a.MC.Set(item(a.Name, strings.Join(change(list), " "), 0))
}

// Fetch returns the list without using the lock.
func (a MCArray1) Fetch() []string {
	i, err := a.MC.Get(a.Name)
	if err != nil {
		return nil
	}
	return strings.Fields(string(i.Value))
}

// MCArray2Add adds an element to a list by append. It is a method of the second array
// of an article on data structures (scheme S-55). After an error of append it returns,
// as "except KeyError: return" does in the article. It returns how many times it
// appended.
func MCArray2Add(mc recipes.Client, name, element string) (appended int, err error) {
	for range Endless {
		if err := mc.Append(item(name, element+" ", 0)); err != nil {
			return appended, nil
		}
		appended++
		if err := mc.Add(item(name, element+" ", 0)); err == nil {
			return appended, nil
		}
	}
	return appended, ErrEndless
}

// MCTable is a set of members, as printed in an article on data structures (scheme
// S-58). It has a key (index) for each member, and a list of all members.
type MCTable struct {
	MC   recipes.Client
	Name string
}

// Add writes the key (index) of the member, and then adds the member to the list. If
// crash is not nil, Add calls it in place of changing the list.
func (t MCTable) Add(member string, crash func()) error {
	if err := t.MC.Set(item(t.Name+"_v_"+member, "1", 0)); err != nil {
		return err
	}
	if crash != nil {
		crash()
		return nil
	}
	return MCArray1{t.MC, t.Name + "_keys"}.Change(func(l []string) []string { return append(l, member) }, nil)
}

// Has reports whether the key (index) of the member exists.
func (t MCTable) Has(member string) bool {
	_, err := t.MC.Get(t.Name + "_v_" + member)
	return err == nil
}

// Fetch returns the members in the list of the table.
func (t MCTable) Fetch() []string { return MCArray1{t.MC, t.Name + "_keys"}.Fetch() }

// Tags is a cache with tags, as printed in an article on caching (schemes S-29 to
// S-31). If Counting is set, the versions of a tag are 1, 2, 3…; otherwise a version is
// the time in milliseconds.
type Tags struct {
	MC       recipes.Client
	Now      Now
	Counting bool
}

func (c Tags) version(tag string) string {
	i, err := c.MC.Get("tag_" + tag)
	if err != nil {
		c.Invalidate(tag)
		if i, err = c.MC.Get("tag_" + tag); err != nil {
			return ""
		}
	}
	return string(i.Value)
}

// Invalidate writes the next version of a tag.
func (c Tags) Invalidate(tag string) {
	if !c.Counting {
		c.MC.Set(item("tag_"+tag, strconv.FormatInt(c.Now().UnixMilli(), 10), 0))
	} else if _, err := c.MC.Increment("tag_"+tag, 1); err != nil {
		c.MC.Add(item("tag_"+tag, "1", 0))
	}
}

// Set stores a value with the current versions of its tags.
func (c Tags) Set(key, value string, tags ...string) error {
	for _, t := range tags {
		value = c.version(t) + " " + value
	}
	return c.MC.Set(item(key, value, 0))
}

// Get returns the value of key if the versions of its tags are unchanged since the value was
// stored.
func (c Tags) Get(key string, tags ...string) (string, bool) {
	i, err := c.MC.Get(key)
	if err != nil {
		return "", false
	}
	value := string(i.Value)
	for _, t := range slices.Backward(tags) {
		version, rest, _ := strings.Cut(value, " ")
		if value = rest; version != c.version(t) {
			return "", false
		}
	}
	return value, true
}

// Guarded is a scheme against simultaneous rebuilds, as printed in an article on
// caching (scheme S-24). The real expiry is in the value, add locks the key, and delete
// unlocks it.
type Guarded struct {
	MC    recipes.Client
	Now   Now
	Lease int32
}

// Get returns the value of key. If the value has expired, Get tries to lock the key,
// and builds a new value. A caller that does not get the lock returns the old value. If
// there is no old value, it builds too.
func (g Guarded) Get(key string, expires time.Duration, build func() string) string {
	old := ""
	if i, err := g.MC.Get(key); err == nil {
		until, value, _ := strings.Cut(string(i.Value), " ")
		if n, _ := strconv.ParseInt(until, 10, 64); g.Now().Unix() < n {
			return value
		}
		old = value
	}
	lock := MCLock{g.MC, key + "_lock", g.Lease}
	if !lock.TryLock() && old != "" {
		return old
	}
	value := build()
	g.MC.Set(item(key, fmt.Sprintf("%d %s", g.Now().Add(expires).Unix(), value), 0))
	lock.Unlock()
	return value
}

// Rows is a distributed counter, as printed in an article (schemes S-61 to S-63). It is
// a table with one row per server of the application. Rows are never removed.
type Rows struct {
	mu   sync.Mutex
	rows map[string]int
}

// Flush writes the count of a server to the server's row.
func (r *Rows) Flush(server string, online int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rows == nil {
		r.rows = map[string]int{}
	}
	r.rows[server] = online
}

// Total returns the sum of all rows.
func (r *Rows) Total() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, online := range r.rows {
		n += online
	}
	return n
}

// SelectionKey returns the key of a selection with options, as printed in an article on
// caching (scheme S-10): md5(serialize(options)).
func SelectionKey(options map[string]any) string {
	text, _ := json.Marshal(options)
	return fmt.Sprintf("%x", md5.Sum(text))
}
