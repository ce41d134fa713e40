package ring

// This file contains a server as the configuration spells it. Clients hash this text.

import (
	"net"
	"strconv"
)

// DefaultPort is memcached's port. Half of the clients omit this port from the text
// that they hash for a server.
const DefaultPort = 11211

// Server is one server of a list, as the configuration spells it. Rules use this text
// and never a resolved address. A host name and its address are therefore two servers.
type Server struct {
	Host   string // host name or IP address; an IPv6 address has no brackets
	Port   int
	Path   string // path of a unix socket; if it is set, Host and Port are empty
	Name   string // name that is hashed in place of the address; empty: the address is hashed
	Weight int    // the server's weight; 0 counts as 1
}

// Share returns the server's weight, or 1 if no weight is configured.
func (s Server) Share() int { return max(s.Weight, 1) }

// Address returns host:port, with brackets around an IPv6 address, or the path of the
// unix socket.
func (s Server) Address() string {
	if s.Path != "" {
		return s.Path
	}
	return net.JoinHostPort(s.Host, strconv.Itoa(s.Port))
}

// Bare returns host:port, without brackets around an IPv6 address, or the path of the
// unix socket.
func (s Server) Bare() string {
	if s.Path != "" {
		return s.Path
	}
	return s.Host + ":" + strconv.Itoa(s.Port)
}

// Text returns the server's name, or its Address if the server has no name.
func (s Server) Text() string {
	if s.Name != "" {
		return s.Name
	}
	return s.Address()
}
