package ring

// Known answers of the key hashes, taken from the clients themselves.

import (
	"encoding/hex"
	stdcrc "hash/crc32"
	"testing"
)

func TestSum(t *testing.T) {
	ascii := []byte("suser:641864:cart")
	utf8, err := hex.DecodeString("f09f92bef09f979d")
	if err != nil {
		t.Fatal(err)
	}
	oaat, ok := OneAtATime.Unsigned()
	if !ok {
		t.Fatal("one_at_a_time has no unsigned variant")
	}
	for _, c := range []struct {
		name      string
		algorithm Algorithm
		key       []byte
		want      uint64
	}{
		{"md5", MD5, ascii, 0x78fea639},
		{"md5", MD5, utf8, 0x95145f19},
		{"crc32", CRC32, ascii, 0x3b9c5165},
		{"crc32", CRC32, utf8, 0xbc07d685},
		{"crc31", CRC31, utf8, 0x3c07d685},
		{"crc15", CRC15, ascii, 0x3b9c},
		{"crc15", CRC15, []byte("scz35299"), 0},
		{"crc15 or 1", CRC15Not0, []byte("scz35299"), 1},
		{"one_at_a_time", OneAtATime, ascii, 0xd66fb792},
		{"one_at_a_time", OneAtATime, utf8, 0xecb73157},
		{"one_at_a_time unsigned", oaat, utf8, 0x1c7f4218},
		{"one_at_a_time", OneAtATime, []byte("127.77.1.1-0"), 0x6f2fa262},
		{"fnv1a_64", FNV1Ax64, ascii, 0x2ac08d68},
		{"fnv1a_64", FNV1Ax64, utf8, 0x1af42fe1},
		{"xxh64", XXH64, ascii, 0xe13926cd741e9193},
		{"xxh64", XXH64, utf8, 0x9697c3547e522f04},
		{"xxh3", XXH3, ascii, 0x9e82aa27d87b8cb6},
		{"xxh3", XXH3, utf8, 0xd3087743fa5e5c08},
		{"java", Java, ascii, 0x68d2d29b},
		{"jenkins of nothing", Jenkins, nil, 0xdeadbefc},
	} {
		if got := c.algorithm.Sum(c.key); got != c.want {
			t.Errorf("%s of %q: %#x, want %#x", c.name, c.key, got, c.want)
		}
	}
}

// An ASCII key must have the same hash whether char is signed or not. Other bytes
// must change it; in hsieh only the last byte of a key of length 3 mod 4 does.
func TestUnsigned(t *testing.T) {
	ascii, high := []byte("session/0123456789abcde"), []byte("schl\xc3\xbcssel\xff")
	for a := range unsigned {
		u, ok := a.Unsigned()
		if !ok {
			continue
		}
		if a.Sum(ascii) != u.Sum(ascii) {
			t.Errorf("algorithm %d: an ASCII key hashes differently where char is unsigned", a)
		}
		if a.Sum(high) == u.Sum(high) {
			t.Errorf("algorithm %d: bytes above 127 hash the same where char is unsigned", a)
		}
		if a.Bits() != u.Bits() {
			t.Errorf("algorithm %d: %d bits, %d where char is unsigned", a, a.Bits(), u.Bits())
		}
	}
}

func TestBits(t *testing.T) {
	for a := range unsigned {
		var union uint64
		for i := range 4000 {
			union |= a.Sum([]byte{byte(i), byte(i >> 8), 'k', 'e', 'y', byte(i * 7)})
		}
		if want := uint64(1)<<a.Bits() - 1; union != want && a != JavaAbs {
			t.Errorf("algorithm %d: sets bits %#x, says %#x", a, union, want)
		}
	}
}

// No key length is a special case that discards bits.
func TestSumOfEveryLength(t *testing.T) {
	key := make([]byte, 300)
	for i := range key {
		key[i] = byte(i*31 + 200)
	}
	for a := range unsigned {
		seen := map[uint64]bool{}
		for n := range key {
			seen[a.Sum(key[:n])] = true
		}
		if least := 290; a.Bits() > 16 && len(seen) < least {
			t.Errorf("algorithm %d: %d different hashes of 300 keys, want %d", a, len(seen), least)
		}
	}
}

func TestCRC32(t *testing.T) {
	key := []byte("The quick brown fox jumps over the lazy dog")
	for n := range key {
		if got, want := crc32(key[:n]), stdcrc.ChecksumIEEE(key[:n]); got != want {
			t.Errorf("crc32 of %q: %#x, want %#x", key[:n], got, want)
		}
	}
}
