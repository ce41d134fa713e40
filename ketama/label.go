package ketama

// The text that names a server. On a pool with the default port this alone
// moves nearly every key.

import (
	"fmt"
	"net/netip"
	"strconv"

	"ringside/ring"
)

// Label says what text a client makes of a server. A server's Name stands in
// place of all of it.
type Label struct {
	Address func(ring.Server) (string, error) // for host and port
	Socket  func(path string) string          // for a unix socket; nil: the client has none, or none we know of
}

func (l Label) of(s ring.Server) (string, error) {
	switch {
	case s.Name != "":
		return s.Name, nil
	case s.Path == "":
		return l.Address(s)
	case l.Socket == nil:
		return "", fmt.Errorf("server %s: this client has no rule for unix sockets: give the server the name it shall be hashed by", s.Path)
	}
	return l.Socket(s.Path), nil
}

var (
	// short is the host alone on memcached's port, else host:port, without
	// brackets: libmemcached. Its C API gives a socket the port 0.
	short = Label{shortAddress, func(path string) string { return path + ":0" }}
	// shortPHP differs for sockets, where PHP's addServer("/path", 0) turns
	// port 0 into the default, which is left out.
	shortPHP = Label{shortAddress, samePath}
	// shortTwemproxy takes "/path:1" up to the weight, colon included.
	shortTwemproxy = Label{shortAddress, func(path string) string { return path + ":" }}
	// shortText is the same in clients that keep the brackets of the text.
	shortText = Label{func(s ring.Server) (string, error) {
		if s.Port != ring.DefaultPort {
			return s.Address(), nil
		}
		return trimPort(s.Address()), nil
	}, samePath}
	// long is host:port as the list spells it.
	long = Label{func(s ring.Server) (string, error) { return s.Address(), nil }, samePath}
	// bare is host:port without brackets.
	bare = Label{func(s ring.Server) (string, error) { return s.Bare(), nil }, samePath}
	// spy is libmemcached's idea of spymemcached's label.
	spy = Label{func(s ring.Server) (string, error) { return "/" + s.Bare(), nil },
		func(path string) string { return "/" + path + ":0" }}
	// java is an InetSocketAddress as text without its leading slash.
	java = Label{func(s ring.Server) (string, error) { return javaAddress(s, "") }, nil}
	// javaSlash keeps the slash.
	javaSlash = Label{func(s ring.Server) (string, error) { return javaAddress(s, "/") }, nil}
	// javaTwice is the same for an address whose name is its own text.
	javaTwice = Label{func(s ring.Server) (string, error) {
		text, err := javaAddress(s, "/")
		return s.Host + text, err
	}, nil}
	// javaShort is the host alone on memcached's port, else host:port, with
	// Java's spelling of IPv6.
	javaShort = Label{func(s ring.Server) (string, error) {
		if ip, err := netip.ParseAddr(s.Host); err == nil && ip.Is6() {
			s.Host = javaIPv6(ip)
		}
		return shortAddress(s)
	}, nil}
	// bmemcached appends the user and the password, which a proxy has not.
	bmemcached = Label{func(s ring.Server) (string, error) { return s.Address() + "_None_None", nil },
		func(path string) string { return path + "_None_None" }}
	// pecl puts a scheme before sockets.
	pecl = Label{func(s ring.Server) (string, error) { return s.Bare(), nil },
		func(path string) string { return "unix://" + path + ":0" }}
	// perlFast ends the host with a zero byte.
	perlFast = Label{
		func(s ring.Server) (string, error) { return s.Host + "\x00" + strconv.Itoa(s.Port), nil },
		func(path string) string { return path + "\x00" },
	}
)

func samePath(path string) string { return path }

func shortAddress(s ring.Server) (string, error) {
	if s.Port == ring.DefaultPort {
		return s.Host, nil
	}
	return s.Bare(), nil
}

func trimPort(address string) string {
	return address[:len(address)-len(":")-len(strconv.Itoa(ring.DefaultPort))]
}

// javaAddress is before + ip:port. Java puts the resolved address into the
// text of a named host, and this package resolves nothing.
func javaAddress(s ring.Server, before string) (string, error) {
	ip, err := netip.ParseAddr(s.Host)
	if err != nil {
		return "", fmt.Errorf("server %s: this client hashes a host's name and its address: give the server the name \"%s/<its ip>:%d\"",
			s.Address(), s.Host, s.Port)
	}
	if ip.Is4() {
		return before + s.Bare(), nil
	}
	return fmt.Sprintf("%s[%s]:%d", before, javaIPv6(ip), s.Port), nil
}

// javaIPv6 is eight groups in hexadecimal, none left out.
func javaIPv6(ip netip.Addr) string {
	var text []byte
	b := ip.As16()
	for i := 0; i < len(b); i += 2 {
		if i > 0 {
			text = append(text, ':')
		}
		text = strconv.AppendUint(text, uint64(b[i])<<8|uint64(b[i+1]), 16)
	}
	return string(text)
}
