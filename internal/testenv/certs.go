package testenv

// This file makes certificates for tests of TLS.

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// CA is a certificate authority for tests.
type CA struct {
	PEM  []byte
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCA returns a CA with the given name.
func NewCA(t testing.TB, name string) *CA {
	t.Helper()
	return new(CA).Sub(t, name, true)
}

// Sub returns a certificate of ca that signs others. If it is no authority, what it signs is not valid.
func (ca *CA) Sub(t testing.TB, name string, authority bool) *CA {
	t.Helper()
	pair := ca.Issue(t, &x509.Certificate{IsCA: authority, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, Subject: pkix.Name{CommonName: name}})
	block, _ := pem.Decode(pair.CertPEM)
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return &CA{PEM: pair.CertPEM, cert: parsed, key: pair.key}
}

// Pair is a certificate with its key.
type Pair struct {
	CertPEM, KeyPEM []byte
	key             *ecdsa.PrivateKey
}

// Issue fills in what template leaves open, and signs it. A certificate without times is valid for an
// hour.
func (ca *CA) Issue(t testing.TB, template *x509.Certificate) *Pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if template.NotBefore.IsZero() {
		template.NotBefore = time.Now().Add(-time.Hour)
	}
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	template.SerialNumber, _ = rand.Int(rand.Reader, big.NewInt(1<<62))
	parent, signer := ca.cert, ca.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return &Pair{pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), key}
}

// Named returns a certificate for these names. A name is a host, an IP address or a URI.
func (ca *CA) Named(t testing.TB, names ...string) *Pair {
	t.Helper()
	c := &x509.Certificate{Subject: pkix.Name{CommonName: names[0]}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else if u, err := url.Parse(name); err == nil && strings.Contains(name, "://") {
			c.URIs = append(c.URIs, u)
		} else {
			c.DNSNames = append(c.DNSNames, name)
		}
	}
	return ca.Issue(t, c)
}

// Pool returns the certificates of ca for a client or a server that trusts it.
func (ca *CA) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(ca.cert)
	return p
}

// Client returns the settings of a client that trusts ca.
func (ca *CA) Client() *tls.Config {
	return &tls.Config{RootCAs: ca.Pool(), ServerName: "127.0.0.1"}
}

// Certificate returns p for crypto/tls.
func (p *Pair) Certificate(t testing.TB) tls.Certificate {
	t.Helper()
	c, err := tls.X509KeyPair(p.CertPEM, p.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// DER returns the certificate in DER.
func (p *Pair) DER(t testing.TB) []byte {
	t.Helper()
	block, _ := pem.Decode(p.CertPEM)
	if block == nil {
		t.Fatal("no certificate")
	}
	return block.Bytes
}

// Write writes the certificate and the key to the files name.crt and name.key in the directory dir, and
// returns their paths.
func (p *Pair) Write(t testing.TB, dir, name string) (cert, key string) {
	t.Helper()
	cert, key = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	WriteFile(t, cert, p.CertPEM)
	WriteFile(t, key, p.KeyPEM)
	return cert, key
}

// WriteFile writes a file that only this user can read.
func WriteFile(t testing.TB, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
