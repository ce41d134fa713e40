package e2e

// This file installs the Debian package with dpkg.

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"ringside/internal/testenv"
)

func TestDebianPackage(t *testing.T) {
	testenv.OnlyFull(t, "it compiles the program that makes the package")
	t.Parallel()
	at := func(dir string, words ...string) string {
		t.Helper()
		c := exec.Command(words[0], words[1:]...)
		c.Dir = dir
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(words, " "), err, out)
		}
		return string(out)
	}
	made := strings.Fields(at("../..", "make", "--no-print-directory", "deb"))
	file := filepath.Join("../..", made[len(made)-1])

	// A separate root directory leaves the machine's packages unchanged.
	root := t.TempDir()
	for _, dir := range []string{"updates", "info", "parts", "alternatives", "triggers"} {
		if err := os.MkdirAll(filepath.Join(root, "var/lib/dpkg", dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"status", "available"} {
		if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg", name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	dpkg := func(words ...string) {
		t.Helper()
		at(".", append([]string{need(t, "dpkg"), "--force-not-root", "--force-bad-path", "--log=" + filepath.Join(root, "log"), "--root=" + root}, words...)...)
	}
	installed := func() string {
		return at(".", need(t, "dpkg-query"), "--admindir="+filepath.Join(root, "var/lib/dpkg"), "--show", "--showformat=${Version} ${db:Status-Status}", "ringside")
	}
	// An older version of the package. An upgrade must not change its configuration file.
	older := strings.TrimSpace(at("../..", "bin/makerelease", "-only", "deb", "-number", "0~1", "-arch", strings.TrimSpace(at(".", "dpkg", "--print-architecture")), "-to", root))
	dpkg("--install", older)
	if is := installed(); is != "0~1 installed" {
		t.Errorf("the older package is %q", is)
	}
	mine := filepath.Join(root, "etc/ringside/ringside.yaml")
	if err := os.WriteFile(mine, []byte("mine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	dpkg("--install", file)
	if is := installed(); is == "0~1 installed" || !strings.HasSuffix(is, " installed") {
		t.Errorf("after an upgrade dpkg says %q", is)
	}

	binary := filepath.Join(root, "usr/bin/ringside")
	if said := at(".", binary, "version"); !strings.HasPrefix(said, "ringside ") || strings.Contains(said, "(devel)") {
		t.Errorf("the installed binary says %q", said)
	}
	for _, name := range []string{"usr/share/bash-completion/completions/ringside", "usr/share/doc/ringside/README.md", "usr/share/doc/ringside/docs/runbook.md", "usr/share/doc/ringside/copyright", "etc/ringside"} {
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			t.Error(err)
		}
	}
	linksLead(t, filepath.Join(root, "usr/share/doc/ringside"))
	unit, err := os.ReadFile(filepath.Join(root, "lib/systemd/system/ringside.service"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(unit), "\nExecStart=/usr/bin/ringside serve -c /etc/ringside/ringside.yaml\n") {
		t.Error("the unit starts what the package does not have")
	}
	for _, end := range []string{"--remove", "--purge"} {
		dpkg(end, "ringside")
		if _, err := os.Stat(binary); !os.IsNotExist(err) {
			t.Errorf("the binary is there after %s: %v", end, err)
		}
		if text, err := os.ReadFile(mine); string(text) != "mine\n" {
			t.Errorf("after %s the configuration, which is no part of the package, has %q: %v", end, text, err)
		}
		if end == "--remove" {
			dpkg("--install", file)
		}
	}
	if err := os.Remove(mine); err != nil {
		t.Fatal(err)
	}
	dpkg("--install", file)
	dpkg("--purge", "ringside")
	for _, name := range []string{"etc/ringside", "usr/share/doc/ringside", "usr/share/ringside", "lib/systemd/system/ringside.service"} {
		if _, err := os.Stat(filepath.Join(root, name)); !os.IsNotExist(err) {
			t.Errorf("%s is there after a purge: %v", name, err)
		}
	}
}

// linksLead fails the test for each link to a missing file in the pages below dir.
func linksLead(t *testing.T, dir string) {
	t.Helper()
	code := regexp.MustCompile("(?ms)^```.*?^```")
	links := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	led := 0
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range links.FindAllSubmatch(code.ReplaceAll(text, nil), -1) {
			to, _, _ := strings.Cut(string(m[1]), "#")
			if to == "" || strings.Contains(to, "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), to)); err != nil {
				t.Errorf("%s links to %s, which is not there", strings.TrimPrefix(path, dir+"/"), to)
			} else {
				led++
			}
		}
		return err
	})
	if err != nil || led < 50 {
		t.Errorf("%d links lead somewhere: %v", led, err)
	}
}
