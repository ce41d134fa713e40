package health

// This file implements the view record: what all proxies know about a pool, stored as one item on
// each view server.
//
//	rs1 <list>[,<stage>] <incarnation> %20settings=<hash> [%20resize=<n> %20list=<hash> [%20next=<hash>] [%20announced=<hash>] %20wish=<hash>] <server>=<n>[,<renamed>[,<overrides>]] … [%20joining%20<change>%20<hash>%20<server>=<n>…] … [%20removed%20<server>=<n>] …
//
// Numbers are in base 36. Servers with a zero entry are left out. settings= has a hash of those
// settings of the last writer that all proxies must share (settingsHash). Older releases interpret
// this hash as the entry of an unknown server, and keep it. Merging records is commutative,
// associative and idempotent, and never loses information. So any proxy may write at any time, if
// it overwrites only a record that it has read: it sends the cas of the record that it has read.

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	"ringside/proxy/health/resize"
	"ringside/proxy/health/roll"
)

// entry is what a view record says about one server.
type entry struct {
	n         uint32 // phase number of the server: its phase is n mod 6, and n only grows
	renamed   uint32 // phase number at which the server last rejected flush_all: since then, the names of its keys contain it; 0: never
	overrides uint32 // counts the operators' overrides of the server; the current override is this number mod 3
}

// merge combines two entries of one server, from two proxies or records. The higher phase number
// counts, and so does the higher number of overrides.
func merge(a, b entry) entry {
	m := a
	if b.n > m.n || b.n == m.n && b.renamed > m.renamed {
		m.n, m.renamed = b.n, b.renamed
	}
	m.overrides = max(m.overrides, b.overrides)
	return m
}

// override returns the operator's override of the server that is in force.
func (e entry) override() Override { return Override(e.overrides % uint32(overrideKinds)) }

// overridden returns the entry e after an operator has set the override o.
func (e entry) overridden(o Override) entry {
	for e.override() != o {
		e.overrides++
	}
	return e
}

// record is the view record on one server, as this proxy has last read or written it.
type record struct {
	cas         uint64
	hash        uint64 // hash of the server list of the last writer
	stage       uint32 // handover number of the last writer; mod 4 it is the stage of the handover: see barrier.Of
	incarnation uint64 // a random number that was chosen when the item was created, and that updates keep; another number means that the item was lost in between
	resize      resize.State
	announced   uint32  // hash of the next list while a pause is announced; else 0: see resize.State.Written
	wish        uint32  // vote of the last writer about the list of servers: see resize.Status.Vote; 0: its pool does not coordinate changes
	settings    uint32  // settingsHash of the last writer; 0: an older release created the item
	entries     []entry // for each server of this proxy's server list, its entry; nil: there is no readable record
	partial     bool    // the record lacks the entry of a server that needs one of its own: see names.go
	joins       []int   // servers with an entry of their own in the record, although this proxy does not know the list in force
	others      []byte  // the entries of servers that are not in this proxy's server list, as text
}

const (
	recordMagic = "rs1"
	recordLimit = 512 << 10 // maximum length of a view record, in bytes
	mostRemoved = 1000      // maximum number of removed servers that a keeper remembers from view records

	// mostSteps is the highest phase number, number of overrides and handover number that a view
	// record may contain: one step a second for 34 years. A higher number must be an error. These
	// numbers must only grow, and a higher number could soon overflow its 32 bits.
	mostSteps = 1 << 30
)

var errRecord = errors.New("not a view record of this version")

// parseRecord parses the value of a view record. servers is the number of servers. The function index
// returns their indexes by the names that they have in the record r, which has entries with the names in the
// list has. If a field is malformed, parseRecord returns an error.
func parseRecord(value []byte, index func(r *record, has []string) map[string]int, servers int) (record, error) {
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
	has, entries := make([]string, len(fields)-3), make([]entry, len(fields)-3)
	for i, f := range fields[3:] {
		if has[i], entries[i], err = parseEntry(f); err != nil {
			return record{}, err
		}
		if to := r.number(has[i]); to != nil {
			*to = entries[i].n
		}
	}
	r.resize = r.resize.Read(r.announced)
	at := index(&r, has)
	for i, name := range has {
		if j, ok := at[name]; ok {
			r.entries[j] = merge(r.entries[j], entries[i])
		} else if r.number(name) == nil {
			r.others = append(append(r.others, ' '), fields[3+i]...)
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

// withDeparted returns the parameter others, which has the entries of servers that are not in this
// proxy's server list. It adds entries with phase OUT for the servers that a reload has removed.
func (k *Keeper) withDeparted(others []byte) []byte {
	if len(k.departed) == 0 {
		return others
	}
	var merged []byte
	known := map[string]entry{}
	for _, f := range bytes.Fields(others) {
		name, e, _ := parseEntry(f) // no error: parseRecord has already parsed this entry
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

// readRemoved remembers which servers a reload of another proxy has removed, as the entries others say.
// This proxy then writes these entries again, if a flush_all removes the view records.
func (k *Keeper) readRemoved(others []byte) {
	for _, f := range bytes.Fields(others) {
		name, e, _ := parseEntry(f) // no error: parseRecord has already parsed this entry
		if _, known := k.departed[name]; strings.HasPrefix(name, removedMark) && (known || len(k.departed) < mostRemoved) {
			k.departed[name] = merge(e, k.departed[name])
		}
	}
}

// removed reports whether a reload of some proxy has removed server i from the pool, and the server has
// not rejoined since.
func (k *Keeper) removed(i int) bool {
	return k.departed[removedMark+k.members[i].Name].n == k.servers[i].n
}

// appendRecord appends to dst the view record r, in the format that parseRecord reads. The function name
// returns under which name the record has the entry of a server. own is the name of an additional entry, for
// a server that needs one of its own. Empty names are left out.
func appendRecord(dst []byte, r record, name func(server int) (name, own string)) []byte {
	dst = append(dst, recordMagic...)
	dst = appendNumber(append(dst, ' '), r.hash)
	if r.stage != 0 {
		dst = appendNumber(append(dst, ','), uint64(r.stage))
	}
	dst = appendNumber(append(dst, ' '), r.incarnation)
	r.resize.Next, r.announced = r.resize.Written()
	for _, name := range numberNames {
		if n := *r.number(name); n != 0 {
			dst = appendEntry(dst, name, entry{n: n})
		}
	}
	for i, e := range r.entries {
		name, own := name(i)
		if e != (entry{}) && name != "" {
			dst = appendEntry(dst, name, e)
		}
		if own != "" {
			dst = appendEntry(dst, own, e)
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
		return 0, fmt.Errorf("%w: %q is not a number", errRecord, b)
	}
	return v, nil
}

// settingsName is the name of the entry in a view record that has the hash of the settings, and not
// the phase of a server. No server has this name.
const settingsName = " settings"

// These entries of a view record have the fields of resize.State, and the vote of the last writer.
const (
	resizeName    = " resize"
	listName      = " list"
	nextName      = " next"
	announcedName = " announced"
	wishName      = " wish"
)

// removedMark is a prefix of the name of a server. The entry with such a name has the phase number that
// the server had when a reload of some proxy removed it from the pool. No server has such a name.
const removedMark = " removed "

var numberNames = []string{settingsName, resizeName, listName, nextName, announcedName, wishName}

// number returns the field of r that the entry with the given name has; nil: the entry is that of a server.
func (r *record) number(name string) *uint32 {
	i := slices.Index(numberNames, name)
	if i < 0 {
		return nil
	}
	return [...]*uint32{&r.settings, &r.resize.N, &r.resize.List, &r.resize.Next, &r.announced, &r.wish}[i]
}

// settingsHash returns a hash of the settings Strict and Ping, by which proxies notice that their
// settings differ. Other settings that all proxies must share are in the hash of the server list (see
// package failover). The result is not 0, and at most mostSteps.
func settingsHash(s Settings) uint32 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%t %v", s.Strict, s.Ping)
	return 1 + uint32(h.Sum64()%mostSteps)
}

// Membership returns the hash by which proxies compare their server lists.
func Membership(pool string, members []Server) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%q", pool)
	for _, m := range members {
		fmt.Fprintf(h, "%q%q%t", m.Name, m.Address, m.Gutter)
	}
	return h.Sum64()
}
