package config

// This file finds presets, the placement rules of clients, by name, checks their options, and
// builds their placements.

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"ringside/ring"
)

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

// BuildPlacementWithout returns the placement that a client of a preset with DeadRebuilds uses when
// some of servers are dead. The client has failover enabled and has detected all dead servers. Indices
// of servers are those in the whole list servers.
func BuildPlacementWithout(distribution string, servers []PlacementServer, o PlacementOptions, dead []bool) (ring.Placement, error) {
	placement, err := BuildPlacement(distribution, servers, o)
	if err != nil {
		return placement, err
	}
	p, _ := FindPreset(distribution)
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

// place builds the placement of the preset. as is the name or alias of the preset in error
// messages.
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
	c, wrong := p.choose(o)
	if wrong != nil {
		return fail(wrong[0].err)
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
	return ring.Placement{Part: part, Hash: hash, Ring: r, Dear: ring.Dear(c.key, r), Fingerprint: p.fingerprint(servers, o, part), Keys: p.hashing(o, part)}, nil
}

// An optionError is the error of one placement option.
type optionError struct {
	option string
	err    error
}

// choose checks the options that the preset's rule uses. It returns the arguments with which the
// rule is built, or the errors of the options.
func (p *Preset) choose(o PlacementOptions) (c choice, errs []optionError) {
	c = choice{points: cmp.Or(o.Points, p.Points), order: ring.Listed, seed: o.Seed, salt: o.Salt}
	reject := func(option string, is bool, format string, args ...any) {
		if is {
			errs = append(errs, optionError{option, fmt.Errorf(format, args...)})
		}
	}
	refuse := func(option string, is bool, why string) {
		reject(option, is, "option %s is not allowed: %s (allowed: %s)", option, why, strings.Join(p.Options, ", "))
	}
	algorithm := func(option, name string, allowed []string) ring.Algorithm {
		refuse(option, name != "" && len(allowed) == 0, "the hash is part of the rule")
		reject(option, name != "" && len(allowed) > 0 && !slices.Contains(allowed, name), "%s: %q must be one of %s", option, name, strings.Join(allowed, ", "))
		for i, h := range p.hashes {
			if h.name == name || name == "" && i == 0 {
				return h.algorithm
			}
		}
		return 0
	}
	reject("hash", p.needs != "" && o.Hash == "", "%s", p.needs)
	c.key = algorithm("hash", o.Hash, p.Hashes)
	if c.point = c.key; o.PointHash != "" && errs == nil {
		c.point = algorithm("point_hash", o.PointHash, p.PointHashes)
	}
	if o.UnsignedChars && errs == nil {
		var ofKey, ofPoint bool
		c.key, ofKey = c.key.Unsigned()
		c.point, ofPoint = c.point.Unsigned()
		reject("char", !ofKey && !ofPoint, "char: unsigned makes no difference to its hash; leave it out")
	}
	refuse("points", o.Points != 0 && p.MaxPoints == 0, "their number is the client's own; ketama-points lets one choose")
	if o.Points != 0 && p.MaxPoints > 0 {
		reject("points", o.Points < p.MinPoints || o.Points > p.MaxPoints, "points: %d must be %d to %d", o.Points, p.MinPoints, p.MaxPoints)
		reject("points", p.unit > 0 && o.Points%p.unit != 0, "points: %d must be a multiple of %d", o.Points, p.unit)
	}
	refuse("order", o.Order != "" && len(p.Orders) == 0, "the order is the client's own")
	if o.Order != "" && len(p.Orders) > 0 {
		reject("order", !slices.Contains(p.Orders, o.Order), "order: %q must be one of %s", o.Order, strings.Join(p.Orders, ", "))
		c.order = orders[o.Order]
	}
	refuse("seed", o.Seed != "" && !slices.Contains(p.Options, "seed"), "its hash takes none")
	refuse("salt", o.Salt != "" && !slices.Contains(p.Options, "salt"), "its hash takes none")
	return c, errs
}

// noStop is the value of the option hash_stop that switches off the preset's default for it.
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

// fingerprint returns a hash of everything that the placement is built from: the settings in the
// file, with defaults filled in. It is equal in every process. It is also equal for equivalent
// settings: an alias of the distribution, a default that is set explicitly, or a weight that the
// client ignores.
func (p *Preset) fingerprint(servers []ring.Server, o PlacementOptions, part ring.Part) string {
	hash := p.hash(o)
	h := fnv.New64a()
	fmt.Fprintf(h, "%q hash %q point_hash %q points %d order %q seed %q salt %q unsigned %t stop %q tag %t %q strip %q",
		p.Name, hash, cmp.Or(o.PointHash, hash), cmp.Or(o.Points, p.Points), cmp.Or(o.Order, "listed"), o.Seed, o.Salt, o.UnsignedChars,
		part.Stop, part.HasTag, part.Tag, part.StripPrefixes)
	for _, s := range servers {
		if p.Weights == WeightsIgnored {
			s.Weight = 0
		}
		fmt.Fprintf(h, " server %q %d %q %q %d", s.Host, s.Port, s.Path, s.Name, s.Share())
	}
	return strconv.FormatUint(h.Sum64(), 36)
}

// hash returns the name of the hash of keys.
func (p *Preset) hash(o PlacementOptions) string {
	if len(p.hashes) > 0 {
		return cmp.Or(o.Hash, p.hashes[0].name)
	}
	return o.Hash
}

// hashing identifies how keys are hashed: see ring.Placement.Keys.
func (p *Preset) hashing(o PlacementOptions, part ring.Part) string {
	return fmt.Sprintf("%q %q %q %q %t %q %t %q %q", p.Name, p.hash(o), o.Seed, o.Salt, o.UnsignedChars, part.Stop, part.HasTag, part.Tag, part.StripPrefixes)
}
