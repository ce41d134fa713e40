package config

// This file contains the settings of tags, and the checks that other settings fit them.

import (
	"slices"
	"strings"

	"ringside/proxy/tags/stamp"
)

func defaultTagSpace() TagSpace { return TagSpace{Command: "tag:"} }

func defaultTags() Tags { return Tags{On: true, Suffix: ";tags="} }

func readTags() Tags {
	t := defaultTags()
	t.Read = true
	return t
}

func tagSpaceValue() value[TagSpace] {
	type s = TagSpace
	return group(defaultTagSpace(),
		set("command", "delete of a key with this prefix invalidates the tag named by the rest of the key; such keys are never stored",
			prefixText(), func(s *s) *string { return &s.Command }),
		set("namespace", "separates the tags of applications that share servers", visible("a name", maxName), func(s *s) *string { return &s.Namespace }),
	)
}

func tagsValue() value[Tags] {
	type t = Tags
	long := group(defaultTags(),
		set("suffix", "separator between a key and the tags that a client gives its value, themselves separated by commas; or off",
			orOff(visible("the text between a key and its tags, or off", maxName)), func(t *t) *string { return &t.Suffix }),
		set("patterns", "tags derived from the key", listOf(patternValue(), 0), func(t *t) *[]TagPattern { return &t.Patterns }),
		set("prefix_tag", "all keys of the route have a tag with the name of its prefix", yesNo(), func(t *t) *bool { return &t.PrefixTag }),
	)
	brief := wordOr("a mapping of its settings",
		option[Tags]{"on", defaultTags()}, option[Tags]{"off", Tags{}}, option[Tags]{"read", readTags()})
	return either(brief, fresh(defaultTags(), long))
}

func patternValue() value[TagPattern] {
	type p = TagPattern
	v := group(TagPattern{},
		must(set("match", "pattern of the keys: * is any bytes, {name} is the bytes up to the text after it", visible("the form of keys", 1024), func(p *p) *string { return &p.Match })),
		must(set("tags", "tags of such keys; {name} is replaced by its bytes in the key", listOf(text("the name of a tag"), 1), func(p *p) *[]string { return &p.Tags })),
	)
	return after(v, func(d *document, n *node, path string, to *TagPattern) {
		if _, err := stamp.ParsePattern(to.Match, to.Tags); err != nil {
			d.failAt(n, "%s: %v", path, err)
		}
	})
}

func (d *document) checkTags(f *File, r *Route) {
	t := &r.Tags
	if !t.On {
		return
	}
	at := d.place(t, r)
	switch {
	case r.Copies.Copies != 0 || len(r.Pools) > 0:
		d.failAt(at, "tags have no place beside replicas and pools: the version of a tag is worth something only on the server of its values, so a replica could not be checked, and a value that can be rebuilt needs none; leave out one of them")
	case r.Preset == presetSessions:
		d.failAt(at, "tags have no place beside preset: sessions: a session is not rebuilt; give them different prefixes")
	case r.Preset == presetCounters || r.counts():
		d.failAt(at, "tags have no place beside preset: counters, autocreate or buffer: a missing counter starts again, and no client rebuilds it; give them different prefixes")
	case r.Guard.On && r.Guard.Hide && !t.Read:
		d.failAt(at, "tags need the misses that a guard remembers, and guard: hide remembers none: use tags: read, or guard: true")
	case t.Suffix == "" && len(t.Patterns) == 0 && !t.PrefixTag:
		d.failAt(at, "tags without a suffix, patterns or prefix_tag: no value would have any")
	case t.PrefixTag && r.Prefix == "":
		d.failAt(d.place(&t.PrefixTag, t, r), "prefix_tag needs a prefix")
	case t.Suffix != "" && strings.Contains(r.Prefix, t.Suffix):
		d.failAt(d.place(&t.Suffix, t, r), "tags.suffix %q is in the prefix %q: every key would be cut there", t.Suffix, r.Prefix)
	case r.begins(f.Tags.Command):
		d.failAt(d.place(&r.Match, &r.Prefix, &f.Tags.Command, r), "%s begins with tags.command %q: no key of the route could be stored", r.keys(), f.Tags.Command)
	}
	for i := range t.Patterns {
		if p := &t.Patterns[i]; len(p.Tags) > f.Limits.Tags {
			d.failAt(d.place(&p.Tags, p, t, r), "%d tags for one key, and limits.tags_per_value is %d", len(p.Tags), f.Limits.Tags)
		}
	}
}

// begins reports whether all keys of r begin with text.
func (r *Route) begins(text string) bool { return strings.HasPrefix(string(r.pattern()[0]), text) }

// checkTagCommand rejects a route without tags if all its keys begin with tags.command, because
// such keys name tags. It checks only lists in which another route has tags.
func (d *document) checkTagCommand(f *File, lists [][]Route) {
	for _, list := range lists {
		if !slices.ContainsFunc(list, func(r Route) bool { return r.Tags.On }) {
			continue
		}
		for i := range list {
			if r := &list[i]; !r.Tags.On && r.begins(f.Tags.Command) {
				d.failAt(d.place(&r.Match, &r.Prefix, r), "keys that begin with tags.command (%q) are names of tags: give the route another prefix, or tags another command", f.Tags.Command)
			}
		}
	}
}
