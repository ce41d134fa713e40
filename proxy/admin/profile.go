package admin

// This file serves Go profiles to clients that may have them.

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strings"
)

func (s *Server) profiles(w http.ResponseWriter, r *http.Request) {
	if err := s.mayProfile(r); err != nil {
		status := http.StatusForbidden
		if is := (*refused)(nil); errors.As(err, &is) {
			status = is.status
		}
		http.Error(w, err.Error(), status)
		return
	}
	if s.profiling.Add(1) > maxProfiles { // each profile in progress uses CPU time and memory
		s.profiling.Add(-1)
		http.Error(w, fmt.Sprintf("%d profiles are being taken: try again later", maxProfiles), http.StatusServiceUnavailable)
		return
	}
	profile := map[string]http.HandlerFunc{"cmdline": pprof.Cmdline, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace}[r.PathValue("profile")]
	if profile == nil {
		profile = pprof.Index
	}
	w = &allowedWriter{w, func() error { return s.stillAllowed(r, s.mayProfile) }}
	if r.PathValue("profile") == "trace" { // a trace is sent while it is taken, because it may be large
		defer s.profiling.Add(-1)
		profile(w, r)
		return
	}
	reply := &collected{ResponseWriter: w}
	func() {
		defer s.profiling.Add(-1)
		profile(reply, r)
	}()
	defer s.sending.begin(w)()
	_, _ = w.Write(reply.body.Bytes()) // an error means that the client has disconnected
}

// mayProfile returns nil if the client may request r, a profile.
func (s *Server) mayProfile(r *http.Request) error {
	if err := admit(s.access.Load().Pprof, onThisMachine(r), "profiles are for clients on loopback; admin.pprof in the configuration opens them", "404 page not found"); err != nil {
		return err
	}
	return refuseOtherSites(r) // a page of another site cannot read the profile, but the profile would cost CPU time
}

// allowedWriter is a ResponseWriter that writes nothing after the client has lost its access.
type allowedWriter struct {
	http.ResponseWriter
	allowed func() error
}

func (w *allowedWriter) Write(b []byte) (int, error) {
	if err := w.allowed(); err != nil {
		return 0, err
	}
	return w.ResponseWriter.Write(b)
}

func (w *allowedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// onThisMachine reports whether a client on this machine has sent r on purpose. The address of the
// client is not enough. A web page of another site can have a name that resolves to 127.0.0.1, and
// it can make a browser on this machine send requests here. Only the Host of such a request shows
// that.
func onThisMachine(r *http.Request) bool {
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && local.Network() == "unix" {
		return true
	}
	if !onLoopback(r) {
		return false
	}
	if r.Host == "" || hostName(r.Host) == "localhost" {
		return true
	}
	host, err := netip.ParseAddr(hostName(r.Host))
	return err == nil && host.Unmap().IsLoopback()
}

func onLoopback(r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && peer.Addr().Unmap().IsLoopback()
}

// hostName returns the host in hostport. The result has neither the port nor the brackets of an
// IPv6 address.
func hostName(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return strings.Trim(hostport, "[]")
}
