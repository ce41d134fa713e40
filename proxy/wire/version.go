package wire

// Which memcached a server is, from its answer to version, and what that one
// understands.

import (
	"bytes"
	"cmp"
)

// Release is a version of memcached. The zero Release is older than all.
type Release struct{ Major, Minor, Patch int }

// Oldest is the release that a server counts as whose version can't be read.
// One that calls itself older counts as it, too.
var Oldest = Release{1, 4, 0}

// Features are what not every release since Oldest understands. A command that
// a server does not understand is not just refused by it: the data block of an
// ms, for one, is then executed as commands.
type Features uint16

// The features.
const (
	Basics     Features = 1 << iota // what Oldest understands; no request has to name it
	Touching                        // touch
	Memlimits                       // cache_memlimit
	GetTouches                      // gat, gats
	Metas                           // the meta dialect as Ringside speaks it
	ProxyFlags                      // meta flags P and L
	BareGets                        // mg without flags; its misses have flags O and k then, too
	HashDumps                       // lru_crawler metadump hash, which leaves out no key that stays
	ChosenCAS                       // meta flags E, with which the client chooses the cas, and x
)

// since says with which release a feature came. The meta dialect came with
// 1.6.0, but up to 1.6.9 with OK for HD and with another syntax of ms.
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

// Features are all that v understands.
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

// Needs are the features that a server must have to understand r. A meta flag
// that no release has, as far as is known here, needs none: the server is the
// judge. All releases with Metas allow an opaque of 31 bytes.
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
	if r.Op == Get && r.Letters&^quietFlag == 0 { // q is not sent
		needs |= BareGets
	}
	return needs
}

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

// Older says whether v came before other.
func (v Release) Older(other Release) bool {
	return cmp.Or(cmp.Compare(v.Major, other.Major), cmp.Compare(v.Minor, other.Minor), cmp.Compare(v.Patch, other.Patch)) < 0
}

// ReleaseOf is the release that a server counts as which answers version with
// line. One that can't be read counts as Oldest; so does one that is no version
// of memcached, older than Oldest or from 2.0 on: another program, which may
// take the data block of an ms for commands.
func ReleaseOf(line []byte) Release {
	if v, ok := ParseVersion(line); ok && !v.Older(Oldest) && v.Major == Oldest.Major {
		return v
	}
	return Oldest
}
