package top

// This file shows why keys miss, and what the misses cost.

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ringside/proxy/live"
)

// mostMisses is the number of lines about misses if the height of the output is not limited.
const mostMisses = 20

// misses adds a line for each route with recorded misses, and at most `most` lines. Routes with the
// most misses are first. A line has the miss reasons and the cost of rebuilding values.
func (d *drawing) misses(most int) {
	m := d.now.Misses
	if m == nil || m.Off {
		return
	}
	list := slices.DeleteFunc(slices.Clone(m.Routes), func(l live.MissLine) bool { return len(l.Why) == 0 && l.Saved == nil })
	slices.SortStableFunc(list, func(a, b live.MissLine) int { return int(b.Misses - a.Misses) })
	for i := range list[:min(len(list), most)] {
		l := &list[i]
		text := fmt.Sprintf(" WHY %s %s/s miss: %s", pad(routeName(l.Name), 12, true), live.Count(l.Misses), reasons(l.Why))
		text += rebuilt(l.P50, l.P99)
		if l.Saved != nil {
			text += "; hits save " + live.Work(*l.Saved) + "/s"
		}
		d.add(Plain, text)
	}
	if len(list) > 0 {
		d.rule()
	}
}

// rebuilt returns a text with the median and the 99th percentile of the time that rebuilds take, in
// milliseconds. It is empty if they are not known.
func rebuilt(p50, p99 *float64) string {
	if p50 == nil {
		return ""
	}
	return fmt.Sprintf("; rebuilt in p50 %s p99 %s", live.Micros(1000**p50), live.Micros(1000**p99))
}

// reasons returns a text with the share of each miss reason, the largest share first.
func reasons(why map[string]float64) string {
	names := slices.SortedFunc(maps.Keys(why), func(a, b string) int {
		return cmp.Or(cmp.Compare(why[b], why[a]), strings.Compare(a, b))
	})
	for i, name := range names {
		names[i] = name + " " + strings.ReplaceAll(live.Percent(why[name]), " ", "")
	}
	if len(names) == 0 {
		return "none lately"
	}
	return strings.Join(names, ", ")
}
