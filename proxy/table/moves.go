package table

// This file computes which keys another table places on another server.

import (
	"cmp"
	"fmt"
	"slices"
)

// Moves says which keys of a pool move to other servers if a new table replaces an old one.
type Moves struct {
	Pool    string        `json:"pool"`
	Was     string        `json:"was,omitempty"` // the pool's name in the old table; empty: the same name
	New     bool          `json:"new,omitempty"` // the old table has no such pool
	Due     bool          `json:"due,omitempty"` // the old table waits for this change already, so the new one adds no move
	Share   float64       `json:"share"`         // share of the pool's keys that move, from 0 to 1
	Moves   []Move        `json:"moves"`         // the moves, the largest share first
	Servers []ServerMoves `json:"servers"`       // servers of both tables, those of the new table first
}

// Move is a part of the keys that leaves one server for another one.
type Move struct {
	From  string  `json:"from"` // name of the server; if its name changes, the new one; empty: no server
	To    string  `json:"to"`   // like From
	Share float64 `json:"share"`
}

// ServerMoves has the shares of a pool's keys that a server owns, from 0 to 1.
type ServerMoves struct {
	Server string  `json:"server"`
	Before float64 `json:"before"`
	After  float64 `json:"after"`
	Leave  float64 `json:"leave"` // the keys that move from this server to others
}

// movesSample is the number of keys that MovesTo places. With it, a share is exact to half a
// percentage point.
const movesSample = 100_000

// MovesTo says which keys move if the table next replaces t. It returns an element for each pool of
// next, and the names of the pools of t that are gone. It places a sample of keys, because most
// rules can't say which hashes move. A server is the same in both tables if it has the same address. ends reports whether
// the change of a pool of t ends in any case: a further change then moves keys from the list Next.
//
// For replicated keys, it looks at the primaries only.
func (t *Table) MovesTo(next *Table, ends func(*Pool) bool) (list []Moves, gone []string) {
	gone = []string{}
	t.Inherit(nil)
	next.Inherit(t)
	before := map[string]*Pool{} // the pools of t by their IDs
	for _, p := range t.Pools {
		if before[p.ID] == nil || next.Pool(p.Name) != nil { // of pools with the same servers, prefer one that keeps its name
			before[p.ID] = p
		}
	}
	kept := map[*Pool]bool{}
	for _, p := range next.Pools {
		was := t.Pool(p.Name)
		if was == nil || was.ID != p.ID {
			was = before[p.ID]
		}
		kept[was] = true
		due := was != nil && was.Next != nil && was.Required().Print() == p.Required().Print()
		if was != nil && was.Next != nil && ends(was) {
			was = was.Successor()
		}
		m := movesOf(was, p)
		m.Due = due
		list = append(list, m)
	}
	for _, p := range t.Pools {
		if !kept[p] {
			gone = append(gone, p.Name)
		}
	}
	return list, gone
}

// movesOf compares one pool of two tables. The pool was is nil if the old table does not have it.
func movesOf(was, p *Pool) Moves {
	m := Moves{Pool: p.Name, New: was == nil || was.Unknown, Moves: []Move{}, Servers: []ServerMoves{}}
	if was == nil {
		was = &Pool{}
	} else if was.Name != p.Name {
		m.Was = was.Name
	}
	index := map[string]int{} // index in m.Servers of a server, by its address
	for _, s := range slices.Concat(p.Servers, was.Servers) {
		if _, known := index[s.Address]; !known {
			index[s.Address] = len(m.Servers)
			m.Servers = append(m.Servers, ServerMoves{Server: s.Name})
		}
	}
	owner := func(p *Pool, key []byte) int { // index in m.Servers; -1: no server
		if len(p.Servers) == 0 {
			return -1
		}
		_, _, i := p.Place.Locate(key)
		if i < 0 {
			return -1
		}
		return index[p.Servers[i].Address]
	}
	moved := map[[2]int]int{}               // number of keys by their servers in both tables
	owned := make([][2]int, len(m.Servers)) // number of keys of each server, in the old and the new table
	var key []byte
	for n := range movesSample {
		key = fmt.Appendf(key[:0], "key:%d", n)
		from, to := owner(was, key), owner(p, key)
		if from >= 0 {
			owned[from][0]++
		}
		if to >= 0 {
			owned[to][1]++
		}
		if from != to && !m.New {
			moved[[2]int{from, to}]++
		}
	}
	share := func(n int) float64 { return float64(n) / movesSample }
	for i, n := range owned {
		m.Servers[i].Before, m.Servers[i].After = share(n[0]), share(n[1])
	}
	name := func(i int) string {
		if i < 0 {
			return ""
		}
		return m.Servers[i].Server
	}
	all := 0
	for pair, n := range moved {
		all += n
		if from := pair[0]; from >= 0 {
			m.Servers[from].Leave += share(n)
		}
		m.Moves = append(m.Moves, Move{name(pair[0]), name(pair[1]), share(n)})
	}
	m.Share = share(all)
	sortMoves(m.Moves)
	return m
}

func sortMoves(list []Move) {
	slices.SortFunc(list, func(a, b Move) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
}

// KeyMoves says which of some keys move. Servers in it have the form "pool/server".
type KeyMoves struct {
	Read    int    `json:"read"`    // number of keys
	Moved   int    `json:"moved"`   // number of keys that get another server
	Nowhere int    `json:"nowhere"` // number of keys that no server has in the new table
	Moves   []Move `json:"moves"`   // shares of all keys that were read, the largest first

	moved map[[2]string]int
}

// Add places a key on a listener of the old table and on one of the new table. limits are those of
// the new table.
func (k *KeyMoves) Add(old, next *Listener, key []byte, limits *Limits) {
	k.Read++
	was, is := old.Plan(key), next.Plan(key)
	if is.Nowhere(limits, false) != "" {
		k.Nowhere++
		return
	}
	if was.ownerAddress() == is.ownerAddress() && was.stored() == is.stored() {
		return
	}
	if k.moved == nil {
		k.moved = map[[2]string]int{}
	}
	k.Moved++
	k.moved[[2]string{was.ownerName(), is.ownerName()}]++
}

// End computes k.Moves from the keys that were added.
func (k *KeyMoves) End() {
	k.Moves = []Move{}
	for pair, n := range k.moved {
		k.Moves = append(k.Moves, Move{pair[0], pair[1], float64(n) / float64(k.Read)})
	}
	sortMoves(k.Moves)
}

func (p *Plan) owner() *Target {
	if !p.Routed || p.Owner < 0 {
		return nil
	}
	return &p.Pool.Servers[p.Owner]
}

func (p *Plan) ownerAddress() string {
	if s := p.owner(); s != nil {
		return s.Address
	}
	return ""
}

func (p *Plan) ownerName() string {
	if s := p.owner(); s != nil {
		return p.Pool.Name + "/" + s.Name
	}
	return ""
}

// stored returns the name under which servers have the key.
func (p *Plan) stored() string {
	if p.Strip {
		return p.Key[len(p.Prefix):]
	}
	return p.Key
}
