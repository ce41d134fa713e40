package admin

// This file has TLS of the admin interface, and the login of its clients.

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/http"
	"time"

	"ringside/proxy/secure"
	"ringside/proxy/table"
)

// Security says how clients of the admin interface connect and log in. The zero Security is no TLS and no
// login. /healthz and /readyz need neither a login nor a certificate.
type Security struct {
	TLS         *tls.Config        // of new connections; nil: no TLS
	Certificate bool               // clients need a certificate, which TLS verifies if they show one
	Users       *table.Users       // users that can log in; nil: no login is needed
	Permissions *table.Permissions // what users may do; nil: everything
	Expires     time.Time          // when the certificate of TLS expires; zero: no TLS
}

// loginDelay is the time between a login with a wrong user or password and the reply to it.
const loginDelay = time.Second

// errWrongLogin is the error for a login with a wrong user or password.
var errWrongLogin = refuse(http.StatusUnauthorized, "wrong user or password")

// checkLogin returns the error of login. After a wrong user or password, it writes a log line and waits.
func (s *Server) checkLogin(r *http.Request) error {
	err := s.login(r)
	if err != errWrongLogin {
		return err
	}
	s.log.LogLimited(slog.LevelWarn, "", "admin login rejected: wrong user or password", "client", r.RemoteAddr)
	if c, _ := r.Context().Value(connectionKey{}).(*connection); c != nil { // it may be closed meanwhile, so delayed logins keep no other client away
		c.block(1)
		defer c.block(-1)
	}
	select {
	case <-time.After(loginDelay):
	case <-r.Context().Done():
	case <-s.leaving.Done():
	}
	return err
}

// login returns an error if the client of r has not logged in, or has shown no certificate, and needs
// to. The user of a successful login is in the log line of its commands.
func (s *Server) login(r *http.Request) error {
	access := s.access.Load()
	if isProbe(r) {
		return nil
	}
	if access.Certificate && certificate(r) == nil {
		return refuse(http.StatusForbidden, "this admin interface needs a certificate: use --cert and --key")
	}
	if access.Users == nil {
		if names := names(r); names != nil && access.Permissions != nil {
			return allowed(r, access.Permissions.OfCertificate(names))
		}
		return nil
	}
	name, password, given := r.BasicAuth()
	if !given {
		return refuse(http.StatusUnauthorized, "this admin interface needs a login: use --login, or RINGSIDE_ADMIN_LOGIN")
	}
	id, known := access.Users.Know([]byte(name), []byte(password))
	if !known {
		return errWrongLogin
	}
	if access.Permissions != nil {
		return allowed(r, access.Permissions.OfUser(id))
	}
	return nil
}

// allowed returns an error if the user must not send r. Each listed user may read the metrics.
func allowed(r *http.Request, may *table.Permission) error {
	if may.Admin || may.Listed() && r.URL.Path == "/metrics" {
		return nil
	}
	return refuse(http.StatusForbidden, "not allowed: the user %s needs may: [admin] in users", may.Name)
}

// names returns the names in the certificate that the client of r has shown; nil: it has shown none.
func names(r *http.Request) []string {
	if r.TLS == nil {
		return nil
	}
	return secure.CertificateNames(r.TLS)
}

// certificate returns the verified certificate that the client of r has shown, or nil.
func certificate(r *http.Request) *x509.Certificate {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return nil
	}
	return r.TLS.PeerCertificates[0]
}

// who returns the user of r for the log: the name of the login or of the certificate, if they are
// checked. Otherwise it is what the client says.
func (s *Server) who(r *http.Request) string {
	access := s.access.Load()
	name, _, _ := r.BasicAuth()
	if c := certificate(r); c != nil && access.Users == nil {
		return c.Subject.String()
	}
	if said := r.Header.Get(operatorHeader); access.Users == nil && said != "" {
		return said
	}
	return name
}

// secureListener accepts connections with TLS while the access has TLS.
type secureListener struct {
	net.Listener
	s *Server
}

func (l secureListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if config := l.s.access.Load().TLS; config != nil && err == nil {
		c.(*connection).secret = true
		return tls.Server(c, config), nil
	}
	return c, err
}

// beneath returns the connection that limitedListener has made for c.
func beneath(c net.Conn) *connection {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	return c.(*connection)
}
