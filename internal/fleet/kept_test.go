package fleet

// Requests for cases that test a single promise, and the checks that nothing
// acknowledged is missed or lost.

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ask returns one random request.
type ask func(a *app) *op

func (a *app) anyValue() *fkey { return a.f.values[a.f.rand.IntN(len(a.f.values))] }

func (a *app) get() *op { return a.getOf(a.anyValue()) }

func (a *app) getOf(k *fkey) *op {
	return &op{kind: "values", text: fmt.Appendf(nil, "get %s\r\n", k.name), keys: []*fkey{k}}
}

func (a *app) gatOf(k *fkey) *op {
	return &op{kind: "values", text: fmt.Appendf(nil, "gat 0 %s\r\n", k.name), keys: []*fkey{k}}
}

func (a *app) getsOf(k *fkey) *op {
	return &op{kind: "values", text: fmt.Appendf(nil, "gets %s\r\n", k.name), keys: []*fkey{k}}
}

func (a *app) set() *op { return a.store(a.anyValue(), "set") }

func (a *app) add() *op { return a.store(a.anyValue(), "add") }

func (a *app) remove() *op { return a.removeOf(a.anyValue()) }

func (a *app) removeOf(k *fkey) *op {
	return &op{kind: "line", w: a.f.newRemoval(k), keys: []*fkey{k}, text: fmt.Appendf(nil, "delete %s\r\n", k.name)}
}

// take requests a lock, which the app releases later.
func (a *app) take() *op {
	if a.held != nil {
		return a.get()
	}
	return a.lock()
}

// append appends a unique part to a key.
func (a *app) append() *op {
	f := a.f
	k := f.logged[f.rand.IntN(len(f.logged))]
	if !k.made {
		return a.get()
	}
	p := &part{key: k}
	text := fmt.Sprintf(",%d", len(f.parts))
	f.parts = append(f.parts, p)
	return &op{kind: "append", part: p, keys: []*fkey{k}, text: fmt.Appendf(nil, "append %s 0 0 %d\r\n%s\r\n", k.name, len(text), text)}
}

// look reads a key that is appended to.
func (a *app) look() *op {
	k := a.f.logged[a.f.rand.IntN(len(a.f.logged))]
	return &op{kind: "values", text: fmt.Appendf(nil, "get %s\r\n", k.name), keys: []*fkey{k}}
}

// keeping is what is known about whether a key must exist.
type keeping struct {
	kept     int64 // time since which this value or a newer one must exist; 0: none must
	removing int   // number of commands in flight that remove the value
	storing  int   // number of stores in flight: without an answer they may be undone, which removes the value
	missed   int64 // value of kept when a read last missed the key
	missedAt int64 // when that was
	cleared  int64 // when the last command that may remove the value began or ended; without an answer, when it has surely ended
}

// change records that a mutation is sent.
func (k *fkey) change(f *fleet, removes bool) {
	if removes {
		k.removing++
		k.kept, k.cleared = 0, f.now
	} else {
		k.storing++
	}
}

// keep records that a mutation is answered.
func (f *fleet) keep(o *op, line string, failed bool) {
	w, k := o.w, o.w.key
	if w.removes {
		k.removing--
		k.cleared = max(k.cleared, f.now)
	} else {
		k.storing--
	}
	switch {
	case failed && f.newer: // it may be executed, but can't affect values that are stored from now on
		k.kept, k.cleared = 0, max(k.cleared, f.now)
	case failed && (w.removes || !f.undone):
		k.kept, k.cleared = 0, max(k.cleared, f.now, f.trouble)+2*second
	case !w.removes && (line == "STORED" || line == "HD") && k.removing == 0 && k.cleared < w.invoked:
		k.kept = f.now
	}
}

// judgeMiss checks whether the i-th key of o may be missed.
func (a *app) judgeMiss(o *op, i int) {
	f, k := a.f, o.keys[i]
	a.judgeStored(o, k)
	if o.kepts[i] != 0 && o.kepts[i] == k.kept && k.storing == 0 && (f.herd == nil || f.herd.lives == 0) {
		f.gaps++
	}
	switch {
	case f.stays && len(o.keys) == 1 && o.kepts[i] != 0 && o.kepts[i] == k.kept && k.storing == 0: // a read may miss a value once, while it moves
		if k.missed == k.kept && o.invoked > k.missedAt {
			f.harmed(lost, k.name, "a%d p%d misses %s again, which was acknowledged at %.4f", a.id, a.s.id, k.name, sec(k.kept))
		}
		k.missed, k.missedAt = k.kept, f.now
	case !f.keeps && !k.log, o.kepts[i] == 0, k.kept == 0, k.storing > 0 && !f.undone, o.invoked < f.since:
	default:
		f.harmed(lost, k.name, "a%d p%d misses %s, which was acknowledged at %.4f", a.id, a.s.id, k.name, sec(o.kepts[i]))
	}
}

// logHead is the value of a key before anything is appended.
const logHead = "head"

// part is an appended part. It consists of its number.
type part struct {
	key   *fkey
	acked int64 // when; 0: not acknowledged
}

func (a *app) judgeAppend(o *op, line string) {
	switch line {
	case "STORED":
		o.part.acked = a.f.now
	case "NOT_STORED":
		a.judgeMiss(o, 0)
	default:
		a.strange(o, line)
	}
}

// judgeLog checks that the value contains all parts acknowledged before o, exactly
// once.
func (a *app) judgeLog(o *op, k *fkey, value string) {
	f := a.f
	head, rest, _ := strings.Cut(value, ",")
	if head != logHead {
		f.harmed(torn, k.name, "a%d p%d reads %.40q of %s: its head is gone", a.id, a.s.id, value, k.name)
	}
	times := slices.Grow(f.times[:0], len(f.parts))[:len(f.parts)]
	clear(times)
	f.times = times
	for more := rest != ""; more; {
		var text string
		text, rest, more = strings.Cut(rest, ",")
		n, err := strconv.Atoi(text)
		if err != nil || n >= len(f.parts) || f.parts[n].key != k {
			f.harmed(stranger, k.name, "a%d p%d reads %q in %s, which nobody has appended", a.id, a.s.id, text, k.name)
			return
		}
		times[n]++
	}
	for n, p := range f.parts {
		switch {
		case p.key != k || p.acked == 0: // it may be there or not
		case times[n] > 1:
			f.harmed(doubled, k.name, "a%d p%d reads %d %d times in %s; it was acknowledged at %.4f", a.id, a.s.id, n, times[n], k.name, sec(p.acked))
		case times[n] == 0 && p.acked < o.invoked:
			f.harmed(torn, k.name, "a%d p%d does not read %d in %s, acknowledged at %.4f", a.id, a.s.id, n, k.name, sec(p.acked))
		}
	}
}
