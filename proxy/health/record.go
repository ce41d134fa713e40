package health

// The view record: what all proxies know of a pool, as one item on each of its
// servers.
//
//	rs1 <membership>[,<stage>] <incarnation> <server>=<n>[,<renamed>[,<overrides>]] …
//
// Numbers are in base 36. Only servers are named of which there is something to
// say. Any two records can be merged, in any order and as often as one likes,
// with the same result, and a merge never takes anything back; so it doesn't
// matter who writes when, as long as he writes over nothing that he hasn't read
// (he sends the cas of what he read).

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"

	"ringside/proxy/health/meta"
	"ringside/proxy/health/roll"
)

// entry is what a record says of one server.
type entry struct {
	n         uint32 // its phase is n mod 6; it only grows
	renamed   uint32 // the n from which on its keys have a number because it refused to be flushed; it belongs to n
	overrides uint32 // counts overrides, so that this mod 3 is the last one
}

// merge returns what two entries say together.
func merge(a, b entry) entry {
	m := a
	if b.n > m.n || b.n == m.n && b.renamed > m.renamed {
		m.n, m.renamed = b.n, b.renamed
	}
	m.overrides = max(m.overrides, b.overrides)
	return m
}

// override is what a person wants, as far as the record says.
func (e entry) override() Override { return Override(e.overrides % uint32(overrideKinds)) }

// overridden returns the entry with one more override, o.
func (e entry) overridden(o Override) entry {
	for e.override() != o {
		e.overrides++
	}
	return e
}

// record is one server's record, as last read or written.
type record struct {
	cas         uint64
	hash        uint64  // of the membership of whoever wrote it last
	stage       uint32  // of a handover to that membership: see package barrier
	incarnation uint64  // drawn when the item was created and kept by all who change it: another one tells that the item was lost in between
	entries     []entry // by server; nil: there is none that could be read
	others      []byte  // what it says of servers that this proxy doesn't know, kept as it is
}

const (
	recordMagic = "rs1"
	recordLimit = 512 << 10 // bytes; a longer record is not ours
)

var errRecord = errors.New("not a view record of this version")

// parseRecord reads the value of a record. It never takes more than it is
// sure of: one bad field refuses the whole.
func parseRecord(value []byte, index map[string]int, servers int) (record, error) {
	if len(value) > recordLimit {
		return record{}, fmt.Errorf("%w: %d bytes", errRecord, len(value))
	}
	fields := bytes.Split(value, []byte{' '})
	if len(fields) < 3 || string(fields[0]) != recordMagic {
		return record{}, errRecord
	}
	var r record
	var err error
	hash, stage, staged := bytes.Cut(fields[1], []byte{','})
	if r.hash, err = number(hash, 64); err != nil {
		return record{}, err
	}
	if staged {
		n, err := number(stage, 32)
		if err != nil {
			return record{}, err
		}
		r.stage = uint32(n)
	}
	if r.incarnation, err = number(fields[2], 64); err != nil {
		return record{}, err
	}
	r.entries = make([]entry, servers)
	for _, f := range fields[3:] {
		name, e, err := parseEntry(f)
		if err != nil {
			return record{}, err
		}
		if i, ok := index[name]; ok {
			r.entries[i] = merge(r.entries[i], e)
		} else {
			r.others = append(append(r.others, ' '), f...)
		}
	}
	return r, nil
}

func parseEntry(f []byte) (name string, e entry, err error) {
	i := bytes.LastIndexByte(f, '=')
	if i <= 0 {
		return "", entry{}, fmt.Errorf("%w: %q", errRecord, f)
	}
	name, ok := roll.Unescape(f[:i])
	if !ok {
		return "", entry{}, fmt.Errorf("%w: name %q", errRecord, f[:i])
	}
	parts := bytes.Split(f[i+1:], []byte{','})
	if len(parts) > 3 {
		return "", entry{}, fmt.Errorf("%w: %q", errRecord, f)
	}
	for i, field := range []*uint32{&e.n, &e.renamed, &e.overrides}[:len(parts)] {
		v, err := number(parts[i], 32)
		if err != nil {
			return "", entry{}, err
		}
		*field = uint32(v)
	}
	if e.renamed > e.n {
		return "", entry{}, fmt.Errorf("%w: %q is renamed in the future", errRecord, f)
	}
	return name, e, nil
}

// withDeparted is what a record says of servers that this proxy doesn't know, and
// that those are out which a reload has taken from it.
func (k *Keeper) withDeparted(others []byte) []byte {
	if len(k.departed) == 0 {
		return others
	}
	var merged []byte
	known := map[string]entry{}
	for _, f := range bytes.Fields(others) {
		name, e, _ := parseEntry(f) // it was read before
		if d, ok := k.departed[name]; ok {
			known[name] = merge(e, d)
		} else {
			merged = append(append(merged, ' '), f...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(k.departed)) {
		merged = appendEntry(merged, name, merge(known[name], k.departed[name]))
	}
	return merged
}

// appendRecord writes a record the way that parseRecord reads it.
func appendRecord(dst []byte, r record, members []Member) []byte {
	dst = append(dst, recordMagic...)
	dst = appendNumber(append(dst, ' '), r.hash)
	if r.stage != 0 {
		dst = appendNumber(append(dst, ','), uint64(r.stage))
	}
	dst = appendNumber(append(dst, ' '), r.incarnation)
	for i, e := range r.entries {
		if e != (entry{}) {
			dst = appendEntry(dst, members[i].Name, e)
		}
	}
	return append(dst, r.others...)
}

func appendEntry(dst []byte, name string, e entry) []byte {
	dst = meta.AppendName(append(dst, ' '), name)
	dst = appendNumber(append(dst, '='), uint64(e.n))
	if e.renamed != 0 || e.overrides != 0 {
		dst = appendNumber(append(dst, ','), uint64(e.renamed))
	}
	if e.overrides != 0 {
		dst = appendNumber(append(dst, ','), uint64(e.overrides))
	}
	return dst
}

func appendNumber(dst []byte, v uint64) []byte { return strconv.AppendUint(dst, v, 36) }

func number(b []byte, bits int) (uint64, error) {
	v, err := strconv.ParseUint(string(b), 36, bits)
	if err != nil {
		return 0, fmt.Errorf("%w: %q is no number", errRecord, b)
	}
	return v, nil
}

// membership is the hash by which proxies see whether they have the same list.
func membership(pool string, members []Member) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%q", pool)
	for _, m := range members {
		fmt.Fprintf(h, "%q%q%t", m.Name, m.Address, m.Gutter)
	}
	return h.Sum64()
}
