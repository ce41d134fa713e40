package admin

// This file implements the control API for servers and orders for them, for reloads, and for the
// handover of listening sockets to the next process.

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"ringside/proxy"
	"ringside/proxy/health"
	"ringside/proxy/live"
	"ringside/proxy/serverlist"
	"ringside/proxy/table"
)

// steering is the name of the header that a request must have to change something.
const steering = "Ringside-Control"

// refused is an error with the HTTP status of the reply, 4xx or 5xx.
type refused struct {
	status int
	error
}

// Unwrap returns the error without the HTTP status.
func (r *refused) Unwrap() error { return r.error }

func refuse(status int, format string, args ...any) error {
	return &refused{status, fmt.Errorf(format, args...)}
}

func (s *Server) control(mux *http.ServeMux) {
	type route struct {
		method, path string
		takes        func(r *http.Request, known ...string) error // checks whether the request is allowed, its parameters and its body
		known        []string                                     // names of the parameters
		do           func(r *http.Request) (status int, answer any, err error)
	}
	anything := func(*http.Request, ...string) error { return nil }
	faults := func(*http.Request, ...string) error { return s.mayFault() }
	routes := []route{
		{"GET", "/control/servers", anything, nil, s.getServers},
		{"GET", "/control/clients", onlyQuery, []string{"sort", "limit"}, s.getClients},
		{"POST", "/control/servers/{server}/{order}", addressOnly, []string{"pool", "force"}, s.postOrder},
		{"POST", invalidatePath, onlyQuery, nil, s.postInvalidate},
		{"POST", "/control/reload", addressOnly, []string{"accept", "dead"}, s.postReload},
		{"GET", "/control/config", onlyQuery, nil, s.getConfig},
		{"POST", "/control/hand-over", addressOnly, nil, s.postHandOver},
		{"GET", "/control/faults", anything, nil, s.getFaults},
		{"POST", "/control/faults", faults, nil, s.postFault},
		{"DELETE", "/control/faults", faults, nil, s.deleteFaults},
		{"DELETE", "/control/faults/{id}", faults, nil, s.deleteFault},
	}
	methods := map[string][]string{}
	for _, rt := range routes {
		methods[rt.path] = append(methods[rt.path], rt.method)
		mux.HandleFunc(rt.method+" "+rt.path, func(w http.ResponseWriter, r *http.Request) {
			var status int
			var answer any
			err := s.maySteer(r)
			permitted := err == nil
			if permitted {
				r.Body = http.MaxBytesReader(w, r.Body, maxBody)
				if r.Method == "POST" {
					http.NewResponseController(w).SetWriteDeadline(time.Now().Add(steerLife))
				}
				if err = rt.takes(r, rt.known...); err == nil {
					status, answer, err = rt.do(r)
				}
			}
			if permitted && r.Method != "GET" && rt.path != invalidatePath {
				s.logCommand(r, err)
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
		tell(w, 0, nil, refuse(http.StatusNotFound, "there is no such page; there are /control/servers, /control/clients, /control/tags/invalidate, /control/reload, /control/config and /control/faults"))
	})
}

// invalidatePath is the path to invalidate tags. Applications use it, so it is no operator command.
const invalidatePath = "/control/tags/invalidate"

// operatorHeader is the name of the header with the name of the user that has run a command. It is
// what the client says, and not checked.
const operatorHeader = "Ringside-Operator"

// logCommand writes an operator command to the log, with its origin: the address of the client, and the
// name of the user, from the header of ringside's commands or from a reverse proxy with HTTP
// authentication.
func (s *Server) logCommand(r *http.Request, err error) {
	user := s.who(r)
	args := []any{"command", fmt.Sprintf("%s %.200s", r.Method, r.URL.RequestURI()), "address", cmp.Or(strings.Trim(r.RemoteAddr, "@"), "unix socket"), "user", fmt.Sprintf("%.100s", cmp.Or(user, "unknown"))}
	if err != nil {
		args = append(args, "error", err)
	}
	const what = "operator command"
	if no := (*refused)(nil); errors.As(err, &no) && no.status < http.StatusInternalServerError {
		s.log.LogLimited(slog.LevelInfo, r.Pattern+" rejected", what, args...) // without the path, which can be anything
		return
	}
	s.log.LogOrder(slog.LevelInfo, r.Pattern+" "+r.PathValue("server")+" "+r.PathValue("order"), what, args...)
}

// maxBody limits the size of the body of a request, in bytes.
const maxBody = 4 << 10

// steerLife is the longest time until an order has its reply. Client waits as long while the instance answers probes. A reload may
// take a while: if keys are about to move, it waits for pings and for the deadlines of commands.
const steerLife = 2 * time.Minute

// mayControl returns nil if the client that has sent r may use the control API.
func (s *Server) mayControl(r *http.Request) error {
	return admit(s.access.Load().Control, s.local(r), "control is for clients on loopback; admin.control in the configuration opens it", "control is off: see admin.control in the configuration")
}

// maySteer returns nil if the client may send the request r of the control API. A request that
// changes something has stricter conditions than a GET.
func (s *Server) maySteer(r *http.Request) error {
	if err := s.mayControl(r); err != nil {
		return err
	}
	if r.Method == "GET" || r.Method == "HEAD" {
		return refuseOtherSites(r)
	}
	return s.checkOrigin(r)
}

// sayUnsure returns the error for an order that may or may not have been executed. The error must
// not look like a rejection, because the operator would then repeat the order.
func sayUnsure(why error) error {
	return refuse(http.StatusGatewayTimeout, "it is not known whether this was done: check before you retry (ringside server list, the log): %w", why)
}

// tell sends the reply as JSON: the error if err is not nil, and otherwise answer with the given
// HTTP status.
func tell(w http.ResponseWriter, status int, answer any, err error) {
	if err != nil {
		if errors.Is(err, proxy.ErrUnsure) {
			err = sayUnsure(err)
		}
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

// serversAnswer is the reply to POST /control/servers/NAME/ORDER.
type serversAnswer struct {
	Servers []live.ServerState `json:"servers"`
}

// allServers is the reply to GET /control/servers.
type allServers struct {
	Servers []live.ServerState `json:"servers"`
	*live.Overall
}

func (s *Server) getServers(*http.Request) (int, any, error) {
	list, is, err := s.sampler.Servers()
	if err != nil {
		return 0, nil, refuse(http.StatusServiceUnavailable, "%w", err)
	}
	return http.StatusOK, allServers{s.located(list), is}, nil
}

// servers returns the state of all servers that the configuration in use has.
func (s *Server) servers() ([]live.ServerState, error) {
	sum, err := s.proxy.Snapshot()
	if err != nil {
		return nil, refuse(http.StatusServiceUnavailable, "%w", err)
	}
	return s.located(live.States(s.proxy, sum)), nil
}

// located sets where the servers in list are, if they are not at their addresses.
func (s *Server) located(list []live.ServerState) []live.ServerState {
	for i := range list {
		if at := s.options.Locate(list[i].Address); at != list[i].Address {
			list[i].At = at
		}
	}
	return list
}

func (s *Server) postOrder(r *http.Request) (int, any, error) {
	orders, name := []health.Override{health.Drain, health.Down, health.Restore}, r.PathValue("order")
	i := slices.IndexFunc(orders, func(o health.Override) bool { return o.String() == name })
	if i < 0 {
		return 0, nil, refuse(http.StatusNotFound, "%.100q is not an order: it is drain, down or restore", name)
	}
	o := orders[i]
	force := r.URL.Query().Get("force")
	switch {
	case force != "" && force != "true":
		return 0, nil, refuse(http.StatusBadRequest, "force is true, or not there")
	case force != "" && o == health.Restore:
		return 0, nil, refuse(http.StatusBadRequest, "force is for drain and down: leave it out for %s", o)
	}
	pool, t, err := s.find(r.URL.Query().Get("pool"), r.PathValue("server"), true)
	if err != nil {
		return 0, nil, err
	}
	s.proxy.Ordering.Lock()
	defer s.proxy.Ordering.Unlock()
	if o != health.Restore && force == "" {
		switch is, err := s.server(pool, t); {
		case err != nil:
			return 0, nil, err
		case len(is) > 0 && keepsLastCopy(&is[0]):
			return 0, nil, refuse(http.StatusConflict, "%s may have the only usable replica of keys of pool %s, because %s: wait until they have their replicas, or lose these keys: ringside server %s --force, or force=true",
				t.Name, pool.Name, cmp.Or(is[0].Replicas.Lacking, "no other server has one"), o)
		}
	}
	if err := s.proxy.Override(pool.Name, t.Name, o); err != nil {
		return 0, nil, refuse(http.StatusServiceUnavailable, "%w", err)
	}
	list, err := s.server(pool, t)
	if err != nil {
		err = refuse(http.StatusGatewayTimeout, "the order to %s %s was accepted, but the state of the server is not known: see ringside server list: %w", o, t.Name, err)
	}
	return http.StatusOK, serversAnswer{list}, err
}

// server returns the state of the server t in one pool, as a list with one element.
func (s *Server) server(pool *table.Pool, t table.Target) ([]live.ServerState, error) {
	list, err := s.servers()
	return slices.DeleteFunc(list, func(is live.ServerState) bool { return is.Pool != pool.Name || is.Server != t.Name }), err
}

// keepsLastCopy reports whether the server is up and may have the last replica of a key.
func keepsLastCopy(is *live.ServerState) bool {
	return is.State == live.Up && is.Replicas != nil && is.Replicas.Left == 0
}

// noPool returns the error for an unknown pool, with the names of all pools.
func (s *Server) noPool(name string) error {
	var have []string
	for _, p := range s.proxy.Table().Pools {
		have = append(have, p.Name)
	}
	return refuse(http.StatusNotFound, "no pool %.100q; there are %s", name, listed(have))
}

// listed joins names to a text. It omits names after the twentieth.
func listed(names []string) string {
	if len(names) > 20 {
		names = append(slices.Clone(names[:20]), "…")
	}
	return strings.Join(names, ", ")
}

// addressOnly returns an error if the request has a body, which would be ignored, or an unknown
// parameter.
func addressOnly(r *http.Request, known ...string) error {
	if err := onlyQuery(r, known...); err != nil {
		return err
	}
	if n, _ := r.Body.Read(make([]byte, 1)); n > 0 {
		return refuse(http.StatusBadRequest, "this request must have no body: its address has all parameters")
	}
	return nil
}

// onlyQuery returns an error if the request has an unknown parameter. Without it, a misspelled
// parameter pool would be ignored.
func onlyQuery(r *http.Request, known ...string) error {
	for name := range r.URL.Query() {
		if !slices.Contains(known, name) {
			return refuse(http.StatusBadRequest, "unknown parameter %.100q; known here: %s", name, cmp.Or(strings.Join(known, ", "), "none"))
		}
	}
	return nil
}

// find returns the server with the given name or address in the given pool, or in any pool if pool
// is empty. If several pools have the server, find returns an error if onePool is set or their
// addresses differ.
func (s *Server) find(pool, server string, onePool bool) (*table.Pool, table.Target, error) {
	type place struct {
		pool   *table.Pool
		target table.Target
	}
	var found []place
	var pools, names []string
	var news string // name of the pool that the server joins; empty: none
	known := false
	for _, p := range s.proxy.Table().Pools {
		if pool != "" && p.Name != pool {
			continue
		}
		known = true
		named := func(t table.Target) bool { return t.Name == server || t.Address == server || live.Address(t) == server }
		if slices.ContainsFunc(p.Newcomers(), named) {
			news = p.Name
		}
		for _, t := range p.Servers {
			if !slices.Contains(names, t.Name) {
				names = append(names, t.Name)
			}
			if named(t) && !slices.Contains(pools, p.Name) {
				pools = append(pools, p.Name)
				found = append(found, place{p, t})
			}
		}
	}
	switch {
	case server == "":
		return nil, table.Target{}, refuse(http.StatusBadRequest, "which server?")
	case !known:
		return nil, table.Target{}, s.noPool(pool)
	case len(found) == 0 && news != "":
		return nil, table.Target{}, refuse(http.StatusConflict, "server %.100q of pool %s is new: it takes no orders and faults before the change of the servers has ended; to keep it out, take the change back", server, news)
	case len(found) == 0:
		return nil, table.Target{}, refuse(http.StatusNotFound, "no server %.100q; there are %s", server, listed(names))
	case len(found) > 1 && (onePool || slices.ContainsFunc(found, func(p place) bool {
		return p.target.Network != found[0].target.Network || p.target.Address != found[0].target.Address
	})):
		return nil, table.Target{}, refuse(http.StatusConflict, "the pools %s have a server %.100q: say which pool", strings.Join(pools, ", "), server)
	}
	return found[0].pool, found[0].target, nil
}

// Consent is what the operator who requests a reload confirms.
type Consent struct {
	Moves bool // more keys may move than max_move allows, and answers of sources may change more servers than max_change
	Dead  bool // the servers in use that do not answer are dead: see health.View.DeclareDead
}

// ErrNotCutOff is the error of a reload with Consent.Dead if no pool waits for that.
var ErrNotCutOff = errors.New("--servers-dead is not needed: no change of servers waits because no server in use answers; ringside server list shows what a change waits for")

// Reloaded is the result of a reload.
type Reloaded struct {
	File       string   `json:"file"`
	Generation uint64   `json:"generation"` // number of the configuration that is in use now
	Changes    []string `json:"changes"`    // changes that are in use now, one sentence each
	NextStart  []string `json:"next_start"` // changes in the configuration file that are used only after a restart

	Resize []string `json:"resize,omitempty"` // for each pool with other servers, what happens to keys with one copy, one sentence each

	Dead []string `json:"servers_dead,omitempty"` // pools that change their servers now, because the operator has confirmed that the servers in use are dead

	Moves bool `json:"keys_move,omitempty"` // true if keys with several replicas will move to other servers, as soon as all instances have the new configuration
}

// ErrStopping is the error that Options.ReadAgain and Options.HandOver return when the process is
// ending.
var ErrStopping = errors.New("this instance is stopping")

// unlessStopping returns err with the given HTTP status, or with another one if the process is
// ending. It returns nil if err is nil.
func unlessStopping(err error, status int) error {
	switch {
	case errors.Is(err, ErrStopping):
		status = http.StatusServiceUnavailable
	case err == nil:
		return nil
	}
	return refuse(status, "%w", err)
}

func (s *Server) postReload(r *http.Request) (int, any, error) {
	query := r.URL.Query()
	for _, name := range []string{"accept", "dead"} {
		if is := query.Get(name); is != "" && is != "true" {
			return 0, nil, refuse(http.StatusBadRequest, "%s is true, or not there", name)
		}
	}
	if s.options.ReadAgain == nil {
		return 0, nil, refuse(http.StatusConflict, "this instance has no configuration file that could be read again")
	}
	done, err := s.options.ReadAgain(Consent{Moves: query.Get("accept") != "", Dead: query.Get("dead") != ""})
	if errors.Is(err, ErrNotCutOff) {
		return 0, nil, refuse(http.StatusConflict, "%w", err)
	}
	return http.StatusOK, done, unlessStopping(err, http.StatusUnprocessableEntity)
}

// ConfigAnswer is the reply to GET /control/config.
type ConfigAnswer struct {
	File string `json:"file"` // path of the configuration file
	Text string `json:"text"` // text of the file when it was loaded, with its variables in place of their values

	Variables map[string]string `json:"variables,omitempty"` // environment variables that the file uses; the values of files are not shown
	Sources   []SourceServers   `json:"sources,omitempty"`   // the servers that its sources have now
	Lists     []ListInUse       `json:"lists,omitempty"`     // the server lists of the pools whose servers change
}

// ListInUse is the server list of a pool whose servers change: the list in use or, when its keys have moved, the next one.
type ListInUse struct {
	Pool string `json:"pool"`
	Text string `json:"text"` // see table.Pool.Text
}

// SourceServers are the servers of a source that are in force in a pool.
type SourceServers struct {
	Pool      string              `json:"pool"`
	Source    string              `json:"source"`
	MaxChange float64             `json:"max_change"` // the setting max_change of the source, in percent
	Servers   []serverlist.Server `json:"servers"`
	Problem   string              `json:"problem,omitempty"` // why the last answer of the source is not in force; empty: it is
}

func (s *Server) getConfig(*http.Request) (int, any, error) {
	if s.options.Config == nil {
		return 0, nil, refuse(http.StatusConflict, "this instance has no configuration file")
	}
	return http.StatusOK, s.options.Config(), nil
}

// HandOver is the reply to POST /control/hand-over.
type HandOver struct {
	Socket  string        `json:"socket"`            // path of the unix socket where the next process gets the listening sockets
	Sources []SavedSource `json:"sources,omitempty"` // the lists of its sources, which the next process continues

	// Lists has the hash of the server list (table.List) of each pool whose instances change their servers together. A
	// process with another list must not take over: it would not know the list in force.
	Lists map[string]uint32 `json:"lists,omitempty"`
}

// SavedSource is a source of a pool, as the next process continues it.
type SavedSource struct {
	Pool    string           `json:"pool"`
	Source  string           `json:"source"`
	List    serverlist.Saved `json:"list"`
	Version uint64           `json:"version,omitempty"` // of elasticache: the number of the list that counts; 0: none yet
}

func (s *Server) postHandOver(*http.Request) (int, any, error) {
	if s.options.HandOver == nil {
		return 0, nil, refuse(http.StatusConflict, "this instance can't be taken over: it has no configuration file")
	}
	answer, err := s.options.HandOver()
	return http.StatusOK, answer, unlessStopping(err, http.StatusConflict)
}

// Invalidate is the body of a request to invalidate tags: their names, and where.
type Invalidate struct {
	Names []string `json:"names"`
	Pool  string   `json:"pool,omitempty"` // the tags are invalidated only on the servers of this pool; empty: on the servers of all pools
}

// Invalidated is the result of an invalidation of tags on one server.
type Invalidated struct {
	Pool    string `json:"pool"`
	Server  string `json:"server"`
	Done    bool   `json:"done"`
	Skipped bool   `json:"skipped,omitempty"` // the server is ejected, and it will be flushed before it is read again, so the invalidation is not needed
	Why     string `json:"why,omitempty"`     // why the invalidation failed; empty: it succeeded
}

func (s *Server) postInvalidate(r *http.Request) (int, any, error) {
	var what Invalidate
	if err := decodeJSON(r, &what); err != nil {
		return 0, nil, err
	}
	if len(what.Names) == 0 {
		return 0, nil, refuse(http.StatusBadRequest, `the body must be {"names": ["NAME"]}, and may have a "pool"`)
	}
	if err := table.CheckTagNames(what.Names); err != nil {
		return 0, nil, refuse(http.StatusBadRequest, "%w", err)
	}
	if _, err := s.pool(what.Pool, false); err != nil {
		return 0, nil, err
	}
	answers, err := s.proxy.InvalidateTags(what.Names, what.Pool)
	if err != nil {
		return 0, nil, refuse(http.StatusConflict, "%w", err)
	}
	list := []Invalidated{}
	for _, a := range answers {
		list = append(list, Invalidated{Pool: a.Pool, Server: a.Server, Done: a.Why == "", Skipped: a.Skipped, Why: a.Why})
	}
	return http.StatusOK, struct {
		Servers []Invalidated `json:"servers"`
	}{list}, nil
}
