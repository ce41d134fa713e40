package health

// This file stores the former server lists of a pool on its servers, while replicated keys move away from the servers of
// these lists (package replication). A process that is started meanwhile with the new list reads them, and then moves keys
// like its peers:
//
//	__rs_former__:POOL:HASH
//
// HASH is the hash of the new list. The first line of the value says how far the handover is (barrier.Reached), in
// base 36. The texts of the former lists follow, one in a line. The last one is the list by which
// keys are served until all instances have the new one. Each process that moves keys stores the item on all servers,
// and stores it again every listPings pings. The first process that has moved all keys removes it.

import (
	"bytes"
	"fmt"
	"strconv"

	"ringside/proxy/health/barrier"
)

// formerSeconds is the lifetime of an item with former lists, in seconds.
const formerSeconds = 600

// mostFormers is the maximum number of lists in an item: those that package replication remembers.
const mostFormers = 4

// formers are the former server lists of a pool with replicated keys.
type formers struct {
	texts []byte        // the former lists of this process, one in a line; empty: it moves no keys
	own   []byte        // the value of the item that this process stores; nil: it moves no keys; empty: it removes the item
	at    barrier.Stage // the stage that own has
	item  string        // the key of the item

	seeks   bool     // this process has just started, and reads the item
	asked   []bool   // for each server, whether it was asked for the item
	open    int      // number of requests for the item without a reply
	heard   int      // number of replies
	until   int64    // when the search has failed; 0: no server was asked so far
	learned [][]byte // the texts of the latest handover that this process has read
	reached uint32   // how far that is: see barrier.Reached
}

// SeekFormers makes a new keeper read the former lists from the servers. ListsKnown is false until then.
func (k *Keeper) SeekFormers() { k.formers.seeks, k.formers.asked = true, make([]bool, len(k.servers)) }

// AwaitHandover makes the first arrangement of a new keeper begin with a handover. A reload has given replicas to the pool, which had
// no keeper before.
func (k *Keeper) AwaitHandover() { k.barrier.Arrangement = barrier.None }

// setFormers sets the former lists of this process, as texts. An empty list means that all keys have moved.
func (k *Keeper) setFormers(texts [][]byte) {
	f := &k.formers
	joined := bytes.Join(texts, []byte{'\n'})
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
			k.send(ask{kind: askFormer, server: i, about: i}, now, MetaGet(f.item))
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
			f.open++
			if f.until == 0 {
				f.until = now + 2*int64(k.set.Request)
			}
			k.send(ask{kind: askFormer, server: i, about: i}, now, MetaGet(f.item))
		}
	}
	tried := !k.any(func(i int) bool { return !f.asked[i] && !k.tried(i) })
	if (f.until == 0 || now < f.until) && (f.open > 0 || !tried) && 2*f.heard <= len(k.servers) {
		return
	}
	f.seeks = false
	k.gen++
	if f.learned != nil {
		k.barrier.Learn(f.reached, k.hash, now)
		k.pingAllNow(now)
	}
}

// formerAnswered handles the reply to a request for the former lists.
func (k *Keeper) formerAnswered(a ask, answer []byte, now int64) {
	f := &k.formers
	value, cas, ok := MetaValue(answer)
	if f.seeks {
		f.heard++
		if f.open--; ok {
			k.readFormers(a.server, value)
		}
		return
	}
	if len(f.own) > 0 && (ok && cas != 0 || IsMetaMiss(answer)) {
		k.send(ask{kind: askListWrite, server: a.server, about: a.server}, now, MetaPut(f.item, f.own, cas, formerSeconds))
	}
}

// readFormers learns the lists in the value of an item on server i, unless it knows the lists of a later handover.
func (k *Keeper) readFormers(i int, value []byte) {
	lines := bytes.Split(value, []byte{'\n'})
	reached, err := number(lines[0], 32)
	if n := len(lines) - 1; len(value) > listLimit+20 || reached > mostSteps || n > mostFormers {
		err = fmt.Errorf("it has %d bytes, %d lists, and the number %d", len(value), n, reached)
	}
	var texts [][]byte
	for _, text := range lines[1:] {
		if err == nil {
			_, err = k.texts.Hash(text)
		}
		texts = append(texts, bytes.Clone(text))
	}
	switch f := &k.formers; {
	case err != nil:
		k.complainList(i, fmt.Sprintf("the item %s is not a list of servers of this pool: %v", f.item, err))
	case uint32(reached) > f.reached:
		f.reached, f.learned = uint32(reached), texts
	}
}

// formerKey returns the key of the item with the lists before the one with this hash.
func (k *Keeper) formerKey() string {
	return k.keys.Former + strconv.FormatUint(uint64(uint32(k.hash)), 36)
}
