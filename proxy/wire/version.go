package wire

// The release of a server, from its reply to version, and the features of that
// release.

import (
	"bytes"
	"cmp"
)

// Release is a version of memcached. The zero Release is older than all others.
type Release struct{ Major, Minor, Patch int }

// Oldest is the oldest supported release. A server counts as Oldest if its version
// is older or unreadable.
var Oldest = Release{1, 4, 0}

// Features is a set of commands and flags that some releases since Oldest don't
// understand. Such a command must not be sent to a server without the feature. The
// server may do worse than refuse it: for example, it executes the data block of an
// ms as commands.
type Features uint16

// The features.
const (
	Basics     Features = 1 << iota // commands of Oldest; no request has to require it
	Touching                        // touch
	Memlimits                       // cache_memlimit
	GetTouches                      // gat, gats
	Metas                           // the meta dialect as Ringside uses it
	ProxyFlags                      // meta flags P and L
	BareGets                        // mg without flags; misses then also return flags O and k
	HashDumps                       // lru_crawler metadump hash, which lists every key that stays during the dump
	ChosenCAS                       // meta flag E, with which the client chooses the cas id, and meta flag x
)

// since lists the first release of each feature. 1.6.0 introduced the meta dialect,
// but releases up to 1.6.9 reply OK instead of HD and have another syntax of ms.
var since = [...]struct {
	feature Features
	release Release
}{
	{Basics, Release{}},
	{Touching, Release{1, 4, 8}},
	{Memlimits, Release{1, 4, 27}},
	{GetTouches, Release{1, 5, 3}},
	{Metas, Release{1, 6, 10}},
	{ProxyFlags, Release{1, 6, 14}},
	{BareGets, Release{1, 6, 18}},
	{HashDumps, Release{1, 6, 19}},
	{ChosenCAS, Release{1, 6, 27}},
}

// Features returns the features of release v.
func (v Release) Features() (f Features) {
	for _, s := range since {
		if !v.Older(s.release) {
			f |= s.feature
		}
	}
	return f
}

// textNeeds are the features that a text command needs.
var textNeeds = [NumOps]Features{Touch: Touching, Gat: GetTouches, Gats: GetTouches, Memlimit: Memlimits}

var proxyFlags, chosenFlags, quietFlag = letters("PL"), letters("Ex"), letters("q")

// Needs returns the features that a server must have to understand r. A meta flag
// that is in no known release requires none: the server decides. All releases with
// Metas allow an opaque of 31 bytes.
func (r *Request) Needs() Features {
	if r.Dialect == Text {
		return textNeeds[r.Op]
	}
	return r.metaNeeds()
}

func (r *Request) metaNeeds() Features {
	needs := Metas
	if r.Letters&proxyFlags != 0 {
		needs |= ProxyFlags
	}
	if r.Letters&chosenFlags != 0 {
		needs |= ChosenCAS
	}
	if r.Op == Get && r.Letters&^quietFlag == 0 { // q is not forwarded
		needs |= BareGets
	}
	return needs
}

// ParseVersion parses the reply to version, "VERSION 1.6.18", with or without the
// first word. It ignores what follows the third number ("1.6.0-beta1", "1.4.25
// Ubuntu"). A missing number is 0.
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

// Older reports whether v was released before the release `other`.
func (v Release) Older(other Release) bool {
	return cmp.Or(cmp.Compare(v.Major, other.Major), cmp.Compare(v.Minor, other.Minor), cmp.Compare(v.Patch, other.Patch)) < 0
}

// ReleaseOf returns the release to assume for a server, given its reply to version.
// It is Oldest if the line is unreadable, or names a version before Oldest or from
// 2.0 on. Such a server is another program, which may execute the data block of an
// ms as commands.
func ReleaseOf(line []byte) Release {
	if v, ok := ParseVersion(line); ok && !v.Older(Oldest) && v.Major == Oldest.Major {
		return v
	}
	return Oldest
}
