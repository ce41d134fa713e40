package memnode

// This file decodes keys in base64, as leniently as memcached does.

// decodeKey decodes a key in base64 as memcached does. It skips bytes outside of the alphabet. A
// '=' counts as the digit 0 and shortens its block by a byte. The key ends after a block with '='.
// decodeKey returns nil if the number of digits is 0 or not a multiple of four, or if a block has
// more than two '='.
func decodeKey(dst, src []byte) []byte {
	digits := 0
	for _, b := range src {
		if base64Digits[b] >= 0 {
			digits++
		}
	}
	if digits == 0 || digits%4 != 0 {
		return nil
	}
	var block uint32
	have, padding := 0, 0
	for _, b := range src {
		d := base64Digits[b]
		if d < 0 {
			continue
		}
		if b == '=' {
			padding++
		}
		block = block<<6 | uint32(d)
		if have++; have < 4 {
			continue
		}
		if padding > 2 {
			return nil
		}
		dst = append(dst, byte(block>>16), byte(block>>8), byte(block))
		dst = dst[:len(dst)-padding]
		if padding > 0 {
			break
		}
		block, have = 0, 0
	}
	return dst
}

// base64Digits has the value of each base64 digit. Its index is the byte. For a byte that is no
// digit, it has -1.
var base64Digits = func() (digits [256]int8) {
	for i := range digits {
		digits[i] = -1
	}
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	for i := range alphabet {
		digits[alphabet[i]] = int8(i)
	}
	digits['='] = 0
	return digits
}()
