package live

// This file describes the instances that serve a pool, and those that differ.

import (
	"cmp"
	"fmt"
	"slices"

	"ringside/proxy/stats"
)

// Roll lists the instances that serve a pool, as far as this one knows: package
// health/roll.
type Roll struct {
	Text           string    `json:"text"`            // one or two sentences
	Me             string    `json:"me"`              // this instance's name in the list
	Of             int       `json:"of"`              // number of instances
	Differ         int       `json:"differ"`          // number of listed instances with another configuration than most
	OtherPlacement int       `json:"other_placement"` // number of listed instances that place replicas on other servers than this one
	Bad            int       `json:"bad"`             // number of unreadable entries so far
	List           []RollRow `json:"list"`            // this instance first; a sample if there are very many
}

// RollRow describes one instance.
type RollRow struct {
	Name           string `json:"name"`
	Version        string `json:"version"`
	Config         string `json:"config"`                    // hash of the instance's pools and routes
	Suspects       string `json:"suspects"`                  // servers that it suspects
	Silent         int    `json:"silent"`                    // number of rounds without a sign of life
	Other          string `json:"other,omitempty"`           // the difference from most instances: configuration or version
	OtherPlacement bool   `json:"other_placement,omitempty"` // the listed instance places replicas on other servers than this instance
}

const mostRows = 200

// RollOf returns the list of instances for a pool. It returns nil if there is none,
// because the pool does not move keys, or because this instance has no name.
func RollOf(sum *stats.Snapshot, pool string) *Roll {
	i := slices.IndexFunc(sum.Rolls, func(r stats.Roll) bool { return r.Pool == pool })
	if i < 0 || sum.Rolls[i].Self.ID == 0 {
		return nil
	}
	from := &sum.Rolls[i]
	is := &Roll{Me: from.Self.Name, Of: from.All, Bad: from.Bad, List: []RollRow{}}
	for i, e := range slices.Insert(slices.Clone(from.Others), 0, from.Self) {
		row := RollRow{Name: e.Name, Version: e.Version, Config: fmt.Sprintf("%016x", e.Config), Suspects: e.Suspects, Silent: e.Silent, OtherPlacement: e.Copies != from.Self.Copies}
		if i == 0 {
			row.Silent = 0
		}
		is.List = append(is.List, row)
	}
	is.List = is.List[:min(len(is.List), mostRows)]
	config, version := most(is.List, func(r *RollRow) string { return r.Config }), most(is.List, func(r *RollRow) string { return r.Version })
	for i := range is.List {
		r := &is.List[i]
		if r.OtherPlacement {
			is.OtherPlacement++
		}
		switch {
		case r.Config != config:
			r.Other = "configuration"
			is.Differ++
		case r.Version != version:
			r.Other = "version"
		}
	}
	switch {
	case !from.Where:
		is.Text = "No server of the pool can say which other instances there are."
	case is.Of == 1:
		is.Text = "No other instance serves this pool."
	default:
		is.Text = fmt.Sprintf("This is one of %d instances.", is.Of)
	}
	for _, text := range is.trouble() {
		is.Text += " " + text
	}
	return is
}

// trouble returns sentences about instances that place replicas differently from this
// one, and about those with another configuration than most.
func (is *Roll) trouble() (text []string) {
	if is.OtherPlacement > 0 {
		text = append(text, is.those(is.OtherPlacement, func(r *RollRow) bool { return r.OtherPlacement }, "keep")+
			" replicas on other servers than this instance, so one may not find what another writes: give all of them the same file.")
	}
	if is.Differ > 0 {
		text = append(text, is.those(is.Differ, func(r *RollRow) bool { return r.Other == "configuration" }, "run")+" other pools or routes than most.")
	}
	return text
}

// those names the n instances for which the function `are` returns true, followed by
// the verb `do`.
func (is *Roll) those(n int, are func(*RollRow) bool, do string) string {
	i := 0
	for !are(&is.List[i]) {
		i++
	}
	switch {
	case n > 1:
		return fmt.Sprintf("%s and %d more %s", is.List[i].Name, n-1, do)
	case i == 0:
		return "This instance " + do + "s"
	}
	return is.List[i].Name + " " + do + "s"
}

// most returns the most frequent value. Of equally frequent values it returns the
// first.
func most(list []RollRow, of func(*RollRow) string) string {
	n := map[string]int{}
	for i := range list {
		n[of(&list[i])]++
	}
	return of(&slices.SortedStableFunc(slices.Values(list), func(a, b RollRow) int { return cmp.Compare(n[of(&b)], n[of(&a)]) })[0])
}
