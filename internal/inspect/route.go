package inspect

// This file implements the command `ringside route`.

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ringside/config"
	"ringside/internal/cli"
	"ringside/proxy/table"
)

func newRoute() *cobra.Command {
	var path, listener string
	var encoded bool
	var variables func() (config.Variables, error)
	cmd := &cobra.Command{
		Use:   "route KEY… | -",
		Short: "Show the servers of keys",
		Long: `Show the pool, the hash and the server of each key. The successors are the servers that
the client of this distribution would use if the first server were dead. The output also
has the servers with replicas, beginning with the primary, and the substitute servers, in
their order. With - the keys are read from standard input, one per line. No server is
contacted.`,
		Example: `  ringside route user:17 user:18
  lru_keys | ringside route - --json`,
		Args: someKeys,
		RunE: func(cmd *cobra.Command, args []string) error {
			from, err := variables()
			if err != nil {
				return err
			}
			f, err := cli.ReadConfig(cmd, path, from)
			if err != nil {
				return err
			}
			t, err := f.Build()
			if err != nil {
				return err
			}
			l, err := pickListener(t, listener)
			if err != nil {
				return err
			}
			out := bufio.NewWriter(cmd.OutOrStdout())
			show := printPlan
			if cli.AsJSON(cmd) {
				show = printPlanJSON
			}
			lost := 0
			err = eachKey(args, cmd.InOrStdin(), func(key string) error {
				if encoded {
					b, err := base64.StdEncoding.DecodeString(key)
					if err != nil {
						return cli.Usage(fmt.Errorf("%q is not base64: %w", key, err))
					}
					key = string(b)
				}
				p := l.Plan([]byte(key))
				why := p.Nowhere(&t.Limits, encoded)
				if why != "" {
					lost++
				}
				return show(out, p, why)
			})
			if err = errors.Join(err, out.Flush()); err == nil && lost > 0 {
				err = fmt.Errorf("keys that go nowhere: %d", lost)
			}
			return err
		},
	}
	cli.ConfigFlag(cmd, &path)
	variables = cli.EnvFlag(cmd)
	cli.JSONFlag(cmd, cli.EachJSON)
	cmd.Flags().BoolVar(&encoded, "base64", false, "keys are base64, as in meta commands with the flag b")
	cmd.Flags().StringVar(&listener, "listener", "", "the `address` of the listener that has the routes, if listeners differ (default: the first)")
	return cmd
}

func someKeys(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cli.Usage(errors.New("which keys? give them behind route, or - to read them from standard input"))
	}
	return nil
}

func pickListener(t *table.Table, address string) (*table.Listener, error) {
	var have []string
	for i := range t.Listeners {
		if l := &t.Listeners[i]; address == "" || l.Address == strings.TrimPrefix(address, "unix:") {
			return l, nil
		}
		have = append(have, t.Listeners[i].Address)
	}
	return nil, cli.Usage(fmt.Errorf("no listener %q; the file has %s", address, strings.Join(have, ", ")))
}

// eachKey calls f for each key of the command line. If the only argument is -, it calls f for
// each line of the reader `in`, that is standard input.
func eachKey(args []string, in io.Reader, f func(key string) error) error {
	if slices.Contains(args, "-") && len(args) > 1 {
		return cli.Usage(errors.New("- is the keys on standard input: use it alone"))
	}
	if args[0] != "-" {
		for _, key := range args {
			if err := f(key); err != nil {
				return err
			}
		}
		return nil
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, longestLine)
	n := 1
	for ; lines.Scan(); n++ {
		if key := strings.TrimSuffix(lines.Text(), "\r"); key != "" {
			if err := f(key); err != nil {
				return err
			}
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("line %d has more than %d bytes: write one key on each line", n, longestLine-1)
	}
	return lines.Err()
}

// longestLine is the size of the buffer for a line of keys, in bytes. The line and its end must fit.
const longestLine = 1 << 20

// printPlan prints which servers have a key. If no server has the key, why is the reason, and
// printPlan prints only that.
func printPlan(out io.Writer, p table.Plan, why string) error {
	if why != "" {
		_, err := fmt.Fprintf(out, "%s: %s\n", p.Key, why)
		return err
	}
	fmt.Fprintf(out, "%s\n  pool        %s", p.Key, p.Pool.Name)
	if p.Match != "" {
		fmt.Fprintf(out, ", by the match %q", p.Match)
	} else if p.Prefix != "" {
		fmt.Fprintf(out, ", by the prefix %q", p.Prefix)
	}
	fmt.Fprintln(out)
	if p.Hashed != p.Key {
		fmt.Fprintf(out, "  hashed      %s\n", p.Hashed)
	}
	fmt.Fprintf(out, "  hash        %08x\n", p.Hash)
	if p.Hit.Kind != "" {
		fmt.Fprintf(out, "  hits        %s\n", p.Hit)
	}
	owner := "none"
	if p.Owner >= 0 {
		s := p.Pool.Servers[p.Owner]
		owner = s.Name
		if s.Name != s.Address {
			owner += " (" + s.Address + ")"
		}
	}
	fmt.Fprintf(out, "  owner       %s\n", owner)
	if len(p.Successors) > 0 {
		fmt.Fprintf(out, "  successors  %s\n", strings.Join(p.SuccessorNames(), ", "))
	}
	for i, m := range p.Copies {
		fmt.Fprintf(out, "  %-10s  %s\n", [...]string{"replicas", ""}[min(i, 1)], holderText(m))
	}
	if len(p.Substitutes) > 0 {
		fmt.Fprintf(out, "  substitute  %s%s\n", strings.Join(serverNames(p.Substitutes), ", "), gutterText(p))
	}
	return nil
}

// holderText describes a server that keeps a replica, with its name, host, zone and pool.
func holderText(m table.PoolServer) string {
	t := m.Target()
	text := fmt.Sprintf("%s on host %s", t.Name, t.Host)
	if t.Zone != "" {
		text += ", zone " + t.Zone
	}
	return text + ", pool " + m.Pool.Name
}

func serverNames(list []table.PoolServer) (names []string) {
	for _, m := range list {
		names = append(names, m.Target().Name)
	}
	return names
}

func gutterText(p table.Plan) string {
	if p.Pool.Failover.Mode != table.Gutter {
		return ""
	}
	return " of pool " + p.Pool.Failover.Gutter.Name
}

func printPlanJSON(out io.Writer, p table.Plan, why string) error {
	return cli.NewEncoder(out).Encode(p.JSON(why))
}
