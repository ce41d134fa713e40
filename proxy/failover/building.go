package failover

// Commands that build on a value, at a server that may hold placeholders. The decision is a
// pure rule: model_test.go explores it.

import (
	"strconv"

	"ringside/proxy/stats"
	"ringside/proxy/task"
	"ringside/proxy/task/deed"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
	"ringside/replicate"
)

// class says what a command may do to a placeholder.
type class uint8

const (
	blind   class = iota // replaces or removes what is there, or only reads it
	guarded              // would take the placeholder for a value, and leave no trace of that: replace, append, prepend, md I
	makes                // guarded, and creates what is missing: ms MA with N
	counts               // says that a placeholder is no number: incr, decr
	adds                 // is refused by a placeholder: add
	bound                // finds another cas there than its token: cas, and what has C
	unbinds              // bound, and removes the key: md C
	extends              // lets the placeholder live longer, and says so: touch
	peeks                // extends, and reads: gat, mg T
)

// step is what a command on a value does next.
type step uint8

const (
	sendMain    step = iota // the client's request; of a guarded command by the cas of the last look
	sendLook                // what is there, and its cas
	refill                  // bring the value back from the interim server, and begin again
	wait                    // let the placeholder's owner end its work, and begin again
	again                   // begin a round
	sendDrop                // remove the placeholder that the last look has shown, by its cas
	giveMain                // the answer to the client's request is the client's
	giveAbsent              // the client learns that there is no item
	giveFailure             // the client gets an error
)

// mostMet is how often a command may meet a placeholder before it fails, mostTries how often
// its request may be sent while others change the key. The model sets fewer.
var mostMet, mostTries uint8 = 5, 30

// building decides what one command asks of a server that may have a placeholder.
//
// A guarded command is bound to a value that a look has shown, by its cas. Others run as
// they are, and a refusal counts only if it can't come from a placeholder.
type building struct {
	class class
	warm  bool // this instance is in WARM: it brings values back itself

	met, tries uint8  // how often it has met a placeholder; its request was not done
	refused    bool   // the request was sent, and refused
	seen       uint64 // the cas of the value that the last look has shown; 0: there was none
}

// first is how a round begins.
func (b *building) first() step {
	b.refused, b.seen = false, 0
	switch b.class {
	case guarded, makes, unbinds:
		return sendLook
	}
	return sendMain
}

// answered is the step after the client's request was answered. placeholder says that the
// answer shows one.
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
		if placeholder { // it must not stay, however often that happens
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

// looked is the step after a look. cas is that of the value which it has shown, 0 if there is
// none; placeholder says that it has shown one.
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
	case counts: // the same value before and after the refusal: that is no number, or has another cas
		if b.refused && before == cas {
			return giveMain
		}
	}
	return sendMain
}

// dropped is the step after a placeholder was removed, or has been replaced before.
func (b *building) dropped() step {
	switch {
	case b.class == peeks:
		return giveMain
	case b.met > mostMet:
		return giveFailure
	}
	return again
}

// meet is the step after a look that has shown a placeholder. A refill waits for its owner
// and takes it over. An instance in SETTLE does not refill: it waits once, and then removes
// the placeholder, whose owner sees that and begins again. A placeholder that was made to live
// longer is removed at once.
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

// took reports whether an answer says that the request was carried out.
func took(k wire.Kind) bool {
	switch k {
	case wire.NotStored, wire.Exists, wire.NotFound, wire.Miss, wire.End, wire.ClientError, wire.ServerError:
		return false
	}
	return true
}

// classOf is the class of t's command.
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

// round begins a round of a command that builds on a value. In WARM the value is at the key's
// own server now, if anywhere, so the interim server is told to delete it at once.
func (l *single) round(t *task.Task) {
	if l.next = l.first(); l.warm && l.class != unbinds {
		l.askSide(t)
	}
	l.perform(t)
}

func (l *single) askSide(t *task.Task) {
	l.sideAsked = true
	l.waiting++
	t.Ask(sideAsk, t.Route.Member(l.Interim.Server), t.Meta("md", l.Keys[1], "", nil))
}

// built goes on when an ask of a command that builds on a value has ended.
func (l *single) built(t *task.Task, id int, r *upstream.Result) {
	l.waiting--
	switch {
	case id == dropAsk: // whatever came of it: the placeholder is gone, or is another's now
		l.failed = nil
		l.next = l.dropped()
	case l.failed != nil:
		if l.next = giveMain; id == mainAsk {
			l.main = t.Keep(r)
		}
	case id == mainAsk:
		l.main = t.Keep(r)
		l.next = l.answered(r.Reply.Kind, deed.Marked(r))
	case id == lookAsk:
		var cas uint64
		marked := deed.Marked(r)
		if !marked && !task.Missed(r) {
			cas = number(deed.Arg(r, 'c'))
		}
		l.look = t.Keep(r)
		l.next = l.looked(cas, marked)
	}
	if l.waiting == 0 {
		l.perform(t)
	}
}

// perform carries out the next step.
func (l *single) perform(t *task.Task) {
	own := t.Route.Member(l.First.Server)
	ask := func(id int, line []byte) {
		l.waiting++
		t.Ask(id, own, line)
	}
	switch l.next {
	case sendLook:
		ask(lookAsk, deed.Spell(t, replicate.Look, l.Keys[0], "", 0))
	case refill:
		l.checked = false
		l.Begin(t)
	case again:
		l.Begin(t)
	case wait:
		t.Open++ // the wait counts as an ask: the task goes on meanwhile
		t.Loop.After(t.Loop.Now+int64(deed.MarkWait), func() {
			t.Open--
			l.Begin(t)
			t.CatchUp()
		})
	case sendDrop:
		if l.look.Void() { // the same cas may be another item's by now
			l.next = l.dropped()
			l.perform(t)
			return
		}
		ask(dropAsk, deed.Spell(t, replicate.Drop, l.Keys[0], deed.Guard(&l.look), 0))
	case sendMain:
		switch {
		case !l.Sure(t): // nothing was done yet
			l.end(t)
		case l.class == unbinds && !l.sideAsked: // see sendHalf
			l.askSide(t)
		case l.seen != 0 && (l.class == guarded || l.class == makes) && l.look.Void():
			l.Begin(t)
		default:
			ask(mainAsk, l.spell(t))
		}
	case giveMain:
		if l.failed == nil && took(l.main.Reply.Kind) && !l.sideAsked {
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
		l.told = task.Absence(t)
		l.end(t)
	case giveFailure:
		why := "another instance is refilling this key: try again"
		if l.met <= mostMet {
			why = "other clients keep changing this key: try again"
		}
		t.Fail(why, stats.Unavailable)
	}
}

// spell is the client's request as it goes to the key's own server. A touch is sent so that its
// answer shows a placeholder, and a guarded command with the cas of the last look.
func (l *single) spell(t *task.Task) []byte {
	r, key, guard := &t.Req, l.Keys[0], deed.Guard(&l.look)
	at := func(letter byte) (span wire.Span, ok bool) {
		span, ok = wire.FlagArg(t.Raw, r.MetaFlags, letter)
		span.Start--
		return span, ok
	}
	switch {
	case l.class == extends:
		l.respelled = true
		return t.Meta("mg", key, " s f c T"+t.Exptime(), nil)
	case l.class == makes && l.seen == 0: // an add, as something may be there by now
		mode, _ := at('M')
		life, _ := at('N')
		edits := []task.Edit{{At: mode, With: []byte("ME")}, {At: life, With: append([]byte("T"), t.Raw[life.Start+1:life.End]...)}}
		if old, ok := at('T'); ok {
			old.Start-- // the space
			edits = append(edits, task.Edit{At: old})
		}
		return t.WithKey(key, edits...)
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
	case t.Op == wire.Replace: // memcached knows no cas of a replace
		mode, _ := at('M')
		return t.WithKey(key, task.Edit{At: mode, With: []byte(guard[1:])})
	}
	edit, _ := deed.Show(t, 0, guard)
	return t.WithKey(key, edit)
}

// peeked handles the answers to a read that also extends what it finds. A placeholder that
// lives longer is removed before the client is answered. It reports whether the read goes on
// with its answer, in l.main.
func (l *single) peeked(t *task.Task, id int, r *upstream.Result) bool {
	var next step
	switch id {
	case mainAsk:
		l.main = t.Keep(r)
		next = l.answered(r.Reply.Kind, deed.Marked(r))
	case lookAsk:
		if next = l.looked(1, deed.Marked(r)); next == sendDrop && !r.Void() {
			t.Ask(dropAsk, r.Server, deed.Spell(t, replicate.Drop, l.Keys[0], deed.Guard(r), 0))
			return false
		}
		return true
	}
	if next == sendLook {
		t.Ask(lookAsk, r.Server, deed.Spell(t, replicate.Look, l.Keys[0], "", 0))
		return false
	}
	return true
}

func number(s string) uint64 {
	n, _ := strconv.ParseUint(s, 10, 64)
	return n
}
