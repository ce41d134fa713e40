package config

import (
	"strings"
	"testing"
)

// TestUsers checks the settings of users.
func TestUsers(t *testing.T) {
	f := newTLSFiles(t)
	auth := f.write("users", []byte("app:s\nops:s\n"))
	cert, key := f.ca.Named(t, "127.0.0.1").Write(t, f.dir, "tls")
	ca := f.write("ca.crt", f.ca.PEM)
	login := "{address: 127.0.0.1:1, auth_file: " + auth + "}"
	secure := "{address: 127.0.0.1:3, tls: {cert: " + cert + ", key: " + key + ", client_ca: " + ca + "}}"
	for _, c := range []struct{ listen, users, wrong, warning string }{
		{listen: login, users: "{app: {routes: ['sess:', 'm:*:x', '*'], may: [read, write]}, ops: {may: [admin]}}"},
		{listen: "[" + login + ", " + secure + "]", users: "{app: {may: [read]}, 'cert:spiffe://prod/app-*': {may: [read]}}"},
		{listen: "[" + login + ", 127.0.0.1:2]", users: "{app: {may: [read]}}", warning: "users does not limit the clients of 127.0.0.1:2"},
		{listen: login, users: "{other: {may: [read]}}", warning: "users.other has no effect: no auth_file has that user"},
		{listen: login, users: "{'cert:app': {may: [read]}, app: {may: [read]}}", warning: "users.cert:app has no effect: no listener has tls.client_ca"},
		{listen: login, users: "{app: {routes: ['other:'], may: [read]}}", wrong: `users.app.routes: no route has the prefix or match "other:"; there are sess:, m:*:x or *`},
		{listen: login, users: "{app: {routes: ['sess:']}}", wrong: "users.app.may is missing"},
		{listen: login, users: "{app: {may: []}}", wrong: "users.app.may must be a list of at least one"},
		{listen: login, users: "{app: {may: [reed]}}", wrong: `users.app.may[0] must be read, write or admin, not "reed" (did you mean "read"?)`},
		{listen: login, users: "{'cert:': {may: [read]}}", wrong: `"cert:" is not a user`},
		{listen: login, users: "{}", wrong: "users must be a mapping of at least one user"},
		{listen: login, users: "{app: {may: [read], routes: []}}", wrong: "users.app.routes must be a list of at least one"},
	} {
		file, err := f.load("listen: " + c.listen + "\nusers: " + c.users + onePool + "routes: [{prefix: 'sess:', pool: main}, {match: 'm:*:x', pool: main}, {pool: main}]\n")
		switch {
		case c.wrong == "" && err != nil:
			t.Errorf("%s: %v", c.users, err)
		case c.wrong == "":
			built, err := file.Build()
			if warning := strings.Join(file.Warnings, ""); err != nil || built.Permissions == nil || warning != "" != (c.warning != "") || !strings.Contains(warning, c.warning) {
				t.Errorf("%s: %v, %q", c.users, err, warning)
			}
		case err == nil || !strings.Contains(err.Error(), c.wrong):
			t.Errorf("%s: %v, want %q", c.users, err, c.wrong)
		}
	}
	load := func(users string) *File {
		file, err := f.load("listen: " + login + "\n" + users + onePool)
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	before, after := load("users: {app: {may: [read]}}"), load("users: {app: {may: [read, write]}, ops: {may: [admin]}}")
	if got := strings.Join(Changes(before, after), "; "); got != "user app: may read to read, write; +user ops" {
		t.Errorf("changes: %q", got)
	}
	if got := Changes(before, load("")); len(got) != 1 || got[0] != "-user app" {
		t.Errorf("changes without users: %q", got)
	}
}
