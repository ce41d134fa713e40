package top

// What has come so far.

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"ringside/proxy/live"
	"ringside/proxy/live/routes"
	"ringside/proxy/live/trace"
)

// past is how many rates are kept of each server, for the line of the past.
const past = 32

// View is what a stream has told, and how a person wants to see it.
type View struct {
	Topo    *live.Topo
	Tick    *live.Tick
	Memory  *live.Memory
	Slabs   *live.Slabs
	Hot     *live.Hot
	Misses  *live.Misses
	Routes  *routes.Routes
	Roll    *live.Roll
	Late    *live.Health // why there are no ticks
	Trouble string       // why there is no stream

	Patterns []string       // of keys that are followed, or to be
	Traced   *trace.Stories // what happens to these; nil: nobody follows keys
	Untraced string         // why not
	Control  bool           // orders may be given

	rates  map[string][]float64 // by server; "" is the whole proxy
	events []event              // the newest first

	Choice
	Message string // instead of the keys
	Typing  bool   // the filter is being typed
	Asking  bool   // the patterns are, into Asked
	Asked   string
}

// Choice is what a person has chosen to see, which outlasts a stream.
type Choice struct {
	Sort     byte // r h p q m e n
	Reversed bool
	Filter   string
	Selected string // a server's name
	Help     bool
	Part     byte // '1' to '6': it has all the room; 0: something of each part
	Opened   bool // the selected server has it
	Pace     int  // of paces
}

type event struct {
	t time.Time
	live.Told
	crowd int // of its kind before it, in a row
}

// Take adds an event of the stream.
func (v *View) Take(topic string, data []byte) error {
	switch topic {
	case "hello":
		var h struct{ Control bool }
		err := json.Unmarshal(data, &h)
		*v = View{Choice: v.Choice, Control: h.Control, rates: map[string][]float64{},
			Patterns: v.Patterns, Traced: v.Traced, Untraced: v.Untraced, Asking: v.Asking, Asked: v.Asked}
		return err
	case "topo":
		if v.Topo != nil {
			v.Tick, v.Memory, v.Slabs, v.Hot, v.Misses, v.Routes, v.Roll = nil, nil, nil, nil, nil, nil, nil
		}
		return anew(data, &v.Topo)
	case "history":
		var h struct{ List [][2]json.RawMessage }
		if err := json.Unmarshal(data, &h); err != nil {
			return err
		}
		for _, one := range h.List {
			if err := v.Take(strings.Trim(string(one[0]), `"`), one[1]); err != nil {
				return err
			}
		}
	case "tick":
		t := &live.Tick{}
		if err := json.Unmarshal(data, t); err != nil {
			return err
		}
		if v.Topo == nil || len(t.S.State) != len(v.Topo.Servers) {
			return nil // of a table that is no more
		}
		v.Tick, v.Late = t, nil
		v.note("", t.Requests())
		for i, s := range v.Topo.Servers {
			v.note(s.Name, t.S.Rate[i])
		}
	case "late":
		return json.Unmarshal(data, &v.Late)
	case "mem":
		return anew(data, &v.Memory)
	case "slabs":
		return anew(data, &v.Slabs)
	case "hot":
		return anew(data, &v.Hot)
	case "why":
		return anew(data, &v.Misses)
	case "routes":
		return anew(data, &v.Routes)
	case "roll":
		return anew(data, &v.Roll)
	case "trace":
		is := &trace.Traced{}
		if err := json.Unmarshal(data, is); err != nil || v.Traced == nil {
			return err
		}
		v.Untraced = ""
		v.Traced.Add(is)
	case "event":
		return v.takeEvent(data)
	}
	return nil
}

// anew reads data into to, in which nothing stays of before.
func anew[T any](data []byte, to *T) error {
	*to = *new(T)
	return json.Unmarshal(data, to)
}

func (v *View) note(server string, rate float64) {
	list := append(v.rates[server], rate)
	v.rates[server] = slices.Delete(list, 0, max(0, len(list)-past))
}

const mostEvents = 100

func (v *View) takeEvent(data []byte) error {
	var e struct {
		T    int64
		Told live.Told
	}
	if err := json.Unmarshal(data, &e); err != nil {
		return err
	}
	if e.Told.Text == "" || e.Told.Only != "" && (v.Topo == nil || e.Told.Only != v.Topo.Failover) {
		return nil
	}
	one := event{t: time.UnixMilli(e.T).UTC(), Told: e.Told}
	if e.Told.Minor && len(v.events) > 0 && v.events[0].Minor && v.events[0].Kind == e.Told.Kind { // they come in crowds: those in a row are one line
		one.crowd = v.events[0].crowd + 1
		v.events[0] = one
		return nil
	}
	v.events = slices.Insert(v.events, 0, one)
	v.events = v.events[:min(len(v.events), mostEvents)]
	return nil
}

// Now is the view as one object; nil before the first tick.
func (v *View) Now() *live.Now {
	if v.Tick == nil || v.Topo == nil {
		return nil
	}
	now := live.NowOf(v.Tick, v.Topo, v.Memory, v.Slabs, v.Hot, v.Misses)
	now.Routes, now.Roll = v.Routes, v.Roll
	return now
}
