package remote

// This file implements the command `ringside clients`. It lists the clients of an instance, and
// what each of them waits for.

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ringside/internal/cli"
	"ringside/proxy/admin"
	"ringside/proxy/live"
)

func newClients() *cobra.Command {
	var to cli.Admin
	var sort string
	var limit int
	cmd := &cobra.Command{
		Use:   "clients",
		Short: "List the clients of a running instance, and what they wait for",
		Long: `List the clients of a running instance, through its admin interface: address,
connection time, requests, bytes received and sent, commands in flight, and bytes
that are buffered for the client. The last column says what each client waits for.
Either it waits for a server, or Ringside waits for the client: to send the rest of
a command, or to read its replies.

The clients with most buffered bytes are first.
This needs admin.control, which is limited to this machine unless the configuration
allows more.`,
		Example: `  ringside clients
  ringside clients --sort requests --limit 10 -c /etc/ringside/ringside.yaml`,
		Args: cli.NoFile,
		RunE: to.Ask(func(cmd *cobra.Command, c *admin.Client, _ []string) error {
			sort := strings.ReplaceAll(sort, "-", "_")
			switch {
			case !slices.Contains(admin.ClientOrders(), sort):
				return cli.Usage(fmt.Errorf("--sort %s: it is one of %s", sort, strings.Join(admin.ClientOrders(), ", ")))
			case limit < 1 || limit > admin.MaxClients:
				return cli.Usage(fmt.Errorf("--limit is from 1 to %d", admin.MaxClients))
			}
			list, err := c.Clients(cmd.Context(), sort, limit)
			if err != nil {
				return cli.AsUsage(err)
			}
			return showClients(cmd.OutOrStdout(), list, cli.AsJSON(cmd))
		}),
	}
	to.Add(cmd)
	cmd.Flags().StringVar(&sort, "sort", "held", "the order: "+strings.Join(admin.ClientOrders(), ", "))
	cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(admin.ClientOrders(), cobra.ShellCompDirectiveNoFileComp))
	cmd.Flags().IntVar(&limit, "limit", admin.DefaultClients, "the maximum number of clients")
	cli.JSONFlag(cmd, cli.EachJSON)
	return cmd
}

func showClients(out io.Writer, list admin.ClientsAnswer, asJSON bool) error {
	if asJSON {
		return cli.PrintEach(out, list.Clients)
	}
	w := cli.Table(out, "ADDRESS\tLISTENER\tAGE\tREQUESTS\tIN\tOUT\tIN FLIGHT\tHELD\tWAITS FOR")
	for _, c := range list.Clients {
		waits := "-"
		if c.Waits != nil {
			waits = c.Waits.Text()
		}
		fmt.Fprintf(w, "%s\t%s\t%v\t%d\t%s\t%s\t%d\t%s\t%s\n", c.Address, c.Listener, (time.Duration(c.AgeMS) * time.Millisecond).Round(time.Second),
			c.Requests, live.Bytes(float64(c.In)), live.Bytes(float64(c.Out)), c.InFlight, live.Bytes(float64(c.Held)), waits)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if more := list.All - len(list.Clients); more > 0 {
		fmt.Fprintf(out, "and %d more: --limit\n", more)
	}
	return nil
}
