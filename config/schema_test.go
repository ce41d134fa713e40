package config

// The schema and the example file say what the table of keys says.

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

func TestSchemaFileIsUpToDate(t *testing.T) {
	if *update {
		if err := os.WriteFile(schemaFile, Schema(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	committed, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(committed, Schema()) {
		t.Errorf("%s is not what Schema returns: run go test ./config -run Schema -update", schemaFile)
	}
}

// validate checks a YAML text against the schema, as an editor does.
func validate(t *testing.T, text string) error {
	t.Helper()
	schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
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
	example, err := os.ReadFile(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"example": string(example), "least": least, "brief": `
x-anything: [1]
listen: :1
admin: 127.0.0.1:1
defaults:
pools: {main: {distribution: modulo-libmemcached, servers: [a, {address: b}], hash_strip_prefix: x, char: unsigned}}
limits: {idle: 1m30s, value: 1000, drain: off}
engine: {coalesce_server: off, coalesce_client: true, moderation: on}
`} {
		if _, err := Parse(name, []byte(text)); err != nil {
			t.Errorf("%s: Parse: %v", name, err)
		}
		if err := validate(t, text); err != nil {
			t.Errorf("%s: the schema: %v", name, err)
		}
	}
}

// The schema sees what is wrong with a single value. What it can't see are
// addresses, relations between settings, and syntax.
func TestSchemaRefuses(t *testing.T) {
	for _, name := range []string{
		"block-scalar", "copies", "defaults", "durations", "failover", "hash-tag", "merged-values-are-checked", "missing", "missing-in-pool",
		"not-a-mapping", "numbers", "placement-unknown", "pool-names", "servers", "sizes", "types", "unknown-keys",
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

// usual is a key of the schema by its path, with its default.
type usual map[string]any

// collect walks the schema. What pools inherit counts once, as do the routes of
// the file and of a listener.
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

func asMap(v any) map[string]any { m, _ := v.(map[string]any); return m }
func asList(v any) []any         { l, _ := v.([]any); return l }

func keyPath(path, name string) string {
	path = strings.TrimPrefix(path+"."+name, ".")
	path = strings.Replace(path, "defaults.", "pools.*.", 1)
	return strings.Replace(path, "listen.routes", "routes", 1)
}

// namesDefault is how the example file ends a comment that names a default.
var namesDefault = regexp.MustCompile(`(?m)#.*\bdefault: (\S+)$`)

// TestExampleShowsEveryKey holds the example file to the table of keys: every
// key stands in it, and what it calls a default is.
func TestExampleShowsEveryKey(t *testing.T) {
	var s map[string]any
	if err := json.Unmarshal(Schema(), &s); err != nil {
		t.Fatal(err)
	}
	known := usual{}
	known.collect("", s)
	if len(known) < 60 {
		t.Fatalf("the schema has only %d keys", len(known))
	}
	text, err := os.ReadFile(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	shown, marked := map[string]bool{}, 0
	var walk func(path string, n *yaml.Node)
	walk = func(path string, n *yaml.Node) {
		for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			name := key.Value
			if path == "pools" {
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
	if want := len(namesDefault.FindAll(text, -1)); marked != want {
		t.Errorf("%d settings name their default, of %d defaults in the text", marked, want)
	}
}
