package replicate

// This file has the rule of one command on a key that has one copy and moves to another server, and of
// a command on a key that another pool may have: see Keys that move, and Keys of another pool, in the
// package doc.

// OldOwner says what the old owner of a key that moves may be used for.
type OldOwner uint8

// The uses of an old owner.
const (
	Asked   OldOwner = iota // the old owner may have the value: it is asked for it
	Emptied                 // the old owner is not asked any more, but mutations still empty it
	Empty                   // the old owner has nothing (Rule.OldIsEmpty), so it gets no requests, and the command stores no tombstone
)

// Relocate returns the rule of the command c on a key with one copy that moves. Replica 0 is the
// new owner of the key, and replica 1 is its old owner. If a plain read finds the value at the old
// owner, the settlement asks for a copy at the new owner (Repair).
//
// After each round a command may begin again, without a limit: the caller has a deadline. The
// caller drops a rule that must not continue, for example after its deadline or in another stage. If
// Acted reports true then, the command must not begin again, and fails.
func Relocate(c Command, old OldOwner) (r Rule) {
	if c.Reads() && c.Op != Gets { // the cas that a gets returns must be one of the new owner, so a gets moves the key
		states := []Replica{{State: Filling}, {State: In}}
		if old != Asked || c.Op != Get {
			states = states[1:]
		}
		r.Begin(Policy{ReadThrough: true}, c, states, 0)
		return r
	}
	r = Rule{c: c, class: relocates, relocating: relocating{old: old}}
	r.answer, r.reply, r.from = -1, -1, -1
	if old == Empty && c.Op == Set && !c.If {
		r.conclude()
	} else {
		r.probe()
	}
	return r
}

// FillFrom returns the rule of the command c on a key that another pool, the source, may have. Replica 0 is the
// owner of the key, replica 1 is the server of the source, and replica 2 is the mark of the key. With
// Asked the source is asked for a value. With Emptied it is not asked, but there may be tombstones. With
// Empty this command stores no tombstone either. In each case, mutations store the mark.
func FillFrom(c Command, source OldOwner) (r Rule) {
	r = Rule{c: c, class: relocates, stage: relocated, relocating: relocating{old: source, kept: true}}
	r.answer, r.reply, r.from = -1, -1, -1
	switch {
	case c.Reads() && c.Op != Gets:
		r.ask(newOwner, Forward)
	case source == Empty && !c.Reads(): // a copy of another proxy either sees the mark, or has its placeholder at the owner already
		r.acted = true
		r.ask(keyMark, PlaceTombstone)
	default:
		r.probe()
	}
	return r
}

// FillKey returns the rule that copies a key from the source to its owner, without a command. The replicas
// are those of FillFrom. An item or a tombstone at the owner stays. The rule settles as Answered if the owner has
// the value of the source.
func FillKey() (r Rule) {
	r = Rule{class: relocates, relocating: relocating{old: Asked, kept: true, noCommand: true}}
	r.answer, r.reply, r.from = -1, -1, -1
	r.probe()
	return r
}

// Depart returns the rule that moves a key from its old owner (replica 1) to its new owner (replica
// 0), without a command. The value at the old owner is removed only if it has not changed since. A
// tombstone of another command at the new owner stays, and the rule then settles as Unmet, so that
// the caller tries again later.
func Depart() Rule {
	r := Move(1<<0, 0, 1, false)
	r.copy.take = false
	return r
}

// relocating is the state of a command of the class relocates. The mask held says whether the new
// owner has the tombstone of this command, and hits whether this command has removed a value at the
// old owner under its tombstone.
type relocating struct {
	old       OldOwner
	acted     bool // a request was made that other clients may notice
	kept      bool // the old owner belongs to another pool, so it is never written: see FillFrom
	noCommand bool // there is no command: see FillKey
}

// Acted reports whether a command of Relocate has made a request that other clients may notice, among them the
// requests that Next has not returned yet. A tombstone at the new owner does not count, and neither does the move
// of the value.
func (r *Rule) Acted() bool { return r.acted }

// Concludes reports whether a command of Relocate has made its last request in this round, which is the client's command at the
// new owner. Before that, the command has had no effect: only its key may have moved.
func (r *Rule) Concludes() bool {
	if r.stage != relocated || r.main >= r.n || r.asks[r.main].replica != newOwner {
		return false
	}
	switch r.asks[r.main].step {
	case Forward, Store, Drop, Join, Extend:
		return true
	}
	return false
}

// HasTombstone reports whether the tombstone of a command of Relocate, which its ask 0 has stored, is at the
// new owner. A command that is dropped should remove it, so that others need not wait until it expires.
func (r *Rule) HasTombstone() bool { return r.held != 0 }

// OldIsEmpty reports whether a command of Relocate has found that the old owner has nothing, or has
// emptied it. Once the command has succeeded, the key needs only Empty until the owners are exchanged.
func (r *Rule) OldIsEmpty() bool {
	for _, e := range r.asks[:r.n] {
		if r.kept {
			if e.replica == keyMark && (e.kind == Marked || e.step == PlaceTombstone && e.kind == Stored) || e.replica == oldOwner && e.step == Fetch && e.kind.lacking() {
				return true
			}
		} else if e.replica == oldOwner && (e.kind == Miss || e.step == Remove && (e.kind == Deleted || e.kind == NotFound)) {
			return true
		}
	}
	return false
}

// The replicas of a key that moves, or that another pool may have.
const (
	newOwner = 0
	oldOwner = 1 // for FillFrom: the source
	keyMark  = 2 // only for FillFrom: the mark of the key, an item at the new owner with another name
)

// lacking reports whether the reply to a Fetch shows no value that can be copied.
func (k Kind) lacking() bool { return k == Miss || k == Stale || k == Marked }

// probe begins a round: the command stores a tombstone at the new owner, unless that has an item,
// and looks at the item. The asks of the round before are discarded.
func (r *Rule) probe() {
	clear(r.asks[:r.n])
	r.n, r.given, r.held, r.hits = 0, 0, 0, 0
	r.stage = probing
	if r.old != Empty {
		r.ask(newOwner, Claim)
	}
	r.guard[newOwner] = uint8(r.ask(newOwner, Look))
}

// handleRelocation continues a command when all its asks have their outcome. Only a claim and a look,
// or a look and the removal at the old owner, are in flight together.
func (r *Rule) handleRelocation() {
	if r.open > 0 {
		return
	}
	ask := int(r.n) - 1
	e := r.asks[ask]
	switch k := e.kind; {
	case r.stage == probing:
		r.handleProbe(r.asks[0].kind, r.asks[ask].kind)
	case r.stage == yielding:
		r.probe()
	case r.kept && r.handleFilling(ask, e):
	case k.failed(), k.refused() && !(k == ClientError && r.counts() && e.step == Forward):
		r.giveUp(ask)
	case (k == Exists || k == NotFound) && e.step != Forward && e.step != Remove && e.step != Extend:
		r.probe() // another command has changed the new owner, or its process is another one
	case e.step == Fetch && (k == Hit || k == Expiring):
		r.asks[r.askFrom(newOwner, Fill, r.guard[newOwner])].from = uint8(ask)
	case e.step == Fetch && k == Miss:
		r.conclude()
	case e.step == Fetch: // the item is stale, or a tombstone from before a reversal: it counts as missing
		r.clearOld()
	case e.step == Fill && r.c.Op == Add:
		r.settle(Absent, -1)
	case e.step == Fill:
		r.guard[newOwner], r.held = uint8(ask), 0
		r.clearOld()
	case e.step == Remove && r.held != 0 && r.c.Op == Delete && r.asks[ask-1].kind.failed():
		r.giveUp(-1)
	case e.step == Remove:
		if k == Deleted && r.asks[ask-1].kind == Hit && !r.c.If { // a token never matches a value that does not move
			r.hits |= r.held << oldOwner
		}
		r.conclude()
	case e.step == Drop && r.c.Op == Delete && (r.held == 0 || r.hits != 0):
		r.settle(Done, -1)
	case e.step == Drop:
		r.settle(Absent, -1)
	case e.step == Look && k == Marked: // this command has extended the TTL of the tombstone
		r.stage = yielding
		r.askFrom(newOwner, Drop, uint8(ask))
	case e.step == Check && k == Marked:
		r.yield()
	case e.step == Check && k == Hit:
		r.settle(Answered, int(r.main))
	case e.step == Look, e.step == Check, k == NotStored && r.c.Op == Add:
		r.probe()
	case k == Marked && (r.c.Op == Touch || r.c.Op == Gat || r.c.Op == Gats):
		r.ask(newOwner, Look)
	case k == Marked, k == ClientError, k == Exists: // the cause may be the tombstone of another command, unless the item is still the one that was seen before
		r.askFrom(newOwner, Check, r.guard[newOwner])
	default:
		r.settle(Answered, ask)
	}
}

// handleProbe continues a round after the outcomes of the claim and of the look behind it.
func (r *Rule) handleProbe(claim, look Kind) {
	switch {
	case r.noCommand && claim == NotStored:
		r.settle(Unmet, -1)
	case r.old != Empty && claim == Stored:
		r.held, r.guard[newOwner] = 1<<newOwner, 0
		if r.c.replaces() {
			r.clearOld()
		} else {
			r.gather()
		}
	case r.old != Empty && claim != NotStored:
		r.giveUp(0)
	case look == Marked:
		r.yield()
	case look == Miss && r.old != Empty:
		r.probe()
	case look == Miss && !r.creates() && r.c.Op != Set:
		r.settle(Absent, -1)
	case look == Miss:
		r.conclude()
	case look != Hit:
		r.giveUp(int(r.n) - 1)
	case r.c.Op == Add:
		r.settle(Absent, -1)
	default:
		r.clearOld()
	}
}

// replaces reports whether c is a set or delete that does not depend on the value.
func (c Command) replaces() bool {
	return (c.Op == Set || c.Op == Delete && !c.Stale) && !c.If
}

// yield waits for the end of the command that has a tombstone at the new owner. That tombstone is
// never replaced: its command may have emptied the old owner already.
func (r *Rule) yield() {
	r.stage = yielding
	r.ask(newOwner, Wait)
}

// gather fetches the value from the old owner, while the new owner has the tombstone of this command.
func (r *Rule) gather() {
	r.stage = relocated
	if r.old == Asked && r.kept {
		r.ask(keyMark, Look)
	} else if r.old == Asked {
		r.ask(oldOwner, Fetch)
	} else {
		r.clearOld()
	}
}

// creates reports whether the command creates a missing key.
func (r *Rule) creates() bool { return r.c.Op == Add || r.c.Vivify }

// clearOld removes the key at the old owner, while the new owner has the value or the tombstone of
// this command. In the other order, the old value would be moved again if the new owner lost the new
// one.
func (r *Rule) clearOld() {
	r.stage = relocated
	if r.old == Empty || r.kept && r.c.Reads() {
		r.conclude()
		return
	}
	if r.kept {
		r.acted = true
		r.hide()
		return
	}
	r.acted = r.acted || r.held != 0     // otherwise the new owner has the value
	if r.held != 0 && r.c.Op == Delete { // after a reversal, the old owner may have a tombstone
		r.ask(oldOwner, Look)
	}
	r.ask(oldOwner, Remove)
}

// conclude makes the last request, at the new owner. It depends on the item that is there, if the
// command would treat a tombstone like a value. If neither owner has a value, a command that creates
// the key stores its value in place of its own tombstone: if the tombstone were removed before, a lock
// could be granted to no client. Other commands remove their tombstone.
func (r *Rule) conclude() {
	r.stage = relocated
	d := Forward
	switch {
	case r.held != 0 && r.creates():
		d = Store
	case r.c.Op == Delete && r.c.replaces(), r.held != 0 && !r.c.replaces():
		d = Drop
	case r.c.If:
	case r.joins():
		d = Join
	case r.c.Op == Replace, r.c.Op == Delete:
		d = Store
	case r.c.Op == Touch:
		d = Extend
	}
	r.acted = r.acted || d != Drop || r.held == 0
	r.main = uint8(r.askFrom(newOwner, d, r.guard[newOwner]))
}

// Withdraw removes the value that a settled command of Relocate has stored, if it has, because the client gets
// an error. A value whose cas is not known (Forward) is removed whatever the item is now. Withdraw reports
// whether there is something to remove.
func (r *Rule) Withdraw() bool {
	if r.class != relocates || r.answer < 0 || r.asks[r.answer].kind != Stored {
		return false
	}
	step := Drop
	if r.asks[r.answer].step == Forward {
		step = Remove
	}
	r.stage = done
	r.askFrom(newOwner, step, uint8(r.answer))
	return true
}

// giveUp ends a command that has failed with the given ask, and removes its tombstone.
func (r *Rule) giveUp(ask int) {
	if ask >= 0 && !r.asks[ask].kind.refused() {
		ask = -1
	}
	r.settle(Unmet, ask)
	if r.stage = done; r.held != 0 {
		r.askFrom(newOwner, Drop, r.guard[newOwner])
	}
}

// hide stores the mark of the key, which hides the value of the source, while the owner has the value or
// the tombstone of this command. A delete looks for the mark first: without one, the source may have had
// the value that it removes.
func (r *Rule) hide() {
	if r.held != 0 && r.c.Op == Delete {
		r.ask(keyMark, Look)
	}
	r.ask(keyMark, PlaceTombstone)
}

// handleFilling continues a rule of FillFrom or FillKey after the given ask, e. It returns false if the rule
// continues as that of a key that moves.
func (r *Rule) handleFilling(ask int, e asked) bool {
	k := e.kind
	plain := r.c.Op == Get && !r.noCommand && r.c.Reads() || r.c.Op == Debug
	switch {
	case plain && e.replica == newOwner && k == Hit:
		r.settle(Answered, ask)
	case plain && e.replica == newOwner && (k == Miss || k == Marked):
		if r.old == Asked && r.c.Op == Get {
			r.ask(keyMark, Look)
		} else if k == Miss {
			r.settle(Answered, ask)
		} else {
			r.settle(Absent, -1)
		}
	case plain && e.replica == oldOwner && k == Hit:
		r.settle(Answered, ask)
	case plain && e.replica == oldOwner: // an error of the source counts as a miss
		r.settle(Absent, -1)
	case e.replica == keyMark && e.step == Look && k == Miss && plain:
		r.ask(oldOwner, Forward)
	case e.replica == keyMark && e.step == Look && k == Miss:
		r.ask(oldOwner, Fetch)
	case e.replica == keyMark && e.step == Look && !k.failed() && !k.refused():
		if plain {
			r.settle(Absent, -1)
		} else {
			r.missing()
		}
	case e.step == Fetch && k.lacking():
		r.missing()
	case e.step == Fetch && (k.failed() || k.refused()):
		if r.c.Op == Gets {
			r.conclude() // a miss
		} else {
			r.giveUp(-1)
		}
	case r.noCommand && e.step == Fill && k == Stored:
		r.settle(Answered, -1)
	case r.noCommand && (k == Exists || k == NotFound):
		r.settle(Unmet, -1)
	case e.step == PlaceTombstone && k == Stored && r.old == Empty && (r.c.Op != Set || r.c.If):
		r.probe()
	case e.step == PlaceTombstone && k == Stored:
		seen := pending
		if r.held != 0 && r.c.Op == Delete {
			seen = r.asks[ask-1].kind
		}
		if seen.failed() || seen.refused() {
			r.giveUp(-1)
			break
		}
		if seen == Miss && !r.c.If {
			r.hits |= r.held << oldOwner
		}
		r.conclude()
	default:
		return false
	}
	return true
}

// missing continues a command if neither the owner nor the source has a value that counts.
func (r *Rule) missing() {
	if r.creates() {
		r.clearOld()
	} else {
		r.conclude()
	}
}
