package admin

// This file implements the control API for faults.

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"ringside/proxy/event"
	"ringside/proxy/fault"
	"ringside/proxy/live"
	"ringside/proxy/table"
)

// FaultState describes one fault of the control API. A request for a new fault may set Server,
// Pool, Kind, Delay, Percent and For.
type FaultState struct {
	ID      int        `json:"id,omitempty"`
	Server  string     `json:"server"` // name or address of the server; a reply has the name if a pool has a server with that address
	Pool    string     `json:"pool,omitempty"`
	Address string     `json:"address,omitempty"`
	Kind    fault.Kind `json:"kind"`
	Delay   Duration   `json:"delay,omitempty"`
	Percent int        `json:"percent,omitempty"`
	For     Duration   `json:"for,omitempty"` // duration of the fault; 0: until the fault is lifted
	Since   *time.Time `json:"since,omitempty"`
}

// Duration is a duration that JSON has as text in the format of Go, such as "1.5s".
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}

// faultsAnswer is the reply to requests for /control/faults, with all faults that are set.
type faultsAnswer struct {
	Allowed bool         `json:"allowed"`
	Faults  []FaultState `json:"faults"`
}

func (s *Server) faults() faultsAnswer {
	a := faultsAnswer{Allowed: s.mayFault() == nil, Faults: []FaultState{}}
	for _, f := range s.options.FaultSet.List() {
		a.Faults = append(a.Faults, s.faultState(f))
	}
	return a
}

func (s *Server) faultState(f fault.Fault) FaultState {
	t := table.Target{Name: f.Address, Network: f.Network, Address: f.Address}
	is := FaultState{ID: f.ID, Server: live.Address(t), Address: live.Address(t), Kind: f.Kind,
		Delay: Duration(f.Delay), Percent: f.Percent, For: Duration(f.For), Since: &f.Since}
	for _, p := range s.proxy.Table().Pools {
		for _, t := range p.Servers {
			if t.Network == f.Network && t.Address == f.Address {
				is.Server = t.Name
			}
		}
	}
	return is
}

func (s *Server) getFaults(*http.Request) (int, any, error) {
	return http.StatusOK, s.faults(), nil
}

func (s *Server) mayFault() error {
	if s.options.FaultSet == nil || !s.access.Load().Faults {
		return refuse(http.StatusForbidden, "faults are not allowed here: set admin.allow_faults to true in its file, and ringside reload")
	}
	return nil
}

func (s *Server) postFault(r *http.Request) (int, any, error) {
	var want FaultState
	if err := readJSON(r, &want); err != nil {
		return 0, nil, err
	}
	if want.ID != 0 || want.Address != "" || want.Since != nil {
		return 0, nil, refuse(http.StatusBadRequest, "id, address and since are not for requests; say server, and pool, kind, delay, percent, for as needed")
	}
	_, t, err := s.find(want.Pool, want.Server, false)
	if err != nil {
		return 0, nil, err
	}
	f, err := s.options.FaultSet.Add(fault.Fault{Network: t.Network, Address: t.Address, Kind: want.Kind,
		Delay: time.Duration(want.Delay), Percent: want.Percent, For: time.Duration(want.For)})
	if err != nil {
		return 0, nil, refuse(http.StatusBadRequest, "%w", err)
	}
	s.log.LogOrder(slog.LevelWarn, t.Name, "fault injected", event.FaultInjected.Attr(), "server", t.Name, "address", t.Address, "kind", string(f.Kind), "delay", f.Delay.String(), "percent", f.Percent, "for", f.For.String())
	return http.StatusCreated, s.faultState(f), nil
}

// readJSON decodes the body of r into `to`. The body must be one JSON object without unknown names.
func readJSON(r *http.Request, to any) error {
	if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); strings.TrimSpace(kind) != "application/json" {
		return refuse(http.StatusUnsupportedMediaType, "the body must be of Content-Type application/json")
	}
	return decodeJSON(r, to)
}

// decodeJSON reads the body of r, which must be one JSON object.
func decodeJSON(r *http.Request, to any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(to)
	if err == nil {
		if _, more := d.Token(); more == io.EOF {
			return nil
		}
		err = errors.New("one object is enough")
	}
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return refuse(http.StatusRequestEntityTooLarge, "the body is larger than %d bytes", large.Limit)
	}
	return refuse(http.StatusBadRequest, "the body is invalid: %.200s", strings.TrimPrefix(err.Error(), "json: "))
}

func (s *Server) deleteFaults(*http.Request) (int, any, error) {
	if n := s.options.FaultSet.LiftAll(); n > 0 {
		s.log.LogOrder(slog.LevelInfo, "", "all faults removed", "faults", n)
	}
	return http.StatusOK, s.faults(), nil
}

func (s *Server) deleteFault(r *http.Request) (int, any, error) {
	id, err := strconv.Atoi(r.PathValue("id"))
	if err != nil || !s.options.FaultSet.Lift(id) {
		return 0, nil, refuse(http.StatusNotFound, "no fault %.100q: it has ended, or never existed", r.PathValue("id"))
	}
	s.log.LogOrder(slog.LevelInfo, "", "fault removed", "id", id)
	return http.StatusOK, s.faults(), nil
}
