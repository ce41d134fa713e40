package config

// This file contains the kinds of placement rules from which the presets are made.

import (
	"fmt"
	"slices"

	"ringside/ketama"
	"ringside/modulo"
	"ringside/ring"

	"github.com/zeebo/xxh3"
)

// WeightUse is what a preset does with weights.
type WeightUse uint8

const (
	WeightsUsed    WeightUse = iota
	WeightsIgnored           // the client accepts weights, but they do not change its placement
	WeightsRefused           // the client has no weights, so the preset rejects them
)

// DeadRule is what a client does with the keys of a server that it considers dead, if its failover
// is enabled.
type DeadRule uint8

const (
	DeadStays    DeadRule = iota // keys of a dead server do not move: the client reports an error or a miss
	DeadWalks                    // the client asks the next server of its order: Ring.At with n = 1, 2…
	DeadRebuilds                 // the client rebuilds the ring from the live servers: BuildPlacementWithout
)

// Preset is the placement of one client. Every preset accepts the options hash_tag, hash_stop and
// hash_strip_prefix. They select the part of a key that the preset hashes.
type Preset struct {
	Name    string
	Aliases []string
	For     string // the clients that have this placement, with their modes, in one line

	Hashes      []string // values of the option hash, the default first; with fewer than two values, the preset has only one hash
	PointHashes []string // values of the option point_hash; the default is the key hash
	Orders      []string // values of the option order, the default first
	MinPoints   int      // smallest value of the option points; 0: the preset does not have this option
	MaxPoints   int
	Points      int      // the default of the option points
	Options     []string // names of all options that the preset accepts
	Weights     WeightUse

	InOrder bool // the client treats values of a multi-get that arrive out of order as misses

	Dead DeadRule
	New  bool // true: the preset is for new pools, and is not the placement of an existing client

	stop     string // default of hash_stop
	emptyTag bool   // true: a key with an empty hash tag is hashed as the empty string; false: the whole key is hashed
	needs    string // error text if the file does not set the option hash; empty: hash is optional
	unit     int    // the option points must be a multiple of this number; 0: any number is allowed
	hashes   hashNames
	build    func(choice) (ring.Hash, ring.Ring, error)
}

// choice holds the arguments with which the rule of a preset is built.
type choice struct {
	servers    []ring.Server
	key, point ring.Algorithm
	points     int
	order      ring.Order
	seed, salt string
}

// hashNames lists the hash functions that a client offers, with the client's names for them. The
// first one is the default. One name can mean different functions: crc32 of twemproxy differs from
// crc32 of zlib.
type hashNames []namedHash

// namedHash is a hash function, with the name that the client uses for it.
type namedHash struct {
	name      string
	algorithm ring.Algorithm
}

// from returns the list d with the hash called name moved to the front.
func (d hashNames) from(name string) hashNames {
	i := slices.IndexFunc(d, func(h namedHash) bool { return h.name == name })
	return append(hashNames{d[i]}, slices.Concat(d[:i], d[i+1:])...)
}

// only returns the hashes of d that are called names, in the order of names.
func (d hashNames) only(names ...string) hashNames {
	var cut hashNames
	for _, name := range names {
		cut = append(cut, d.from(name)[0])
	}
	return cut
}

func fixed(a ring.Algorithm) hashNames { return hashNames{{"", a}} }

func (d hashNames) names() []string {
	var names []string
	for _, h := range d {
		if h.name != "" {
			names = append(names, h.name)
		}
	}
	return names
}

// PlacementServer is one server for which a placement is built: the text of its address, an
// optional name that is hashed instead, and its weight (0 means 1).
type PlacementServer = ring.Server

// PlacementOptions are the options of a preset. The zero value of each means the preset's
// default. A preset rejects options that it does not support.
type PlacementOptions struct {
	Hash            string   // hash function for keys, by the client's name for it
	PointHash       string   // hash function for ring points, if it can differ from that for keys
	Points          int      // number of ring points of a server with weight 1
	Order           string   // how servers are numbered: listed, natural, length or host
	Seed            string   // seed of the hash
	Salt            string   // text that is appended to a key before hashing
	UnsignedChars   bool     // true: C hash functions treat bytes above 127 as positive, as on machines with unsigned char (ARM)
	HashTag         string   // two characters, such as {}; only the part of a key between them is hashed
	HashStop        string   // only the part of a key before this text is hashed; "none" switches off the preset's default
	HashStripPrefix []string // prefixes that are removed from a key before hashing
}

var orders = map[string]ring.Order{
	"listed":  ring.Listed,
	"natural": ring.Natural,
	"length":  ring.ByLength,
	"host":    ring.ByHost,
}

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
		ordered := rule // not rule itself: two files can be read at the same time
		ordered.Order = c.order
		return ordered
	})
}

func buckets(c choice) (ring.Hash, ring.Ring, error) {
	table, err := ketama.Pecl(c.key).Buckets(c.servers)
	return c.key.Sum, table, err
}

// accidental returns libmemcached's rule for a ring without weights. If a server has a weight,
// libmemcached builds the ring with weights instead, and keeps the key hash of the ring without
// weights.
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
