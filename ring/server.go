package ring

// A server as its list spells it, which is what labels are made of.

import (
	"net"
	"strconv"
)

// DefaultPort is memcached's port, which half of the clients leave out of a
// server's label.
const DefaultPort = 11211

// Server is one server of a list as the configuration spells it. Rules use the
// text, never a resolved address: a name and its address are two servers.
type Server struct {
	Host   string // name or address, IPv6 without brackets
	Port   int
	Path   string // of a unix socket; Host and Port are then empty
	Name   string // what the rule shall call the server, instead of its address
	Weight int    // 0 counts as 1
}

// Share is the server's weight in the rule: 1 where none was given.
func (s Server) Share() int { return max(s.Weight, 1) }

// Address is host:port with brackets around IPv6, or the socket's path.
func (s Server) Address() string {
	if s.Path != "" {
		return s.Path
	}
	return net.JoinHostPort(s.Host, strconv.Itoa(s.Port))
}

// Bare is host:port without brackets, or the socket's path.
func (s Server) Bare() string {
	if s.Path != "" {
		return s.Path
	}
	return s.Host + ":" + strconv.Itoa(s.Port)
}

// Text is the server's name, or its Address.
func (s Server) Text() string {
	if s.Name != "" {
		return s.Name
	}
	return s.Address()
}
