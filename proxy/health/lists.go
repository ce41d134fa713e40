package health

// This file stores the server lists of this process on the servers, and reads those that it lacks.
//
// A view record names the list in force and the next one by their hashes (package resize). The text of each list is an item
// of its own, without TTL, on the servers of both lists:
//
//	__rs_list__:POOL:HASH
//
// A process that is started with another list than that of its peers reads these items, and then serves like its peers.
// Until then it serves no key (Status.Seeks). The search takes at most two request timeouts. A text counts only if it has the hash in its
// name. Each process that knows a list stores it where it is missing or damaged: when it first reads the server's view
// record, when that was lost, and every listPings pings, because an item can be evicted.
//
// A client with access to a server could store a list with any address. So a server that only such a text names gets no request
// but pings until it has a view record of this pool which names the same list (Server.Learned).

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"ringside/proxy/health/resize"
)

const (
	listLimit = 256 << 10 // maximum length of the text of a list, in bytes
	listPings = 60        // time between two checks of the lists on a server, in pings
	seekPings = 10        // time between two searches for a list, in pings
	mostSeeks = 3         // number of servers that are asked for a list at the same time
)

// Texts are the server lists of a process as texts, by their hashes.
type Texts struct {
	Lists map[uint32][]byte
	Hash  func(text []byte) (uint32, error) // returns the hash of the list in a text; an error: it is none

	// Members returns the Membership of a process that has the list in a text, and otherwise the configuration of this one. It is
	// nil if this process can't use a list of its peers in place of its own: see Keeper.Joins.
	Members func(text []byte) (uint64, error)
}

// listKey returns the key of the text of a list.
func (k *Keeper) listKey(list uint32) string {
	return k.keys.List + strconv.FormatUint(uint64(list), 36)
}

// search is the search for the lists that this process lacks.
type search struct {
	lacks []uint32
	found map[uint32][]byte
	asked []bool // for each server, whether it was asked in this search
	open  int    // number of requests without a reply
	until int64  // when the search has failed
	again int64  // when the next one begins

	before resize.Status // state before the one in which the lists are lacking
}

// SetTexts sets the lists of this process.
func (k *Keeper) SetTexts(t *Texts) {
	k.texts = *t
	for i := range k.servers {
		k.servers[i].listsAt = 0
	}
}

// Learned returns the texts of the lists that this process lacks, when it has read all of them: those of
// resize.Status.Lacks, in that order.
func (k *Keeper) Learned() (texts [][]byte) {
	for _, list := range k.resize.Lacks() {
		text := k.search.found[list]
		if text == nil {
			return nil
		}
		texts = append(texts, text)
	}
	return texts
}

// driveLists searches for the lists that this process lacks, and checks its own on the servers.
func (k *Keeper) driveLists(now int64) {
	if k.resize.Mine == 0 || k.texts.Hash == nil {
		return
	}
	k.seek(now)
	for i := range k.servers {
		s := &k.servers[i]
		if s.record.entries == nil || s.suspect || now < s.listsAt {
			continue
		}
		s.listsAt = now + listPings*k.pingTime()
		for _, list := range slices.Sorted(maps.Keys(k.texts.Lists)) {
			k.send(ask{kind: askList, server: i, about: i, list: list}, now, MetaGet(k.listKey(list)))
		}
	}
}

// seek begins a search for the lists that this process lacks, goes on with it, or ends it.
func (k *Keeper) seek(now int64) {
	s := &k.search
	lacks := k.resize.Lacks()
	switch {
	case !slices.Equal(lacks, s.lacks):
		known := s.found
		*s = search{lacks: lacks, found: map[uint32][]byte{}, asked: make([]bool, len(k.servers)), until: now + 2*int64(k.set.Request), open: s.open, before: s.before}
		for _, list := range lacks {
			if text := known[list]; text != nil {
				s.found[list] = text
			}
		}
		k.setSeeks(len(lacks) > 0 && k.resize.Serves() == resize.Nothing)
	case len(lacks) > 0 && !k.resize.Seeks && now >= s.again:
		clear(s.asked)
		s.again = now + seekPings*k.pingTime()
	}
	if len(lacks) == 0 || k.Learned() != nil {
		return
	}
	for i := range k.servers {
		if v := &k.servers[i]; v.record.entries != nil && !v.suspect && !s.asked[i] && s.open < mostSeeks*len(lacks) {
			s.asked[i] = true
			for _, list := range lacks {
				if s.found[list] == nil {
					s.open++
					k.send(ask{kind: askLack, server: i, about: i, list: list}, now, MetaGet(k.listKey(list)))
				}
			}
		}
	}
	tried := !k.any(func(i int) bool { return !s.asked[i] && !k.tried(i) })
	if k.resize.Seeks && (now >= s.until || s.open == 0 && tried) {
		s.again = now + seekPings*k.pingTime()
		k.setSeeks(false)
		k.tellResized(s.before)
	}
}

// tried reports whether a ping of server i has ended, and found no view record.
func (k *Keeper) tried(i int) bool {
	s := &k.servers[i]
	return s.record.entries == nil && (s.absent != 0 || s.lacks != "" || s.suspect || s.soft > 0)
}

// setSeeks sets whether this process serves no key because it searches for the lists that it lacks.
func (k *Keeper) setSeeks(seeks bool) {
	if k.resize.Seeks != seeks {
		k.resize.Seeks = seeks
		k.gen++
	}
}

// listAnswered handles the reply to a request for a list.
func (k *Keeper) listAnswered(a ask, answer []byte, now int64) {
	text, cas, ok := MetaValue(answer)
	if a.kind == askLack {
		k.search.open--
	}
	own := k.texts.Lists[a.list]
	switch {
	case ok && own != nil && bytes.Equal(text, own):
		return
	case ok:
		hash, err := uint32(0), fmt.Errorf("it has %d bytes", len(text))
		if len(text) <= listLimit {
			hash, err = k.texts.Hash(text)
		}
		if err == nil && hash != a.list {
			err = fmt.Errorf("it is another list")
		}
		if err != nil {
			k.complainList(a.server, fmt.Sprintf("the item %s is not a list of servers of this pool: %v", k.listKey(a.list), err))
		} else {
			if a.kind == askLack && slices.Contains(k.search.lacks, a.list) {
				k.search.found[a.list] = bytes.Clone(text)
			}
			return
		}
	case !IsMetaMiss(answer):
		return
	}
	if own != nil && len(own) <= listLimit && (cas != 0 || !ok) {
		k.send(ask{kind: askListWrite, server: a.server, about: a.server}, now, MetaPut(k.listKey(a.list), own, cas, 0))
	}
}

// complainList logs a problem (what) with a list on server i, once until the problem changes.
func (k *Keeper) complainList(i int, what string) {
	if s := &k.servers[i]; s.listComplaint != what {
		s.listComplaint = what
		k.event(i, "list", "trouble", what)
	}
}

// verifies reports whether the reply to a ping of a server that only a learned list names shows that the server belongs to
// this pool: it has a view record that names the same list, or is of a process with the same servers.
func (k *Keeper) verifies(i int, answer []byte) bool {
	value, _, _ := MetaValue(answer)
	r, err := k.parse(value)
	if err == nil && k.resize.Mine == 0 && r.hash == k.hash {
		k.servers[i].unverified = false
		k.gen++
		return true
	}
	for _, list := range [...]uint32{k.resize.List, k.resize.Next} {
		if err == nil && list != 0 && (list == r.resize.List || list == r.resize.Next) {
			k.servers[i].unverified = false
			k.gen++
			return true
		}
	}
	k.complainList(i, "the server is not used: "+unverified)
	return false
}

// Lacking returns the key of the first list that this process lacks; empty: none.
func (k *Keeper) Lacking() string {
	if lacks := k.resize.Lacks(); len(lacks) > 0 {
		return k.listKey(lacks[0])
	}
	return ""
}

// unverified is why a server gets no requests but pings: see Server.Learned.
const unverified = "it has no view record of this pool, and only the server list of other instances names it"
