package top

// This file shows statistics of guards, tags and near caches, missing replicas, and the instances.

import (
	"fmt"
	"slices"

	"ringside/proxy/live"
)

// routes adds at most `most` lines. The lines say which servers lack replicas, and what guards,
// tags, near caches and replication have done.
func (d *drawing) routes(most int) {
	r := d.now.Routes
	if r == nil {
		return
	}
	end := len(d.lines) + most
	say := func(style Style, text string) {
		if len(d.lines) < end {
			d.add(style, text)
		}
	}
	for i := range r.Lacks {
		if l := &r.Lacks[i]; l.Server < len(d.now.List) {
			say(Warn, " LACKS "+d.brief.Replace(d.now.List[l.Server].Name)+" "+l.Text)
		}
	}
	for i := range r.Guards {
		g := &r.Guards[i]
		say(Plain, fmt.Sprintf(" GUARD %s %s/s rebuild, %s/s saved, %d wait; %s ever saved", pad(routeName(g.Route), 12, true),
			live.Count(g.Leases), live.Count(g.Saved+g.Old), g.Waiting, live.Count(float64(g.Ever)))+rebuilt(g.P50, g.P99))
	}
	for i := range r.Tags {
		t := &r.Tags[i]
		say(Plain, fmt.Sprintf(" TAGS  %s %s/s valid, %s/s invalidated, %s/s not stored; %s invalidations", pad(routeName(t.Route), 12, true),
			live.Count(t.Hits), live.Count(t.Invalid), live.Count(t.LateSets), live.Count(float64(r.Invalidations.Ever))))
	}
	for i := range r.Near {
		n := &r.Near[i]
		text := fmt.Sprintf(" NEAR  %s %s/s given, %s/s asked, %s of the keys", pad(routeName(n.Route), 12, true), live.Count(n.Hits), live.Count(n.Asked), orDash(n.Share, live.Percent))
		if n.Age != nil {
			text += "; " + live.Micros(1000**n.Age) + " old"
		}
		say(Plain, fmt.Sprintf("%s; %s values, %s", text, live.Count(float64(n.Values)), live.Bytes(float64(n.Bytes))))
	}
	if c := r.Replicas; c != nil {
		say(Plain, fmt.Sprintf(" REPLICAS %s/s repaired, %s/s resynced, %s/s dropped", live.Count(c.Repaired), live.Count(c.Refilled), live.Count(c.Dropped)))
	}
}

// routeName returns the name of a route as the screen shows it.
func routeName(label []byte) string {
	if len(label) == 0 {
		return "other keys"
	}
	return live.Clean(string(label))
}

// roll adds a line for each instance of the pool, at most `most` lines. Instances that differ from
// the others or are silent come first.
func (d *drawing) roll(most int) {
	r := d.now.Roll
	if r == nil || r.Of < 2 {
		return
	}
	list := slices.Clone(r.List)
	rank := func(l live.RollRow) int {
		if l.OtherPlacement {
			return -100 - l.Silent
		}
		return -2*len(l.Other) - l.Silent
	}
	slices.SortStableFunc(list, func(a, b live.RollRow) int { return rank(a) - rank(b) })
	for _, l := range list[:min(most, len(list))] {
		style, text := Plain, fmt.Sprintf(" RINGSIDE %s %s config %.8s", pad(live.Clean(l.Name), 24, true), pad(live.Clean(l.Version), 10, true), l.Config)
		if l.Other+l.Suspects != "" || l.OtherPlacement {
			style = Warn
		}
		if l.Suspects != "" {
			text += ", suspects " + l.Suspects
		}
		if l.Text != "" {
			text += ", " + l.Text
		}
		d.add(style, text)
	}
}
