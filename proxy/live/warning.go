package live

// This file describes problems of a server's memory in words.

import (
	"fmt"
	"math"
	"slices"
)

// Warning is a sentence about a server's memory.
type Warning struct {
	Server  string `json:"server"`
	Text    string `json:"text"`              // the problem; printed after the server's name
	Command string `json:"command,omitempty"` // a command for the server that would help; empty: none
	weight  float64
}

// evicts is the eviction rate, in items per second, above which a class counts as
// evicting.
const evicts = .5

// warn reports a server that evicts items, and whether it has idle memory at the same
// time. The first page of a class does not count as idle, because memcached never moves
// it.
func warn(name string, s *Said) *Warning {
	var lost, unread, spare float64
	var worst Class
	var idle []Class
	for _, c := range s.Classes {
		free := c.Free * c.Chunk
		switch {
		case c.Evicted >= evicts:
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
			Text: fmt.Sprintf("evicts %s items/s and no class has memory to spare: it is too small for what it is given.", Count(math.Round(10*lost)/10))}
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
