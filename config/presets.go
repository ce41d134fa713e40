package config

// Presets: the placement rule of each client by name, its options, and how it is built.

import (
	"fmt"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"

	"ringside/ketama"
	"ringside/modulo"
	"ringside/ring"
)

// PlacementServer is one server as a placement is built from it: the text of its address, an
// optional name to hash instead, and its weight (0 means 1).
type PlacementServer = ring.Server

// PlacementOptions are the options of a preset. The zero value of each means the preset's
// default. A preset rejects options that it does not support.
type PlacementOptions struct {
	Hash            string   // hash of keys, by the client's name for it
	PointHash       string   // hash of ring points, if it can differ from that of keys
	Points          int      // ring points of a server of weight 1
	Order           string   // order in which servers are numbered: listed, natural, length or host
	Seed            string   // seed of the hash
	Salt            string   // text that is appended to a key before hashing
	UnsignedChars   bool     // C hash functions read bytes above 127 as on machines with unsigned char (ARM)
	HashTag         string   // two characters; only the part of a key between them is hashed
	HashStop        string   // only the part of a key before this text is hashed; "none" disables the preset's own
	HashStripPrefix []string // prefixes of keys that are not hashed
}

// WeightUse is what a preset does with weights.
type WeightUse uint8

const (
	WeightsUsed    WeightUse = iota
	WeightsIgnored           // the client accepts weights, but they do not change its placement
	WeightsRefused           // the client has no weights, so the preset rejects them
)

// DeadRule is what a client with failover enabled does with the keys of a server that it
// considers dead.
type DeadRule uint8

const (
	DeadStays    DeadRule = iota // keys do not move: an error or a miss
	DeadWalks                    // the client asks the next server of its order: Ring.At with n = 1, 2…
	DeadRebuilds                 // the client rebuilds the ring from the live servers: BuildPlacementWithout
)

// Preset is the placement of one client. Every preset accepts hash_tag, hash_stop and
// hash_strip_prefix, which are applied before its rule.
type Preset struct {
	Name    string
	Aliases []string
	For     string // the clients and modes that use it, in one line

	Hashes      []string // values of the option hash, the default first; with one or none, there is no choice
	PointHashes []string // values of the option point_hash; the default is the key hash
	Orders      []string // values of the option order, the default first
	MinPoints   int      // bounds of the option points; 0: the preset does not have this option
	MaxPoints   int
	Points      int      // the default of the option points
	Options     []string // names of all options that it accepts
	Weights     WeightUse

	InOrder bool // the client treats values of a multi-get that arrive out of order as misses

	Dead DeadRule
	New  bool // for new pools, not that of an existing client

	stop     string // default of hash_stop
	emptyTag bool   // for an empty hash tag, hash the empty string, not the whole key
	needs    string // the error if the option hash is not set; empty: hash is optional
	unit     int    // points must be a multiple of this; 0: any number
	hashes   hashNames
	build    func(choice) (ring.Hash, ring.Ring, error)
}

// choice holds the arguments from which a preset is built.
type choice struct {
	servers    []ring.Server
	key, point ring.Algorithm
	points     int
	order      ring.Order
	seed, salt string
}

// Presets returns all presets, those for new pools first. The caller may change the slice, but
// not what its elements refer to.
func Presets() []Preset { return slices.Clone(presets) }

// FindPreset returns the preset with this name or alias.
func FindPreset(name string) (Preset, bool) {
	for _, p := range presets {
		if p.Name == name || slices.Contains(p.Aliases, name) {
			return p, true
		}
	}
	return Preset{}, false
}

// BuildPlacement returns the placement of servers by the preset with this name. An error names
// the wrong option or server, and what is allowed.
func BuildPlacement(distribution string, servers []PlacementServer, o PlacementOptions) (ring.Placement, error) {
	p, ok := FindPreset(distribution)
	if !ok {
		return ring.Placement{}, fmt.Errorf("no distribution %q%s", distribution, didYouMean(distribution, presetWords()))
	}
	return p.place(distribution, servers, o)
}

// BuildPlacementWithout returns the placement that the preset's client uses once it has
// detected that some of servers are dead, with failover enabled. With DeadStays, the keys of
// dead servers have no owner (-1). Indices are those of the whole list.
func BuildPlacementWithout(distribution string, servers []PlacementServer, o PlacementOptions, dead []bool) (ring.Placement, error) {
	placement, err := BuildPlacement(distribution, servers, o)
	if err != nil {
		return placement, err
	}
	p, _ := FindPreset(distribution)
	switch p.Dead {
	case DeadStays:
		placement.Ring = ring.Stay(placement.Ring, dead)
		return placement, nil
	case DeadWalks:
		placement.Ring = ring.Skip(placement.Ring, dead)
		return placement, nil
	}
	var left []ring.Server
	var indices []int
	for i, s := range servers {
		if !dead[i] {
			left, indices = append(left, s), append(indices, i)
		}
	}
	rebuilt := ring.Placement{Ring: ring.NewTable(0, nil, ring.TableOptions{})}
	if len(left) > 0 {
		if rebuilt, err = p.place(distribution, left, o); err != nil {
			return rebuilt, err
		}
	}
	placement.Ring = ring.Live(rebuilt.Ring, indices, len(servers))
	return placement, nil
}

func presetWords() []string {
	var words []string
	for _, p := range presets {
		words = append(append(words, p.Name), p.Aliases...)
	}
	return words
}

// place builds the placement. as is the name or alias for errors.
func (p *Preset) place(as string, servers []ring.Server, o PlacementOptions) (ring.Placement, error) {
	fail := func(err error) (ring.Placement, error) {
		return ring.Placement{}, fmt.Errorf("distribution %s: %w", as, err)
	}
	if len(servers) == 0 {
		return fail(fmt.Errorf("no servers"))
	}
	for _, s := range servers {
		switch {
		case s.Weight < 0:
			return fail(fmt.Errorf("server %s: weight %d is negative", s.Address(), s.Weight))
		case s.Weight > 1 && p.Weights == WeightsRefused:
			return fail(fmt.Errorf("server %s: weight %d: this client knows no weights", s.Address(), s.Weight))
		}
	}
	c, err := p.choose(o)
	if err != nil {
		return fail(err)
	}
	c.servers = servers
	part, err := p.part(o)
	if err != nil {
		return fail(err)
	}
	hash, r, err := p.build(c)
	if err != nil {
		return fail(err)
	}
	return ring.Placement{Part: part, Hash: hash, Ring: r, Dear: ring.Dear(c.key, r), Fingerprint: p.fingerprint(servers, o, part)}, nil
}

// choose checks the options that depend on the preset's rule. It returns the arguments from
// which the preset is built.
func (p *Preset) choose(o PlacementOptions) (choice, error) {
	c := choice{points: p.Points, order: ring.Listed, seed: o.Seed, salt: o.Salt}
	if p.needs != "" && o.Hash == "" {
		return c, fmt.Errorf("%s", p.needs)
	}
	var err error
	if c.key, err = p.algorithm("hash", o.Hash, p.Hashes); err != nil {
		return c, err
	}
	c.point = c.key
	if o.PointHash != "" {
		if c.point, err = p.algorithm("point_hash", o.PointHash, p.PointHashes); err != nil {
			return c, err
		}
	}
	if o.UnsignedChars {
		key, keyHas := c.key.Unsigned()
		point, pointHas := c.point.Unsigned()
		if !keyHas && !pointHas {
			return c, fmt.Errorf("char: unsigned makes no difference to its hash; leave it out")
		}
		c.key, c.point = key, point
	}
	if o.Points != 0 {
		switch {
		case p.MaxPoints == 0:
			return c, p.refuse("points", "their number is the client's own; ketama-points lets one choose")
		case o.Points < p.MinPoints || o.Points > p.MaxPoints:
			return c, fmt.Errorf("points: %d must be %d to %d", o.Points, p.MinPoints, p.MaxPoints)
		case p.unit > 0 && o.Points%p.unit != 0:
			return c, fmt.Errorf("points: %d must be a multiple of %d", o.Points, p.unit)
		}
		c.points = o.Points
	}
	if o.Order != "" {
		if len(p.Orders) == 0 {
			return c, p.refuse("order", "the order is the client's own")
		}
		if !slices.Contains(p.Orders, o.Order) {
			return c, fmt.Errorf("order: %q must be one of %s", o.Order, strings.Join(p.Orders, ", "))
		}
		c.order = orders[o.Order]
	}
	if o.Seed != "" && !slices.Contains(p.Options, "seed") {
		return c, p.refuse("seed", "its hash takes none")
	}
	if o.Salt != "" && !slices.Contains(p.Options, "salt") {
		return c, p.refuse("salt", "its hash takes none")
	}
	return c, nil
}

func (p *Preset) algorithm(option, name string, allowed []string) (ring.Algorithm, error) {
	if name == "" {
		if len(p.hashes) == 0 {
			return 0, nil
		}
		return p.hashes[0].algorithm, nil
	}
	if !slices.Contains(allowed, name) {
		if len(allowed) == 0 {
			return 0, p.refuse(option, "the hash is part of the rule")
		}
		return 0, fmt.Errorf("%s: %q must be one of %s", option, name, strings.Join(allowed, ", "))
	}
	i := slices.IndexFunc(p.hashes, func(h namedHash) bool { return h.name == name })
	return p.hashes[i].algorithm, nil
}

// refuse returns the error for an option that the preset does not accept.
func (p *Preset) refuse(option, why string) error {
	return fmt.Errorf("option %s is not allowed: %s (allowed: %s)", option, why, strings.Join(p.Options, ", "))
}

// noStop is the value of hash_stop that disables the preset's own stop text.
const noStop = "none"

func (p *Preset) part(o PlacementOptions) (ring.Part, error) {
	part := ring.Part{EmptyTag: p.emptyTag}
	for _, prefix := range o.HashStripPrefix {
		if prefix == "" {
			return part, fmt.Errorf("hash_strip_prefix: an empty prefix strips nothing; leave it out")
		}
		part.StripPrefixes = append(part.StripPrefixes, []byte(prefix))
	}
	switch o.HashStop {
	case "":
		part.Stop = []byte(p.stop)
	case noStop:
	default:
		part.Stop = []byte(o.HashStop)
	}
	if o.HashTag != "" {
		if len(o.HashTag) != 2 {
			return part, fmt.Errorf("hash_tag: %q must be two characters, such as \"{}\"", o.HashTag)
		}
		part.Tag, part.HasTag = [2]byte{o.HashTag[0], o.HashTag[1]}, true
	}
	return part, nil
}

var orders = map[string]ring.Order{
	"listed":  ring.Listed,
	"natural": ring.Natural,
	"length":  ring.ByLength,
	"host":    ring.ByHost,
}

// The following functions return build functions for rules.

func onCircle(rule ketama.Rule) func(choice) (ring.Hash, ring.Ring, error) {
	return onCircleOf(func(choice) ketama.Rule { return rule })
}

func onCircleOf(rule func(choice) ketama.Rule) func(choice) (ring.Hash, ring.Ring, error) {
	return func(c choice) (ring.Hash, ring.Ring, error) {
		r := rule(c)
		r.KeyBits = c.key.Bits()
		circle, err := r.Circle(c.servers)
		return c.key.Sum, circle, err
	}
}

func onWide(make func([]ring.Server) (*ring.Wide, error)) func(choice) (ring.Hash, ring.Ring, error) {
	return func(c choice) (ring.Hash, ring.Ring, error) {
		wide, err := make(c.servers)
		return c.key.Sum, wide, err
	}
}

// maxEntries is the largest size of a table that has one entry per unit of weight.
const maxEntries = 1 << 22

func onTable(rule modulo.Rule) func(choice) (ring.Hash, ring.Ring, error) {
	return onTableOf(func(choice) modulo.Rule { return rule })
}

func onTableOf(rule func(choice) modulo.Rule) func(choice) (ring.Hash, ring.Ring, error) {
	return func(c choice) (ring.Hash, ring.Ring, error) {
		entries := 0
		for _, s := range c.servers {
			entries += s.Share()
		}
		if entries > maxEntries {
			return nil, nil, fmt.Errorf("the weights add up to %d, more than %d: divide them by a common factor", entries, maxEntries)
		}
		return c.key.Sum, rule(c).Table(c.servers, min(c.key.Bits(), 32)), nil
	}
}

func onOrderedTable(rule modulo.Rule) func(choice) (ring.Hash, ring.Ring, error) {
	return onTableOf(func(c choice) modulo.Rule {
		rule.Order = c.order
		return rule
	})
}

func buckets(c choice) (ring.Hash, ring.Ring, error) {
	table, err := ketama.Pecl(c.key).Buckets(c.servers)
	return c.key.Sum, table, err
}

// accidental returns libmemcached's rule for an unweighted ring. In libmemcached, adding a
// server with a weight turns the ring into a weighted one, but the key hash stays the same.
func accidental(unweighted func(ring.Algorithm) ketama.Rule, weighted ketama.Rule) func(choice) ketama.Rule {
	return func(c choice) ketama.Rule {
		if slices.ContainsFunc(c.servers, func(s ring.Server) bool { return s.Weight > 1 }) {
			return weighted
		}
		return unweighted(c.point)
	}
}

func jump(c choice) (ring.Hash, ring.Ring, error) {
	return c.key.Sum, ring.NewJump(c.order(c.servers)), nil
}

func jumpNatural(c choice) (ring.Hash, ring.Ring, error) {
	return c.key.Sum, ring.NewJump(ring.Natural(c.servers)), nil
}

func jumpSeeded(c choice) (ring.Hash, ring.Ring, error) {
	hash := ring.Hash(c.key.Sum)
	if c.seed != "" {
		seed := xxh3.HashString(c.seed)
		hash = func(key []byte) uint64 { return xxh3.HashSeed(key, seed) }
	}
	return hash, ring.NewJump(ring.Listed(c.servers)), nil
}

func ch3(c choice) (ring.Hash, ring.Ring, error) {
	return saltedOr(c), ring.NewCh3(len(c.servers)), nil
}

func saltedOr(c choice) ring.Hash {
	if c.salt == "" {
		return c.key.Sum
	}
	return ring.Salted(c.key, c.salt)
}

func crcMcrouter(c choice) (ring.Hash, ring.Ring, error) {
	return saltedOr(c), modulo.Mcrouter.Table(c.servers, c.key.Bits()), nil
}

func rendezvousMcrouter(c choice) (ring.Hash, ring.Ring, error) {
	var tags []string
	for _, s := range c.servers {
		tags = append(tags, s.Text())
	}
	return saltedOr(c), ring.NewMcrouter(tags), nil
}

func rendezvousPymemcache(bytesKeys bool) func(choice) (ring.Hash, ring.Ring, error) {
	return func(c choice) (ring.Hash, ring.Ring, error) {
		var nodes []string
		for _, s := range c.servers {
			if s.Name == "" {
				s.Name = s.Bare()
			}
			nodes = append(nodes, s.Name)
		}
		return ring.PymemcacheHash, ring.NewPymemcache(nodes, bytesKeys), nil
	}
}
