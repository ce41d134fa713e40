package config

// A checked file to the table the proxy serves by.

import (
	"fmt"

	"ringside/proxy"
)

// complete fills in what may be left out while it is plain what is meant.
func (f *File) complete() {
	if len(f.Routes) == 0 && len(f.Pools) == 1 {
		f.Routes = []Route{{Pool: f.Pools[0].Name}}
	}
}

// Build makes the table of a file that came from Parse or Load. It is
// deterministic: two files that say the same give tables that are equal, but
// for the hash functions in them, which Go can't compare. The error names the
// pool whose placement can't be built; Parse has found it before.
func (f *File) Build() (*proxy.Table, error) {
	t := &proxy.Table{Limits: f.Limits}
	pools := map[string]*proxy.Pool{}
	for i := range f.Pools {
		p, err := f.Pools[i].build()
		if err != nil {
			return nil, fmt.Errorf("pool %s: %w", f.Pools[i].Name, err)
		}
		t.Pools = append(t.Pools, p)
		pools[p.Name] = p
	}
	for _, l := range f.Listen {
		routes := l.Routes
		if routes == nil {
			routes = f.Routes
		}
		listener := proxy.Listener{Network: l.Address.Network, Address: l.Address.Address, Mode: l.Mode}
		for _, r := range routes {
			if pools[r.Pool] == nil {
				return nil, fmt.Errorf("a route of %s names the pool %q, which does not exist", l.Address.Address, r.Pool)
			}
			listener.Routes = append(listener.Routes, proxy.Route{Prefix: r.Prefix, Pool: pools[r.Pool], Strip: r.Strip})
		}
		t.Listeners = append(t.Listeners, listener)
	}
	return t, nil
}

func (p *Pool) build() (*proxy.Pool, error) {
	place, err := p.place()
	if err != nil {
		return nil, err
	}
	built := &proxy.Pool{
		Name:         p.Name,
		Distribution: p.Distribution,
		Place:        place,
		GetErrors:    p.GetErrors,
		Ordered:      p.ordered(),
		DenyFlush:    p.DenyFlush,
		Connections:  p.Connections,
		Preconnect:   p.Preconnect,
		QueueLimit:   p.Queue,
		Timeouts:     p.Timeouts,
		RetryBackoff: p.Backoff,
	}
	for _, s := range p.Servers {
		built.Servers = append(built.Servers, proxy.Target{
			Name: s.label(), Network: s.Address.Network, Address: s.Address.Address, Weight: s.Weight,
		})
	}
	return built, nil
}

// ordered says whether multi-gets are answered in the order of the request.
func (p *Pool) ordered() bool {
	if p.Multiget != "" {
		return p.Multiget == "request"
	}
	preset, _ := FindPreset(p.Distribution)
	return preset.Ordered
}

// label is what people call the server.
func (s *Server) label() string {
	switch {
	case s.Name != "":
		return s.Name
	case s.Address.Network == "unix":
		return "unix:" + s.Address.Address
	default:
		return s.Address.Address
	}
}
