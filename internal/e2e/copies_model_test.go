package e2e

// What a key with copies promises, as a model that a checker can hold a history
// against.

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

// The model of one key is one memcached's, as far as answers say for sure what
// has happened. Its state is the set of values that the key may have now, one
// of which may be nothing (absent). At the start it is absent.
//
//	answer                 is right if                    and then the key may be
//	set v      STORED      always                         v
//	add v      STORED      it may be absent               v
//	           NOT_STORED  always: an add or a delete     as before
//	                       without its answer yet may
//	                       stand there
//	replace v  STORED      it may be something            v
//	           NOT_STORED  it may be absent               as before
//	cas e v    STORED      it may be e                    v
//	           EXISTS      always: the authority may      as before
//	                       have changed
//	           NOT_FOUND   it may be absent               as before
//	incr       n           it may be n-1                  n
//	           NOT_FOUND   it may be absent               as before
//	touch      TOUCHED     it may be something            as before
//	           NOT_FOUND   it may be absent               as before
//	delete     DELETED     it may be something            absent
//	           NOT_FOUND   it may be absent               absent
//	get, gat   a value     it may be that                 as before
//	           a miss      it may be absent               as before
//	set v      an error    always                         v too, or absent (undone)
//	replace v  an error    always                         as that, if it may be something
//	add v      an error    always                         v too, if it may be absent
//	cas e v    an error    always                         v too, if it may be e
//	delete     an error    always                         absent too
//	incr       an error    always                         one more too, of each number
//
// Each happens at one moment between request and answer. So an acknowledged
// write is read by all that ask later; it is never lost, though one server is
// killed or hangs, until another write takes its place; and nothing that it
// replaced is read again. Of a write that got an error nobody knows whether it
// has happened, and two reads may differ about that, but the next acknowledged
// write ends it: it can't come later. Only an incr can: it is not undone, so its
// moment is anywhere up to the end of the history.
//
// Reads that get an error say nothing and are left out.

const absent = "-"

type asked struct {
	op     string
	value  string // of set, add, cas
	expect string // of cas: what was read with its token
	front  int    // the ringside that was asked
}

type told struct {
	answer string // the first word; empty: an error
	value  string // of get
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

// step is one line of the table above. It may change the state that it is given.
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

// never is the end of a history, for what may happen at any time.
const never = math.MaxInt64

// checkHistory holds the history of one key against the model.
func checkHistory(key string, history []porcupine.Operation) error {
	verdict := porcupine.CheckOperationsTimeout(keyModel, history, patience)
	if verdict == porcupine.Ok {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d operations: %s\n", key, len(history), map[bool]string{true: "the check took too long", false: "no order of them explains all answers"}[verdict == porcupine.Unknown])
	slices.SortFunc(history, compareReturns)
	// Around the first answer that can't be is what matters.
	first := sort.Search(len(history), func(n int) bool {
		return porcupine.CheckOperationsTimeout(keyModel, asOf(history, n), patience) != porcupine.Ok
	})
	printAround(&b, history, first, nil)
	return fmt.Errorf("%s", b.String())
}

// asOf is what was known of a history when its operation n had its answer. What was under
// way by then may have happened.
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

// printAround prints what was done to a key about the first answer that can't be, and
// about what that is against, if it is one operation.
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

// historyOf is operations that end one after another: "op [expect] [value] -> answer
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

// The model itself must tell right from wrong.
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

// What shows a delete that is under way is left out, what shows what it has taken is not.
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
