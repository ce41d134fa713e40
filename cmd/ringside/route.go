package main

// ringside route

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"ringside/config"
	"ringside/proxy"
)

func newRoute() *cobra.Command {
	var path, listener string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "route KEY… | -",
		Short: "Print where keys go",
		Long: `Print where keys go: the pool, the hash and what it hits, the owner, and who is
asked next when the owner is dead. With - the keys are read from standard
input, one a line. No server is asked.`,
		Example: `  ringside route user:17 user:18
  lru_keys | ringside route - --json`,
		Args: wantArgs(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := config.Load(path)
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
			if asJSON {
				show = printPlanJSON
			}
			err = eachKey(args, cmd.InOrStdin(), func(key string) error { return show(out, l.Plan([]byte(key))) })
			return errors.Join(err, out.Flush())
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line")
	cmd.Flags().StringVar(&listener, "listener", "", "the `address` whose routes count, where listeners differ (default: the first)")
	return cmd
}

func pickListener(t *proxy.Table, address string) (*proxy.Listener, error) {
	var have []string
	for i := range t.Listeners {
		if l := &t.Listeners[i]; address == "" || l.Address == strings.TrimPrefix(address, "unix:") {
			return l, nil
		}
		have = append(have, t.Listeners[i].Address)
	}
	return nil, &usageError{fmt.Errorf("no listener %q; the file has %s", address, strings.Join(have, ", "))}
}

// eachKey calls f for the keys of the command line, or for the lines of in.
func eachKey(args []string, in io.Reader, f func(key string) error) error {
	if len(args) != 1 || args[0] != "-" {
		for _, key := range args {
			if err := f(key); err != nil {
				return err
			}
		}
		return nil
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if key := strings.TrimSuffix(lines.Text(), "\r"); key != "" {
			if err := f(key); err != nil {
				return err
			}
		}
	}
	return lines.Err()
}

func names(p *proxy.Pool, list []int) []string {
	out := make([]string, 0, len(list))
	for _, i := range list {
		out = append(out, p.Servers[i].Name)
	}
	return out
}

func printPlan(out io.Writer, p proxy.Plan) error {
	if !p.Routed {
		_, err := fmt.Fprintf(out, "%s: no route takes this key; add one without a prefix\n", p.Key)
		return err
	}
	fmt.Fprintf(out, "%s\n  pool        %s", p.Key, p.Pool.Name)
	if p.Prefix != "" {
		fmt.Fprintf(out, ", by the prefix %q", p.Prefix)
	}
	fmt.Fprintln(out)
	if p.Hashed != p.Key {
		fmt.Fprintf(out, "  hashed      %s\n", p.Hashed)
	}
	fmt.Fprintf(out, "  hash        %08x\n", p.Hash)
	if p.Hit != "" {
		fmt.Fprintf(out, "  hits        %s\n", p.Hit)
	}
	owner := "nobody"
	if p.Owner >= 0 {
		s := p.Pool.Servers[p.Owner]
		owner = s.Name
		if s.Name != s.Address {
			owner += " (" + s.Address + ")"
		}
	}
	fmt.Fprintf(out, "  owner       %s\n", owner)
	if len(p.Successors) > 0 {
		fmt.Fprintf(out, "  successors  %s\n", strings.Join(names(p.Pool, p.Successors), ", "))
	}
	return nil
}

func printPlanJSON(out io.Writer, p proxy.Plan) error {
	type line struct {
		Key        string   `json:"key"`
		Pool       string   `json:"pool,omitempty"`
		Prefix     string   `json:"prefix,omitempty"`
		Hashed     string   `json:"hashed,omitempty"`
		Hash       string   `json:"hash,omitempty"` // hexadecimal: 64 bits don't fit a JSON number
		Hit        string   `json:"hits,omitempty"`
		Owner      string   `json:"owner,omitempty"`
		Address    string   `json:"address,omitempty"`
		Successors []string `json:"successors,omitempty"`
		Error      string   `json:"error,omitempty"`
	}
	l := line{Key: p.Key}
	if !p.Routed {
		l.Error = "no route takes this key"
	} else {
		l.Pool, l.Prefix, l.Hashed, l.Hash, l.Hit = p.Pool.Name, p.Prefix, p.Hashed, fmt.Sprintf("%08x", p.Hash), p.Hit
		l.Successors = names(p.Pool, p.Successors)
		if p.Owner >= 0 {
			l.Owner, l.Address = p.Pool.Servers[p.Owner].Name, p.Pool.Servers[p.Owner].Address
		}
	}
	return json.NewEncoder(out).Encode(l)
}
