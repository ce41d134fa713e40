package config

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ringside/internal/testenv"
	"ringside/proxy/table"
)

// tlsFiles has a directory with certificates.
type tlsFiles struct {
	t     *testing.T
	dir   string
	ca    *testenv.CA
	reads []string // the files that the last configuration named, once for each time that they were read
}

func newTLSFiles(t *testing.T) *tlsFiles {
	return &tlsFiles{t: t, dir: t.TempDir(), ca: testenv.NewCA(t, "ca")}
}

func (f *tlsFiles) write(name string, text []byte) string {
	path := filepath.Join(f.dir, name)
	testenv.WriteFile(f.t, path, text)
	return path
}

// load loads a configuration with these lines.
func (f *tlsFiles) load(text string) (*File, error) {
	f.reads = nil
	from := Environment()
	from.Reads = func(path string) { f.reads = append(f.reads, path) }
	return Load(f.write("ringside.yaml", []byte(text)), from)
}

const onePool = "\npools: {main: {distribution: ketama, servers: [10.0.0.1]}}\n"

// TestListenerTLS checks the settings of listen.tls, and that bad certificates are rejected with names
// and dates.
func TestListenerTLS(t *testing.T) {
	f := newTLSFiles(t)
	good := f.ca.Named(t, "cache.example")
	cert, key := good.Write(t, f.dir, "good")
	ca := f.write("ca.crt", f.ca.PEM)
	past, future := time.Date(2020, 1, 2, 3, 4, 0, 0, time.UTC), time.Date(2120, 1, 2, 3, 4, 0, 0, time.UTC)
	issue := func(name string, c *x509.Certificate) (string, string) {
		c.Subject = pkix.Name{CommonName: name}
		return f.ca.Issue(t, c).Write(t, f.dir, name)
	}
	expired, expiredKey := issue("expired", &x509.Certificate{NotBefore: past.Add(-time.Hour), NotAfter: past})
	early, earlyKey := issue("early", &x509.Certificate{NotBefore: future, NotAfter: future.Add(time.Hour)})
	client, clientKey := issue("client", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	garbage := f.write("garbage.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}))
	empty := f.write("empty.crt", nil)
	locked := f.write("locked.key", pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("x")}))
	chain := f.write("chain.crt", append(append([]byte(nil), good.CertPEM...), must2(os.ReadFile(expired))...))
	for _, c := range []struct{ listen, want string }{
		{fmt.Sprintf("{address: 0.0.0.0:1, tls: {cert: %s, key: %s, client_ca: %s, handshake: 3s}}", cert, key, ca), ""},
		{fmt.Sprintf("{address: 0.0.0.0:1, auth_file: %s, tls: {cert: %s, key: %s}}", f.write("users", []byte("a:b\n")), cert, key), ""},
		{fmt.Sprintf("{address: 127.0.0.1:1, tls: {cert: %s, key: %s}}", cert, expiredKey),
			"the key in " + expiredKey + ` is not that of the certificate "cache.example" in ` + cert + ", which is valid until "},
		{fmt.Sprintf("{address: 127.0.0.1:1, tls: {cert: %s, key: %s}}", expired, expiredKey), `the certificate "expired" in ` + expired + " has expired on 2020-01-02 03:04 UTC"},
		{fmt.Sprintf("{address: 127.0.0.1:1, tls: {cert: %s, key: %s}}", early, earlyKey), `the certificate "early" in ` + early + " is not valid before 2120-01-02 03:04 UTC"},
		{fmt.Sprintf("{address: 127.0.0.1:1, tls: {cert: %s, key: %s}}", client, clientKey), `the certificate "client" in ` + client + " is not for a server"},
		{fmt.Sprintf("{address: 127.0.0.1:1, tls: {cert: %s, key: %s}}", chain, key), `the certificate "expired" in ` + chain + " has expired"},
		{fmt.Sprintf("{address: 127.0.0.1:1, tls: {cert: %s, key: %s}}", garbage, key), garbage + ": certificate 1 can't be read"},
		{fmt.Sprintf("{address: 127.0.0.1:1, tls: {cert: %s, key: %s}}", empty, key), empty + " has no certificate"},
		{fmt.Sprintf("{address: 127.0.0.1:1, tls: {cert: %s, key: %s}}", cert, cert), cert + " has no usable key"},
		{fmt.Sprintf("{address: 127.0.0.1:1, tls: {cert: %s, key: %s}}", cert, locked), locked + " has a password"},
		{fmt.Sprintf("{address: 127.0.0.1:1, tls: {cert: %s, key: %s, client_ca: %s}}", cert, key, key), "tls.client_ca: " + key + " has no certificate"},
		{fmt.Sprintf("{address: 127.0.0.1:1, tls: {cert: %s, key: %s, client_ca: %s}}", cert, key, expired), `tls.client_ca: the certificate "expired" in ` + expired + " has expired"},
		{fmt.Sprintf("{address: 127.0.0.1:1, tls: {cert: /nowhere, key: %s}}", key), "tls.cert: open /nowhere: no such file"},
		{fmt.Sprintf("{address: 127.0.0.1:1, tls: {cert: %s, key: %s}}", f.dir, key), "tls.cert: read " + f.dir},
		{fmt.Sprintf("{address: unix:/tmp/x, tls: {cert: %s, key: %s}}", cert, key), "unix:/tmp/x is a unix socket, and needs no TLS"},
		{fmt.Sprintf("{address: 127.0.0.1:1, allow_plaintext: true, tls: {cert: %s, key: %s}}", cert, key), "allow_plaintext has no effect beside tls"},
		{"{address: 127.0.0.1:1, tls: {cert: x}}", "listen.tls.key is missing"},
		{"{address: 127.0.0.1:1, tls: on}", "listen.tls must be a mapping of cert, key, client_ca or handshake"},
		{"tls://10.0.0.1:11211", "for TLS with clients, write listen: {address: \"10.0.0.1:11211\", tls: {cert"},
		{"tls://10.0.0.1:11211", "for TLS with servers, write pools: {NAME: {tls: on, servers: [\"10.0.0.1:11211\"]}}"},
	} {
		file, err := f.load("listen: " + c.listen + onePool)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.listen, err)
		case c.want == "":
			if built, err := file.Build(); err != nil || built.Listeners[0].TLS == nil || built.Listeners[0].TLS.Expires.IsZero() || len(file.Warnings) > 0 {
				t.Errorf("%s: %+v, %v, %q", c.listen, built.Listeners[0].TLS, err, file.Warnings)
			}
		case err == nil || !strings.Contains(err.Error(), c.want):
			t.Errorf("%s: %v, want %q", c.listen, err, c.want)
		}
	}
	os.Chmod(key, 0o604)
	file, err := f.load(fmt.Sprintf("listen: {address: 127.0.0.1:1, tls: {cert: %s, key: %s}}", cert, key) + onePool)
	if err != nil || len(file.Warnings) != 1 || !strings.Contains(file.Warnings[0], "can read the key in "+key) {
		t.Errorf("a key that everybody can read: %v, %v", file, err)
	}
	os.Chmod(key, 0o602)
	if _, err := f.load(fmt.Sprintf("listen: {address: 127.0.0.1:1, tls: {cert: %s, key: %s}}", cert, key) + onePool); err == nil || !strings.Contains(err.Error(), "may change "+key) {
		t.Errorf("a key that everybody can change: %v", err)
	}
}

// TestPoolTLS checks the settings of tls in a pool, and that bad certificates are rejected with names and
// dates.
func TestPoolTLS(t *testing.T) {
	f := newTLSFiles(t)
	cert, key := f.ca.Named(t, "app").Write(t, f.dir, "app")
	_, otherKey := f.ca.Named(t, "other").Write(t, f.dir, "other")
	ca := f.write("ca.crt", f.ca.PEM)
	past, future := time.Date(2020, 1, 2, 3, 4, 0, 0, time.UTC), time.Date(2120, 1, 2, 3, 4, 0, 0, time.UTC)
	issue := func(name string, c *x509.Certificate) (string, string) {
		c.Subject = pkix.Name{CommonName: name}
		return f.ca.Issue(t, c).Write(t, f.dir, name)
	}
	expired, expiredKey := issue("expired", &x509.Certificate{NotBefore: past.Add(-time.Hour), NotAfter: past})
	early, earlyKey := issue("early", &x509.Certificate{NotBefore: future, NotAfter: future.Add(time.Hour)})
	server, serverKey := issue("server", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	full := table.Secure(table.ServerTLS{})
	for _, c := range []struct {
		tls     string
		want    table.Security
		wrong   string
		warning string
	}{
		{tls: "on", want: full},
		{tls: "{}", want: full},
		{tls: "off"},
		{tls: "{ca: system, name: auto, verify: full}", want: full},
		{tls: "{ca: " + ca + ", verify: ca}", want: table.Secure(table.ServerTLS{CA: string(f.ca.PEM), Verify: table.VerifyCA})},
		{tls: "{name: cache.example}", want: table.Secure(table.ServerTLS{Name: "cache.example"})},
		{tls: "{verify: off}", want: table.Secure(table.ServerTLS{Verify: table.VerifyOff}), warning: "tls.verify is off"},
		{tls: "{cert: " + cert + "}", wrong: "tls needs both cert and key"},
		{tls: "{key: " + key + "}", wrong: "tls needs both cert and key"},
		{tls: "{verify: off, ca: " + ca + "}", wrong: "tls.ca has no effect with verify: off"},
		{tls: "{verify: ca, name: a}", wrong: "tls.name has no effect with verify: ca"},
		{tls: "{cert: " + cert + ", key: " + otherKey + "}", wrong: "the key in " + otherKey + ` is not that of the certificate "app" in ` + cert + ", which is valid until "},
		{tls: "{cert: " + expired + ", key: " + expiredKey + "}", wrong: `the certificate "expired" in ` + expired + " has expired on 2020-01-02 03:04 UTC"},
		{tls: "{cert: " + early + ", key: " + earlyKey + "}", wrong: `the certificate "early" in ` + early + " is not valid before 2120-01-02 03:04 UTC"},
		{tls: "{cert: " + server + ", key: " + serverKey + "}", wrong: `the certificate "server" in ` + server + " is not for a client"},
		{tls: "{ca: " + key + "}", wrong: "tls.ca: " + key + " has no certificate"},
		{tls: "{ca: " + expired + "}", wrong: `tls.ca: the certificate "expired" in ` + expired + " has expired"},
		{tls: "{ca: /nowhere}", wrong: "tls.ca: open /nowhere: no such file"},
	} {
		for _, text := range []string{
			"listen: 127.0.0.1:1\npools: {main: {distribution: ketama, tls: " + c.tls + ", servers: [10.0.0.1]}}\n",
			"listen: 127.0.0.1:1\ndefaults: {tls: " + c.tls + "}\npools: {main: {distribution: ketama, servers: [10.0.0.1]}}\n",
		} {
			file, err := f.load(text)
			switch {
			case c.wrong == "" && err != nil:
				t.Errorf("%s: %v", text, err)
			case c.wrong == "":
				built, err := file.Build()
				if err != nil || built.Pools[0].TLS != c.want || strings.Join(file.Warnings, "") != "" != (c.warning != "") || c.warning != "" && !strings.Contains(file.Warnings[0], c.warning) {
					t.Errorf("%s: %+v, %v, %q", text, built.Pools[0].TLS, err, file.Warnings)
				}
			case err == nil || !strings.Contains(err.Error(), c.wrong) || strings.Contains(err.Error(), ":1:1: "):
				t.Errorf("%s: %v, want %q", text, err, c.wrong)
			}
		}
	}
	file, err := f.load("listen: 127.0.0.1:1\ndefaults: {tls: {ca: " + ca + ", cert: " + cert + ", key: " + key + "}}\nroutes: [{prefix: a, pool: a}, {pool: b}]\n" +
		"pools: {a: {distribution: ketama, servers: [10.0.0.1]}, b: {distribution: ketama, servers: [10.0.0.1, 10.0.0.2]}}\n")
	if err != nil || file.Pools[0].Security != file.Pools[1].Security || file.Pools[0].Security.Settings().Expires < time.Now().Unix() || len(f.reads) != 3 {
		t.Errorf("two pools that inherit their TLS: %v", err)
	}
	for text, want := range map[string]string{
		"pools: {a: {distribution: ketama, tls: on, servers: [\"unix:/tmp/x\"]}}":                                                                                     "pools.a.tls: unix:/tmp/x is a unix socket, and needs no TLS",
		"routes: [{prefix: a, pool: a}, {pool: b}]\npools: {a: {distribution: ketama, tls: on, servers: [10.0.0.1]}, b: {distribution: ketama, servers: [10.0.0.1]}}": "pools.a and pools.b have the server 10.0.0.1:11211 with different tls",
	} {
		if _, err := f.load("listen: 127.0.0.1:1\n" + text + "\n"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func must2(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// TestCertificateDifferences checks what a reload says about certificates in the same files.
func TestCertificateDifferences(t *testing.T) {
	f := newTLSFiles(t)
	cert, key := f.ca.Named(t, "a").Write(t, f.dir, "a")
	text := fmt.Sprintf("listen: {address: 127.0.0.1:1, tls: {cert: %s, key: %s, client_ca: %s}}", cert, key, f.write("ca", f.ca.PEM)) + onePool
	before, err := f.load(text)
	if err != nil {
		t.Fatal(err)
	}
	f.ca.Named(t, "a").Write(t, f.dir, "a")
	f.write("ca", testenv.NewCA(t, "other").PEM)
	after, err := f.load(text)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(Changes(before, after), "; ")
	if !strings.HasPrefix(got, "listener 127.0.0.1:1 has another certificate, valid until 20") || !strings.HasSuffix(got, "; listener 127.0.0.1:1 has other CAs of clients") {
		t.Errorf("changes: %q", got)
	}
	if got := Changes(after, after); len(got) > 0 {
		t.Errorf("changes without a change: %q", got)
	}
	servers := "listen: 127.0.0.1:1\npools: {main: {distribution: ketama, tls: {ca: " + f.write("ca", f.ca.PEM) + ", cert: " + cert + ", key: " + key + "}, servers: [10.0.0.1]}}\n"
	if before, err = f.load(servers); err != nil {
		t.Fatal(err)
	}
	f.ca.Named(t, "a").Write(t, f.dir, "a")
	f.write("ca", testenv.NewCA(t, "other").PEM)
	if after, err = f.load(servers); err != nil {
		t.Fatal(err)
	}
	got = strings.Join(Changes(before, after), "; ")
	if !strings.HasPrefix(got, "pool main shows servers another certificate, valid until 20") || !strings.HasSuffix(got, "; pool main has other CAs of servers") {
		t.Errorf("changes: %q", got)
	}
	plain, err := f.load("listen: 127.0.0.1:1" + onePool)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(Changes(plain, after), Changes(after, plain))
	if len(Changes(plain, after)) == 0 || len(Changes(after, plain)) == 0 {
		t.Error("tls added or removed is no change")
	}
}
