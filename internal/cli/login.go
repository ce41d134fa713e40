package cli

// This file contains the flags with which commands use TLS and log in to the admin interface.

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
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

// Login holds the flags --ca, --cert, --key and --login of one kind of connection.
type Login struct {
	ca, cert, key, login string
	prefix               string // of the names of the flags, after --
	what                 string // what accepts the connections, for messages
}

// Add adds the flags for the admin interface.
func (l *Login) Add(flags *pflag.FlagSet) {
	l.add(flags, "", "the admin interface", " (default: the variable "+LoginVariable+")")
}

// AddTo adds the flags for the listener of a flag --to, with the prefix "to-".
func (l *Login) AddTo(flags *pflag.FlagSet) {
	l.add(flags, "to-", "the listener", " (default: with -c the first user of its auth_file that has no hashed password)")
}

func (l *Login) add(flags *pflag.FlagSet, prefix, what, usual string) {
	l.prefix, l.what = prefix, what
	flags.StringVar(&l.ca, prefix+"ca", "", "use TLS; the `file` has the CAs of "+what+" in PEM, or system: those of this machine")
	flags.StringVar(&l.cert, prefix+"cert", "", "a `file` with the certificate to show to "+what)
	flags.StringVar(&l.key, prefix+"key", "", "a `file` with the key of --"+prefix+"cert")
	flags.StringVar(&l.login, prefix+"login", "", "a `file` with user:password for "+what+usual)
}

// Client returns a client for the admin interface at an address. file is the configuration of the
// instance, or nil. If it has TLS, its certificate is the only one that is accepted, unless --ca is set. If it
// has users, the first one with a readable password logs in, unless another login is set.
func (l *Login) Client(network, address string, file *config.File) (*admin.Client, error) {
	c := admin.NewClient(network, address)
	var own config.ListenerTLS
	users := ""
	if file != nil {
		own, users = file.Admin.TLS, file.Admin.AuthFile
	}
	t, user, password, err := l.Settings(network, address, own, users, LoginVariable)
	if err != nil {
		return nil, err
	}
	if t != nil {
		c.UseTLS(t)
	}
	if user != "" {
		c.LogIn(user, password)
	}
	return c, nil
}

// Settings returns the TLS and the login for a connection to an address; nil and "" if there is none. own is the
// TLS that the configuration of the instance has there, and users its auth_file; both may be empty. variable is
// an environment variable with user:password, or "".
func (l *Login) Settings(network, address string, own config.ListenerTLS, users, variable string) (t *tls.Config, user, password string, err error) {
	if t, err = l.tls(address, own); err != nil {
		return nil, "", "", err
	}
	text, from := os.Getenv(variable), variable
	switch {
	case l.login != "":
		b, err := config.ReadFile(l.login, 1<<10)
		if err != nil {
			return nil, "", "", Usage(fmt.Errorf("--%slogin: %w", l.prefix, err))
		}
		text, from = string(b), "--"+l.prefix+"login "+l.login
	case text == "" && users != "":
		text, from = firstLogin(users), users
	}
	if text == "" {
		return t, "", "", nil
	}
	text, _, _ = strings.Cut(text, "\n")
	user, password, ok := strings.Cut(strings.TrimRight(text, "\r"), ":")
	if !ok || user == "" || password == "" {
		return nil, "", "", Usage(fmt.Errorf("%s must have user:password", from))
	}
	if t == nil && !isLocal(network, address) {
		return nil, "", "", Usage(fmt.Errorf("%s is not sent to %s without TLS: name the CA of %s with --%sca", from, address, cmp.Or(l.what, "the admin interface"), l.prefix))
	}
	return t, user, password, nil
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

// tls returns the settings of TLS, or nil. own is the TLS of the instance, if it is known.
func (l *Login) tls(address string, own config.ListenerTLS) (*tls.Config, error) {
	if (l.cert == "") != (l.key == "") {
		return nil, Usage(fmt.Errorf("--%[1]scert and --%[1]skey go together", l.prefix))
	}
	if l.ca == "" && l.cert == "" && own.Material == nil {
		return nil, nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, Usage(fmt.Errorf("--%sca is not for a unix socket such as %s", l.prefix, address))
	}
	c := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if l.cert != "" {
		pair, err := tls.LoadX509KeyPair(l.cert, l.key)
		if err != nil {
			return nil, Usage(fmt.Errorf("--%[1]scert, --%[1]skey: %[2]w", l.prefix, err))
		}
		c.Certificates = []tls.Certificate{pair}
	}
	switch {
	case l.ca != "" && l.ca != "system":
		text, err := config.ReadFile(l.ca, 1<<20)
		if err != nil {
			return nil, Usage(fmt.Errorf("--%sca: %w", l.prefix, err))
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, Usage(fmt.Errorf("--%sca: %s has no certificate", l.prefix, l.ca))
		}
	case l.ca == "" && own.Material != nil:
		pair, err := tls.X509KeyPair(own.Material.Cert, own.Material.Key)
		if err != nil {
			return nil, err
		}
		c.InsecureSkipVerify = true // VerifyConnection verifies more: the certificate itself
		c.VerifyConnection = func(is tls.ConnectionState) error {
			if !bytes.Equal(is.PeerCertificates[0].Raw, pair.Certificate[0]) {
				return fmt.Errorf("its certificate is not that of the configuration file: reload the instance, or name its CA with --%sca", l.prefix)
			}
			return nil
		}
	}
	return c, nil
}
