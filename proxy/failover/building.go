package failover

// This file runs commands that depend on the existing value, at a server that may have a placeholder
// for the key. A pure rule (building) decides their steps: model_test.go explores it.

import (
	"strconv"

	"ringside/proxy/stats"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
	"ringside/replicate"
)

// class is the kind of a command, by the effect of a placeholder at the key on the command.
type class uint8

const (
	blind   class = iota // the command replaces or removes a placeholder, or only reads it: set, delete, get
	guarded              // the command would treat a placeholder as a value, and its reply would not show that: replace, append, prepend, md I
	makes                // the command would treat a placeholder as a value, and creates a missing item: ms MA with N
	counts               // the command gets the error that a placeholder is not a number: incr, decr
	adds                 // the command fails if the key has a placeholder: add
	bound                // the command fails because the cas of a placeholder differs from the client's cas token: cas, and commands with flag C
	unbinds              // the command fails because the cas of a placeholder differs from the client's cas token, and otherwise removes the key: md C
	extends              // the command extends the TTL of a placeholder, and reports success: touch
	peeks                // the command extends the TTL of a placeholder, and reads it: gat, mg T
)

// step is the next step of a command that depends on the existing value.
type step uint8

const (
	sendMain    step = iota // send the client's request; a command of the class guarded or makes carries the cas of the last look
	sendLook                // read the item's flags and cas (a look)
	refill                  // copy the value from the substitute server (backfill), and begin the command again
	wait                    // wait a moment for the owner of the placeholder, and begin the command again
	again                   // begin the command again
	sendDrop                // remove the placeholder that the last look has found, by its cas
	giveMain                // send the client the reply to its request
	giveAbsent              // send the client the reply for a missing item
	giveFailure             // send the client an error
)

// mostMet is how often a command may find a placeholder before it fails. mostTries is how often the
// server may refuse the command's request, while others change the key, before the command fails.
// The test model_test.go sets smaller limits.
var mostMet, mostTries uint8 = 5, 30

// building decides which requests a command that depends on the existing value sends to a server that
// may have a placeholder for the key.
//
// A command that would treat a placeholder as a value first reads the item (a look), and then runs
// only if the item still has the same cas. Most other commands run unchanged. If the server refuses
// such a command, the client gets that reply only if a placeholder can't be the cause.
type building struct {
	class class
	warm  bool // this instance knows the server as WARM, so it copies values back from the substitute server

	met, tries uint8  // met: how often the command has found a placeholder; tries: how often the server has refused its request
	refused    bool   // the server has refused the client's request in this round of the command
	seen       uint64 // the cas of the value that the last look has found; 0: it has found no value
}

// first returns the first step of a command, when it begins or begins again.
func (b *building) first() step {
	b.refused, b.seen = false, 0
	switch b.class {
	case guarded, makes, unbinds:
		return sendLook
	}
	return sendMain
}

// answered returns the next step after a reply of kind k to the client's request. placeholder
// reports whether the reply shows a placeholder.
func (b *building) answered(k wire.Kind, placeholder bool) step {
	unclear := false
	switch b.class {
	case guarded, makes:
		unclear = k == wire.Exists || k == wire.NotFound || k == wire.NotStored
	case counts:
		unclear = k == wire.ClientError || k == wire.Exists
	case adds:
		unclear = k == wire.NotStored
	case bound, unbinds:
		unclear = k == wire.Exists
	case extends, peeks:
		if placeholder { // the placeholder with the extended TTL must be removed, even if the command has found many
			return sendLook
		}
	}
	if !unclear {
		return giveMain
	}
	if b.tries++; b.tries > mostTries {
		return giveFailure
	}
	b.refused = true
	return sendLook
}

// looked returns the next step after a look, which has read the item. cas is the cas of the value; 0:
// there is no value. placeholder reports whether the item is a placeholder.
func (b *building) looked(cas uint64, placeholder bool) step {
	before := b.seen
	b.seen = cas
	switch {
	case placeholder && b.class == peeks:
		return sendDrop
	case placeholder:
		return b.meet()
	case b.class == peeks:
		return giveMain
	case cas == 0 && (b.class == guarded || b.class == bound || b.class == unbinds):
		return giveAbsent
	case cas == 0:
		return sendMain
	}
	switch b.class {
	case adds, bound, unbinds:
		if b.refused {
			return giveMain
		}
	case counts: // if the value was the same before and after the server refused the request, a placeholder was not the cause
		if b.refused && before == cas {
			return giveMain
		}
	}
	return sendMain
}

// dropped returns the next step after a request to remove a placeholder. The placeholder is gone:
// this request has removed it, or something has replaced it before.
func (b *building) dropped() step {
	switch {
	case b.class == peeks:
		return giveMain
	case b.met > mostMet:
		return giveFailure
	}
	return again
}

// meet returns the next step after a look has found a placeholder. If the server is in WARM, a
// backfill (refill) waits for the owner of the placeholder, and then replaces the placeholder. If the
// server is in SETTLE, the command waits once for the owner, and then removes the placeholder. The
// owner notices that, and begins again. If the command has extended the TTL of the placeholder, the
// placeholder is removed at once.
func (b *building) meet() step {
	switch b.met++; {
	case b.class == extends:
		return sendDrop
	case b.met > mostMet:
		return giveFailure
	case b.warm && b.met == 1:
		return refill
	case b.met == 1:
		return wait
	}
	return sendDrop
}

// isStored reports whether a reply of kind k says that the server has carried out the request.
func isStored(k wire.Kind) bool {
	switch k {
	case wire.NotStored, wire.Exists, wire.NotFound, wire.Miss, wire.End, wire.ClientError, wire.ServerError:
		return false
	}
	return true
}

// isRejected reports whether a reply of the given kind says that a storage command has changed nothing, because the item exists, is missing, or
// has another cas. Another client may have stored the item.
func isRejected(k wire.Kind) bool {
	return k == wire.NotStored || k == wire.Exists || k == wire.NotFound || k == wire.Miss
}

// classOf returns the class of t's command: how the command behaves if it finds a placeholder.
func classOf(t *task.Task) class {
	c := task.CommandOf(t)
	switch t.Op {
	case wire.Get, wire.Gets, wire.Gat, wire.Gats:
		if c.Op == replicate.Gat || c.Op == replicate.Gats {
			return peeks
		}
	case wire.Add:
		return adds
	case wire.Replace:
		return guarded
	case wire.Append, wire.Prepend:
		switch {
		case c.If:
			return bound
		case c.Vivify:
			return makes
		}
		return guarded
	case wire.Cas:
		return bound
	case wire.Incr, wire.Decr:
		return counts
	case wire.Touch:
		return extends
	case wire.Delete:
		switch {
		case c.If && c.Stale:
			return bound
		case c.If:
			return unbinds
		case c.Stale:
			return guarded
		}
	}
	return blind
}

// round begins a command that depends on the existing value, or begins it again. If the key's own
// server is in WARM, a backfill has already copied the value, if any, to that server. So the
// substitute server gets its delete of the key at once, except for md C, which may be refused.
func (l *single) round(t *task.Task) {
	if l.next = l.first(); l.warm && l.class != unbinds {
		l.askSide(t)
	}
	l.perform(t)
}

func (l *single) askSide(t *task.Task) {
	l.sideAsked = true
	l.waiting++
	t.Ask(sideAsk, t.Route.Server(l.Interim.Server), t.Meta("md", l.Keys[1], "", nil))
}

// built continues a command that depends on the existing value, after its request with the number id
// has ended with the result r.
func (l *single) built(t *task.Task, id int, r *upstream.Result) {
	l.waiting--
	switch {
	case id == dropAsk: // the placeholder that the last look has found is gone, whatever the reply is
		l.failed = nil
		l.next = l.dropped()
	case l.failed != nil:
		if l.next = giveMain; id == mainAsk {
			l.main = t.Keep(r)
		}
	case id == mainAsk:
		l.main = t.Keep(r)
		l.next = l.answered(r.Reply.Kind, task.HasTombstone(r))
	case id == lookAsk:
		var cas uint64
		marked := task.HasTombstone(r)
		if !marked && !task.Missed(r) {
			cas = number(task.Arg(r, 'c'))
		}
		l.look = t.Keep(r)
		l.next = l.looked(cas, marked)
	}
	if l.waiting == 0 {
		l.perform(t)
	}
}

// perform runs the next step of the command: l.next.
func (l *single) perform(t *task.Task) {
	own := t.Route.Server(l.First.Server)
	ask := func(id int, line []byte) {
		l.waiting++
		t.Ask(id, own, line)
	}
	switch l.next {
	case sendLook:
		ask(lookAsk, task.StepRequest(t, replicate.Look, l.Keys[0], "", 0))
	case refill:
		l.checked = false
		l.Begin(t)
	case again:
		l.Begin(t)
	case wait:
		t.Open++ // the wait counts as a request in flight, so the task does not end before it
		t.Loop.After(t.Loop.Now+int64(task.MarkWait), func() {
			t.Open--
			l.Begin(t)
			t.CatchUp()
		})
	case sendDrop:
		if l.look.HasEnded() { // a new process of the server may have assigned the same cas to another item
			l.next = l.dropped()
			l.perform(t)
			return
		}
		ask(dropAsk, task.StepRequest(t, replicate.Drop, l.Keys[0], task.CasFlag(&l.look), 0))
	case sendMain:
		switch {
		case !l.Sure(t): // the server may not serve the key any more, and no part of the command has been carried out yet
			l.end(t)
		case l.class == unbinds && !l.sideAsked: // the delete at the substitute server must be sent before the client's request: see sendHalf
			l.askSide(t)
		case l.seen != 0 && (l.class == guarded || l.class == makes) && l.look.HasEnded():
			l.Begin(t)
		default:
			ask(mainAsk, l.spell(t))
		}
	case giveMain:
		if l.class == peeks && l.checkMiss(t, &l.main) {
			l.waiting++ // for the reply of the substitute server
			return
		}
		if l.class != peeks && l.failed == nil && isStored(l.main.Reply.Kind) && !l.sideAsked {
			l.askSide(t)
			return
		}
		if l.respelled && l.failed == nil {
			switch k := l.main.Reply.Kind; k {
			case wire.Stored:
				l.told = k
			case wire.Header:
				l.told = wire.Touched
			case wire.Miss:
				l.told = wire.NotFound
			}
		}
		l.end(t)
	case giveAbsent:
		l.told = task.MissKind(t)
		l.end(t)
	case giveFailure:
		why := "another instance is refilling this key: try again"
		if l.met <= mostMet {
			why = "other clients keep changing this key: try again"
		}
		t.Fail(why, stats.Unavailable)
	}
}

// spell returns the client's request as it is sent to the key's own server. A touch is sent as a
// command with a reply that shows a placeholder. A command that would treat a placeholder as a value
// carries the cas of the last look.
func (l *single) spell(t *task.Task) []byte {
	r, key, guard := &t.Req, l.Keys[0], task.CasFlag(&l.look)
	at := func(letter byte) (span wire.Span, ok bool) {
		span, ok = wire.FlagArg(t.Raw, r.MetaFlags, letter)
		span.Start--
		return span, ok
	}
	switch {
	case l.class == extends:
		l.respelled = true
		return t.Meta("mg", key, " s f c T"+t.Exptime(), nil)
	case l.class == makes && l.seen == 0: // the last look has found no item: the request is sent as an add, because another client may have stored an item since
		mode, _ := at('M')
		return t.WithKey(key, append(t.LifeOfCreated(), task.Edit{At: mode, With: []byte("ME")})...)
	case l.class != guarded && l.class != makes:
		return l.line
	case r.Dialect == wire.Text:
		l.respelled = true
		switch t.Op {
		case wire.Append:
			return t.Meta("ms", key, " MA"+guard, t.Body())
		case wire.Prepend:
			return t.Meta("ms", key, " MP"+guard, t.Body())
		}
		return t.Meta("ms", key, guard+" F"+t.ClientFlags()+" T"+t.Exptime(), t.Body())
	case t.Op == wire.Replace: // with a cas, memcached runs a replace like a set, so the cas takes the place of the mode flag
		mode, _ := at('M')
		return t.WithKey(key, task.Edit{At: mode, With: []byte(guard[1:])})
	}
	edit, _ := task.Show(t, 0, guard)
	return t.WithKey(key, edit)
}

func number(s string) uint64 {
	n, _ := strconv.ParseUint(s, 10, 64)
	return n
}
