package drill

// This file counts replies, computes the result of a drill and compares it with the
// limits.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"ringside/internal/cli"
	"ringside/internal/top"
	"ringside/proxy/live"
)

// Result is what clients saw of one fault, from the start of the fault until the server was back.
type Result struct {
	Fault  string `json:"fault"`
	Server string `json:"server"`

	Requests int `json:"requests"`
	Errors   int `json:"errors"`            // number of reads without a correct reply, and of writes without a reply
	Stuck    int `json:"stuck"`             // number of requests without a reply for longer than any timeout; they are also in Errors
	Misses   int `json:"misses"`            // number of reads that missed a key that should exist
	Refused  int `json:"refused"`           // number of writes that had an error as reply
	Stale    int `json:"stale"`             // number of reads that returned an older value than the last acknowledged one
	Wrong    int `json:"wrong"`             // number of reads that returned a value that was never written to the key
	Repeated int `json:"counters_repeated"` // number of increments that returned a number that the counter had before
	Torn     int `json:"appends_torn"`      // number of reads of a journal that lacked an acknowledged entry, or had one twice
	Twice    int `json:"locks_twice"`       // number of locks that a client obtained while another client had them

	Notice Time `json:"notice_ms"` // time from the fault to the first sign of it: a request that failed, or a server state other than up
	Eject  Time `json:"eject_ms"`  // time from the fault until the server's keys have moved; if keys never move, until the server is down
	Return Time `json:"return_ms"` // time from the end of the fault until the server is up and no request fails
	Failed Time `json:"failed_ms"` // time from the first to the last request that failed or was refused

	LastBadGet Time `json:"last_bad_get_ms"` // time from the fault to the last read that failed during the fault
	LastBadSet Time `json:"last_bad_set_ms"` // time from the fault to the last write that failed during the fault

	RateBefore float64 `json:"rate_before"`   // replies per second in the time before the fault
	BelowHalf  Time    `json:"below_half_ms"` // longest time during the fault with less than half of the request rate before the fault

	Slowest Time   `json:"slowest_ms"`        // duration of the slowest request of the drill
	Example string `json:"example,omitempty"` // an error that a client got, preferably for a stale or wrong read

	Others  []string `json:"other_servers,omitempty"` // other servers that were not up before or during the drill, and why
	failed  []string // those servers in Others that were up before the drill
	failing string   // the last failure, if requests failed until the end although the server came back; empty: none
	Unseen  int      `json:"unseen,omitempty"` // number of queries of the servers' state without a reply from the control API

	Exceeded []string `json:"exceeded,omitempty"` // descriptions of the limits that the result exceeds; empty: it is within all limits
}

// other records the other servers that were not up. `known` has those from before the fault, with
// their states. `seen` has those from during and after the fault.
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

// Time is a duration that is unknown if the event at its end did not happen.
type Time time.Duration

// Never is the Time of an event that has not happened.
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

// MarshalJSON encodes t as a number of milliseconds, or as null if t is Never.
func (t Time) MarshalJSON() ([]byte, error) {
	if t == Never {
		return []byte("null"), nil
	}
	return json.Marshal(float64(time.Duration(t)/time.Microsecond) / 1e3)
}

// trouble returns the number of requests without a correct reply. A miss counts as a correct reply.
func (r *Result) trouble() int { return r.Errors + r.Refused + r.forbidden() }

// forbidden returns the number of replies that must never happen: old or wrong values, and values
// that counters, journals and locks must not have.
func (r *Result) forbidden() int { return r.Stale + r.Wrong + r.Repeated + r.Torn + r.Twice }

// ending is the outcome of one request of a drill.
type ending uint8

const (
	good       ending = iota
	broken            // a read without a correct reply
	unanswered        // a write without a reply
	miss              // a read or a change found no item for a key that should exist
	refused           // a write with an error as reply
	staleRead         // a read returned an older value than the last acknowledged one
	repeated          // an increment returned a number that the counter had before
	torn              // a read of a journal that lacks an acknowledged entry, or has one twice
	twice             // a client obtained a lock although another client had it
	wrongValue        // a value or a number that was never written
)

// failed reports whether a request did not do what it should: for the times of failed requests, misses
// and locks that are held twice do not count.
func (e ending) failed() bool { return e != good && e != miss && e != twice }

// tally counts the requests of one drill and their outcomes.
type tally struct {
	mu sync.Mutex
	counts
}

// counts is what a tally has counted since begin was called last.
type counts struct {
	is          Result
	first, last time.Time // times of the first and the last failed request; zero: none has failed
	fault       time.Time // start of the fault; zero: there is no fault now
	lastExample string    // what the client got for the last failed request
	steps       []int     // number of requests that ended in each step (rateStep) since the fault began
}

// rateStep is the length of the steps in which requests are counted during a fault.
const rateStep = 100 * time.Millisecond

// setFault sets the time when the fault began. The zero time means that there is no fault any more.
func (t *tally) setFault(fault time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fault = fault
}

func (t *tally) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts = counts{is: Result{LastBadGet: Never, LastBadSet: Never}}
}

// counted returns the counts since begin was called last.
func (t *tally) counted() *counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.counts
	c.steps = slices.Clone(c.steps)
	return &c
}

func (t *tally) count(began time.Time, how ending, example string) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &t.is
	r.Requests++
	r.Slowest = max(r.Slowest, Time(now.Sub(began)))
	if how.failed() {
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

// rates finds the longest time in which the request rate during the fault was below half of the
// rate before it. steps has the number of requests that ended in each step of the fault. lasted is
// the duration of the fault.
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

// times computes the times of the result. Its parameters are when the fault began and was lifted,
// the times of the first and the last failure, and what was seen of the server during and after the
// fault.
func (r *Result) times(began, lifted, first, last time.Time, during, after watched) {
	r.Notice, r.Eject, r.Return = Never, Never, Never
	if !first.IsZero() {
		r.Notice = Time(first.Sub(began))
		r.Failed = Time(last.Sub(first))
	}
	trouble, ejected := cmp.Or(during.trouble, after.trouble), cmp.Or(during.ejected, after.ejected)
	if seen := Time(trouble.Sub(began)); !trouble.IsZero() && (r.Notice == Never || seen < r.Notice) {
		r.Notice = seen
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

// Limits defines which results are acceptable. For counts, a negative number means no limit. For
// times, 0 means no limit.
type Limits struct {
	Stale, Errors, Misses, Refused int
	Twice                          int // maximum number of locks that a client obtains while another client has them; a server without replicas loses its locks when it fails
	Failed, Notice, Eject, Return  time.Duration
	BelowHalf                      time.Duration
}

// Judge compares r with the limits, records in r those that it exceeds, and reports whether there
// are any. Wrong values, clients without replies, and a server that does not come back are never
// acceptable. A time exceeds no limit if its event never happened.
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
	if r.Return == Never {
		r.Exceeded = append(r.Exceeded, "the server "+r.ending())
	}
	for _, other := range r.failed {
		r.Exceeded = append(r.Exceeded, "another server failed meanwhile: "+other)
	}
	return len(r.Exceeded) > 0
}

// ending describes the end of a drill after which not everything worked again.
func (r *Result) ending() string {
	if r.failing != "" {
		return "returned, but requests failed until the end: " + r.failing
	}
	return "did not return"
}

// Words describes in sentences what clients saw of one fault.
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
		fmt.Fprintf(&b, "; the server was ejected after %v", r.Eject)
	}
	if r.Return != Never {
		fmt.Fprintf(&b, "; all was well %v after the fault", r.Return)
	} else {
		b.WriteString("; the server " + r.ending())
	}
	for _, other := range r.Others {
		b.WriteString("; " + other)
	}
	if r.Unseen > 0 {
		fmt.Fprintf(&b, "; %d looks at the servers' state were not answered", r.Unseen)
	}
	return b.String()
}

// failures reports whether there is a limit for the number or the duration of failed requests.
func (l Limits) failures() bool {
	return l.Errors >= 0 || l.Refused >= 0 || l.Failed > 0
}

// Verdict summarizes all results in a sentence. good is true if all results are within the limits.
// planned is the number of faults that should have been tried.
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
	faults := cli.Counted(len(results), "fault")
	switch {
	case bad > 0:
		return fmt.Sprintf("NOT GOOD: %d of %s did more than the limits allow", bad, faults), false
	case len(results) < planned:
		return fmt.Sprintf("NONE: %d of %d faults have no result", planned-len(results), planned), false
	case failed == 0:
		words = "good: no request failed"
	case l.failures():
		words = "good: within the limits"
	default:
		words = fmt.Sprintf("%d of %d requests failed, and no limit says whether that is good (--max-errors, --max-refused, --max-errors-ms)", failed, requests)
	}
	words += "; no read returned a value that was never written, through " + faults
	if twice > 0 {
		words += fmt.Sprintf("; %d locks were granted to a second client, because a lock with one replica is lost with its server", twice)
	}
	return words, true
}

// Print writes the results as a table, and below it whether they are good. planned is the number of
// faults that should have been tried.
func Print(out io.Writer, results []*Result, l Limits, planned int) error {
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
			fmt.Fprintln(out, cli.Paint(out, top.Bad, fmt.Sprintf("%s: EXCEEDED: %s", r.Fault, strings.Join(r.Exceeded, "; "))))
		}
	}
	words, good := Verdict(results, l, planned)
	style := map[bool]top.Style{true: top.Good, false: top.Bad}[good]
	_, err := fmt.Fprintln(out, cli.Paint(out, style, "verdict: "+words))
	return err
}
