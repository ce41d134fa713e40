package stamp

// This file implements the header of a tagged value (here called head): its encoding, and the
// check of its versions.

import (
	"encoding/binary"
	"hash/crc32"
)

// Flags are the client flags that a value with a head has on the server.
const Flags = "1381192775" // 0x52535447 in hexadecimal, the bytes "RSTG"

// MaxTags is the largest number of tags in a head.
const MaxTags = 255

const (
	magic = 0xd7
	front = 8 // number of bytes of a header before its tags
	each  = 16
	back  = 4
)

// Version is a tag and its version on one server. Version 0 never matches: the
// server did not report one.
type Version struct {
	Tag Tag
	Cas uint64
}

// HeadSize returns the size in bytes of a head with n tags.
func HeadSize(n int) int { return front + n*each + back }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendHead appends the head of a value with the given client flags and tags.
func AppendHead(dst []byte, flags uint32, tags []Version) []byte {
	from := len(dst)
	dst = append(dst, magic)
	dst = binary.BigEndian.AppendUint16(dst, uint16(HeadSize(len(tags))))
	dst = binary.BigEndian.AppendUint32(dst, flags)
	dst = append(dst, byte(len(tags)))
	for _, v := range tags {
		dst = binary.BigEndian.AppendUint64(dst, uint64(v.Tag))
		dst = binary.BigEndian.AppendUint64(dst, v.Cas)
	}
	return binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[from:], castagnoli))
}

// Head is the encoded header of a tagged value: its client flags, tags and versions. It is a slice
// of that value.
type Head []byte

// ReadHead returns the head of a value. ok is false if the value has no head or a
// damaged one.
func ReadHead(value []byte) (h Head, ok bool) {
	if len(value) < front+back || value[0] != magic {
		return nil, false
	}
	size := int(binary.BigEndian.Uint16(value[1:]))
	if size > len(value) || size != HeadSize(int(value[7])) {
		return nil, false
	}
	h = Head(value[:size])
	return h, binary.BigEndian.Uint32(h[size-back:]) == crc32.Checksum(h[:size-back], castagnoli)
}

// Flags returns the client's flags of the value.
func (h Head) Flags() uint32 { return binary.BigEndian.Uint32(h[3:]) }

// WithFlags returns a copy of h with other client flags.
func (h Head) WithFlags(flags uint32) Head {
	versions := make([]Version, h.Len())
	for i := range versions {
		versions[i] = h.At(i)
	}
	return AppendHead(nil, flags, versions)
}

// Len returns the number of tags.
func (h Head) Len() int { return int(h[7]) }

// At returns the tag with index i and its version.
func (h Head) At(i int) Version {
	b := h[front+i*each:]
	return Version{Tag(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint64(b[8:])}
}

// Verdict is the result of comparing a value's versions with the current ones.
type Verdict uint8

// The results of Known.Judge.
const (
	Stands  Verdict = iota // valid: all tags have the same version
	Fallen                 // invalid: a tag has another version
	Unknown                // undecided: no known version differs, but the version of a tag was not requested, or was read before the value was stored
)

// Known is a list of tag versions that one server has reported.
type Known []Version

// Of returns the version of tag t, and whether t is in the list.
func (k Known) Of(t Tag) (cas uint64, ok bool) {
	for i := range k {
		if k[i].Tag == t {
			return k[i].Cas, true
		}
	}
	return 0, false
}

// Set sets the version of tag t.
func (k *Known) Set(t Tag, cas uint64) {
	for i := range *k {
		if (*k)[i].Tag == t {
			(*k)[i].Cas = cas
			return
		}
	}
	*k = append(*k, Version{t, cas})
}

// hasAll reports whether the versions of all tags of h are in the list.
func (k Known) hasAll(h Head) bool {
	for i := range h.Len() {
		if _, ok := k.Of(h.At(i).Tag); !ok {
			return false
		}
	}
	return true
}

// Judge reports whether the value with head h is valid. A version in h that is newer
// than the known one does not make it invalid: the tag has changed since the known
// version was read, and the value may have been stored after that.
func (k Known) Judge(h Head) Verdict {
	all := Stands
	for i := range h.Len() {
		v := h.At(i)
		switch cas, ok := k.Of(v.Tag); {
		case !ok, v.Cas > cas && cas != 0:
			all = Unknown
		case cas != v.Cas || cas == 0:
			return Fallen
		}
	}
	return all
}

// JudgeAgain is Judge after the versions that Judge lacked were read. It returns Unknown if the process of the server has changed
// in between: the value must then be read again.
func (k Known) JudgeAgain(h Head) Verdict {
	v := k.Judge(h)
	switch {
	case !k.hasAll(h):
		return Unknown
	case v == Unknown: // another process of the server assigned the version in the header
		return Fallen
	}
	return v
}

// Late reports whether a tag may have been invalidated since a read, which found an item with the cas c0. now and bucket are the
// versions of the tag and then of its bucket that were read later; 0: the server did not report one. If c0 is 0, there was no read.
func Late(c0, now, bucket uint64) bool {
	return now == 0 || c0 != 0 && (bucket == 0 || now >= c0 && bucket >= c0)
}

// HasAll reports whether h contains all of tags.
func (h Head) HasAll(tags []Tag) bool {
	for _, t := range tags {
		if !h.Has(t) {
			return false
		}
	}
	return true
}

// Has reports whether h contains t.
func (h Head) Has(t Tag) bool {
	for i := range h.Len() {
		if h.At(i).Tag == t {
			return true
		}
	}
	return false
}
