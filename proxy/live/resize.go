package live

// This file describes changes of the servers of pools (package health/resize).

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"ringside/proxy/health"
	"ringside/proxy/health/resize"
	"ringside/proxy/stats"
	"ringside/proxy/table"
)

// Resize describes a change of the servers of a pool that has not ended.
type Resize struct {
	Pool     string   `json:"pool"`
	Back     bool     `json:"back"`  // true if the change is reversed: keys move back to the servers of this configuration
	Level    string   `json:"level"` // Good while the change goes on, Warn while it must wait, Bad if this instance serves no keys meanwhile
	Step     string   `json:"step"`  // stage of the change, in one word
	Text     string   `json:"text"`  // the progress in one or more sentences, with what changes
	Seconds  int64    `json:"seconds"`
	Joins    []string `json:"joins"`  // names of the servers that only the new list has
	Leaves   []string `json:"leaves"` // names of the servers that only the present list has
	By       string   `json:"by"`     // name of the instance that lists the servers; empty: none, or not known
	Ours     bool     `json:"ours"`   // true if this instance does it
	Server   string   `json:"server"` // the server that is being listed or emptied; empty: none
	At       int      `json:"at"`     // number of the server in the order of the work, from 1
	Of       int      `json:"of"`     // number of servers that must be listed
	Done     uint64   `json:"done"`   // keys that were moved or removed so far
	Rejected uint64   `json:"rejected"`
	Listing  int64    `json:"listing"`      // how long the listing of Server has taken so far, in seconds; 0: there is none
	Rate     float64  `json:"rate"`         // keys per second
	Left     *uint64  `json:"left"`         // keys of the last listing of the server that are still there; null: the listing has not ended
	Learned  bool     `json:"learned"`      // true if this instance was started with other servers than its peers, and has learned theirs from the servers
	Why      string   `json:"why"`          // why the change can't go on; empty: it goes on
	Remedy   string   `json:"remedy"`       // what an operator can do about Why; empty: nothing
	LeftFor  *int64   `json:"left_seconds"` // how long these keys still take at the present rate, in seconds; null: that can't be estimated
}

// The steps of a change.
const (
	waiting   = "waiting"   // not all instances have the new list
	preparing = "preparing" // servers that gain keys are emptied of old values
	announced = "announced" // all instances must know that keys are about to move
	pausing   = "pausing"   // writes of keys that move wait
	moving    = "moving"    // keys move
	checking  = "checking"  // the old servers are listed again
	ending    = "ending"    // keys have moved
	switching = "switching" // keys that move are not served
	unknown   = "unknown"   // this instance does not know the list in force
	differing = "differing" // the same, but it serves by its own list
)

// ResizeOf returns the change of the servers of a pool. It returns nil if none is due.
func ResizeOf(sum *stats.Snapshot, p *table.Pool) *Resize {
	s := sum.Resizes[p.Name]
	if s == nil || !s.Due() {
		return nil
	}
	w := &s.Work
	is := &Resize{Pool: p.Name, Level: Good, Seconds: int64(s.Since / time.Second), Joins: []string{}, Leaves: []string{}, By: Clean(w.By[:min(len(w.By), mostBy)]), Ours: s.Ours, Done: w.Done, Rejected: w.Rejected, Listing: w.Listing, Rate: round(w.Rate)}
	old, next := p.List(), destination(p, s)
	if is.Back = s.Reversed() && next != nil; is.Back {
		old, next = next, old
	}
	if next != nil {
		is.Joins, is.Leaves = missing(next.Servers, old.Servers), missing(old.Servers, next.Servers)
		if named := func(t table.Target) bool { return t.Name == w.Server }; slices.ContainsFunc(old.Servers, named) || slices.ContainsFunc(next.Servers, named) {
			is.Server, is.At, is.Of = w.Server, w.At, w.Of
		}
	}
	if is.Server != "" && w.Listed {
		is.Left = &w.Left
		if w.Rate > 0 {
			is.LeftFor = new(int64(float64(w.Left)/w.Rate + .5))
		}
	}
	switch {
	case s.UsesOwn():
		is.Step, is.Level = differing, Warn
		is.Why, is.Remedy = "the server list of this instance is not that of its peers", "Reload this instance with the file of its peers, or restart them with its file"
	case s.Serves() == resize.Nothing:
		is.Step, is.Level = unknown, Bad
		is.Why, is.Remedy = "The server list of this instance is not that of its peers", "Give all instances the same configuration, and reload them"
		if s.Stage() != resize.Stable && (s.Next == s.Wish || s.List == s.Wish) {
			is.Why, is.Remedy = "The peers of this instance are changing their servers, and it does not know both server lists", "Wait until the change has ended"
		}
	case s.Announced:
		is.Step = announced
	case s.Stage() == resize.Stable && s.Later == 0 && (w.Of > 0 || s.Ours):
		is.Step = preparing
	case s.Stage() == resize.Stable:
		is.Step = waiting
	default:
		is.Step = [...]string{resize.Pause: pausing, resize.Move: moving, resize.Settle: checking, resize.Cool: ending, resize.Clear: switching}[s.Stage()]
	}
	is.Text = is.sentences(s) + is.follows(p, s)
	if is.Learned = p.Learned || p.Next != nil && p.Next.Learned; is.Learned && is.Step == waiting { // later, all instances have its list
		is.Text += " This instance was started with other servers than its peers. It has read their list from the servers, and serves by it."
	}
	if gone := ownersOut(sum, p.Name, old); len(gone) > 0 && (is.Step == moving || is.Step == checking || is.Step == ending) {
		is.Text += " " + enumerate(gone) + oneOrAll(gone, " is", " are") + " out: keys that did not move from there before are lost."
	}
	if is.Level == Good && s.Waiting() != "" {
		is.Level = Warn
		is.Why, is.Remedy = waitsFor(sum, p, s)
		is.Text += " It must wait: " + is.Why + "."
		if is.Remedy != "" {
			is.Text += " " + is.Remedy + "."
		}
	}
	return is
}

// destination returns the list to which the change s leads; nil: none. Before keys move, that is the list of the configuration,
// although this instance can take part in a change to the list Next until all others know the wish.
func destination(p *table.Pool, s *stats.ResizeSnapshot) *table.List {
	if s.Stage() == resize.Stable && p.Later != nil {
		return p.Later
	}
	return p.Next
}

// ownersOut returns the names of the servers of a list of a pool that are out, or must be flushed.
func ownersOut(sum *stats.Snapshot, pool string, list *table.List) (names []string) {
	for _, t := range list.Servers {
		if m := sum.Phase(pool, t); m != nil && (m.Phase == health.Out || m.Phase == health.Returning) {
			names = append(names, t.Name)
		}
	}
	return names
}

// waitRemedies are the remedies for causes for which a change waits: the first one with a text that the cause
// contains.
var waitRemedies = []Word{
	{"lru crawler disabled", "Send it the command lru_crawler enable, or start memcached there without no_lru_crawler"},
	{"flush_all not allowed", "Start memcached there without -F"},
	{"can't list its keys", "Start memcached 1.6.13 or later there"},
	{"flush_all", "Check that memcached runs there"},
	{"know meta commands", "Start memcached 1.6.13 or later there"},
	{"belongs to another pool", "Give each pool its own servers"},
	{"to which keys move, is out", "Start memcached there"},
	{"has no view record", "Check that a memcached of this pool runs there, or remove it from all files"},
	{"has not ended", "Check its load, and what listens at its address"},
	{"lists keys again", "Find what writes to it without Ringside"},
	{"no server in use answers", "Check the network. If the servers are dead, give all instances the same file, and use ringside reload --servers-dead on each"},
	{"may be cut off", "Check the network and the servers. If servers are gone for good, remove them from all files"},
	{"another configuration", "Give all instances the same file, and reload them"},
	{"another server list", "Give all instances the same file, and reload them"},
}

// waitsFor returns why the change s of the pool p can't go on, and what an operator can do.
func waitsFor(sum *stats.Snapshot, p *table.Pool, s *stats.ResizeSnapshot) (why, remedy string) {
	why = Clean(s.Waiting())
	m := sum.Phase(p.Name, s.For)
	target, name := &s.For, "server "+Clean(s.For.Name)
	if m != nil {
		target = &m.Target
	}
	otherwise := ". If it is gone for good, remove it from the file, too"
	if next := destination(p, s); next != nil && slices.Contains(missing(next.Servers, p.Servers), s.For.Name) && len(missing([]table.Target{s.For}, p.Servers)) > 0 {
		name, otherwise = "the new "+name, ", or take the change back"
	}
	if _, reason, down := strings.Cut(s.Waiting(), " is down: "); down && (m == nil || m.Override == health.Restore) && s.For.Name != "" {
		return name + " " + problemOf(reason).does, remedyFor(reason, target) + otherwise
	}
	switch i := slices.IndexFunc(waitRemedies, func(w Word) bool { return strings.Contains(why, w.Name) }); {
	case i >= 0:
		return why, waitRemedies[i].Means
	case (s.For.Name == "" || m == nil || s.Stage() != resize.Stable) && strings.HasSuffix(why, " is OUT") && (m == nil || m.Override == health.Restore):
		return strings.TrimSuffix(why, "OUT") + "out", "Start memcached there" + otherwise
	case s.For.Name == "" || m == nil || s.Stage() != resize.Stable:
		return why, ""
	}
	switch {
	case m.Override != health.Restore:
		return name + " is " + describeOverride(m.Override.String()), "ringside server restore ends that"
	case m.Suspect:
		return name + " " + problemOf(m.Why).does, remedyFor(m.Why, &m.Target) + otherwise
	case m.Phase == health.Out && m.Why != "":
		return name + " is out: " + Clean(unnamed(m.Why)), "It returns when it answers to most instances" + otherwise
	case m.Phase == health.Out || m.Phase == health.Leaving:
		return name + " is " + strings.ToLower(m.Phase.String()), ""
	}
	return name + " is rejoining", ""
}

const mostBy = 100 // maximum length of the name of another instance, in bytes

// missing returns the names of the servers in list that the other list lacks. If that has another server with the name, the name is
// followed by the address.
func missing(list, other []table.Target) []string {
	names := []string{}
	for _, t := range list {
		switch {
		case slices.ContainsFunc(other, t.SameAddress):
		case slices.ContainsFunc(other, func(o table.Target) bool { return o.Name == t.Name }):
			names = append(names, t.Name+" ("+t.Address+")")
		default:
			names = append(names, t.Name)
		}
	}
	return names
}

// sentences describes the change s.
func (is *Resize) sentences(s *stats.ResizeSnapshot) string {
	move, moved := "Keys move to other servers"+is.changes(), "Keys have moved to other servers"+is.changes()
	if is.Back {
		move, moved = "Keys move back"+is.changes(), "Keys have moved back"+is.changes()
	}
	switch is.Step {
	case unknown:
		return "This instance serves no keys of the pool: reads miss (or fail, with get_errors: error), and writes fail. " + is.Why + ". " + is.Remedy + "."
	case differing:
		return "This instance uses other servers than its peers, so reads can be old. " + is.Remedy + "."
	case waiting:
		return fmt.Sprintf("The servers change%s when all instances have the new configuration, so far for %s.", is.changes(), Ago(time.Duration(is.Seconds)*time.Second))
	case preparing:
		if !s.Warm {
			return fmt.Sprintf("The servers change%s. The servers that gain keys are flushed first.", is.changes())
		}
		return fmt.Sprintf("The servers change%s. The servers that gain keys are listed first, and keys that will move there are removed.%s", is.changes(), is.work("removed"))
	case announced:
		return "Keys are about to move" + is.changes() + ", when all instances know it."
	case pausing:
		what := "Keys are about to move"
		if is.Back {
			what = "Keys are about to move back"
		}
		return what + is.changes() + ". Writes of these keys wait until all instances know it."
	case moving:
		return move + "." + is.work("moved")
	case checking:
		return moved + ". The old servers are listed once more." + is.work("removed")
	case ending:
		return moved + ". The change ends within seconds."
	}
	return move + ". For a moment, they miss, and their writes wait."
}

// follows describes the change that follows the change s, because the configuration requires another list by now; empty: none does.
func (is *Resize) follows(p *table.Pool, s *stats.ResizeSnapshot) string {
	switch {
	case s.Stage() == resize.Stable || s.Serves() == resize.Nothing || s.Required() == s.Next:
		return ""
	case s.Announced && s.Required() == s.List:
		return " This configuration reverses that: nothing moves if all instances have it."
	case s.Required() == s.List && (s.Stage() == resize.Cool || s.Stage() == resize.Clear):
		return " This configuration reverses that: when the change has ended, the keys move back in a further change."
	case s.Required() == s.List:
		return " This configuration reverses that: the keys move back when all instances have it."
	}
	to := p.Next
	if is.Back {
		to = p.List()
	}
	further := Resize{Joins: missing(p.Required().Servers, to.Servers), Leaves: missing(to.Servers, p.Required().Servers)}
	if s.Announced {
		return " This configuration has other servers" + further.changes() + ": if all instances have it, nothing moves before the change to these."
	}
	if s.Retreats {
		return " This configuration has other servers" + further.changes() + ": when all instances have it, the keys move back first, because a new server is out, and a further change follows."
	}
	return " This configuration has other servers" + further.changes() + ": a further change follows when this one has ended, and all instances have it."
}

// changes returns the names of the servers that join and leave, in parentheses.
func (is *Resize) changes() string {
	var list []string
	if len(is.Joins) > 0 {
		list = append(list, "new: "+enumerate(is.Joins))
	}
	if len(is.Leaves) > 0 {
		list = append(list, "removed: "+enumerate(is.Leaves))
	}
	if len(list) == 0 {
		return ""
	}
	return " (" + strings.Join(list, "; ") + ")"
}

// work describes the progress of the work on the servers. did is what happens to the keys.
func (is *Resize) work(did string) string {
	text := ""
	if is.Server != "" {
		text = fmt.Sprintf(" %s keys %s so far", Count(float64(is.Done)), did)
		if is.Rate > 0 {
			text += fmt.Sprintf(", %s/s", Count(is.Rate))
		}
		switch {
		case is.Left == nil:
			text += fmt.Sprintf("; %s is being listed", is.Server)
			if is.Listing >= 10 {
				text += ", so far for " + Ago(time.Duration(min(is.Listing, 1<<32))*time.Second)
			}
		case is.LeftFor != nil && *is.LeftFor > 0:
			text += fmt.Sprintf("; %s left on %s, about %s", Count(float64(*is.Left)), is.Server, Ago(time.Duration(*is.LeftFor)*time.Second))
		default:
			text += fmt.Sprintf("; %s left on %s", Count(float64(*is.Left)), is.Server)
		}
		text += fmt.Sprintf(" (%d of %d servers).", is.At, is.Of)
	}
	if is.Rejected > 0 {
		text += fmt.Sprintf(" %s are lost: their new server has rejected them, or was out for a minute, or their old server is out.", Count(float64(is.Rejected)))
	}
	switch {
	case is.Ours:
		text += " This instance does it."
	case is.By != "":
		text += " Instance " + is.By + " does it."
	}
	return text
}

// Sentence returns the change in one line.
func (r *Resize) Sentence() string { return Signs[r.Level] + " Pool " + r.Pool + ": " + r.Text }

// addNew adds to h that new servers do not serve. It is called while keys of the pool p move to the servers of
// its next list: new servers are then owners of keys. all is the tick between two samples.
func (h *Health) addNew(all *Tick, before, after *Sample, p *table.Pool, pools int) {
	if p.Next == nil {
		return
	}
	next := &table.Pool{Name: p.Name, Failover: p.Failover, Servers: p.Next.Servers, Place: p.Next.Place}
	joins, away := missing(p.Next.Servers, p.Servers), []string(nil)
	t := *all
	for _, target := range next.Servers {
		s := stateIn(after.Sum, p.Name, target, after.At, after.At)
		if m := after.Sum.Phase(p.Name, target); m != nil {
			s.keeperSays(m, after.At)
		}
		t.S.add(&s, before, after, target)
		if StateOf(s.State).Away && slices.Contains(joins, target.Name) {
			away = append(away, target.Name)
		}
	}
	switch {
	case len(away) == 0:
	case h.Level == Bad:
		h.Text += " " + enumerate(away) + oneOrAll(away, ", which is new and has keys already, does not serve either.", ", which are new and have keys already, do not serve either.")
	default:
		*h = t.health(next, lossOf(after.Table, p), pools, true)
		h.Text += " " + enumerate(away) + oneOrAll(away, " is new and has keys already: the servers change.", " are new and have keys already: the servers change.")
	}
}

// show adds the change to the health of its pool, if it is a problem. The text of the change, which all views show below it, has the remedy.
func (is *Resize) show(h *Health) {
	switch is.Level {
	case Bad:
		*h = Health{Bad, "This instance does not serve the pool", is.Why + ": reads miss (or fail, with get_errors: error), and writes fail."}
	case Warn:
		switch {
		case is.Step == differing:
			h.warn("This instance uses other servers than its peers, so reads can be old.")
		case h.Level == Good:
			*h = Health{Warn, "The change of servers must wait", strings.ToUpper(is.Why[:1]) + is.Why[1:] + ". " + h.Title + ". " + h.Text}
		default:
			h.warn("The change of servers must wait: " + is.Why + ".")
		}
	}
}
