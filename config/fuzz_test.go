package config

// Fuzz tests: any file is either accepted, or rejected with positions inside the file.

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// seed adds the inputs of golden files to the corpus of a fuzz target.
func seed(f *testing.F, pattern string) {
	f.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		f.Fatalf("no %s: %v", pattern, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		input, _, _ := strings.Cut(string(text), divider)
		f.Add([]byte(input))
	}
}

// insideFile checks that the positions of errors are inside the file. Line ends of YAML are \n,
// \r, and three rare Unicode characters.
func insideFile(t *testing.T, data []byte, err error) {
	t.Helper()
	var all Errors
	if !errors.As(err, &all) || len(all) == 0 {
		t.Fatalf("%T is not Errors: %v", err, err)
	}
	lines := strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n").Replace(string(data)), "\n")
	plain := strings.Count(string(data), "\n") == len(lines)-1
	for _, e := range all {
		switch {
		case e.Line < 1 || e.Line > len(lines) || e.Column < 1:
			t.Errorf("%v lies outside the file of %d lines", e, len(lines))
		case plain && e.Column > 1+utf8.RuneCountInString(strings.TrimPrefix(lines[e.Line-1], "\ufeff")):
			t.Errorf("%v lies behind the end of the line %q", e, lines[e.Line-1])
		case strings.TrimSpace(e.Message) == "":
			t.Errorf("%v says nothing", e)
		}
	}
}

func FuzzParse(f *testing.F) {
	seed(f, "testdata/errors/*.txt")
	f.Add([]byte(least))
	example, err := os.ReadFile(exampleFile)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(example)
	f.Add([]byte(`
listen: [":1", {address: ":2", routes: [{prefix: "s:", pool: a, preset: sessions, replicas_on: zone}]}]
zone: z
defaults: {failover: {mode: rehash, on_rejoin: warm}}
pools:
  a: {distribution: ketama, servers: [{address: x, zone: z}, {address: y, host: m, zone: w}], failover: {mode: gutter, gutter: c}}
  b: {distribution: dalli, servers: [v, w]}
  c: {distribution: jump, servers: [t, u]}
routes: [{prefix: "s:", pool: a, replicas: 2, replicas_on: zone, read: nearest}, {pools: [b, c], prefer: c, repair: off}]
`))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse("fuzz.yaml", data)
		if err != nil {
			insideFile(t, data, err)
			return
		}
		table, err := file.Build()
		if err != nil {
			t.Fatalf("what parses must build: %v", err)
		}
		for _, p := range table.Pools {
			if _, _, server := p.Place.Locate([]byte("key")); server >= len(p.Servers) {
				t.Fatalf("pool %s sends a key to server %d of %d", p.Name, server, len(p.Servers))
			}
		}
	})
}

func FuzzImportNutcracker(f *testing.F) {
	seed(f, "testdata/nutcracker/*.txt")
	f.Fuzz(func(t *testing.T, data []byte) {
		out, _, err := ImportNutcracker("fuzz.yml", data)
		if err != nil {
			insideFile(t, data, err)
			return
		}
		if _, err := Parse("imported.yaml", out); err != nil {
			t.Fatalf("what is imported must parse: %v\n%s", err, out)
		}
	})
}
