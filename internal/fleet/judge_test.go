package fleet

// The fleet's judge: what may be answered, given all that was answered before.

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"ringside/proxy/stats"
)

// harm is what a broken promise does to clients.
type harm string

const (
	stale    harm = "stale"    // an older value is read than was acknowledged
	lost     harm = "lost"     // a value is missed that was acknowledged
	torn     harm = "torn"     // what was appended is not there, or what was before it
	doubled  harm = "doubled"  // what was appended is there twice
	recount  harm = "recount"  // a counter gives a number again, or is lost
	twoHold  harm = "two hold" // a lock that is held is taken from its holder
	ghost    harm = "ghost"    // a lock that was given back can't be got by anybody
	phantom  harm = "phantom"  // a value is read whose writer is told that it was not stored
	stranger harm = "stranger" // a value is read that nobody has written
	herded   harm = "herded"   // two rebuild one key at once
	forever  harm = "for ever" // a stub stays that nobody takes away
	stays    harm = "stays"    // a server that doesn't answer is not taken out
)

// history is what is known of all keys and writes.
type history struct {
	values, counters, locked []*fkey
	logged                   []*fkey
	writes                   []*fwrite
	parts                    []*part
	culprit                  string     // the key that something wrong is about
	quarrels                 [][2]int64 // when proxies did not think the same of a server; the last may be open
}

// look notes whether all proxies think the same of every server now.
func (f *fleet) look() {
	differ := false
	first := f.sidecars[0]
	for _, s := range f.sidecars[1:] {
		differ = differ || s.dead || s.edition != first.edition || !slices.EqualFunc(s.members, first.members, func(a, b stats.MemberSnapshot) bool {
			return a.Number == b.Number && a.Suspect == b.Suspect
		})
	}
	last := len(f.quarrels) - 1
	switch open := last >= 0 && f.quarrels[last][1] == math.MaxInt64; {
	case differ && !open:
		f.quarrels = append(f.quarrels, [2]int64{f.now, math.MaxInt64})
	case !differ && open:
		f.quarrels[last][1] = f.now
	}
}

// calmly says that proxies did not quarrel between two times.
func (f *fleet) calmly(from, to int64) bool {
	for i := len(f.quarrels) - 1; i >= 0 && f.quarrels[i][1] > from; i-- {
		if f.quarrels[i][0] < to {
			return false
		}
	}
	return true
}

// fkey is one key.
type fkey struct {
	name  string
	floor int64  // the latest start of a write that is acknowledged
	calm  int64  // of one during which proxies thought the same of all servers
	by    string // the request that floor is of
	acked int64  // when that was acknowledged

	fills   []fill
	fetched int64 // when a repair has last read it

	keeping

	stood   *fwrite // of a herd: the set that was acknowledged last
	removed int64   // when one last began or ended

	changes  []change   // of its origin that were acknowledged, in that order
	rebuilds []*rebuild // under way
	writing  int        // mutations under way but the sets of rebuilds
	touched  int64      // when one of them last began or ended

	made  bool   // of a counter and of what is appended to: it should be there
	count uint64 // the highest number that was told

	log bool // it is appended to

	holder *app // of a lock
	gen    int
	free   bool // it was given back, and all that was asked since was refused
}

// fill is a value that a repair has stored on some server.
type fill struct {
	value string
	from  int64 // when it was read at another
	at    int64
}

// fwrite is one mutation.
type fwrite struct {
	key      *fkey
	by       *sidecar
	value    string // "": it removes the key
	removes  bool
	invoked  int64
	answered int64 // by whatever; 0: not yet
	read     int64 // when its origin was, by who rebuilds the key; 0: it is no rebuild
	acked    bool
	refused  bool // it has done nothing: it never stands in the cache
	seen     bool // while it was under way
	kept     bool // a server has stored it, as far as that is looked at
}

// copied notes what a repair reads and what it stores.
func (f *fleet) copied(request []byte) {
	line, body, _ := strings.Cut(string(request), "\r\n")
	words := strings.Fields(line)
	for _, k := range f.values {
		switch {
		case k.name != words[1]:
		case words[0] == "mg" && slices.Contains(words, "v") && slices.Contains(words, "t"):
			k.fetched = f.now
		case words[0] == "ms" && slices.ContainsFunc(words[3:], func(flag string) bool { return flag[0] == 'C' }) && !slices.Contains(words[3:], "c"): // else it is a client's own value
			k.fills = append(k.fills, fill{strings.TrimSuffix(body, "\r\n"), k.fetched, f.now})
		}
	}
}

// brought says whether a repair was at work on a value between two times: had
// read it before the second and has stored it after the first.
func (k *fkey) brought(value string, from, to int64) bool {
	return slices.ContainsFunc(k.fills, func(x fill) bool { return x.value == value && from < x.at && x.from < to })
}

func (f *fleet) layKeys() {
	lay := func(list *[]*fkey, n int, name string) {
		for i := 0; len(*list) < n; i++ {
			k := &fkey{name: fmt.Sprintf(name, i)}
			if !f.aimed || int(hash([]byte(k.name))%uint64(f.servers)) == 0 {
				*list = append(*list, k)
			}
		}
	}
	lay(&f.values, hotKeys+f.cold, "k%d")
	lay(&f.locked, lockKeys, "l%d")
	for i := range counterKeys {
		f.counters = append(f.counters, &fkey{name: fmt.Sprintf("n%d", i)})
	}
	for i := range f.logs {
		f.logged = append(f.logged, &fkey{name: fmt.Sprintf("a%d", i), log: true})
	}
}

func (f *fleet) newWrite(k *fkey) *fwrite {
	w := &fwrite{key: k}
	w.value = fmt.Sprintf("w%d.%s.%s", len(f.writes), k.name, strings.Repeat("x", f.rand.IntN(30)))
	f.writes = append(f.writes, w)
	return w
}

func (f *fleet) newRemoval(k *fkey) *fwrite { return &fwrite{key: k, removes: true} }

// retire gives a lock another name: an unlock that was not acknowledged may
// still come.
func (f *fleet) retire(k *fkey) {
	name, _, _ := strings.Cut(k.name, ".")
	k.gen++
	k.holder, k.free, k.name = nil, false, fmt.Sprintf("%s.%d", name, k.gen)
}

// done is when the answer to what the app has asked is there.
func (a *app) done(answer string) {
	f, o := a.f, a.op
	a.op = nil
	a.think()
	if f.traced {
		f.note(o.about(), "a%d p%d gets %.70q for %.60q", a.id, a.s.id, answer, o.text)
	}
	line, _, _ := strings.Cut(answer, "\r\n")
	failed := strings.HasPrefix(line, "SERVER_ERROR ") || strings.HasPrefix(line, "the ")
	if failed {
		f.errors++
	}
	if o.w != nil {
		o.w.answered = f.now
		if o.w.removes {
			o.w.key.removing--
			o.w.key.removed = f.now
		}
		f.keep(o, line, failed)
	}
	if f.herd != nil {
		a.tend(o, line, failed)
	}
	if o.must != nil {
		o.must(line == "STORED" || strings.HasPrefix(line, "VALUE"))
	}
	if failed {
		switch o.kind {
		case "unlock":
			f.retire(o.keys[0])
		case "lock":
			o.keys[0].free = false
		}
		return
	}
	switch o.kind {
	case "values":
		a.judgeValues(o, answer)
	case "line":
		a.judgeLine(o, line, answer)
	case "make":
		switch line {
		case "STORED", "NOT_STORED":
			o.keys[0].made = true
		default:
			a.strange(o, answer)
		}
	case "count":
		a.judgeCount(o, line)
	case "lock":
		a.judgeLock(o, line)
	case "unlock":
		switch line {
		case "DELETED":
			o.keys[0].free = o.keys[0].holder == nil // somebody may have it already, before this is answered
		case "NOT_FOUND":
			f.harmed(twoHold, o.about(), "a%d p%d gives a lock back that is not there", a.id, a.s.id)
		default:
			a.strange(o, answer)
		}
	case "append":
		a.judgeAppend(o, line)
	case "flush":
		if line != "OK" {
			a.strange(o, answer)
			return
		}
		for _, k := range o.keys {
			k.changes = append(k.changes, change{o.invoked, f.now, &fwrite{}})
			if k.floor < o.invoked {
				k.floor, k.acked, k.by = o.invoked, f.now, "a flush_all"
			}
		}
	}
}

func (a *app) strange(o *op, answer string) {
	a.f.wrong(o.about(), "a%d p%d gets %.80q for %.60q", a.id, a.s.id, answer, o.text)
}

func (a *app) judgeLine(o *op, line, answer string) {
	w := o.w
	first, _, _ := strings.Cut(line, " ")
	switch first {
	case "STORED", "DELETED", "HD":
		if w != nil {
			a.acked(o)
		}
	case "NOT_FOUND", "NF":
		switch {
		case w != nil && w.removes:
			a.acked(o)
		case w != nil:
			a.refused(o)
		}
	case "NOT_STORED", "EXISTS", "NS", "EX":
		if w != nil {
			a.refused(o)
		}
	case "EN":
		a.judgeMiss(o, 0)
	case "TOUCHED":
	case "VA":
		_, value, _ := strings.Cut(answer, "\r\n")
		a.judgeValue(o, 0, strings.TrimSuffix(value, "\r\n"))
	default:
		a.strange(o, answer)
	}
}

// acked is when a mutation is acknowledged: nobody may read anything older from
// now on.
func (a *app) acked(o *op) {
	f, w := a.f, o.w
	w.acked = true
	if s := w.key.stood; !w.removes && (s == nil || s.invoked < w.invoked) {
		w.key.stood = w
	}
	if o.token.n != "" && o.floors[0] > o.token.at {
		f.isStale(f.exact, w.key, "a%d p%d: cas on %s succeeds with a token of %.4f though %s began at %.4f and was acknowledged before",
			a.id, a.s.id, w.key.name, sec(o.token.at), w.key.by, sec(o.floors[0]))
	}
	if w.read != 0 { // whoever has changed the origin since says so himself
		return
	}
	w.key.changes = append(w.key.changes, change{w.invoked, f.now, w})
	if w.key.floor < w.invoked {
		w.key.floor, w.key.acked, w.key.by = w.invoked, f.now, fmt.Sprintf("%.40q", o.text)
	}
	if !f.exact && f.calmly(w.invoked, w.answered) {
		w.key.calm = max(w.key.calm, w.invoked)
	}
}

// refused is when a mutation is told that it has done nothing.
func (a *app) refused(o *op) {
	o.w.refused = true
	if a.f.shown && o.w.seen {
		a.f.harmed(phantom, o.w.key.name, "a%d p%d is told that %.20q was not stored, and somebody has read it", a.id, a.s.id, o.w.value)
	}
}

func sec(ns int64) float64 { return float64(ns) / 1e9 }

func (a *app) judgeValues(o *op, answer string) {
	rest := answer
	last := -1
	found := make([]bool, len(o.keys))
	for {
		line, more, _ := strings.Cut(rest, "\r\n")
		f := strings.Fields(line)
		switch {
		case line == "END":
			for i := range o.keys {
				if !found[i] {
					a.judgeMiss(o, i)
				}
			}
			return
		case len(f) < 4 || f[0] != "VALUE":
			a.strange(o, answer)
			return
		}
		n, _ := strconv.Atoi(f[3])
		i := -1
		for j, k := range o.keys {
			if k.name == f[1] && j != last {
				i = j
				break
			}
		}
		if i < 0 {
			a.f.wrong(f[1], "a%d p%d gets a value of %s, which it has not asked for", a.id, a.s.id, f[1])
			return
		}
		last = i
		found[i] = true
		a.judgeValue(o, i, more[:n])
		if len(f) == 5 {
			a.tokens[o.keys[i]] = casToken{f[4], a.f.now}
		}
		rest = more[n+2:]
	}
}

// judgeValue looks whether a value may be read of the i-th key of o.
func (a *app) judgeValue(o *op, i int, value string) {
	f, k := a.f, o.keys[i]
	f.hits++
	if k.log {
		a.judgeLog(o, k, value)
		return
	}
	id, _, _ := strings.Cut(strings.TrimPrefix(value, "w"), ".")
	n, err := strconv.Atoi(id)
	if err != nil || n >= len(f.writes) || f.writes[n].value != value {
		f.harmed(stranger, k.name, "a%d p%d reads %q, which nobody has written", a.id, a.s.id, value)
		return
	}
	w := f.writes[n]
	w.seen = w.seen || w.answered == 0
	switch {
	case w.key != k:
		f.wrong(k.name, "a%d p%d reads a value of %s as that of %s", a.id, a.s.id, w.key.name, k.name)
	case w.refused && w.answered < o.invoked:
		f.harmed(phantom, k.name, "a%d p%d reads %.20q of %s, whose writer was told at %.4f that it was not stored", a.id, a.s.id, value, k.name, sec(w.answered))
	case f.herd != nil:
		a.judgeAge(o, i, w)
	case w.answered != 0 && w.answered < o.floors[i] && !w.acked && f.now <= w.answered+f.grace:
		// Its late delete is on its way behind it.
	case w.answered != 0 && w.answered < o.floors[i] && k.by == "a flush_all" && k.brought(value, o.floors[i], o.acks[i]):
		// A repair has brought back what a flush_all was removing: one half of it had
		// run, and the other not yet. That is known, and not prevented.
		f.raced++
	case w.answered != 0 && w.answered < o.floors[i]:
		safe := !f.loose && w.answered < o.calms[i] && f.calmly(w.invoked, w.answered) && f.calmly(o.invoked, f.now)
		f.isStale(safe, k, "a%d p%d reads %.20q of %s, answered at %.4f (acknowledged: %v), though %s began at %.4f and was acknowledged before the read",
			a.id, a.s.id, value, k.name, sec(w.answered), w.acked, k.by, sec(o.floors[i]))
	}
}

// isStale notes a stale hit. safe says that none is ever to be here.
func (f *fleet) isStale(safe bool, k *fkey, format string, args ...any) {
	f.note(k.name, "STALE "+format, args...)
	if len(f.stale) == 0 {
		f.culprit = k.name
	}
	f.stale = append(f.stale, fmt.Sprintf(format, args...))
	if (f.exact || safe) && !f.ablate.any() {
		f.harmed(stale, k.name, "%s", f.stale[0])
	}
}

func (a *app) judgeCount(o *op, line string) {
	f, k := a.f, o.keys[0]
	n, err := strconv.ParseUint(line, 10, 64)
	switch {
	case err == nil && f.locks && n <= o.count:
		f.harmed(recount, k.name, "a%d p%d counts %s up to %d, but %d was told before", a.id, a.s.id, k.name, n, o.count)
	case err == nil:
		k.count = max(k.count, n)
	case line == "NOT_FOUND" && f.locks:
		f.harmed(recount, k.name, "a%d p%d: the counter %s is lost", a.id, a.s.id, k.name)
	case line == "NOT_FOUND":
		k.made, k.count = false, 0
	default:
		a.strange(o, line)
	}
}

func (a *app) judgeLock(o *op, line string) {
	f, k := a.f, o.keys[0]
	switch {
	case line == "NOT_STORED":
	case line != "STORED":
		a.strange(o, line)
	case k.gen != o.gen: // it has another name by now
	case k.holder != nil:
		f.harmed(twoHold, k.name, "a%d p%d gets the lock %s, which a%d holds", a.id, a.s.id, k.name, k.holder.id)
	default:
		k.holder, a.held, k.free = a, k, false
		a.until = f.now + f.upTo(300*milli)
	}
}
