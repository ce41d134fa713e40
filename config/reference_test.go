package config

// Generation of docs/configuration.md from the schema: every key, its values and its default.

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

// sections lists the mappings that have their own table, in this order, with a sentence about
// each. The keys of other mappings are rows in the table of the enclosing mapping.
var sections = []struct{ path, title, text string }{
	{"", "The file", "Ringside ignores keys that begin with `x-`; use them for anchors and notes."},
	{"pools.*", "A pool", "`defaults`, at the top of the file, accepts the same keys except `servers`, `warm_from` and `fill_from`, and applies to all pools."},
	{"pools.*.servers[]", "A server", "An address, or a mapping of these keys."},
	{"pools.*.servers", "A source of servers", "In place of the list of `servers`, or in it: a text such as `dnssrvnoa+NAME`, or a mapping of these keys. See [Discovery](discovery.md)."},
	{"routes[]", "A route", ""},
	{"listen", "A listener", "`listen` is an address, a mapping of these keys, or a list of both. A reload that removes a listener closes its clients. Requests in flight get their replies; a request that has not arrived completely gets none. Clients of other listeners stay connected. If the file of a unix socket was removed, the next reload creates it again."},
	{"admin", "admin", "An address, or a mapping of these keys."},
	{"users.*", "A user", "The key is the name of a user, or `cert:` and a name in a certificate, in which `*` is any text. See [Permissions](tls.md#permissions)."},
	{"limits", "limits", "When a limit is reached, the client receives an error that names it, and the log has a line."},
	{"log", "log", ""},
	{"traces[]", "A trace", "[Traces](traces.md) explains the lines of a trace."},
	{"engine", "engine", "The defaults are right in nearly all cases. Changes take effect at the next start."},
}

func reference(t *testing.T) []byte {
	var s schema
	d := json.NewDecoder(bytes.NewReader(schemaText()))
	d.UseNumber()
	if err := d.Decode(&s); err != nil {
		t.Fatal(err)
	}
	tables := map[string][]string{}
	properties(tables, "", "", s)
	var b bytes.Buffer
	b.WriteString(`# Configuration

Every setting of the file. [ringside.example.yaml](../deploy/ringside.example.yaml) has all of them with their defaults.
[ringside.schema.json](../deploy/ringside.schema.json) validates the file in an editor while you type. ` + "`ringside check FILE`" + ` reports every mistake with
line and column, and shows what the file means. (This page is generated: ` + "`go test ./config -run Reference -update`" + `.)

Durations are ` + "`500ms`, `3s`, `1m30s`" + `; sizes are bytes, or ` + "`64KiB`, `8MiB`, `1GiB`" + `.

## Variables

One file can serve several environments. A value, or a part of it, can come from elsewhere; keys cannot:

| form | value |
|---|---|
| ` + "`${NAME}`" + ` | the environment variable. If it is not set, or empty, the file is rejected at this line |
| ` + "`${NAME:-default}`" + ` | the same, or the default if the variable is not set or empty. ` + "`zone: ${ZONE:-}`" + ` leaves out the setting, or the item of a list |
| ` + "`${file:/run/secrets/x}`" + ` | the content of the file, one line. It is a secret: see below |
| ` + "`$$`" + ` | a dollar. A dollar before another character stands for itself |

Variables are replaced after the YAML was parsed, so a value with spaces, ` + "`:` or `#`" + ` is one value. It has the type of the result
(` + "`queue: ${QUEUE}`" + ` is a number); in quotes it can also be a text, such as a zone with the name 1. Between ` + "`[]` and `{}`" + `, YAML requires the
quotes: ` + "`servers: [\"${HOST}:11211\"]`" + `. The environment is that at the start of the process. Files are read again by each reload, and ` + "`watch: on`" + ` watches them too.

` + "`ringside check`, `plan` and `route`" + ` use the environment of the shell, or that of ` + "`--env FILE`" + ` (` + "`NAME=value`" + ` lines).
` + "`check --allow-unset`" + ` accepts variables without a value and unreadable files with a warning, to check a file on another machine. Commands that need
only the addresses of an instance (` + "`-c`" + `) accept them too.

Errors, the log, ` + "`ringside check`, `plan`, `reload` and `GET /control/config`" + ` show ` + "`${file:…}`" + ` in place of the content, if it has at least
four bytes. Names of servers and pools are also in metrics, in ` + "`stats`" + ` and on the dashboard: don't make them secrets. Environment variables are not
secrets: ` + "`GET /control/config`" + ` shows the ones that the file uses, because ` + "`ringside plan`" + ` needs them.
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
		b.WriteString("| key | meaning | values | default |\n|---|---|---|---|\n" + strings.Join(rows, ""))
	}
	for path := range tables {
		t.Errorf("%q has no section", path)
	}
	return b.Bytes()
}

// properties adds a row for each key of s to the table of path. It also adds the keys of nested
// mappings, with names relative to path, unless these have a section.
func properties(tables map[string][]string, path, name string, s schema) {
	keys, _ := s["properties"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		value := keys[key].(map[string]any)
		row := strings.TrimPrefix(name+"."+key, ".")
		here := strings.TrimPrefix(path+"."+row, ".")
		if here == "defaults" || here == "listen.routes" { // same keys as pools and routes
			tables[path] = append(tables[path], rowOf(row, value, "see below"))
			continue
		}
		inner, at := mappingOf(value)
		if here == "pools.*.servers" { // a list of servers, or one source
			choices := value["anyOf"].([]any)
			tables[path] = append(tables[path], rowOf(row, value, "see below"))
			server, _ := mappingOf(choices[0].(map[string]any)["items"].(map[string]any))
			source, _ := mappingOf(choices[len(choices)-1].(map[string]any))
			properties(tables, here+"[]", "", server)
			properties(tables, here, "", source)
			continue
		}
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

// mappingOf returns the mapping that s allows, directly or as an element, and the path from s
// to it.
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

// choicesOf describes the values that s allows.
func choicesOf(s schema) string {
	if s["$ref"] != nil { // any value can come from a variable
		return ""
	}
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
			if _, said := word.(bool); !said && word != "yes" && word != "no" { // on and off are listed already
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
