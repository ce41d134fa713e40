package serverlist

// This file reads the texts that name sources.

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Source is a place from which a pool gets its servers.
type Source struct {
	Text   string // as the configuration has it
	Scheme string // one of Schemes
	Host   string // the name to look up: of dns, dnssrv, dnssrvnoa and elasticache
	Port   string // of dns, elasticache and k8s; k8s: a number or the name of a port

	Namespace, Service string // of k8s
	Path               string // of file
}

// forms are the forms of sources, by scheme.
var forms = map[string]string{
	"dns":         "dns+HOST:PORT",
	"dnssrv":      "dnssrv+NAME",
	"dnssrvnoa":   "dnssrvnoa+NAME",
	"elasticache": "elasticache+HOST:PORT",
	"file":        "file+/PATH",
	"k8s":         "k8s+NAMESPACE/SERVICE:PORT",
}

// Schemes are the schemes of all sources.
var Schemes = []string{"dns", "dnssrv", "dnssrvnoa", "elasticache", "file", "k8s"}

// Forms returns how a source is written, for each scheme.
func Forms() (list []string) {
	for _, s := range Schemes {
		list = append(list, forms[s])
	}
	return list
}

var (
	hasScheme = regexp.MustCompile(`^[A-Za-z0-9_-]+\+`)
	isHost    = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_.])?$`)
	isLabel   = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,251}[a-z0-9])?$`)
)

// IsSource reports whether text has the form of a source, with any scheme. No address has it.
func IsSource(text string) bool { return hasScheme.MatchString(text) }

// SchemeOf returns the scheme in text, which is the part before the first plus sign.
func SchemeOf(text string) string {
	scheme, _, _ := strings.Cut(text, "+")
	return scheme
}

// ParseSource reads the text of a source.
func ParseSource(text string) (Source, error) {
	s := Source{Text: text, Scheme: SchemeOf(text)}
	if !IsSource(text) || !slices.Contains(Schemes, s.Scheme) {
		return s, fmt.Errorf("%q is not a source of servers: write %s", text, strings.Join(Forms(), ", "))
	}
	rest := text[len(s.Scheme)+1:]
	wrong := func(format string, args ...any) (Source, error) {
		return s, fmt.Errorf("%s: %s; write %s", text, fmt.Sprintf(format, args...), forms[s.Scheme])
	}
	if strings.Contains(rest, "//") && s.Scheme != "file" {
		return wrong("the name has no scheme of its own")
	}
	switch s.Scheme {
	case "file":
		if s.Path = rest; !strings.HasPrefix(rest, "/") {
			return wrong("the path does not begin with /")
		}
		return s, nil
	case "k8s":
		service, port, _ := strings.Cut(rest, ":")
		s.Port = port
		s.Namespace, s.Service, _ = strings.Cut(service, "/")
		switch {
		case !isLabel.MatchString(s.Namespace) || !isLabel.MatchString(s.Service):
			return wrong("the namespace and the service are words of letters, digits and hyphens")
		case port == "" || !isPort(port) && (!isLabel.MatchString(port) || len(port) > 15 || strings.Trim(port, "0123456789") == ""):
			return wrong("the port is a number or the name of a port of the service")
		}
		return s, nil
	}
	host, port, colon := strings.Cut(rest, ":")
	if strings.HasPrefix(rest, "[") || strings.Contains(port, ":") {
		return wrong("an address is not looked up")
	}
	s.Host, s.Port = host, port
	_, noAddress := netip.ParseAddr(host)
	switch srv := s.Scheme == "dnssrv" || s.Scheme == "dnssrvnoa"; {
	case !isHost.MatchString(host):
		return wrong("there is no host name")
	case noAddress == nil && s.Scheme != "elasticache":
		return wrong("an address is not looked up")
	case srv && colon:
		return wrong("the port is that of the SRV records")
	case !srv && !colon:
		return wrong("the port is missing")
	case !srv && !isPort(port):
		return wrong("a port is a number between 1 and 65535")
	}
	return s, nil
}

func isPort(text string) bool {
	n, err := strconv.Atoi(text)
	return err == nil && n >= 1 && n <= 65535 && strconv.Itoa(n) == text
}
