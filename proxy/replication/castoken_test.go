package replication

import "testing"

func TestIdentityIsTheSameEverywhere(t *testing.T) {
	if got := Identity("tcp a:11211", []byte("key"), 1700000000, 42, 3); got != 0x7229dc158249abf0 {
		t.Errorf("%#x", got)
	}
}

func TestTokens(t *testing.T) {
	of := func(address, key string, n ...uint64) uint64 { return Identity(address, []byte(key), n...) }
	own := of("tcp a:11211", "k", 7, 8, 1)
	others := []uint64{of("tcp b:11211", "k", 7, 8, 1), of("tcp a:11211", "l", 7, 8, 1), of("tcp a:11211", "", 7, 8, 1), of("tcp a:1121", "1k", 7, 8, 1),
		of("tcp a:11211", "k", 8, 8, 1), of("tcp a:11211", "k", 7, 9, 1), of("tcp a:11211", "k", 7, 8, 2), of("tcp a:11211", "k", 8, 7, 1)}
	for _, cas := range []uint64{0, 1, 12345, 1<<52 - 1} {
		token := sealToken(cas, own)
		if openToken(token, own) != cas || token>>52 != 0 {
			t.Errorf("%d sealed as %d opens as %d", cas, token, openToken(token, own))
		}
		for i, other := range others {
			if got := openToken(token, other); got < 1<<32 || got == cas {
				t.Errorf("%d opened by %d is %d: could be a cas of its own", cas, i, got)
			}
		}
		// The tag of package failover uses the bits above 51. It may be added and
		// removed both before and after sealing.
		const tag = 0xabc << 52
		if openToken(token|tag, own) != cas|tag {
			t.Errorf("the tag of %x is not kept", token|tag)
		}
	}
}
