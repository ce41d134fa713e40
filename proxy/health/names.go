package health

// This file finds the entries of servers in view records while the list of servers changes (package resize).
//
// A view record identifies servers by their names in the list in force. The next list can give a name to a server
// at another address. Both servers are in use until the change has ended, so the second one has an entry of its own
// then. The name of this entry contains the number of the change, the hash of the next list, and the name of the
// server there:
//
//	%20joining%20<change>%20<list>%20<name>=<n>
//
// So all proxies that know the next list find the entry, also one that does not know the list in force: if a record
// has an entry of its own for a server, that counts, and not the one with the plain name. When the change has ended,
// the record says that the next list is in force, and all names are those of that list. Any proxy that writes it then removes
// the entries of the former change. Older releases keep entries that they do not know.
//
// The phase number in the entry with a plain name must not decrease when another server gets the name: a proxy that knows
// neither list could write the former number. So it is increased if that does not change the phase: see Keeper.takeNames.

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"ringside/proxy/health/resize"
)

// joiningMark is a prefix of the name of an entry that a server has of its own while it joins. No server has such a name.
const joiningMark = " joining "

// joining returns the name of the entry that a server has of its own. change is the number of the change, list the hash of
// the next list, and name the name of the server there.
func joining(change, list uint32, name string) string {
	return joiningMark + strconv.FormatUint(uint64(change), 36) + " " + strconv.FormatUint(uint64(list), 36) + " " + name
}

// names says how a keeper finds its servers by name.
type names struct {
	index   map[string]int // indexes of servers by their names in the list in force, or in the next one if only that has the name
	byNext  map[string]int // the same, by their names in the next list
	former  []int          // for each server, the other one that has the same name in the list in force as this one in the next list; -1: none
	latter  []int          // for each server of the list of this process, the other one that has the same name in the next list; -1: none
	own     bool           // former has such a server
	joined  []uint32       // for each server, one plus the number of the last change in which a record had an entry of its own for it, although this proxy does not know the list in force; 0: none
	started bool           // some element of joined is not 0
	named   namedFor
}

// namedFor is what the keys of the counters about single servers depend on.
type namedFor struct {
	mine, next, list, change uint32
	joined                   int
}

func newNames(members []Server) names {
	n := names{index: map[string]int{}, byNext: map[string]int{}, joined: make([]uint32, len(members))}
	for i, m := range members {
		if !m.Joins {
			n.index[m.Name] = i
		}
		if m.Next != "" {
			n.byNext[m.Next] = i
		}
	}
	for i, m := range members {
		p, ok := n.index[m.Next]
		if !ok || p == i || m.Next == "" {
			p = -1
		}
		if n.own = n.own || p >= 0; m.Joins && p < 0 {
			n.index[m.Name] = i
		}
		q, ok := n.byNext[m.Name]
		if !ok || q == i || m.Joins {
			q = -1
		}
		n.former, n.latter = append(n.former, p), append(n.latter, q)
	}
	for i, m := range members {
		if m.Next == "" && n.latter[i] < 0 {
			n.byNext[m.Name] = i
		}
	}
	return n
}

// nameOf returns the name of the entry of server i in a view record with the state s, and the name of the entry that the
// server has of its own. Either may be empty.
func (k *Keeper) nameOf(i int, s resize.State) (name, own string) {
	m, l := &k.members[i], &k.resize.Lists
	switch mine := s.List == l.Mine; {
	case k.off.Names:
	case !mine && s.List == l.Wish && s.List != 0:
		if k.latter[i] >= 0 && s.Next == l.Mine { // the keys move back
			own = joining(s.Change(), l.Mine, m.Name)
		}
		if m.Next == "" && k.latter[i] < 0 {
			return m.Name, ""
		}
		return m.Next, own
	case k.former[i] >= 0:
		if mine {
			own = joining(s.Change(), l.Wish, m.Next)
		}
		if m.Joins {
			return "", own
		}
	case !mine && k.joined[i] == s.Change()+1:
		return "", joining(s.Change(), l.Mine, m.Name)
	}
	return m.Name, own
}

// indexOf returns the indexes of the servers by the names that they have in r, which has entries with the given names. The
// function sets r.partial and r.joins.
func (k *Keeper) indexOf(r *record, has []string) map[string]int {
	s, l := r.resize, &k.resize.Lists
	mine := s.List == l.Mine
	joins := func(name string) bool { return strings.HasPrefix(name, joiningMark) }
	switch {
	case s.List == 0 || l.Mine == 0:
		return k.index
	case !mine && s.List == l.Wish && !(k.own && s.Next == l.Mine):
		return k.byNext
	case k.off.Names:
	case !k.own && (mine || !k.started && !slices.ContainsFunc(has, joins)):
		return k.index
	}
	at := map[string]int{}
	for i := range k.members {
		if m := &k.members[i]; !mine && s.List != l.Wish && !m.Joins {
			if own := joining(s.Change(), l.Mine, m.Name); slices.Contains(has, own) {
				at[own], r.joins = i, append(r.joins, i)
				continue
			}
		}
		name, own := k.nameOf(i, s)
		if name != "" {
			at[name] = i
		}
		if own != "" {
			at[own] = i
			r.partial = r.partial || !slices.Contains(has, own)
		}
	}
	return at
}

// parse parses the value of a view record. If the record has no entry of a server because its list lacks the server, the
// entry is the one that this proxy knows.
func (k *Keeper) parse(value []byte) (record, error) {
	r, err := parseRecord(value, k.indexOf, len(k.members))
	if k.off.Announced && r.resize.Announced {
		r.others = appendEntry(r.others, announcedName, entry{n: r.resize.Next})
		r.resize.Next, _ = r.resize.Written()
		r.resize.Announced = false
	}
	if err != nil || !k.own {
		return r, err
	}
	for i := range r.entries {
		if name, own := k.nameOf(i, r.resize); name == "" && own == "" {
			r.entries[i] = k.servers[i].entry
		}
	}
	return r, nil
}

// format returns the view record r as text, with the names that the servers have in it. The text lacks entries of former
// changes, and of other servers that had the same names before.
func (k *Keeper) format(r record) []byte {
	if k.own || k.started || len(r.joins) > 0 || bytes.Contains(r.others, []byte(strings.ReplaceAll(joiningMark, " ", "%20"))) {
		written := map[string]bool{}
		for i := range k.members {
			name, own := k.nameOf(i, r.resize)
			written[name], written[own] = true, true
		}
		others := r.others
		r.others = nil
		for _, f := range bytes.Fields(others) {
			name, _, _ := parseEntry(f) // no error: parseRecord has already parsed this entry
			change, _, _ := strings.Cut(strings.TrimPrefix(name, joiningMark), " ")
			if n, err := number([]byte(change), 32); strings.HasPrefix(name, joiningMark) && (err != nil || uint32(n) < r.resize.Change()) || written[name] {
				continue
			}
			r.others = append(append(r.others, ' '), f...)
		}
	}
	return appendRecord(nil, r, func(i int) (string, string) { return k.nameOf(i, r.resize) })
}

// setJoined notes which servers have entries of their own in the record r, although this proxy does not know the list in
// force. The entries that this proxy has read so far can be those of other servers with the same names.
func (k *Keeper) setJoined(r record, now int64) {
	for _, i := range r.joins {
		if is := r.resize.Change() + 1; k.joined[i] != is && k.resize.List != k.resize.Mine {
			k.joined[i], k.started = is, true
			k.become(i, r.entries[i], "another server had its name", now)
		}
	}
}

// takeNames is called when the state of a change has changed. If another list is in force than before, servers have the names
// of others. The phase number of such a name must not decrease.
func (k *Keeper) takeNames(before uint32, now int64) {
	others := k.former
	if k.resize.List == k.resize.Mine {
		others = k.latter
	}
	if k.own && before != k.resize.List && (before != 0 || k.resize.List == k.resize.Wish) {
		for i, p := range others {
			if p < 0 || PhaseOf(k.servers[i].n) != In {
				continue
			}
			e := k.servers[i].entry
			for n := k.servers[p].n; e.n < n; {
				e.n += phases
			}
			k.become(i, e, "another server had its name", now)
		}
	}
}

// nameCounters sets the keys of the counters about single servers. They depend on the names of the servers' entries.
func (k *Keeper) nameCounters() {
	is := namedFor{mine: k.resize.Mine, next: k.resize.Wish, list: k.resize.List, change: k.resize.Change()}
	for _, joined := range k.joined {
		if joined == is.change+1 {
			is.joined++
		}
	}
	if k.keys.Suspects != nil && (is == k.named || !k.own && is.joined == 0 && k.named.joined == 0) {
		return
	}
	k.named = is
	list := make([]string, len(k.members))
	for i := range list {
		name, own := k.nameOf(i, k.resize.State)
		if list[i] = name; name == "" {
			list[i] = own
		}
	}
	k.keys.name(list)
}
