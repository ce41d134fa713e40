package config

// Tests that the configurations in deploy/ are valid.

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"gopkg.in/yaml.v3"
)

func TestDeployedConfigurations(t *testing.T) {
	right := func(name string, text []byte) *File {
		t.Helper()
		f, err := Parse(name, text)
		if err == nil {
			_, err = f.Build()
		}
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	text, err := os.ReadFile("../deploy/compose/ringside.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if f := right("compose", text); f.Admin.Page != "on" {
		t.Error("compose.yaml says where the page is; whoever comes there is not on the container's loopback")
	}
	manifests, err := filepath.Glob("../deploy/kubernetes/*.yaml")
	if err != nil || len(manifests) == 0 {
		t.Fatal(manifests, err)
	}
	for _, path := range manifests {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
			var object struct {
				Kind string
				Data map[string]string
			}
			if err := d.Decode(&object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(path, err)
			}
			if object.Kind == "ConfigMap" {
				found++
				right(path, []byte(object.Data["ringside.yaml"]))
			}
		}
		if found != 1 {
			t.Errorf("%s has %d ConfigMaps", path, found)
		}
	}
}

// TestImageIsBuiltFromWhatGitHas checks that .dockerignore excludes no file that git tracks. Go
// would treat such a file as deleted, so ringside version would print "+dirty" in each image.
func TestImageIsBuiltFromWhatGitHas(t *testing.T) {
	repository := t.TempDir() // a new repository, because the files may be here without one
	git := func(args ...string) string {
		t.Helper()
		c := exec.Command("git", append([]string{"--git-dir=" + repository, "--work-tree=."}, args...)...)
		c.Dir = ".."
		out, err := c.Output()
		if err != nil {
			t.Fatalf("git %s: %v", args[0], err)
		}
		return string(out)
	}
	git("init", "--quiet")
	git("add", "--all")
	if out := git("ls-files", "--cached", "--ignored", "--exclude-from=.dockerignore"); out != "" {
		t.Errorf(".dockerignore leaves out:\n%s", out)
	}
	if git("ls-files") == "" {
		t.Error("git has nothing: the look at what is left out saw nothing")
	}
}
