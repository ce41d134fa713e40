package top

// This file has the screens that show only one section or only one server, and the help for the
// keys.

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"ringside/proxy/live"
)

// part draws only the section that the user has chosen, in at most `room` lines.
func (d *drawing) part(room int) {
	end := len(d.lines) + room
	switch d.Part {
	case '1':
		d.servers(room - 2)
	case '2':
		d.hot(room - 1)
	case '3':
		d.slabs("MEMORY by item size", d.now.Slabs)
		for _, w := range d.now.Warn {
			d.warning(&w)
		}
	case '4':
		if len(d.Patterns) == 0 {
			d.add(Dim, " TRACE: no keys are traced; t asks for patterns")
		}
		d.traced(room)
	case '5':
		for _, e := range d.events {
			d.event(&e)
		}
		if len(d.events) == 0 {
			d.add(Dim, " no recent events")
		}
	case '6':
		before := len(d.lines)
		d.misses(room)
		d.routes(room)
		d.roll(room)
		if len(d.lines) == before {
			d.add(Dim, " no key has missed recently, and no other instance is known")
		}
	}
	d.lines = d.lines[:min(len(d.lines), end)]
}

// opened returns the server that the user has opened. It returns nil if no server is opened, or if
// that server does not exist any more.
func (d *drawing) opened() *live.NowServer {
	i := slices.IndexFunc(d.now.List, func(s live.NowServer) bool { return d.Opened && s.Name == d.Selected })
	if i < 0 {
		return nil
	}
	return &d.now.List[i]
}

// server draws the screen with all that is known about the server s.
func (d *drawing) server(s *live.NowServer) {
	is := live.StateOf(s.State)
	text := fmt.Sprintf(" %s %s %s, %s for %s", is.Sign, s.Name, s.Address, s.State, live.Ago(time.UnixMilli(d.now.T).Sub(s.Since)))
	if s.Why != "" {
		text += ": " + s.Why
	}
	d.add(levels[is.Tone], text)
	next := is.Next
	if s.Next != "" { // the keeper of the pool has reported the next step, which is more precise
		next = strings.TrimPrefix(s.Next, "next: ")
	}
	d.add(Plain, " next       "+next)
	d.add(Plain, fmt.Sprintf(" keys       %s of all; hit %s", orDash(&s.Share, live.Percent), orDash(s.Hit, live.Percent)))
	d.add(Plain, fmt.Sprintf(" requests   %s/s %s  failed %s/s, and %s/s of Ringside's own", live.Count(s.Rate), spark(d.recent(s.Name), d.sparkWidth()), live.Count(s.Fail), live.Count(s.Own)))
	d.add(Plain, fmt.Sprintf(" answers    p50 %s  p99 %s  %d waiting, %d connections", orDash(s.P50, live.Micros), orDash(s.P99, live.Micros), s.Queue, s.Conns))
	if s.Used != nil && s.Limit != nil {
		d.add(Plain, fmt.Sprintf(" memory     %s of %s, %s items, %s/s evicted", live.Bytes(*s.Used), live.Bytes(*s.Limit), orDash(s.Items, live.Count), orDash(s.Evicted, live.Count)))
	}
	for _, w := range d.now.Warn {
		if w.Server == s.Name {
			d.warning(&w)
		}
	}
	for i, t := range d.Topo.Servers {
		if t.Name == s.Name && d.Slabs != nil && i < len(d.Slabs.Servers) {
			d.rule()
			d.slabs("MEMORY of "+s.Name+" by item size", d.Slabs.Servers[i])
		}
	}
}

func (d *drawing) warning(w *live.Warning) {
	d.add(Warn, " ⚠ "+d.brief.Replace(w.Server)+" "+w.Text+" "+w.Command)
}

func (d *drawing) event(e *event) {
	sign := live.Signs[e.Tone]
	if e.Minor {
		sign = "·"
	}
	text := " " + e.t.Format(time.TimeOnly) + " " + sign + " " + e.Text
	if e.crowd > 0 {
		text += fmt.Sprintf(", and %d such before", e.crowd)
	}
	if e.More != "" {
		text += ": " + e.More
	}
	d.add(map[bool]Style{true: Bad, false: Dim}[e.Tone == live.Bad], d.brief.Replace(text))
}

// help draws a list of the keys that the user can press, and their effects.
func (d *drawing) help() {
	for _, line := range strings.Split(`1 servers  2 keys  3 memory  4 trace  5 events
6 why keys miss, routes, other instances; again: all

up and down choose a server, Enter opens it
d drains it, u restores it; both ask first

sort by r requests  h hits  p p99  w queue  m memory
        e evictions  n name; again reverses it
/ finds by name, address or state
t traces keys, like ringside trace

+ and - change the interval, now `+d.pace().String()+`
space pauses
q, Ctrl-C, or Esc twice quits`, "\n") {
		d.add(Plain, " "+line)
	}
}

// paces are the intervals between screens that the user can choose. The stream has at most one
// state per second.
var paces = []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second}

// pace returns the interval between screens that the user has chosen.
func (v *View) pace() time.Duration { return paces[v.Pace] }

// sentence adds a text about the state of the pool. It uses up to four lines if the text is long and
// the screen is high enough, so that the remedy, which comes first, is complete.
func (d *drawing) sentence(level Style, text string, height int) {
	lines := wrap(live.Clean(text), d.width-2)
	most := 4
	if height < keysHeight {
		most = 2
	}
	if len(lines) > most {
		lines = append(lines[:most-1], strings.Join(lines[most-1:], " "))
	}
	for _, line := range lines {
		d.add(level, " "+line)
	}
}

// resize adds a change of the servers of a pool.
func (d *drawing) resize(r *live.Resize, height int) {
	style := levels[r.Level]
	if r.Level == live.Good {
		style = Plain
	}
	d.sentence(style, d.brief.Replace(r.Sentence()), height)
}

// homes returns the names of the servers that have the hot key k now.
func (d *drawing) homes(k *live.HotKey) string {
	if k.Server == nil || *k.Server >= len(d.now.List) {
		return "–"
	}
	owner := &d.now.List[*k.Server]
	name := func(s *live.NowServer) string { return live.Clean(d.brief.Replace(s.Name)) }
	switch {
	case k.Replicas > 1:
		return fmt.Sprintf("%s and %d more", name(owner), k.Replicas-1)
	case live.StateOf(owner.State).Moved && k.Substitute != nil && *k.Substitute < len(d.now.List):
		return name(owner) + " → " + name(&d.now.List[*k.Substitute])
	}
	return name(owner)
}
