package main

// ringside distributions

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"ringside/config"
)

func newDistributions() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "distributions",
		Short: "List the rules that give keys to servers, and who uses each",
		Long: `List what a pool's distribution may be: the rule, the clients that use it, and
its other names. Take the one that your clients use, so that every key stays
where it is; for a new pool take ketama-points.`,
		Example: "  ringside distributions | grep -i php",
		Args:    wantArgs(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				return printDistributionsJSON(cmd.OutOrStdout())
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			for _, p := range config.Presets() {
				also := ""
				if len(p.Aliases) > 0 {
					also = " (also " + strings.Join(p.Aliases, ", ") + ")"
				}
				fmt.Fprintf(w, "%s\t%s%s\n", p.Name, p.For, also)
			}
			return w.Flush()
		},
	}
	jsonFlag(cmd, &asJSON, eachJSON)
	return cmd
}

func printDistributionsJSON(out io.Writer) error {
	e := newEncoder(out)
	for _, p := range config.Presets() {
		if err := e.Encode(struct {
			Name    string   `json:"name"`
			For     string   `json:"for"`
			Aliases []string `json:"aliases,omitempty"`
		}{p.Name, p.For, p.Aliases}); err != nil {
			return err
		}
	}
	return nil
}
