package replicate

// Modelled replicas: what each ask does to their items.

import "cmp"

// item is what a modelled replica has of the key. Values are numbers; append adds another
// digit at the end. A tombstone that was appended to has digits, and is still a tombstone.
type item struct {
	has, mark bool
	stale     bool // an md I has marked it stale, so it is not copied
	expiring  bool // its remaining TTL is 1 s
	value     uint32
	cas       uint8
}

func (it *item) size() (n uint64) {
	for v := it.value; v > 0; v /= 10 {
		n++
	}
	return n
}

// seen returns the kind of reply to a request that shows the item's flags.
func (it *item) seen() Kind {
	switch {
	case !it.has:
		return Miss
	case it.mark:
		return Marked
	}
	return Hit
}

type world struct {
	items [3]item
	count [3]uint8 // the replicas' cas counters
	life  [3]uint8 // how often they were restarted
	brief bool     // all values that are stored expire soon
}

func (w *world) put(m int, value uint32) {
	w.count[m]++
	w.items[m] = item{has: true, value: value, cas: w.count[m], expiring: w.brief}
}

func (w *world) mark(m int) {
	w.put(m, 0)
	w.items[m].mark, w.items[m].expiring = true, false
}

// restart empties a replica and resets its cas counter.
func (w *world) restart(m int) {
	w.items[m], w.count[m] = item{}, 0
	w.life[m]++
}

// client is one command in progress.
type client struct {
	rule    Rule
	fetched [maxAsks]uint32 // by ask
	cas     [maxAsks]uint8
	life    [maxAsks]uint8 // of the replica at that time
	own
}

// own is what a client wants, and its results.
type own struct {
	value  uint32 // stored, appended or added to the counter
	number uint32 // the result of its incr
	read   uint32 // the value that its get found
	token  uint8
	void   bool // the primary was restarted before the client had its reply
	waits  bool // it begins after the first client has its reply
	errand      // steps before and after its rule
	ablate ablation
}

// ablation names one rule of replication to leave out.
type ablation uint8

const (
	everything ablation = iota
	oneRound            // a delete that finds something else than its tombstones at the end succeeds
	onlyLooks           // a delete checks that its tombstones are still there, and does not replace them
	noMarks             // a delete places no tombstones
	onlyValues          // a delete places tombstones only where there was an item
	shown               // reads return tombstones
	ownLook             // no look follows an append
	unguarded           // followers append and count on whatever they have
	alike               // a follower with the primary's number has all that the primary had counted
	cleans              // a command that finds a tombstone removes it
	unasked             // an add asks no replica that is not read, and sets the value there
	unbound             // a copy replaces whatever the replica has
	tooBrief            // a value that is about to expire counts as none
	unsure              // a reply is sent without checking that the primary's process is the same
	byKey               // a refused set removes whatever the replica has
	leaves              // a refused set removes nothing
)

// run executes ask i of c as memcached does.
func (w *world) run(c *client, i int) Outcome {
	o := w.execute(c, i)
	e := c.rule.asks[i]
	if own := e.step == Forward || e.step == Store || e.step == Extend; c.rule.c.Expires && own {
		switch o.Kind {
		case Hit, Marked, Stored, Touched, Number:
			w.items[e.replica] = item{}
		}
	}
	switch {
	case c.ablate == shown && o.Kind == Marked && e.step == Forward:
		o.Kind = Hit
	case c.ablate == ownLook && e.step == Check:
		o.Kind = Hit
	case c.ablate == alike && e.step == Fetch && c.rule.stage == following:
		o = Outcome{Kind: Hit, Value: c.rule.number}
		c.fetched[i] = uint32(c.rule.number)
	case c.ablate == unguarded && e.step == Preview:
		o = Outcome{Kind: Hit, Value: c.rule.number}
	case c.ablate == unasked && c.rule.class == grants && !c.rule.votes(int(e.replica)) && e.step == Store:
		w.put(int(e.replica), c.value)
		o.Kind = Stored
	case c.ablate == unasked && c.rule.class == grants && e.step == Look:
		o.Kind = Hit
	case c.ablate == oneRound && c.rule.stage == verifying:
		o.Kind = Stored
	}
	return o
}

func (w *world) execute(c *client, i int) Outcome {
	e := c.rule.asks[i]
	m := int(e.replica)
	it := &w.items[m]
	c.life[i] = w.life[m]
	if e.step == Drop && c.rule.stage == sweeping && c.ablate == byKey {
		return w.remove(m)
	}
	if e.step == Drop && c.rule.stage == sweeping && c.ablate == leaves {
		return Outcome{Kind: Deleted}
	}
	stored := func() Outcome {
		c.cas[i] = w.items[m].cas
		return Outcome{Kind: Stored}
	}
	if e.step == Forward && c.rule.c.Op == Set {
		w.put(m, c.value)
		return stored()
	}
	switch e.step {
	case Fetch:
		c.fetched[i], c.cas[i] = it.value, it.cas
		value := uint64(it.value)
		if !c.rule.counts() {
			value = 0
			if it.seen() == Hit && it.value == c.value && !it.stale {
				value = 1
			}
		}
		switch {
		case !it.has && c.rule.c.Expires:
			return Outcome{Kind: Miss, Value: 1}
		case it.stale:
			return Outcome{Kind: Stale, Value: value}
		case !it.expiring || it.mark:
			return Outcome{Kind: it.seen(), Value: value}
		case c.ablate == tooBrief:
			return Outcome{Kind: Miss}
		}
		return Outcome{Kind: Expiring, Value: value}
	case Look:
		if c.cas[i] = it.cas; c.rule.makesStale() {
			return Outcome{Kind: it.seen(), Value: uint64(cmp.Compare(c.token, it.cas) + 1)}
		}
		return Outcome{Kind: it.seen(), Value: it.size()}
	case Preview:
		c.cas[i] = it.cas
		after := *it
		switch {
		case !it.has:
		case c.rule.joins():
			after.value = it.value*10 + c.value
			return Outcome{Kind: it.seen(), Value: after.size()}
		default:
			return Outcome{Kind: it.seen(), Value: uint64(it.value + c.value)}
		}
		return Outcome{Kind: it.seen()}
	case Claim:
		if it.has {
			return Outcome{Kind: NotStored}
		}
		w.mark(m)
		return stored()
	case PlaceTombstone:
		if c.ablate == noMarks || c.ablate == onlyValues && !it.has {
			*it = item{}
			return Outcome{Kind: Stored}
		}
		w.mark(m)
		return stored()
	case Wait:
		return Outcome{Kind: OK}
	case Join, Check, RefreshTombstone, Fill, Store, Drop:
		want, life := c.token, w.life[m]
		if int(e.guard) != i {
			want, life = c.cas[e.guard], c.life[e.guard]
		}
		switch {
		case (c.ablate == noMarks || c.ablate == onlyValues && c.cas[e.guard] == 0) && c.rule.class == buries && (e.step == Drop || e.step == RefreshTombstone):
			return Outcome{Kind: map[Step]Kind{Drop: Deleted, RefreshTombstone: Stored}[e.step]}
		case c.ablate == unguarded && e.step == Join:
			return w.join(m, c)
		case c.ablate == unguarded && e.step == Fill && c.rule.counts() && c.rule.stage == following:
			return w.add(m, c)
		case c.ablate == unbound && e.step == Fill:
			w.put(m, c.fetched[e.from])
			return stored()
		case life != w.life[m]:
			return Outcome{Kind: Exists}
		case e.step == Check && it.seen() != Hit:
			return Outcome{Kind: it.seen()}
		case !it.has:
			return Outcome{Kind: NotFound}
		case it.cas != want:
			return Outcome{Kind: Exists}
		}
		switch e.step {
		case Join:
			return w.join(m, c)
		case Check:
			return Outcome{Kind: Hit, Value: it.size()}
		case Drop:
			*it = item{}
			return Outcome{Kind: Deleted}
		case RefreshTombstone:
			if c.ablate == cleans {
				*it = item{}
				return Outcome{Kind: Stored}
			}
			if c.ablate != onlyLooks || c.rule.stage != verifying {
				w.mark(m)
			}
		case Fill:
			w.put(m, c.fetched[e.from])
			w.items[m].expiring = c.rule.asks[e.from].kind == Expiring
		case Store:
			if c.rule.c.Op == Delete {
				return w.spoil(m)
			}
			w.put(m, c.value)
		default:
			w.put(m, c.value)
		}
		return stored()
	case Remove:
		return w.remove(m)
	case Extend:
		c.cas[i] = it.cas
		switch it.seen() {
		case Hit:
			return Outcome{Kind: Touched}
		case Marked:
			return Outcome{Kind: Marked}
		}
		return Outcome{Kind: NotFound}
	}
	switch c.rule.c.Op {
	case Get, Gets, Gat, Gats:
		c.read = it.value
		return Outcome{Kind: it.seen()}
	case Add:
		if it.has {
			return Outcome{Kind: NotStored}
		}
		w.put(m, c.value)
		return stored()
	case Append:
		o := w.join(m, c)
		c.cas[i] = w.items[m].cas
		return o
	case Cas:
		switch {
		case !it.has:
			return Outcome{Kind: NotFound}
		case it.cas > c.token && c.rule.c.Stale:
			w.put(m, c.value)
			w.items[m].stale = true
			return stored()
		case it.cas != c.token:
			return Outcome{Kind: Exists}
		}
		w.put(m, c.value)
		return stored()
	case Incr:
		o := w.add(m, c)
		c.number = uint32(o.Value)
		return o
	case Touch:
		if !it.has {
			return Outcome{Kind: NotFound}
		}
		return Outcome{Kind: Touched}
	case Delete:
		switch {
		case !c.rule.c.Stale || !it.has:
			return w.remove(m)
		case c.rule.c.If && it.cas != c.token:
			return Outcome{Kind: Exists}
		}
		return w.spoil(m)
	}
	panic("no such step")
}

func (w *world) remove(m int) Outcome {
	if !w.items[m].has {
		return Outcome{Kind: NotFound}
	}
	w.items[m] = item{}
	return Outcome{Kind: Deleted}
}

// spoil marks the item stale, as md I does.
func (w *world) spoil(m int) Outcome {
	w.put(m, w.items[m].value)
	w.items[m].stale = true
	return Outcome{Kind: Deleted}
}

func (w *world) join(m int, c *client) Outcome {
	it := w.items[m]
	if !it.has {
		return Outcome{Kind: NotStored}
	}
	w.put(m, it.value*10+c.value)
	w.items[m].mark, w.items[m].expiring = it.mark, it.expiring
	return Outcome{Kind: Stored}
}

func (w *world) add(m int, c *client) Outcome {
	switch it := w.items[m]; {
	case !it.has:
		return Outcome{Kind: NotFound}
	case it.mark:
		return Outcome{Kind: ClientError}
	}
	it := w.items[m]
	w.put(m, it.value+c.value)
	w.items[m].expiring = it.expiring
	return Outcome{Kind: Number, Value: uint64(w.items[m].value)}
}
