package remote

// ringside health

import (
	"fmt"

	"github.com/spf13/cobra"

	"ringside/internal/cli"
	"ringside/proxy/admin"
)

func newHealth() *cobra.Command {
	var to cli.Admin
	var alive, asJSON bool
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask a running Ringside whether clients should come to it",
		Long: `Ask a running Ringside whether clients should come to it, as /readyz of its admin
interface says: for probes in images without a shell or curl.

It exits 0 when it is ready; 1 when it is not, with the reason, or when nobody
answers. With --alive it asks /healthz: does every loop answer. A probe that
restarts should ask that, and one that sends clients elsewhere should not.`,
		Example: `  ringside health
  ringside health --alive -c /etc/ringside/ringside.yaml`,
		Args: cli.NoFile,
		RunE: to.Ask(func(cmd *cobra.Command, c *admin.Client, _ []string) error {
			ask := c.Ready
			if alive {
				ask = c.Alive
			}
			said, err := ask(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return cli.NewEncoder(cmd.OutOrStdout()).Encode(struct {
					Health string `json:"health"`
				}{said})
			}
			fmt.Fprintln(cmd.OutOrStdout(), said)
			return nil
		}),
	}
	to.Add(cmd)
	cmd.Flags().BoolVar(&alive, "alive", false, "ask whether every loop answers, not whether clients should come")
	cli.JSONFlag(cmd, &asJSON, cli.OneJSON)
	return cmd
}
