package ring

// The part of a key that is hashed.

import "testing"

func TestPartOf(t *testing.T) {
	tags := Part{Tag: [2]byte{'{', '}'}, HasTag: true}
	empty := tags
	empty.EmptyTag = true
	dollars := Part{Tag: [2]byte{'$', '$'}, HasTag: true}
	stop := Part{Stop: []byte("|#|")}
	strip := Part{StripPrefixes: [][]byte{[]byte("memc.sess.key."), []byte("app:")}}
	all := Part{StripPrefixes: strip.StripPrefixes, Stop: stop.Stop, Tag: tags.Tag, HasTag: true}
	for _, c := range []struct {
		part      Part
		key, want string
	}{
		{Part{}, "a{b}|#|c", "a{b}|#|c"},
		{tags, "a{b}c", "b"},
		{tags, "{b}c{d}", "b"},
		{tags, "{{b}}", "{b"},
		{tags, "}a{b", "}a{b"},
		{tags, "}a{b}", "b"},
		{tags, "a{}b", "a{}b"},
		{tags, "{}{b}", "{}{b}"},
		{empty, "a{}b", ""},
		{empty, "a{b}c", "b"},
		{dollars, "$a$b", "a"},
		{dollars, "a$b", "a$b"},
		{stop, "a|#|b|#|c", "a"},
		{stop, "|#|b", ""},
		{stop, "a|#b", "a|#b"},
		{strip, "app:app:a", "app:a"},
		{strip, "memc.sess.key.app:a", "app:a"},
		{strip, "b:app:a", "b:app:a"},
		{strip, "app:", ""},
		{all, "app:{a|#|b}", "{a"},
		{all, "app:x{a}y|#|{b}", "a"},
	} {
		if got := c.part.Of([]byte(c.key)); string(got) != c.want {
			t.Errorf("%+v of %q: %q, want %q", c.part, c.key, got, c.want)
		}
	}
}
