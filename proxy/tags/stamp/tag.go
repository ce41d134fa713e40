package stamp

// This file computes tags from names, and the keys of their items on a server.

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// Tag identifies a tag: it is a hash of the namespace and the name.
type Tag uint64

// Namespace is the hash of a namespace's name. The hashes of its tags continue from
// it.
type Namespace uint64

// Constants of the hash function FNV-1a. All instances of all releases must compute the same
// hash of a name.
const (
	offset = 14695981039346656037
	prime  = 1099511628211
)

func (n Namespace) add(name []byte) Namespace {
	for _, c := range name {
		n = (n ^ Namespace(c)) * prime
	}
	return n
}

// In returns the namespace with the given name.
func In(name string) Namespace {
	return Namespace(offset).add(append([]byte(name), 0)) // the zero byte ends the namespace: tag names contain no zero byte
}

// Tag returns the tag with the given name.
func (n Namespace) Tag(name []byte) Tag { return Tag(n.add(name)) }

const (
	tagPrefix    = "__rs_t:"
	bucketPrefix = "__rs_b:"
	buckets      = 1024
)

// AppendKey appends the key of the tag's item.
func (t Tag) AppendKey(dst []byte) []byte {
	var id [8]byte
	binary.BigEndian.PutUint64(id[:], uint64(t))
	return base64.RawURLEncoding.AppendEncode(append(dst, tagPrefix...), id[:])
}

// AppendBucket appends the key of the bucket that the tag belongs to.
func (t Tag) AppendBucket(dst []byte) []byte {
	return strconv.AppendUint(append(dst, bucketPrefix...), uint64(t)%buckets, 10)
}

// maxName is the length in bytes of the longest tag name.
const maxName = 250

var (
	errEmpty = errors.New("a tag has no name")
	errLong  = fmt.Errorf("the name of a tag is longer than %d bytes", maxName)
	errByte  = errors.New("the name of a tag has a comma, blank or control character")
)

// CheckName returns an error if name is not a valid name of a tag.
func CheckName(name []byte) error {
	switch {
	case len(name) == 0:
		return errEmpty
	case len(name) > maxName:
		return errLong
	case bytes.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c == ',' || c == 127 }):
		return errByte
	}
	return nil
}

// AppendList parses a comma-separated list of names and appends their tags, without
// duplicates.
func (n Namespace) AppendList(dst []Tag, list []byte) ([]Tag, error) {
	for more := true; more; {
		var name []byte
		name, list, more = bytes.Cut(list, []byte{','})
		if err := CheckName(name); err != nil {
			return dst, err
		}
		dst = Add(dst, n.Tag(name))
	}
	return dst, nil
}

// Add appends t to list unless it contains t.
func Add(list []Tag, t Tag) []Tag {
	if slices.Contains(list, t) {
		return list
	}
	return append(list, t)
}
