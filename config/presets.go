package config

// Every client's way of giving keys to servers, by name: what it is, what it
// lets one choose, and how it is built.

import (
	"fmt"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"

	"ringside/ketama"
	"ringside/modulo"
	"ringside/ring"
)

// PlacementServer is one server as a placement sees it: the text of its
// address, an optional name to hash it by, and its weight (0 means 1).
type PlacementServer = ring.Server

// PlacementOptions narrow a preset. The zero value of each is what the preset
// says; a preset refuses what it can't honour.
type PlacementOptions struct {
	Hash            string   // of keys, by the name the client itself gives it
	PointHash       string   // of points, where it may differ from the key hash
	Points          int      // of a server of weight 1
	Order           string   // in which the servers are numbered: listed, natural, length or host
	Seed            string   // of the hash
	Salt            string   // appended to the key before it is hashed
	UnsignedChars   bool     // C hashes read bytes above 127 as compiled where char is unsigned (ARM)
	HashTag         string   // two characters; what stands between them is hashed
	HashStop        string   // what stands before it is hashed; "none" turns a preset's own off
	HashStripPrefix []string // beginnings of keys that are not hashed
}

// WeightUse says what a preset does with weights.
type WeightUse uint8

const (
	WeightsUsed    WeightUse = iota
	WeightsIgnored           // the client takes weights and keeps its keys where they are without
	WeightsRefused           // the client can't be given weights, and neither can the preset
)

// DeadRule says what a client does with the keys of a server it takes for
// dead, once its failover is on.
type DeadRule uint8

const (
	DeadStays    DeadRule = iota // nothing moves: an error or a miss
	DeadWalks                    // it asks the next server of its order: Ring.At with n = 1, 2…
	DeadRebuilds                 // it builds the whole ring again from the live servers: BuildPlacementWithout
)

// Preset is one client's placement. Every preset takes hash_tag, hash_stop and
// hash_strip_prefix, which act before its rule.
type Preset struct {
	Name    string
	Aliases []string
	For     string // who uses it, one line

	Hashes      []string // values of the option hash, the default first; one or none leaves no choice
	PointHashes []string // values of the option point_hash; its default is the key hash
	Orders      []string // values of the option order, the default first
	MinPoints   int      // bounds of the option points; 0 leaves no choice
	MaxPoints   int
	Points      int // the default of the option points
	Options     []string
	Weights     WeightUse

	InOrder bool // the client takes values that come out of order for misses

	Dead DeadRule
	New  bool // for new pools: it stands for no existing client

	stop     string // what stands before it is hashed
	emptyTag bool   // an empty tag hashes the empty string
	needs    string // what is wrong without a hash
	unit     int    // points come in so many
	hashes   hashNames
	build    func(choice) (ring.Hash, ring.Ring, error)
}

// choice is what a preset is built from.
type choice struct {
	servers    []ring.Server
	key, point ring.Algorithm
	points     int
	order      ring.Order
	seed, salt string
}

// Presets returns all presets, those for new pools first. The slice is the
// caller's, what it refers to is not.
func Presets() []Preset { return slices.Clone(presets) }

// FindPreset returns the preset of a name or an alias.
func FindPreset(name string) (Preset, bool) {
	for _, p := range presets {
		if p.Name == name || slices.Contains(p.Aliases, name) {
			return p, true
		}
	}
	return Preset{}, false
}

// BuildPlacement returns the placement of servers by the preset of this name.
// An error says which option or server is wrong and what is allowed.
func BuildPlacement(distribution string, servers []PlacementServer, o PlacementOptions) (ring.Placement, error) {
	p, ok := FindPreset(distribution)
	if !ok {
		return ring.Placement{}, fmt.Errorf("no distribution %q%s", distribution, didYouMean(distribution, presetWords()))
	}
	return p.place(distribution, servers, o)
}

// BuildPlacementWithout returns what the preset's client makes of the same list
// once it has noticed that some servers are dead and its failover is on. Of a
// client whose rule is DeadStays the keys of dead servers are owned by nobody
// (-1). Indices are those of the whole list.
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

// place builds the placement; as is the name or alias that errors say.
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

// choose reads the options that belong to the rule.
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

// refuse says that the preset doesn't take an option, why, and what it takes.
func (p *Preset) refuse(option, why string) error {
	return fmt.Errorf("option %s is not allowed: %s (allowed: %s)", option, why, strings.Join(p.Options, ", "))
}

// noStop turns off the stop text that a preset has of its own.
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

// How a rule becomes a build function.

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

// maxEntries bounds a table in which servers stand as often as they weigh.
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

// accidental is libmemcached's unweighted circle, which turns into the weighted
// one, key hash kept, when a server with a weight is added to it.
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
