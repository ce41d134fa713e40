package ketama

// This file contains the rules of clients with a circle of 128-bit points. In all of
// them, a key belongs to the first point after its hash.

import (
	"crypto/md5"
	"encoding/binary"

	"ringside/ring"
)

// Uhashring returns the circle of Python's uhashring with its default settings. Its key
// hash is ring.MD5Wide.
func Uhashring(servers []ring.Server) (*ring.Wide, error) {
	return wide(servers, long, times(160), bigEndian)
}

// Bmemcached returns the circle of python-binary-memcached without authentication. Its
// key hash is ring.MD5Wide.
func Bmemcached(servers []ring.Server) (*ring.Wide, error) {
	return wide(servers, bmemcached, times(160), bigEndian)
}

// Serialx returns the circle of serialx/hashring, with one point for each unit of
// weight. Its key hash is ring.MD5Signed.
func Serialx(servers []ring.Server) (*ring.Wide, error) {
	return wide(servers, long, times(1), signedHalves)
}

func wide(servers []ring.Server, of Label, count Count, halves func([]byte) (hi, lo uint64)) (*ring.Wide, error) {
	var points []ring.WidePoint
	err := label(servers, of, count, func(i int, text string, labels int) int {
		for j := range labels {
			hi, lo := halves(numbered(text, "-", j))
			points = append(points, ring.WidePoint{Hi: hi, Lo: lo, Server: i})
		}
		return len(points)
	})
	if err != nil {
		return nil, err
	}
	low := func(key []byte) uint64 {
		_, lo := halves(key)
		return lo
	}
	return ring.NewWide(len(servers), points, low), nil
}

// bigEndian returns the MD5 of text as one big-endian number: the upper and the lower
// 64 bits.
func bigEndian(text []byte) (hi, lo uint64) {
	d := md5.Sum(text)
	return binary.BigEndian.Uint64(d[:]), binary.BigEndian.Uint64(d[8:])
}

// signedHalves returns the two halves of the MD5 of text as signed little-endian
// numbers. It flips their sign bits, so that unsigned comparison sorts them like signed
// numbers.
func signedHalves(text []byte) (hi, lo uint64) {
	d := md5.Sum(text)
	return binary.LittleEndian.Uint64(d[:]) ^ 1<<63, binary.LittleEndian.Uint64(d[8:]) ^ 1<<63
}
