package admin

// This file has the HTTP server: its paths, the access to them, and timeouts.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ringside/proxy"
	"ringside/proxy/fault"
	"ringside/proxy/link"
	"ringside/proxy/live"
)

// Options configure a Server. All fields may be zero.
type Options struct {
	Access

	// Events are the log events that the dashboard shows; nil: none.
	Events *live.Events

	// Tracer traces keys in the loops of the proxy; nil: the server creates a Tracer.
	Tracer *live.Tracer

	// FaultSet stores the faults of the control API; nil: faults are not allowed.
	FaultSet *fault.Set

	// Ready returns nil while the listeners are open and accept clients. Otherwise it returns the
	// reason, such as "starting" or "stopping", which /readyz shows. It is called from many
	// goroutines. If Ready is nil, the instance is ready when its loops answer.
	Ready func() error

	// Reload returns the state of the configuration. It is called from many goroutines. If Reload
	// is nil, the configuration was read only once, when the proxy was created.
	Reload func() live.Reload

	// Sources returns the state of the sources of servers. It is called from many goroutines. If
	// Sources is nil, there are none.
	Sources func() []live.Source

	// Locate returns where the server with this address in the configuration is now. It is called
	// from many goroutines. If Locate is nil, all servers are at their addresses.
	Locate func(address string) string

	// ReadAgain reloads the configuration, and returns when all loops use it. The error is the reason why
	// the new configuration was rejected; it is ErrNotCutOff if the caller confirms what no pool waits for.
	// ReadAgain is called from many goroutines. If it is nil, there is no configuration file.
	ReadAgain func(Consent) (Reloaded, error)

	// Config returns the configuration file that is in use, as it was read. It is called from many
	// goroutines. If Config is nil, there is no configuration file.
	Config func() ConfigAnswer

	// HandOver offers the listening sockets to the next process, and returns the path of the unix
	// socket at which that process gets them. It is called from many goroutines. If HandOver is
	// nil, sockets cannot be handed over.
	HandOver func() (HandOver, error)
}

// Access says which clients may use which part of the admin interface. It may change while a Server
// runs: see Allow.
type Access struct {
	Pprof   Who      // clients that may request Go profiles, which show memory and cost CPU time
	Control Who      // clients that may use the control API
	Faults  bool     // true if clients may set faults
	Page    Who      // clients that may see the dashboard, which shows keys
	Names   []string // names of the listener in lower case; browsers may send them as Host
	Security
}

// Server serves the admin interface of one proxy.
type Server struct {
	proxy   *proxy.Proxy
	options Options
	access  atomic.Pointer[Access]
	version string
	heart   heart
	process *prometheus.Registry
	sampler *live.Sampler
	leaving context.Context // ended by Shutdown, so that streams end
	leave   context.CancelFunc
	token   string // token that a page of the dashboard must send to change something
	http    http.Server
	conns   connections
	log     link.LimitedLog

	scrapes   scrapes
	profiling atomic.Int64 // number of profiles that are being taken
	sending   sending
	reserve   reserve
}

// Limits of the admin interface. It shares memory and file descriptors with the proxy, and must not
// use up either.
const (
	maxProfiles = 4 // profiles that are taken at the same time; one more gets status 503
	maxSending  = 8 // scrapes and profiles that are sent at the same time; one more ends the oldest one
	maxHeader   = 16 << 10
)

// New returns a server for the admin interface of p. Requests may be served when the loops of p
// exist.
func New(p *proxy.Proxy, o Options) *Server {
	if o.Reload == nil {
		o.Reload = func() live.Reload { return live.Reload{At: p.Started, Generation: 1} }
	}
	if o.Sources == nil {
		o.Sources = func() []live.Source { return nil }
	}
	if o.Locate == nil {
		o.Locate = func(address string) string { return address }
	}
	if o.Tracer == nil {
		o.Tracer = live.NewTracer(p)
	}
	s := &Server{proxy: p, options: o, version: p.Version, process: newProcess(), token: newToken(), log: link.LimitedLog{Log: p.Log}}
	s.leaving, s.leave = context.WithCancel(context.Background())
	s.heart.p = p
	s.sampler = live.NewSampler(p, live.Options{
		Reload:  o.Reload,
		Sources: o.Sources,
		CPU:     cpuUsed,
		Events:  o.Events,
	})
	s.Allow(o.Access)
	complaints := log.New(complaints{s}, "", 0)

	mux := http.NewServeMux()
	s.control(mux)
	s.page(mux)
	// The patterns with GET also serve HEAD. Requests with other methods get 405.
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.HandleFunc("GET /debug/pprof/{profile...}", s.profiles)
	mux.HandleFunc("GET /metrics", s.scrape)
	s.http = http.Server{
		Handler:                      s.withHeaders(mux),
		DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout:            5 * time.Second,
		ReadTimeout:                  10 * time.Second,
		WriteTimeout:                 30 * time.Second, // a request for a CPU profile extends this time
		IdleTimeout:                  2 * time.Minute,  // longer than the usual time between two scrapes
		MaxHeaderBytes:               maxHeader,
		ErrorLog:                     complaints,
		ConnState:                    s.bound,
		ConnContext:                  withConnection,
	}
	return s
}

// Allow changes which clients may use which part of the admin interface. The new rules apply from
// the next request on, and from the next part of a reply that takes time.
func (s *Server) Allow(a Access) {
	a.Pprof, a.Control, a.Page = cmp.Or(a.Pprof, Loopback), cmp.Or(a.Control, Loopback), cmp.Or(a.Page, Loopback)
	s.access.Store(&a)
}

// Handler returns the HTTP handler that Serve uses.
func (s *Server) Handler() http.Handler { return s.http.Handler }

// Serve answers requests on the listener l until Shutdown, and then returns nil. It may be called
// for several listeners.
func (s *Server) Serve(l net.Listener) error {
	s.sampler.Run()
	s.reserve.fill()
	if err := s.http.Serve(secureListener{limitedListener{reservedListener{l, &s.reserve, &s.conns}, &s.conns}, s}); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Shutdown closes the listeners and waits for requests in progress until ctx ends. After that it
// aborts the requests that are left, and returns ctx's error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.leave()
	s.sampler.Close()
	err := s.http.Shutdown(ctx)
	s.reserve.close()
	if err != nil {
		s.http.Close()
	}
	s.log.End()
	return err
}

// bound is called when the state of the connection c changes. It enforces the limit of connections
// and refills the reserve of file descriptors.
func (s *Server) bound(c net.Conn, state http.ConnState) {
	s.conns.changed(beneath(c), state)
	if state == http.StateClosed || state == http.StateHijacked {
		s.reserve.fill()
	}
}

// Closed returns how many connections were closed because there were too many. It also counts
// connections that served only health probes for this reason.
func (s *Server) Closed() uint64 { return s.conns.closed.Load() }

// complaints writes messages of net/http to the log. It limits their number, because clients can
// cause one with each request.
type complaints struct{ s *Server }

func (c complaints) Write(text []byte) (int, error) {
	c.s.log.LogLimited(slog.LevelWarn, "", "admin interface error", "error", strings.TrimSpace(string(text)))
	return len(text), nil
}

// withHeaders wraps the handler h. It tells browsers to use a reply only as its content type, and
// caches not to store the reply. While connections use descriptors of the reserve, every connection
// is closed after its reply.
func (s *Server) withHeaders(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handle(r, func(r *http.Request, spare bool) {
			if s.reserve.inUse() || spare {
				w.Header().Set("Connection", "close")
			}
			w.Header().Set("X-Content-Type-Options", "nosniff")
			w.Header().Set("X-Frame-Options", "DENY")
			w.Header().Set("Cache-Control", "no-store")
			if spare && !isProbe(r) {
				http.Error(w, fmt.Sprintf("%d connections are open: only /healthz and /readyz are served", maxConnections), http.StatusServiceUnavailable)
				return
			}
			if err := s.checkLogin(r); err != nil {
				w.Header().Set("WWW-Authenticate", `Basic realm="Ringside", charset="UTF-8"`)
				tell(w, 0, nil, err)
				return
			}
			h.ServeHTTP(w, r)
		})
	})
}

// index sends a list of links to clients that may not see the dashboard. The links are relative, so
// they also work behind a reverse proxy with a path prefix.
func (s *Server) index(w http.ResponseWriter, r *http.Request) {
	page := "<!DOCTYPE html>\n<title>Ringside</title>\n<h1>Ringside " + html.EscapeString(s.version) + "</h1>\n<ul>\n" +
		`<li><a href="metrics">metrics</a>: for Prometheus` + "\n" +
		`<li><a href="healthz">healthz</a>: do the event loops respond?` + "\n" +
		`<li><a href="readyz">readyz</a>: is this instance ready for clients?` + "\n"
	access := s.access.Load()
	if who := access.Pprof; who == Loopback || who == Everybody {
		page += `<li><a href="debug/pprof/">debug/pprof/</a>: Go profiles (` + string(who) + ")\n"
	}
	if who := access.Control; who == Loopback || who == Everybody {
		page += `<li><a href="control/servers">control/servers</a>, <a href="control/clients">control/clients</a>, <a href="control/faults">control/faults</a>: control (` + string(who) + ")\n"
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'")
	page += "</ul>\n"
	if err := s.mayVisit(r); err != nil {
		page += "<p>Ringside's own page is not here: " + html.EscapeString(err.Error()) + "\n"
	}
	io.WriteString(w, page)
}
