package config

// Tests of variables in configuration files.

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// known has the variables of the tests in this file.
var known = Variables{
	Lookup: From(map[string]string{
		"HOST": "10.0.0.1", "QUEUE": "77", "ZONE": "1", "EMPTY": "", "ODD": "a: [b] # c", "WATCH": "on", "LINES": "a\nb", "MERGE": "<<",
	}),
	ReadFile: func(path string) ([]byte, error) {
		switch path {
		case "/run/secrets/name":
			return []byte("hunter22\n"), nil
		case "/run/secrets/number":
			return []byte("12345"), nil
		case "/run/secrets/empty":
			return []byte("\n"), nil
		}
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	},
}

const variableFile = `
x-unused: ${NOBODY}
x-pool: &pool {distribution: ketama, queue: "${QUEUE}"}
listen: ":${PORT:-11211}"
watch: ${WATCH}
zone: "${ZONE}"
log: {level: "${LEVEL:-}"}
pools:
  main:
    <<: *pool
    connections: ${CONNECTIONS:-3}
    hash_stop: "$$|$"
    servers:
      - ${HOST}:11211
      - {address: "${HOST}:11212", name: "${file:/run/secrets/name}", weight: "${WEIGHT:-2}"}
      - ${THIRD:-}
`

func TestVariables(t *testing.T) {
	f, err := ParseWith("f", []byte(variableFile), known)
	if err != nil {
		t.Fatal(err)
	}
	p := &f.Pools[0]
	switch {
	case f.Listen[0].Address.Address != ":11211", !f.Watch, f.Zone != "1", f.Log.Level != 0, p.Queue != 77, p.Connections != 3, p.Placement.HashStop != "$|$":
		t.Errorf("%+v", f)
	case len(p.Servers) != 2 || p.Servers[0].Address.Address != "10.0.0.1:11211" || p.Servers[1].Name != "hunter22" || p.Servers[1].Weight != 2:
		t.Errorf("%+v", p.Servers)
	}
	if string(f.Source) != variableFile {
		t.Error("the source has values")
	}
	if len(f.Variables) != 4 || f.Variables["HOST"] != "10.0.0.1" {
		t.Errorf("used: %v", f.Variables)
	}
	if got := f.Hide(`server hunter22: "hunter22"`); got != `server ${file:/run/secrets/name}: "${file:/run/secrets/name}"` {
		t.Error(got)
	}
	if err := validate(t, variableFile); err != nil {
		t.Errorf("the schema: %v", err)
	}
}

func TestVariablesRefused(t *testing.T) {
	for _, c := range []struct{ value, want string }{
		{"${NOBODY}", "2:7: the environment variable NOBODY is not set: set it, or write ${NOBODY:-default}"},
		{"a-${EMPTY}", "2:7: the environment variable EMPTY is empty: ${EMPTY:-} allows that"},
		{"a-${HOST", "2:7: ${ is not closed: write ${NAME}, or $$ for a dollar"},
		{"${}", `2:7: "${}" is not a variable: write ${NAME}, ${NAME:-default} or ${file:/path}; $$ is a dollar`},
		{"${HOST:?x}", `2:7: "${HOST:?x}" is not a variable: write ${NAME}, ${NAME:-default} or ${file:/path}; $$ is a dollar`},
		{"${HOST:-${ZONE}}", `2:7: a default cannot contain another variable: "${HOST:-${ZONE}"`},
		{"${LINES}", "2:7: the environment variable LINES is not one line of text"},
		{"${ODD}", `2:7: zone must have at most 250 bytes and no spaces or control characters, not "a: [b] # c"`},
		{"${ZONE}", `2:7: zone must be the name of a zone; 1 alone is not text: write "1"`},
		{"${file:x}", `2:7: the path in "${file:x}" does not begin with /`},
		{"${file:/none}", "2:7: ${file:/none} cannot be read: file does not exist"},
		{"${file:/run/secrets/empty}", "2:7: the file in ${file:/run/secrets/empty} is empty"},
		{"${file:/run/secrets/number}", `2:7: zone must be the name of a zone; ${file:/run/secrets/number} alone is not text: write "${file:/run/secrets/number}"`},
		{"ok\nwatch: ${file:/run/secrets/name}", `3:8: watch must be on or off, not "${file:/run/secrets/name}"`},
		{"ok\n${HOST}: 1", `3:1: unknown key "${HOST}"; known here: listen, admin, defaults, pools, zone, routes, tags, traces, users, limits, engine, log, watch`},
		{"{${HOST}: a}", "2:"},
	} {
		_, err := ParseWith("f", []byte("listen: :1\nzone: "+c.value+"\npools: {main: {distribution: jump, servers: [a, b]}}\n"), known)
		if err == nil || !strings.HasPrefix(err.Error(), "f:"+c.want) || strings.Contains(err.Error(), "hunter") {
			t.Errorf("%s: got %v, want %s", c.value, err, c.want)
		}
	}
	_, err := ParseWith("f", []byte("listen: :1\npools: {main: {distribution: jump, servers: [${HOST}]}}\n"), known)
	if err == nil || !strings.Contains(err.Error(), `quote a value with ${…} between [] or {}`) {
		t.Errorf("without quotes: %v", err)
	}
}

func TestUnsetAllowed(t *testing.T) {
	from := Variables{AllowUnset: true}
	f, err := ParseWith("f", []byte("listen: 127.0.0.1:1\nzone: ${ZONE}\npools:\n  main: {distribution: jump, queue: \"${QUEUE}\", servers: [\"${A}:1\", \"${file:/run/secrets/b}\"]}\n"), from)
	if err != nil {
		t.Fatal(err)
	}
	if f.Zone != "unset-ZONE" || f.Pools[0].Queue != defaultPool().Queue || f.Pools[0].Servers[0].Address.Address != "unset-A:1" || f.Pools[0].Servers[1].Address.Address != "unset-b:11211" {
		t.Errorf("%+v", f)
	}
	want := "f:2:7: the environment variable ZONE is not set: set it, or write ${ZONE:-default}; the file is checked without it"
	if len(f.Warnings) != 4 || f.Warnings[0] != want {
		t.Errorf("warnings: %s", strings.Join(f.Warnings, "\n"))
	}
	if _, err := f.Build(); err != nil {
		t.Error(err)
	}
	if _, err := ParseWith("f", []byte("listen: \"${L}\"\nadmin: \"${M}\"\npools: {main: {distribution: \"${D}\", servers: [\"${file:none}\"]}}\n"), from); err == nil || strings.Count(err.Error(), "\n") != 0 {
		t.Errorf("only the path is wrong: %v", err)
	}
}

func TestLoadReadsSecrets(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("RINGSIDE_TEST_ZONE", "here")
	for name, text := range map[string]string{"s": "srv-secret\r\n", "f": "listen: :1\nzone: ${RINGSIDE_TEST_ZONE}\npools: {main: {distribution: jump, servers: [{address: a, name: \"${file:" + dir + "/s}\"}, b]}}\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	old, err := Load(filepath.Join(dir, "f"), Environment())
	if err != nil || old.Zone != "here" || old.Pools[0].Servers[0].Name != "srv-secret" {
		t.Fatalf("%v %+v", err, old)
	}
	if err := os.WriteFile(filepath.Join(dir, "s"), []byte("srv-rotated"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Load(filepath.Join(dir, "f"), Environment())
	if err != nil {
		t.Fatal(err)
	}
	if all := strings.Join(Changes(old, f), "\n"); all == "" || strings.Contains(all, "srv-") || !strings.Contains(all, "${file:"+dir+"/s}") {
		t.Errorf("changes: %s", all)
	}
}

func TestParseEnv(t *testing.T) {
	values, err := ParseEnv("e", []byte("# a comment\n\nA=1\n  B_2=\"x\" # y\nC=\n"))
	if err != nil || len(values) != 3 || values["A"] != "1" || values["B_2"] != `"x" # y` {
		t.Errorf("%v %v", values, err)
	}
	_, err = ParseEnv("e", []byte("A=1\nhunter22\n2=b\n"))
	var all Errors
	if !errors.As(err, &all) || len(all) != 2 || all[0].Line != 2 || strings.Contains(err.Error(), "hunter22") {
		t.Error(err)
	}
}
