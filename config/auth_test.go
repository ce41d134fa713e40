package config

import (
	"os"
	"strings"
	"testing"

	"ringside/proxy/table"
)

// TestPoolAuth checks the settings of auth in a pool.
func TestPoolAuth(t *testing.T) {
	f := newTLSFiles(t)
	good := f.write("password", []byte("s3cret\n"))
	empty, spaced, lines, long := f.write("empty", []byte("\n")), f.write("spaced", []byte("a b\n")), f.write("lines", []byte("a\nb\n")), f.write("long", []byte(strings.Repeat("x", 252)))
	for _, c := range []struct {
		auth    string
		want    table.Login
		wrong   string
		warning string
	}{
		{auth: "off"},
		{auth: "{user: app, password_file: " + good + "}", want: table.Login{User: "app", Password: "s3cret"}, warning: "pools.main.auth: the password crosses the network unencrypted, for example to 10.0.0.1:11211"},
		{auth: "{user: app, password_file: " + good + "}, tls: on", want: table.Login{User: "app", Password: "s3cret"}},
		{auth: "{user: ap, password_file: " + long + "}, tls: on", want: table.Login{User: "ap", Password: strings.Repeat("x", 252)}},
		{auth: "{user: app, password_file: " + long + "}", wrong: "user and password have 255 bytes, and memcached compares at most 254"},
		{auth: "{user: app}", wrong: "auth.password_file is missing"},
		{auth: "{password_file: " + good + "}", wrong: "auth.user is missing"},
		{auth: "{user: 'a:b', password_file: " + good + "}", wrong: `auth.user: a user of memcached has no colon, not "a:b"`},
		{auth: "{user: app, password_file: " + empty + "}", wrong: "auth.password_file: " + empty + " is empty"},
		{auth: "{user: app, password_file: " + spaced + "}", wrong: "the password in " + spaced + " has a space"},
		{auth: "{user: app, password_file: " + lines + "}", wrong: "the password in " + lines + " has a space, a control character or a second line"},
		{auth: "{user: app, password_file: /nowhere}", wrong: "auth.password_file: open /nowhere: no such file"},
		{auth: "{sasl: on}", wrong: "known here: user, password_file"},
		{auth: "on", wrong: "must be off or a mapping of user and password_file"},
	} {
		for _, text := range []string{
			"listen: 127.0.0.1:1\npools: {main: {distribution: ketama, auth: " + c.auth + ", servers: [10.0.0.1]}}\n",
			"listen: 127.0.0.1:1\ndefaults: {auth: " + c.auth + "}\npools: {main: {distribution: ketama, servers: [10.0.0.1]}}\n",
		} {
			file, err := f.load(text)
			switch {
			case c.wrong == "" && err != nil:
				t.Errorf("%s: %v", text, err)
			case c.wrong == "":
				built, err := file.Build()
				if warning := strings.Join(file.Warnings, ""); err != nil || built.Pools[0].Login != c.want || warning != "" != (c.warning != "") || !strings.Contains(warning, c.warning) {
					t.Errorf("%s: %+v, %v, %q", text, built.Pools[0].Login, err, file.Warnings)
				}
			case err == nil || !strings.Contains(err.Error(), c.wrong) || strings.Contains(err.Error(), ":1:1: "):
				t.Errorf("%s: %v, want %q", text, err, c.wrong)
			}
		}
	}
	two := "listen: 127.0.0.1:1\ndefaults: {tls: on, auth: {user: app, password_file: " + good + "}}\nroutes: [{prefix: a, pool: a}, {pool: b}]\n" +
		"pools: {a: {distribution: ketama, servers: [10.0.0.1]}, b: {distribution: ketama, servers: [10.0.0.1, 10.0.0.2]}}\n"
	before, err := f.load(two)
	if err != nil || before.Pools[1].Login.Password != "s3cret" || len(f.reads) != 1 {
		t.Fatalf("two pools that inherit their login: %v", err)
	}
	f.write("password", []byte("other"))
	after, err := f.load(two)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(Changes(before, after), "; "); got != "pool a has another password for servers; pool b has another password for servers" {
		t.Errorf("changes: %q", got)
	}
	if with, err := after.With(nil); err != nil || with.Pools[0].Login != after.Pools[0].Login {
		t.Errorf("after a change of the servers: %v", err)
	}
	if _, err := f.load(strings.Replace(two, "{a: {", "{a: {auth: off, ", 1)); err == nil || !strings.Contains(err.Error(), "pools.a and pools.b have the server 10.0.0.1:11211 with different auth") {
		t.Errorf("one server with and without a login: %v", err)
	}
	os.Chmod(good, 0o604)
	if file, err := f.load(two); err != nil || len(file.Warnings) != 1 || !strings.Contains(file.Warnings[0], "every user of this machine can read the password in "+good) {
		t.Errorf("a password that everybody can read: %v", err)
	}
}

// TestAdminLogin checks the settings of auth_file and tls of the admin interface.
func TestAdminLogin(t *testing.T) {
	f := newTLSFiles(t)
	users := f.write("users", []byte("ops:s3cret\n"))
	cert, key := f.ca.Named(t, "admin").Write(t, f.dir, "admin")
	ca := f.write("ca.crt", f.ca.PEM)
	tls := "tls: {cert: " + cert + ", key: " + key + "}"
	for _, c := range []struct{ admin, wrong, warning string }{
		{admin: "{address: 127.0.0.1:2, auth_file: " + users + "}"},
		{admin: "{address: 0.0.0.0:2, auth_file: " + users + ", control: on, " + tls + "}"},
		{admin: "{address: 0.0.0.0:2, tls: {cert: " + cert + ", key: " + key + ", client_ca: " + ca + "}}"},
		{admin: "{address: 0.0.0.0:2, " + tls + "}", warning: "admin listens on every address"},
		{admin: "{address: 0.0.0.0:2, auth_file: " + users + "}", wrong: "admin.auth_file: passwords would cross a network unencrypted: add tls"},
		{admin: "{address: 127.0.0.1:2, auth_file: /nowhere}", wrong: "auth_file: open /nowhere: no such file"},
		{admin: "{address: 127.0.0.1:2, auth_file: " + ca + "}", wrong: "is not user:password"},
		{admin: "{address: 127.0.0.1:2, tls: {cert: " + cert + ", key: " + cert + "}}", wrong: cert + " has no usable key"},
		{admin: "{address: 127.0.0.1:2, tls: {cert: " + cert + "}}", wrong: "admin.tls.key is missing"},
		{admin: "{address: 127.0.0.1:2, tls: {handshake: 1s}}", wrong: "known here: cert, key, client_ca"},
		{admin: "{address: unix:/tmp/x, " + tls + "}", wrong: "unix:/tmp/x is a unix socket, and needs no TLS"},
	} {
		file, err := f.load("listen: 127.0.0.1:1\nadmin: " + c.admin + onePool)
		switch {
		case c.wrong == "" && err != nil:
			t.Errorf("%s: %v", c.admin, err)
		case c.wrong == "":
			if warning := strings.Join(file.Warnings, ""); warning != "" != (c.warning != "") || !strings.Contains(warning, c.warning) {
				t.Errorf("%s: %q", c.admin, warning)
			}
			if file.Admin.TLS.On && file.Admin.TLS.Material == nil || file.Admin.AuthFile != "" && file.Admin.Users == nil {
				t.Errorf("%s: files were not read", c.admin)
			}
		case err == nil || !strings.Contains(err.Error(), c.wrong):
			t.Errorf("%s: %v, want %q", c.admin, err, c.wrong)
		}
	}
}
