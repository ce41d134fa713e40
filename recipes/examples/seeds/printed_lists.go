package seeds

// Lists, tables, caches and the distributed counter as printed.

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

// MCArray1 is the first array of [2] (S-54): a lock, then get, change, set.
type MCArray1 struct {
	MC   recipes.Client
	Name string
}

// Change changes the list under a lock that expires after 5 seconds. If between is
// not nil, it is called after the read and before the write.
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

// MCArray2Add is the Add of the second array of [2] (S-55). Its append has
// "except KeyError: return". It returns how many times it appended.
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

// MCTable is the table of [2] (S-58): an index for each member, then the list.
type MCTable struct {
	MC   recipes.Client
	Name string
}

// Add writes the index first. If crash is not nil, Add calls it and does not write
// the list.
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

// Has reads the index.
func (t MCTable) Has(member string) bool {
	_, err := t.MC.Get(t.Name + "_v_" + member)
	return err == nil
}

// Fetch reads the list.
func (t MCTable) Fetch() []string { return MCArray1{t.MC, t.Name + "_keys"}.Fetch() }

// Tags is the cache with tags of article [1], schemes S-29 to S-31 (see the package
// comment). If Counting is set, versions are 1, 2, 3…; otherwise they are the time in
// milliseconds.
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

// Get returns a value if the versions of its tags are unchanged.
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

// Guarded is the scheme of [1] against simultaneous rebuilds (S-24): the real
// expiry is in the value, add locks and delete unlocks.
type Guarded struct {
	MC    recipes.Client
	Now   Now
	Lease int32
}

// Get reads the value. If it has expired, Get tries to lock and builds. Without an
// old value, a caller that does not get the lock builds too.
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

// Rows is the counter of [3] (S-61 to S-63): two numbers, and a table with one row
// per server. Rows are never removed.
type Rows struct {
	mu   sync.Mutex
	rows map[string]int
}

// Flush writes the row of a server.
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

// SelectionKey is the key that article [1] uses for a selection with options (scheme
// S-10): md5(serialize(options)). The package comment names the articles.
func SelectionKey(options map[string]any) string {
	text, _ := json.Marshal(options)
	return fmt.Sprintf("%x", md5.Sum(text))
}
