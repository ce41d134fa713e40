package serverlist

// This file decides which servers are in force after each answer of a source.

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"ringside/ring"
)

// Server is one server of an answer.
type Server struct {
	Name    string `json:"name"`             // identity of the server, which is hashed: host:port, or a name without a port
	Address string `json:"address"`          // host:port where the server is now
	Weight  int    `json:"weight"`           // its share of the keys, from 1
	Ending  bool   `json:"ending,omitempty"` // the server says that it will end soon
}

// MostServers is the largest number of servers that an answer may have, and that are in force.
const MostServers = 1000

// MaxWeight is the largest weight of a server.
const MaxWeight = 1_000_000

// Settings are what the configuration says about the answers of a source.
type Settings struct {
	Keep      time.Duration // how long a server that answers leave out stays in the list
	MaxChange float64       // an answer that changes more than this percentage of the servers is held; 100: none is
}

// State is what the last answer of a source means.
type State uint8

// The states.
const (
	Unasked State = iota // there was no answer yet
	Sound                // the last answer is in force
	Failing              // the last lookup has failed, or its answer is unusable
	Held                 // the last answer changes too much
)

func (s State) String() string { return [...]string{"unasked", "ok", "failing", "held"}[s] }

// List is the list of servers of one source. The zero List has no servers.
type List struct {
	State   State
	Problem string // why the last answer is not in force; empty: it is
	Early   int    // number of servers that were removed before the end of their time Keep, because there were more than MostServers; the caller may set it to 0

	servers []Server             // the servers in force, in natural order; empty: there was no usable answer yet
	gone    map[string]Departure // servers in force that the last usable answer has left out
	held    []Server             // the answer that is held; nil: none
}

// Departure says since when answers leave out a server.
type Departure struct {
	Since    time.Time `json:"since"`              // the zero Time: long ago
	Allowed  bool      `json:"allowed,omitempty"`  // the answer that left it out was not held, so it is removed in time
	Accepted bool      `json:"accepted,omitempty"` // the operator has accepted its removal, so it does not count for MaxChange
}

// Saved is what the next process must know of a List to continue it.
type Saved struct {
	Servers []Server             `json:"servers"`        // the servers in force
	Gone    map[string]Departure `json:"gone,omitempty"` // those that the last usable answer has left out
	Held    []Server             `json:"held,omitempty"` // the answer that is held
}

// Servers returns the servers in force. The caller must not change them. known is false if there was
// no usable answer yet.
func (l *List) Servers() (servers []Server, known bool) { return l.servers, len(l.servers) > 0 }

// Save returns what the next process must know of l.
func (l *List) Save() Saved { return Saved{l.servers, l.gone, l.held} }

// Restore makes l continue the list of another process. The source has not answered yet.
func (l *List) Restore(s Saved) { *l = List{servers: s.Servers, gone: s.Gone, held: s.Held} }

// Held returns how many servers the held answer would add and remove. Both are 0 if no answer is held.
func (l *List) Held() (added, removed int) {
	if l.held == nil {
		return 0, 0
	}
	added, removed, _ = l.differences(l.held)
	return added, removed
}

// Fail reports that the lookup at the time now has failed. The result warn is the text of a warning
// for the log; empty: the log has it already.
func (l *List) Fail(err error) (warn string) {
	l.held = nil
	return l.problem(Failing, err.Error())
}

// Revert replaces the servers in force by those of an earlier time, because those of the last answer cannot
// be used. With hold, the answer is held, so that the operator can accept it. The earlier servers may have
// other addresses and weights than in l, but no server that was never in l.
func (l *List) Revert(servers []Server, why error, hold bool) {
	is := byName(l.servers)
	gone := map[string]Departure{}
	for _, s := range servers {
		if d, left := l.gone[s.Name]; left {
			gone[s.Name] = d
		} else if _, listed := is[s.Name]; !listed { // its time Keep has ended
			gone[s.Name] = Departure{Allowed: true}
		}
	}
	answer := slices.DeleteFunc(slices.Clone(l.servers), func(s Server) bool { _, left := l.gone[s.Name]; return left })
	l.servers, l.gone = servers, gone
	if !hold {
		l.Fail(why)
		return
	}
	l.held = answer
	l.problem(Held, why.Error())
}

// problem records why an answer is not in force. It returns the problem the first time.
func (l *List) problem(s State, what string) (warn string) {
	what = what[:min(len(what), mostProblem)]
	if l.State != s {
		warn = what
	}
	l.State, l.Problem = s, what
	return warn
}

// Answer takes an answer of the source at the time now. changed means that a server was added or
// removed, or has another weight or address. The result warn is as in Fail.
func (l *List) Answer(now time.Time, answer []Server, o Settings) (changed bool, warn string) {
	answer, err := usable(answer)
	if err != nil {
		return false, l.Fail(err)
	}
	return l.take(now, answer, o, false)
}

// Accept puts the held answer in force, at the time now. It reports whether there was one. Servers that
// the answer leaves out stay for the time Keep, as always.
func (l *List) Accept(now time.Time, o Settings) (accepted bool) {
	if l.held == nil {
		return false
	}
	l.take(now, l.held, o, true)
	return true
}

// Next returns when the next lookup can change the list by itself, because the time Keep of a server
// ends. It returns the zero Time if there is no such server.
func (l *List) Next(o Settings) (next time.Time) {
	for _, d := range l.gone {
		if at := d.Since.Add(o.Keep); d.Allowed && !d.Since.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// usable returns the answer without repeated servers, in natural order, or an error.
func usable(answer []Server) ([]Server, error) {
	if len(answer) > MostServers {
		return nil, fmt.Errorf("it has %d servers; at most %d are used", len(answer), MostServers)
	}
	seen := map[string]Server{}
	for _, s := range answer {
		if !visible(s.Name) || !visible(s.Address) {
			return nil, fmt.Errorf("it has a server with an unusable name or address: %.60q, %.60q", s.Name, s.Address)
		}
		if s.Weight = max(s.Weight, 1); s.Weight > MaxWeight {
			return nil, fmt.Errorf("the server %s has the weight %d; at most %d is allowed", s.Name, s.Weight, MaxWeight)
		}
		if is, ok := seen[s.Name]; ok && is != s {
			return nil, fmt.Errorf("it has the server %s twice, at %s and at %s", s.Name, is.Address, s.Address)
		}
		seen[s.Name] = s
	}
	if len(seen) == 0 {
		return nil, fmt.Errorf("it has no servers")
	}
	return sorted(slices.Collect(maps.Values(seen))), nil
}

// mostText is the largest length in bytes of a name or address, and mostProblem that of a problem.
const (
	mostText    = 300
	mostProblem = 1000
)

// visible reports whether text can be the name or the address of a server: people can read it in logs and
// metrics.
func visible(text string) bool {
	return text != "" && len(text) <= mostText && utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return r == ' ' || !unicode.IsPrint(r) })
}

func sorted(list []Server) []Server {
	slices.SortFunc(list, func(a, b Server) int { return ring.CompareNatural(a.Name, b.Name) })
	return list
}

// differences compares an answer with the servers in force. A server that the operator has agreed to
// remove does not count, although it is in force.
func (l *List) differences(answer []Server) (added, removed, reweighted int) {
	now := byName(answer)
	for _, s := range l.servers {
		is, ok := now[s.Name]
		switch {
		case !ok && !l.gone[s.Name].Accepted:
			removed++
		case ok && is.Weight != s.Weight:
			reweighted++
		}
		delete(now, s.Name)
	}
	return len(now), removed, reweighted
}

func byName(list []Server) map[string]Server {
	m := map[string]Server{}
	for _, s := range list {
		m[s.Name] = s
	}
	return m
}

// take compares a usable answer with the servers in force, and changes them. With accept, the answer
// is not held.
func (l *List) take(now time.Time, answer []Server, o Settings, accept bool) (changed bool, warn string) {
	added, removed, reweighted := l.differences(answer)
	n := len(l.servers)
	most := max(1, int(float64(n)*o.MaxChange/100))
	hold := n > 0 && !accept && o.MaxChange < 100 && max(added, removed)+reweighted > most
	is, before := byName(answer), l.servers
	gone := map[string]Departure{}
	var next []Server
	for _, s := range before {
		a, ok := is[s.Name]
		delete(is, s.Name)
		if ok && hold {
			a.Weight = s.Weight
		}
		if ok {
			next = append(next, a)
			continue
		}
		d, known := l.gone[s.Name]
		if !known {
			d.Since = now
		}
		d.Allowed, d.Accepted = d.Allowed || !hold, d.Accepted || accept
		if d.Allowed && now.Sub(d.Since) >= o.Keep {
			continue
		}
		next, gone[s.Name] = append(next, s), d
	}
	if !hold {
		next = slices.AppendSeq(next, maps.Values(is))
	}
	if many := len(next) - MostServers; many > 0 {
		next = l.removeEarly(next, gone, many)
	}
	l.servers, l.gone = sorted(next), gone
	if changed = !slices.Equal(before, l.servers); hold {
		l.held = answer
		return changed, l.problem(Held, fmt.Sprintf("it would %s %d servers; max_change allows %d. ringside reload --accept accepts it", l.would(added, removed, reweighted), n, most))
	}
	l.State, l.Problem, l.held = Sound, "", nil
	return changed, ""
}

// removeEarly returns the list without n of the servers that answers leave out, and removes these from
// gone: those that were left out first.
func (l *List) removeEarly(list []Server, gone map[string]Departure, n int) []Server {
	names := slices.SortedFunc(maps.Keys(gone), func(a, b string) int {
		return cmp.Or(gone[a].Since.Compare(gone[b].Since), ring.CompareNatural(a, b))
	})
	names = names[:min(n, len(names))]
	for _, name := range names {
		delete(gone, name)
	}
	l.Early += len(names)
	return slices.DeleteFunc(list, func(s Server) bool { return slices.Contains(names, s.Name) })
}

// would describes a change in words, up to the number of servers in force.
func (l *List) would(added, removed, reweighted int) string {
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{added, "add"}, {removed, "remove"}, {reweighted, "change the weight of"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", p.what, p.n))
		}
	}
	return strings.Join(parts, " and ") + " of"
}
