package roll

// The second item: which pools eject a server, by the Ringsides that have these pools.

import (
	"bytes"
	"slices"
	"strconv"
)

// The bounds of the item of pools.
const (
	MostPools     = 50 // entries
	mostPoolBytes = 16 << 10
)

const poolsMagic = "rp1"

// Keeps begins the name of an entry whose pool has the server and does not eject it. No pool
// has a name that begins so.
const Keeps = "!"

// Pools is what one Ringside has read of the pools that eject one server. The zero Pools has
// read nothing.
type Pools struct {
	read   []poolEntry
	others map[string]*poolEntry // of pools that this Ringside does not have, or not so
}

// poolEntry is one pool of the item.
type poolEntry struct {
	name   string
	number uint64 // each Ringside that writes the entry adds one
	grows  bool   // the number has changed since it was read first
	silent int    // for how many rounds of the reader the number has not changed
}

// NextRound begins another round. The item has been read since the last one began.
func (p *Pools) NextRound() {
	for name, e := range p.others {
		if e.silent++; e.silent > silent+remembered {
			delete(p.others, name)
		}
	}
}

// Hear takes up the item; nil: there is none. own are the pools by which this Ringside ejects
// the server, or, with Keeps before their names, that have it and do not eject it.
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

// Others are the entries of pools by which other Ringsides eject the server and this one does
// not, or, with Keeps before their names, that do not eject it, by name. An entry counts when its number has changed since it was read first: an entry that a
// Ringside has left behind does not.
func (p *Pools) Others() (names []string) {
	for name, e := range p.others {
		if e.grows && e.silent <= silent {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Empty reports whether p remembers nothing of other Ringsides.
func (p *Pools) Empty() bool { return len(p.others) == 0 }

// Item is what to write in the place of what was heard last: own, and the others that are not
// gone.
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

// cut shortens the name of a pool to what stands in the item.
func cut(name string) string { return name[:min(len(name), mostName)] }

func has(own []string, name string) bool {
	return slices.ContainsFunc(own, func(o string) bool { return cut(o) == name })
}

// parsePools reads what Item writes, and leaves out what is no entry.
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
