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
)

// tlsFiles has a directory with certificates.
type tlsFiles struct {
	t   *testing.T
	dir string
	ca  *testenv.CA
}

func newTLSFiles(t *testing.T) *tlsFiles { return &tlsFiles{t, t.TempDir(), testenv.NewCA(t, "ca")} }

func (f *tlsFiles) write(name string, text []byte) string {
	path := filepath.Join(f.dir, name)
	testenv.WriteFile(f.t, path, text)
	return path
}

// load loads a configuration with these lines.
func (f *tlsFiles) load(text string) (*File, error) {
	return Load(f.write("ringside.yaml", []byte(text)))
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
	plain, err := f.load("listen: 127.0.0.1:1" + onePool)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(Changes(plain, after), Changes(after, plain))
	if len(Changes(plain, after)) == 0 || len(Changes(after, plain)) == 0 {
		t.Error("tls added or removed is no change")
	}
}
