package stamp

// The head of a value with tags.

import (
	"encoding/binary"
	"hash/crc32"
)

// Flags are the client flags, on a server, of a value with a head.
const Flags = "1381192775" // 0x52535447

// MaxTags is how many tags a head has room for.
const MaxTags = 255

const (
	magic = 0xd7
	front = 8 // before the tags
	each  = 16
	back  = 4
)

// Version is a tag and what its version was on one server. The version 0 is that of
// no tag: the server would not say.
type Version struct {
	Tag Tag
	Cas uint64
}

// HeadSize is how many bytes of a value the head of n tags takes.
func HeadSize(n int) int { return front + n*each + back }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendHead appends the head of a value with these client flags and tags.
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

// Head is a head in a value's bytes.
type Head []byte

// ReadHead finds the head of a value. It reports false if there is none that can be
// read.
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

// Flags are the client's.
func (h Head) Flags() uint32 { return binary.BigEndian.Uint32(h[3:]) }

// WithFlags is h with other client flags.
func (h Head) WithFlags(flags uint32) Head {
	versions := make([]Version, h.Len())
	for i := range versions {
		versions[i] = h.At(i)
	}
	return AppendHead(nil, flags, versions)
}

// Len is how many tags there are.
func (h Head) Len() int { return int(h[7]) }

// At is the tag number i.
func (h Head) At(i int) Version {
	b := h[front+i*each:]
	return Version{Tag(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint64(b[8:])}
}

// Verdict says what is known of a value.
type Verdict uint8

// The verdicts.
const (
	Stands  Verdict = iota // all its tags have their versions still
	Fallen                 // a tag has another version
	Unknown                // a tag was not asked for
)

// Known are versions that one server has said.
type Known []Version

// Of is the version of a tag.
func (k Known) Of(t Tag) (cas uint64, ok bool) {
	for i := range k {
		if k[i].Tag == t {
			return k[i].Cas, true
		}
	}
	return 0, false
}

// Judge says whether the value of h stands.
func (k Known) Judge(h Head) Verdict {
	all := Stands
	for i := range h.Len() {
		v := h.At(i)
		switch cas, ok := k.Of(v.Tag); {
		case !ok:
			all = Unknown
		case cas != v.Cas || cas == 0:
			return Fallen
		}
	}
	return all
}

// HasAll says whether all of tags are among h's.
func (h Head) HasAll(tags []Tag) bool {
	for _, t := range tags {
		if !h.Has(t) {
			return false
		}
	}
	return true
}

// Has says whether t is one of h's tags.
func (h Head) Has(t Tag) bool {
	for i := range h.Len() {
		if h.At(i).Tag == t {
			return true
		}
	}
	return false
}
