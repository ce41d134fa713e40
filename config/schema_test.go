package config

// The schema, which is derived from the table of keys, and tests that it and the example file agree with that table.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"gopkg.in/yaml.v3"
)

const (
	schemaFile  = "../deploy/ringside.schema.json"
	exampleFile = "../deploy/ringside.example.yaml"
)

// schemaText returns the JSON Schema (draft 2020-12) of a configuration file, for
// deploy/ringside.schema.json. It describes keys, types, words and most bounds. It does not check
// settings against each other, as Parse does.
func schemaText() []byte {
	s := withVariables(fileKeys().schema).(schema)
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "Ringside configuration"
	s["$defs"] = schema{"variable": schema{"type": "string", "pattern": `\$\{`}}
	s["patternProperties"] = schema{"^x-": true}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic("config: the schema is made of maps, lists and scalars: " + err.Error())
	}
	return append(text, '\n')
}

// withVariables returns v, a piece of JSON Schema, so that each scalar can also be a text with a
// variable, such as ${NAME}.
func withVariables(v any) any {
	switch v := v.(type) {
	case []any:
		all := make([]any, len(v))
		for i, one := range v {
			all[i] = withVariables(one)
		}
		return all
	case schema:
		plain, all := schema{}, schema{}
		for name, of := range v {
			switch {
			case name == "anyOf" || name == "items" || name == "additionalProperties":
				all[name] = withVariables(of)
			case name == "properties":
				properties := schema{}
				for key, one := range of.(schema) {
					properties[key] = withVariables(one)
				}
				all[name] = properties
			case name == "description" || name == "default" || !isScalar(v):
				all[name] = of
			default:
				plain[name] = of
			}
		}
		if len(plain) > 0 {
			all["anyOf"] = []any{plain, schema{"$ref": "#/$defs/variable"}}
		}
		return all
	}
	return v
}

// isScalar reports whether s describes a scalar that is not any text.
func isScalar(s schema) bool {
	return s["enum"] != nil || s["pattern"] != nil || s["type"] == "integer"
}

func TestSchemaFileIsUpToDate(t *testing.T) {
	if *update {
		if err := os.WriteFile(schemaFile, schemaText(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	committed, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(committed, schemaText()) {
		t.Errorf("%s is not what schemaText returns: run go test ./config -run Schema -update", schemaFile)
	}
}

// validate checks a YAML text against the schema, as editors do.
func validate(t *testing.T, text string) error {
	t.Helper()
	schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(schemaText()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("ringside.schema.json", schema); err != nil {
		t.Fatal(err)
	}
	compiled, err := c.Compile("ringside.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	return compiled.Validate(value)
}

func TestSchemaTakesWhatParseTakes(t *testing.T) {
	for name, text := range map[string]string{"example": wholeExample(t), "least": least, "brief": `
x-anything: [1]
listen: :1
admin: 127.0.0.1:1
defaults:
pools: {main: {distribution: modulo-libmemcached, servers: [a, {address: b}], hash_strip_prefix: x, char: unsigned}}
limits: {idle: 1m30s, value: 1000, drain: off}
engine: {moderation: on}
`} {
		if _, err := Parse(name, []byte(text)); err != nil {
			t.Errorf("%s: Parse: %v", name, err)
		}
		if err := validate(t, text); err != nil {
			t.Errorf("%s: the schema: %v", name, err)
		}
	}
}

// TestSchemaRefuses checks that the schema rejects wrong values. It cannot check addresses,
// relations between settings, or syntax.
func TestSchemaRefuses(t *testing.T) {
	for _, name := range []string{
		"block-scalar", "defaults", "durations", "failover", "hash-tag", "merged-values-are-checked", "missing", "missing-in-pool",
		"not-a-mapping", "numbers", "placement-unknown", "pool-names", "replicas", "servers", "sizes", "types", "unknown-keys",
	} {
		text, err := os.ReadFile(filepath.Join("testdata/errors", name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		input, _, _ := strings.Cut(string(text), divider)
		if err := validate(t, input); err == nil {
			t.Errorf("the schema takes %s", name)
		}
	}
}

// usual holds the defaults of the schema by the path of the key.
type usual map[string]any

// collect adds the defaults of s and of the keys below it. keyPath returns the same path for a
// key of pools and of defaults, and for a route of the file and of a listener.
func (u usual) collect(path string, s map[string]any) {
	if path != "" {
		u[path] = s["default"]
	}
	for _, alternative := range asList(s["anyOf"]) {
		u.inside(path, alternative.(map[string]any))
	}
	u.inside(path, s)
}

func (u usual) inside(path string, s map[string]any) {
	for name, key := range asMap(s["properties"]) {
		u.collect(keyPath(path, name), key.(map[string]any))
	}
	if pool := asMap(s["additionalProperties"]); pool != nil {
		u.inside(keyPath(path, "*"), pool)
	}
	if items := asMap(s["items"]); items != nil {
		u.inside(path, items)
		for _, alternative := range asList(items["anyOf"]) {
			u.inside(path, alternative.(map[string]any))
		}
	}
	for _, alternative := range asList(s["anyOf"]) {
		u.inside(path, alternative.(map[string]any))
	}
}

// TestDefaultsMayBeWritten checks that the schema accepts each of its defaults.
func TestDefaultsMayBeWritten(t *testing.T) {
	var root any
	if err := json.Unmarshal(schemaText(), &root); err != nil {
		t.Fatal(err)
	}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		s := asMap(v)
		if usual, number := s["default"].(float64); number {
			for _, one := range append(asList(s["anyOf"]), s) {
				if least, ok := asMap(one)["minimum"].(float64); ok && usual < least {
					t.Errorf("%s: the default is %v, and the least that may be written %v", path, usual, least)
				}
			}
		}
		for name, inner := range s {
			walk(path+"/"+name, inner)
		}
		for i, inner := range asList(v) {
			walk(fmt.Sprint(path, "/", i), inner)
		}
	}
	walk("", root)
}

func asMap(v any) map[string]any { m, _ := v.(map[string]any); return m }
func asList(v any) []any         { l, _ := v.([]any); return l }

func keyPath(path, name string) string {
	path = strings.TrimPrefix(path+"."+name, ".")
	path = strings.Replace(path, "defaults.", "pools.*.", 1)
	return strings.Replace(path, "listen.routes", "routes", 1)
}

// namesDefault matches the default at the end of a comment in the example file.
var namesDefault = regexp.MustCompile(`(?m)#.*\bdefault: (\S+)$`)

// wholeExample returns the example file including the settings that are commented out there,
// because they name files that most people do not have.
func wholeExample(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`(?m)^( *)#((?:  )*[a-z_]+:(?: |$))`).ReplaceAllString(string(text), "$1$2")
}

// TestExampleIsCorrect checks that the unchanged example file is valid.
func TestExampleIsCorrect(t *testing.T) {
	if _, err := Load(exampleFile, Environment()); err != nil {
		t.Error(err)
	}
}

// TestExampleShowsEveryKey compares the example file with the table of keys: it must have every
// key, and the defaults that it names must be correct.
func TestExampleShowsEveryKey(t *testing.T) {
	var s map[string]any
	if err := json.Unmarshal(schemaText(), &s); err != nil {
		t.Fatal(err)
	}
	known := usual{}
	known.collect("", s)
	if len(known) < 60 {
		t.Fatalf("the schema has only %d keys", len(known))
	}
	text := wholeExample(t)
	var root yaml.Node
	if err := yaml.Unmarshal([]byte(text), &root); err != nil {
		t.Fatal(err)
	}
	shown, marked := map[string]bool{}, 0
	var walk func(path string, n *yaml.Node)
	walk = func(path string, n *yaml.Node) {
		for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			name := key.Value
			if path == "pools" || path == "users" {
				name = "*"
			}
			at := keyPath(path, name)
			shown[at] = true
			if m := namesDefault.FindStringSubmatch(value.LineComment); m != nil {
				marked++
				if want := fmt.Sprint(known[at]); known[at] == nil || m[1] != want {
					t.Errorf("line %d: the default of %s is %s, not %s", key.Line, at, want, m[1])
				}
			}
			walk(at, value)
		}
		for _, item := range n.Content {
			if n.Kind != yaml.MappingNode {
				walk(path, item)
			}
		}
	}
	walk("", &root)
	for _, path := range slices.Sorted(maps.Keys(known)) {
		if !shown[path] {
			t.Errorf("%s does not stand in the example file", path)
		}
	}
	if want := len(namesDefault.FindAllString(text, -1)); marked != want {
		t.Errorf("%d settings name their default, of %d defaults in the text", marked, want)
	}
}
