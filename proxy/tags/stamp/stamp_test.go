package stamp

// Heads, names and patterns, byte by byte.

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// TestArticle is the example of the published articles on tags. A value is stored
// with version 25 of one tag and version 63 of another. It becomes invalid when the
// second tag has version 64.
func TestArticle(t *testing.T) {
	ns := In("")
	a, b := ns.Tag([]byte("tag1")), ns.Tag([]byte("tag2"))
	h, ok := ReadHead(append(AppendHead(nil, 5, []Version{{a, 25}, {b, 63}}), "value"...))
	if !ok || h.Flags() != 5 || h.Len() != 2 || len(h) != 44 {
		t.Fatalf("head %x, ok %v", []byte(h), ok)
	}
	for _, c := range []struct {
		known Known
		want  Verdict
	}{
		{Known{{a, 25}, {b, 63}}, Stands},
		{Known{{b, 63}, {a, 25}}, Stands},
		{Known{{a, 25}, {b, 64}}, Fallen},
		{Known{{b, 64}}, Fallen},
		{Known{{a, 25}}, Unknown},
		{Known{{a, 25}, {b, 62}}, Unknown}, // read before the value was stored
		{Known{{a, 26}, {b, 62}}, Fallen},
		{Known{{a, 25}, {b, 0}}, Fallen}, // the server did not report the version
	} {
		if got := c.known.Judge(h); got != c.want {
			t.Errorf("%v: %v, want %v", c.known, got, c.want)
		}
	}
}

func TestHeadThatCantBeRead(t *testing.T) {
	whole := append(AppendHead(nil, 0, []Version{{1, 2}}), "value"...)
	for i := range HeadSize(1) {
		if _, ok := ReadHead(whole[:i]); ok {
			t.Errorf("%d bytes of it are read", i)
		}
		for bit := range 8 {
			broken := bytes.Clone(whole)
			broken[i] ^= 1 << bit
			if _, ok := ReadHead(broken); ok {
				t.Errorf("it is read with bit %d of byte %d changed", bit, i)
			}
		}
	}
}

func FuzzHead(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(AppendHead(nil, 7, nil))
	f.Add(append(AppendHead(nil, 1<<31, []Version{{1, 2}, {3, 4}}), "value"...))
	f.Fuzz(func(t *testing.T, value []byte) {
		h, ok := ReadHead(value)
		if !ok {
			return
		}
		var tags []Version
		for i := range h.Len() {
			tags = append(tags, h.At(i))
		}
		if again := AppendHead(nil, h.Flags(), tags); !bytes.Equal(again, value[:len(h)]) {
			t.Errorf("%x is read, and spelled %x", value[:len(h)], again)
		}
	})
}

// TestKeys fixes the keys of tags on a server: all instances must agree, in every
// release.
func TestKeys(t *testing.T) {
	for name, want := range map[string]string{
		"user:7": "__rs_t:5GGqHvKCmy8 __rs_b:815",
		"posts":  "__rs_t:w6YNmgP8lyY __rs_b:806",
	} {
		tag := In("").Tag([]byte(name))
		if got := string(tag.AppendBucket(append(tag.AppendKey(nil), ' '))); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if In("a").Tag([]byte("bc")) == In("ab").Tag([]byte("c")) {
		t.Error("a namespace and a name run together")
	}
}

func TestList(t *testing.T) {
	ns := In("")
	got, err := ns.AppendList(nil, []byte("a,b:1,a"))
	if want := []Tag{ns.Tag([]byte("a")), ns.Tag([]byte("b:1"))}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	for list, want := range map[string]error{"": errEmpty, "a,": errEmpty, ",a": errEmpty, "a b": errByte, "a\x7f": errByte, strings.Repeat("x", 251): errLong} {
		if _, err := ns.AppendList(nil, []byte(list)); err != want {
			t.Errorf("%q: %v, want %v", list, err, want)
		}
	}
}

func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		match string
		tags  []string
		key   string
		want  string // expected tag names, separated by spaces; -: the pattern does not match
	}{
		{"post:{id}:*", []string{"post:{id}"}, "post:42:comments", "post:42"},
		{"post:{id}:*", []string{"post:{id}"}, "post:42:", "post:42"},
		{"post:{id}:*", []string{"post:{id}"}, "post::x", "-"},
		{"post:{id}", []string{"post:{id}", "posts"}, "post:42", "post:42 posts"},
		{"post:{id}", []string{"post:{id}", "posts"}, "post:42:comments", "-"},
		{"post:{id}", []string{"post:{id}"}, "post:", "-"},
		{"*:post:{id}", []string{"p{id}"}, ":1:post:42", "p42"},
		{"*:post:{id}", []string{"p{id}"}, "a:post:post:42", "p42"},
		{"*", []string{"all"}, "", "all"},
		{":{v}:post:{id}.*", []string{"{v}/{id}", "x{id}y{id}z"}, ":1:post:42.html", "1/42 x42y42z"},
		{"a*b", []string{"t"}, "aXbYb", "t"},
		{"a*b", []string{"t"}, "aXbY", "-"},
		{"same", []string{"t", "t"}, "same", "t"},
	} {
		p, err := ParsePattern(c.match, c.tags)
		if err != nil {
			t.Fatal(err)
		}
		r := Rule{Namespace: In("n"), Patterns: []*Pattern{p}}
		var want []Tag
		if c.want != "-" {
			for name := range strings.FieldsSeq(c.want) {
				want = append(want, r.Tag([]byte(name)))
			}
		}
		if got := r.AppendTags(nil, []byte(c.key)); !slices.Equal(got, want) {
			t.Errorf("%s of %s: %x, want %x (%s)", c.match, c.key, got, want, c.want)
		}
	}
	for match, tag := range map[string]string{
		"": "t", "{": "t", "{}": "t", "a}": "t", "{a}{b}": "t", "{a}*": "t", "**": "t", "*a*b*": "t", "{a}:{a}": "t", "x": "{a}", "y": "a b", "z": "a{", "v": "",
		"{a},{b},{c},{d},{e},{f},{g},{h},{i}": "t",
	} {
		if _, err := ParsePattern(match, []string{tag}); err == nil {
			t.Errorf("%q with the tag %q is taken", match, tag)
		}
	}
}

func TestRuleAllocatesNothing(t *testing.T) {
	a, _ := ParsePattern("post:{id}:*", []string{"post:{id}"})
	b, _ := ParsePattern("*:{id}:*", []string{"x{id}", "posts"})
	r := Rule{Namespace: In(""), Patterns: []*Pattern{a, b}, Prefix: []byte("post:")}
	room, key := make([]Tag, 0, 16), []byte("post:42:comments")
	if n := testing.AllocsPerRun(100, func() { r.AppendTags(room[:0], key) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzPattern searches for patterns and keys that cause a panic or do not
// terminate.
func FuzzPattern(f *testing.F) {
	f.Add("post:{id}:*", "post:{id}", "post:42:x")
	f.Add("*a*b{c}/", "{c}", "aaabbb/c")
	f.Fuzz(func(t *testing.T, match, tag, key string) {
		if len(match) > 250 || len(key) > 250 {
			return
		}
		if p, err := ParsePattern(match, []string{tag}); err == nil {
			(&Rule{Patterns: []*Pattern{p}}).AppendTags(nil, []byte(key))
		}
	})
}
