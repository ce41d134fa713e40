package roll

// This file implements the item that lists the pools that eject a server.

import (
	"bytes"
	"slices"
	"strconv"
)

// Limits of the item that lists the pools which eject a server.
const (
	MostPools     = 50 // maximum number of pools in the item
	mostPoolBytes = 16 << 10
)

const poolsMagic = "rp1"

// Keeps is the prefix of the pool's name in an entry for a pool that has the server but does not
// eject it. No name of a pool begins with this prefix.
const Keeps = "!"

// Pools is the list of the pools that have one server and may eject it, or have it without ejecting
// it (see Keeps), as one instance has read it. The zero value is an empty list.
type Pools struct {
	read   []poolEntry
	others map[string]*poolEntry // by name: entries of pools that this instance does not have, or treats differently
}

// poolEntry is the entry of one pool in the item that lists the pools which eject a server.
type poolEntry struct {
	name   string
	number uint64 // counts the writes of this entry: each instance that writes the entry adds one
	grows  bool   // number has changed since this instance first read the entry: another instance still writes the entry
	silent int    // for how many reads of the item number has not changed
}

// NextRound starts the next round, in which this instance reads and writes the item. The caller must
// not call it for a round in which the item could not be read.
func (p *Pools) NextRound() {
	for name, e := range p.others {
		if e.silent++; e.silent > silent+remembered {
			delete(p.others, name)
		}
	}
}

// Hear parses value, the item that was read from the server, and updates p. value is nil if the
// server has no item. The parameter `own` contains the names of this instance's pools that have the
// server. The names of pools that do not eject the server have the prefix Keeps.
func (p *Pools) Hear(value []byte, own []string) {
	p.read = parsePools(value)
	for _, name := range own {
		delete(p.others, cut(name))
	}
	for _, e := range p.read {
		is := p.others[e.name]
		switch {
		case has(own, e.name):
		case is != nil && is.number != e.number:
			is.number, is.grows, is.silent = e.number, true, 0
		case is == nil && len(p.others) < 2*MostPools:
			if p.others == nil {
				p.others = map[string]*poolEntry{}
			}
			p.others[e.name] = &e
		}
	}
}

// Others returns the sorted names of pools of other instances that treat the server differently than
// this instance. Such a pool ejects the server. If its name has the prefix Keeps, the pool does not
// eject the server, but this instance does. An entry counts only if its number has changed since the
// first read, because another instance still writes the entry then.
func (p *Pools) Others() (names []string) {
	for name, e := range p.others {
		if e.grows && e.silent <= silent {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Empty reports whether p remembers no entries of other instances.
func (p *Pools) Empty() bool { return len(p.others) == 0 }

// Item returns the item to write in place of the item that was read last. It contains the entries of
// own, the names of this instance's pools, and the entries that other instances still write.
func (p *Pools) Item(own []string) []byte {
	b := []byte(poolsMagic)
	own = own[:min(len(own), MostPools)]
	for _, name := range own {
		e := poolEntry{name: cut(name), number: 1}
		if i := slices.IndexFunc(p.read, func(r poolEntry) bool { return r.name == e.name }); i >= 0 {
			e.number += p.read[i].number
		}
		b = e.append(b)
	}
	room := MostPools - len(own)
	for _, e := range p.read {
		if is := p.others[e.name]; room > 0 && is != nil && is.silent <= silent {
			b = e.append(b)
			room--
		}
	}
	return b
}

func (e *poolEntry) append(b []byte) []byte {
	b = AppendText(append(b, ' '), e.name, "=")
	return strconv.AppendUint(append(b, '='), e.number, 36)
}

// cut shortens the name of a pool to its maximum length in the item.
func cut(name string) string { return name[:min(len(name), mostName)] }

func has(own []string, name string) bool {
	return slices.ContainsFunc(own, func(o string) bool { return cut(o) == name })
}

// parsePools parses an item in the format of Pools.Item. It skips invalid entries.
func parsePools(value []byte) (list []poolEntry) {
	fields := bytes.Split(value, []byte{' '})
	if len(value) > mostPoolBytes || string(fields[0]) != poolsMagic {
		return nil
	}
	for _, f := range fields[1:min(len(fields), 1+MostPools)] {
		text, number, _ := bytes.Cut(f, []byte{'='})
		name, ok := Unescape(text)
		n, err := strconv.ParseUint(string(number), 36, 64)
		known := slices.ContainsFunc(list, func(e poolEntry) bool { return e.name == name })
		if ok && err == nil && name != "" && len(name) <= mostName && !known {
			list = append(list, poolEntry{name: name, number: n})
		}
	}
	return list
}
