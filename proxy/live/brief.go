package live

// This file shortens the names of servers for people.

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unicode"

	"ringside/proxy/table"
)

// longName is the number of bytes from which names are shortened.
const longName = 20

// briefNames returns the short name of each server that has one. A short name lacks the end that all
// names of a pool have in common, such as a domain and a port.
func briefNames(pools []*table.Pool) map[string]string {
	is := map[string]string{}
	used := map[string]string{} // full name by short name
	for _, p := range pools {
		end, long := "", false
		for i, s := range p.Servers {
			if long = long || len(s.Name) > longName; i == 0 {
				end = s.Name
			}
			for !strings.HasSuffix(s.Name, end) {
				end = end[1:]
			}
		}
		dot := strings.IndexByte(end, '.')
		if len(p.Servers) < 2 || !long || dot < 0 || !strings.ContainsFunc(end[dot:], unicode.IsLetter) {
			continue
		}
		for _, s := range p.Servers {
			short := strings.TrimSuffix(s.Name, end[dot:])
			if other := used[short]; short == "" || other != "" && other != s.Name { // two pools have such a server
				continue
			}
			used[short], is[s.Name] = s.Name, short
		}
	}
	return is
}

// Briefly replaces the names in the keys of brief by the short names.
func Briefly(brief map[string]string) *strings.Replacer {
	var pairs []string
	for _, name := range slices.SortedFunc(maps.Keys(brief), func(a, b string) int { return cmp.Compare(len(b), len(a)) }) { // a name may begin with another name
		pairs = append(pairs, name, brief[name])
	}
	return strings.NewReplacer(pairs...)
}

// Fit shortens a name to width characters, so that the part remains that differs from the other
// names. It leaves out what all names have in common at their beginning, or else at their end.
func Fit(name string, all []string, width int) string {
	runes := []rune(name)
	if len(runes) <= width || width < 3 {
		return name
	}
	begin, end := len(runes), len(runes)
	for _, other := range all {
		if other == name {
			continue
		}
		o := []rune(other)
		n := 0
		for n < min(len(o), len(runes)) && o[n] == runes[n] {
			n++
		}
		begin = min(begin, n)
		for n = 0; n < min(len(o), len(runes)) && o[len(o)-1-n] == runes[len(runes)-1-n]; n++ {
		}
		end = min(end, n)
	}
	if differs := len(runes) - end; begin == len(runes) || differs < width { // nothing to compare with, or the first characters tell it
		return string(runes[:width-1]) + "…"
	} else if end == 0 || len(runes)-begin < width {
		return "…" + string(runes[len(runes)-width+1:])
	} else {
		return "…" + string(runes[differs-width+2:differs]) + "…"
	}
}
