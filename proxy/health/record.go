package health

// The view record: what all proxies know about a pool, stored as one item on each of
// its servers.
//
//	rs1 <list>[,<stage>] <incarnation> %20settings=<hash> <server>=<n>[,<renamed>[,<overrides>]] …
//
// Numbers are in base 36. Servers with a zero entry are left out. The hash is of the settings of
// the last writer that WAITs and promises depend on (settingsHash). Older releases interpret the
// hash as the entry of an unknown server, and keep it. Merging records is commutative, associative
// and idempotent, and never loses information. So any proxy may write at any time, as long as it
// overwrites only a record that it has read: it sends the cas of the record that it read.

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"

	"ringside/proxy/health/roll"
)

// entry is what a record says about one server.
type entry struct {
	n         uint32 // the server's phase is n mod 6; n only grows
	renamed   uint32 // the n at which the server rejected flush_all; its keys carry this number since then; 0: never. merge keeps that of the entry with the higher n
	overrides uint32 // number of overrides so far; the current override is this number mod 3
}

// merge combines two entries.
func merge(a, b entry) entry {
	m := a
	if b.n > m.n || b.n == m.n && b.renamed > m.renamed {
		m.n, m.renamed = b.n, b.renamed
	}
	m.overrides = max(m.overrides, b.overrides)
	return m
}

// override returns the current override.
func (e entry) override() Override { return Override(e.overrides % uint32(overrideKinds)) }

// overridden returns the entry with one more override, o.
func (e entry) overridden(o Override) entry {
	for e.override() != o {
		e.overrides++
	}
	return e
}

// record is the record of one server, as last read or written.
type record struct {
	cas         uint64
	hash        uint64  // hash of the server list of the last writer
	stage       uint32  // number of the handover to the arrangement of that list, and its stage: see barrier.Of
	incarnation uint64  // a random number chosen when the item was created and kept by all updates; a different one means that the item was lost in between
	settings    uint32  // settingsHash of the last writer; 0: an older release created the item
	entries     []entry // by server; nil: no readable record
	others      []byte  // the entries of servers that this proxy does not know, unchanged
}

const (
	recordMagic = "rs1"
	recordLimit = 512 << 10 // bytes; a longer value is not a view record

	// mostSteps is the highest plausible number of a server, of its overrides, and of a
	// handover's stage: a step a second for 34 years. A higher one could soon reach the end of its 32 bits, and numbers
	// must only grow.
	mostSteps = 1 << 30
)

var errRecord = errors.New("not a view record of this version")

// parseRecord parses the value of a record. One malformed field rejects the whole
// record.
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
		if n > mostSteps {
			return record{}, fmt.Errorf("%w: stage %q is implausible", errRecord, stage)
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
		if name == settingsName {
			r.settings = e.n
		} else if i, ok := index[name]; ok {
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
	if e.n > mostSteps || e.overrides > mostSteps {
		return "", entry{}, fmt.Errorf("%w: %q has an implausible number", errRecord, f)
	}
	if e.renamed > e.n {
		return "", entry{}, fmt.Errorf("%w: %q is renamed in the future", errRecord, f)
	}
	return name, e, nil
}

// withDeparted returns the parameter others, the entries of servers that this proxy
// does not know. It adds to them that the servers which a reload has removed are out.
func (k *Keeper) withDeparted(others []byte) []byte {
	if len(k.departed) == 0 {
		return others
	}
	var merged []byte
	known := map[string]entry{}
	for _, f := range bytes.Fields(others) {
		name, e, _ := parseEntry(f) // parsed successfully before
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

// appendRecord appends a record in the format of parseRecord.
func appendRecord(dst []byte, r record, members []Server) []byte {
	dst = append(dst, recordMagic...)
	dst = appendNumber(append(dst, ' '), r.hash)
	if r.stage != 0 {
		dst = appendNumber(append(dst, ','), uint64(r.stage))
	}
	dst = appendNumber(append(dst, ' '), r.incarnation)
	if r.settings != 0 {
		dst = appendEntry(dst, settingsName, entry{n: r.settings})
	}
	for i, e := range r.entries {
		if e != (entry{}) {
			dst = appendEntry(dst, members[i].Name, e)
		}
	}
	return append(dst, r.others...)
}

func appendEntry(dst []byte, name string, e entry) []byte {
	dst = appendName(append(dst, ' '), name)
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

// settingsName is in the record where entries have the name of a server, before the hash of the
// settings. No server has this name.
const settingsName = " settings"

// settingsHash returns the hash by which proxies compare the settings that WAITs and
// promises depend on, except those that are in the hash of the list (see package
// failover). It is not 0 and at most mostSteps.
func settingsHash(s Settings) uint32 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%t %v", s.Strict, s.Ping)
	return 1 + uint32(h.Sum64()%mostSteps)
}

// membership returns the hash by which proxies compare their server lists.
func membership(pool string, members []Server) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%q", pool)
	for _, m := range members {
		fmt.Fprintf(h, "%q%q%t", m.Name, m.Address, m.Gutter)
	}
	return h.Sum64()
}
