package cli

// This file contains the flags with which commands use TLS and log in to the admin interface.

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"ringside/config"
	"ringside/proxy/admin"
)

// LoginVariable is the environment variable with user:password for the admin interface.
const LoginVariable = "RINGSIDE_ADMIN_LOGIN"

// Login holds the flags --ca, --cert, --key and --login.
type Login struct{ ca, cert, key, login string }

// Add adds the flags.
func (l *Login) Add(flags *pflag.FlagSet) {
	flags.StringVar(&l.ca, "ca", "", "use TLS; the `file` has the CAs of the admin interface in PEM, or system: those of this machine")
	flags.StringVar(&l.cert, "cert", "", "a `file` with the certificate to show to the admin interface")
	flags.StringVar(&l.key, "key", "", "a `file` with the key of --cert")
	flags.StringVar(&l.login, "login", "", "a `file` with user:password for the admin interface (default: the variable "+LoginVariable+")")
}

// Client returns a client for the admin interface at an address. file is the configuration of the
// instance, or nil. If it has TLS, its certificate is the only one that is accepted, unless --ca is set. If it
// has users, the first one with a readable password logs in, unless another login is set.
func (l *Login) Client(network, address string, file *config.File) (*admin.Client, error) {
	c := admin.NewClient(network, address)
	t, err := l.tls(address, file)
	if err != nil {
		return nil, err
	}
	if t != nil {
		c.UseTLS(t)
	}
	text, from := os.Getenv(LoginVariable), LoginVariable
	switch {
	case l.login != "":
		b, err := config.ReadFile(l.login, 1<<10)
		if err != nil {
			return nil, Usage(fmt.Errorf("--login: %w", err))
		}
		text, from = string(b), "--login "+l.login
	case text == "" && file != nil && file.Admin.AuthFile != "":
		text, from = firstLogin(file.Admin.AuthFile), file.Admin.AuthFile
	}
	if text == "" {
		return c, nil
	}
	text, _, _ = strings.Cut(text, "\n")
	user, password, ok := strings.Cut(strings.TrimRight(text, "\r"), ":")
	if !ok || user == "" || password == "" {
		return nil, Usage(fmt.Errorf("%s must have user:password", from))
	}
	if t == nil && !isLocal(network, address) {
		return nil, Usage(fmt.Errorf("%s is not sent to %s without TLS: name the CA of the admin interface with --ca", from, address))
	}
	c.LogIn(user, password)
	return c, nil
}

// isLocal reports whether nothing that is sent to address leaves this machine.
func isLocal(network, address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return network == "unix" || err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// firstLogin returns the first user of an auth_file with a password that is not hashed, or "".
func firstLogin(path string) string {
	text, err := config.ReadFile(path, 1<<20)
	if err != nil {
		return ""
	}
	for line := range bytes.Lines(text) {
		if len(bytes.TrimSpace(line)) > 0 && !bytes.Contains(line, []byte(":{SSHA256}")) {
			return string(line)
		}
	}
	return ""
}

// tls returns the settings of TLS, or nil.
func (l *Login) tls(address string, file *config.File) (*tls.Config, error) {
	own := []byte(nil) // the certificate of the instance
	if file != nil && file.Admin.TLS.Material != nil {
		own = file.Admin.TLS.Material.Cert
	}
	if (l.cert == "") != (l.key == "") {
		return nil, Usage(errors.New("--cert and --key go together"))
	}
	if l.ca == "" && l.cert == "" && own == nil {
		return nil, nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, Usage(fmt.Errorf("--ca is not for a unix socket such as %s", address))
	}
	c := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if l.cert != "" {
		pair, err := tls.LoadX509KeyPair(l.cert, l.key)
		if err != nil {
			return nil, Usage(fmt.Errorf("--cert, --key: %w", err))
		}
		c.Certificates = []tls.Certificate{pair}
	}
	switch {
	case l.ca != "" && l.ca != "system":
		text, err := config.ReadFile(l.ca, 1<<20)
		if err != nil {
			return nil, Usage(fmt.Errorf("--ca: %w", err))
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, Usage(fmt.Errorf("--ca: %s has no certificate", l.ca))
		}
	case l.ca == "" && own != nil:
		pair, err := tls.X509KeyPair(own, file.Admin.TLS.Material.Key)
		if err != nil {
			return nil, err
		}
		c.InsecureSkipVerify = true // VerifyConnection verifies more: the certificate itself
		c.VerifyConnection = func(is tls.ConnectionState) error {
			if !bytes.Equal(is.PeerCertificates[0].Raw, pair.Certificate[0]) {
				return errors.New("its certificate is not that of the configuration file: reload the instance, or name its CA with --ca")
			}
			return nil
		}
	}
	return c, nil
}
