package inspect

// This file implements the command `ringside plan`.

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ringside/config"
	"ringside/internal/cli"
	"ringside/internal/top"
	"ringside/proxy/admin"
	"ringside/proxy/live"
	"ringside/proxy/table"
)

// plan is what `ringside plan` prints.
type plan struct {
	Pools     []poolPlan      `json:"pools"`
	Gone      []string        `json:"gone"`                // names of pools that only the old configuration has
	Keys      *table.KeyMoves `json:"keys,omitempty"`      // nil: no --keys
	Instances []planInstance  `json:"instances,omitempty"` // instances that serve a pool; nil: none is known, or --from
	Changes   []string        `json:"changes"`             // what a reload would print
	Resizes   []live.Resize   `json:"resizes,omitempty"`   // changes of servers of the running instance that have not ended

	next  *table.Table
	asked bool // a running instance was asked for the instances
}

// poolPlan is what happens to the keys of one pool.
type poolPlan struct {
	table.Moves
	Routes  bool     `json:"routes"`              // routes keep replicas of other keys in the pool, or another number of them. The shares do not show that
	Modes   []string `json:"modes"`               // what happens to the keys that move, by the routes of the new file
	MaxMove float64  `json:"max_move"`            // the share of the keys that a reload may move
	Fill    string   `json:"fill_from,omitempty"` // the pool from which the pool fills in the new file; empty: none
	Resize  string   `json:"resize"`              // resize.mode by which the keys move: plain unless the pool has another mode in both files
}

// The modes: the ways in which keys move.
const (
	copied = "copied" // a replicated key moves with its value
	missed = "missed" // a key with one copy misses at its new server
	moved  = "moved"  // a key with one copy moves with its value
)

// planInstance is an instance, and whether it has the new configuration.
type planInstance struct {
	Name   string `json:"name"`
	Loaded bool   `json:"loaded"`
}

func newPlan() *cobra.Command {
	var from, keys, listener, most string
	var to cli.Admin
	var variables func() (config.Variables, error)
	cmd := &cobra.Command{
		Use:   "plan NEW.yaml",
		Short: "Show which keys a new configuration moves to other servers",
		Long: `Show which share of the keys of each pool moves, from which server to which, before a
new configuration file is loaded. The old configuration is that of a running instance,
which --admin or -c selects, or the file after --from. Nothing is changed.

The shares are those of 100,000 made-up keys, exact to half a percentage point. --keys
names a file with real keys, one per line (- is standard input). If listeners have
routes of their own, --listener selects one.

The exit status is 1 if more keys than --max-move move in a pool, or of the keys in
the file after --keys. Without --max-move, max_move of each pool in NEW.yaml is the
limit: a reload rejects the file then, unless ringside reload --accept is used.`,
		Example: `  ringside plan new.yaml
  ringside plan new.yaml --from /etc/ringside/ringside.yaml --max-move 40%
  lru_keys | ringside plan new.yaml --keys - --json`,
		Args: cli.WantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			limit, ok := config.ParsePercentage(most)
			if !ok && cmd.Flags().Changed("max-move") {
				return cli.Usage(fmt.Errorf("--max-move %s: want a share from 0%% to 100%%", most))
			}
			if from == "-" && keys == "-" || args[0] == "-" && (from == "-" || keys == "-") {
				return cli.Usage(errors.New("- is standard input: use it once"))
			}
			if from != "" && (cmd.Flags().Changed("admin") || cmd.Flags().Changed("config")) {
				return cli.Usage(errors.New("--from names the old configuration; --admin and -c select an instance that has it: use one of them"))
			}
			if listener != "" && keys == "" {
				return cli.Usage(errors.New("--listener selects the routes of --keys: give both"))
			}
			vars, err := variables()
			if err != nil {
				return err
			}
			f, err := cli.ReadArgument(cmd, args[0], vars)
			if err != nil {
				return err
			}
			var is plan
			var before *config.File
			var running admin.ConfigAnswer
			var c *admin.Client // of the running instance; nil: --from
			if from != "" {
				before, err = cli.ReadArgument(cmd, from, vars)
			} else if c, err = to.Client(); err == nil {
				defer c.Close()
				before, running, err = configOf(cmd, c)
			}
			if err != nil {
				return err
			}
			say := cli.RemarksOf(cmd)
			for _, f := range []**config.File{&before, &f} {
				var problems []string
				if *f, problems, err = withServers(cmd.Context(), *f, listsOf(&running)); err != nil {
					return err
				}
				for _, p := range problems {
					say.Warn(p)
				}
			}
			next, err := f.Build()
			if err != nil {
				return err
			}
			is.next = next
			if c != nil {
				is.compare(cmd, c, before)
			}
			old, err := before.Build()
			if err != nil {
				return err
			}
			is.Changes = config.Changes(before, f)
			old = serveBy(old, running.Lists)
			moves, gone := old.MovesTo(next, func(*table.Pool) bool { return false })
			is.Gone = gone
			for _, m := range moves {
				p := is.poolPlan(before, f, m)
				p.Routes = otherReplicas(old, next, m)
				is.Pools = append(is.Pools, p)
			}
			if keys != "" {
				if is.Keys, err = movesOfKeys(cmd.InOrStdin(), keys, listener, old, next); err != nil {
					return err
				}
			}
			var text bytes.Buffer
			if cli.AsJSON(cmd) {
				err = cli.NewEncoder(&text).Encode(&is)
			} else {
				err = is.print(&text, args[0])
			}
			if err == nil {
				_, err = io.WriteString(cmd.OutOrStdout(), f.Hide(before.Hide(text.String())))
			}
			if ok {
				return errors.Join(err, is.exceeds(limit))
			}
			if over := Excessive(f, moves); over != nil {
				err = errors.Join(err, errors.New(strings.Join(over, "; ")+": a reload rejects the file, unless ringside reload --accept is used"))
			}
			return err
		},
	}
	to.Add(cmd)
	variables = cli.EnvFlag(cmd)
	cli.JSONFlag(cmd, cli.OneJSON)
	cmd.Flags().StringVar(&from, "from", "", "the old configuration `file`, instead of that of a running instance")
	cmd.Flags().StringVar(&keys, "keys", "", "a `file` with keys, one per line; - is standard input")
	cmd.Flags().StringVar(&most, "max-move", "", "the largest `share` of keys that may move (default: max_move of each pool)")
	cmd.Flags().StringVar(&listener, "listener", "", "the `address` of the listener that has the routes for --keys (default: the first)")
	cmd.MarkFlagFilename("from", "yaml", "yml")
	cmd.MarkFlagFilename("keys")
	return cmd
}

// configOf returns the configuration of the running instance c.
func configOf(cmd *cobra.Command, c *admin.Client) (*config.File, admin.ConfigAnswer, error) {
	running, err := c.Config(cmd.Context())
	if err != nil {
		return nil, running, cli.AsUsage(err)
	}
	from := config.Environment() // the instance does not show secrets, so their files must be on this machine
	from.Lookup, from.OwnHost = config.From(running.Variables), nil
	f, err := config.ParseWith(running.File, []byte(running.Text), from)
	if err != nil {
		return nil, running, fmt.Errorf("the configuration of the instance can't be read here, because it runs another version of Ringside, or a secret file is not on this machine: use the file with --from: %w", err)
	}
	return f, running, nil
}

// serveBy returns the table t, whose pools are about to change from the given lists to those of t. A list that can't be read here
// is left out.
func serveBy(t *table.Table, lists []admin.ListInUse) *table.Table {
	for _, is := range lists {
		i := slices.IndexFunc(t.Pools, func(p *table.Pool) bool { return p.Name == is.Pool && p.ReadList != nil })
		if i < 0 {
			continue
		}
		if list, err := t.Pools[i].ReadList([]byte(is.Text)); err == nil {
			t = t.Learn(t.Pools[i], list, nil, false)
		}
	}
	return t
}

// compare asks which changes of servers have not ended, which instances serve the pools of the running configuration f,
// and compares their configurations with the new one.
func (is *plan) compare(cmd *cobra.Command, c *admin.Client, f *config.File) {
	if _, all, err := c.ServersAndHealth(cmd.Context()); err == nil && all != nil { // an instance that stops does not answer
		is.Resizes = all.Resizes
	}
	is.Instances, is.asked = is.instances(cmd, c, f), true
}

// instances returns the instances that serve a pool of the running configuration f.
func (is *plan) instances(cmd *cobra.Command, c *admin.Client, f *config.File) (list []planInstance) {
	want := fmt.Sprintf("%016x", is.next.Print())
	for i := range f.Pools {
		now, err := c.Now(cmd.Context(), f.Pools[i].Name, 100*time.Millisecond)
		if err != nil || now.Roll == nil { // the page may be off; this is only a part of the output
			continue
		}
		for _, r := range now.Roll.List {
			if !slices.ContainsFunc(list, func(p planInstance) bool { return p.Name == r.Name }) {
				list = append(list, planInstance{r.Name, r.Config == want})
			}
		}
	}
	return list
}

// movesOfKeys reads keys from the file at path, and places them with both tables.
func movesOfKeys(in io.Reader, path, listener string, old, next *table.Table) (*table.KeyMoves, error) {
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("cannot read the keys: %w", err)
		}
		defer file.Close()
		in = file
	}
	to, err := pickListener(next, listener)
	if err != nil {
		return nil, err
	}
	before, err := pickListener(old, listener)
	if err != nil {
		return nil, err
	}
	k := &table.KeyMoves{}
	err = eachKey([]string{"-"}, in, func(key string) error {
		k.Add(before, to, []byte(key), &next.Limits)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read the keys: %w", err)
	}
	k.End()
	return k, nil
}

// Excessive names the pools of f of which more keys move than their max_move allows. moves are the
// moves to the table of f.
func Excessive(f *config.File, moves []table.Moves) (list []string) {
	for _, m := range moves {
		for i := range f.Pools {
			if p := &f.Pools[i]; p.Name == m.Pool && !m.Due && m.Share*100 > p.MaxMove {
				list = append(list, fmt.Sprintf("pool %s: %s of its keys move to other servers, and its max_move is %s%%", p.Name, percent(m.Share), strconv.FormatFloat(p.MaxMove, 'f', -1, 64)))
			}
		}
	}
	return list
}

// exceeds returns an error if more keys move than the percentage `limit`.
func (is *plan) exceeds(limit float64) error {
	var list []string
	for _, m := range is.Pools {
		if !m.Due && m.Share*100 > limit {
			list = append(list, fmt.Sprintf("%s of the keys of pool %s", percent(m.Share), m.Pool))
		}
	}
	limited := slices.ContainsFunc(is.Pools, func(m poolPlan) bool { return !m.Due })
	if k := is.Keys; k != nil && limited && 100*float64(k.Moved) > limit*float64(k.Read) {
		list = append(list, fmt.Sprintf("%d of the %d keys", k.Moved, k.Read))
	}
	if list == nil {
		return nil
	}
	return fmt.Errorf("more than --max-move %s move: %s", percent(limit/100), strings.Join(list, ", "))
}

func percent(share float64) string { return strconv.FormatFloat(share*100, 'f', 1, 64) + "%" }

func (is *plan) print(to io.Writer, path string) error {
	out := bufio.NewWriter(to)
	switch {
	case len(is.Changes) == 0 && len(is.Resizes) > 0:
		fmt.Fprintf(out, "%s is loaded already. A change of servers has not ended:\n", path)
	case len(is.Changes) == 0:
		fmt.Fprintf(out, "%s changes nothing\n", path)
	default:
		fmt.Fprintf(out, "%s changes:\n", path)
	}
	for _, c := range is.Changes {
		fmt.Fprintf(out, "  %s\n", c)
	}
	for i := range is.Resizes {
		fmt.Fprintf(out, "%s\n", live.Clean(is.Resizes[i].Sentence()))
	}
	for _, p := range is.Pools {
		p.print(out)
	}
	for _, name := range is.Gone {
		fmt.Fprintf(out, "\npool %s is removed\n", name)
	}
	if k := is.Keys; k != nil {
		fmt.Fprintf(out, "\nof %s, %d move\n", cli.Counted(k.Read, "key"), k.Moved)
		if k.Nowhere > 0 {
			fmt.Fprintf(out, "  %s no server: ringside route says why\n", cli.Counted(k.Nowhere, "key")+map[bool]string{true: " has", false: " have"}[k.Nowhere == 1])
		}
		printMoves(out, k.Moves)
	}
	switch {
	case len(is.Instances) > 0:
		fmt.Fprintln(out, "\ninstances")
	case is.asked:
		fmt.Fprintln(out, "\nno instance list: it is not known which instances have loaded this file")
	}
	for _, i := range is.Instances {
		state := "has not loaded this file"
		if i.Loaded {
			state = "has loaded this file"
		}
		fmt.Fprintf(out, "  %s %s\n", i.Name, state)
	}
	return out.Flush()
}

func (m *poolPlan) print(out io.Writer) {
	switch {
	case m.New:
		fmt.Fprintf(out, "\npool %s is new\n", m.Pool)
	case m.Due && m.Share > 0:
		fmt.Fprintf(out, "\npool %s: %s of the keys move, by the change that has not ended\n", m.Pool, percent(m.Share))
	case m.Was != "":
		fmt.Fprintf(out, "\npool %s, which was %s: %s of the keys move\n", m.Pool, m.Was, percent(m.Share))
	default:
		fmt.Fprintf(out, "\npool %s: %s of the keys move\n", m.Pool, percent(m.Share))
	}
	printMoves(out, m.Moves.Moves)
	w := cli.Table(out, "  server\tkeys now\tleave\tthen")
	for _, s := range m.Servers {
		before, leave, after := percent(s.Before), percent(s.Leave), percent(s.After)
		if m.New {
			before, leave = "-", "-"
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", s.Server, before, leave, after)
	}
	w.Flush()
	if m.Routes {
		fmt.Fprintf(out, "  %s\n", cli.Paint(out, top.Warn, "Routes keep other replicas here than before. Their keys move with their values when all instances have loaded the file."))
	}
	if m.Share == 0 {
		return
	}
	for _, remark := range m.remarks() {
		fmt.Fprintf(out, "  %s\n", cli.Paint(out, top.Warn, remark))
	}
}

// poolPlan adds to the moves of a pool what the old file (before) and the new one say about them.
func (is *plan) poolPlan(before, f *config.File, m table.Moves) poolPlan {
	p := poolPlan{Moves: m, Modes: []string{}}
	of, mode := f.Pool(m.Pool), table.ResizePlain
	if was := before.Pool(m.Pool); was != nil && was.Resize.Mode != table.ResizePlain {
		mode = of.Resize.Mode
	}
	p.MaxMove, p.Resize, p.Fill = of.MaxMove/100, mode.String(), of.Fill.Pool
	one, several := false, false
	for _, l := range is.next.Listeners {
		for i := range l.Routes {
			if r := &l.Routes[i]; r.Pool.Name == m.Pool {
				one, several = one || !r.Copies.Several(), several || r.Copies.Several()
			}
		}
	}
	if several {
		p.Modes = append(p.Modes, copied)
	}
	switch {
	case one && mode == table.ResizeWarm:
		p.Modes = append(p.Modes, moved)
	case one:
		p.Modes = append(p.Modes, missed)
	}
	return p
}

// otherReplicas reports whether the routes of next keep other replicas in the pool of m than those of old, although the servers of the pool
// are the same.
func otherReplicas(old, next *table.Table, m table.Moves) bool {
	hash := func(t *table.Table) uint64 {
		for _, p := range t.Pools {
			if p.Name == m.Pool {
				return t.PrintCopies(p)
			}
		}
		return 0
	}
	return !m.New && m.Was == "" && m.Share == 0 && hash(old) != hash(next)
}

// remarks says what happens to the keys that move.
func (p *poolPlan) remarks() (list []string) {
	switch {
	case slices.Contains(p.Modes, moved):
		list = append(list, "Moved keys with one copy move with their values when all instances have loaded the file. Until a key has moved, its former server",
			"is also asked for it.")
	case slices.Contains(p.Modes, missed) && p.Resize == table.ResizeFlush.String():
		list = append(list, "Moved keys with one copy miss until they are set again. They move when all instances have loaded the file. Before that,",
			"each server that gains keys is flushed, with all that it has.")
	case slices.Contains(p.Modes, missed) && p.Fill != "":
		list = append(list, "Moved keys miss at their new servers, and are read from pool "+p.Fill+" again, with old values. This also happens to keys that",
			"were written or deleted here: the new servers do not know that. Remove fill_from first.")
	case slices.Contains(p.Modes, missed):
		list = append(list, "Moved keys with one copy miss until they are set again. Their old values stay on the former servers:",
			"if a later change moves the keys back, they are read again. Flush a server before it gets its keys back.")
	}
	if slices.Contains(p.Modes, copied) {
		list = append(list, "Replicated keys move with their values when all instances have loaded the file. Until then, a server is also asked",
			"for the keys that leave it: in addition at most its share in the column leave of all reads of replicated keys.")
	}
	return list
}

func printMoves(out io.Writer, list []table.Move) {
	if len(list) == 0 {
		return
	}
	w := cli.Table(out, "  from\tto\tof all keys")
	for _, m := range list {
		fmt.Fprintf(w, "  %s\t%s\t%s\n", orNone(m.From), orNone(m.To), percent(m.Share))
	}
	w.Flush()
}

func orNone(server string) string {
	if server == "" {
		return "none"
	}
	return server
}
