package live

// This file describes log records in words, for the dashboard and ringside top.

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"

	"ringside/proxy/event"
	"ringside/proxy/stats"
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

// words are the attributes of a log record, as text that is safe for terminals.
type words map[string]string

// expand replaces each {name} in text by the attribute of that name, and each {name unit} by the
// attribute as a number of units. complete is false if the record lacks one of them.
func (w words) expand(text string) (expanded string, complete bool) {
	complete = true
	for {
		before, rest, more := strings.Cut(text, "{")
		if expanded += before; !more {
			return expanded, complete
		}
		name, after, _ := strings.Cut(rest, "}")
		name, unit, counted := strings.Cut(name, " ")
		value := w[name]
		if complete = complete && value != ""; counted {
			value = plural(value, unit)
		}
		expanded, text = expanded+value, after
	}
}

// The descriptions of events. {name} in a text stands for an attribute of the log record: see
// words.expand. A text for More is left out if one of its attributes is missing. described has the
// events whose description depends on nothing else, steps the changes of a server's state, by the old
// and the new state in the form from>to, and poolStates the changes of a pool's state, by the new
// state.
var (
	described = map[event.Event]Description{
		event.EjectedElsewhere: {Tone: Bad, Kind: "suspect", Text: "Another instance ejects {server} in its pool {other}", More: "{why}"},
		event.EjectedNowhere:   {Tone: Good, Kind: Up, Text: "No other instance ejects {server} in its pool {other} any more"},
		event.KeptElsewhere:    {Tone: Bad, Kind: "suspect", Text: "Another instance has {server} in its pool {other} and does not eject it", More: "{why}"},
		event.KeptNowhere:      {Tone: Good, Kind: Up, Text: "No other instance has {server} in its pool {other} any more"},
		event.Drained:          {Tone: Warn, Kind: Drained, Text: "Operator drained {server}"},
		event.TakenDown:        {Tone: Warn, Kind: Drained, Text: "Operator took {server} down"},
		event.Restored:         {Tone: Good, Kind: Up, Text: "Operator restored {server}"},
		event.ConnectionLost:   {Tone: Bad, Kind: Down, Text: "{server} closed a connection with {requests request} in flight", More: "{why}"},
		event.ResyncDone:       {Tone: Good, Kind: Up, Text: "{server} has its replicas again", More: "{keys key}"},
		event.ResyncFailed:     {Tone: Warn, Kind: "warm", Text: "{server} can't be filled now", More: "{why}"},
		event.KeysMoved:        {Tone: Good, Kind: Up, Text: "Pool {pool}: {keys key} moved to other servers", More: "in {seconds} s"},
		event.KeysLeft:         {Tone: Warn, Kind: "out", Text: "Pool {pool}: {keys key} moved to other servers, but not from servers that are out", More: "{old_servers_out}: values there are lost"},
		event.KeysLost:         {Tone: Warn, Kind: "out", Text: "Pool {pool}: {keys key} moved to other servers, and {lost} or more are lost", More: "because their old server was out, or their new one was out or has rejected them"},
		event.TagInvalidated:   {Tone: Good, Kind: Up, Text: "Tag {tag} is invalidated", More: "{count} invalidations since the last one that was logged", Minor: true},
		event.ServerDown:       {Tone: Bad, Kind: Down, Text: "{server} is down", More: "{why}", Mark: true, Only: table.FailFast.String()},
		event.ServerUp:         {Tone: Good, Kind: Up, Text: "{server} answers again", More: "after {out}", Only: table.FailFast.String()},
		event.Hidden:           {},
		event.Started:          {Tone: Good, Kind: Up, Text: "Ringside {version} starts", More: "{file}", Mark: true},
		event.SlowCommand:      {Tone: Warn, Kind: "warm", Minor: true, Text: "{command} of {what} took {ms} ms", More: "{slowest}"},
		event.TraceStarted:     {Tone: Good, Kind: Up, Text: "Trace of {keys} started", More: "{file}", Mark: true},
		event.TraceStopped:     {Tone: Bad, Kind: Down, Text: "Trace of {keys} stopped: repair its file, and reload", More: "{error}"},
		event.FaultInjected:    {Tone: Warn, Kind: "warm", Text: "Fault injected: {kind} at {server}", More: "for {for}", Mark: true},
		event.ConfigRejected:   {Tone: Bad, Kind: Down, Text: "The new configuration was rejected; the old one stays", More: "{mistake}", Mark: true},
		event.ConfigAdopted:    {Tone: Good, Kind: Up, Text: "Configuration {generation} is in force", More: "{name}", Mark: true},
	}
	steps = map[string]Description{
		"up>suspect":  {Tone: Bad, Kind: "suspect", Text: "{server} {problem}", More: "{why}", Mark: true},
		"suspect>up":  {Tone: Good, Kind: Up, Text: "{server} answers again", More: "{why}"},
		"IN>LEAVING":  {Tone: Bad, Kind: "leaving", Text: "{server} leaves the ring", More: "{why}"},
		"LEAVING>OUT": {Tone: Bad, Kind: "out", Text: "{server} is out: its keys are on other servers now", More: "{why}", Mark: true},
		"OUT>RETURN":  {Tone: Warn, Kind: "return", Text: "{server} rejoins", More: "{why}"},
		"RETURN>WARM": {Tone: Warn, Kind: "warm", Text: "{server} is flushed and gets writes", More: "{why}"},
		"WARM>SETTLE": {Tone: Warn, Kind: "settle", Text: "{server} is read from again", More: "{why}"},
		"SETTLE>IN":   {Tone: Good, Kind: Up, Text: "{server} is in again", More: "{why}", Mark: true},
	}
	firmSteps = map[string]Description{ // of a pool in mode fail_fast, in which they only occur while its servers change
		"IN>LEAVING":  {Tone: Bad, Kind: "leaving", Text: "{server} is taken out by all instances", More: "{why}"},
		"LEAVING>OUT": {Tone: Bad, Kind: "out", Text: "{server} is out: its keys fail until it is back", More: "{why}", Mark: true},
		"RETURN>WARM": {Tone: Warn, Kind: "warm", Text: "{server} is flushed", More: "{why}"},
		"WARM>SETTLE": {Tone: Warn, Kind: "settle", Text: "{server} is about to be in again", More: "{why}"},
		"closed":      {Tone: Good, Kind: Up, Text: "Pool {pool}: its servers can change again", More: "{why}"},
		"kept":        {Tone: Good, Kind: Up, Text: "Pool {pool}: its servers can change again", More: "{why}"},
	}
	newSteps = map[string]Description{ // of a server that the pool does not use yet
		"IN>LEAVING":  {Tone: Bad, Kind: "leaving", Text: "{server}, which is new, is taken out by all instances", More: "{why}"},
		"LEAVING>OUT": {Tone: Bad, Kind: "out", Text: "{server}, which is new and has no keys yet, is out", More: "{why}", Mark: true},
	}
	poolStates = map[string]Description{
		"closed":         {Tone: Good, Kind: Up, Text: "Pool {pool}: servers that fail are ejected again", More: "{why}"},
		"kept":           {Tone: Good, Kind: Up, Text: "Pool {pool}: servers that fail are ejected, as usual", More: "{why}"},
		"apart":          {Tone: Bad, Kind: "suspect", Text: "{why}", More: "pool {pool}"},
		"alike":          {Tone: Good, Kind: Up, Text: "{why}", More: "pool {pool}"},
		"fail-open":      {Tone: Bad, Kind: "suspect", Text: "Pool {pool}: no server is ejected now", More: "{why}"},
		"other-servers":  {Tone: Warn, Kind: "suspect", Text: "Pool {pool}: instances have different servers; strict consistency, if set, is suspended", More: "{why}"},
		"other-settings": {Tone: Bad, Kind: "suspect", Text: "Pool {pool}: instances have different settings; strict consistency, if set, is suspended", More: "{why}"},
		"suspect-only":   {Tone: Bad, Kind: "suspect", Text: "Pool {pool}: its servers are not ejected", More: "{why}"},
		"gone":           {Tone: Bad, Kind: "suspect", Text: "Pool {pool}: unreachable", More: "{why}"},
		"resizing":       {Tone: Warn, Kind: "warm", Text: "Pool {pool}: keys move to other servers", More: "{why}"},
		"resized":        {Tone: Good, Kind: Up, Text: "Pool {pool}: its keys are on the servers of the configuration", More: "{why}"},
		"outdated":       {Tone: Bad, Kind: "suspect", Text: "Pool {pool}: it serves no keys, because its server list is not that of its peers", More: "{why}"},
		"back":           {Tone: Good, Kind: Up, Text: "Pool {pool}: reachable again", More: "{why}"},
	}
	poolState = Description{Tone: Bad, Kind: "suspect", Text: "Pool {pool}: {to}", More: "{why}"} // a state that poolStates does not have
	info      = Description{Tone: Good, Kind: "warm", Text: "{msg}", More: "{cause}"}             // a log record without an event
	warning   = Description{Tone: Warn, Kind: "warm", Text: "{msg}", More: "{cause}"}             // the same, with a higher level
)

// describe describes a log record in words. e is the kind of event that the record reports; a
// record of no such kind is described by its message. The parameter `is` has the attributes of the
// record, including msg and level.
func describe(e event.Event, is map[string]any) Description {
	w := words{}
	for name, v := range is {
		w[name] = Clean(fmt.Sprint(v))
	}
	w.derive()
	d, ok := described[e]
	switch {
	case ok:
	case e == event.ServerPhase:
		d = steps[w["from"]+">"+w["to"]] // empty for an operator's order, which has another event
	case e == event.PoolState:
		if d, ok = poolStates[w["to"]]; !ok {
			d = poolState
		}
	case w["level"] == "INFO":
		d = info
	default:
		d = warning
	}
	if w["mode"] == table.FailFast.String() {
		for _, step := range []string{w["from"] + ">" + w["to"], w["to"]} {
			if firm, ok := firmSteps[step]; ok && (e == event.ServerPhase || e == event.PoolState) {
				d = firm
			}
		}
	}
	if step, ok := newSteps[w["from"]+">"+w["to"]]; ok && w["new"] == "true" && e == event.ServerPhase {
		d = step
	}
	d.Text, _ = w.expand(d.Text)
	if d.More, ok = w.expand(d.More); !ok {
		d.More = ""
	}
	return d
}

// derive adds to the attributes what descriptions need in another form.
func (w words) derive() {
	w["why"] = unnamed(w["why"])
	w["problem"] = problemOf(w["why"]).does
	w["cause"] = cmp.Or(w["why"], w["error"], w["what"])
	w["name"] = filepath.Base(w["file"])
	first, rest, _ := strings.Cut(w["error"], " ")
	w["mistake"] = filepath.Base(first) + " " + rest
	if w["what"] = w["key"]; w["keys"] != "1" && w["keys"] != "" {
		w["what"] = w["keys"] + " keys"
	}
	w["slowest"] = strings.Trim(strings.Join([]string{w["server"], phases[w["phase"]], w["error"]}, ", "), ", ")
	if w["for"] == "0s" {
		delete(w, "for")
	}
}

// phases has the words for the phase in which a slow command has waited longest: see stats.Slow.
var phases = map[string]string{
	stats.Login: "waited for the login", stats.Command: "waited for the rest of the command", stats.Client: "waited until the client read its replies",
	stats.Connect: "waited for a connection", stats.Send: "waited until the server read the request", stats.Queue: "waited for earlier requests to the server",
	stats.Answer: "waited for the reply", stats.Value: "waited for the rest of the reply", stats.Several: "needed several requests",
	stats.Phase: "waited until the server changed its phase", stats.Order: "waited for earlier commands on the key",
}

func plural(n, of string) string {
	if n != "1" {
		of += "s"
	}
	return n + " " + of
}
