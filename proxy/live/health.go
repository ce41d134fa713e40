package live

// This file describes the health of a pool in sentences: the problem, how long it has existed, and
// what to do.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"ringside/proxy/table"
	"ringside/ring"
)

// Health describes the state of a pool in words, for the operator.
type Health struct {
	Level string `json:"level"` // level of the state: Good, Warn or Bad
	Title string `json:"title"` // one sentence about the state of the pool
	Text  string `json:"text"`  // consequences of the state, and what the operator can do
}

// Sentence returns the state in one line, with the symbol of its level.
func (h *Health) Sentence() string {
	return strings.TrimSpace(Signs[h.Level] + " " + h.Title + ". " + h.Text)
}

// The levels of Health, and the severities of events.
const (
	Good = "good"
	Warn = "warn"
	Bad  = "bad"
)

// health describes the state of the servers of the pool p, the worst first, and what an operator
// can do. loss is the result of lossOf. pools is the number of pools. failing is true if requests to some server fail, or if some
// server does not serve. The failures of a pool are then those of its own servers. If failing is
// false, the cause of failed requests is not known, and they make every pool unhealthy.
func (t *Tick) health(p *table.Pool, loss string, pools int, failing bool) Health {
	w := wording{Tick: t, pool: p, loss: loss, pools: pools, explained: failing, shares: hashShares(p)}
	bad := w.which(func(i int, s string) bool { return StateOf(s).Away && !w.S.byOperator(i) })
	drained := w.which(func(i int, _ string) bool { return w.S.byOperator(i) })
	back := w.which(func(_ int, s string) bool { return StateOf(s).Back })
	n := len(t.S.State)
	var h Health
	switch {
	case p.Unknown:
		return Health{Bad, "The servers are not known yet", "All commands on keys of the pool are rejected."}
	case n == 0:
		return Health{Bad, "The pool has no servers", "Nothing can be stored in it."}
	case len(bad) > 0:
		h = w.trouble(bad, len(bad)+len(drained))
		if len(drained) > 0 {
			h.Text += " " + w.names(drained) + oneOrAll(drained, " is ", " are ") + "drained by an operator." + w.alsoSuspect(drained)
		}
	case len(back) > 0 && p.Failover.Mode == table.FailFast: // its servers change: no other server has its keys meanwhile
		h = Health{Warn, w.names(back) + oneOrAll(back, " is", " are") + " rejoining", fmt.Sprintf("%s, so that no old value is served. %s %s of the keys %s, until %s up.",
			oneOrAll(back, "It answers again, and starts empty", "They answer again, and start empty"), oneOrAll(back, "Its", "Their"), w.share(back), loss, oneOrAll(back, "it is", "they are"))}
	case len(back) > 1:
		h = Health{Warn, w.names(back) + " are rejoining", "They start empty. ringside server list shows how far each of them is."}
	case len(back) > 0:
		h = Health{Warn, w.name(back[0]) + " is rejoining", StateOf(t.S.State[back[0]]).Does}
	case len(drained) > 0:
		h = Health{Warn, w.names(drained) + oneOrAll(drained, " is ", " are ") + map[bool]string{true: "taken down", false: "drained"}[w.S.State[drained[0]] == Down],
			fmt.Sprintf("By an operator, %s ago: ringside server restore brings %s back.%s %s %s", w.since(drained[0]), oneOrAll(drained, "it", "them"), w.alsoSuspect(drained), w.fate(drained, len(drained), "until then; it starts empty", "until then; they start empty"), w.flow())}
	case w.failRate() >= 1:
		h = Health{Warn, Count(w.failRate()) + " requests/s fail", w.servers("The server is", "All %d servers are") + " up. " + w.failing() + w.flow()}
	case t.Requests() == 0 && t.Clients == 0:
		h = Health{Good, w.servers("The server is ready", "%d servers are ready"), "No client is connected."}
	default:
		h = Health{Good, w.servers("The server serves", "All %d servers serve"), w.flow() + w.failures()}
	}
	return h
}

// warn adds sentences about a problem to h. If the level is Good, it becomes Warn, and the first sentence becomes
// the title: views of several pools show only titles.
func (h *Health) warn(text string) {
	if h.Level != Good {
		h.Text += " " + text
		return
	}
	title, rest, _ := strings.Cut(text, ". ")
	*h = Health{Warn, strings.TrimSuffix(title, "."), strings.TrimSpace(rest + " " + h.Title + ". " + h.Text)}
}

// wording is a tick together with the data that is needed to describe it in words.
type wording struct {
	*Tick
	pool      *table.Pool
	loss      string // what happens to keys that no server serves: see lossOf
	pools     int
	explained bool // true if it is known which servers the failed requests belong to
	shares    []float64
}

func (w *wording) which(is func(i int, state string) bool) (list []int) {
	for i, s := range w.S.State {
		if is(i, s) {
			list = append(list, i)
		}
	}
	return list
}

func (w *wording) name(i int) string { return w.pool.Servers[i].Name }

// names returns a text with up to three names of servers, and how many more there are. list has the
// indexes of the servers.
func (w *wording) names(list []int) string {
	var names []string
	for _, i := range list {
		names = append(names, w.name(i))
	}
	return enumerate(names)
}

// oneOrAll returns the text `one` if list has one server, and the text `all` if it has several.
func oneOrAll[T any](list []T, one, all string) string {
	if len(list) > 1 {
		return all
	}
	return one
}

func (w *wording) share(list []int) string {
	sum := 0.0
	for _, i := range list {
		sum += w.shares[i]
	}
	return Percent(sum)
}

func (w *wording) since(i int) string {
	return Ago(time.Duration(w.T-w.S.Since[i]) * time.Millisecond)
}

// alsoSuspect describes those of the drained servers that have stopped replying since they were
// drained.
func (w *wording) alsoSuspect(drained []int) (text string) {
	for _, i := range drained {
		if _, why, ok := strings.Cut(w.S.Why[i], alsoSuspect); ok && len(drained) == 1 {
			text = " It is suspect, too: " + unnamed(why) + "."
		} else if ok {
			text += " " + w.name(i) + " is suspect, too: " + unnamed(why) + "."
		}
	}
	return text
}

// unnamed returns the reason why without the server's name, for a text that already has the name. It leaves out
// on which server the decision of another instance was read.
func unnamed(why string) string {
	if strings.HasPrefix(why, "the view record on ") && strings.HasSuffix(why, " says so") {
		return "another instance says so"
	}
	if _, short, ok := strings.Cut(why, " is down: "); ok && strings.HasPrefix(why, "server ") {
		return short
	}
	return why
}

// trouble describes the servers in bad, which do not serve. gone is the number of servers that do
// not serve, including drained ones.
func (w *wording) trouble(bad []int, gone int) Health {
	i, n := bad[0], len(w.S.State)
	state := w.S.State[i]
	h := Health{Level: Bad}
	switch {
	case len(bad) > 1:
		h.Title = w.names(bad) + " are not serving"
	case state == "suspect", state == Down:
		h.Title = w.name(i) + " " + problemOf(w.S.Why[i]).does
	case state == "leaving":
		h.Title = w.name(i) + " is leaving"
	case n > 8:
		h.Title = fmt.Sprintf("%s is out, %d of %d servers serve", w.name(i), n-gone, n)
	default:
		h.Title = w.name(i) + " is out"
	}
	why := w.whys(bad)
	for _, j := range bad { // finds the server with the longest outage
		if w.S.Since[j] < w.S.Since[i] {
			i = j
		}
	}
	fails := slices.DeleteFunc(slices.Clone(bad), func(i int) bool { return w.S.State[i] == "out" })
	unsure := w.unsure()
	if len(fails) == 0 {
		fails = bad
	}
	stays, kept := strings.CutPrefix(w.S.Next[fails[0]], "stays: ")
	answer := oneOrAll(fails, "it answers", "they answer")
	if len(fails) < len(bad) {
		answer = w.names(fails) + oneOrAll(fails, " answers", " answer")
	}
	lost := w.share(fails) + " of the keys " + w.loss
	switch {
	case len(unsure) > 0 && len(unsure)+gone == n:
		lost = "All keys " + w.loss
	case len(unsure) > 0:
		lost = w.share(append(unsure, fails...)) + " of the keys " + w.loss
	}
	switch {
	case w.S.State[fails[0]] == "out" && len(unsure) > 0:
		h.Text = fmt.Sprintf("%s, %s ago. %s, until this instance is sure which server has a key.", why, w.since(i), lost)
	case w.S.State[fails[0]] == "out":
		h.Text = fmt.Sprintf("%s, %s ago. %s", why, w.since(i), w.fate(bad, gone, "until it is back; then it starts empty", "until they are back; then they start empty"))
	case !slices.ContainsFunc(bad, func(i int) bool { return w.S.State[i] != "leaving" }):
		h.Text = fmt.Sprintf("%s. All instances agree on it first; then %s %s of the keys move to %s.", why, oneOrAll(bad, "its", "their"), w.share(bad), w.standIns(gone))
		return h
	case w.pool.Failover.Mode == table.FailFast:
		h.Text = fmt.Sprintf("%s, for %s. %s, until %s.", why, w.since(i), lost, answer)
	case kept:
		h.Text = fmt.Sprintf("%s, for %s. %s, until %s. No other server takes over: %s.", why, w.since(i), lost, answer, stays)
	default:
		h.Text = fmt.Sprintf("%s, for %s. %s, until %s or others take over.", why, w.since(i), lost, answer)
	}
	if len(unsure) > 0 {
		h.Text += fmt.Sprintf(" With strict consistency, %s can't serve either until more servers answer: it is not certain which server has a key.", w.names(unsure))
	}
	out, keptOut := strings.CutPrefix(w.S.Next[bad[0]], "stays out: ")
	switch {
	case keptOut:
		h.Text = "It stays out: " + out + ". " + h.Text
	default:
		needed := slices.DeleteFunc(slices.Clone(bad), func(i int) bool { return w.S.State[i] == "out" && w.removed(i) })
		if len(needed) == 0 {
			h.Text = "Nothing is needed: this configuration removes " + oneOrAll(bad, "it", "them") + ". " + h.Text
			break
		}
		h.Text = w.remedy(needed) + ": Ringside does the rest. " + h.Text
	}
	return h
}

// removed reports whether the configuration does not have server i any more, and the change of servers has not ended.
func (w *wording) removed(i int) bool {
	return len(missing(w.pool.Servers[i:i+1], w.pool.Required().Servers)) > 0
}

// unsure returns the servers that answer, but do not serve because of strict consistency.
func (w *wording) unsure() []int {
	return w.which(func(i int, s string) bool { return !StateOf(s).Away && i < len(w.S.Sure) && !w.S.Sure[i] })
}

// whys returns why the servers in bad do not serve. If the reasons differ, each has the names of its servers.
func (w *wording) whys(bad []int) string {
	list := w.grouped(bad, func(i int) string { return cmp.Or(unnamed(w.S.Why[i]), "no reason is known") })
	text := list[0].text
	if len(list) > 1 {
		var parts []string
		for _, g := range list {
			parts = append(parts, w.names(g.servers)+": "+g.text)
		}
		return strings.Join(parts, "; ")
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// group is a text with the servers to which it applies.
type group struct {
	text    string
	servers []int
}

// grouped returns the different texts of servers, with their servers. It returns at most mostNamed of them.
func (w *wording) grouped(servers []int, of func(i int) string) (list []group) {
	for _, i := range servers {
		text := of(i)
		at := slices.IndexFunc(list, func(g group) bool { return g.text == text })
		if at < 0 {
			at, list = len(list), append(list, group{text: text})
		}
		list[at].servers = append(list[at].servers, i)
	}
	return list[:min(len(list), mostNamed)]
}

// remedy returns what an operator can do about the servers in bad. For a single server, it has the address
// unless the name begins it. If the remedies differ, each has the names of its servers.
func (w *wording) remedy(bad []int) string {
	if len(bad) == 1 {
		return remedyFor(w.S.Why[bad[0]], &w.pool.Servers[bad[0]])
	}
	list := w.grouped(bad, func(i int) string { return problemOf(w.S.Why[i]).remedy })
	var parts []string
	for _, g := range list {
		text := g.text
		if len(g.servers) > 1 {
			text = strings.NewReplacer("its host runs", "their hosts run", "its address", "their addresses", "its pool", "their pool", "it is back", "they are back").Replace(text)
		}
		if len(list) > 1 {
			text += " (" + w.names(g.servers) + ")"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ". ")
}

// remedyFor returns what an operator can do about the server s, which has the problem why.
func remedyFor(why string, s *table.Target) string {
	text := problemOf(why).remedy
	if strings.HasPrefix(s.Address, s.Name) {
		return text
	}
	at := " (" + s.Address + ")"
	return strings.NewReplacer("there", "there"+at, "its host", "its host"+at, "its address", "its address"+at).Replace(text)
}

// fate describes where the keys of unavailable servers are, and for how long. The text `until` is
// used for one server, and `untilAll` for several.
func (w *wording) fate(list []int, gone int, until, untilAll string) string {
	its, until := oneOrAll(list, "Its", "Their"), oneOrAll(list, until, untilAll)
	if gone == len(w.S.State) && w.pool.Failover.Mode != table.Gutter {
		return "All keys " + w.loss + ", because no server of the pool is in use."
	}
	if w.pool.Failover.Mode == table.FailFast {
		return fmt.Sprintf("%s %s of the keys %s, unless they have another replica.", its, w.share(list), w.loss)
	}
	return fmt.Sprintf("%s %s of the keys are on %s %s.", its, w.share(list), w.standIns(gone), until)
}

// standIns names the servers that have the keys of unavailable servers. gone is the number of
// unavailable servers.
func (w *wording) standIns(gone int) string {
	switch {
	case w.pool.Failover.Mode == table.Gutter:
		return "pool " + w.pool.Failover.Gutter.Name
	case len(w.S.State) <= 3 && gone < len(w.S.State):
		return w.names(w.which(func(_ int, s string) bool { return !StateOf(s).Away }))
	}
	return "the next servers of the pool"
}

// failed returns how many requests to the pool's servers fail, per second.
func (w *wording) failed() (sum float64) {
	for _, v := range w.S.Fail {
		sum += v
	}
	return sum
}

// failRate returns the number of failed requests per second for which the pool counts as unhealthy.
func (w *wording) failRate() float64 {
	if w.pools > 1 && w.explained {
		return min(w.failed(), w.Outcomes.Fail) // at most the failed commands of clients, because a command can succeed although one of its requests to servers fails
	}
	return w.Outcomes.Fail
}

// ofSeveral makes a cause of failures fit several servers.
var ofSeveral = strings.NewReplacer("it was down, and is up", "they were down, and are up", "it is down", "they are down", "it replies", "they reply",
	"check its memory and its log", "check their memory and their logs", "check its item size limit", "check their item size limits",
	"check its load", "check their load", "check its log", "check their logs", "its queue is full", "their queues are full", "drained it", "drained them")

// failing names the server with more than half of the failures, and their cause. If there is no such
// server, it names the cause of more than half of the failures. It returns "" if there is neither.
func (w *wording) failing() string {
	if unsure := w.unsure(); len(unsure) > 0 {
		return fmt.Sprintf("With strict consistency, no key of %s is served: it is not certain which server has it. ", w.names(unsure))
	}
	for i, v := range w.S.Fail {
		if v <= w.failed()/2 {
			continue
		}
		cause := ""
		if i < len(w.S.Cause) && w.S.Cause[i] != "" {
			cause = ": " + w.S.Cause[i]
		}
		if len(w.S.Fail) > 1 {
			return "Most failures are at " + w.name(i) + cause + ". "
		}
		if cause != "" {
			return strings.ToUpper(cause[2:3]) + cause[3:] + ". "
		}
	}
	for _, cause := range w.S.Cause {
		sum, servers := 0.0, 0
		for i, v := range w.S.Fail {
			if cause != "" && v > 0 && i < len(w.S.Cause) && w.S.Cause[i] == cause {
				sum, servers = sum+v, servers+1
			}
		}
		if sum > w.failed()/2 {
			return fmt.Sprintf("Most failures have the same cause, on %d servers: %s. ", servers, ofSeveral.Replace(cause))
		}
	}
	return ""
}

// failures describes the rate of failed requests, for a rate that is too low to be a problem.
func (w *wording) failures() string {
	if w.Outcomes.Fail > 0 {
		return " " + Count(w.Outcomes.Fail) + " requests/s fail."
	}
	return " Nothing fails."
}

func (w *wording) flow() string {
	if w.Requests() == 0 {
		return "No requests now."
	}
	text := Count(w.Requests()) + " requests/s"
	if w.pools > 1 {
		text += " to all pools"
	}
	if hit, ok := w.HitShare(); ok {
		text += ", hit rate " + Percent(hit)
	}
	if p99 := w.Latency[2]; p99 != nil {
		text += ", p99 " + Micros(*p99)
	}
	return text + "."
}

// servers returns the text `one` for a pool with one server. For other pools it returns the text
// `all` with the number of servers inserted.
func (w *wording) servers(one, all string) string {
	if n := len(w.S.State); n > 1 {
		return fmt.Sprintf(all, n)
	}
	return one
}

// lossOf describes what happens to keys of the pool p that no server serves. It follows their subject.
// Each route of the table t to the pool can have its own get_errors.
func lossOf(t *table.Table, p *table.Pool) string {
	var misses, errors bool
	for _, l := range t.Listeners {
		for i := range l.Routes {
			r := &l.Routes[i]
			if replicasOf(r, p) == 0 {
				continue
			}
			fails := r.Pool.GetErrors
			if r.GetErrors != nil {
				fails = *r.GetErrors
			}
			misses, errors = misses || !fails, errors || fails
		}
	}
	switch {
	case misses && errors:
		return "miss (or their reads fail, with get_errors: error), and writes to them fail"
	case errors, !misses && p.GetErrors:
		return "are not served: reads and writes fail"
	}
	return "miss, and writes to them fail"
}

// hashShares returns each server's fraction of all hashes. If the distribution cannot compute the
// fractions, all servers get the same one.
func hashShares(p *table.Pool) []float64 {
	if s, ok := p.Place.Ring.(ring.Sharer); ok {
		return s.Shares()
	}
	list := make([]float64, len(p.Servers))
	for i := range list {
		list[i] = 1 / float64(len(list))
	}
	return list
}
