package ketama

// The text that names a server on the circle. If every server uses the default
// port, a different label already moves nearly every key.

import (
	"fmt"
	"net/netip"
	"strconv"

	"ringside/ring"
)

// Label is how a client spells a server. If the server has a Name, the Name is used
// instead.
type Label struct {
	Address func(ring.Server) (string, error) // label of a host and port
	Socket  func(path string) string          // label of a unix socket; nil: the client has no such rule, or it is not known
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
	// short is libmemcached's label: the host alone on memcached's port, else
	// host:port, without brackets. Its C API uses port 0 for a socket.
	short = Label{shortAddress, func(path string) string { return path + ":0" }}
	// shortPHP differs from the label `short` only for sockets: PHP's
	// addServer("/path", 0) replaces port 0 by the default port, which is then
	// omitted.
	shortPHP = Label{shortAddress, samePath}
	// shortTwemproxy differs from the label `short` only for sockets: of "/path:1",
	// twemproxy keeps everything before the weight, including the colon.
	shortTwemproxy = Label{shortAddress, func(path string) string { return path + ":" }}
	// shortText is the variant of the label `short` for clients that keep the brackets
	// of IPv6.
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
	// spy is libmemcached's imitation of spymemcached's label.
	spy = Label{func(s ring.Server) (string, error) { return "/" + s.Bare(), nil },
		func(path string) string { return "/" + path + ":0" }}
	// java is the text of Java's InetSocketAddress without the leading slash.
	java = Label{func(s ring.Server) (string, error) { return javaAddress(s, "") }, nil}
	// javaSlash is java with the leading slash.
	javaSlash = Label{func(s ring.Server) (string, error) { return javaAddress(s, "/") }, nil}
	// javaTwice is the text of an InetSocketAddress that uses its IP address as
	// host name.
	javaTwice = Label{func(s ring.Server) (string, error) {
		text, err := javaAddress(s, "/")
		return s.Host + text, err
	}, nil}
	// javaShort is the host alone on memcached's port, else host:port. IPv6 is
	// spelled as Java does it.
	javaShort = Label{func(s ring.Server) (string, error) {
		if ip, err := netip.ParseAddr(s.Host); err == nil && ip.Is6() {
			s.Host = javaIPv6(ip)
		}
		return shortAddress(s)
	}, nil}
	// bmemcached appends the user and the password. Ringside has neither, so both
	// are None.
	bmemcached = Label{func(s ring.Server) (string, error) { return s.Address() + "_None_None", nil },
		func(path string) string { return path + "_None_None" }}
	// pecl adds a scheme (unix://) in front of the path of a unix socket.
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

// javaAddress returns ip:port with the prefix `before`. Java adds the resolved address
// to a host name. This package does not resolve names, so a host name is an error.
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

// javaIPv6 spells an IPv6 address as eight hexadecimal groups, without
// abbreviation.
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
