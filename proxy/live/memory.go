package live

// This file evaluates the memory stats of servers.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"ringside/proxy/stats"
)

// statsAsked are the arguments of the stats commands that each server gets, in this order.
var statsAsked = []string{"", "slabs", "items"}

// Said is what one server reports about its memory. The counters count since the start of the
// server.
type Said struct {
	At              time.Time
	Used, Limit     float64 // size of all items, and memory limit of the server, in bytes
	Items           float64
	Evicted, Unread float64 // number of evicted items, and of evicted items that were never read
	Hits, Misses    float64
	Uptime          float64 // time since the start of the server, in seconds
	Page            float64 // size of a slab page, in bytes
	Classes         []Class
	classes         map[int]*Class // all slab classes that were reported, by number; Classes has those with memory
}

// Class is one slab class of one server, or the sum of a slab class over several servers.
type Class struct {
	Chunk   float64 // size of a chunk in bytes, which is the maximum size of an item
	Pages   float64
	PerPage float64 // number of chunks in a page
	Used    float64 // number of chunks that have an item
	Free    float64 // number of chunks without an item
	Asked   float64 // total size of the items in the class, in bytes, without the unused rest of their chunks
	Items   float64
	Age     float64 // time since the least recently used item of the class was used, in seconds
	Evicted float64 // evicted items per second
	Unread  float64 // evicted items per second that were never read

	number          int     // number of the slab class
	evicted, unread float64 // number of evicted items, and of evicted items that were never read
}

// MarshalJSON encodes a slab class as a list of its fields, in their order.
func (c Class) MarshalJSON() ([]byte, error) {
	return json.Marshal([...]float64{c.Chunk, c.Pages, c.PerPage, c.Used, c.Free, c.Asked, c.Items, c.Age, round(c.Evicted), round(c.Unread)})
}

// UnmarshalJSON decodes a class from a list, as MarshalJSON encodes it.
func (c *Class) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[...]any{&c.Chunk, &c.Pages, &c.PerPage, &c.Used, &c.Free, &c.Asked, &c.Items, &c.Age, &c.Evicted, &c.Unread})
}

// Memory has the memory of each server of a pool. Each field is a list with one value per server.
// Values that are unknown are null.
type Memory struct {
	Used    []*float64 `json:"used"` // size of all items on each server, in bytes
	Held    []*float64 `json:"held"`
	Limit   []*float64 `json:"limit"`
	Items   []*float64 `json:"items"`
	Evicted []*float64 `json:"ev"`  // evicted items per second, on each server
	Unread  []*float64 `json:"unf"` // evicted items per second that were never read, on each server
	Hit     []*float64 `json:"hit"` // hit rate of each server as the server counts it, 0 to 1
}

// Slabs contains the slab classes of a pool's servers.
type Slabs struct {
	Page     float64   `json:"page"`         // size of a slab page, in bytes
	Of       int       `json:"of,omitempty"` // number of servers of the pool if Servers has only the worst of them; 0: it has all
	Servers  [][]Class `json:"servers"`
	Sum      []Class   `json:"sum"`
	Warnings []Warning `json:"warnings"`
}

// mostListed is the maximum number of servers with a separate list of slab classes.
const mostListed = 12

// parseStats parses the replies of a server to its stats requests. They are in the order of
// statsAsked.
func parseStats(answers [][]byte, now time.Time) *Said {
	s := &Said{At: now, Page: 1 << 20, classes: map[int]*Class{}}
	for line := range bytes.Lines(bytes.Join(answers, nil)) {
		name, text, _ := stats.ParseStat(line)
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
			continue
		}
		if number, field, ok := strings.Cut(strings.TrimPrefix(name, "items:"), ":"); ok {
			n, err := strconv.Atoi(number)
			if err != nil || n < 0 || n > 255 { // memcached has at most 64 slab classes, so a number above 255 is wrong
				continue
			}
			if s.classes[n] == nil {
				s.classes[n] = &Class{number: n}
			}
			if to := s.classes[n].called(field); to != nil {
				*to = v
			}
		} else if to := s.called(name); to != nil {
			*to = v
		}
	}
	for _, n := range slices.Sorted(maps.Keys(s.classes)) {
		if c := s.classes[n]; c.Chunk > 0 && c.Pages > 0 {
			s.Classes = append(s.Classes, *c)
		}
	}
	return s
}

// called returns the field for the memcached stat with the given name, or nil if that stat is not
// used.
func (s *Said) called(name string) *float64 {
	return map[string]*float64{
		"bytes": &s.Used, "limit_maxbytes": &s.Limit, "curr_items": &s.Items, "evictions": &s.Evicted, "evicted_unfetched": &s.Unread,
		"get_hits": &s.Hits, "get_misses": &s.Misses, "uptime": &s.Uptime,
	}[name]
}

// called returns the field for the slab class stat with the given memcached name, or nil if that
// stat is not used.
func (c *Class) called(name string) *float64 {
	return map[string]*float64{
		"chunk_size": &c.Chunk, "total_pages": &c.Pages, "chunks_per_page": &c.PerPage, "used_chunks": &c.Used, "free_chunks": &c.Free,
		"mem_requested": &c.Asked, "number": &c.Items, "age": &c.Age, "evicted": &c.evicted, "evicted_unfetched": &c.unread,
	}[name]
}

// rates computes how fast each slab class has evicted items since the earlier report `before`. The
// rates stay 0 if there is no earlier report of the same server process.
func (s *Said) rates(before *Said) {
	seconds, same := s.since(before)
	if !same {
		return
	}
	for i := range s.Classes {
		c := &s.Classes[i]
		was := cmp.Or(before.classes[c.number], &Class{})
		c.Evicted, c.Unread = max(0, c.evicted-was.evicted)/seconds, max(0, c.unread-was.unread)/seconds
	}
}

// since returns the seconds between the earlier report `before` and s. same is false if there is no
// earlier report, or if another server process sent it.
func (s *Said) since(before *Said) (seconds float64, same bool) {
	if before == nil || s.Uptime < before.Uptime {
		return 0, false
	}
	seconds = s.At.Sub(before.At).Seconds()
	return seconds, seconds > 0
}

// held returns the size of the pages of all slab classes together, in bytes.
func (s *Said) held() (n float64) {
	for _, c := range s.Classes {
		n += c.Pages * s.Page
	}
	return n
}

// memory combines the reports of the servers of a pool. now has the current report of each server,
// and before has the earlier one.
func memory(now, before []*Said) *Memory {
	m := &Memory{}
	for i, s := range now {
		row := [7]*float64{}
		if s != nil {
			row = [7]*float64{&s.Used, new(s.held()), &s.Limit, &s.Items}
			if seconds, same := s.since(before[i]); same {
				row[4], row[5] = new(round(max(0, s.Evicted-before[i].Evicted)/seconds)), new(round(max(0, s.Unread-before[i].Unread)/seconds))
				hits, misses := s.Hits-before[i].Hits, s.Misses-before[i].Misses
				if hits >= 0 && misses >= 0 && hits+misses > 0 {
					row[6] = new(math.Round(10000*hits/(hits+misses)) / 10000)
				}
			}
		}
		for j, column := range []*[]*float64{&m.Used, &m.Held, &m.Limit, &m.Items, &m.Evicted, &m.Unread, &m.Hit} {
			*column = append(*column, row[j])
		}
	}
	return m
}

// slabs combines the current reports of servers. names and now have the same order.
func slabs(names []string, now []*Said) *Slabs {
	p := &Slabs{Page: 1 << 20, Servers: make([][]Class, len(now)), Sum: []Class{}, Warnings: []Warning{}}
	bySize := map[float64]*Class{}
	evicts := make([]float64, len(now))
	for i, s := range now {
		if s == nil {
			continue
		}
		p.Servers[i] = s.Classes
		if s.Classes == nil {
			p.Servers[i] = []Class{}
		}
		for _, c := range s.Classes {
			evicts[i] += c.Evicted
			sum := bySize[c.Chunk]
			if sum == nil {
				sum = &Class{Chunk: c.Chunk, PerPage: c.PerPage}
				bySize[c.Chunk] = sum
			}
			sum.Pages += c.Pages
			sum.Used += c.Used
			sum.Free += c.Free
			sum.Asked += c.Asked
			sum.Items += c.Items
			sum.Age = max(sum.Age, c.Age)
			sum.Evicted += c.Evicted
			sum.Unread += c.Unread
		}
		if w := warn(names[i], s); w != nil {
			p.Warnings = append(p.Warnings, *w)
		}
	}
	for _, c := range bySize {
		p.Sum = append(p.Sum, *c)
	}
	slices.SortFunc(p.Sum, func(a, b Class) int { return int(a.Chunk - b.Chunk) })
	slices.SortStableFunc(p.Warnings, func(a, b Warning) int { return int(b.weight - a.weight) })
	p.Warnings = p.Warnings[:min(3, len(p.Warnings))]
	if len(now) > mostListed {
		p.Of = len(now)
		order := make([]int, len(now))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int { return int(100 * (evicts[b] - evicts[a])) })
		for _, i := range order[mostListed:] {
			p.Servers[i] = nil
		}
	}
	return p
}
