package ketama

// This file computes the points of a server from its label.

import (
	"crypto/md5"
	"crypto/sha1"
	"encoding/binary"
	"hash/crc32"
	"strconv"

	"ringside/ring"
)

// Spread computes the points of a server from the label and the number of labels.
type Spread func(label string, count int) []uint32

// These compute the points of a server: for each i below count, the first words of the digest of "label-i". Those of dalli are of "label:i".
var (
	fourOfMD5  = words(md5Sum, "-", binary.LittleEndian, 4)
	threeOfMD5 = words(md5Sum, "-", binary.LittleEndian, 3)
	fourOfSHA1 = words(sha1Sum, "-", binary.LittleEndian, 4)
	sha1Dalli  = words(sha1Sum, ":", binary.BigEndian, 1)
)

func md5Sum(text []byte) []byte {
	d := md5.Sum(text)
	return d[:]
}

func sha1Sum(text []byte) []byte {
	d := sha1.Sum(text)
	return d[:]
}

// words returns a Spread with the first `each` words of the digest of each numbered label, in the given byte order.
func words(digest func(text []byte) []byte, sep string, order binary.ByteOrder, each int) Spread {
	return func(label string, count int) []uint32 {
		points := make([]uint32, 0, count*each)
		for i := range count {
			d := digest(numbered(label, sep, i))
			for j := range each {
				points = append(points, order.Uint32(d[4*j:]))
			}
		}
		return points
	}
}

// one returns a Spread with one point for each i below count: the hash of "label-i" by
// the hash function a.
func one(a ring.Algorithm) Spread {
	return func(label string, count int) []uint32 {
		points := make([]uint32, 0, count)
		for i := range count {
			points = append(points, uint32(a.Sum(numbered(label, "-", i))))
		}
		return points
	}
}

// crcStathat computes the points of a server: for each i below count, the CRC-32 of the
// decimal number i followed by the label.
func crcStathat(label string, count int) []uint32 {
	points := make([]uint32, 0, count)
	for i := range count {
		points = append(points, crc32.ChecksumIEEE(append(strconv.AppendInt(nil, int64(i), 10), label...)))
	}
	return points
}

// chain computes the points of a server. Each of the count points is the label's
// CRC-32, continued over the bytes of the previous point. The first point continues
// over four zero bytes.
func chain(label string, count int) []uint32 {
	seed := crc32.ChecksumIEEE([]byte(label))
	points := make([]uint32, 0, count)
	var last [4]byte
	for range count {
		p := crc32.Update(seed, crc32.IEEETable, last[:])
		points = append(points, p)
		binary.LittleEndian.PutUint32(last[:], p)
	}
	return points
}

// exactly computes count points of a server: four from each MD5 of "label-i".
func exactly(label string, count int) []uint32 {
	return fourOfMD5(label, (count+3)/4)[:count]
}

func numbered(label, sep string, i int) []byte {
	return strconv.AppendInt([]byte(label+sep), int64(i), 10)
}
