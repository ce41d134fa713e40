package cli

// This file escapes control characters in the output. Keys, names and texts of configurations can
// contain any bytes, and must not control the terminal.

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"sync"
	"unicode"
	"unicode/utf8"
)

// escapeMark is the text for an escape character in the colour codes of Paint. The sanitizer
// replaces it by an escape character. It is random, so no text that is printed can contain it.
var escapeMark = "\x1b" + rand.Text()

// sanitizer is a writer that escapes control characters and invalid UTF-8. It keeps newlines,
// tabs and the colour codes of Paint.
type sanitizer struct {
	mu   sync.Mutex
	to   io.Writer
	part []byte // bytes of an incomplete UTF-8 character at the end of the previous write; guarded by mu
}

func (s *sanitizer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := append(s.part, p...)
	whole := len(text)
	for i := 1; i < utf8.UTFMax && i <= len(text); i++ {
		if b := text[len(text)-i]; utf8.RuneStart(b) {
			if b >= utf8.RuneSelf && !utf8.FullRune(text[len(text)-i:]) {
				whole -= i
			}
			break
		}
	}
	out := appendSanitized(nil, text[:whole])
	s.part = bytes.Clone(text[whole:])
	if _, err := s.to.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// flush writes the incomplete UTF-8 character at the end of the output, if there is one. It does nothing while another write
// lasts: nobody may read the output any more, and the program must still end.
func (s *sanitizer) flush() {
	if !s.mu.TryLock() {
		return
	}
	defer s.mu.Unlock()
	if len(s.part) > 0 {
		s.to.Write(appendSanitized(nil, s.part))
		s.part = nil
	}
}

// appendSanitized appends text to dst and escapes control characters and invalid UTF-8 in it.
// Text that is JSON stays valid: the JSON encoder has already escaped invalid UTF-8 and
// characters below space, and the escapes for other characters, such as \u007f, are valid in
// JSON.
func appendSanitized(dst, text []byte) []byte {
	for len(text) > 0 {
		if rest, found := bytes.CutPrefix(text, []byte(escapeMark)); found {
			dst, text = append(dst, '\x1b'), rest
			continue
		}
		r, n := utf8.DecodeRune(text)
		switch {
		case r == '\n' || r == '\t':
			dst = append(dst, text[0])
		case r == utf8.RuneError && n == 1, r < ' ':
			dst = fmt.Appendf(dst, `\x%02x`, text[0])
		case unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r):
			dst = fmt.Appendf(dst, `\u%04x`, r)
		default:
			dst = append(dst, text[:n]...)
		}
		text = text[n:]
	}
	return dst
}
