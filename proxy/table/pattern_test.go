package table

import (
	"regexp"
	"strings"
	"testing"
)

// TestPatternTakes compares patterns with equivalent regular expressions.
func TestPatternTakes(t *testing.T) {
	for _, match := range []string{"*", "**", "a", "a*", "*a", "*a*", "a*a", "ab*ba", "a*b*a", "*ab*ba*", "*a**b", "*aab*ab", "a*ba*ba"} {
		means := regexp.MustCompile("^" + strings.ReplaceAll(match, "*", ".*") + "$")
		p := (&Route{Match: match}).Pattern()
		for n := range 1 << 9 { // all keys of up to 8 bytes a and b
			key := ""
			for ; n > 1; n >>= 1 {
				key += string("ab"[n&1])
			}
			if got, want := p.Takes([]byte(key)), means.MatchString(key); got != want {
				t.Errorf("%q takes %q: %v, want %v", match, key, got, want)
			}
		}
	}
	prefix := (&Route{Prefix: "a*"}).Pattern()
	if !prefix.Takes([]byte("a*b")) || prefix.Takes([]byte("ab")) {
		t.Error("a star in a prefix is a star")
	}
}
