package config

// This file builds a table from a configuration file that has passed all checks.

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"time"

	"ringside/proxy/table"
	"ringside/proxy/tags/stamp"
	"ringside/ring"
)

// Build builds the table of a file that Parse or Load returned. It is deterministic: the tables
// of equal files are equal, except for the hash functions in them, which Go cannot compare. If
// the placement of a pool cannot be built, Build returns an error with the name of the pool. This
// does not happen after Parse or Load, which reject such a file.
func (f *File) Build() (*table.Table, error) {
	t := &table.Table{Limits: f.Limits, LogSlow: f.Log.Slow, TagCommand: f.Tags.Command, Misses: f.Admin.Misses, Permissions: f.Permissions()}
	pools := map[string]*table.Pool{}
	for i := range f.Pools {
		p, err := f.Pools[i].build(f.unknown(&f.Pools[i]) != nil)
		if err != nil {
			return nil, fmt.Errorf("pool %s: %w", f.Pools[i].Name, err)
		}
		p.Failover.Strict = p.Failover.Strict && f.Agrees(p.Name) // other pools have no leases
		t.Pools = append(t.Pools, p)
		pools[p.Name] = p
	}
	for i := range f.Pools {
		if o := &f.Pools[i].Failover; o.Mode == table.Gutter && !t.Pools[i].Unknown {
			t.Pools[i].Failover.Gutter = pools[o.Gutter]
		}
	}
	for _, l := range f.Listen {
		routes := l.Routes
		if routes == nil {
			routes = f.Routes
		}
		listener := table.Listener{Network: l.Address.Network, Address: l.Address.Address, Mode: l.Mode}
		for _, r := range routes {
			listener.Routes = append(listener.Routes, r.build(pools, f))
		}
		if listener.Users = l.Users; l.AuthFile != "" && l.Users == nil {
			listener.Users = new(table.Users) // Parse does not read the auth_file; with an empty list of users, every password is wrong
		}
		if listener.TLS = l.TLS.Material; l.TLS.On && l.TLS.Material == nil {
			listener.TLS = new(table.ListenerTLS) // Parse does not read the files; without a certificate, the listener can't be opened
		}
		t.Listeners = append(t.Listeners, listener)
	}
	return t, nil
}

func (r *Route) build(pools map[string]*table.Pool, f *File) table.Route {
	built := table.Route{Class: r.Preset, GetErrors: r.GetErrors, Total: r.Total, Autocreate: r.Autocreate, Buffer: r.Buffer, Prefix: r.Prefix, Match: r.Match, Strip: r.Strip, Copies: r.Copies, Prefer: pools[r.Prefer], Zone: f.Zone}
	for _, name := range r.to() {
		built.Also = append(built.Also, pools[name])
	}
	if i := slices.IndexFunc(built.Also, func(p *table.Pool) bool { return p.Unknown }); i >= 0 { // no command reaches a server, so no feature has anything to do. But an invalidation must not be taken for a delete of a key
		unknown := table.Route{Class: r.Preset, Prefix: r.Prefix, Match: r.Match, Strip: r.Strip, Pool: built.Also[i], Zone: f.Zone}
		if r.Tags.On {
			unknown.Tags = r.Tags.build(r, &f.Tags)
		}
		return unknown
	}
	if built.Pool, built.Also = built.Also[0], built.Also[1:]; len(built.Also) == 0 {
		built.Also = nil
	}
	if r.Near.On {
		near := r.Near.NearSettings
		built.Near = &near
	}
	if r.Guard.On {
		guard := r.Guard.GuardSettings
		built.Guard = &guard
	}
	if r.Tags.On {
		built.Tags = r.Tags.build(r, &f.Tags)
		if built.Guard == nil {
			built.Guard = r.Tags.guard()
		}
	}
	return built
}

// build returns the pool for the table. If its servers are unknown, it has none.
func (p *Pool) build(unknown bool) (*table.Pool, error) {
	if unknown {
		return &table.Pool{Name: p.Name, Distribution: p.Distribution, Place: ring.Nowhere(), Unknown: true, GetErrors: true, DenyFlush: p.DenyFlush,
			Connections: p.Connections, QueueLimit: p.Queue, Timeouts: p.Timeouts, RetryBackoff: p.Backoff}, nil
	}
	place, err := p.place()
	if err != nil {
		return nil, err
	}
	built := &table.Pool{
		Name:         p.Name,
		Distribution: p.Distribution,
		Place:        place,
		GetErrors:    p.GetErrors,
		InOrder:      p.inOrder(),
		JoinGets:     p.JoinGets,
		DenyFlush:    p.DenyFlush,
		Connections:  p.Connections,
		Preconnect:   true, // connect to each server at start, so that its reported state is that of a real connection
		QueueLimit:   p.Queue,
		Keepalive:    p.Keepalive,
		Timeouts:     p.Timeouts,
		RetryBackoff: p.Backoff,
		TLS:          p.Security,
		Resize:       p.Resize.Mode,
		ResizeUsual:  p.Resize.Usual && p.From == nil,
		ResizeRate:   p.Resize.Rate,
		Login:        p.Login,
		Failover:     table.Failover{Mode: p.Failover.Mode, SubstituteTTL: p.Failover.InterimTTL, Wait: p.Failover.Wait, Settings: p.Failover.Settings},
	}
	built.Failover.Request = p.Timeouts.Request
	for i := range p.Servers {
		built.Servers = append(built.Servers, p.Servers[i].target())
	}
	if preset, _ := FindPreset(p.Distribution); preset.Dead == DeadRebuilds && p.Failover.Mode == table.Rehash {
		built.Without = p.without()
	}
	built.Text, built.ReadList = p.text(), p.readList
	if p.Fill.From != nil {
		source, err := p.Fill.From.build(false)
		if err != nil {
			return nil, fmt.Errorf("fill_from: pool %s: %w", p.Fill.Pool, err)
		}
		built.Fill = &table.Fill{From: source, Rate: p.Fill.Rate, Remember: p.Fill.Remember}
	}
	if p.From == nil {
		return built, nil
	}
	former := *p.From
	former.Failover.Mode = p.Failover.Mode
	from, err := former.build(false)
	if err != nil {
		return nil, fmt.Errorf("warm_from: pool %s: %w", former.Name, err)
	}
	built.From, built.Former = from.List(), former.Name
	return built, nil
}

// maxRebuilt is the maximum number of cached rings, each without the servers that are down. Real
// outages cause far fewer combinations of servers that are down at the same time.
const maxRebuilt = 64

// without returns a function that builds the pool's ring without some of its servers, as the client
// of the pool's distribution would rebuild it. The returned function caches the rings. Several
// loops may call it at the same time.
func (p *Pool) without() func(out []bool) (ring.Ring, error) {
	servers, distribution, options := p.placementServers(), p.Distribution, p.Placement
	var mu sync.Mutex
	rings := map[string]ring.Ring{}
	return func(out []bool) (ring.Ring, error) {
		if len(out) != len(servers) {
			return nil, fmt.Errorf("%d marks for %d servers", len(out), len(servers))
		}
		key := fmt.Sprint(out)
		mu.Lock()
		defer mu.Unlock()
		if r := rings[key]; r != nil {
			return r, nil
		}
		place, err := BuildPlacementWithout(distribution, servers, options, out)
		if err != nil {
			return nil, err
		}
		if len(rings) == maxRebuilt {
			clear(rings)
		}
		rings[key] = place.Ring
		return place.Ring, nil
	}
}

// inOrder reports whether the values of a multi-get are sent in the order of the request.
func (p *Pool) inOrder() bool {
	if p.Multiget != "" {
		return p.Multiget == "request"
	}
	preset, _ := FindPreset(p.Distribution)
	return preset.InOrder
}

// build returns the tag settings of a route for the table.
func (t *Tags) build(r *Route, space *TagSpace) *table.TagSettings {
	built := &table.TagSettings{Suffix: t.Suffix, Read: t.Read}
	built.Namespace = stamp.In(space.Namespace)
	if t.PrefixTag {
		built.Prefix = bytes.Clone([]byte(r.Prefix))
	}
	for _, p := range t.Patterns {
		if made, err := stamp.ParsePattern(p.Match, p.Tags); err == nil { // ParsePattern cannot fail here, because the parser of the file has checked the pattern
			built.Patterns = append(built.Patterns, made)
		}
	}
	return built
}

// guard returns the guard settings of a route that has tags and sets no guard of its own. With
// these settings a miss reserves the key, and a set that follows is bound to that miss. No get
// waits for another client's rebuild.
func (t *Tags) guard() *table.GuardSettings {
	return &table.GuardSettings{Hide: t.Read, Lease: 10 * time.Second, LeaseMax: time.Minute}
}
