package config

// This file parses the addresses and names in a configuration file.

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"ringside/proxy/table"
	"ringside/replicate"
)

const (
	defaultPort = "11211"
	maxPath     = 107 // maximum length in bytes of the path of a unix socket: the limit of Linux
	maxName     = 250 // maximum length in bytes of a server's name, and of a key prefix
	namePattern = `^[A-Za-z0-9]([A-Za-z0-9_.-]{0,62}[A-Za-z0-9])?$`
)

var (
	isName = regexp.MustCompile(namePattern)
	isHost = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_.])?$`)
)

// address describes a setting that has an address as its value. The function parse reads the text
// of the address: it is listenAddress or serverAddress.
func address(what string, parse func(string) (Address, error)) value[Address] {
	return value[Address]{
		read: func(d *document, n *node, path string, to *Address) {
			if n.kind != scalar || n.empty() {
				d.wrong(n, path, what)
				return
			}
			a, err := parse(n.text)
			if err != nil {
				d.failAt(n, "%s: %v", path, err)
				return
			}
			if a.Network == "unix" && a.text() != n.text {
				d.warn(n, "%s: the path is read as %s", path, a.text())
			}
			*to = a
		},
		show:   func(a Address) any { return filled(a.text()) },
		schema: schema{"type": "string", "minLength": 1},
	}
}

// listenAddress parses an address to listen on. An empty host means every address.
func listenAddress(text string) (Address, error) {
	a, err := parseAddress(text, "", 0)
	switch _, _, ip := a.parts(); {
	case a.Network != "tcp":
	case ip.Is4():
		a.Network = "tcp4"
	case ip.Is6():
		a.Network = "tcp6"
	}
	return a, err
}

// serverAddress parses the address of a server. The default port is 11211.
func serverAddress(text string) (Address, error) { return parseAddress(text, defaultPort, 1) }

// parseAddress parses an address. The parameter usual is the port of an address that has none; it is
// empty for an address to listen on, which needs a port and no host. The smallest port is least.
func parseAddress(text, usual string, least int) (Address, error) {
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		return unixAddress(path)
	}
	if all := severalIn(text); len(all) > 1 {
		return Address{}, fmt.Errorf("%s are several addresses in one text: %s", quote(text), listHint(all))
	}
	host, port, err := splitHost(text)
	switch {
	case err != nil:
		return Address{}, err
	case host == "" && usual != "":
		return Address{}, fmt.Errorf("%s has no host: write host:port, [ipv6]:port or unix:/path", quote(text))
	case port == "" && usual == "":
		return Address{}, fmt.Errorf("%s has no port: write host:port, [ipv6]:port, :port or unix:/path", quote(text))
	}
	port = cmp.Or(port, usual)
	if v, err := strconv.Atoi(port); err != nil || v < least || v > 65535 || strconv.Itoa(v) != port {
		return Address{}, fmt.Errorf("a port is a number between %d and 65535, not %s", least, quote(port))
	}
	return Address{"tcp", net.JoinHostPort(host, port)}, nil
}

// severalIn splits a text in which commas, semicolons or spaces separate several values.
func severalIn(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == ';' })
}

// listHint says how to write the values in all as a list.
func listHint(all []string) string {
	more := ""
	if len(all) > 3 {
		all, more = all[:3], ", …"
	}
	return "write a list, such as [" + strings.Join(all, ", ") + more + "]"
}

// parts returns the host and the port of a TCP address. If the host is an IP address, ip is that
// address, else the zero Addr.
func (a *Address) parts() (host, port string, ip netip.Addr) {
	host, port, _ = net.SplitHostPort(a.Address)
	ip, _ = netip.ParseAddr(host)
	return host, port, ip
}

// Local reports whether only this machine can connect to the address.
func (a Address) Local() bool {
	host, _, ip := a.parts()
	return a.Network == "unix" || host == thisHost || ip.IsLoopback()
}

// everywhere reports whether the address a stands for all addresses of this machine.
func (a *Address) everywhere() bool {
	host, _, ip := a.parts()
	return a.Network != "unix" && a.Network != "" && (host == "" || ip.IsUnspecified())
}

// takes reports whether a listener with the address a would accept connections to the address b. It
// compares only the texts of the addresses and does not resolve names.
func (a *Address) takes(b Address) bool {
	host, port, is := a.parts()
	to, toPort, at := b.parts()
	switch at = at.Unmap(); at { // a connection to the unspecified address reaches this machine
	case netip.IPv4Unspecified():
		at = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	case netip.IPv6Unspecified():
		at = netip.IPv6Loopback()
	}
	switch {
	case a.Network == "" || b.Network == "":
		return false
	case a.Network == "unix" || b.Network == "unix":
		return *a == b
	case port != toPort:
		return false
	case at.IsValid() && a.everywhere():
		return at.IsLoopback() && a.hasFamily(at)
	case at.IsValid() && is.IsValid():
		return at == is.Unmap()
	case strings.EqualFold(to, thisHost):
		return a.everywhere() || is.Unmap() == netip.AddrFrom4([4]byte{127, 0, 0, 1}) || is == netip.IPv6Loopback()
	}
	return strings.EqualFold(host, to)
}

// portOrSocket returns the port of a, or its whole address if it is a unix socket. Listeners take only addresses
// with the same one.
func (a *Address) portOrSocket() string {
	if a.Network == "unix" {
		return a.Address
	}
	_, port, _ := a.parts()
	return port
}

// hasFamily reports whether a listener with the address a accepts connections to addresses of the family of ip.
func (a *Address) hasFamily(ip netip.Addr) bool {
	return (a.Network != "tcp4" || ip.Is4()) && (a.Network != "tcp6" || ip.Is6())
}

// probablyTakes reports whether a listener with the address a accepts connections to the address b, if own reports that the host
// of b is this machine.
func (a *Address) probablyTakes(b Address, own func(host string) bool) bool {
	_, port, _ := a.parts()
	to, toPort, at := b.parts()
	return a.everywhere() && b.Network != "unix" && port == toPort && (!at.IsValid() || a.hasFamily(at.Unmap())) && own(to)
}

// isOwnHost reports whether host is the name of this machine, or an IP address of one of its interfaces. It does not use DNS.
func isOwnHost(host string) bool {
	if name, err := os.Hostname(); err == nil && strings.EqualFold(host, name) {
		return true
	}
	ip, _ := netip.ParseAddr(host)
	own, _ := net.InterfaceAddrs() // without them, no address is known as this machine's
	return slices.ContainsFunc(own, func(a net.Addr) bool {
		p, err := netip.ParsePrefix(a.String())
		return err == nil && p.Addr() == ip.Unmap().WithZone("")
	})
}

// unixAddress returns the address of a unix socket. Its path has no empty elements and no dots, so that
// one socket has one address. It keeps "..": after a symbolic link, that is not the element before.
func unixAddress(path string) (Address, error) {
	if !strings.HasPrefix(path, "/") {
		return Address{}, fmt.Errorf("the path of a unix socket begins with /, as in unix:/run/memcached.sock, not %s", quote(path))
	}
	elements := slices.DeleteFunc(strings.Split(path, "/"), func(s string) bool { return s == "" || s == "." })
	if path = "/" + strings.Join(elements, "/"); len(path) > maxPath {
		return Address{}, fmt.Errorf("the path of a unix socket has at most %d bytes, not %d", maxPath, len(path))
	}
	return Address{"unix", path}, nil
}

// splitHost splits the text host:port or [ipv6]:port. The port is "" if the text has no port.
func splitHost(text string) (host, port string, err error) {
	if strings.HasPrefix(text, "/") {
		return "", "", fmt.Errorf("%s is a path: write unix:%s", quote(text), text)
	}
	if scheme, rest, ok := strings.Cut(text, "://"); ok {
		host, _, _ := strings.Cut(rest, "/")
		if scheme == "tls" {
			at := quote(cmp.Or(host, "host:port"))
			return "", "", fmt.Errorf("an address has no scheme: for TLS with clients, write listen: {address: %s, tls: {cert: …, key: …}}; for TLS with servers, write pools: {NAME: {tls: on, servers: [%s]}}", at, at)
		}
		return "", "", fmt.Errorf("an address has no scheme: write %s without %s", quote(cmp.Or(host, "host:port")), quote(scheme+"://"))
	}
	if rest, ok := strings.CutPrefix(text, "["); ok {
		host, rest, ok = strings.Cut(rest, "]")
		ip, ipErr := netip.ParseAddr(host)
		switch {
		case !ok:
			return "", "", fmt.Errorf("%s has no closing ]", quote(text))
		case ipErr != nil || !ip.Is6():
			return "", "", fmt.Errorf("%s is no IPv6 address; only those stand in brackets", quote(host))
		case rest == "":
			return host, "", nil
		case rest[0] != ':' || rest == ":":
			return "", "", fmt.Errorf("after ] comes :port, not %s", quote(rest))
		}
		return host, rest[1:], nil
	}
	if strings.Count(text, ":") > 1 {
		if _, err := netip.ParseAddr(text); err == nil {
			return "", "", fmt.Errorf("write the IPv6 address in brackets: %q", "["+text+"]:"+defaultPort)
		}
		at := strings.LastIndexByte(text, ':')
		if ip, err := netip.ParseAddr(text[:at]); err == nil && ip.Is6() {
			return "", "", fmt.Errorf("write the IPv6 address in brackets: %q", "["+text[:at]+"]"+text[at:])
		}
		if strings.Count(text, ":") == 2 && strings.Trim(text[at+1:], "0123456789") == "" && at+1 < len(text) {
			return "", "", fmt.Errorf("%s has a weight behind the port, as in a twemproxy file: write {address: %q, weight: %s}", quote(text), text[:at], text[at+1:])
		}
		return "", "", fmt.Errorf("%s is not an address: write host:port, [ipv6]:port or unix:/path", quote(text))
	}
	host, port, colon := strings.Cut(text, ":")
	switch {
	case colon && port == "":
		return "", "", fmt.Errorf("%s has no port after the colon", quote(text))
	case host != "" && !isHost.MatchString(host):
		return "", "", fmt.Errorf("%s is not a host name or address", quote(host))
	case text == "":
		return "", "", errors.New("the address is empty: write host:port, [ipv6]:port or unix:/path")
	case !colon && strings.Trim(host, "0123456789") == "":
		return "", "", errors.New("a number alone is not an address: write host:port")
	}
	if strings.Trim(host, "0123456789.") == "" && host != "" {
		if _, err := netip.ParseAddr(host); err != nil {
			return "", "", fmt.Errorf("%s is no IPv4 address", quote(host))
		}
	}
	return host, port, nil
}

// printable reports whether s has neither spaces nor control characters. Keys cannot have them.
// Names of servers are written to logs.
func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f })
}

// serverName describes a setting that is the name of a server. A name cannot have spaces, which are
// easy to get wrong in a text that is hashed byte by byte. It cannot have control characters, which
// break logs and metrics.
func serverName() value[string] { return visible("a name", maxName) }

func prefixText() value[string] { return visible("the beginning of keys", maxName) }

func zoneText() value[string] { return visible("the name of a zone", maxName) }

// visible describes a setting that is a text without spaces and control characters. The parameter
// `most` is the maximum length in bytes.
func visible(what string, most int) value[string] {
	return before(text(what), func(d *document, n *node, path string, _ *string) bool {
		wrong := (n.tag == "!!str" || n.eitherType) && (len(n.text) > most || !printable(n.text))
		if wrong {
			d.failAt(n, "%s must have at most %d bytes and no spaces or control characters, not %s", path, most, n.is())
		}
		return wrong
	})
}

// permissions describes a setting with the permission bits of a unix socket, as an octal number.
func permissions() value[uint32] {
	return value[uint32]{
		read: func(d *document, n *node, path string, to *uint32) {
			digits := strings.TrimPrefix(strings.TrimPrefix(n.text, "0o"), "0")
			v, err := strconv.ParseUint(digits, 8, 32)
			if n.kind != scalar || len(digits) != 3 || err != nil || v == 0 {
				d.wrong(n, path, "permission bits in octal, such as 0660")
				return
			}
			*to = uint32(v)
		},
		show: func(v uint32) any {
			if v == 0 {
				return nil
			}
			return fmt.Sprintf("%04o", v)
		},
		schema: anyOf(schema{"type": "string", "pattern": "^0?o?[0-7]{3}$"}, schema{"type": "integer"}),
	}
}

// text returns the address in the syntax of a configuration file.
func (a Address) text() string {
	if a.Network == "unix" {
		return "unix:" + a.Address
	}
	return a.Address
}

// label returns the name of the server for people: the field Name, or the address if Name is empty.
func (s *Server) label() string { return cmp.Or(s.Name, s.Address.text()) }

// now returns the address where the server is now.
func (s *Server) now() Address { return Address{s.Address.Network, cmp.Or(s.at, s.Address.Address)} }

// place returns the address where the server is now, in the form of apart(replicate.Servers).
func (s *Server) place() string { return s.Address.Network + " " + s.now().Address }

// host returns the name of the machine on which the server runs: the setting host of the server,
// else the host of its address in canonical form. With replicate.Hosts, the replicas of a key are
// on different machines.
func (s *Server) host() string {
	host, _, ip := s.Address.parts()
	switch ip = ip.Unmap(); {
	case s.Host != "" || s.Address.Network == "unix":
		return cmp.Or(s.Host, thisHost)
	case ip.IsLoopback():
		return thisHost
	case ip.IsValid():
		return ip.String()
	}
	return strings.TrimSuffix(strings.ToLower(host), ".")
}

// apart returns the host, the zone or the address of the server; the parameter `a` says which of
// the three. Two replicas of a key must differ in it. The result is empty if `a` is the zone and
// the server has none.
func (s *Server) apart(a replicate.Apart) string {
	t := s.target()
	return t.Apart(a)
}

// target converts the server from a setting of the file to an element of a table.
func (s *Server) target() table.Target {
	return table.Target{
		Name: s.label(), Network: s.Address.Network, Address: s.Address.Address, Weight: s.Weight, Host: s.host(), Zone: s.Zone,
	}
}

// distinct returns the set of the hosts, zones or addresses of servers; the parameter `a` says
// which.
func distinct(servers []Server, a replicate.Apart) map[string]bool {
	all := map[string]bool{}
	for i := range servers {
		if what := servers[i].apart(a); what != "" {
			all[what] = true
		}
	}
	return all
}

// addresses returns the number of different addresses of p's servers.
func (p *Pool) addresses() int { return len(distinct(p.Servers, replicate.Servers)) }
