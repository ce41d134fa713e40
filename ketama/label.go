package ketama

// This file contains labels: the texts that clients hash for a server. Even if every
// server has the default port, another kind of label moves nearly every key.

import (
	"fmt"
	"net/netip"
	"strconv"

	"ringside/ring"
)

// Label makes the text that a client hashes for a server. If the server has a Name, the
// Name is used instead.
type Label struct {
	Address func(ring.Server) (string, error) // returns the label of a server with a host and a port
	Socket  func(path string) string          // returns the label of a unix socket; nil: the client has no such label, or it is not known
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
	// short is the label of libmemcached: the host alone if the port is memcached's,
	// else host:port, without brackets. For a unix socket, the label has port 0, as in
	// libmemcached's C API.
	short = Label{shortAddress, func(path string) string { return path + ":0" }}
	// shortPHP is the label of php-memcached. It differs from the label `short` only
	// for unix sockets. addServer("/path", 0) replaces port 0 by memcached's port,
	// which is then omitted.
	shortPHP = Label{shortAddress, samePath}
	// shortTwemproxy is the label of twemproxy. It differs from the label `short` only
	// for unix sockets. Of the address "/path:1", twemproxy keeps everything before the
	// weight, including the colon.
	shortTwemproxy = Label{shortAddress, func(path string) string { return path + ":" }}
	// shortText is the label `short` for clients that keep the brackets of an IPv6
	// address.
	shortText = Label{func(s ring.Server) (string, error) {
		if s.Port != ring.DefaultPort {
			return s.Address(), nil
		}
		return trimPort(s.Address()), nil
	}, samePath}
	// long is the label host:port, as the list of servers spells the address.
	long = Label{func(s ring.Server) (string, error) { return s.Address(), nil }, samePath}
	// bare is the label host:port, without the brackets of an IPv6 address.
	bare = Label{func(s ring.Server) (string, error) { return s.Bare(), nil }, samePath}
	// spy is the label that libmemcached uses to imitate spymemcached.
	spy = Label{func(s ring.Server) (string, error) { return "/" + s.Bare(), nil },
		func(path string) string { return "/" + path + ":0" }}
	// java is the label of Java clients: the text of an InetSocketAddress, without the
	// slash in front.
	java = Label{func(s ring.Server) (string, error) { return javaAddress(s, "") }, nil}
	// javaSlash is the label of Java clients with a slash in front: the text of an
	// InetSocketAddress without a host name.
	javaSlash = Label{func(s ring.Server) (string, error) { return javaAddress(s, "/") }, nil}
	// javaTwice is the label of Java clients that use the IP address as host name: the
	// address, a slash, and the address with its port.
	javaTwice = Label{func(s ring.Server) (string, error) {
		text, err := javaAddress(s, "/")
		return s.Host + text, err
	}, nil}
	// javaShort is the label of Java clients that omit memcached's port: the host
	// alone, else host:port. An IPv6 address is written as Java writes it.
	javaShort = Label{func(s ring.Server) (string, error) {
		if ip, err := netip.ParseAddr(s.Host); err == nil && ip.Is6() {
			s.Host = javaIPv6(ip)
		}
		return shortAddress(s)
	}, nil}
	// bmemcached is the label of python-binary-memcached, which contains the user and
	// the password. Ringside has neither of them, so both are None.
	bmemcached = Label{func(s ring.Server) (string, error) { return s.Address() + "_None_None", nil },
		func(path string) string { return path + "_None_None" }}
	// pecl is the label of php-memcache. Its label of a unix socket begins with
	// unix://.
	pecl = Label{func(s ring.Server) (string, error) { return s.Bare(), nil },
		func(path string) string { return "unix://" + path + ":0" }}
	// perlFast is the label of Cache::Memcached::Fast. It has a zero byte after the
	// host.
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

// javaAddress returns ip:port with the text `before` in front. Java clients append the
// resolved address to a host name. This package does not resolve names, so a host name
// is an error.
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

// javaIPv6 formats an IPv6 address as eight hexadecimal groups, without abbreviation.
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
