package wire

// This file finds the release of a server from its reply to the command version, and the
// features of that release.

import (
	"bytes"
	"cmp"
)

// Release is a version of memcached. The zero Release is older than all others.
type Release struct{ Major, Minor, Patch int }

// Oldest is the oldest memcached release that Ringside supports. A server with an older
// or unreadable version is treated as if it had this release.
var Oldest = Release{1, 4, 0}

// Features is a set of commands and flags that some supported memcached releases do not
// understand. Such a command must not be sent to a server without the feature. The server
// could do worse than refuse the command: for example, it executes the data block of an
// ms as commands.
type Features uint16

// These are the features that a memcached release may have.
const (
	Basics        Features = 1 << iota // commands that every supported release has; no request has to require this feature
	Touching                           // the command touch
	Memlimits                          // the command cache_memlimit
	GetTouches                         // the commands gat and gats
	Metas                              // the meta commands, as Ringside uses them
	ProxyFlags                         // the meta flags P and L
	LongLines                          // lines of up to 2048 bytes; before, the server may close the connection if a line of another command than get or gets has more than 1024
	BareGets                           // mg without flags; since the same release, the reply to a miss has the flags O and k too
	AppendCreates                      // an ms with mode append or prepend and N creates a missing item
	HashDumps                          // the command lru_crawler metadump hash, which lists every key that is stored during the whole dump
	ChosenCAS                          // the meta flag E, with which the client chooses the cas id, and the meta flag x
	Unknown                            // no release has this feature: a line that is not one request needs it, and so is never sent
)

// since contains the first release of each feature. Release 1.6.0 introduced the meta
// commands. But the releases up to 1.6.9 reply OK in place of HD, and have another syntax
// of ms. Up to 1.6.12, an ms that appends has the cas 0 in its reply, and an md with a cas
// deletes nothing.
var since = [...]struct {
	feature Features
	release Release
}{
	{Basics, Release{}},
	{Touching, Release{1, 4, 8}},
	{Memlimits, Release{1, 4, 27}},
	{GetTouches, Release{1, 5, 3}},
	{Metas, Release{1, 6, 13}},
	{ProxyFlags | LongLines, Release{1, 6, 14}},
	{BareGets, Release{1, 6, 18}},
	{HashDumps, Release{1, 6, 19}},
	{AppendCreates, Release{1, 6, 20}},
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

// textNeeds are the features that a server must have for each text command.
var textNeeds = [NumOps]Features{Bad: Unknown, Touch: Touching, Gat: GetTouches, Gats: GetTouches, Memlimit: Memlimits}

var proxyFlags, chosenFlags, quietFlag = letters("PL"), letters("Ex"), letters("q")

// Needs returns the features that a server must have to understand the request r. A meta
// flag that is in no known release requires no feature: the server decides. All releases
// with the feature Metas allow an opaque of 31 bytes.
//
// A read of several keys may have a long line, because its keys are sent in short lines.
func (r *Request) Needs() (needs Features) {
	switch {
	case r.Dialect == Meta:
		needs = r.metaNeeds()
	case r.Op <= Gets:
		return 0
	default:
		needs = textNeeds[r.Op]
	}
	if r.Line.Len() > oldLine && r.NumKeys <= 1 {
		needs |= LongLines
	}
	return needs
}

// oldLine is the length in bytes of the longest line that all releases accept.
const oldLine = 1000

func (r *Request) metaNeeds() Features {
	needs := Metas
	if r.Letters&proxyFlags != 0 {
		needs |= ProxyFlags
	}
	if r.Letters&chosenFlags != 0 {
		needs |= ChosenCAS
	}
	if r.Op == Get && r.Letters&^quietFlag == 0 { // only the flag q remains, which is not forwarded, so the server gets an mg without flags
		needs |= BareGets
	}
	return needs
}

// ParseVersion parses the reply to the command version, such as "VERSION 1.6.18". The
// word VERSION may be missing. ParseVersion ignores what follows the third number, as in
// "1.6.0-beta1". A missing number is 0.
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

// Older reports whether the release v is older than the release `other`.
func (v Release) Older(other Release) bool {
	return cmp.Or(cmp.Compare(v.Major, other.Major), cmp.Compare(v.Minor, other.Minor), cmp.Compare(v.Patch, other.Patch)) < 0
}

// ReleaseOf returns the release to assume for a server; line is its reply to the command
// version. The result is Oldest if line is unreadable, or if its version is before Oldest
// or from 2.0 on. Such a server may be another program, which could execute the data
// block of an ms as commands.
func ReleaseOf(line []byte) Release {
	if v, ok := ParseVersion(line); ok && !v.Older(Oldest) && v.Major == Oldest.Major {
		return v
	}
	return Oldest
}
