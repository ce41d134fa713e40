package table

// This file defines the JSON form of a plan for `ringside route --json` and the dashboard, and
// the reasons why a key has no server.

import (
	"fmt"
	"strings"

	"ringside/proxy/health/divert"
)

// Planned is the JSON form of a Plan.
type Planned struct {
	Key         string          `json:"key"`
	Pool        string          `json:"pool,omitempty"`
	Prefix      string          `json:"prefix,omitempty"`
	Match       string          `json:"match,omitempty"` // the route's pattern; empty: Prefix applies
	Hashed      string          `json:"hashed,omitempty"`
	Hash        string          `json:"hash,omitempty"`  // hexadecimal, because a JSON number cannot hold 64 bits
	Hits        string          `json:"hits,omitempty"`  // the kind of ring element that the hash selected: point, bucket, entry or score
	Point       string          `json:"point,omitempty"` // value of the ring element that the hash selected, in hexadecimal; empty: it has none
	Index       *int            `json:"index,omitempty"` // index of the ring element that the hash selected; nil: it has none
	Of          int             `json:"of,omitempty"`    // number of elements of the ring; 0: they are not numbered
	Owner       string          `json:"owner,omitempty"`
	Address     string          `json:"address,omitempty"`
	Successors  []string        `json:"successors,omitempty"`
	Replicas    []PlannedServer `json:"replicas,omitempty"`    // replicas, the primary first
	Substitutes []PlannedServer `json:"substitutes,omitempty"` // substitute servers, in order
	Error       string          `json:"error,omitempty"`
}

// PlannedServer is a server in a Planned.
type PlannedServer struct {
	Pool    string `json:"pool"`
	Server  string `json:"server"`
	Address string `json:"address"`
	Host    string `json:"host"`
	Zone    string `json:"zone,omitempty"`
}

// Nowhere returns the reason why p's key has no server, or "" if it has one. encoded is set if
// the user gave the key in base64, as meta commands can send it.
func (p *Plan) Nowhere(l *Limits, encoded bool) string {
	switch {
	case p.Key == "":
		return "no server will see this key: it is empty"
	case len(p.Key) > l.Key:
		return fmt.Sprintf("no server will see this key: it has %d bytes, at most %d are allowed", len(p.Key), l.Key)
	case !encoded && strings.ContainsFunc(p.Key, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return "only meta commands can send this key, in base64, since it holds blanks or control characters: give it so, with --base64"
	case strings.HasPrefix(p.Key, divert.Reserved):
		return fmt.Sprintf("clients can't use keys that begin with %s: they are Ringside's own", divert.Reserved)
	case !p.Routed:
		return "no route takes this key; add one without a prefix"
	}
	return ""
}

// JSON returns the JSON form of p. why is the result of Nowhere: if it is set, Planned only
// has the key and this reason.
func (p *Plan) JSON(why string) Planned {
	is := Planned{Key: p.Key, Error: why}
	if why != "" {
		return is
	}
	is.Pool, is.Prefix, is.Match, is.Hashed, is.Hash, is.Hits = p.Pool.Name, p.Prefix, p.Match, p.Hashed, fmt.Sprintf("%08x", p.Hash), p.Hit.Kind
	is.Point, is.Of = p.Hit.Value, p.Hit.Of
	if p.Hit.Of > 0 {
		is.Index = &p.Hit.Index
	}
	is.Successors = p.SuccessorNames()
	is.Replicas, is.Substitutes = plannedServers(p.Copies), plannedServers(p.Substitutes)
	if p.Owner >= 0 {
		is.Owner, is.Address = p.Pool.Servers[p.Owner].Name, p.Pool.Servers[p.Owner].Address
	}
	return is
}

// SuccessorNames returns the names of p.Successors.
func (p *Plan) SuccessorNames() []string {
	names := make([]string, 0, len(p.Successors))
	for _, i := range p.Successors {
		names = append(names, p.Pool.Servers[i].Name)
	}
	return names
}

func plannedServers(list []PoolServer) (all []PlannedServer) {
	for _, m := range list {
		t := m.Target()
		all = append(all, PlannedServer{m.Pool.Name, t.Name, t.Address, t.Host, t.Zone})
	}
	return all
}
