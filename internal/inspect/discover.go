package inspect

// This file implements the command `ringside discover`, and asks the sources of servers for other
// commands.

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"ringside/config"
	"ringside/internal/cli"
	"ringside/internal/discover"
	"ringside/proxy/admin"
	"ringside/proxy/serverlist"
)

// lookupTime is the time limit of one lookup of a command.
const lookupTime = 10 * time.Second

// asker asks the sources. Tests replace it.
var asker = &discover.Asker{}

// withServers returns the configuration f with the servers of its sources. known, which may be nil, has
// the servers of some sources; the others are asked now. The result problems says which sources have given
// no servers.
func withServers(ctx context.Context, f *config.File, known config.Lists) (_ *config.File, problems []string, err error) {
	type key struct{ pool, source string }
	found := map[key][]serverlist.Server{}
	for i := range f.Pools {
		p := &f.Pools[i]
		for _, s := range p.Sources {
			at := key{p.Name, s.Text}
			if known != nil {
				if list, ok := known(p.Name, s.Text); ok {
					found[at] = list
					continue
				}
			}
			var l serverlist.List
			list, err := ask(ctx, s.Source)
			if err != nil {
				l.Fail(err)
			} else {
				l.Answer(time.Now(), list, s.Settings)
			}
			if servers, ok := l.Servers(); ok {
				found[at] = servers
			} else {
				problems = append(problems, fmt.Sprintf("pools.%s: the source %s gives no servers: %s", p.Name, s.Text, l.Problem))
			}
		}
	}
	f, err = f.With(func(pool, source string) ([]serverlist.Server, bool) {
		list, ok := found[key{pool, source}]
		return list, ok
	})
	return f, problems, err
}

func ask(ctx context.Context, s serverlist.Source) ([]serverlist.Server, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	return asker.Ask(ctx, s)
}

// listsOf returns the servers of the sources in the answer of an instance.
func listsOf(a *admin.ConfigAnswer) config.Lists {
	return func(pool, source string) ([]serverlist.Server, bool) {
		i := slices.IndexFunc(a.Sources, func(s admin.SourceServers) bool { return s.Pool == pool && s.Source == source })
		if i < 0 || len(a.Sources[i].Servers) == 0 {
			return nil, false
		}
		return a.Sources[i].Servers, true
	}
}

// discovered is what `ringside discover` prints.
type discovered struct {
	Source  string              `json:"source"`
	Servers []serverlist.Server `json:"servers"`
	Pools   []poolChange        `json:"pools,omitempty"` // what the answer changes in the pools of a running instance that use the source
}

// poolChange is what an answer of a source changes in a pool.
type poolChange struct {
	Pool    string   `json:"pool"`
	Added   []string `json:"added"`
	Removed []string `json:"removed"` // after the setting keep
	Moved   []string `json:"moved"`   // known servers with another address
	Held    string   `json:"held,omitempty"`
	Problem string   `json:"problem,omitempty"` // why the instance does not use the answer that it has got last
}

func newDiscover() *cobra.Command {
	var to cli.Admin
	cmd := &cobra.Command{
		Use:   "discover SOURCE",
		Short: "Show the servers of a source, and what they would change",
		Long: `Ask a source of servers, and print what it returns: the names that are hashed, and the
addresses if they differ. The forms of sources are

  dns+HOST:PORT  dnssrv+NAME  dnssrvnoa+NAME  elasticache+HOST:PORT  file+/PATH
  k8s+NAMESPACE/SERVICE:PORT

With --admin or -c, the servers are compared with those that a running instance has
from this source. This needs admin.control, which is limited to this machine unless
the configuration allows more. Nothing is changed.`,
		Example: "  ringside discover dnssrvnoa+_memcached._tcp.mc.prod.svc.cluster.local\n  ringside discover file+/etc/ringside/servers -c /etc/ringside/ringside.yaml",
		Args:    cli.WantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			source, err := config.ParseSource(args[0])
			if err != nil {
				return cli.Usage(err)
			}
			servers, err := ask(cmd.Context(), source)
			if err != nil {
				return fmt.Errorf("%s: %w", source.Text, err)
			}
			var l serverlist.List
			if l.Answer(time.Now(), servers, serverlist.Settings{}); l.Problem != "" {
				return fmt.Errorf("%s: %s", source.Text, l.Problem)
			}
			is := discovered{Source: source.Text}
			is.Servers, _ = l.Servers()
			if cmd.Flags().Changed("admin") || cmd.Flags().Changed("config") {
				if err := is.compare(cmd, &to); err != nil {
					return err
				}
			}
			if cli.AsJSON(cmd) {
				return cli.NewEncoder(cmd.OutOrStdout()).Encode(&is)
			}
			return is.print(cmd.OutOrStdout())
		},
	}
	to.Add(cmd)
	cli.JSONFlag(cmd, cli.OneJSON)
	return cmd
}

// compare compares the servers with those of a running instance.
func (is *discovered) compare(cmd *cobra.Command, to *cli.Admin) error {
	c, err := to.Client()
	if err != nil {
		return err
	}
	defer c.Close()
	running, err := c.Config(cmd.Context())
	if err != nil {
		return cli.AsUsage(err)
	}
	for _, s := range running.Sources {
		if s.Source == is.Source {
			is.Pools = append(is.Pools, is.change(&s))
		}
	}
	if is.Pools == nil {
		return cli.Usage(fmt.Errorf("no pool of the instance uses %s", is.Source))
	}
	return nil
}

// change returns what the servers would change in a pool of an instance.
func (is *discovered) change(before *admin.SourceServers) poolChange {
	p := poolChange{Pool: before.Pool, Problem: before.Problem, Added: []string{}, Removed: []string{}, Moved: []string{}}
	var l serverlist.List
	settings := serverlist.Settings{MaxChange: before.MaxChange}
	l.Answer(time.Now(), before.Servers, settings)
	l.Answer(time.Now(), is.Servers, settings)
	if l.State == serverlist.Held {
		p.Held = l.Problem
	}
	was := map[string]serverlist.Server{}
	for _, s := range before.Servers {
		was[s.Name] = s
	}
	for _, s := range is.Servers {
		old, known := was[s.Name]
		switch {
		case !known:
			p.Added = append(p.Added, s.Name)
		case old.Address != s.Address:
			p.Moved = append(p.Moved, fmt.Sprintf("%s from %s to %s", s.Name, old.Address, s.Address))
		}
		delete(was, s.Name)
	}
	for _, s := range before.Servers {
		if _, gone := was[s.Name]; gone {
			p.Removed = append(p.Removed, s.Name)
		}
	}
	return p
}

func (is *discovered) print(out io.Writer) error {
	fmt.Fprintf(out, "%s: %s\n", is.Source, cli.Counted(len(is.Servers), "server"))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, s := range is.Servers {
		fmt.Fprintf(w, "  %s", s.Name)
		if s.Address != s.Name {
			fmt.Fprintf(w, "\t%s", s.Address)
		}
		if s.Weight > 1 {
			fmt.Fprintf(w, "\tweight %d", s.Weight)
		}
		if s.Ending {
			fmt.Fprint(w, "\tends soon")
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, p := range is.Pools {
		fmt.Fprintf(out, "\npool %s\n", p.Pool)
		for _, s := range p.Added {
			fmt.Fprintf(out, "  +server %s\n", s)
		}
		for _, s := range p.Removed {
			fmt.Fprintf(out, "  -server %s, after keep\n", s)
		}
		for _, s := range p.Moved {
			fmt.Fprintf(out, "  server %s\n", s)
		}
		switch {
		case p.Held != "":
			fmt.Fprintf(out, "  this is held: %s\n", p.Held)
		case len(p.Added)+len(p.Removed)+len(p.Moved) == 0:
			fmt.Fprintln(out, "  no change")
		}
		if p.Problem != "" && p.Problem != p.Held {
			fmt.Fprintf(out, "  the instance does not use the last answer that it has got: %s\n", p.Problem)
		}
	}
	return nil
}
