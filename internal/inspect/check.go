package inspect

// This file implements the command `ringside check`.

import (
	"bytes"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ringside/config"
	"ringside/internal/cli"
	"ringside/internal/top"
	"ringside/internal/tracefile"
	"ringside/proxy/table"
	"ringside/replicate"
	"ringside/ring"
)

func newCheck() *cobra.Command {
	var path string
	var connect, allowUnset, lookUpSources bool
	var variables func() (config.Variables, error)
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Validate a configuration and show the share of each server",
		Long: `Validate a configuration file. All mistakes are printed with their line and column,
and the exit status is then 78. For a valid file, the output has the share of keys
of each server, and what happens when a server is down. For each route it has the
preset, the replicas, and what is lost when one server dies.

Sources of servers are listed. With --resolve they are asked, for at most ten seconds
each, and the pools have the servers that they return.

With --connect, the servers are asked for their settings, for at most two seconds. A
largest item size that does not fit limits.value is a warning. So is a server that does
not answer, rejects the certificate or the password of its pool, or lacks a command
that the pool needs.

Variables such as ${NAME} have the values of the environment, or of the file after
--env. With --allow-unset, a variable without a value is a warning: the output is
that of a file in which it has a made-up value. Values of ${file:…} are not printed.`,
		Example: "  ringside check ringside.yaml\n  generate | ringside check -c -",
		Args:    cli.OrFile(&path),
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, err := variables()
			if err != nil {
				return err
			}
			from.AllowUnset = allowUnset
			f, err := cli.ReadConfig(cmd, path, from)
			if err != nil {
				return err
			}
			say := cli.RemarksOf(cmd)
			for _, w := range f.Warnings {
				say.Warn(w)
			}
			if lookUpSources {
				before := f.Warnings
				var problems []string
				if f, problems, err = withServers(cmd.Context(), f, nil); err != nil {
					return err
				}
				for _, w := range append(problems, f.Warnings...) {
					if !slices.Contains(before, w) {
						say.Warn(f.Hide(w))
					}
				}
			}
			t, err := f.Build()
			if err != nil {
				return err
			}
			for i := range f.Traces { // a trace file that cannot be written is only a warning, because the configuration may be for another machine
				if err := tracefile.Look(&f.Traces[i]); err != nil {
					say.Warn(f.Hide("ringside serve here " + err.Error()))
				}
			}
			for _, w := range append(ambiguousServers(cmd.Context(), t, lookUp), SameServers(cmd.Context(), t, f.Dial())...) {
				say.Warn(f.Hide(w))
			}
			if connect {
				for _, w := range Connect(cmd.Context(), t, f.Dial()) {
					say.Warn(f.Hide(w))
				}
			}
			out := cmd.OutOrStdout()
			var text bytes.Buffer
			if cli.AsJSON(cmd) {
				err = printCheckJSON(&text, f, t)
			} else {
				fmt.Fprintln(out, cli.Paint(out, top.Good, path+" is correct"))
				err = printCheck(&text, f, t)
			}
			if err == nil {
				_, err = io.WriteString(out, f.Hide(text.String()))
			}
			return err
		},
	}
	cli.ConfigFlag(cmd, &path)
	variables = cli.EnvFlag(cmd)
	cmd.Flags().BoolVar(&allowUnset, "allow-unset", false, "accept variables without a value")
	cli.JSONFlag(cmd, "print one JSON object per pool")
	cmd.Flags().BoolVar(&lookUpSources, "resolve", false, "ask the sources of servers")
	cmd.Flags().BoolVar(&connect, "connect", false, "also ask the servers for their settings")
	return cmd
}

// share is the JSON form of a server with its share of the pool's keys.
type share struct {
	Name    string  `json:"name"`
	Address string  `json:"address"`
	Weight  int     `json:"weight"`
	Share   float64 `json:"share"` // share of all hashes, from 0 to 1; 0 if the distribution cannot compute shares
}

func sharesOf(p *table.Pool) (list []share, known bool) {
	s, known := p.Place.Ring.(ring.Sharer)
	var part []float64
	if known {
		part = s.Shares()
	}
	for i, srv := range p.Servers {
		one := share{Name: srv.Name, Address: srv.Address, Weight: srv.Weight}
		if known {
			one.Share = part[i]
		}
		list = append(list, one)
	}
	return list, known
}

func printCheck(out io.Writer, f *config.File, t *table.Table) error {
	for i := range t.Pools {
		if err := printPool(out, f, t, i); err != nil {
			return err
		}
	}
	for _, l := range t.Listeners {
		fmt.Fprintf(out, "\nlistener %s\n", l.Address)
		for i := range l.Routes {
			printRoute(out, &l.Routes[i], t.Limits.Key)
		}
		if !slices.ContainsFunc(l.Routes, func(r table.Route) bool { return r.Prefix == "" && strings.Trim(r.Match, "*") == "" }) {
			fmt.Fprintln(out, "  all other keys: no route takes them, so what asks for one gets an error; a route without a prefix would")
		}
	}
	return nil
}

// printPool prints the pool with index i in the configuration f. t is the table that was built
// from f.
func printPool(out io.Writer, f *config.File, t *table.Table, i int) error {
	p := t.Pools[i]
	list, known := sharesOf(p)
	fmt.Fprintf(out, "\npool %s: %s, %s\n", p.Name, p.Distribution, cli.Counted(len(list), "server"))
	o := failoverOf(f, i)
	if o.Gutter != "" {
		o.Mode += " " + o.Gutter
	}
	fmt.Fprintf(out, "  failover: %s (%s)", o.Mode, o.Why)
	if p.Failover.Mode == table.FailFast && f.Ejects(p.Name) && !p.Unknown {
		fmt.Fprint(out, ", but servers are ejected because keys are replicated")
	}
	fmt.Fprintf(out, "\n  %s\n", o.AtReturn)
	if p.DenyFlush {
		fmt.Fprintln(out, "  flush_all: denied")
	}
	if o.Consistency != "" {
		fmt.Fprintf(out, "  consistency: %s (%s)\n", o.Consistency, o.ConsistencyWhy)
	}
	resize := f.Pools[i].Resize
	what := map[table.ResizeMode]string{
		table.ResizeWarm:  "move with their values in all instances together",
		table.ResizeFlush: "move in all instances together, and servers that gain keys are flushed before",
		table.ResizePlain: "move at once, and old values can return after a further change",
	}[resize.Mode]
	if resize.Mode == table.ResizePlain && f.CanWarm(p.Name) {
		what += "; resize: {mode: warm} prevents that"
	}
	fmt.Fprintf(out, "  resize: %s (%s): when servers change, keys with one copy %s\n", resize.Mode, resize.Why, what)
	if p.From != nil {
		var names []string
		for _, s := range p.From.Servers {
			names = append(names, s.Name)
		}
		fmt.Fprintf(out, "  warm_from: %s: until all instances have this file and the keys have moved, the servers are %s\n", p.Former, strings.Join(names, ", "))
	}
	if from := p.Fill; from != nil {
		fmt.Fprintf(out, "  fill_from: %s: keys that are missing are read from %s there, %d/s from each; a write hides the value there for %s\n",
			from.From.Name, cli.Counted(len(from.From.Servers), "server"), from.Rate, from.Remember)
	}
	for _, s := range f.Pools[i].Sources {
		fmt.Fprintf(out, "  source: %s\n", s.Text)
	}
	if p.Unknown {
		fmt.Fprintln(out, "  the servers of a source are not known here; --resolve asks the sources")
		return nil
	}
	w := cli.Table(out, "  SERVER\tADDRESS\tWEIGHT\tSHARE")
	for _, s := range list {
		part := "-"
		if known {
			part = fmt.Sprintf("%.2f%%", 100*s.Share)
		}
		fmt.Fprintf(w, "  %s\t%s\t%d\t%s\n", s.Name, s.Address, s.Weight, part)
	}
	return w.Flush()
}

// printRoute prints what a route does with its keys. longest is the limit of keys: the
// length of the longest key in bytes.
func printRoute(out io.Writer, r *table.Route, longest int) {
	how := ""
	if r.Strip {
		how = " (the servers don't see it)"
	}
	switch {
	case r.Match != "":
		fmt.Fprintf(out, "  keys that match %q: %s\n", r.Match, destination(r))
	case r.Prefix == "":
		fmt.Fprintf(out, "  all other keys: %s\n", destination(r))
	default:
		fmt.Fprintf(out, "  keys with the prefix %q%s: %s\n", r.Prefix, how, destination(r))
	}
	if r.Pool.Unknown {
		fmt.Fprintln(out, "    the servers of its pool are not known here")
		return
	}
	s := SummaryOf(r, longest)
	fmt.Fprintf(out, "    class %s, replicas %s, consistency %s", s.Class, s.Replicas, s.Consistency)
	if s.Autocreate != "" {
		fmt.Fprintf(out, "; %s", s.Autocreate)
	}
	if s.Buffer != "" {
		fmt.Fprintf(out, "\n    %s", s.Buffer)
	}
	fmt.Fprintf(out, "\n    when one server dies: %s\n", s.Lost)
	for _, more := range []string{s.Guard, s.Tags, s.Near} {
		if more != "" {
			fmt.Fprintf(out, "    %s\n", more)
		}
	}
	for _, why := range s.Doubts {
		fmt.Fprintf(out, "    but %s\n", why)
	}
}

// destination describes the pools of a route and its replication settings.
func destination(r *table.Route) string {
	c, text := &r.Copies, "pool "+r.Pool.Name
	switch {
	case len(r.Also) > 0:
		text = "a replica in each of the pools " + strings.Join(poolNames(r), ", ")
		if r.Prefer != nil {
			text += " (" + r.Prefer.Name + " read first)"
		}
	case c.Copies == replicate.All:
		text += ", a replica on every server"
	case c.Copies > 1:
		text += fmt.Sprintf(", %d replicas", c.Copies)
		if c.Apart != replicate.Servers {
			text += fmt.Sprintf(" on different %ss", c.Apart)
		}
	default:
		return text
	}
	text += fmt.Sprintf(", read %s", c.Read)
	if c.Read == replicate.Nearest && !hasZone(r) {
		text += fmt.Sprintf(" (which is first here: no server is in zone %s)", r.Zone)
	}
	text += fmt.Sprintf(", ack %s", c.Ack)
	if !c.ReadThrough && c.Read != replicate.Fastest {
		text += ", a miss at one is a miss"
	}
	if c.RepairRate == 0 {
		text += ", no repair"
	}
	return text
}

func poolNames(r *table.Route) []string {
	names := []string{r.Pool.Name}
	for _, p := range r.Also {
		names = append(names, p.Name)
	}
	return names
}

// hasZone reports whether a server of the route's pools is in the route's zone. If none is, the
// setting `read: nearest` has no effect.
func hasZone(r *table.Route) bool {
	for _, p := range append([]*table.Pool{r.Pool}, r.Also...) {
		if slices.ContainsFunc(p.Servers, func(t table.Target) bool { return t.Zone == r.Zone }) {
			return true
		}
	}
	return false
}

// failover is the JSON form of what a pool does when one of its servers is down. If the instances do
// not agree about the servers of the pool, the field Consistency and all later fields are empty.
type failover struct {
	Mode           string `json:"mode"`
	Why            string `json:"why"`
	AtReturn       string `json:"at_return"` // a sentence about what happens to a server that was down and returns
	Gutter         string `json:"gutter,omitempty"`
	Consistency    string `json:"consistency,omitempty"` // "strict" or "relaxed"
	ConsistencyWhy string `json:"consistency_why,omitempty"`
	Lease          string `json:"lease,omitempty"`
	Ping           string `json:"ping,omitempty"`
	EjectAfter     string `json:"eject_after,omitempty"`
	OnRejoin       string `json:"on_rejoin,omitempty"`
}

func failoverOf(f *config.File, i int) failover {
	p := &f.Pools[i].Failover
	o := failover{Mode: p.Mode.String(), Why: p.WhyMode, AtReturn: f.AtReturn(f.Pools[i].Name)}
	if p.Mode == table.Gutter {
		o.Gutter = p.Gutter
	}
	if f.Agrees(f.Pools[i].Name) {
		o.Consistency, o.ConsistencyWhy = map[bool]string{true: "strict", false: "relaxed"}[p.Strict], p.WhyConsistency
		o.Lease, o.Ping, o.EjectAfter = p.Lease.String(), p.Ping.String(), p.EjectAfter.String()
	}
	if f.Ejects(f.Pools[i].Name) {
		o.OnRejoin = p.OnRejoin.String()
	}
	return o
}

// routeSummary describes in words what a route does with its data. `ringside check --json` prints
// it as JSON.
type routeSummary struct {
	Listener    string `json:"listener"`
	Prefix      string `json:"prefix,omitempty"`
	Match       string `json:"match,omitempty"` // pattern of the route's keys; empty: the field Prefix selects them
	Class       string `json:"class"`
	Replicas    string `json:"replicas"`
	Consistency string `json:"consistency"`
	Autocreate  string `json:"autocreate,omitempty"` // which value a missing counter begins with; empty: a missing counter is not created
	Buffer      string `json:"buffer,omitempty"`     // how long increments wait; empty: they do not wait
	Near        string `json:"near,omitempty"`       // which values the near cache keeps; empty: the route has no near cache
	Guard       string `json:"guard,omitempty"`      // which client rebuilds a missing value, and what the others receive; empty: the route has no guard
	Tags        string `json:"tags,omitempty"`       // what the route does with tags; empty: its values have no tags
	Lost        string `json:"lost"`                 // which data of the route is lost when one server dies

	Doubts []string `json:"doubts,omitempty"` // guarantees that do not hold for this route, and settings that do not fit its preset
}

// classes maps the name of each preset to a description of its data.
var classes = map[string]string{
	"":         "none (a preset says it: cache, counters or sessions)",
	"cache":    "cache (may be lost)",
	"counters": "counters (would rather not be lost)",
	"sessions": "sessions (must not be lost)",
}

// SummaryOf describes what the route r does with its data. longest is the limit of keys: the
// length of the longest key in bytes.
func SummaryOf(r *table.Route, longest int) routeSummary {
	s := routeSummary{Prefix: r.Prefix, Match: r.Match, Class: classes[r.Class], Replicas: "1", Consistency: "relaxed"}
	if r.Pool.Failover.Strict {
		s.Consistency = "strict"
	}
	if a := r.Autocreate; a != nil {
		s.Autocreate = fmt.Sprintf("a counter that is missing begins at %d", a.Initial)
		if a.TTL > 0 {
			s.Autocreate += fmt.Sprintf(" and lives %v", a.TTL)
		}
	}
	if n := r.Near; n != nil {
		which := map[bool]string{true: "all values", false: "values of hot keys"}[n.All]
		s.Near = fmt.Sprintf("%s are kept here for %v: what is written past this instance is seen that much later", which, n.TTL)
	}
	if b := r.Buffer; b != nil {
		s.Buffer = fmt.Sprintf("increments wait %v: numbers are not for ids, tickets, stock or limits that must be exact, and a crash of this instance loses what came in that time", b.Every)
	}
	s.Guard, s.Tags = guardText(r.Guard), tagsText(r.Tags, longest)
	n := r.Copies.Copies
	if n == replicate.All {
		n = addresses(r.Pool)
	}
	if s.Lost = lostOfOne(r); r.Copies.Copies == replicate.All || n > 1 {
		s.Replicas, s.Lost = fmt.Sprint(n), lostOfCopies(r)
	}
	s.Doubts = doubtsOf(r)
	return s
}

// guardText describes the guard of a route: what gets of a missing value receive. The get of the
// client that rebuilds the value is not described.
func guardText(g *table.GuardSettings) string {
	switch {
	case g == nil:
		return ""
	case g.Hide:
		return "guard: only hides what other instances with a guard leave on the servers"
	}
	text := "guard: one client at a time rebuilds a value, the others"
	if g.Stale > 0 && g.Late != table.LateStale {
		text += fmt.Sprintf(" get the old one for %v, or", g.Stale)
	}
	if g.Wait == 0 {
		return text + " miss"
	}
	over := "a miss"
	switch g.Late {
	case table.LateError:
		over = "an error"
	case table.LateStale:
		over = fmt.Sprintf("the old value, for %v, or a miss", g.Stale)
	}
	return text + fmt.Sprintf(" wait up to %v; then it is %s", g.Wait, over)
}

// tagsText describes the tags of a route. If clients name tags in the key, behind a suffix
// (TagSettings.Suffix), it also says how long keys can be: a key, the suffix and the names of
// its tags have at most `longest` bytes together.
func tagsText(tags *table.TagSettings, longest int) string {
	switch {
	case tags == nil:
		return ""
	case tags.Read:
		return "tags: only understands what other instances with tags store"
	}
	text := "tags: a value is no longer served once one of its tags is invalidated"
	if tags.Suffix == "" {
		return text
	}
	return text + fmt.Sprintf("; a key and the tags behind it have at most %d bytes together, so with one name of 16 bytes the longest key has %d",
		longest, max(0, longest-len(tags.Suffix)-16))
}

// addresses returns the number of different addresses of a pool's servers. A server with several
// names counts once.
func addresses(p *table.Pool) int {
	all := map[string]bool{}
	for i := range p.Servers {
		all[p.Servers[i].Apart(replicate.Servers)] = true
	}
	return len(all)
}

// doubtsOf returns sentences about what the route cannot guarantee. The reasons are two servers
// without a majority, consistency: relaxed, and settings that do not fit the preset of the route.
func doubtsOf(r *table.Route) (list []string) {
	c := &r.Copies
	several := c.Several()
	if several && !r.Pool.Failover.Strict && addresses(r.Pool) == 2 {
		list = append(list, "two servers have no majority: if one instance reaches only the one and another only the other, both continue, a read may be old, "+
			"a counter give a number twice and a lock be held twice, which a third server ends; and while one is out or being filled, the other has the only replica")
	}
	if len(r.Also) > 0 && !r.Pool.Failover.Strict {
		list = append(list, "consistency: relaxed goes on with the other pool where no server of one answers: instances that do not agree about that read old values, count twice and grant a lock twice")
	}
	if r.Class == "" || r.Class == "cache" {
		return list
	}
	errs := readsFail(r)
	for _, x := range []struct {
		is  bool
		why string
	}{
		{!several, "replicas: 1 keeps one replica: what its server holds is lost with it"},
		{!errs, "get_errors: miss reports a miss if the servers of a key do not reply, and the next write then replaces its value"},
		{several && !c.ReadThrough && c.Read != replicate.Fastest, "read_through: false returns a miss if one replica misses, also after an eviction or a restart"},
		{several && c.RepairRate == 0, "repair: off does not fill a server that returns: it lacks its replicas until their keys are written"},
		{several && !r.Pool.Failover.Strict && addresses(r.Pool) > 2, "consistency: relaxed lets an instance that is cut off from the others, or was paused, continue with old server states: it may read old values, count twice and grant a lock twice"},
	} {
		if x.is {
			list = append(list, x.why)
		}
	}
	return list
}

// readsFail reports whether a read gets an error if its server cannot reply. Otherwise the read
// gets a miss.
func readsFail(r *table.Route) bool {
	if r.GetErrors != nil {
		return *r.GetErrors
	}
	return r.Pool.GetErrors
}

// lostOfOne describes what is lost when one server dies, for a route that keeps one copy of each
// key.
func lostOfOne(r *table.Route) string {
	part := "its part of the keys"
	if list, known := sharesOf(r.Pool); known {
		most := 0.0
		for _, s := range list {
			most = max(most, s.Share)
		}
		part = fmt.Sprintf("its part of the keys, up to %.0f%%", 100*most)
	}
	if r.Autocreate != nil {
		part += "; counters begin again"
	}
	without := "they miss and can't be written"
	if readsFail(r) {
		without = "they can't be read or written"
	}
	if r.Pool.Failover.Mode == table.FailFast {
		return part + ", and until it is back " + without
	}
	return part + "; until it is out " + without + ", then others keep them"
}

// lostOfCopies describes what is lost when one server dies, for a route that keeps replicas.
func lostOfCopies(r *table.Route) string {
	if r.Copies.Ack != replicate.AckAll {
		return fmt.Sprintf("no key; but writes that it had acknowledged before the others had them, with ack %s", r.Copies.Ack)
	}
	return "nothing that was acknowledged; writes of its keys wait until it is out"
}

// routesTo iterates over the routes that use the pool p, with the address of their listener.
func routesTo(t *table.Table, p *table.Pool) iter.Seq2[string, *table.Route] {
	return func(yield func(string, *table.Route) bool) {
		for _, l := range t.Listeners {
			for i := range l.Routes {
				if r := &l.Routes[i]; (r.Pool == p || slices.Contains(r.Also, p)) && !yield(l.Address, r) {
					return
				}
			}
		}
	}
}

// summariesIn returns the summaries of all routes that use the pool p.
func summariesIn(t *table.Table, p *table.Pool) (list []routeSummary) {
	for listener, r := range routesTo(t, p) {
		s := SummaryOf(r, t.Limits.Key)
		s.Listener = listener
		list = append(list, s)
	}
	return list
}

// replicated is the JSON form of a route that keeps replicas, with its replication settings.
type replicated struct {
	Listener    string   `json:"listener"`
	Prefix      string   `json:"prefix"`
	Match       string   `json:"match,omitempty"` // pattern of the route's keys; empty: the field Prefix selects them
	Pools       []string `json:"pools"`           // names of the route's pools; the pool of the primary is the first
	Replicas    int      `json:"replicas"`        // number of replicas of each key; -1: one on every server
	ReplicasOn  string   `json:"replicas_on"`
	Read        string   `json:"read"`
	Ack         string   `json:"ack"`
	ReadThrough bool     `json:"read_through"`
	Repair      int      `json:"repair"` // how many keys per second are repaired on one server; 0: no repair
}

// replicatedIn returns all routes that keep replicas in the pool p.
func replicatedIn(t *table.Table, p *table.Pool) (list []replicated) {
	for listener, r := range routesTo(t, p) {
		if c := &r.Copies; c.Copies != 0 {
			list = append(list, replicated{listener, r.Prefix, r.Match, poolNames(r), c.Copies, c.Apart.String(), c.Read.String(), c.Ack.String(), c.ReadThrough, c.RepairRate})
		}
	}
	return list
}

// sourcesOf returns the texts of the sources of a pool.
func sourcesOf(p *config.Pool) (texts []string) {
	for _, s := range p.Sources {
		texts = append(texts, s.Text)
	}
	return texts
}

func printCheckJSON(out io.Writer, f *config.File, t *table.Table) error {
	enc := cli.NewEncoder(out)
	for i, p := range t.Pools {
		list, _ := sharesOf(p)
		if err := enc.Encode(struct {
			Pool         string         `json:"pool"`
			Distribution string         `json:"distribution"`
			Sources      []string       `json:"sources,omitempty"`
			Servers      []share        `json:"servers"`
			Failover     failover       `json:"failover"`
			Replicated   []replicated   `json:"replicated,omitempty"`
			Routes       []routeSummary `json:"routes,omitempty"`
			DenyFlush    bool           `json:"deny_flush,omitempty"`
		}{p.Name, p.Distribution, sourcesOf(&f.Pools[i]), list, failoverOf(f, i), replicatedIn(t, p), summariesIn(t, p), p.DenyFlush}); err != nil {
			return err
		}
	}
	return nil
}
