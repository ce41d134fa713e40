package conversation

// This file implements tags in conversations. In texts, [tag NAME] is the key of the
// item of a tag, [bucket NAME] is the key of the item that this tag shares with other tags (see
// stamp.Tag.AppendBucket), and [head FLAGS NAME=VERSION …] is the header of a value with tags.

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"ringside/proxy/table"
	"ringside/proxy/tags/stamp"
)

// tagOption parses the options of a route with tags: prefix,suffix,read and MATCH>TAG+TAG, with
// commas between them.
func tagOption(s *Harness, r *table.Route, options string) {
	tags := &table.TagSettings{Rule: stamp.Rule{Namespace: stamp.In("")}}
	for option := range strings.SplitSeq(options, ",") {
		switch match, list, ok := strings.Cut(option, ">"); {
		case ok:
			p, err := stamp.ParsePattern(match, strings.Split(list, "+"))
			if err != nil {
				s.Fatalf("%v", err)
			}
			tags.Patterns = append(tags.Patterns, p)
		case option == "prefix":
			tags.Prefix = []byte(r.Prefix)
		case option == "suffix":
			tags.Suffix = ";tags="
		case option == "read":
			tags.Read = true
		default:
			s.Fatalf("what is %q?", option)
		}
	}
	if r.Tags = tags; r.Guard == nil {
		r.Guard = &table.GuardSettings{Lease: 10 * time.Second, LeaseMax: time.Minute, Hide: tags.Read}
	}
}

var tagWord = regexp.MustCompile(`\[(tag|bucket|head) ([^\]]*)\]`)

// WithTags replaces [tag …], [bucket …] and [head …] in text by the bytes that they mean.
func WithTags(text string) string {
	return tagWord.ReplaceAllStringFunc(text, func(word string) string {
		m := tagWord.FindStringSubmatch(word)
		tag := stamp.In("").Tag([]byte(m[2]))
		switch m[1] {
		case "tag":
			return string(tag.AppendKey(nil))
		case "bucket":
			return string(tag.AppendBucket(nil))
		}
		f := strings.Fields(m[2])
		flags, _ := strconv.ParseUint(f[0], 10, 32)
		var versions []stamp.Version
		for _, v := range f[1:] {
			name, version, _ := strings.Cut(v, "=")
			cas, _ := strconv.ParseUint(version, 10, 64)
			versions = append(versions, stamp.Version{Tag: stamp.In("").Tag([]byte(name)), Cas: cas})
		}
		return string(stamp.AppendHead(nil, uint32(flags), versions))
	})
}
