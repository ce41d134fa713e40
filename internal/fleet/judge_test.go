package fleet

// The fleet's judge: it decides which answers are allowed, given all earlier answers.

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"ringside/proxy/routing"
	"ringside/proxy/stats"
)

// harm is the effect of a broken promise on clients.
type harm string

const (
	stale    harm = "stale"    // a read returns an older value than the acknowledged one
	lost     harm = "lost"     // an acknowledged value is missed
	torn     harm = "torn"     // an appended part is missing, or the value before it
	doubled  harm = "doubled"  // an appended part is there twice
	recount  harm = "recount"  // a counter repeats a number, or is lost
	twoHold  harm = "two hold" // a second client gets a lock that has a holder
	ghost    harm = "ghost"    // no client can get a lock that was released
	phantom  harm = "phantom"  // a client reads a value, but its writer is told that it was not stored
	stranger harm = "stranger" // a client reads a value that was never written
	herded   harm = "herded"   // two clients rebuild one key at the same time
	forever  harm = "for ever" // a stub is never removed
	stays    harm = "stays"    // a server that does not reply is not ejected
)

// history is what is known about all keys and writes.
type history struct {
	values, counters, locked []*fkey
	logged                   []*fkey
	writes                   []*fwrite
	parts                    []*part
	times                    []int      // scratch of judgeLog
	culprit                  string     // key of the violation
	quarrels                 [][2]int64 // intervals in which proxies disagreed about a server; the last may be open
}

// look records whether all proxies agree about every server now.
func (f *fleet) look() {
	differ := false
	first := f.sidecars[0]
	for _, s := range f.sidecars[1:] {
		differ = differ || s.dead || s.edition != first.edition || !slices.EqualFunc(s.members, first.members, func(a, b stats.PhaseSnapshot) bool {
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

// calmly reports whether proxies agreed during the whole time between from and to.
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
	floor int64  // latest start of an acknowledged write
	calm  int64  // latest start of an acknowledged write during which proxies agreed about all servers
	by    string // request that set floor
	acked int64  // when that request was acknowledged

	fills   []fill
	fetched int64 // when a repair last read it

	keeping

	stood   *fwrite // for herds: the last acknowledged set
	removed int64   // when a delete last began or ended

	changes  []change   // acknowledged changes of its origin, in order
	rebuilds []*rebuild // in progress
	writing  int        // number of mutations in flight, without the sets of rebuilds
	touched  int64      // when such a mutation last began or ended

	counting counting

	made  bool   // for counters and journals: it must exist
	count uint64 // highest number in an answer

	log bool // it is appended to

	holder *app // for locks
	gen    int
	free   bool // it was released, and no client has got it since
}

// fill is a value that a repair has stored on a server.
type fill struct {
	value string
	from  int64 // when it was read from another server
	at    int64
}

// fwrite is one mutation.
type fwrite struct {
	key      *fkey
	by       *sidecar
	value    string // "": it removes the key
	removes  bool
	invoked  int64
	answered int64 // by any answer; 0: not yet
	read     int64 // when a rebuild read the origin; 0: this is not a rebuild
	acked    bool
	refused  bool  // it was not executed, so its value is never in the cache
	seen     bool  // read while it was in flight
	kept     bool  // a server has stored it, as far as that is checked
	shared   bool  // for a rebuild: other threads share its misses, because they use the same connection, or because the route has sets: after_miss
	overdue  int64 // for such a rebuild: when a server stored it, if that was after the lease; else 0
}

// copied records what a repair reads and stores.
func (f *fleet) copied(request []byte) {
	if command := string(request[:3]); command != "mg " && command != "ms " {
		return
	}
	line, body, _ := strings.Cut(string(request), "\r\n")
	words := strings.Fields(line)
	for _, k := range f.values {
		switch {
		case k.name != words[1]:
		case words[0] == "mg" && slices.Contains(words, "v") && slices.Contains(words, "t"):
			k.fetched = f.now
		case words[0] == "ms" && slices.ContainsFunc(words[3:], func(flag string) bool { return flag[0] == 'C' }) && !slices.Contains(words[3:], "c"): // otherwise it is a client's own value
			k.fills = append(k.fills, fill{strings.TrimSuffix(body, "\r\n"), k.fetched, f.now})
		}
	}
}

// brought reports whether a repair copied a value between two times: it read the value
// before the time `to` and stored it after the time `from`.
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

// retire renames a lock, because an unacknowledged unlock may still be executed.
func (f *fleet) retire(k *fkey) {
	name, _, _ := strings.Cut(k.name, ".")
	k.gen++
	k.holder, k.free, k.name = nil, false, fmt.Sprintf("%s.%d", name, k.gen)
}

// done processes the answer to the app's request.
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
		if f.serves && strings.Contains(line, routing.Outdated) {
			f.wrong(o.about(), "a%d p%d gets %.100q", a.id, a.s.id, line)
		}
	}
	if o.w != nil {
		o.w.answered = f.now
		if o.w.removes {
			o.w.key.removing--
			o.w.key.removed = f.now
		}
		f.keep(o, line, failed)
	}
	if o.kind == "invalidate" {
		for _, k := range o.keys {
			k.removing--
			k.removed = f.now
		}
	}
	if f.herd != nil {
		a.tend(o, line, failed)
	}
	if o.told != nil {
		o.told(line)
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
			o.keys[0].free = o.keys[0].holder == nil // another client may have got it before this answer
		case "NOT_FOUND":
			f.harmed(twoHold, o.about(), "a%d p%d gives a lock back that is not there", a.id, a.s.id)
		default:
			a.strange(o, answer)
		}
	case "append":
		a.judgeAppend(o, line)
	case "flush", "invalidate":
		if line != map[string]string{"flush": "OK", "invalidate": "DELETED"}[o.kind] {
			a.strange(o, answer)
			return
		}
		for _, k := range o.keys {
			k.changes = append(k.changes, change{o.invoked, f.now, &fwrite{}})
			if k.floor < o.invoked {
				k.floor, k.acked, k.by = o.invoked, f.now, "a "+strings.Replace(o.kind, "flush", "flush_all", 1)
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

// acked records that a mutation is acknowledged. From now on reads must not return
// anything older.
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
	if w.read != 0 { // this set stores a rebuilt value: the client that changed the value's origin records the change
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

// refused records that a mutation was not executed.
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
		case a.f.errs && strings.HasPrefix(line, "SERVER_ERROR ") && !strings.Contains(line, routing.Outdated): // one of the keys could not be read
			a.f.errors++
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

// judgeValue checks whether the i-th key of o may have this value.
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
		// Its late delete is in flight.
	case w.answered != 0 && w.answered < o.floors[i] && k.by == "a flush_all" && k.brought(value, o.floors[i], o.acks[i]):
		// A repair has restored a value that a flush_all was removing, because only one
		// half of the flush_all had run. This is known and not prevented.
		f.raced++
	case f.slack > 0 && !slices.ContainsFunc(k.changes, func(c change) bool { return c.from > w.answered && c.acked < o.invoked-f.slack }):
	case w.answered != 0 && w.answered < o.floors[i]:
		safe := !f.loose && w.answered < o.calms[i] && f.calmly(w.invoked, w.answered) && f.calmly(o.invoked, f.now)
		f.isStale(safe, k, "a%d p%d reads %.20q of %s, answered at %.4f (acknowledged: %v), though %s began at %.4f and was acknowledged before the read",
			a.id, a.s.id, value, k.name, sec(w.answered), w.acked, k.by, sec(o.floors[i]))
	}
}

// isStale records a stale hit. safe means that stale hits are not allowed here.
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
	case k.gen != o.gen: // it has been renamed
	case k.holder != nil:
		f.harmed(twoHold, k.name, "a%d p%d gets the lock %s, which a%d holds", a.id, a.s.id, k.name, k.holder.id)
	default:
		k.holder, a.held, k.free = a, k, false
		a.until = f.now + f.upTo(300*milli)
	}
}
