package config

// This file reads the distribution of a pool with its options, checks them, and builds the
// placement.

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ringside/proxy/serverlist"
	"ringside/ring"
)

// These constants are bounds on weights. In most rings, a weight is a share of a whole, and may be
// large. In other rings, each unit of weight adds ring points or table entries, and the bound keeps
// a reload from lasting seconds.
const (
	maxWeight = serverlist.MaxWeight
	maxPlaces = 1 << 20 // largest number of points of a ring, or entries of a table
)

// places returns how many ring points or table entries each unit of weight adds. It returns 0 if
// weights do not change the number of points or entries.
func (p *Preset) places(o PlacementOptions) int {
	switch {
	case p.Weights != WeightsUsed:
		return 0
	case p.Name == "ketama-points", p.Name == "perl-fast-ketama":
		return max(o.Points, p.Points)
	case p.Name == "pecl-consistent", p.Name == "uhashring", strings.HasPrefix(p.Name, "xmemcached"):
		return 160
	case p.Name == "serialx", strings.HasPrefix(p.Name, "modulo"):
		return 1
	}
	return 0
}

func placementKeys() []key[Pool] {
	type p = Pool
	return []key[Pool]{
		set("distribution", "the placement rule", distribution(), func(p *p) *string { return &p.Distribution }),
		set("hash", "hash function of keys, if the distribution allows a choice", text("the name of a hash"), func(p *p) *string { return &p.Placement.Hash }),
		set("point_hash", "hash function of ring points, if it can differ from that of keys",
			text("the name of a hash"), func(p *p) *string { return &p.Placement.PointHash }),
		set("points", "ring points of a server of weight 1, if the distribution allows a choice",
			integer(1, 10_000), func(p *p) *int { return &p.Placement.Points }),
		set("order", "order in which servers are numbered, if the distribution allows a choice",
			text("the name of an order"), func(p *p) *string { return &p.Placement.Order }),
		set("seed", "seed of the hash, if the distribution has one", text("a seed"), func(p *p) *string { return &p.Placement.Seed }),
		set("salt", "text that is appended to keys before hashing, if the distribution has it",
			text("a salt"), func(p *p) *string { return &p.Placement.Salt }),
		set("char", "how C hash functions read bytes above 127: signed as on x86, unsigned as on ARM",
			oneOf(option[bool]{"signed", false}, option[bool]{"unsigned", true}), func(p *p) *bool { return &p.Placement.UnsignedChars }),
		set("hash_tag", `two characters, such as "{}": of a key that has both, only the text between them is hashed`,
			hashTag(), func(p *p) *string { return &p.Placement.HashTag }),
		set("hash_stop", `hash only the part of a key before this text, such as "|#|"`, text("text in keys"), func(p *p) *string { return &p.Placement.HashStop }),
		set("hash_strip_prefix", "prefixes that clients send but do not hash; one or a list",
			oneOrMore(prefixText()), func(p *p) *[]string { return &p.Placement.HashStripPrefix }),
	}
}

func distribution() value[string] {
	v := text("the name of a distribution, such as ketama-points")
	v.schema = schema{"enum": presetWords()}
	return v
}

func hashTag() value[string] {
	v := before(text("two characters"), func(d *document, n *node, path string, _ *string) bool {
		empty, wrong := n.kind != scalar && len(n.items)+len(n.pairs) == 0, n.tag == "!!str" && (len(n.text) != 2 || !printable(n.text))
		if empty {
			d.failAt(n, `%s must be two characters in quotes: "{}" or "[]"`, path)
		} else if wrong {
			d.wrong(n, path, `two characters, such as "{}"`)
		}
		return empty || wrong
	})
	v.schema = schema{"type": "string", "minLength": 2, "maxLength": 2}
	return v
}

// checkPlacement checks the distribution setting of a pool. It then builds the placement, to find
// further errors.
func (d *document) checkPlacement(p *Pool) {
	if p.Distribution == "" {
		if d.where[&p.Distribution] == nil {
			d.failAt(d.place(p), "pools.%s.distribution is missing: the rule that gives keys to servers; ketama-points for a new pool, 'ringside distributions' lists all", p.Name)
		}
		return
	}
	wrong := func(err error) { // records an error of the distribution itself: at `defaults` if the pool inherits the distribution, else at the pool
		if n := d.inherited[&p.Distribution]; n != nil && d.where[&p.Distribution] == nil {
			d.failAt(n, "defaults: %v", err)
			return
		}
		d.blame(p, err, &p.Distribution)
	}
	preset, ok := FindPreset(p.Distribution)
	switch near := didYouMean(p.Distribution, presetWords()); {
	case p.Distribution == "random":
		wrong(errors.New("no distribution \"random\": it would give no key an owner, so a get would ask a server that does not have the value; write ketama-points, or another of 'ringside distributions'"))
		return
	case !ok && near != "":
		wrong(fmt.Errorf("no distribution %s%s; 'ringside distributions' lists all", quote(p.Distribution), near))
		return
	case !ok:
		wrong(fmt.Errorf("no distribution %s; %s", quote(p.Distribution), knownPresets()))
		return
	case preset.needs != "" && p.Placement.Hash == "" && d.where[&p.Placement.Hash] == nil:
		wrong(fmt.Errorf("distribution %s: %s", p.Distribution, preset.needs))
		return
	}
	light := *p // a copy of the pool without the weights that are reported here as errors
	light.Servers = slices.Clone(p.Servers)
	for i := range p.Servers {
		if s := &p.Servers[i]; s.Weight > 1 && preset.Weights == WeightsRefused {
			d.failAt(d.place(&s.Weight, s), "pools.%s.servers[%d].weight must be 1, not %d: the distribution %s knows no weights", p.Name, i, s.Weight, p.Distribution)
			light.Servers[i].Weight = 1
		}
	}
	if slices.ContainsFunc(p.Servers, func(s Server) bool { return s.Address.Network == "" }) || len(p.Servers) == 0 {
		return // the missing address or servers are already reported; an error of building would name another cause
	}
	o := &p.Placement
	settings := map[string]any{
		"hash": &o.Hash, "point_hash": &o.PointHash, "points": &o.Points, "order": &o.Order, "seed": &o.Seed, "salt": &o.Salt, "char": &o.UnsignedChars,
	}
	_, wrongOptions := preset.choose(*o)
	for _, e := range wrongOptions {
		d.blame(p, fmt.Errorf("distribution %s: %w", p.Distribution, e.err), settings[e.option], &p.Distribution)
	}
	if _, err := light.place(); err != nil && wrongOptions == nil {
		d.blame(p, err, &p.Distribution)
	}
}

// blame records that the pool p cannot be built. The position is that of the first setting in
// settings that the file contains.
func (d *document) blame(p *Pool, err error, settings ...any) {
	d.failAt(d.place(append(settings, p)...), "pools.%s: %v", p.Name, err)
}

func knownPresets() string {
	var names []string
	for _, p := range Presets() {
		names = append(names, p.Name)
	}
	return "known: " + strings.Join(names, ", ")
}

func (p *Pool) place() (ring.Placement, error) {
	servers, weight := p.placementServers(), 0
	for _, s := range servers {
		weight += s.Weight
	}
	if preset, ok := FindPreset(p.Distribution); ok {
		if places := preset.places(p.Placement); weight*places > maxPlaces {
			return ring.Placement{}, fmt.Errorf("distribution %s: the servers weigh %d together; here at most %d",
				p.Distribution, weight, maxPlaces/places)
		}
	}
	return BuildPlacement(p.Distribution, servers, p.Placement)
}

// placementServers returns the servers of p in the form that a placement is built from.
func (p *Pool) placementServers() []PlacementServer {
	servers := make([]PlacementServer, len(p.Servers))
	for i, s := range p.Servers {
		servers[i] = PlacementServer{Name: s.Name, Weight: s.Weight}
		if s.Address.Network == "unix" {
			servers[i].Path = s.Address.Address
			continue
		}
		host, port, _ := s.Address.parts()
		servers[i].Host = host
		servers[i].Port, _ = strconv.Atoi(port) // the parser of the file has checked the port
	}
	return servers
}
