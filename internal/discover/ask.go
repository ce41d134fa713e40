package discover

// This file asks a source once. It contains the DNS sources and files.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"ringside/config"
	"ringside/proxy/serverlist"
)

// Asker asks sources for their servers. The zero Asker uses the resolver and the Kubernetes cluster of
// this process.
type Asker struct {
	Resolver *net.Resolver // nil: that of the process
	Cluster  *Cluster      // nil: the one in which the process runs

	ReadFile func(path string) ([]byte, error) // reads the file of a source; nil: that on this machine
}

// memory is what an Asker remembers of a source between two lookups.
type memory struct {
	version serverlist.Version // of elasticache
	nodes   []string           // of elasticache: addresses of the nodes of the last list
	keep    time.Duration      // the setting keep of the source
	now     func() time.Time

	resume string // of k8s: the version of the last list, from which a watch continues
}

func newMemory(keep time.Duration) *memory { return &memory{keep: keep, now: time.Now} }

// Ask returns the servers that the source s has now.
func (a *Asker) Ask(ctx context.Context, s serverlist.Source) ([]serverlist.Server, error) {
	return a.ask(ctx, s, newMemory(0))
}

func (a *Asker) ask(ctx context.Context, s serverlist.Source, m *memory) ([]serverlist.Server, error) {
	switch s.Scheme {
	case "dns":
		ips, err := a.addresses(ctx, s.Host)
		return endpoints(ips, s.Port), err
	case "dnssrv", "dnssrvnoa":
		return a.records(ctx, s)
	case "file":
		read := a.ReadFile
		if read == nil {
			read = readFile
		}
		text, err := read(s.Path)
		if err != nil {
			return nil, err
		}
		return parseList(s.Path, text)
	case "elasticache":
		return askCluster(ctx, s, m)
	case "k8s":
		return a.askKubernetes(ctx, s, m)
	}
	return nil, fmt.Errorf("%s is not a source", s.Text)
}

func (a *Asker) resolver() *net.Resolver {
	if a.Resolver != nil {
		return a.Resolver
	}
	return net.DefaultResolver
}

// endpoints returns a server for each address.
func endpoints(ips []netip.Addr, port string) (list []serverlist.Server) {
	for _, ip := range ips {
		at := net.JoinHostPort(ip.String(), port)
		list = append(list, serverlist.Server{Name: at, Address: at, Weight: 1})
	}
	return list
}

// addresses looks up the addresses of a host.
func (a *Asker) addresses(ctx context.Context, host string) ([]netip.Addr, error) {
	ips, err := a.resolver().LookupNetIP(ctx, "ip", host)
	for i := range ips {
		ips[i] = ips[i].Unmap()
	}
	return ips, plain(err)
}

// atOnce is the largest number of lookups of one source at the same time.
const atOnce = 8

// Files returns about how many file descriptors the lookups of a source use at the same time.
func Files(s serverlist.Source) int {
	if s.Scheme == "dnssrv" {
		return 2 * atOnce // for IPv4 and IPv6
	}
	return 3 // for k8s, a lookup, a watch and an idle connection
}

// records looks up SRV records, and the addresses of their targets if the source wants these. Addresses
// that a DNS server adds to SRV records are ignored.
func (a *Asker) records(ctx context.Context, s serverlist.Source) ([]serverlist.Server, error) {
	_, found, err := a.resolver().LookupSRV(ctx, "", "", s.Host)
	if err != nil {
		return nil, plain(err)
	}
	if len(found) > serverlist.MostServers {
		return nil, fmt.Errorf("it has %d records; at most %d are used", len(found), serverlist.MostServers)
	}
	for _, r := range found {
		if r.Port == 0 || r.Target == "." {
			return nil, fmt.Errorf("it has a record without a server: target %s, port %d", r.Target, r.Port)
		}
	}
	lists, errs := make([][]serverlist.Server, len(found)), make([]error, len(found))
	slots := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i, r := range found {
		port := strconv.Itoa(int(r.Port))
		if s.Scheme == "dnssrvnoa" {
			at := net.JoinHostPort(strings.ToLower(r.Target), port) // DNS may return any case, which must not move keys
			lists[i] = []serverlist.Server{{Name: at, Address: at, Weight: 1}}
			continue
		}
		slots <- struct{}{}
		all.Go(func() {
			ips, err := a.addresses(ctx, r.Target)
			if none := (*net.DNSError)(nil); errors.As(err, &none) && none.IsNotFound {
				err = nil // a target without an address, such as a pod that has just ended, is not a server
			}
			lists[i], errs[i] = endpoints(ips, port), err
			<-slots
		})
	}
	all.Wait()
	var list []serverlist.Server
	for _, l := range lists {
		list = append(list, l...)
	}
	return list, errors.Join(errs...)
}

// plain returns err without the parts that differ from lookup to lookup.
func plain(err error) error {
	if e := (*net.DNSError)(nil); errors.As(err, &e) {
		short := *e
		short.Server = ""
		return &short
	}
	return err
}

// mostBytes is the largest size of an answer of a source.
const mostBytes = 1 << 20

// readFile reads the file of a source, or one with which a source is asked.
func readFile(path string) ([]byte, error) {
	text, err := config.ReadFile(path, mostBytes+1) // does not block at a pipe
	switch {
	case err != nil:
		return nil, err
	case len(text) > mostBytes:
		return nil, fmt.Errorf("%s has more than %d bytes", path, mostBytes)
	}
	return text, nil
}

// parseList parses a file with one server per line: the address, and then name=NAME and weight=N, both
// optional. Empty lines and lines that begin with # are ignored.
func parseList(path string, text []byte) (list []serverlist.Server, err error) {
	n := 0
	for line := range bytes.Lines(text) {
		n++
		words := strings.Fields(string(line))
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		s, err := parseServer(words)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, n, err)
		}
		list = append(list, s)
	}
	return list, nil
}

// usualPort is the port of a server in a file that has none.
const usualPort = "11211"

func parseServer(words []string) (s serverlist.Server, err error) {
	s.Weight = 1
	if s.Address, err = endpoint(words[0]); err != nil {
		return s, err
	}
	s.Name = s.Address
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "name":
			if s.Name = value; value == "" || strings.ContainsAny(value, ":/") {
				return s, fmt.Errorf("a name is not empty, and has neither : nor /, not %.60q", value)
			}
		case "weight":
			if s.Weight, err = strconv.Atoi(value); err != nil || s.Weight < 1 {
				return s, fmt.Errorf("a weight is a whole number from 1, not %.60q", value)
			}
		default:
			return s, fmt.Errorf("after the address come name=NAME and weight=N, not %.60q", w)
		}
	}
	return s, nil
}

// endpoint returns an address of a file as host:port.
func endpoint(text string) (string, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = strings.Trim(text, "[]"), usualPort
		if _, noAddress := netip.ParseAddr(host); strings.Contains(host, ":") && (noAddress != nil || !strings.HasPrefix(text, "[")) {
			return "", fmt.Errorf("%.60q is not an address: write host:port or [ipv6]:port", text)
		}
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 || strconv.Itoa(n) != port {
		return "", fmt.Errorf("a port is a number between 1 and 65535, not %.60q", port)
	}
	if host == "" || strings.ContainsAny(host, "/=@") {
		return "", fmt.Errorf("%.60q is not an address: write host:port or [ipv6]:port", text)
	}
	return net.JoinHostPort(host, port), nil
}
