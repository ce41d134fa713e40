package admin

// This file implements the control API for clients. It lists the clients and what each of them
// waits for.

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"ringside/proxy/live"
	"ringside/proxy/stats"
)

// ClientState is the current state of one client.
type ClientState struct {
	ID       uint64     `json:"id"` // number of the client; the first client since the start has the lowest number
	Address  string     `json:"address"`
	Listener string     `json:"listener"` // address of the listener to which the client has connected
	AgeMS    int64      `json:"age_ms"`
	IdleMS   int64      `json:"idle_ms"` // time since the client last sent something, in milliseconds
	Requests uint64     `json:"requests"`
	In       uint64     `json:"bytes_in"`  // number of bytes received from the client
	Out      uint64     `json:"bytes_out"` // number of bytes sent to the client
	InFlight int        `json:"in_flight"` // number of commands of the client without a reply
	Held     int64      `json:"held"`      // memory that Ringside uses for the client, in bytes
	Waits    *WaitState `json:"waits,omitempty"`
}

// WaitState is what a client waits for.
type WaitState struct {
	Phase  string `json:"phase"` // phase of the command: login, command, client, connect, send, queue, answer, value, phase or order
	Server string `json:"server,omitempty"`
	MS     int64  `json:"ms,omitempty"` // how long the client has been waiting in this phase, in milliseconds
	Why    string `json:"why"`
}

// ClientsAnswer is the reply to GET /control/clients.
type ClientsAnswer struct {
	All     int           `json:"all"`     // number of all connected clients
	Clients []ClientState `json:"clients"` // the first clients in the requested order; at most as many as requested
}

// Limits of the number of clients in a reply. The states of a hundred thousand clients would be
// tens of megabytes.
const (
	DefaultClients = 50
	MaxClients     = 10_000
)

// ClientOrders returns the orders in which a list of clients can be sorted: the valid values of the
// parameter sort.
func ClientOrders() []string { return slices.Sorted(maps.Keys(stats.ClientOrders)) }

func (s *Server) getClients(r *http.Request) (int, any, error) {
	q := r.URL.Query()
	by, ok := stats.ClientOrders["held"], true
	if name := q.Get("sort"); name != "" {
		if by, ok = stats.ClientOrders[name]; !ok {
			return 0, nil, refuse(http.StatusBadRequest, "clients can't be sorted by %.100q: want one of %s", name, strings.Join(ClientOrders(), ", "))
		}
	}
	most := DefaultClients
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > MaxClients {
			return 0, nil, refuse(http.StatusBadRequest, "the limit %.100q: it is a number from 1 to %d", text, MaxClients)
		}
		most = n
	}
	list, err := s.proxy.Clients(by, most)
	if err != nil {
		return 0, nil, refuse(http.StatusServiceUnavailable, "%w", err)
	}
	answer := ClientsAnswer{All: list.All, Clients: []ClientState{}}
	for _, c := range list.List {
		answer.Clients = append(answer.Clients, clientState(&c))
	}
	return http.StatusOK, answer, nil
}

func clientState(c *stats.ClientSnapshot) ClientState {
	is := ClientState{
		ID: c.ID, Address: c.Address, AgeMS: c.Age.Milliseconds(), IdleMS: c.Idle.Milliseconds(), Requests: c.Requests,
		In: c.In, Out: c.Out, InFlight: c.InFlight, Held: c.Held,
	}
	if network, at, ok := strings.Cut(c.Listener, " "); ok {
		is.Listener = live.ListenerAddress(network, at)
	}
	if w := c.Waits; w.Phase != "" {
		is.Waits = &WaitState{w.Phase, w.Server, w.For.Milliseconds(), w.Why}
	}
	return is
}

// Text describes what the client waits for, as text for operators.
func (w *WaitState) Text() string {
	text := w.Why
	if w.Server != "" {
		text = w.Server + ": " + text
	}
	if w.MS > 0 {
		text += fmt.Sprintf(", for %v", time.Duration(w.MS)*time.Millisecond)
	}
	return text
}
