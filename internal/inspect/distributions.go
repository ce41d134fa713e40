package inspect

// This file implements the command `ringside distributions`.

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"ringside/config"
	"ringside/internal/cli"
)

func newDistributions() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "distributions",
		Short: "List the placement rules and the clients that use them",
		Long: `List the values of a pool's distribution: the placement rule, the clients that use it,
and its other names. Use the rule of your clients, so that every key stays where it is.
For a new pool, use ketama-points.`,
		Example: "  ringside distributions | grep -i php",
		Args:    cli.WantArgs(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cli.AsJSON(cmd) {
				var list []distribution
				for _, p := range config.Presets() {
					list = append(list, distribution{p.Name, p.For, p.Aliases})
				}
				return cli.PrintEach(cmd.OutOrStdout(), list)
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
	cli.JSONFlag(cmd, cli.EachJSON)
	return cmd
}

// distribution is the JSON form of a placement rule, with the clients that use it.
type distribution struct {
	Name    string   `json:"name"`
	For     string   `json:"for"`
	Aliases []string `json:"aliases,omitempty"`
}
