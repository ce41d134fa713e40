package drill

// What is counted, what comes of it, and whether that is good enough.

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// Result is what clients saw of one fault, from its beginning until the server
// was back.
type Result struct {
	Fault  string `json:"fault"`
	Server string `json:"server"`

	Requests int `json:"requests"`
	Errors   int `json:"errors"`  // reads and connections without a good answer
	Stuck    int `json:"stuck"`   // of the errors: no answer at all, for longer than any timeout
	Misses   int `json:"misses"`  // reads of keys that should be there
	Refused  int `json:"refused"` // writes whose answer was an error
	Stale    int `json:"stale"`   // reads that returned an older value than was acknowledged
	Wrong    int `json:"wrong"`   // reads that returned what was never written

	Notice Time `json:"notice_ms"` // from the fault to the first sign of it, for a client or in the server's state
	Eject  Time `json:"eject_ms"`  // from the fault to the server's keys being elsewhere; where keys never move, to its being held for down
	Return Time `json:"return_ms"` // from lifting the fault to the server being up and no request failing
	Failed Time `json:"failed_ms"` // from the first to the last request that failed or was refused

	Slowest Time   `json:"slowest_ms"`        // the longest that a request took
	Example string `json:"example,omitempty"` // an error that a client got; a stale or wrong read, if there was one

	Exceeded []string `json:"exceeded,omitempty"` // limits
}

// Time is a duration that may never have come to its end.
type Time time.Duration

// Never is the Time of what did not happen.
const Never = Time(-1)

func (t Time) String() string {
	switch d := time.Duration(t); {
	case t == Never:
		return "never"
	case d < time.Millisecond:
		return "<1ms"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	default:
		return d.Round(10 * time.Millisecond).String()
	}
}

// MarshalJSON writes milliseconds, or null for Never.
func (t Time) MarshalJSON() ([]byte, error) {
	if t == Never {
		return []byte("null"), nil
	}
	return json.Marshal(float64(time.Duration(t)/time.Microsecond) / 1e3)
}

// trouble is how many requests did not get what they should, misses apart.
func (r *Result) trouble() int { return r.Errors + r.Refused + r.Stale + r.Wrong }

// ending is how a request ended.
type ending uint8

const (
	good       ending = iota
	broken            // no good answer
	miss              // of a key that should be there
	refused           // a write
	staleRead         // an old value
	wrongValue        // never written
)

// tally counts for the result of one drill.
type tally struct {
	mu          sync.Mutex
	is          Result
	first, last time.Time // failures
}

func (t *tally) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.is, t.first, t.last = Result{}, time.Time{}, time.Time{}
}

// end returns what was counted since begin, and when the first and the last
// failure was; zero if there was none.
func (t *tally) end() (r *Result, first, last time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	is := t.is
	return &is, t.first, t.last
}

func (t *tally) lastFailure() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

func (t *tally) count(began time.Time, how ending, example string) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &t.is
	r.Requests++
	r.Slowest = max(r.Slowest, Time(now.Sub(began)))
	if how != good && how != miss {
		if t.first.IsZero() {
			t.first = now
		}
		t.last = now
	}
	switch how {
	case broken:
		r.Errors++
		if example == errStuck.Error() {
			r.Stuck++
		}
	case miss:
		r.Misses++
	case refused:
		r.Refused++
	case staleRead:
		r.Stale++
	case wrongValue:
		r.Wrong++
	}
	if how >= staleRead || r.Example == "" {
		r.Example = example
	}
}

// times works out when what happened: the fault began and was lifted, the
// first and last failure, what was seen of the server until and after it was
// lifted.
func (r *Result) times(began, lifted, first, last time.Time, during, after watched) {
	r.Notice, r.Eject, r.Return = Never, Never, Never
	if !first.IsZero() {
		r.Notice = Time(first.Sub(began))
		r.Failed = Time(last.Sub(first))
	}
	trouble := during.trouble
	if trouble.IsZero() {
		trouble = after.trouble
	}
	if seen := Time(trouble.Sub(began)); !trouble.IsZero() && (r.Notice == Never || seen < r.Notice) {
		r.Notice = seen
	}
	ejected := during.ejected
	if ejected.IsZero() {
		ejected = after.ejected
	}
	if !ejected.IsZero() {
		r.Eject = Time(ejected.Sub(began))
	}
	if after.met {
		r.Return = max(0, Time(last.Sub(lifted)))
		if !after.trouble.IsZero() {
			r.Return = max(r.Return, Time(after.good.Sub(lifted)))
		}
	}
}

// Limits is what is good enough. A negative number, and a time of 0, is no
// limit.
type Limits struct {
	Stale, Errors, Misses, Refused int
	Failed, Notice, Eject, Return  time.Duration
}

// Judge notes in r which limits it exceeds, and reports whether there are
// any. Wrong values, clients that are stuck, and a server that does not come
// back are never good enough; what never happened is not late.
func (l Limits) Judge(r *Result) bool {
	count := func(what string, is, limit int) {
		if limit >= 0 && is > limit {
			r.Exceeded = append(r.Exceeded, fmt.Sprintf("%d %s, at most %d", is, what, limit))
		}
	}
	span := func(what string, is Time, limit time.Duration) {
		if limit > 0 && time.Duration(is) > limit {
			r.Exceeded = append(r.Exceeded, fmt.Sprintf("%s %v, at most %v", what, is, limit))
		}
	}
	count("wrong values", r.Wrong, 0)
	count("stale reads", r.Stale, l.Stale)
	count("clients stuck", r.Stuck, 0)
	count("errors", r.Errors, l.Errors)
	count("misses", r.Misses, l.Misses)
	count("refused writes", r.Refused, l.Refused)
	span("requests failed for", r.Failed, l.Failed)
	span("noticed after", r.Notice, l.Notice)
	span("ejected after", r.Eject, l.Eject)
	span("returned after", r.Return, l.Return)
	if r.Return == Never {
		r.Exceeded = append(r.Exceeded, "the server did not come back")
	}
	return len(r.Exceeded) > 0
}

// Print writes results as a table.
func Print(out io.Writer, results []*Result) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "fault\trequests\terrors\tmisses\trefused\tnoticed\tejected\treturned\tslowest\tstale\twrong\t")
	for _, r := range results {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%v\t%v\t%v\t%v\t%d\t%d\t\n",
			r.Fault, r.Requests, r.Errors, r.Misses, r.Refused, r.Notice, r.Eject, r.Return, r.Slowest, r.Stale, r.Wrong)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, r := range results {
		if r.Example != "" && (r.Stale+r.Wrong > 0 || len(r.Exceeded) > 0) {
			fmt.Fprintf(out, "%s: %s\n", r.Fault, r.Example)
		}
		if len(r.Exceeded) > 0 {
			fmt.Fprintf(out, "%s: EXCEEDED: %s\n", r.Fault, strings.Join(r.Exceeded, "; "))
		}
	}
	return nil
}
