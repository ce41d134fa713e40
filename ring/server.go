package ring

// A server as the configuration spells it. Labels are made from this text.

import (
	"net"
	"strconv"
)

// DefaultPort is memcached's port. Half of the clients omit it from a server's
// label.
const DefaultPort = 11211

// Server is one server of a list as the configuration spells it. Rules use this
// text and never a resolved address, so a host name and its address count as two
// servers.
type Server struct {
	Host   string // name or address; IPv6 without brackets
	Port   int
	Path   string // path of a unix socket; Host and Port are then empty
	Name   string // name that the rule hashes instead of the address; empty: the address
	Weight int    // 0 counts as 1
}

// Share returns the server's weight, or 1 if none is configured.
func (s Server) Share() int { return max(s.Weight, 1) }

// Address returns host:port with brackets around IPv6, or the path of the socket.
func (s Server) Address() string {
	if s.Path != "" {
		return s.Path
	}
	return net.JoinHostPort(s.Host, strconv.Itoa(s.Port))
}

// Bare returns host:port without brackets, or the path of the socket.
func (s Server) Bare() string {
	if s.Path != "" {
		return s.Path
	}
	return s.Host + ":" + strconv.Itoa(s.Port)
}

// Text returns the server's name, or its Address if it has none.
func (s Server) Text() string {
	if s.Name != "" {
		return s.Name
	}
	return s.Address()
}
