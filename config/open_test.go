package config

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestOnlyRegularFilesAreRead checks that a pipe or device in the place of a file is an
// error at once, and that a file of passwords that others may change is refused.
func TestOnlyRegularFilesAreRead(t *testing.T) {
	dir := t.TempDir()
	pipe, users := filepath.Join(dir, "pipe"), filepath.Join(dir, "users")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, "/dev/zero", "/dev/tty"} {
		if _, err := Load(path, Environment()); err == nil {
			t.Errorf("%s is a configuration", path)
		}
		if _, err := ReadFile(path, 100); err == nil {
			t.Errorf("%s is read", path)
		}
	}
	load := func(auth string) (*File, error) {
		path := filepath.Join(dir, "ringside.yaml")
		text := "listen: {address: 127.0.0.1:1, auth_file: " + auth + "}\npools: {main: {distribution: ketama, servers: [127.0.0.1:2]}}\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return Load(path, Environment())
	}
	if _, err := load(pipe); err == nil || !strings.Contains(err.Error(), "must be a file of") {
		t.Errorf("a pipe of passwords: %v", err)
	}
	if err := os.WriteFile(users, []byte("a:b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[os.FileMode]string{0o600: "", 0o640: "", 0o644: "can read the passwords", 0o666: "may change"} {
		if err := os.Chmod(users, mode); err != nil {
			t.Fatal(err)
		}
		f, err := load(users)
		said := ""
		if err != nil {
			said = err.Error()
		} else {
			said = strings.Join(f.Warnings, "\n")
		}
		if want == "" && said != "" || !strings.Contains(said, want) {
			t.Errorf("mode %v: %q, want %q", mode, said, want)
		}
	}
}
