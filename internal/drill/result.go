package drill

// What is counted, what comes of it, and whether that is good enough.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"ringside/proxy/live"
)

// Result is what clients saw of one fault, from its beginning until the server
// was back.
type Result struct {
	Fault  string `json:"fault"`
	Server string `json:"server"`

	Requests int `json:"requests"`
	Errors   int `json:"errors"`            // reads and connections without a good answer
	Stuck    int `json:"stuck"`             // of the errors: no answer at all, for longer than any timeout
	Misses   int `json:"misses"`            // reads of keys that should be there
	Refused  int `json:"refused"`           // writes whose answer was an error
	Stale    int `json:"stale"`             // reads that returned an older value than was acknowledged
	Wrong    int `json:"wrong"`             // reads that returned what was never written
	Repeated int `json:"counters_repeated"` // increments that came to a number which the counter had before
	Torn     int `json:"appends_torn"`      // reads of a journal that lacked an acknowledged entry, or had one twice
	Twice    int `json:"locks_twice"`       // locks that a client got while another had it

	Notice Time `json:"notice_ms"` // from the fault to the first sign of it, for a client or in the server's state
	Eject  Time `json:"eject_ms"`  // from the fault to the server's keys being elsewhere; where keys never move, to its being held for down
	Return Time `json:"return_ms"` // from lifting the fault to the server being up and no request failing
	Failed Time `json:"failed_ms"` // from the first to the last request that failed or was refused

	LastBadGet Time `json:"last_bad_get_ms"` // from the fault to the last read that got an error while it lasted
	LastBadSet Time `json:"last_bad_set_ms"` // from the fault to the last write that was refused while it lasted

	RateBefore float64 `json:"rate_before"`   // requests answered a second, before the fault
	BelowHalf  Time    `json:"below_half_ms"` // the longest time of less than half of that, while the fault lasted

	Slowest Time   `json:"slowest_ms"`        // the longest that a request took
	Example string `json:"example,omitempty"` // an error that a client got; a stale or wrong read, if there was one

	Others  []string `json:"other_servers,omitempty"` // that were not up before or during the drill, and why
	failed  []string // of the others, those that were up before
	failing string   // if the server came back and requests failed nevertheless until the end: what the last one got
	Unseen  int      `json:"unseen,omitempty"` // looks at the servers' state that the control API did not answer

	Exceeded []string `json:"exceeded,omitempty"` // limits
}

// other notes the other servers that were not up: known before the fault, seen while it lasted
// and after it.
func (r *Result) other(known []live.ServerState, seen ...[]live.ServerState) {
	noted := map[[2]string]bool{}
	note := func(s *live.ServerState, to *[]string) {
		if name := [2]string{s.Pool, s.Server}; !noted[name] {
			noted[name] = true
			*to = append(*to, describe(s))
		}
	}
	for i := range known {
		note(&known[i], &r.Others)
	}
	for _, list := range seen {
		for i := range list {
			note(&list[i], &r.failed)
		}
	}
	r.Others = append(r.Others, r.failed...)
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

// trouble is how many requests did not get what they should; misses are not among them.
func (r *Result) trouble() int { return r.Errors + r.Refused + r.forbidden() }

// forbidden is how many answers there were that must not be.
func (r *Result) forbidden() int { return r.Stale + r.Wrong + r.Repeated + r.Torn + r.Twice }

// ending is how a request ended.
type ending uint8

const (
	good       ending = iota
	broken            // a read without a good answer
	unanswered        // a write without any
	miss              // of a key that should be there
	refused           // a write
	staleRead         // an old value
	repeated          // a number that was there before
	torn              // a journal without an entry, or with one twice
	twice             // a lock that somebody has
	wrongValue        // never written
)

// tally counts for the result of one drill.
type tally struct {
	mu          sync.Mutex
	is          Result
	first, last time.Time // failures
	fault       time.Time // when it began
	lastExample string    // what the request of last got
	steps       []int     // how many requests ended in each step since then
}

// rateStep is that in which a rate is looked at.
const rateStep = 100 * time.Millisecond

// setFault says when the fault began; the zero time that it is over.
func (t *tally) setFault(fault time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fault = fault
}

func (t *tally) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.is, t.first, t.last, t.fault = Result{LastBadGet: Never, LastBadSet: Never}, time.Time{}, time.Time{}, time.Time{}
	t.steps = nil
}

// lastFailure returns what the request got that failed last.
func (t *tally) lastFailure() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lastExample
}

// inSteps is how many requests ended in each rateStep since the fault began.
func (t *tally) inSteps() []int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.steps)
}

// counted returns what was counted since begin, and when the first and the last
// failure was; zero if there was none.
func (t *tally) counted() (r *Result, first, last time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	is := t.is
	return &is, t.first, t.last
}

func (t *tally) count(began time.Time, how ending, example string) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &t.is
	r.Requests++
	r.Slowest = max(r.Slowest, Time(now.Sub(began)))
	if how != good && how != miss && how != twice {
		if t.first.IsZero() {
			t.first = now
		}
		t.last, t.lastExample = now, example
	}
	if gone := Time(now.Sub(t.fault)); !t.fault.IsZero() {
		for at := int(time.Duration(gone) / rateStep); len(t.steps) <= at; {
			t.steps = append(t.steps, 0)
		}
		t.steps[len(t.steps)-1]++
		switch how {
		case broken:
			r.LastBadGet = gone
		case unanswered, refused:
			r.LastBadSet = gone
		}
	}
	if (how == broken || how == unanswered) && example == errStuck.Error() {
		r.Stuck++
	}
	counts := [...]*int{good: new(int), broken: &r.Errors, unanswered: &r.Errors, miss: &r.Misses, refused: &r.Refused,
		staleRead: &r.Stale, repeated: &r.Repeated, torn: &r.Torn, twice: &r.Twice, wrongValue: &r.Wrong}
	*counts[how]++
	if how >= staleRead && how != twice || r.Example == "" {
		r.Example = example
	}
}

// changed counts a change to a key, and returns what its client got instead of an
// acknowledgement; nil where the key is to be put back, which a miss is.
func (t *tally) changed(began time.Time, how ending, example string) error {
	t.count(began, how, example)
	if how == good || how == miss {
		return nil
	}
	return errors.New(example)
}

// rates compares how many requests ended in each step of a fault of that length with
// how many a second did before.
func (r *Result) rates(before float64, steps []int, lasted time.Duration) {
	r.RateBefore = before
	low := time.Duration(0)
	for i := range int(lasted / rateStep) {
		if low += rateStep; i < len(steps) && float64(steps[i]) >= before/2*rateStep.Seconds() {
			low = 0
		}
		r.BelowHalf = max(r.BelowHalf, Time(low))
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
	Twice                          int // locks: a server with the only copy takes them with it
	Failed, Notice, Eject, Return  time.Duration
	BelowHalf                      time.Duration
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
	count("increments that came to a number twice", r.Repeated, 0)
	count("reads of a torn journal", r.Torn, 0)
	count("locks held twice", r.Twice, l.Twice)
	count("stale reads", r.Stale, l.Stale)
	count("clients stuck", r.Stuck, 0)
	count("errors", r.Errors, l.Errors)
	count("misses", r.Misses, l.Misses)
	count("refused writes", r.Refused, l.Refused)
	span("requests failed for", r.Failed, l.Failed)
	span("below half of the rate before for", r.BelowHalf, l.BelowHalf)
	span("noticed after", r.Notice, l.Notice)
	span("ejected after", r.Eject, l.Eject)
	span("returned after", r.Return, l.Return)
	switch {
	case r.Return != Never:
	case r.failing != "":
		r.Exceeded = append(r.Exceeded, "the server came back, but requests failed until the end: "+r.failing)
	default:
		r.Exceeded = append(r.Exceeded, "the server did not come back")
	}
	for _, other := range r.failed {
		r.Exceeded = append(r.Exceeded, "another server failed meanwhile: "+other)
	}
	return len(r.Exceeded) > 0
}

// Words says what clients saw of one fault.
func (r *Result) Words() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s on %s: ", r.Fault, r.Server)
	switch failed := r.Errors + r.Refused; {
	case r.trouble() == 0 && r.Misses == 0:
		b.WriteString("no request failed and nothing was missed")
	case failed == 0:
		fmt.Fprintf(&b, "no request failed, %d keys were missed", r.Misses)
	default:
		fmt.Fprintf(&b, "%d of %d requests failed within %v, %d keys were missed", failed, r.Requests, r.Failed, r.Misses)
	}
	if r.BelowHalf > 0 {
		fmt.Fprintf(&b, "; for %v clients had less than half of the %.0f answers a second of before", r.BelowHalf, r.RateBefore)
	}
	if r.Eject != Never {
		fmt.Fprintf(&b, "; the server counted as gone after %v", r.Eject)
	}
	switch {
	case r.Return != Never:
		fmt.Fprintf(&b, "; all was well %v after the fault", r.Return)
	case r.failing != "":
		fmt.Fprintf(&b, "; the server came back, but requests failed until the end: %s", r.failing)
	default:
		b.WriteString("; it did not come back")
	}
	for _, other := range r.Others {
		b.WriteString("; " + other)
	}
	if r.Unseen > 0 {
		fmt.Fprintf(&b, "; %d looks at the servers' state were not answered", r.Unseen)
	}
	return b.String()
}

// failures says whether there is a limit on how many requests fail, or for how long.
func (l Limits) failures() bool {
	return l.Errors >= 0 || l.Refused >= 0 || l.Failed > 0
}

// Verdict says in a sentence what came of all, and whether that is good. planned is how many
// faults there should have been.
func Verdict(results []*Result, l Limits, planned int) (words string, good bool) {
	bad, twice, failed, requests := 0, 0, 0, 0
	for _, r := range results {
		if len(r.Exceeded) > 0 {
			bad++
		}
		twice += r.Twice
		failed += r.Errors + r.Refused
		requests += r.Requests
	}
	faults := fmt.Sprintf("%d faults", len(results))
	if len(results) == 1 {
		faults = "1 fault"
	}
	switch {
	case bad > 0:
		return fmt.Sprintf("NOT GOOD: %d of %s did more than the limits allow", bad, faults), false
	case len(results) < planned:
		return fmt.Sprintf("NONE: %d of %d faults could not be tried", planned-len(results), planned), false
	case failed == 0:
		words = "good: no request failed"
	case l.failures():
		words = "good: within the limits"
	default:
		words = fmt.Sprintf("%d of %d requests failed, and no limit says whether that is good (--max-errors, --max-refused, --max-errors-ms)", failed, requests)
	}
	words += "; nobody read anything that was never written, through " + faults
	if twice > 0 {
		words += fmt.Sprintf("; %d locks were got by a second client, as the server that is gone takes locks of which it has the only copy with it", twice)
	}
	return words, true
}

// Print writes results as a table, and what they mean below it. mark makes a verdict
// stand out, by whether it is good. planned is how many faults there should have been.
func Print(out io.Writer, results []*Result, l Limits, planned int, mark func(good bool, line string) string) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "fault\trequests\terrors\tmisses\trefused\tnoticed\tejected\treturned\tslowest\tbelow half\tstale\twrong\tcounters\tappends\tlocks\t")
	for _, r := range results {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%v\t%v\t%v\t%v\t%v\t%d\t%d\t%d\t%d\t%d\t\n",
			r.Fault, r.Requests, r.Errors, r.Misses, r.Refused, r.Notice, r.Eject, r.Return, r.Slowest, r.BelowHalf, r.Stale, r.Wrong, r.Repeated, r.Torn, r.Twice)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, r := range results {
		fmt.Fprintln(out, r.Words())
		if r.Example != "" && (r.forbidden() > 0 || len(r.Exceeded) > 0) {
			fmt.Fprintf(out, "%s: %s\n", r.Fault, r.Example)
		}
		if len(r.Exceeded) > 0 {
			fmt.Fprintln(out, mark(false, fmt.Sprintf("%s: EXCEEDED: %s", r.Fault, strings.Join(r.Exceeded, "; "))))
		}
	}
	words, good := Verdict(results, l, planned)
	_, err := fmt.Fprintln(out, mark(good, "verdict: "+words))
	return err
}
