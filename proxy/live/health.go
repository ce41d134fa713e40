package live

// Is it well, and if not, what is it and since when: in a sentence.

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"ringside/proxy/table"
	"ringside/ring"
)

// Health is a pool's state for people.
type Health struct {
	Level string `json:"level"` // good, warn, bad
	Title string `json:"title"` // the sentence
	Text  string `json:"text"`  // what follows from it
}

// The levels.
const (
	Good = "good"
	Warn = "warn"
	Bad  = "bad"
)

// away says that a server in this state does not serve its keys.
func away(state string) bool {
	switch state {
	case "out", Drained, Down, "suspect", "leaving":
		return true
	}
	return false
}

// comingBack says what a server does that was out; empty: nothing of the kind.
func comingBack(state string) string {
	switch state {
	case "return":
		return "It answers again and is being emptied, so that nothing old is served."
	case "warm":
		return "It is empty and takes writes; keys it does not have yet are asked of their stand-ins."
	case "settle":
		return "It serves its keys again; the stand-ins forget theirs."
	}
	return ""
}

// health describes the state of the servers of p, the worst first, and says what an operator
// can do. pools is how many pools there are. failing says that a server of some pool fails
// requests: then only its pools are not well, else all are if requests fail.
func (t *Tick) health(p *table.Pool, pools int, failing bool) Health {
	w := wording{Tick: t, pool: p, pools: pools, shares: Shares(p)}
	bad := w.which(func(i int, s string) bool { return away(s) && !w.S.byOperator(i) })
	drained := w.which(func(i int, _ string) bool { return w.S.byOperator(i) })
	back := w.which(func(_ int, s string) bool { return comingBack(s) != "" })
	n := len(t.S.State)
	var h Health
	switch {
	case n == 0:
		return Health{Bad, "The pool has no servers", "Nothing can be stored in it."}
	case len(bad) > 0:
		h = w.trouble(bad, len(bad)+len(drained))
		if len(drained) > 0 {
			h.Text += " " + w.names(drained) + oneOrAll(drained, " is ", " are ") + "drained, by a person." + w.alsoSuspect(drained)
		}
	case len(back) > 0:
		h = Health{Warn, w.name(back[0]) + " is coming back", comingBack(t.S.State[back[0]])}
	case len(drained) > 0:
		h = Health{Warn, w.names(drained) + oneOrAll(drained, " is ", " are ") + map[bool]string{true: "taken down", false: "drained"}[w.S.State[drained[0]] == Down],
			fmt.Sprintf("By a person, %s ago: ringside server restore brings %s back.%s %s %s", w.since(drained[0]), oneOrAll(drained, "it", "them"), w.alsoSuspect(drained), w.fate(drained, len(drained), "until then; it starts empty", "until then; they start empty"), w.flow())}
	case t.Outcomes.Fail >= 1 && (pools == 1 || !failing || w.failed() > 0):
		h = Health{Warn, Count(t.Outcomes.Fail) + " requests/s fail", w.servers("The server is", "All %d servers are") + " up. " + w.failing() + w.flow()}
	case t.Requests() == 0 && t.Clients == 0:
		h = Health{Good, w.servers("The server is ready", "%d servers are ready"), "No client is connected."}
	default:
		h = Health{Good, w.servers("The server serves", "All %d servers serve"), w.flow() + w.failures()}
	}
	return h
}

// warn adds a sentence to what was found, which is not all good then.
func (h *Health) warn(text string) {
	if h.Level == Good {
		h.Level = Warn
	}
	h.Text += " " + text
}

// wording is a tick with what is needed to speak of it.
type wording struct {
	*Tick
	pool   *table.Pool
	pools  int
	shares []float64
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

// names are at most three names, and how many more there are.
func (w *wording) names(list []int) string {
	var names []string
	for _, i := range list[:min(3, len(list))] {
		names = append(names, w.name(i))
	}
	if more := len(list) - 3; more > 0 {
		return strings.Join(names, ", ") + fmt.Sprintf(" and %d more", more)
	}
	if n := len(names); n > 1 {
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
	return names[0]
}

// oneOrAll is what is said of a single server, or of several.
func oneOrAll(list []int, one, all string) string {
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

// alsoSuspect speaks of the servers among the drained that have died meanwhile.
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

// unnamed is why without which server it is, where that is said already.
func unnamed(why string) string {
	if _, short, ok := strings.Cut(why, " is down: "); ok {
		return short
	}
	return why
}

// trouble speaks of servers that do not serve; gone counts the drained ones too.
func (w *wording) trouble(bad []int, gone int) Health {
	i, n := bad[0], len(w.S.State)
	state := w.S.State[i]
	h := Health{Level: Bad}
	switch {
	case len(bad) > 1:
		h.Title = w.names(bad) + " are not serving"
	case (state == "suspect" || state == Down) && strings.Contains(w.S.Why[i], "refused"):
		h.Title = w.name(i) + " refuses connections"
	case state == "suspect", state == Down:
		h.Title = w.name(i) + " does not answer"
	case state == "leaving":
		h.Title = w.name(i) + " is leaving"
	case n > 8:
		h.Title = fmt.Sprintf("%s is out, %d of %d servers serve", w.name(i), n-gone, n)
	default:
		h.Title = w.name(i) + " is out"
	}
	why := "No answer"
	if said := unnamed(w.S.Why[i]); said != "" {
		why = strings.ToUpper(said[:1]) + said[1:]
	}
	for _, j := range bad { // what has lasted longest
		if w.S.Since[j] < w.S.Since[i] {
			i = j
		}
	}
	moved := !slices.ContainsFunc(bad, func(i int) bool { return w.S.State[i] != "out" })
	stays, kept := strings.CutPrefix(w.S.Next[bad[0]], "stays: ")
	answer := oneOrAll(bad, "it answers", "they answer")
	switch {
	case moved:
		h.Text = fmt.Sprintf("%s, %s ago. %s", why, w.since(i), w.fate(bad, gone, "until it is back; then it starts empty", "until they are back; then they start empty"))
	case state == "leaving":
		h.Text = fmt.Sprintf("%s. All Ringsides agree on it first; then its %s of the keys move to %s.", why, w.share(bad), w.standIns(gone))
		return h
	case w.pool.Failover.Mode == table.FailFast:
		h.Text = fmt.Sprintf("%s, for %s. %s of the keys miss, and writes to them fail, until %s.", why, w.since(i), w.share(bad), answer)
	case kept:
		h.Text = fmt.Sprintf("%s, for %s. %s of the keys miss, and writes to them fail, until %s. Nobody takes over: %s.", why, w.since(i), w.share(bad), answer, stays)
	default:
		h.Text = fmt.Sprintf("%s, for %s. %s of the keys miss, and writes to them fail, until %s or others take over.", why, w.since(i), w.share(bad), answer)
	}
	out, keptOut := strings.CutPrefix(w.S.Next[bad[0]], "stays out: ")
	switch {
	case keptOut:
		h.Text += " It stays out: " + out + "."
	case strings.Contains(w.S.Why[bad[0]], "refused"):
		h.Text += " Start memcached there: all else goes by itself."
	default:
		h.Text += " See whether its machine runs and can be reached from here: all else goes by itself."
	}
	return h
}

// fate is what becomes of the keys of servers that are gone for longer, and what ends
// that: of one, of several.
func (w *wording) fate(list []int, gone int, until, untilAll string) string {
	its, until := oneOrAll(list, "Its", "Their"), oneOrAll(list, until, untilAll)
	if w.pool.Failover.Mode == table.FailFast {
		return fmt.Sprintf("%s %s of the keys miss, and writes to them fail.", its, w.share(list))
	}
	return fmt.Sprintf("%s %s of the keys live with %s %s.", its, w.share(list), w.standIns(gone), until)
}

// standIns are who has the keys of servers that are gone.
func (w *wording) standIns(gone int) string {
	switch {
	case w.pool.Failover.Mode == table.Gutter:
		return "pool " + w.pool.Failover.Gutter.Name
	case len(w.S.State) <= 3 && gone < len(w.S.State):
		return w.names(w.which(func(_ int, s string) bool { return !away(s) }))
	}
	return "the next servers of the pool"
}

// failed is how many requests a second the pool's servers fail.
func (w *wording) failed() (sum float64) {
	for _, v := range w.S.Fail {
		sum += v
	}
	return sum
}

// failing names the server that most failures are of, if there is one, and their cause.
func (w *wording) failing() string {
	for i, v := range w.S.Fail {
		if v <= w.failed()/2 {
			continue
		}
		cause := ""
		if i < len(w.S.Cause) && w.S.Cause[i] != "" {
			cause = ": " + w.S.Cause[i]
		}
		if len(w.S.Fail) > 1 {
			return "Most of them are " + w.name(i) + "'s" + cause + ". "
		}
		if cause != "" {
			return strings.ToUpper(cause[2:3]) + cause[3:] + ". "
		}
	}
	return ""
}

// failures says how many requests fail where that is no trouble yet.
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
		text += ", " + Percent(hit) + " of the keys asked for were there"
	}
	if p99 := w.Latency[2]; p99 != nil {
		text += ", p99 " + Micros(*p99)
	}
	return text + "."
}

// servers says one thing of the only server, or another of all, by their number.
func (w *wording) servers(one, all string) string {
	if n := len(w.S.State); n > 1 {
		return fmt.Sprintf(all, n)
	}
	return one
}

// Shares are the servers' parts of all hashes; equal ones where the rule does not
// know.
func Shares(p *table.Pool) []float64 {
	if s, ok := p.Place.Ring.(ring.Sharer); ok {
		return s.Shares()
	}
	list := make([]float64, len(p.Servers))
	for i := range list {
		list[i] = 1 / float64(len(list))
	}
	return list
}
