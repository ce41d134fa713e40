package admin

// Who may look at the page and what is behind it, and which orders of a browser
// count.

import (
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Who says who may use a part of the admin interface.
type Who string

// The values of Who. The empty one is Loopback; any other is Nobody.
const (
	Loopback  Who = "loopback" // clients on this machine: over loopback, or a unix socket
	Everybody Who = "on"       // who reaches the listener
	Nobody    Who = "off"
)

// newToken is what a page of this process must show to change something.
func newToken() string {
	b := make([]byte, 16)
	rand.Read(b)
	return base64.RawURLEncoding.EncodeToString(b)
}

// mayLook returns nil if r may see what the page shows. Another site's page may not:
// it could not read the answer, but it could make many ask for one.
func (s *Server) mayLook(r *http.Request) error {
	if err := refuseOtherSites(r); err != nil {
		return err
	}
	return s.mayVisit(r)
}

// refuseOtherSites returns nil unless a browser sends r for another site's page. Older
// browsers don't send Sec-Fetch-Site; they send Origin with what scripts ask for.
func refuseOtherSites(r *http.Request) error {
	site, origin := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Origin")
	at, err := url.Parse(origin)
	if site != "" && site != "same-origin" && site != "none" || origin != "" && (err != nil || !strings.EqualFold(at.Host, r.Host)) {
		return refuse(http.StatusForbidden, "another site's page asks for this: what it shows is for Ringside's own page")
	}
	return nil
}

// mayVisit returns nil if r may have the page itself, which holds no secret: anybody
// may link to it.
func (s *Server) mayVisit(r *http.Request) error {
	switch who := s.access.Load().Page; {
	case who == Everybody && !s.knownHost(r), who == Loopback && onLoopback(r) && !s.knownHost(r):
		return refuse(http.StatusMisdirectedRequest, unknownHost)
	case who == Everybody, who == Loopback && s.local(r):
		return nil
	case who == Loopback:
		return refuse(http.StatusForbidden, "the page is for clients on loopback; admin.page in the configuration opens it")
	}
	return refuse(http.StatusNotFound, "the page is off: see admin.page in the configuration")
}

const unknownHost = "this Ringside is not known by the name in your request: add it to admin.names, or use its address"

// local reports whether r comes from this machine, by an address or a name that
// admin.names has.
func (s *Server) local(r *http.Request) bool {
	return onThisMachine(r) || onLoopback(r) && slices.Contains(s.access.Load().Names, strings.ToLower(hostName(r.Host)))
}

// knownHost reports whether r names this Ringside by an address, or by a name that
// nobody else could have made point here: a web page that makes its own name do so
// (DNS rebinding) can't be told from Ringside's by anything else.
func (s *Server) knownHost(r *http.Request) bool {
	name := strings.ToLower(hostName(r.Host))
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	return name == "" || name == "localhost" || slices.Contains(s.access.Load().Names, name)
}

// checkOrigin returns nil if r does not come from a browser, or if it comes from the
// page that this process has given to it. The scheme of its origin does not count:
// one port serves one scheme, and a reverse proxy may have changed it.
func (s *Server) checkOrigin(r *http.Request) error {
	shown := r.Header.Get(steering)
	origin := r.Header.Get("Origin")
	site := r.Header.Get("Sec-Fetch-Site")
	if origin == "" && site == "" && shown != "" {
		return nil
	}
	at, err := url.Parse(origin)
	switch {
	case shown == "", origin == "", err != nil, at.Host == "", !strings.EqualFold(at.Host, r.Host), site != "" && site != "same-origin":
		return refuse(http.StatusForbidden, "a request that changes something needs the header %s: 1, and no Origin: so web pages can't make one", steering)
	case !s.knownHost(r):
		return refuse(http.StatusMisdirectedRequest, unknownHost)
	case shown != s.token:
		return refuse(http.StatusForbidden, "this page belongs to a Ringside that has ended: load it again")
	}
	return nil
}
