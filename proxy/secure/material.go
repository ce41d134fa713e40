package secure

// This file checks certificates, keys and CAs, and makes settings of crypto/tls of them.

import (
	"cmp"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"ringside/proxy/table"
)

// File is a file with a certificate, a key or CAs.
type File struct {
	Path string
	Text []byte // PEM
}

// Use is what a certificate is for.
type Use struct {
	key  x509.ExtKeyUsage
	name string
}

// The uses of certificates.
var (
	ForServer = Use{x509.ExtKeyUsageServerAuth, "a server"}
	ForClient = Use{x509.ExtKeyUsageClientAuth, "a client"}
)

// CheckPair checks a certificate with its chain, and its key, at the time now. It returns when the first
// certificate of the chain expires.
func CheckPair(cert, key File, use Use, now time.Time) (expires time.Time, err error) {
	chain, err := certificates(cert)
	if err != nil {
		return expires, err
	}
	leaf := chain[0]
	for _, c := range chain {
		if err := current(cert, c, now); err != nil {
			return expires, err
		}
		if expires.IsZero() || c.NotAfter.Before(expires) {
			expires = c.NotAfter
		}
	}
	if u := leaf.ExtKeyUsage; len(u)+len(leaf.UnknownExtKeyUsage) > 0 && !slices.Contains(u, use.key) && !slices.Contains(u, x509.ExtKeyUsageAny) {
		return expires, fmt.Errorf("the certificate %s in %s is not for %s: its extended key usage does not allow that", name(leaf), cert.Path, use.name)
	}
	if _, err := tls.X509KeyPair(cert.Text, key.Text); err != nil {
		why := strings.TrimPrefix(err.Error(), "tls: ")
		if strings.Contains(why, "does not match") {
			return expires, fmt.Errorf("the key in %s is not that of the certificate %s in %s, which is valid until %s", key.Path, name(leaf), cert.Path, date(leaf.NotAfter))
		}
		if block, _ := pem.Decode(key.Text); block != nil && strings.Contains(block.Type, "ENCRYPTED") || block != nil && block.Headers["DEK-Info"] != "" {
			return expires, fmt.Errorf("the key in %s has a password: write it without one", key.Path)
		}
		return expires, fmt.Errorf("%s has no usable key: %s", key.Path, why)
	}
	return expires, nil
}

// CheckCA checks a file of CAs at the time now. It must have at least one certificate that is valid.
func CheckCA(ca File, now time.Time) error {
	list, err := certificates(ca)
	if err != nil {
		return err
	}
	for _, c := range list {
		if err = current(ca, c, now); err == nil {
			return nil
		}
	}
	return err
}

// certificates returns the certificates of a file, which has at least one.
func certificates(f File) (list []*x509.Certificate, err error) {
	rest := f.Text
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: certificate %d can't be read: %w", f.Path, len(list)+1, err)
		}
		list = append(list, c)
	}
	if list == nil {
		return nil, fmt.Errorf("%s has no certificate (a PEM block that begins with -----BEGIN CERTIFICATE-----)", f.Path)
	}
	return list, nil
}

// current returns an error if the certificate c is not valid at the time now.
func current(f File, c *x509.Certificate, now time.Time) error {
	switch {
	case now.After(c.NotAfter):
		return fmt.Errorf("the certificate %s in %s has expired on %s", name(c), f.Path, date(c.NotAfter))
	case now.Before(c.NotBefore):
		return fmt.Errorf("the certificate %s in %s is not valid before %s", name(c), f.Path, date(c.NotBefore))
	}
	return nil
}

func date(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }

// name returns the name of a certificate, for people.
func name(c *x509.Certificate) string {
	switch {
	case c.Subject.CommonName != "":
		return fmt.Sprintf("%q", c.Subject.CommonName)
	case len(c.DNSNames) > 0:
		return fmt.Sprintf("%q", c.DNSNames[0])
	case len(c.URIs) > 0:
		return fmt.Sprintf("%q", c.URIs[0])
	case len(c.IPAddresses) > 0:
		return fmt.Sprintf("%q", c.IPAddresses[0])
	}
	return "number " + c.SerialNumber.String()
}

// Listener is the TLS of a listener.
type Listener struct {
	config  *tls.Config
	tickets *Tickets
	mu      sync.Mutex
	keys    int // Tickets.count when config got its keys
}

// NewListener makes the TLS of a listener with the settings t. Its session tickets are encrypted with
// the keys of tickets.
func NewListener(t *table.ListenerTLS, tickets *Tickets) (*Listener, error) {
	c, err := ListenerConfig(t)
	if err != nil {
		return nil, err
	}
	return &Listener{config: c, tickets: tickets}, nil
}

// ListenerConfig returns the settings of crypto/tls for the clients of a listener.
func ListenerConfig(t *table.ListenerTLS) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{
		Certificates: []tls.Certificate{pair},
		MinVersion:   tls.VersionTLS12,
		// One record carries what one Write has, up to 16 KiB. The records of 1.4 kB with which
		// crypto/tls begins otherwise would cost more CPU time, and save nothing for values that are
		// needed completely.
		DynamicRecordSizingDisabled: true,
	}
	if len(t.ClientCA) > 0 {
		c.ClientCAs = x509.NewCertPool()
		if !c.ClientCAs.AppendCertsFromPEM(t.ClientCA) {
			return nil, errors.New("client_ca has no certificate")
		}
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return c, nil
}

// Conn returns the TLS connection of a client that has connected.
func (l *Listener) Conn() *Conn {
	keys, count := l.tickets.current(time.Now())
	l.mu.Lock()
	if l.keys != count {
		l.keys = count
		l.config.SetSessionTicketKeys(keys)
	}
	l.mu.Unlock()
	return Server(l.config)
}

// Servers makes the TLS connections of one engine to servers. It keeps their sessions, so that the
// next connection resumes one.
type Servers struct{ configs map[serverConfig]*tls.Config }

type serverConfig struct {
	security table.Security
	address  string
}

// mostConfigs is the number of settings that are kept. There are more only after many reloads.
const mostConfigs = 4096

// Conn returns the TLS connection to a server, with these settings. address is from Verified.
func (s *Servers) Conn(security table.Security, address string) (*Conn, error) {
	key := serverConfig{security, address}
	c := s.configs[key]
	if c == nil {
		var err error
		if c, err = ServerConfig(security, address); err != nil {
			return nil, err
		}
		if s.configs == nil || len(s.configs) >= mostConfigs {
			s.configs = map[serverConfig]*tls.Config{}
		}
		s.configs[key] = c
	}
	return Client(c), nil
}

// Verified returns the address with the host that the certificate of a server must have. address is that
// in the table, and at is where the server is. The port 0 in the table means that a source of servers
// has only a name for the server, which is no host.
func Verified(address, at string) string {
	if strings.HasSuffix(address, ":0") {
		return at
	}
	return address
}

// ServerConfig returns the settings of crypto/tls for connections to a server. address is from Verified.
func ServerConfig(security table.Security, address string) (*tls.Config, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	t := security.Settings()
	c := &tls.Config{
		ServerName: cmp.Or(t.Name, host), MinVersion: tls.VersionTLS12, DynamicRecordSizingDisabled: true,
		ClientSessionCache: tls.NewLRUClientSessionCache(1),
	}
	if t.Cert != "" {
		pair, err := tls.X509KeyPair([]byte(t.Cert), []byte(t.Key))
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{pair}
	}
	if t.CA != "" {
		c.RootCAs = x509.NewCertPool()
		c.RootCAs.AppendCertsFromPEM([]byte(t.CA))
	}
	if c.InsecureSkipVerify = t.Verify != table.VerifyFull; t.Verify == table.VerifyCA {
		roots := c.RootCAs
		c.VerifyConnection = func(is tls.ConnectionState) error { // also called for a resumed session
			o := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
			for _, more := range is.PeerCertificates[1:] {
				o.Intermediates.AddCert(more)
			}
			_, err := is.PeerCertificates[0].Verify(o)
			return err
		}
	}
	return c, nil
}

// Tickets are the keys that encrypt session tickets. All listeners of a process share them, and the
// process that takes over gets them, so that clients resume their sessions. The first key
// encrypts, and both decrypt.
type Tickets struct {
	mu    sync.Mutex
	keys  [][32]byte
	made  time.Time // when the first key was made
	count int       // number of times that keys has changed
}

// ticketsFor is how long a key encrypts tickets. Afterwards it decrypts them for the same time.
const ticketsFor = 24 * time.Hour

// Text returns the key that encrypts tickets, for the process that takes over. It is empty if no client
// has used TLS, or t is nil.
func (t *Tickets) Text() string {
	if t == nil {
		return ""
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.keys) == 0 {
		return ""
	}
	return hex.EncodeToString(t.keys[0][:])
}

// Inherit makes clients resume the sessions of another process. text is what Text has returned in that
// process.
func (t *Tickets) Inherit(text string) {
	key, err := hex.DecodeString(text)
	if err != nil || len(key) != 32 {
		return
	}
	t.current(time.Now()) // makes a key of this process, which encrypts
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keys = [][32]byte{t.keys[0], [32]byte(key)}
	t.count++
}

// current returns the keys at the time now, and their number.
func (t *Tickets) current(now time.Time) (keys [][32]byte, count int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.keys) == 0 || now.Sub(t.made) > ticketsFor {
		var key [32]byte
		rand.Read(key[:]) // never fails
		t.keys = append([][32]byte{key}, t.keys[:min(1, len(t.keys))]...)
		t.made = now
		t.count++
	}
	return t.keys, t.count
}
