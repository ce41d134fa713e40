package admin

// The control API: servers, and a person's orders to them.

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"ringside/proxy/health"
	"ringside/proxy/stats"
	"ringside/proxy/table"
)

// Control says who may use the control API.
type Control string

// The values of Control. The empty one is ControlLoopback; any other is
// ControlOff.
const (
	ControlLoopback Control = "loopback" // clients on this machine: over loopback, or a unix socket
	ControlOn       Control = "on"       // everybody who reaches the listener
	ControlOff      Control = "off"      // nobody
)

// steering is the header that a request must have to change something.
const steering = "Ringside-Control"

// ServerState is one server of one pool as it is now.
type ServerState struct {
	Pool    string    `json:"pool"`
	Server  string    `json:"server"` // its name
	Address string    `json:"address"`
	Weight  int       `json:"weight"`
	State   string    `json:"state"`         // up, unknown, down, drained, or a phase of failover
	Since   time.Time `json:"since"`         // it is so
	Why     string    `json:"why,omitempty"` // it is not up

	Order     string `json:"order,omitempty"` // a person's: drain, down
	LoopsDown int    `json:"loops_down"`      // loops that hold it for down
	Version   string `json:"version,omitempty"`
	Waiting   int    `json:"waiting"` // requests without an answer

	// Failover is what the pool's keeper says of the server. Absent where keys
	// never move.
	Failover *Failover `json:"failover,omitempty"`
}

// Failover is what a pool's keeper says of one server.
type Failover struct {
	Phase   string `json:"phase"` // IN, LEAVING, OUT, RETURN, WARM, SETTLE
	Outages uint32 `json:"outages"`
	Suspect bool   `json:"suspect"`
	Why     string `json:"why,omitempty"`
	SinceMS int64  `json:"since_ms"` // ago
	LeaseMS int64  `json:"lease_ms"` // left
	Next    string `json:"next,omitempty"`
	NextMS  int64  `json:"next_ms,omitempty"` // until then
	Renamed bool   `json:"renamed,omitempty"` // it refuses flush_all: its keys have other names now
}

// The states of a server.
const (
	Up      = "up"
	Unknown = "unknown" // it has not answered yet, nor failed to
	Down    = "down"
	Drained = "drained" // by a person
)

// refused is an answer 4xx or 5xx.
type refused struct {
	status int
	error
}

func refuse(status int, format string, args ...any) error {
	return &refused{status, fmt.Errorf(format, args...)}
}

// control adds the control API to mux.
func (s *Server) control(mux *http.ServeMux) {
	type route struct {
		method, path string
		do           func(r *http.Request) (status int, answer any, err error)
	}
	routes := []route{
		{"GET", "/control/servers", s.getServers},
		{"POST", "/control/servers/{server}/{order}", s.postOrder},
		{"POST", "/control/tags/invalidate", s.postInvalidate},
		{"POST", "/control/reload", s.postReload},
		{"POST", "/control/hand-over", s.postHandOver},
		{"GET", "/control/faults", s.getFaults},
		{"POST", "/control/faults", s.postFault},
		{"DELETE", "/control/faults", s.deleteFaults},
		{"DELETE", "/control/faults/{id}", s.deleteFault},
	}
	methods := map[string][]string{}
	for _, rt := range routes {
		methods[rt.path] = append(methods[rt.path], rt.method)
		mux.HandleFunc(rt.method+" "+rt.path, func(w http.ResponseWriter, r *http.Request) {
			var status int
			var answer any
			err := s.maySteer(r)
			if err == nil {
				r.Body = http.MaxBytesReader(w, r.Body, maxBody)
				status, answer, err = rt.do(r)
			}
			tell(w, status, answer, err)
		})
	}
	for path, allowed := range methods {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			tell(w, 0, nil, refuse(http.StatusMethodNotAllowed, "%s takes %s", path, strings.Join(allowed, " or ")))
		})
	}
	mux.HandleFunc("/control/", func(w http.ResponseWriter, r *http.Request) {
		tell(w, 0, nil, refuse(http.StatusNotFound, "there is no such page; there are /control/servers, /control/reload and /control/faults"))
	})
}

// maxBody bounds a request's body.
const maxBody = 4 << 10

// maySteer returns nil if r may do what it asks for.
func (s *Server) maySteer(r *http.Request) error {
	switch who := s.access.Load().Control; {
	case who == ControlOn, who == ControlLoopback && onThisMachine(r):
	case who == ControlLoopback:
		return refuse(http.StatusForbidden, "control is for clients on loopback; admin.control in the configuration opens it")
	default:
		return refuse(http.StatusNotFound, "control is off: see admin.control in the configuration")
	}
	switch {
	case r.Method == "GET" || r.Method == "HEAD":
		return nil
	case r.Header.Get("Origin") != "" || r.Header.Get(steering) == "":
		return refuse(http.StatusForbidden, "a request that changes something needs the header %s: 1, and no Origin: so web pages can't make one", steering)
	}
	return nil
}

// tell writes answer as JSON, or err.
func tell(w http.ResponseWriter, status int, answer any, err error) {
	if err != nil {
		status = http.StatusInternalServerError
		if r := (*refused)(nil); errors.As(err, &r) {
			status = r.status
		}
		answer = struct {
			Error string `json:"error"`
		}{err.Error()}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.Encode(answer)
}

// serversAnswer is what GET /control/servers says.
type serversAnswer struct {
	Servers []ServerState `json:"servers"`
}

func (s *Server) getServers(*http.Request) (int, any, error) {
	list, err := s.servers()
	return http.StatusOK, serversAnswer{list}, err
}

// servers describes the servers of the table in force.
func (s *Server) servers() ([]ServerState, error) {
	p := s.heart.p
	now := time.Now()
	sum, err := p.Snapshot()
	if err != nil {
		return nil, refuse(http.StatusServiceUnavailable, "%w", err)
	}
	list := []ServerState{}
	for _, pool := range p.Table().Pools {
		for _, t := range pool.Servers {
			is := ServerState{Pool: pool.Name, Server: t.Name, Address: address(t), Weight: t.Weight, State: Unknown, Since: p.Started}
			if seen := sum.Servers[t.Network+" "+t.Address]; seen != nil {
				is.Since = now.Add(-time.Duration(seen.Age))
				is.LoopsDown, is.Version, is.Waiting = seen.Down, seen.Version, seen.Waiting
				if seen.Known {
					is.State = Up
				}
				if seen.Down > 0 {
					is.State, is.Why = Down, seen.Why
				}
			}
			if o := p.OverrideOf(pool.Name, t.Name); o.Override != health.Restore {
				is.Order, is.Since = o.Override.String(), o.Since
				is.State, is.Why = Drained, "drained by a person"
				if o.Override == health.Down {
					is.State, is.Why = Down, "taken down by a person"
				}
			}
			if m := sum.Member(pool.Name, t.Name); m != nil {
				is.keeperSays(m, now)
			}
			list = append(list, is)
		}
	}
	return list, nil
}

// keeperSays fills in what a keeper says of the server.
func (is *ServerState) keeperSays(m *stats.MemberSnapshot, now time.Time) {
	is.Failover = &Failover{
		Phase: m.Phase.String(), Outages: m.Outages(), Suspect: m.Suspect, Why: m.Why, SinceMS: m.Since.Milliseconds(),
		LeaseMS: m.Lease.Milliseconds(), Next: m.Step, NextMS: m.Due.Milliseconds(), Renamed: m.Renamed,
	}
	if m.Override != health.Restore {
		is.Order = m.Override.String()
	}
	state := strings.ToLower(m.State())
	if state == Up && (is.State == Up || is.State == Unknown) {
		return
	}
	if state != Up || is.State != Down {
		is.State, is.Why, is.Since = state, m.Why, now.Add(-m.Since)
	}
	if is.Order != "" && m.Phase == health.Out {
		is.State = Drained
	}
}

func (s *Server) postOrder(r *http.Request) (int, any, error) {
	var o health.Override
	switch name := r.PathValue("order"); name {
	case health.Drain.String():
		o = health.Drain
	case health.Down.String():
		o = health.Down
	case health.Restore.String():
		o = health.Restore
	default:
		return 0, nil, refuse(http.StatusNotFound, "%.100q is no order: it is drain, down or restore", name)
	}
	if err := onlyQuery(r, "pool"); err != nil {
		return 0, nil, err
	}
	if err := noBody(r); err != nil {
		return 0, nil, err
	}
	pool, t, err := s.find(r.URL.Query().Get("pool"), r.PathValue("server"), true)
	if err != nil {
		return 0, nil, err
	}
	if err := s.heart.p.Override(pool.Name, t.Name, o); err != nil {
		return 0, nil, refuse(http.StatusServiceUnavailable, "%w", err)
	}
	list, err := s.servers()
	if err != nil {
		return 0, nil, err
	}
	list = slices.DeleteFunc(list, func(is ServerState) bool { return is.Pool != pool.Name || is.Server != t.Name })
	return http.StatusOK, serversAnswer{list}, nil
}

// noBody refuses what would not be read.
func noBody(r *http.Request) error {
	if n, _ := r.Body.Read(make([]byte, 1)); n > 0 {
		return refuse(http.StatusBadRequest, "this has no body: the address says it all")
	}
	return nil
}

// onlyQuery refuses parameters that mean nothing: a misspelt pool must not be
// taken for none.
func onlyQuery(r *http.Request, known ...string) error {
	for name := range r.URL.Query() {
		if !slices.Contains(known, name) {
			return refuse(http.StatusBadRequest, "unknown parameter %.100q; known here: %s", name, cmp.Or(strings.Join(known, ", "), "none"))
		}
	}
	return nil
}

// find finds a server by its name or address in a pool, or in all if pool is
// empty. If several pools have it, that is an error where onePool.
func (s *Server) find(pool, server string, onePool bool) (*table.Pool, table.Target, error) {
	type place struct {
		pool   *table.Pool
		target table.Target
	}
	var found []place
	var pools, names []string
	known := false
	for _, p := range s.heart.p.Table().Pools {
		if pool != "" && p.Name != pool {
			continue
		}
		known = true
		for _, t := range p.Servers {
			if !slices.Contains(names, t.Name) {
				names = append(names, t.Name)
			}
			if (t.Name == server || t.Address == server || address(t) == server) && !slices.Contains(pools, p.Name) {
				pools = append(pools, p.Name)
				found = append(found, place{p, t})
			}
		}
	}
	switch {
	case server == "":
		return nil, table.Target{}, refuse(http.StatusBadRequest, "which server?")
	case !known:
		return nil, table.Target{}, refuse(http.StatusNotFound, "no pool %.100q", pool)
	case len(found) == 0:
		shown := names
		if len(shown) > 20 {
			shown = append(slices.Clone(names[:20]), "…")
		}
		return nil, table.Target{}, refuse(http.StatusNotFound, "no server %.100q; there are %s", server, strings.Join(shown, ", "))
	case len(found) > 1 && (onePool || slices.ContainsFunc(found, func(p place) bool {
		return p.target.Network != found[0].target.Network || p.target.Address != found[0].target.Address
	})):
		return nil, table.Target{}, refuse(http.StatusConflict, "the pools %s have a server %.100q: say which pool", strings.Join(pools, ", "), server)
	}
	return found[0].pool, found[0].target, nil
}
