package live

// This file describes problems with the memory of a server in words.

import (
	"fmt"
	"math"
	"slices"
)

// Warning describes a problem with the memory of one server.
type Warning struct {
	Server  string `json:"server"`
	Text    string `json:"text"`              // the problem in words; printed after the server's name
	Command string `json:"command,omitempty"` // a command for the memcached server that would help; empty: none
	weight  float64
}

// Evicts is the rate from which a slab class counts as evicting, in items per second.
const Evicts = .5

// warn returns a warning if a server evicts items, and says whether other slab classes have idle
// memory at the same time. A class with only one page has no idle memory, because memcached never
// moves its first page. warn returns nil if there is nothing to report.
func warn(name string, s *Said) *Warning {
	var lost, unread, spare float64
	var worst Class
	var idle []Class
	for _, c := range s.Classes {
		free := c.Free * c.Chunk
		switch {
		case c.Evicted >= Evicts:
			lost += c.Evicted
			unread += c.Unread
			if c.Evicted > worst.Evicted {
				worst = c
			}
		case c.Pages > 1 && free > s.Page:
			spare += free - s.Page/2
			idle = append(idle, c)
		}
	}
	switch {
	case lost == 0:
		return nil
	case spare < s.Page:
		if lost < 1 {
			return nil
		}
		return &Warning{Server: name, weight: lost,
			Text: fmt.Sprintf("evicts %s items/s and no class has memory to spare: it needs more memory for these items.", Count(math.Round(10*lost)/10))}
	}
	slices.SortFunc(idle, func(a, b Class) int { return int(b.Free*b.Chunk - a.Free*a.Chunk) })
	from, to, got := math.Inf(1), 0.0, 0.0
	for _, c := range idle {
		if got < spare*.6 {
			got += c.Free * c.Chunk
			from, to = min(from, c.Chunk), max(to, c.Chunk)
		}
	}
	sizes := "of up to " + Bytes(to)
	if from < to {
		sizes = "of " + Bytes(from) + " to " + Bytes(to)
	}
	never := ""
	if unread/lost > .3 {
		never = fmt.Sprintf(" (%.0f %% of all were never read)", 100*unread/lost)
	}
	return &Warning{Server: name, weight: lost * math.Log2(spare), Command: "slabs automove 1",
		Text: fmt.Sprintf("evicts %s items/s, most of up to %s%s, while %s stand empty for items %s. To let pages move:",
			Count(math.Round(10*lost)/10), Bytes(worst.Chunk), never, Bytes(spare), sizes)}
}
