package live

// This file describes log records in words, for the dashboard and ringside top.

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"

	"ringside/proxy/event"
	"ringside/proxy/table"
)

// Description describes an event in words, for the dashboard and ringside top.
type Description struct {
	Tone  string `json:"tone"`            // severity of the event: Good, Warn or Bad, as in Health.Level
	Kind  string `json:"kind"`            // server state; its symbol is shown with the event
	Text  string `json:"text"`            // the event in words; empty: the event is not shown
	More  string `json:"more,omitempty"`  // cause of the event, or a detail; empty: none
	Mark  bool   `json:"mark,omitempty"`  // true if charts over time show when the event happened
	Minor bool   `json:"minor,omitempty"` // true for a frequent kind of event that is unimportant alone
	Only  string `json:"only,omitempty"`  // failover mode of the pools in which the event is shown; pools with another mode have other events for it; empty: all modes
}

// steps describes the changes of a server's state. The key is the old and the new state, in the
// form from>to.
var steps = map[string]Description{
	"up>suspect":  {Tone: Bad, Kind: "suspect", Text: "%s does not answer", Mark: true},
	"suspect>up":  {Tone: Good, Kind: Up, Text: "%s answers again"},
	"IN>LEAVING":  {Tone: Bad, Kind: "leaving", Text: "%s leaves the ring"},
	"LEAVING>OUT": {Tone: Bad, Kind: "out", Text: "%s is out: its keys live elsewhere now", Mark: true},
	"OUT>RETURN":  {Tone: Warn, Kind: "return", Text: "%s rejoins"},
	"RETURN>WARM": {Tone: Warn, Kind: "warm", Text: "%s is emptied and takes writes"},
	"WARM>SETTLE": {Tone: Warn, Kind: "settle", Text: "%s is read from again"},
	"SETTLE>IN":   {Tone: Good, Kind: Up, Text: "%s is in again", Mark: true},
}

// describe describes a log record in words. e is the kind of event that the record reports; a
// record of no such kind is described by its message. The parameter `is` has the attributes of the
// record, including msg and level.
func describe(e event.Event, is map[string]any) Description {
	word := func(key string) string {
		if v, ok := is[key]; ok {
			return Clean(fmt.Sprint(v))
		}
		return ""
	}
	server, why := word("server"), unnamed(word("why"))
	switch e {
	case event.ServerPhase:
		t := steps[word("from")+">"+word("to")]
		switch {
		case t.Text == "":
			return t // an operator's order, which has another event, or a change that is not listed in steps
		case t.Kind == "suspect" && strings.Contains(why, "refused"):
			t.Text = "%s refuses connections"
		}
		t.Text, t.More = fmt.Sprintf(t.Text, server), why
		return t
	case event.PoolState:
		t := Description{Tone: Bad, Kind: "suspect", Text: "Pool " + word("pool") + ": ", More: why}
		switch to := word("to"); to {
		case "closed", "kept":
			t.Tone, t.Kind, t.Text = Good, Up, t.Text+"its servers are ejected again"
		case "apart", "alike":
			if t.Text = why; to == "alike" {
				t.Tone, t.Kind = Good, Up
			}
			t.More = "pool " + word("pool")
		case "fail-open":
			t.Text += "no server is ejected now"
		case "other-servers", "other-settings":
			t.Text += "the guarantee of strict consistency is suspended"
		case "suspect-only":
			t.Text += "its servers are not ejected"
		case "gone":
			t.Text += "unreachable"
		case "back":
			t.Tone, t.Kind, t.Text = Good, Up, t.Text+"reachable again"
		default:
			t.Text += to
		}
		return t
	case event.EjectedElsewhere:
		return Description{Tone: Bad, Kind: "suspect", Text: "Another instance ejects " + server + " in its pool " + word("other"), More: why}
	case event.EjectedNowhere:
		return Description{Tone: Good, Kind: Up, Text: "No other instance ejects " + server + " in its pool " + word("other") + " any more"}
	case event.KeptElsewhere:
		return Description{Tone: Bad, Kind: "suspect", Text: "Another instance has " + server + " in its pool " + word("other") + " and does not eject it", More: why}
	case event.KeptNowhere:
		return Description{Tone: Good, Kind: Up, Text: "No other instance has " + server + " in its pool " + word("other") + " any more"}
	case event.Drained:
		return Description{Tone: Warn, Kind: Drained, Text: "Operator drained " + server}
	case event.TakenDown:
		return Description{Tone: Warn, Kind: Drained, Text: "Operator took " + server + " down"}
	case event.Restored:
		return Description{Tone: Good, Kind: Up, Text: "Operator restored " + server}
	case event.ConnectionLost:
		return Description{Tone: Bad, Kind: Down, Text: server + " hung up with " + plural(word("requests"), "request") + " in flight", More: why}
	case event.ResyncDone:
		return Description{Tone: Good, Kind: Up, Text: server + " has its replicas again", More: plural(word("keys"), "key")}
	case event.ResyncFailed:
		return Description{Tone: Warn, Kind: "warm", Text: server + " can't be filled now", More: why}
	case event.TagInvalidated:
		t := Description{Tone: Good, Kind: Up, Text: "Tag " + word("tag") + " is invalidated", Minor: true}
		if n := word("count"); n != "" {
			t.More = n + " invalidations since the last one that was logged"
		}
		return t
	case event.ServerDown:
		return Description{Tone: Bad, Kind: Down, Text: server + " is down", More: why, Mark: true, Only: table.FailFast.String()}
	case event.ServerUp:
		t := Description{Tone: Good, Kind: Up, Text: server + " answers again", Only: table.FailFast.String()}
		if out := word("out"); out != "" {
			t.More = "after " + out
		}
		return t
	case event.Hidden:
		return Description{}
	case event.Started:
		return Description{Tone: Good, Kind: Up, Text: "Ringside " + word("version") + " starts", More: word("file"), Mark: true}
	case event.SlowCommand:
		return describeSlow(word, server)
	case event.TraceStarted:
		return Description{Tone: Good, Kind: Up, Text: "Trace of " + word("keys") + " started", More: word("file"), Mark: true}
	case event.TraceStopped:
		return Description{Tone: Bad, Kind: Down, Text: "Trace of " + word("keys") + " stopped: repair its file, and reload", More: word("error")}
	case event.FaultInjected:
		t := Description{Tone: Warn, Kind: "warm", Text: "Fault injected: " + word("kind") + " at " + server, Mark: true}
		if long := word("for"); long != "0s" {
			t.More = "for " + long
		}
		return t
	case event.ConfigRejected:
		first, rest, _ := strings.Cut(word("error"), " ")
		return Description{Tone: Bad, Kind: Down, Text: "The new configuration was rejected; the old one stays", More: filepath.Base(first) + " " + rest, Mark: true}
	case event.ConfigAdopted:
		return Description{Tone: Good, Kind: Up, Text: "Configuration " + word("generation") + " is in force", More: filepath.Base(word("file")), Mark: true}
	}
	t := Description{Tone: Warn, Kind: "warm", Text: word("msg"), More: cmp.Or(why, word("error"))}
	if word("level") == "INFO" {
		t.Tone = Good
	}
	return t
}

func plural(n, of string) string {
	if n != "1" {
		of += "s"
	}
	return n + " " + of
}

// describeSlow describes a slow command. The function word returns an attribute of the log record.
func describeSlow(word func(string) string, server string) Description {
	what := word("key")
	if n := word("keys"); n != "1" && n != "" {
		what = n + " keys"
	}
	more := []string{server, "most of it: " + word("phase"), word("error")}
	if server == "" {
		more = more[1:]
	}
	return Description{Tone: Warn, Kind: "warm", Minor: true, Text: word("command") + " of " + what + " took " + word("ms") + " ms", More: strings.TrimSuffix(strings.Join(more, ", "), ", ")}
}
