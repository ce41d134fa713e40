package wire

// Which memcached a server is, from its answer to version.

import (
	"bytes"
	"cmp"
)

// Release is a version of memcached. The zero Release is older than all.
type Release struct{ Major, Minor, Patch int }

// AtLeast reports whether v is major.minor.patch or later.
func (v Release) AtLeast(major, minor, patch int) bool {
	if v.Major != major {
		return v.Major > major
	}
	if v.Minor != minor {
		return v.Minor > minor
	}
	return v.Patch >= patch
}

// Meta reports whether v speaks the meta dialect as Ringside does. It came
// with 1.6.0, but up to 1.6.9 with OK for HD and another syntax of ms.
func (v Release) Meta() bool { return v.AtLeast(1, 6, 10) }

// ChosenCAS reports whether v has meta flag E: the client chooses the CAS.
func (v Release) ChosenCAS() bool { return v.AtLeast(1, 6, 27) }

// EchoesMisses reports whether v answers flags O and k also to an mg that finds
// nothing.
func (v Release) EchoesMisses() bool { return v.AtLeast(1, 6, 18) }

// DumpsByHash reports whether v lists its keys by walking the hash table, which
// misses none that stays, without holding a lock while it writes. Others list
// LRU by LRU: what moves between two of them meanwhile may be left out.
func (v Release) DumpsByHash() bool { return v.AtLeast(1, 6, 19) }

// ParseVersion reads the line that answers version, "VERSION 1.6.18" with or
// without its first word. What follows the third number doesn't matter
// ("1.6.0-beta1", "1.4.25 Ubuntu"); a missing number is 0.
func ParseVersion(line []byte) (Release, bool) {
	line = bytes.TrimPrefix(line, []byte("VERSION "))
	var part [3]int
	for i := range part {
		n := 0
		for n < len(line) && n < 9 && line[n]-'0' <= 9 {
			part[i] = part[i]*10 + int(line[n]-'0')
			n++
		}
		if n == 0 {
			return Release{}, false
		}
		line = line[n:]
		if len(line) == 0 || line[0] != '.' {
			return Release{part[0], part[1], part[2]}, true
		}
		line = line[1:]
	}
	return Release{part[0], part[1], part[2]}, true
}

// Older says whether r came before other.
func (r Release) Older(other Release) bool {
	return cmp.Or(cmp.Compare(r.Major, other.Major), cmp.Compare(r.Minor, other.Minor), cmp.Compare(r.Patch, other.Patch)) < 0
}
