package top

// This file draws the lines of a screen.

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"ringside/proxy/live"
)

// Style is the style of a line: a color, or another way to highlight text.
type Style uint8

// The styles of lines. Good, Warn and Bad are colors for states.
const (
	Plain Style = iota
	Good
	Warn
	Bad
	Dim
	Bold
	Reverse
)

// Paint returns text with the codes that make a terminal show it in the style s.
func (s Style) Paint(text string) string { return codes[s] + text + "\x1b[0m" }

// Line is one line of a screen: a text that is not wider than the screen, and its style.
type Line struct {
	Text  string
	Style Style
}

var levels = map[string]Style{live.Good: Good, live.Warn: Warn, live.Bad: Bad, live.Calm: Dim}

// StyleOf returns the style of a state or a problem with the given level.
func StyleOf(level string) Style { return levels[level] }

// Sizes of the terminal, in columns and lines, from which more is shown.
const (
	leastWidth, leastHeight = 60, 10
	wideWidth               = 112
	slabHeight              = 34
	keysHeight              = 20
)

// Draw returns the lines of a screen with the given size in characters. It returns at most height
// lines.
func (v *View) Draw(width, height int) []Line {
	is := live.Health{Title: "Looking…", Text: "Waiting for the first figures."}
	now := v.Now()
	switch {
	case v.Trouble != "":
		is = live.Health{Level: live.Bad, Title: "No connection to Ringside", Text: v.Trouble}
		if now != nil {
			is.Text += " What you see is old, from " + time.UnixMilli(now.T).UTC().Format(time.TimeOnly) + " UTC."
		}
	case v.Late != nil:
		is = *v.Late
	case now != nil:
		is = now.Health
	}
	brief := strings.NewReplacer()
	if v.Topo != nil {
		brief = live.Briefly(v.Topo.Brief)
	}
	sentence, level := brief.Replace(is.Sentence()), levels[is.Level]
	if width < leastWidth || height < leastHeight || now == nil {
		d := drawing{width: width}
		for _, part := range wrap(live.Clean(sentence), width) {
			d.add(level, part)
		}
		return d.lines[:min(len(d.lines), height)]
	}
	d := drawing{width: width, View: v, now: now, brief: brief}
	d.head()
	d.sentence(level, sentence, height)
	for i := range now.Resizes {
		d.resize(&now.Resizes[i], height)
	}
	d.totals()
	d.rule()
	room := height - 1 - len(d.lines)
	switch s := d.opened(); {
	case d.Help:
		d.help()
	case s != nil:
		d.server(s)
	case d.Part != 0:
		d.part(room)
	default:
		d.all(height)
	}
	foot := d.foot()
	foot = foot[:min(len(foot), height/2)]
	d.lines = d.lines[:min(len(d.lines), height-len(foot))]
	for len(d.lines) < height-len(foot) {
		d.add(Plain, "")
	}
	for _, line := range foot {
		d.add(Reverse, " "+line)
	}
	return d.lines
}

// all draws the screen with all sections. It shortens or omits sections for which there is no room.
func (d *drawing) all(height int) {
	most := height - len(d.lines) - 7
	if height >= keysHeight {
		most -= 7
	}
	if height >= slabHeight {
		most -= 12
	}
	rows := d.servers(max(2, most))
	d.rule()
	if height >= keysHeight {
		if len(d.Patterns) > 0 && height < slabHeight { // the section of traced keys replaces that of hot keys, because the user asked for it
			d.traced(6)
		} else {
			rows += d.hot(5)
		}
		d.rule()
		d.misses(max(1, (height-30)/2))
		d.routes(max(1, (height-30)/3))
		d.roll(max(1, (height-36)/3))
	}
	if height >= slabHeight {
		d.slabs("MEMORY by item size", d.now.Slabs)
		if len(d.Patterns) > 0 {
			d.traced(max(4, (height-26)/2))
			d.rule()
		}
	}
	for _, w := range d.now.Warn[:min(len(d.now.Warn), max(1, height-rows-14))] {
		d.warning(&w)
	}
	for _, e := range d.events[:min(len(d.events), max(0, height-1-len(d.lines)))] {
		d.event(&e)
	}
}

// Print writes one screen with 120 columns and as many lines as needed. It uses colors if colours
// is set, and only ASCII characters if ascii is set.
func Print(to io.Writer, now *live.Now, colours, ascii bool) error {
	d := drawing{width: 120, View: &View{}, now: now, brief: strings.NewReplacer()}
	name := ""
	if len(now.Pools) < 2 { // with several pools, the line of each pool has its name
		name = now.Pool + ": "
	}
	d.lines = []Line{{fmt.Sprintf("%s%s. %s", name, now.Health.Title, now.Health.Text), levels[now.Health.Level]}}
	if len(now.Pools) > 1 {
		for _, p := range now.Pools {
			d.add(levels[p.Level], fmt.Sprintf(" %s pool %s: %s", live.Signs[p.Level], p.Pool, p.Title))
		}
	}
	for i := range now.Resizes {
		d.resize(&now.Resizes[i], math.MaxInt)
	}
	d.totals()
	d.servers(len(now.List))
	if now.Hot != nil && len(now.Hot.Keys) > 0 {
		d.hot(len(now.Hot.Keys))
	}
	d.misses(mostMisses)
	d.routes(mostMisses)
	d.roll(mostMisses)
	if len(now.Slabs) > 0 {
		d.slabs("MEMORY by item size", now.Slabs)
	}
	for _, w := range now.Warn {
		d.add(Warn, w.Server+" "+w.Text+" "+w.Command)
	}
	if ascii {
		for i := range d.lines {
			d.lines[i].Text = ASCII(d.lines[i].Text)
		}
	}
	return printLines(to, d.lines, colours)
}

// PrintOverall writes the state of all pools together in one line, and each change of servers in another
// line.
func PrintOverall(to io.Writer, is *live.Overall, colours bool) error {
	lines := []Line{{live.Clean(is.Health.Sentence()), levels[is.Health.Level]}}
	for i := range is.Resizes {
		lines = append(lines, Line{live.Clean(is.Resizes[i].Sentence()), levels[is.Resizes[i].Level]})
	}
	return printLines(to, lines, colours)
}

// printLines writes lines without the spaces at their ends, in the colours of their styles if colours is set.
func printLines(to io.Writer, lines []Line, colours bool) error {
	for _, l := range lines {
		text := strings.TrimRight(l.Text, " ⠀")
		if colours {
			text = l.Style.Paint(text)
		}
		if _, err := fmt.Fprintln(to, text); err != nil {
			return err
		}
	}
	return nil
}

// drawing is a screen that is being drawn: its width, and the lines so far.
type drawing struct {
	*View
	now   *live.Now
	brief *strings.Replacer // replaces names of servers by their short names
	width int
	lines []Line
}

func (d *drawing) add(s Style, text string) {
	d.lines = append(d.lines, Line{cut(live.Clean(text), d.width), s})
}

func (d *drawing) rule() { d.add(Dim, strings.Repeat("─", d.width)) }

// sides adds a line with one text at the left edge and one at the right edge.
func (d *drawing) sides(s Style, left, right string) {
	gap := d.width - utf8.RuneCountInString(left) - utf8.RuneCountInString(right) - 1
	if gap < 1 {
		d.add(s, left)
		return
	}
	d.add(s, left+strings.Repeat(" ", gap)+right)
}

func (d *drawing) head() {
	right := fmt.Sprintf("%d servers", len(d.now.List))
	states := map[string]int{}
	for _, s := range d.now.List {
		states[s.State]++
	}
	if gone := len(d.now.List) - states[live.Up] - states[live.Joins]; gone > 0 {
		right += fmt.Sprintf(", %d not up", gone)
	}
	if n := states[live.Joins]; n > 0 {
		right += fmt.Sprintf(", %d new", n)
	}
	if r := d.now.Roll; r != nil && r.Of > 1 && d.width >= wideWidth {
		right = fmt.Sprintf("%s, 1 of %d instances   ", r.Me, r.Of) + right
	}
	name := d.Topo.Pool
	if len(d.now.Pools) > 1 {
		name += fmt.Sprintf(" (1 of %d pools)", len(d.now.Pools))
	}
	d.sides(Bold, " Ringside  "+name+" "+d.Topo.Distribution, right+"   "+time.UnixMilli(d.now.T).UTC().Format(time.TimeOnly))
}

func (d *drawing) totals() {
	t := &d.now.Total
	evicted, known := 0.0, false
	for _, s := range d.now.List {
		if s.Evicted != nil {
			evicted, known = evicted+*s.Evicted, true
		}
	}
	first, p50 := " req", "  p50 "+orDash(t.P50, live.Micros)
	if len(d.now.Pools) > 1 {
		if first = " all pools: req"; d.width < wideWidth {
			p50 = ""
		}
	}
	text := fmt.Sprintf("%s %s/s %s  hit %s%s  p99 %s  fail %s/s", first, live.Count(t.Requests), spark(d.recent(""), d.sparkWidth()),
		orDash(t.Hit, live.Percent), p50, orDash(t.P99, live.Micros), live.Count(t.Outcomes.Fail))
	if known && len(d.now.Pools) < 2 { // the evictions are those of the pool
		text += "  evict " + live.Count(math.Round(evicted)) + "/s"
	}
	if d.width >= wideWidth {
		text += fmt.Sprintf("  clients %d", t.Clients)
	}
	d.add(Plain, text)
}

func (d *drawing) sparkWidth() int {
	if d.width >= wideWidth {
		return 16
	}
	return 8
}

func orDash(v *float64, say func(float64) string) string {
	if v == nil {
		return "–"
	}
	return strings.ReplaceAll(say(*v), " ", "")
}

const (
	nameColumn   = 1   // index of the name in the result of cells
	mostCompared = 100 // maximum number of names with which a name is compared before it is shortened
)

// column is one column of the table of servers.
type column struct {
	head  string
	sort  byte // key that sorts the table by this column; 0: none
	width int
	left  bool
	wide  bool // the column is shown only on wide screens
	at    int  // index of the column's text in the result of cells
}

// columns returns the columns for which there is room.
func (d *drawing) columns() []column {
	all := []column{
		{"S", 0, 1, true, false, 0}, {"SERVER", 'n', 12, true, false, 1}, {"STATE", 0, 7, true, false, 2}, {"SHARE", 0, 6, false, true, 3}, {"FOR", 0, 6, false, true, 4},
		{"REQ/s", 'r', 8, false, false, 5}, {"", 0, 8, true, false, 6}, {"HIT", 'h', 6, false, false, 7}, {"p50", 0, 6, false, true, 8}, {"p99", 'p', 6, false, false, 9},
		{"Q", 'w', 3, false, false, 10}, {"CONN", 0, 4, false, true, 11}, {"MEM", 'm', 13, true, false, 12}, {"EV/s", 'e', 5, false, false, 13}, {"ITEMS", 0, 9, false, true, 14},
	}
	if d.width < wideWidth {
		all = slices.DeleteFunc(all, func(c column) bool { return c.wide })
	}
	for { // drops columns from the right until the other columns fit
		sum := 0
		for _, c := range all {
			sum += c.width + 1
		}
		if sum <= d.width {
			i := slices.IndexFunc(all, func(c column) bool { return c.at == nameColumn })
			all[i].width += min(d.width-sum, 20) // the names get the rest
			return all
		}
		all = all[:len(all)-1]
	}
}

// cells returns the texts about a server, in the order of columns.
func (d *drawing) cells(s *live.NowServer) []string {
	memory := "–"
	switch {
	case !d.now.Asked, s.Used == nil && s.State == live.Joins:
	case s.Used == nil || *s.Limit == 0:
		memory = "no answer"
	default:
		memory = bar(*s.Used / *s.Limit, 8) + fmt.Sprintf(" %.0f%%", 100**s.Used / *s.Limit)
	}
	whole := func(v float64) string { return live.Count(math.Round(v)) }
	return []string{live.StateOf(s.State).Sign, d.brief.Replace(s.Name), s.State, orDash(&s.Share, live.Percent), strings.ReplaceAll(live.Ago(time.UnixMilli(d.now.T).Sub(s.Since)), " ", ""),
		live.Count(s.Rate), spark(d.recent(s.Name), 8), orDash(s.Hit, live.Percent), orDash(s.P50, live.Micros), orDash(s.P99, live.Micros),
		fmt.Sprint(s.Queue), fmt.Sprint(s.Conns), memory, orDash(s.Evicted, whole), orDash(s.Items, live.Count)}
}

// servers adds the table of servers and returns the number of its rows, which is at most `most`.
func (d *drawing) servers(most int) int {
	columns := d.columns()
	var head strings.Builder
	for _, c := range columns {
		name := c.head
		if c.sort != 0 && c.sort == d.Sort {
			name += "▼"
		}
		head.WriteString(" " + pad(name, c.width, c.left))
	}
	d.add(Dim, head.String())
	list := d.rows(d.now)
	from := 0
	if at := slices.IndexFunc(list, func(s *live.NowServer) bool { return s.Name == d.Selected }); at >= most {
		from = at - most + 1
	}
	shown := list[from:min(len(list), from+most)]
	var names []string
	for _, s := range d.now.List[:min(len(d.now.List), mostCompared)] {
		names = append(names, live.Clean(d.brief.Replace(s.Name)))
	}
	for _, s := range shown {
		var row strings.Builder
		cells := d.cells(s)
		for _, c := range columns {
			text := live.Clean(cells[c.at])
			if c.at == nameColumn {
				text = live.Fit(text, names, c.width)
			}
			row.WriteString(" " + pad(text, c.width, c.left))
		}
		style := levels[live.StateOf(s.State).Tone]
		switch {
		case s.Name == d.Selected:
			style = Reverse
		case style == Good:
			style = Plain
		}
		d.add(style, row.String())
	}
	if more := len(list) - len(shown); more > 0 {
		d.add(Dim, fmt.Sprintf("   and %d more: / finds them", more))
	}
	return len(shown)
}

// Rows returns the servers that match the filter, in the order that the user has chosen. If the
// user has chosen no order, servers that are not up are first.
func (v *View) Rows() []*live.NowServer {
	return v.rows(v.Now())
}

func (v *View) rows(now *live.Now) (list []*live.NowServer) {
	if now == nil {
		return nil
	}
	for i := range now.List {
		s := &now.List[i]
		if strings.Contains(strings.ToLower(s.Name+" "+s.Address+" "+s.State), strings.ToLower(v.Filter)) {
			list = append(list, s)
		}
	}
	by := map[*live.NowServer]float64{}
	for _, s := range list {
		by[s] = map[byte]float64{0: map[bool]float64{true: -1}[s.State == live.Up], 'r': s.Rate, 'h': value(s.Hit), 'p': value(s.P99), 'w': float64(s.Queue),
			'm': value(s.Used) / max(1, value(s.Limit)), 'e': value(s.Evicted)}[v.Sort]
	}
	slices.SortStableFunc(list, func(a, b *live.NowServer) int {
		c := cmp.Compare(by[b], by[a])
		if v.Sort == 'n' {
			c = strings.Compare(a.Name, b.Name)
		}
		if v.Reversed {
			c = -c
		}
		return c
	})
	return list
}

func value(v *float64) float64 {
	if v == nil {
		return -1
	}
	return *v
}

// slabs adds the chart of memory by item size. Each size class is a bar. From the bottom, the bar
// shows data, memory lost by rounding up, and free memory.
func (d *drawing) slabs(title string, classes []live.Class) {
	const bars = 6
	const page = 1 << 20
	var held, asked, top float64
	for _, c := range classes {
		held, asked, top = held+c.Pages*page, asked+c.Asked, max(top, c.Pages*page)
	}
	if len(classes) == 0 {
		d.add(Dim, " "+title+": not known yet")
		d.rule()
		return
	}
	d.sides(Bold, fmt.Sprintf(" %s, %s held, %s data", title, live.Bytes(held), live.Percent(asked/max(1, held))), "█ data  ▒ rounded up  ░ free  ▼ evicts")
	list := classes[:min(len(classes), (d.width-9)/4)]
	for y := bars; y >= 1; y-- {
		label, row := "", ""
		if y == bars {
			label = live.Bytes(top)
		}
		for _, c := range list {
			full := c.Pages * page / top * bars
			data, used := c.Asked/top*bars, c.Used*c.Chunk/top*bars
			at := float64(y) - .5
			switch {
			case at < data:
				row += " ███"
			case at < used:
				row += " ▒▒▒"
			case at < full || y == 1:
				row += " ░░░"
			case c.Evicted >= live.Evicts && at < full+1:
				row += "  ▼ "
			default:
				row += "    "
			}
		}
		d.add(Plain, pad(label, 8, false)+row)
	}
	sizes := strings.Repeat(" ", 9)
	for i := 0; i < len(list); i += 3 {
		sizes += pad(strings.ReplaceAll(live.Bytes(list[i].Chunk), " ", ""), 12, true)
	}
	d.add(Dim, sizes)
	d.rule()
}

// hot adds the keys with the most requests, at most `most` keys. On wide screens it also adds the
// prefixes with the most requests. It returns the number of lines.
func (d *drawing) hot(most int) int {
	hot := d.now.Hot
	if hot == nil {
		d.add(Dim, " HOT KEY")
		return 1
	}
	wide := d.width >= wideWidth
	row := func(key, rate, off, share, hit, bytes, server string) string {
		text := fmt.Sprintf(" %s %9s", pad(key, 28, true), rate)
		if wide {
			text += fmt.Sprintf(" %7s %7s", off, share)
		}
		return text + fmt.Sprintf(" %7s %9s  %s", hit, bytes, server)
	}
	told := func(k *live.HotKey, name, server string) string {
		return row(name, live.Count(k.Rate), "±"+live.Count(k.Off), orDash(&k.Share, live.Percent), orDash(k.Hit, live.Percent), strings.ReplaceAll(live.Bytes(k.Bytes), " ", ""), server)
	}
	heads := row("HOT KEY", "REQ/s", "", "SHARE", "HIT", "B/s", "SERVER")
	lines := []string{}
	for i := range hot.Keys[:min(len(hot.Keys), most)] {
		k := &hot.Keys[i]
		lines = append(lines, told(k, live.Clean(string(k.Key)), d.homes(k)))
	}
	if len(lines) == 0 {
		lines = append(lines, " no key has been requested yet")
	}
	if at := utf8.RuneCountInString(heads) + 14; wide && d.width-at >= 26 {
		heads = pad(heads, at, true) + pad("PREFIX", 16, true) + fmt.Sprintf(" %9s", "REQ/s")
		for i := range hot.Prefixes[:min(len(hot.Prefixes), most)] {
			if i == len(lines) {
				lines = append(lines, "")
			}
			name := live.Clean(string(hot.Prefixes[i].Key))
			if name == "" {
				name = "(other)"
			}
			lines[i] = pad(lines[i], at, true) + pad(name, 16, true) + fmt.Sprintf(" %9s", live.Count(hot.Prefixes[i].Rate))
		}
	}
	d.add(Dim, heads)
	for _, line := range lines {
		d.add(Plain, line)
	}
	return len(lines) + 1
}

// foot returns the lines at the bottom of the screen: a message, or what the keys do.
func (d *drawing) foot() []string {
	switch {
	case d.Message != "":
		return wrap(live.Clean(d.Message), d.width-1)
	case d.Typing:
		return []string{"find: " + d.Filter + "▏"}
	case d.Asking:
		return []string{"trace which keys? home:* and more, none to end: " + d.Asked + "▏"}
	}
	return []string{"1-6 parts  ↑↓ Enter server  d drain  u restore  / find  t trace  ? help  q quit"}
}

// bar draws a fraction, from 0 to 1, as a bar of block characters.
func bar(part float64, width int) string {
	eighths := int(min(max(part, 0), 1)*float64(width)*8 + .5)
	text := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		text += string([]rune(" ▏▎▍▌▋▊▉")[rest])
	}
	return text + strings.Repeat("░", width-utf8.RuneCountInString(text))
}

// spark draws the last numbers of list as a chart of braille characters. Each character shows two
// numbers, in four levels. A steady rate is drawn at three quarters of the height, so that a rise
// and a fall are both visible.
func spark(list []float64, width int) string {
	left, right := [...]rune{0x40, 0x44, 0x46, 0x47}, [...]rune{0x80, 0xa0, 0xb0, 0xb8}
	list = list[max(0, len(list)-2*width):]
	most, sum := 1e-9, 0.0
	for _, v := range list {
		most, sum = max(most, v), sum+v
	}
	most = max(most, sum/float64(max(1, len(list)))*4/3)
	text := strings.Repeat("⠀", width-(len(list)+1)/2)
	level := func(v float64) int { return min(3, max(0, int(math.Round(v/most*4))-1)) }
	for i := len(list) % 2 * -1; i < len(list); i += 2 {
		cell := rune(0x2800)
		if i >= 0 {
			cell |= left[level(list[i])]
		}
		text += string(cell | right[level(list[i+1])])
	}
	return text
}

func pad(text string, width int, left bool) string {
	text = cut(text, width)
	gap := strings.Repeat(" ", width-utf8.RuneCountInString(text))
	if left {
		return text + gap
	}
	return gap + text
}

// cut shortens text to width characters if it is longer.
func cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:max(0, width-1)]) + "…"
}

// wrap breaks text between words into lines of at most width characters.
func wrap(text string, width int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
			line += " " + word
		default:
			lines, line = append(lines, cut(line, width)), word
		}
	}
	return append(lines, cut(line, width))
}
