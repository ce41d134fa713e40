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

// fourOfMD5 computes the points of a server: for each i below count, four little-endian
// points from the MD5 of "label-i".
func fourOfMD5(label string, count int) []uint32 { return ofMD5(label, count, 4) }

// threeOfMD5 computes the points of a server: for each i below count, three
// little-endian points from the MD5 of "label-i".
func threeOfMD5(label string, count int) []uint32 { return ofMD5(label, count, 3) }

func ofMD5(label string, count, each int) []uint32 {
	points := make([]uint32, 0, count*each)
	for i := range count {
		d := md5.Sum(numbered(label, "-", i))
		for j := range each {
			points = append(points, binary.LittleEndian.Uint32(d[4*j:]))
		}
	}
	return points
}

// fourOfSHA1 computes the points of a server: for each i below count, four
// little-endian points from the SHA-1 of "label-i".
func fourOfSHA1(label string, count int) []uint32 {
	points := make([]uint32, 0, count*4)
	for i := range count {
		d := sha1.Sum(numbered(label, "-", i))
		for j := range 4 {
			points = append(points, binary.LittleEndian.Uint32(d[4*j:]))
		}
	}
	return points
}

// sha1Dalli computes the points of a server: for each i below count, the first four
// bytes of the SHA-1 of "label:i", big-endian.
func sha1Dalli(label string, count int) []uint32 {
	points := make([]uint32, 0, count)
	for i := range count {
		d := sha1.Sum(numbered(label, ":", i))
		points = append(points, binary.BigEndian.Uint32(d[:]))
	}
	return points
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
	return ofMD5(label, (count+3)/4, 4)[:count]
}

func numbered(label, sep string, i int) []byte {
	return strconv.AppendInt([]byte(label+sep), int64(i), 10)
}
