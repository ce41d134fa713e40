package recipes

// Keys: what is legal, and how parts of any kind become a key.

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
)

// reserved begins Ringside's own keys.
const reserved = "__rs"

// CheckKey says what is wrong with a key: memcached takes 1 to 250 bytes without
// blanks and control bytes, and Ringside keeps those that begin with __rs.
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
	plainKey = 200 // bytes up to which a key is plain; longer ones are hashed
	keptPart = 100 // bytes of the first part, at most, that stay in front of a hash
)

// Key makes a legal key from parts: Key("user", "42", "photo of me") is
// "user:42:photo%20of%20me". Different parts never give one key: the colon, the
// per cent sign, blanks, control bytes and all that is not ASCII are escaped,
// and an empty part is %-. A key of more than 200 bytes keeps its first part, so
// that a route by prefix still finds it, and has a SHA-256 of the whole behind,
// in a form (%~) that no plain key can have; two of those meet as often as two
// SHA-256 do.
//
// Parts are text: an application says itself that 1 and "1", or two orders of
// the same options, are one key or two. A part that changes with the form of
// what is stored (a schema number) saves a flush when that form changes. Braces
// stay as they are, so Key("{user7}", "list") has Ringside's hash tag user7.
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

// escape writes a part so that it holds no colon, no blank, no control byte and
// a per cent sign only as an escape.
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

// unescape is the part that escape wrote.
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
