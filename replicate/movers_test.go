package replicate

// What the explorers of commands on one key that moves or is filled have in common: a search without
// repetition, and up to three commands with their clients. See relocate_test.go and fill_test.go.

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"testing"
)

// search visits the states that follow a state, each once.
type search struct {
	seed  maphash.Seed
	seen  map[uint64]struct{} // digests of the states visited so far
	limit int                 // how many states it visits; 0: all
	path  []string            // the steps to the present state
	what  string              // the first error, with the steps to it; empty: none
}

func newSearch(limit int) search {
	return search{seed: maphash.MakeSeed(), seen: map[uint64]struct{}{}, limit: limit}
}

// isOver reports whether an error was found, or enough states were visited.
func (x *search) isOver() bool { return x.what != "" || x.limit > 0 && len(x.seen) >= x.limit }

// enters reports whether the state with the digest h, which the step what has reached, was not visited before. The
// caller then visits the states that follow it, and calls leave.
func (x *search) enters(h uint64, what string) bool {
	if _, ok := x.seen[h]; ok {
		return false
	}
	x.seen[h] = struct{}{}
	x.path = append(x.path, what)
	return true
}

func (x *search) leave() { x.path = x.path[:len(x.path)-1] }

// rooms has a state for each depth of a search. One for each depth is enough, because visits nest. (The
// states are large, and each visit would allocate some.)
type rooms[S any] []*S

// copyOf returns a copy of s in the state reserved for that depth.
func (r *rooms[S]) copyOf(s *S, depth int) *S {
	if depth == len(*r) {
		*r = append(*r, new(S))
	}
	*(*r)[depth] = *s
	return (*r)[depth]
}

// fail records an error in the present state, and ends the search.
func (x *search) fail(what string, items []item, commands []mover) {
	if x.what != "" {
		return
	}
	text := fmt.Sprintf("%s; items %+v", what, items)
	for i := range commands {
		if c := &commands[i]; c.begun {
			text += fmt.Sprintf("\n  %d: op %d verdict %d %s value %d failed %v told %v", i, c.op, c.verdict, kindNames[c.kind], c.got, c.failed, c.told)
		}
	}
	x.what = fmt.Sprintf("%s\n\t(%d steps) %s", text, len(x.path), strings.Join(x.path, "\n\t"))
}

// mover is a command, or work on the key that belongs to no command: a copy, a walk or a backfill.
type mover struct {
	client
	moverState
}

type moverState struct {
	op      Op
	proxy   uint8
	began   uint8 // of a resize: the stage in which the command began, an index in the plan
	issued  uint8 // of a resize: the stage of its proxy when its last requests were sent
	runs    bool
	begun   bool  // the command has begun, perhaps again
	told    bool  // the client has its reply
	failed  bool  // the reply is an error
	fails   bool  // its client has got an error, and its requests in flight may still arrive
	before  uint8 // commands that had ended when this one began, a mask
	verdict Verdict
	kind    Kind
	got     uint32 // the value that a get has read, or the result of an incr
}

// digest adds the state of c. at returns the item of an ask, and whether the cas of c for this ask is of the same
// process. Of a cas only counts whether the item still has it.
func (c *mover) digest(h *maphash.Hash, at func(ask int) (it item, same bool)) {
	h.Write(raw(&c.moverState))
	if !c.runs {
		return
	}
	h.Write(c.rule.bytes())
	for a, e := range c.rule.asks[:c.rule.n] {
		it, same := at(a)
		h.WriteByte(b2i(same && it.has && it.cas == c.cas[a]))
		if e.step == Fetch && e.kind == Hit {
			h.WriteByte(byte(c.fetched[a]))
		}
	}
}

// digestItem adds an item without its cas.
func digestItem(h *maphash.Hash, it item) {
	it.cas = 0
	h.Write(raw(&it))
}

// owned reports whether a mover at work has a placeholder. has reports whether it is the one that the ask has stored.
func owned(all []mover, has func(i, ask int) bool) bool {
	for i := range all {
		c := &all[i]
		for a, e := range c.rule.asks[:c.rule.n] {
			if c.runs && !c.fails && e.step.LeavesTombstone() && e.kind == Stored && has(i, a) {
				return true
			}
		}
	}
	return false
}

// rest ends c. Only of a command the reply is kept.
func (c *mover) rest(isCommand bool) {
	state := c.moverState
	if state.runs, state.fails, state.began, state.issued = false, false, 0, 0; !isCommand {
		state = moverState{}
	}
	*c = mover{client: client{own: c.own}, moverState: state}
}

// end tells the client the result, and reports whether the command has not failed.
func (c *mover) end(v Verdict, k Kind) bool {
	c.told, c.verdict, c.kind = true, v, k
	c.failed = v == Unmet || v == Refused || v == Held
	switch c.op {
	case Get, Gets:
		c.got = c.read
	case Incr:
		c.got = c.number
	}
	return !c.failed
}

// kindOf returns the kind of the reply that a result is based on.
func (c *mover) kindOf(s Settlement) Kind {
	if s.Answer < 0 {
		return pending
	}
	return c.rule.asks[s.Answer].kind
}

// apply returns the value after the command, and whether its reply is right.
func (c *mover) apply(has bool, value uint32) (after bool, to uint32, right bool) {
	switch c.op {
	case Get, Gets:
		hit := c.verdict == Answered && c.kind == Hit
		return has, value, !hit || has && c.got == value
	case Set:
		return true, c.value, true
	case Delete:
		gone := c.verdict == Done || c.verdict == Answered && c.kind == Deleted
		return false, 0, gone == has
	case Add:
		stored := c.verdict == Answered && c.kind == Stored
		if has {
			return true, value, !stored
		}
		return true, c.value, stored
	case Incr:
		counted := c.verdict == Answered && c.kind == Number
		if !has {
			return false, 0, !counted
		}
		return true, value + 1, counted && c.got == value+1
	case Flush:
		return false, 0, true
	case Append:
		stored := c.verdict == Answered && c.kind == Stored
		return has, value*10 + c.value, stored == has
	case Touch:
		return has, value, (c.verdict == Answered && c.kind == Touched) == has
	}
	panic("no such command")
}

// mix is up to three commands; NumOps: none.
type mix [3]Op

func (m mix) String() string {
	var names []string
	for _, op := range m {
		if op != NumOps {
			names = append(names, opNames[op])
		}
	}
	return strings.Join(names, " ")
}

// mixOf returns a mix of the commands.
func mixOf(ops ...Op) mix {
	m := mix{NumOps, NumOps, NumOps}
	copy(m[:], ops)
	return m
}

// load makes the first three movers the commands of m.
func (m mix) load(all []mover) {
	for i := range all {
		all[i].op = NumOps
		if i < len(m) {
			all[i].op, all[i].value = m[i], uint32(20*(i+1))
			switch m[i] {
			case Append:
				all[i].value = uint32(1 + i)
			case Incr:
				all[i].value = 1
			}
		}
	}
}

var opNames = map[Op]string{Get: "get", Set: "set", Add: "add", Delete: "delete", Incr: "incr", Gets: "gets", Append: "append", Touch: "touch", Flush: "flush"}

// mixes are the commands of the cases.
var mixes = []mix{
	{Get, Set, NumOps}, {Get, Delete, NumOps}, {Get, Add, NumOps}, {Get, Incr, NumOps}, {Set, Set, NumOps}, {Set, Delete, NumOps}, {Set, Incr, NumOps},
	{Add, Set, NumOps}, {Add, Delete, NumOps}, {Add, Add, NumOps}, {Incr, Incr, NumOps}, {Delete, Incr, NumOps}, {Delete, Delete, NumOps},
	{Append, Append, NumOps}, {Append, Delete, NumOps}, {Append, Set, NumOps}, {Touch, Delete, NumOps}, {Touch, Add, NumOps}, {Gets, Set, NumOps},
	{Flush, Get, NumOps}, {Flush, Set, NumOps}, {Flush, Incr, NumOps},
	{Get, Get, Set}, {Get, Get, Delete}, {Flush, Get, Get}, {Set, Set, Add}, {Delete, Add, Add}, {Delete, Add, Get}, {Delete, Incr, Add}, {Set, Delete, Incr}, {Incr, Incr, Get},
}

// finds checks that an exploration without a rule finds an error.
func finds(t *testing.T, name, what string, states int) {
	t.Helper()
	if what == "" {
		t.Errorf("%s: nothing is found in %d states", name, states)
		return
	}
	what, _, _ = strings.Cut(what, ";")
	t.Logf("%s, after %d states: %s", name, states, what)
}

// everyOutcome gives the rule of a command each outcome of each ask, and lets it begin again once. It calls look with
// each state and its asks, and returns the number of states.
func everyOutcome(t *testing.T, c Command, begin Rule, look func(r *Rule, asks []Ask)) int {
	seen := map[string]bool{}
	var visit func(r Rule, rounds int)
	visit = func(r Rule, rounds int) {
		state := string(r.bytes())
		if seen[state] {
			return
		}
		seen[state] = true
		var room [maxAsks]Ask
		look(&r, r.Next(room[:0]))
		if r.open == 0 && !r.IsDone() {
			t.Errorf("%+v is stuck: %s", c, history(&r))
		}
		i := slices.IndexFunc(r.asks[:r.n], func(e asked) bool { return e.kind == pending }) // the asks in flight are at one server, which replies in order
		if i < 0 {
			return
		}
		for _, o := range outcomes(c, r.asks[i].step, false) {
			next, n := r, rounds
			if next.HandleOutcome(i, o); next.given == 0 {
				n++
			}
			if n < 2 {
				visit(next, n)
			}
		}
	}
	visit(begin, 0)
	return len(seen)
}

// changesOwner reports whether a step changes the value at the owner of the key.
func changesOwner(s Step) bool { return s == Forward || s == Join || s == Store || s == Extend }
