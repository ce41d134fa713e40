package cli

import (
	"bytes"
	"testing"
)

// TestSanitizer checks that no byte of a printed text reaches a terminal as a control
// character, no matter how the text is split into writes.
func TestSanitizer(t *testing.T) {
	text := "a\tb\n\x1b[31m\x1b]0;x\a\r\x7f\u009b1m\x9b1m\u202egnp.exe é漢\xe6\xbc"
	want := "a\tb\n" + `\x1b[31m\x1b]0;x\x07\x0d\u007f\u009b1m\x9b1m\u202egnp.exe é漢\xe6\xbc`
	for size := 1; size <= len(text); size++ {
		var out bytes.Buffer
		s := &sanitizer{to: &out}
		for rest := []byte(text); len(rest) > 0; {
			n := min(size, len(rest))
			if got, err := s.Write(rest[:n]); got != n || err != nil {
				t.Fatal(got, err)
			}
			rest = rest[n:]
		}
		s.flush()
		if out.String() != want {
			t.Errorf("in writes of %d bytes: %q, want %q", size, out.String(), want)
		}
	}
}
