package main

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// run runs a command in dir and returns its output.
func run(t *testing.T, dir string, words ...string) string {
	t.Helper()
	c := exec.Command(words[0], words[1:]...)
	c.Dir = dir
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(words, " "), err, out)
	}
	return string(out)
}

// unpack unpacks a tar archive into a new directory. It returns the directory and the names of the
// files.
func unpack(t *testing.T, file string) (dir string, names []string) {
	t.Helper()
	dir = t.TempDir()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(file, "gz") {
		if r, err = gzip.NewReader(f); err != nil {
			t.Fatal(err)
		}
	}
	for a := tar.NewReader(r); ; {
		h, err := a.Next()
		if errors.Is(err, io.EOF) {
			return dir, names
		} else if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, h.Name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(a)
		if err == nil {
			err = os.WriteFile(to, text, os.FileMode(h.Mode))
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
}

func TestRelease(t *testing.T) {
	t.Chdir("../..")
	var sums []string
	to := ""
	for range 2 {
		to = filepath.Join(t.TempDir(), "out")
		r := release{version: "v0.0.1-test.1", to: to}
		if err := r.run("", ""); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(to, "SHA256SUMS"))
		if err != nil {
			t.Fatal(err)
		}
		sums = append(sums, string(text))
	}
	if sums[0] != sums[1] {
		t.Errorf("two runs differ:\n%s%s", sums[0], sums[1])
	}
	if checked := run(t, to, "sha256sum", "-c", "SHA256SUMS"); strings.Count(checked, ": OK\n") != 14 {
		t.Errorf("sha256sum says:\n%s", checked)
	}

	const name = "ringside_0.0.1-test.1_"
	for _, p := range platforms {
		top := name + p.String()
		dir, files := unpack(t, filepath.Join(to, top+".tar.gz"))
		for _, want := range []string{"ringside", "README.md", "LICENSE", "SECURITY.md", "docs/quickstart.md", "deploy/systemd/ringside.service", "man/ringside.1.gz", "man/ringside-serve.1.gz", "completion/_ringside"} {
			if !slices.Contains(files, top+"/"+want) {
				t.Errorf("%s has no %s", p, want)
			}
		}
		program := filepath.Join(dir, top, "ringside")
		if p == (platform{runtime.GOOS, runtime.GOARCH}) {
			if is := run(t, dir, program, "version"); !strings.HasPrefix(is, "ringside v0.0.1-test.1 go") {
				t.Errorf("the program says %q", is)
			}
		}
		text, err := os.ReadFile(filepath.Join(to, top+".cdx.json"))
		if err != nil {
			t.Fatal(err)
		}
		var list cyclonedx.BOM
		if err := json.Unmarshal(text, &list); err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(*list.Components, func(c cyclonedx.Component) bool { return c.Name == "gopkg.in/yaml.v3" && c.Version != "" }) {
			t.Errorf("%s: the list of modules has no yaml.v3", p)
		}
	}

	chart, _ := unpack(t, filepath.Join(to, "ringside-chart-0.0.1-test.1.tgz"))
	about, err := os.ReadFile(filepath.Join(chart, "ringside/Chart.yaml"))
	if err != nil || strings.Count(string(about), "ersion: \"0.0.1-test.1\"") != 2 {
		t.Errorf("the chart: %v\n%s", err, about)
	}

	dir, _ := unpack(t, filepath.Join(to, name+"oci.tar"))
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	inner, err := index.ImageIndex(m.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(inner); err != nil {
		t.Error(err)
	}
	all, err := inner.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var images []v1.Hash
	for _, one := range all.Manifests {
		image, err := inner.Image(one.Digest)
		if err != nil {
			t.Fatal(err)
		}
		c, err := image.ConfigFile()
		if err != nil || c.Config.User != "65532:65532" || c.Architecture != one.Platform.Architecture {
			t.Errorf("image %s: user %q, architecture %q: %v", one.Platform, c.Config.User, c.Architecture, err)
		}
		images = append(images, one.Digest)
	}
	for _, one := range m.Manifests[1:] {
		list, err := index.Image(one.Digest)
		if err != nil {
			t.Fatal(err)
		}
		if of, err := list.Manifest(); err != nil || of.Subject == nil || !slices.Contains(images, of.Subject.Digest) {
			t.Errorf("a list of modules belongs to no image: %v", err)
		}
	}
	if len(images) != 2 || len(m.Manifests) != 3 {
		t.Errorf("%d images and %d entries", len(images), len(m.Manifests))
	}
}

func TestWrongVersion(t *testing.T) {
	for _, version := range []string{"", "1.2.3", "v1.2", "v1.2.3+x y", "v01.2.3"} {
		r := release{version: version, to: t.TempDir()}
		if err := r.run("", ""); err == nil || !strings.Contains(err.Error(), "want vMAJOR.MINOR.PATCH") {
			t.Errorf("version %q: %v", version, err)
		}
	}
}

// TestRename renames the module in a copy of the repository, and builds a program of another module
// that imports its packages.
func TestRename(t *testing.T) {
	const to = "example.org/acme/ringside"
	copied, other := t.TempDir(), t.TempDir()
	for _, name := range strings.Fields(run(t, "../..", "git", "ls-files")) {
		text, err := os.ReadFile(filepath.Join("../..", name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.MkdirAll(filepath.Join(copied, path.Dir(name)), 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(copied, name), text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	run(t, copied, "git", "init", "-q")
	run(t, copied, "git", "add", "-A")
	tool := filepath.Join(other, "rename")
	run(t, ".", "go", "build", "-o", tool, "./rename")
	c := exec.Command(tool, "no path")
	c.Dir = copied
	if out, err := c.CombinedOutput(); err == nil || !strings.Contains(string(out), "want host/owner/ringside") {
		t.Errorf("a wrong path: %v: %s", err, out)
	}
	run(t, copied, tool, to)
	if left := run(t, copied, "git", "diff", "--stat", "--", "go.sum"); left != "" {
		t.Errorf("go.sum has changed: %s", left)
	}
	for name, text := range map[string]string{
		"go.mod": "module example.org/program\n\ngo 1.26\n\nrequire " + to + " v0.0.0\n\nreplace " + to + " => " + copied + "\n",
		"program.go": `package main

import (
	"fmt"

	"` + to + `/recipes"
	"` + to + `/ring"
)

func main() { fmt.Println(recipes.ErrLocked, ring.NewCh3(3) != nil) }
`,
	} {
		if err := os.WriteFile(filepath.Join(other, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	sums, err := os.ReadFile("../../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other, "go.sum"), sums, 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, other, "go", "build", "-mod=mod", "-o", "program", ".")
	run(t, other, "./program")
	run(t, copied, "go", "vet", "./cmd/ringside")
}
