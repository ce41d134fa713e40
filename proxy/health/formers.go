package health

// This file stores the former server lists of a pool on its servers, while replicated keys move away from the servers of
// these lists (package replication). A process that is started meanwhile with the new list reads them, and then moves keys
// like its peers:
//
//	__rs_former__:POOL:HASH
//
// HASH is the hash of the new list. The first line of the value says how far the handover is (barrier.Reached), in
// base 36. The second line is the text of the new list. The texts of the former lists follow, one in a line. The last one is
// the list by which keys are served until all instances have the new one. Each process that moves keys stores the item on all servers,
// and stores it again every listPings pings. The first process that has moved all keys stores it without former lists, and removes it later
// (endPings): a reload of its peers may still wait then.
//
// A process may be started with a further list, to which its peers can't change yet. A reload of the peers waits, because they are in
// different stages. The view records then have the hash of the new list of the peers. So the process also reads the item with that
// hash, and joins its peers: it uses their new list, and moves keys from the former ones (Keeper.Joins). Its own list follows
// like that of a reload. If both items exist, the higher number belongs to the later handover.

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"ringside/proxy/health/barrier"
)

// formerSeconds is the lifetime of an item with former lists, in seconds.
const formerSeconds = 600

// endPings is how long the item is kept when all keys have moved, in pings. A reload waits for less than that: see package barrier.
const endPings = 120

// mostFormers is the maximum number of former lists in an item: those that package replication remembers.
const mostFormers = 4

// formers are the former server lists of a pool with replicated keys.
type formers struct {
	texts []byte        // the new list and the former lists of this process, one in a line; empty: it moves no keys
	own   []byte        // the value of the item that this process stores; nil: it moves no keys; empty: it removes the item
	at    barrier.Stage // the stage that own has
	item  string        // the key of the item
	endAt int64         // when this process removes the item, because all keys have moved; 0: it does not remove it

	seeks   bool     // this process has just started, and reads the item
	asked   []bool   // for each server, whether it was asked for the item
	open    int      // number of requests for the item without a reply
	heard   int      // number of servers that have replied
	until   int64    // when the search has failed; 0: no server was asked so far
	learned [][]byte // the texts of the former lists of the latest handover that this process has read
	reached uint32   // how far that is: see barrier.Reached
	joins   []byte   // the text of the new list of that handover, if it is not the list of this process
}

// SeekFormers makes a new keeper read the former lists from the servers. ListsKnown is false until then.
func (k *Keeper) SeekFormers() { k.formers.seeks, k.formers.asked = true, make([]bool, len(k.servers)) }

// AwaitHandover makes the first arrangement of a new keeper begin with a handover. A reload has given replicas to the pool, which had
// no keeper before.
func (k *Keeper) AwaitHandover() { k.barrier.Arrangement = barrier.None }

// Joins returns the text of the list of the peers that this process must use before its own one, because replicated keys move to the
// servers of that list; nil: there is none.
func (k *Keeper) Joins() []byte {
	if k.formers.seeks {
		return nil
	}
	return k.formers.joins
}

// setFormers sets the new list and the former lists of this process, as texts. No texts mean that all keys have moved.
func (k *Keeper) setFormers(texts [][]byte, now int64) {
	f := &k.formers
	joined := bytes.Join(texts, []byte{'\n'})
	if f.endAt = 0; len(texts) == 0 && len(f.texts) > 0 {
		joined, _, _ = bytes.Cut(f.texts, []byte{'\n'})
		f.endAt = now + endPings*int64(k.set.Ping)
	}
	if len(joined) > listLimit {
		joined = nil
	}
	if bytes.Equal(joined, f.texts) {
		return
	}
	f.texts = joined
	k.makeFormers()
}

// makeFormers sets the value of the item that this process stores, at once.
func (k *Keeper) makeFormers() {
	f := &k.formers
	if f.own, f.at = []byte{}, barrier.Of(k.barrier.N); len(f.texts) > 0 {
		f.own = append(append(appendNumber(nil, uint64(k.barrier.Reached())), '\n'), f.texts...)
	}
	for i := range k.servers {
		k.servers[i].formersAt = 0
	}
	k.next = 0
}

// driveFormers searches for the former lists, and stores the former lists of this process.
func (k *Keeper) driveFormers(now int64) {
	k.seekFormers(now)
	f := &k.formers
	if f.endAt != 0 && now >= f.endAt {
		f.texts, f.endAt = nil, 0
		k.makeFormers()
	}
	if len(f.own) > 0 && (f.at == barrier.Done) != (barrier.Of(k.barrier.N) == barrier.Done) {
		k.makeFormers()
	}
	for i := range k.servers {
		s := &k.servers[i]
		if f.own == nil || s.record.entries == nil || s.suspect || now < s.formersAt {
			continue
		}
		if s.formersAt = now + listPings*k.pingTime(); len(f.own) == 0 {
			k.send(ask{kind: askDiscard, server: i, about: i}, now, []byte("md "+f.item+"\r\n"))
		} else {
			k.send(ask{kind: askFormer, server: i, about: i, list: uint32(k.hash)}, now, MetaGet(f.item))
		}
	}
	if len(f.own) == 0 {
		f.own = nil
	}
}

// seekFormers begins the search for the former lists, goes on with it, or ends it. The search ends when most servers have
// answered, or when all that have a view record were asked and no reply is due.
func (k *Keeper) seekFormers(now int64) {
	f := &k.formers
	if !f.seeks {
		return
	}
	for i := range k.servers {
		if s := &k.servers[i]; s.record.entries != nil && !f.asked[i] {
			f.asked[i] = true
			if f.until == 0 {
				f.until = now + 2*int64(k.set.Request)
			}
			lists := []uint32{uint32(k.hash)} // the reply about it is the last one
			if s.record.hash != k.hash && k.texts.Members != nil {
				lists = []uint32{uint32(s.record.hash), uint32(k.hash)}
			}
			for _, list := range lists {
				f.open++
				k.send(ask{kind: askFormer, server: i, about: i, list: list}, now, MetaGet(k.formerKey(list)))
			}
		}
	}
	tried := !k.any(func(i int) bool { return !f.asked[i] && !k.tried(i) })
	if (f.until == 0 || now < f.until) && (f.open > 0 || !tried) && 2*f.heard <= len(k.servers) {
		return
	}
	f.seeks = false
	k.gen++
	if f.learned != nil && f.joins == nil {
		k.barrier.Learn(f.reached, k.hash, now)
		k.pingAllNow(now)
	}
}

// formerAnswered handles the reply to a request for the former lists.
func (k *Keeper) formerAnswered(a ask, answer []byte, now int64) {
	f := &k.formers
	value, cas, ok := MetaValue(answer)
	own := a.list == uint32(k.hash)
	if f.seeks {
		if own {
			f.heard++
		}
		if f.open--; ok {
			k.readFormers(a.server, a.list, value)
		}
		return
	}
	if own && len(f.own) > 0 && (ok && cas != 0 || IsMetaMiss(answer)) {
		k.send(ask{kind: askListWrite, server: a.server, about: a.server}, now, MetaPut(f.item, f.own, cas, formerSeconds))
	}
}

// readFormers learns the lists in the value of the item for a list on server i, unless it knows the lists of a later handover.
func (k *Keeper) readFormers(i int, list uint32, value []byte) {
	lines := bytes.Split(value, []byte{'\n'})
	reached, err := number(lines[0], 32)
	if n := len(lines) - 1; len(value) > listLimit+20 || reached > mostSteps || n < 1 || n > 1+mostFormers {
		err = fmt.Errorf("it has %d bytes, %d lists, and the number %d", len(value), n, reached)
	}
	var texts [][]byte
	for _, text := range lines[1:] {
		if err == nil {
			_, err = k.texts.Hash(text)
		}
		texts = append(texts, bytes.Clone(text))
	}
	own := list == uint32(k.hash)
	if err == nil && !own {
		var hash uint64
		if hash, err = k.texts.Members(texts[0]); err == nil && uint32(hash) != list {
			err = errors.New("this process has other settings, which all instances must share")
		}
	}
	switch f := &k.formers; {
	case err != nil:
		k.complainList(i, fmt.Sprintf("the item %s is not a list of servers of this pool: %v", k.formerKey(list), err))
	case uint32(reached) > f.reached || uint32(reached) == f.reached && own:
		f.reached, f.learned, f.joins = uint32(reached), texts[1:], nil
		if !own {
			f.joins = texts[0]
		}
	}
}

// formerKey returns the key of the item with the lists before the one with this hash.
func (k *Keeper) formerKey(list uint32) string {
	return k.keys.Former + strconv.FormatUint(uint64(list), 36)
}
