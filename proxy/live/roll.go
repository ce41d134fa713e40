package live

// This file describes the instances that serve a pool, and how they differ.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"ringside/proxy/health/roll"
	"ringside/proxy/stats"
)

// Roll lists the instances that serve a pool, as far as this instance knows them. Package
// health/roll finds them.
type Roll struct {
	Text           string    `json:"text"`            // one or more sentences about the instances
	Me             string    `json:"me"`              // name of this instance in the list
	Of             int       `json:"of"`              // number of all instances
	Differ         int       `json:"differ"`          // number of listed instances with another configuration than most instances
	OtherPlacement int       `json:"other_placement"` // number of listed instances that place replicas on other servers than this instance
	Bad            int       `json:"bad"`             // number of entries of other instances that could not be read, so far
	List           []RollRow `json:"list"`            // the instances, this one first; only some of them if there are very many
}

// RollRow describes one instance that serves the pool.
type RollRow struct {
	Name           string `json:"name"`
	Version        string `json:"version"`
	Config         string `json:"config"`                    // hash of the pools and routes in the instance's configuration
	Suspects       string `json:"suspects"`                  // names of the servers that the instance suspects; empty: none
	Silent         int    `json:"silent"`                    // number of rounds in which this instance has seen no sign of life of the listed instance
	Other          string `json:"other,omitempty"`           // how the instance differs from most instances: configuration or version; empty: it does not
	Text           string `json:"text,omitempty"`            // how the instance differs, and whether it is silent, in words; empty: neither
	OtherPlacement bool   `json:"other_placement,omitempty"` // true if the listed instance places replicas on other servers than this instance
}

const mostRows = 200

// RollOf returns the list of the instances that serve a pool. It returns nil if there is no list.
// That is the case if the pool does not move keys, or if this instance has no name.
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
		r.Text = r.remarks(than(is.List), is.Of)
	}
	switch {
	case !from.Where:
		is.Text = "No server of the pool can report which other instances there are."
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

// than returns with what instances of the list are compared: of two, neither is the usual one.
func than(list []RollRow) string {
	if len(list) == 2 {
		return "this instance"
	}
	return "most"
}

// silence says since when the instance, which is one of n, has been silent. It may have been killed.
func (r *RollRow) silence(n int) string {
	return fmt.Sprintf("silent for about %d s", r.Silent*int(roll.Pause(n)/time.Second))
}

// remarks describes how the instance differs from the instances `than`, and whether it is silent. n is the number of instances.
func (r *RollRow) remarks(than string, n int) string {
	var list []string
	if r.Other != "" {
		list = append(list, "another "+r.Other+" than "+than)
	}
	if r.OtherPlacement {
		list = append(list, "keeps replicas on other servers")
	}
	if r.Silent > 1 {
		list = append(list, r.silence(n))
	}
	return strings.Join(list, ", ")
}

// trouble returns sentences about instances that place replicas on other servers than this
// instance, and about instances with another configuration than most.
func (is *Roll) trouble() (text []string) {
	if is.OtherPlacement > 0 {
		text = append(text, is.those(is.OtherPlacement, func(r *RollRow) bool { return r.OtherPlacement }, "keep")+
			" replicas on other servers than this instance, so one may not find what another writes: give all of them the same file.")
	}
	if is.Differ > 0 {
		text = append(text, is.those(is.Differ, func(r *RollRow) bool { return r.Other == "configuration" }, "run")+" other pools or routes than "+than(is.List)+".")
	}
	return text
}

// those returns a text with the instances for which the function `are` returns true, followed by
// the verb `do`. n is the number of these instances.
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
	name := is.List[i].Name
	if r := &is.List[i]; r.Silent > 1 {
		name += " (" + r.silence(is.Of) + ")"
	}
	return name + " " + do + "s"
}

// most returns the most frequent value of the function `of` over the list. If several values are
// equally frequent, it returns the first of them.
func most(list []RollRow, of func(*RollRow) string) string {
	n := map[string]int{}
	for i := range list {
		n[of(&list[i])]++
	}
	return of(&slices.SortedStableFunc(slices.Values(list), func(a, b RollRow) int { return cmp.Compare(n[of(&b)], n[of(&a)]) })[0])
}
