package config

import (
	"testing"

	"ringside/proxy/table"
)

// patternOf returns the pattern of a match.
func patternOf(match string) table.Pattern { return (&table.Route{Match: match}).Pattern() }

// TestKeyOfBoth calls keyOfBoth for all pairs of short patterns and checks the results with all
// short keys. If it returns a key, both patterns match it. If not, no key matches both.
func TestKeyOfBoth(t *testing.T) {
	texts := func(letters string, most int) (all []string) {
		all = []string{""}
		for from := 0; most > 0; most-- {
			for end := len(all); from < end; from++ {
				for _, c := range letters {
					all = append(all, all[from]+string(c))
				}
			}
		}
		return all
	}
	keys := texts("abc", 5) // c is in no pattern, so only * matches it
	patterns := texts("ab*", 4)[1:]
	takes := map[string][]bool{}
	for _, match := range patterns {
		p := patternOf(match)
		for _, key := range keys {
			takes[match] = append(takes[match], p.Takes([]byte(key)))
		}
	}
	for _, a := range patterns {
		for _, b := range patterns {
			p, q := patternOf(a), patternOf(b)
			key, ok := keyOfBoth(p, q)
			if ok && (!p.Takes([]byte(key)) || !q.Takes([]byte(key))) {
				t.Fatalf("%q and %q: one does not take %q", a, b, key)
			}
			for i := range keys {
				if takes[a][i] && takes[b][i] && !ok {
					t.Fatalf("%q and %q both take %q, and keyOfBoth knows none", a, b, keys[i])
				}
			}
		}
	}
}
