package admin

// This file decides which clients may use the dashboard and its API, and checks orders that a
// browser sends.

import (
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Who says which clients may use one part of the admin interface.
type Who string

// The values of Who. An empty Who means Loopback. Any other value that is not listed here means
// Nobody.
const (
	Loopback  Who = "loopback" // clients on this machine, which connect over loopback or a unix socket
	Everybody Who = "on"       // all clients that can reach the listener
	Nobody    Who = "off"
)

// newToken returns a random token. A page of the dashboard must send the token of this process with
// each request that changes something.
func newToken() string {
	b := make([]byte, 16)
	rand.Read(b)
	return base64.RawURLEncoding.EncodeToString(b)
}

// stillAllowed returns nil if the client of r may still have what r requests, by the login and by may. A
// request that takes time checks it before each part of the reply, because a reload can change the access.
func (s *Server) stillAllowed(r *http.Request, may func(*http.Request) error) error {
	if err := s.login(r); err != nil {
		return err
	}
	return may(r)
}

// mayLook returns nil if the client may read the data of the dashboard. A page of another site must
// not: it could not read the reply, but it could cause many requests.
func (s *Server) mayLook(r *http.Request) error {
	if err := refuseOtherSites(r); err != nil {
		return err
	}
	return s.mayVisit(r)
}

// refuseOtherSites returns an error if a page of another site has made a browser send r. Older
// browsers don't send Sec-Fetch-Site, but they send Origin with requests of scripts.
func refuseOtherSites(r *http.Request) error {
	site, origin := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Origin")
	at, err := url.Parse(origin)
	if site != "" && site != "same-origin" && site != "none" || origin != "" && (err != nil || !strings.EqualFold(at.Host, r.Host)) {
		return refuse(http.StatusForbidden, "rejected: a page of another site sent this request, and only Ringside's own page may")
	}
	return nil
}

// mayVisit returns nil if the client may load the dashboard's page. The page itself has no secrets,
// so other sites may link to it.
func (s *Server) mayVisit(r *http.Request) error {
	switch who := s.access.Load().Page; {
	case who == Everybody && !s.knownHost(r), who == Loopback && onLoopback(r) && !s.knownHost(r):
		return refuse(http.StatusMisdirectedRequest, unknownHost)
	default:
		return admit(who, s.local(r), "the page is for clients on loopback; admin.page in the configuration opens it", "the page is off: see admin.page in the configuration")
	}
}

// admit checks a client, which is on this machine (local) or not. here is the error if only clients on this machine are allowed, and off the
// error if none is.
func admit(who Who, local bool, here, off string) error {
	switch {
	case who == Everybody, who == Loopback && local:
		return nil
	case who == Loopback:
		return refuse(http.StatusForbidden, "%s", here)
	}
	return refuse(http.StatusNotFound, "%s", off)
}

const unknownHost = "this instance is not known by the name in your request: add it to admin.names, or use its address"

// local reports whether r comes from this machine. Its Host must be an address, localhost, or a
// name of admin.names.
func (s *Server) local(r *http.Request) bool {
	return onThisMachine(r) || onLoopback(r) && slices.Contains(s.access.Load().Names, strings.ToLower(hostName(r.Host)))
}

// knownHost reports whether the Host of r is an address, localhost, or one of the configured names.
// The owner of a web page can make another name resolve to this address (DNS rebinding). The
// browser then sends that name as Host.
func (s *Server) knownHost(r *http.Request) bool {
	name := strings.ToLower(hostName(r.Host))
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	return name == "" || name == "localhost" || slices.Contains(s.access.Load().Names, name)
}

// checkOrigin returns nil if r does not come from a browser, or if it comes from the dashboard of
// this process. Only the host of the origin is compared. The scheme is ignored, because a reverse
// proxy may have changed it.
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
		return refuse(http.StatusForbidden, "this page belongs to an instance that has ended: load it again")
	}
	return nil
}
