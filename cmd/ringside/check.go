package main

// ringside check

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"ringside/config"
	"ringside/proxy"
	"ringside/ring"
)

func newCheck() *cobra.Command {
	var path string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check a configuration and print who gets how much",
		Long: `Check a configuration file. All mistakes are printed, each with its line and
column; the exit code is then 2. A correct file prints its pools with the
share of all hashes that each server owns.`,
		Example: "  ringside check -c ringside.yaml",
		Args:    noFile,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := config.Load(path)
			if err != nil {
				return err
			}
			t, err := f.Build()
			if err != nil {
				return err
			}
			if asJSON {
				return printSharesJSON(cmd.OutOrStdout(), t)
			}
			return printShares(cmd.OutOrStdout(), path, t)
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a pool")
	return cmd
}

// share is one server's part of a pool.
type share struct {
	Name    string  `json:"name"`
	Address string  `json:"address"`
	Weight  int     `json:"weight"`
	Share   float64 `json:"share"` // of all hashes, 0 to 1
}

func sharesOf(p *proxy.Pool) (list []share, known bool) {
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

func printShares(out io.Writer, path string, t *proxy.Table) error {
	fmt.Fprintf(out, "%s is correct\n", path)
	for _, p := range t.Pools {
		list, known := sharesOf(p)
		fmt.Fprintf(out, "\npool %s: %s, %d servers\n", p.Name, p.Distribution, len(list))
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "  SERVER\tADDRESS\tWEIGHT\tSHARE")
		for _, s := range list {
			part := "-"
			if known {
				part = fmt.Sprintf("%.2f%%", 100*s.Share)
			}
			fmt.Fprintf(w, "  %s\t%s\t%d\t%s\n", s.Name, s.Address, s.Weight, part)
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	for _, l := range t.Listeners {
		fmt.Fprintf(out, "\nlistener %s\n", l.Address)
		for _, r := range l.Routes {
			how := ""
			if r.Strip {
				how = " (the servers don't see it)"
			}
			if r.Prefix == "" {
				fmt.Fprintf(out, "  all other keys: pool %s\n", r.Pool.Name)
			} else {
				fmt.Fprintf(out, "  keys with the prefix %q%s: pool %s\n", r.Prefix, how, r.Pool.Name)
			}
		}
	}
	return nil
}

func printSharesJSON(out io.Writer, t *proxy.Table) error {
	enc := json.NewEncoder(out)
	for _, p := range t.Pools {
		list, _ := sharesOf(p)
		if err := enc.Encode(struct {
			Pool         string  `json:"pool"`
			Distribution string  `json:"distribution"`
			Servers      []share `json:"servers"`
		}{p.Name, p.Distribution, list}); err != nil {
			return err
		}
	}
	return nil
}
