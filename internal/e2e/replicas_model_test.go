package e2e

// This file models what a key with replicas promises, so that a checker can test a
// history against it.

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// The model of a key with replicas is that of a key on one memcached, as far as replies
// determine what happened. Its state is the set of values that the key may have now. One
// of them may be "no value" (absent). The initial state is absent.
//
//	request    reply       is correct if                  possible values afterwards
//	set v      STORED      always                         v
//	add v      STORED      it may be absent               v
//	           NOT_STORED  always: an add or a delete     unchanged
//	                       in progress may occupy
//	                       the key
//	replace v  STORED      it may have a value            v
//	           NOT_STORED  it may be absent               unchanged
//	cas e v    STORED      it may be e                    v
//	           EXISTS      always: the primary may        unchanged
//	                       have changed
//	           NOT_FOUND   it may be absent               unchanged
//	incr       n           it may be n-1                  n
//	           NOT_FOUND   it may be absent               unchanged
//	touch      TOUCHED     it may have a value            unchanged
//	           NOT_FOUND   it may be absent               unchanged
//	delete     DELETED     it may have a value            absent
//	           NOT_FOUND   it may be absent               absent
//	get, gat   a value     it may be that value           unchanged
//	           a miss      it may be absent               unchanged
//	set v      an error    always                         also v, or absent (undone)
//	replace v  an error    always                         the same, if it may have a value
//	add v      an error    always                         also v, if it may be absent
//	cas e v    an error    always                         also v, if it may be e
//	delete     an error    always                         also absent
//	incr       an error    always                         also one more than each number
//
// Each operation happens at one moment between its request and its reply. So every later
// read returns an acknowledged write until another write replaces it, even if one server
// is killed or hangs. A value that was replaced is not read again. A write that got an
// error may or may not have happened, and two reads may differ about it. The next
// acknowledged write ends that doubt: the failed write cannot happen later. The exception
// is incr, which is not undone. A failed incr may happen at any time up to the end of the
// history.
//
// Reads that get an error are left out because they say nothing.

const absent = "-"

type asked struct {
	op     string
	value  string // value of set, add, cas
	expect string // value that was read with the token of a cas
	front  int    // index of the ringside that received the request
}

type told struct {
	answer string // first word of the reply; empty: an error
	value  string // value in the reply to get
}

var keyModel = porcupine.Model{
	Init: func() any { return absent },
	Step: func(state, input, output any) (bool, any) {
		ok, next := step(strings.Split(state.(string), " "), input.(asked), output.(told))
		slices.Sort(next)
		return ok, strings.Join(slices.Compact(next), " ")
	},
	DescribeOperation: func(input, output any) string {
		in, out := input.(asked), output.(told)
		return strings.TrimSpace(fmt.Sprintf("%s %s %s", in.op, in.expect, in.value)) + " -> " + strings.TrimSpace(out.answer+" "+out.value)
	},
}

// step applies one row of the table above. It may modify may.
func step(may []string, in asked, out told) (right bool, next []string) {
	gone := slices.Contains(may, absent)
	there := len(may) > 1 || !gone
	switch in.op + " " + out.answer {
	case "set STORED":
		return true, []string{in.value}
	case "set ":
		return true, append(may, in.value, absent)
	case "replace STORED":
		return there, []string{in.value}
	case "replace ":
		if there {
			may = append(may, in.value, absent)
		}
		return true, may
	case "add STORED":
		return gone, []string{in.value}
	case "add NOT_STORED":
		return true, may
	case "add ":
		if gone {
			may = append(may, in.value)
		}
		return true, may
	case "cas STORED":
		return slices.Contains(may, in.expect), []string{in.value}
	case "cas EXISTS":
		return true, may
	case "cas ":
		if slices.Contains(may, in.expect) {
			may = append(may, in.value)
		}
		return true, may
	case "delete DELETED":
		return there, []string{absent}
	case "delete NOT_FOUND":
		return gone, []string{absent}
	case "delete ":
		return true, append(may, absent)
	case "touch TOUCHED":
		return there, may
	case "cas NOT_FOUND", "incr NOT_FOUND", "touch NOT_FOUND", "get END", "gat END", "replace NOT_STORED":
		return gone, may
	case "get VALUE", "gat VALUE":
		return slices.Contains(may, out.value), may
	case "incr ":
		for _, v := range may {
			if n, err := strconv.Atoi(v); err == nil {
				may = append(may, strconv.Itoa(n+1))
			}
		}
		return true, may
	}
	n, err := strconv.Atoi(out.answer)
	return in.op == "incr" && err == nil && slices.Contains(may, strconv.Itoa(n-1)), []string{out.answer}
}

// never is the return time of an operation that may happen at any time.
const never = math.MaxInt64

// checkHistory checks the history of one key against the model.
func checkHistory(key string, history []porcupine.Operation) error {
	verdict := porcupine.CheckOperationsTimeout(keyModel, history, patience)
	if verdict == porcupine.Ok {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d operations: %s\n", key, len(history), map[bool]string{true: "the check took too long", false: "no order of them explains all answers"}[verdict == porcupine.Unknown])
	slices.SortFunc(history, compareReturns)
	// Print the operations around the first reply that cannot be explained.
	first := sort.Search(len(history), func(n int) bool {
		return porcupine.CheckOperationsTimeout(keyModel, asOf(history, n), patience) != porcupine.Ok
	})
	printAround(&b, history, first, nil)
	return fmt.Errorf("%s", b.String())
}

// asOf returns what was known of a history when its operation n returned. Operations that
// were in progress then may have happened, so their results become unknown.
func asOf(history []porcupine.Operation, n int) []porcupine.Operation {
	is := slices.Clone(history[:n+1])
	for _, o := range history[n+1:] {
		if in := o.Input.(asked); o.Call < history[n].Return && in.op != "get" && in.op != "gat" && in.op != "touch" {
			o.Return, o.Output = history[n].Return, told{}
			is = append(is, o)
		}
	}
	return is
}

func compareReturns(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) }

// printAround prints the operations around `first`, the first reply that cannot be
// explained. If first contradicts another operation, that one is `against`, and the
// operations around it are printed, too.
func printAround(b *strings.Builder, history []porcupine.Operation, first int, against *porcupine.Operation) {
	other := -1
	if against != nil {
		other = slices.IndexFunc(history, func(o porcupine.Operation) bool {
			return o.Call == against.Call && o.Return == against.Return && o.ClientId == against.ClientId
		})
	}
	near := func(i, at int) bool { return at >= 0 && i >= at-30 && i <= at+10 }
	for i, o := range history {
		if o.Return != never && !near(i, first) && !near(i, other) {
			continue
		}
		switch i {
		case first:
			fmt.Fprint(b, "  here, at the latest:\n")
		case other:
			fmt.Fprint(b, "  against this:\n")
		}
		end := time.Duration(o.Return).String()
		if o.Return == never {
			end = "?"
		}
		fmt.Fprintf(b, "  %12v %12v client %2d by %d  %s\n", time.Duration(o.Call), end, o.ClientId, o.Input.(asked).front, keyModel.DescribeOperation(o.Input, o.Output))
	}
}

// historyOf parses operations that run one after another: "op [expect] [value] -> answer
// [value]; …".
func historyOf(text string) (history []porcupine.Operation) {
	for i, line := range strings.Split(text, "; ") {
		request, answer, _ := strings.Cut(line, " -> ")
		f, g := append(strings.Fields(request), ""), append(strings.Fields(answer), "", "")
		in, out := asked{op: f[0], value: f[1]}, told{g[0], g[1]}
		if in.op == "cas" {
			in.expect, in.value = f[1], f[2]
		}
		o := porcupine.Operation{Input: in, Output: out, Call: int64(2 * i), Return: int64(2*i + 1)}
		if (in.op == "incr" || in.op == "decr" || in.op == "append" || in.op == "prepend") && out.answer == "" {
			o.Return = never
		}
		history = append(history, o)
	}
	return history
}

// TestModelOfCopies checks that the model accepts correct histories and rejects others.
func TestModelOfCopies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		history string // see historyOf
		right   bool
	}{
		{"set a -> STORED; get -> VALUE a; delete -> DELETED; get -> END", true},
		{"set a -> STORED; get -> END", false},
		{"set a -> STORED; set b -> STORED; get -> VALUE a", false},
		{"set a -> STORED; set b -> ; get -> VALUE a; get -> VALUE b; get -> END; set c -> STORED; get -> VALUE c", true},
		{"set a -> STORED; set b -> ; set c -> STORED; get -> VALUE b", false},
		{"set a -> STORED; set b -> ; set c -> STORED; get -> END", false},
		{"add a -> STORED; add b -> NOT_STORED; get -> VALUE a", true},
		{"add a -> STORED; add b -> STORED", false},
		{"add a -> STORED; add b -> ; add c -> STORED", false},
		{"add a -> ; add b -> NOT_STORED; get -> VALUE a", true},
		{"add a -> STORED; delete -> ; add b -> STORED", true},
		{"replace a -> NOT_STORED; set a -> STORED; replace b -> STORED; gat -> VALUE b", true},
		{"replace a -> STORED", false},
		{"set a -> STORED; replace b -> NOT_STORED", false},
		{"set a -> STORED; replace b -> ; get -> VALUE a; get -> VALUE b; set c -> STORED; gat -> VALUE c", true},
		{"set a -> STORED; gat -> END", false},
		{"set a -> STORED; cas a b -> STORED; get -> VALUE b", true},
		{"set a -> STORED; set b -> STORED; cas a c -> STORED", false},
		{"touch -> NOT_FOUND; set a -> STORED; touch -> TOUCHED; delete -> DELETED; touch -> NOT_FOUND", true},
		{"set a -> STORED; touch -> NOT_FOUND", false},
		{"set a -> STORED; delete -> DELETED; touch -> TOUCHED", false},
		{"set a -> STORED; cas a b -> EXISTS; get -> VALUE a", true},
		{"set a -> STORED; cas a b -> NOT_FOUND", false},
		{"set 1 -> STORED; incr -> 2; incr -> 3; get -> VALUE 3", true},
		{"set 1 -> STORED; incr -> 2; incr -> 2", false},
		{"set 1 -> STORED; incr -> ; incr -> 2; incr -> 4", true},
		{"set 1 -> STORED; incr -> ; incr -> 2; incr -> 4; incr -> 6", false},
		{"set 1 -> STORED; incr -> NOT_FOUND", false},
	} {
		if err := checkHistory(c.history, historyOf(c.history)); (err == nil) != c.right {
			t.Errorf("right: want %v: %v", c.right, err)
		}
	}
}

// TestModelOfEarlyReads checks what withoutEarlyReads removes: a miss that shows a delete
// in progress. A read after the delete that returns the deleted value must stay.
func TestModelOfEarlyReads(t *testing.T) {
	t.Parallel()
	for end, right := range map[int64]bool{6: true, 12: false} {
		history := []porcupine.Operation{
			{ClientId: 0, Input: asked{op: "set", value: "a"}, Output: told{answer: "STORED"}, Call: 0, Return: 1},
			{ClientId: 0, Input: asked{op: "delete"}, Output: told{answer: "DELETED"}, Call: 2, Return: 10},
			{ClientId: 1, Input: asked{op: "get"}, Output: told{answer: "END"}, Call: 3, Return: 4},
			{ClientId: 1, Input: asked{op: "get"}, Output: told{answer: "VALUE", value: "a"}, Call: end - 1, Return: end},
		}
		if checkHistory("k", history) == nil {
			t.Errorf("get answered at %d: the whole history is right", end)
		}
		if err := checkHistory("k", withoutEarlyReads(history)); (err == nil) != right {
			t.Errorf("get answered at %d: want %v: %v", end, right, err)
		}
	}
}
