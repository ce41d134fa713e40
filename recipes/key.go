package recipes

// This file decides which keys are legal, and makes legal keys from arbitrary parts.

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
)

// reserved is the prefix of Ringside's internal keys.
const reserved = "__rs"

// CheckKey returns an error if key is not legal. memcached accepts 1 to 250 bytes
// without blanks and control bytes. Ringside reserves keys that begin with __rs.
func CheckKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("recipes: the empty key: %w", ErrKey)
	case len(key) > maxKey:
		return fmt.Errorf("recipes: key %.20q… of %d bytes, at most %d are possible: %w", key, len(key), maxKey, ErrKey)
	case strings.HasPrefix(key, reserved):
		return fmt.Errorf("recipes: key %.40q begins with %s, which is Ringside's own: %w", key, reserved, ErrKey)
	}
	for i := range len(key) {
		if key[i] <= ' ' || key[i] == 0x7f {
			return fmt.Errorf("recipes: key %.40q has byte 0x%02x at %d; blanks and control bytes are not possible: %w", key, key[i], i, ErrKey)
		}
	}
	return nil
}

const (
	plainKey = 200 // length in bytes up to which Key returns a key without hashing it
	keptPart = 100 // maximum length in bytes of the part in front of the hash in a hashed key
)

// Key builds a legal key from parts: Key("user", "42", "photo of me") returns
// "user:42:photo%20of%20me". Different parts never produce the same key, because
// Key escapes the colon, the percent sign, blanks, control bytes and non-ASCII
// bytes. It writes an empty part as %-.
//
// If the key is longer than 200 bytes, Key returns the first part and a SHA-256 of
// the whole key. A route by prefix therefore still matches. The hash begins with
// %~, which no unhashed key contains, so only two hashed keys can collide, and
// only if their SHA-256 sums do.
//
// Parts are text. The application decides whether 1 and "1", or two orders of the
// same options, are one key or two. With a schema number as a part, a change of
// the stored format does not require a flush. Key keeps braces, so Key("{user7}",
// "list") has the Ringside hash tag user7.
func Key(parts ...string) (string, error) {
	if len(parts) == 0 {
		return "", fmt.Errorf("recipes: a key without parts: %w", ErrKey)
	}
	var b strings.Builder
	for i, part := range parts {
		if i > 0 {
			b.WriteByte(':')
		}
		escape(&b, part)
	}
	key := b.String()
	if strings.HasPrefix(key, reserved) {
		key = "%5F" + key[1:]
	}
	if len(key) <= plainKey {
		return key, nil
	}
	sum := sha256.Sum256([]byte(key))
	hash := "%~" + base64.RawURLEncoding.EncodeToString(sum[:])
	if first, _, more := strings.Cut(key, ":"); more && len(first) <= keptPart {
		return first + ":" + hash, nil
	}
	return hash, nil
}

const hex = "0123456789ABCDEF"

// escape writes part to b and escapes colons, blanks, control bytes, percent signs and
// non-ASCII bytes. A percent sign in its output always begins an escape sequence.
func escape(b *strings.Builder, part string) {
	if part == "" {
		b.WriteString("%-")
	}
	for i := range len(part) {
		if c := part[i]; c <= ' ' || c >= 0x7f || c == ':' || c == '%' {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
}

// unescape reverses escape. It returns false if text is not an output of escape.
func unescape(text string) (string, bool) {
	if text == "%-" {
		return "", true
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '%' {
			b.WriteByte(text[i])
			continue
		}
		if i+2 >= len(text) {
			return "", false
		}
		high, low := strings.IndexByte(hex, text[i+1]), strings.IndexByte(hex, text[i+2])
		if high < 0 || low < 0 {
			return "", false
		}
		b.WriteByte(byte(high<<4 | low))
		i += 2
	}
	return b.String(), text != ""
}
