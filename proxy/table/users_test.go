package table

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"
)

func TestUsers(t *testing.T) {
	sum := sha256.Sum256([]byte("secretsalt"))
	salted := hashed + base64.StdEncoding.EncodeToString(append(sum[:], "salt"...))
	u, err := ParseUsers([]byte("alice:one\r\nbob:two:three\n\ncarol:" + salted + "\nalice:two"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, password string
		want           bool
	}{
		{"alice", "one", true}, {"alice", "two", true}, {"bob", "two:three", true}, {"carol", "secret", true},
		{"alice", "two:three", false}, {"alice", "", false}, {"", "", false}, {"", "one", false}, {"bob", "one", false},
		{"carol", salted, false}, {"carol", "secretsalt", false}, {"alice", "one\r", false}, {"dave", "one", false},
	} {
		if id, got := u.Know([]byte(c.name), []byte(c.password)); got != c.want || got && !u.Has(id) {
			t.Errorf("%q with %q: %v", c.name, c.password, got)
		}
	}
	if id, known := new(Users).Know(nil, nil); known || new(Users).Has(id) {
		t.Error("nobody is known where there are no users")
	}
	for text, want := range map[string]string{
		"":                         "names no user",
		"\n\r\n":                   "names no user",
		"alice:one\nbob\n":         "line 2 is not user:password",
		":one":                     "line 1 is not",
		"alice:":                   "line 1 is not",
		"alice:" + hashed + "x":    "line 1: behind {SSHA256}",
		"alice:" + hashed + "AAAA": "line 1: behind {SSHA256}",
	} {
		if _, err := ParseUsers([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
