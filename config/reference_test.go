package config

// docs/configuration.md is made from the schema: every key, what it may be, its
// default.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

const referenceFile = "../docs/configuration.md"

func TestReferenceIsUpToDate(t *testing.T) {
	if *update {
		if err := os.WriteFile(referenceFile, reference(t), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	committed, err := os.ReadFile(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(committed, reference(t)) {
		t.Errorf("%s is not what the schema says: run go test ./config -run Reference -update", referenceFile)
	}
}

// sections are the mappings that have a table of their own, in this order, with
// a word on each. What is not among them is a row of the table around it.
var sections = []struct{ path, title, text string }{
	{"", "The file", "Keys that begin with `x-` are left to you, for anchors and notes."},
	{"pools.*", "A pool", "`defaults`, at the top of the file, takes the same keys but `servers`, for all pools."},
	{"pools.*.servers[]", "A server", "A server is its address, or a mapping of these."},
	{"routes[]", "A route", ""},
	{"listen", "A listener", "`listen` is an address, a mapping of these, or a list of both."},
	{"admin", "admin", "An address, or a mapping of these."},
	{"limits", "limits", "At each bound clients get a clear answer, and the log a line."},
	{"log", "log", ""},
	{"traces[]", "A trace", "What the letters say is in [traces](traces.md)."},
	{"engine", "engine", "What it does by itself is right for nearly everybody; it takes effect at the next start."},
}

func reference(t *testing.T) []byte {
	var s schema
	d := json.NewDecoder(bytes.NewReader(Schema()))
	d.UseNumber()
	if err := d.Decode(&s); err != nil {
		t.Fatal(err)
	}
	tables := map[string][]string{}
	properties(tables, "", "", s)
	var b bytes.Buffer
	b.WriteString(`# Configuration

Every key of a file, made from the table that the parser reads (` + "`go test ./config -run Reference -update`" + `). A file with all of them and what holds without
them is [ringside.example.yaml](../deploy/ringside.example.yaml); [ringside.schema.json](../deploy/ringside.schema.json) lets an editor check
while you type. ` + "`ringside check FILE`" + ` says what is wrong, at its line and column, and what a file means.

Durations are ` + "`500ms`, `3s`, `1m30s`" + `; sizes are bytes, or ` + "`64KiB`, `8MiB`, `1GiB`" + `.
`)
	for _, section := range sections {
		rows := tables[section.path]
		if len(rows) == 0 {
			t.Fatalf("the schema has no mapping %q", section.path)
		}
		delete(tables, section.path)
		fmt.Fprintf(&b, "\n## %s\n\n", section.title)
		if section.text != "" {
			fmt.Fprintf(&b, "%s\n\n", section.text)
		}
		b.WriteString("| key | what it says | may be | default |\n|---|---|---|---|\n" + strings.Join(rows, ""))
	}
	for path := range tables {
		t.Errorf("%q has no section", path)
	}
	return b.Bytes()
}

// properties adds a row for each key of s to the table of path, and those of the
// mappings in it, by their names from there, unless they have a section.
func properties(tables map[string][]string, path, name string, s schema) {
	keys, _ := s["properties"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		value := keys[key].(map[string]any)
		row := strings.TrimPrefix(name+"."+key, ".")
		here := strings.TrimPrefix(path+"."+row, ".")
		if here == "defaults" || here == "listen.routes" { // as pools and routes
			tables[path] = append(tables[path], rowOf(row, value, "see below"))
			continue
		}
		inner, at := mappingOf(value)
		if inner == nil {
			tables[path] = append(tables[path], rowOf(row, value, choicesOf(value)))
			continue
		}
		if slices.ContainsFunc(sections, func(s struct{ path, title, text string }) bool { return s.path == here+at }) {
			tables[path] = append(tables[path], rowOf(row, value, "see below"))
			properties(tables, here+at, "", inner)
			continue
		}
		tables[path] = append(tables[path], rowOf(row, value, choicesOf(value)))
		properties(tables, path, row+at, inner)
	}
}

// mappingOf returns the mapping that s may be, or hold, and how its keys are
// reached from s.
func mappingOf(s schema) (inner schema, at string) {
	if s["properties"] != nil {
		return s, ""
	}
	if each, ok := s["additionalProperties"].(map[string]any); ok {
		return each, ".*"
	}
	if item, ok := s["items"].(map[string]any); ok {
		if inner, _ := mappingOf(item); inner != nil {
			return inner, "[]"
		}
	}
	choices, _ := s["anyOf"].([]any)
	for _, c := range choices {
		if inner, at := mappingOf(c.(map[string]any)); inner != nil && (at == "" || s["description"] != nil) {
			return inner, strings.TrimSuffix(at, "[]")
		}
	}
	return nil, ""
}

func rowOf(name string, s schema, may string) string {
	usual := ""
	switch value := s["default"].(type) {
	case nil:
	case bool:
		usual = map[bool]string{false: "`off`", true: "`on`"}[value]
	default:
		usual = "`" + strings.Trim(fmt.Sprint(value), "[]") + "`"
	}
	escape := strings.NewReplacer("|", "\\|", "\n", " ").Replace
	return fmt.Sprintf("| `%s` | %s | %s | %s |\n", name, escape(fmt.Sprint(cmp.Or(s["description"], any("")))), escape(may), usual)
}

// choicesOf says what s may be.
func choicesOf(s schema) string {
	var all []string
	choices, _ := s["anyOf"].([]any)
	for _, c := range choices {
		if w := choicesOf(c.(map[string]any)); w != "" && !slices.Contains(all, w) {
			all = append(all, w)
		}
	}
	if all != nil {
		return strings.Join(all, ", ")
	}
	if s["properties"] != nil {
		return "the keys below"
	}
	if one := s["const"]; one != nil {
		return fmt.Sprintf("`%v`", one)
	}
	if enum, _ := s["enum"].([]any); enum != nil {
		if len(enum) > 20 {
			return "one of `ringside distributions`"
		}
		for _, word := range enum {
			if _, said := word.(bool); !said { // on and off are said
				all = append(all, fmt.Sprintf("`%v`", word))
			}
		}
		if all == nil {
			all = []string{"`on`, `off`"}
		}
		return strings.Join(all, ", ")
	}
	switch s["type"] {
	case "integer":
		if s["minimum"] == nil {
			return "a number"
		}
		return fmt.Sprintf("%v to %v", s["minimum"], s["maximum"])
	case "array":
		return "a list"
	}
	switch pattern, _ := s["pattern"].(string); {
	case strings.Contains(pattern, "KiB"):
		return "a size"
	case strings.Contains(pattern, "ms"):
		return "a duration"
	case s["maxLength"] != nil:
		return fmt.Sprintf("%v characters", s["maxLength"])
	}
	return "text"
}
