package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheckSaysTraces tests that check warns of traces that serve could not write, and
// that it creates no file.
func TestCheckSaysTraces(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f.yaml")
	text := goodFile + fmt.Sprintf("traces:\n  - {keys: \"a:*\", file: %q}\n  - {keys: \"b:*\", file: %q}\n  - {keys: \"c:*\", file: %q}\n", filepath.Join(dir, "none", "a"), filepath.Join(dir, "b"), dir)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	if code := run([]string{"check", file}, strings.NewReader(""), &out, &errs); code != 0 || !strings.Contains(out.String(), " is correct") {
		t.Errorf("exit code %d: %s", code, out.String())
	}
	want := "warning: ringside serve here cannot write the trace of a:*: stat " + filepath.Join(dir, "none") + ": no such file or directory; see that its directory is there and that Ringside may write to it\n" +
		"warning: ringside serve here cannot write the trace of c:*: " + dir + " is not a regular file: name another one; see that its directory is there and that Ringside may write to it\n"
	if errs.String() != want {
		t.Errorf("said:\n%swant:\n%s", errs.String(), want)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
		t.Errorf("there are %v, %v: want the configuration alone", list, err)
	}
}
