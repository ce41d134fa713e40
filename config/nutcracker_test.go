package config

// Tests of the import of twemproxy files: files that the real nutcracker accepts are imported,
// and every key keeps its server.

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// nutcrackerTakes reports whether the real nutcracker accepts a file.
func nutcrackerTakes(t *testing.T, text string) bool {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nutcracker.yml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("nutcracker", "--test-conf", "--conf-file", file).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("nutcracker (Debian package nutcracker) must run: %v", err)
	}
	if (err == nil) != strings.Contains(string(out), "syntax is ok") {
		t.Fatalf("nutcracker: %v, %s", err, out)
	}
	return err == nil
}

// TestNutcrackerImport checks the import of the files in testdata/nutcracker. Each has a
// twemproxy file, a line of dashes, and the result with its warnings, or the errors. nutcracker
// accepts files named refused-, but Ringside does not. Files named lenient- are the opposite.
func TestNutcrackerImport(t *testing.T) {
	files, err := filepath.Glob("testdata/nutcracker/*.txt")
	if err != nil || len(files) < 10 {
		t.Fatalf("found %d files, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			input, want, ok := strings.Cut(string(text), divider)
			if !ok {
				t.Fatalf("%s has no line of four dashes", file)
			}
			out, warnings, err := ImportNutcracker("nutcracker.yml", []byte(input))
			got := string(out)
			for _, w := range warnings {
				got += "warning: " + w + "\n"
			}
			if err != nil {
				got += err.Error() + "\n"
			}
			if *update {
				if err := os.WriteFile(file, []byte(input+divider+got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != want {
				t.Errorf("got:\n%swant:\n%s", got, want)
			}
			takes := nutcrackerTakes(t, input)
			switch {
			case strings.HasPrefix(name, "refused-"):
				if !takes || err == nil {
					t.Errorf("nutcracker takes it: %v; the import: %v", takes, err)
				}
			case strings.HasPrefix(name, "lenient-"):
				if takes || err != nil {
					t.Errorf("nutcracker takes it: %v; the import: %v", takes, err)
				}
			case takes != (err == nil):
				t.Errorf("nutcracker takes it: %v; the import: %v", takes, err)
			}
		})
	}
}

// TestNutcrackerPlacement converts the vectors that were recorded from a real twemproxy to
// twemproxy files, imports these, and compares the owners of keys.
func TestNutcrackerPlacement(t *testing.T) {
	file := readVectors(t, "testdata/vectors.json.gz")
	pools := 0
	for _, v := range file.Vectors {
		if v.Client != "twemproxy" {
			continue
		}
		pools++
		place := importOwners(t, nutcrackerFile(t, v))
		wrong := 0
		for i, want := range v.Index {
			if got := place(file.Keys[i]); want >= 0 && got != want {
				if wrong++; wrong == 1 {
					t.Errorf("%s, pool %s: key %q goes to %d; twemproxy sent it to %d", v.Mode, v.Pool, file.Keys[i], got, want)
				}
			}
		}
	}
	if pools < 40 {
		t.Fatalf("only %d pools of twemproxy in the vectors", pools)
	}
}

// importOwners imports a file of one pool and returns its placement.
func importOwners(t *testing.T, text string) func(key string) int {
	t.Helper()
	if !nutcrackerTakes(t, text) {
		t.Fatalf("nutcracker refuses\n%s", text)
	}
	out, _, err := ImportNutcracker("nutcracker.yml", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	f := parse(t, string(out))
	table, err := f.Build()
	if err != nil {
		t.Fatal(err)
	}
	place := &table.Pools[0].Place
	return func(key string) int {
		_, _, server := place.Locate([]byte(key))
		return server
	}
}

// nutcrackerFile returns the twemproxy file with which a vector was recorded.
func nutcrackerFile(t *testing.T, v vector) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("pool:\n  listen: 127.0.0.1:22121\n")
	mode, tagged := strings.CutSuffix(v.Mode, "-hashtag")
	distribution, hash, ok := strings.Cut(mode, "-")
	if !ok {
		t.Fatalf("mode %q", v.Mode)
	}
	if distribution != "default" {
		fmt.Fprintf(&b, "  distribution: %s\n  hash: %s\n", distribution, hash)
	}
	if tagged {
		b.WriteString("  hash_tag: \"{}\"\n")
	}
	b.WriteString("  servers:\n")
	for _, s := range v.Servers {
		fmt.Fprintf(&b, "   - %s:%d %s\n", s.Addr, max(s.Weight, 1), s.Name)
	}
	return strings.ReplaceAll(b.String(), " \n", "\n")
}

// TestNutcrackerLabels checks labels that no vector has. A server can be written in several
// ways, with or without a name, for which twemproxy hashes the same text.
func TestNutcrackerLabels(t *testing.T) {
	pool := func(servers ...string) string {
		return "pool:\n  listen: 127.0.0.1:22121\n  servers:\n   - \"" + strings.Join(servers, "\"\n   - \"") + "\"\n"
	}
	for _, c := range []struct{ spelled, named []string }{
		{[]string{"a:11211:1", "b:11211:1"}, []string{"x:1:1 a", "y:1:1 b"}},
		{[]string{"a:11212:1", "b:11211:2"}, []string{"x:1:1 a:11212", "y:1:2 b"}},
		{[]string{"::1:11211:1", "2001:db8::3:11300:1"}, []string{"x:1:1 ::1", "y:1:1 2001:db8::3:11300"}},
		{[]string{"/run/a.sock:1", "/run/b.sock:1"}, []string{"x:1:1 /run/a.sock:", "y:1:1 /run/b.sock:"}},
		{[]string{"a:011212:1", "b:0011211:1"}, []string{"x:1:1 a:011212", "y:1:1 b"}},
	} {
		spelled, named := importOwners(t, pool(c.spelled...)), importOwners(t, pool(c.named...))
		for i := range 2000 {
			if key := fmt.Sprint("key", i); spelled(key) != named(key) {
				t.Fatalf("%v: key %s goes to %d; named %v, to %d", c.spelled, key, spelled(key), c.named, named(key))
			}
		}
	}
}
