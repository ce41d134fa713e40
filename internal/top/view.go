package top

// This file has the state of the instance as received from its stream.

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"ringside/proxy/live"
)

// Each rate that is kept for the charts is the average of rateSpan, so that a steady rate looks
// steady. pastRates is the number of rates that are kept for each server.
const (
	rateSpan  = 5 * time.Second
	pastRates = 32
)

// rates are the recent request rates of one server or of all clients, oldest first.
type rates struct {
	list  []float64
	at    int64   // time of the last rate, in units of rateSpan since 1970
	count float64 // number of ticks in the last rate
}

// note adds the rate of one tick at the time t, in milliseconds since 1970.
func (r *rates) note(t int64, rate float64) {
	at := t / rateSpan.Milliseconds()
	if at != r.at || len(r.list) == 0 {
		r.list, r.at, r.count = append(r.list, rate), at, 1
		r.list = slices.Delete(r.list, 0, max(0, len(r.list)-pastRates))
		return
	}
	r.count++
	last := &r.list[len(r.list)-1]
	*last += (rate - *last) / r.count
}

// View is the state that the stream has sent so far, together with the choices of the user.
type View struct {
	Topo    *live.Topo
	Tick    *live.Tick
	Memory  *live.Memory
	Slabs   *live.Slabs
	Hot     *live.Hot
	Misses  *live.Misses
	Routes  *live.Routes
	Roll    *live.Roll
	Late    *live.Health // why the instance has no state to send; nil: it sends states
	Trouble string       // why there is no connection to the stream; empty: there is one

	Patterns []string      // patterns of the keys that are traced
	Traced   *live.Stories // events of the traced keys; nil: no keys are traced
	Untraced string        // why keys cannot be traced; empty: they can
	Control  bool          // true if the user may drain and restore servers

	rates  map[string]*rates // recent request rates by name of the server; the name "" means the requests of all clients
	events []event           // recent events of servers and keys, the newest first

	Choice
	Message string // text that is shown in place of the help for the keys; empty: none
	Typing  bool   // true while the user is typing a text for Filter
	Asking  bool   // the user is typing patterns of keys to trace (Asked)
	Asked   string
}

// Choice is what the user has chosen to see. It is kept when the stream ends and is opened again.
type Choice struct {
	Sort     byte // the key that the user pressed to sort the servers: r, h, p, q, m, e or n; 0: servers in trouble are first
	Reversed bool
	Filter   string
	Selected string // name of the selected server; empty: none
	Help     bool
	Part     byte // section that fills the screen, '1' to '6'; 0: all sections are shown
	Opened   bool // true if the selected server fills the screen
	Pace     int  // index of the chosen interval between screens (paces)
}

type event struct {
	t time.Time
	live.Description
	crowd int // number of earlier events of the same kind that this line also represents
}

// Take updates the view with one event of the stream.
func (v *View) Take(topic string, data []byte) error {
	switch topic {
	case "hello":
		var h struct{ Control bool }
		err := json.Unmarshal(data, &h)
		*v = View{Choice: v.Choice, Control: h.Control, rates: map[string]*rates{},
			Patterns: v.Patterns, Traced: v.Traced, Untraced: v.Untraced, Asking: v.Asking, Asked: v.Asked}
		return err
	case "topo":
		if v.Topo != nil {
			v.Tick, v.Memory, v.Slabs, v.Hot, v.Misses, v.Routes, v.Roll = nil, nil, nil, nil, nil, nil, nil
		}
		return into(&v.Topo)(data)
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
	case "past":
		is := &live.Past{}
		if err := json.Unmarshal(data, is); err != nil {
			return err
		}
		v.note(is.Moment.T, is.Moment.Rate, is.Rates)
	case "tick":
		t := &live.Tick{}
		if err := json.Unmarshal(data, t); err != nil {
			return err
		}
		if v.Topo == nil || len(t.S.State) != len(v.Topo.Servers) {
			return nil // the event has another number of servers than the last list of servers, so it cannot be shown
		}
		v.Tick, v.Late = t, nil
		v.note(t.T, t.Rate, t.S.Rate)
	case "trace":
		is := &live.Traced{}
		if err := json.Unmarshal(data, is); err != nil || v.Traced == nil {
			return err
		}
		v.Untraced = ""
		v.Traced.Add(is)
	case "event":
		return v.takeEvent(data)
	default:
		if decode := v.latest()[topic]; decode != nil {
			return decode(data)
		}
	}
	return nil
}

// latest returns, for each topic of which only the last event counts, a function that stores it.
func (v *View) latest() map[string]func(data []byte) error {
	return map[string]func(data []byte) error{
		"mem": into(&v.Memory), "slabs": into(&v.Slabs), "hot": into(&v.Hot), "why": into(&v.Misses), "routes": into(&v.Routes), "roll": into(&v.Roll), "late": into(&v.Late),
	}
}

// into returns a function that decodes data into a new value and stores it in *to. So no field keeps
// an old value.
func into[T any](to *T) func(data []byte) error {
	return func(data []byte) error {
		*to = *new(T)
		return json.Unmarshal(data, to)
	}
}

// note adds the rates at the time t, in milliseconds since 1970: the rate of all clients, and those
// of the servers of the pool. servers is nil if these are not known.
func (v *View) note(t int64, all float64, servers []float64) {
	add := func(name string, rate float64) {
		if v.rates[name] == nil {
			v.rates[name] = &rates{}
		}
		v.rates[name].note(t, rate)
	}
	add("", all)
	if v.Topo == nil || len(servers) != len(v.Topo.Servers) {
		return
	}
	for i, s := range v.Topo.Servers {
		add(s.Name, servers[i])
	}
}

// recent returns the recent request rates of a server. It returns those of all clients if the name
// is empty.
func (v *View) recent(server string) []float64 {
	if r := v.rates[server]; r != nil {
		return r.list
	}
	return nil
}

const mostEvents = 100

func (v *View) takeEvent(data []byte) error {
	var e struct {
		T    int64
		Told live.Description
	}
	if err := json.Unmarshal(data, &e); err != nil {
		return err
	}
	if e.Told.Text == "" || e.Told.Only != "" && (v.Topo == nil || e.Told.Only != v.Topo.Failover) {
		return nil
	}
	one := event{t: time.UnixMilli(e.T).UTC(), Description: e.Told}
	if e.Told.Minor && len(v.events) > 0 && v.events[0].Minor && v.events[0].Kind == e.Told.Kind { // minor events are frequent, so consecutive ones of the same kind share one line
		one.crowd = v.events[0].crowd + 1
		v.events[0] = one
		return nil
	}
	v.events = slices.Insert(v.events, 0, one)
	v.events = v.events[:min(len(v.events), mostEvents)]
	return nil
}

// Now returns the received state as one object. It returns nil before the first tick, which is the
// event with the current rates.
func (v *View) Now() *live.Now {
	if v.Tick == nil || v.Topo == nil {
		return nil
	}
	now := live.NowOf(v.Tick, v.Topo, v.Memory, v.Slabs, v.Hot, v.Misses)
	now.Routes, now.Roll = v.Routes, v.Roll
	return now
}
