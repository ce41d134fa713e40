package main

// ringside reload

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"ringside/proxy/admin"
)

func newReload() *cobra.Command {
	var to adminFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Let a running Ringside read its configuration again",
		Long: `Let a running Ringside read its configuration file again, by its admin
interface, wait until it is in force, and print what it has changed.

It exits 0 when the file is in force; 2 when it was refused, with the reasons,
and the old configuration stays in force as a whole; 1 when no Ringside answers.
It needs admin.control, which is for this machine unless the configuration opens
it. With -c the file says where the admin interface is: when that is what has
changed, name the old address by --admin. SIGHUP does the same without an
answer, and watch: on without being asked.`,
		Example: `  ringside reload
  ringside reload -c /etc/ringside/ringside.yaml`,
		Args: noFile,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := to.client()
			if err != nil {
				return err
			}
			defer c.Close()
			done, err := c.Reload(cmd.Context())
			if s := (*admin.StatusError)(nil); errors.As(err, &s) && s.Status == http.StatusUnprocessableEntity {
				return &refusedError{err}
			}
			if err != nil {
				return blame(err)
			}
			if asJSON {
				return newEncoder(cmd.OutOrStdout()).Encode(done)
			}
			return printReloaded(cmd.OutOrStdout(), done)
		},
	}
	to.add(cmd)
	jsonFlag(cmd, &asJSON, oneJSON)
	return cmd
}

func printReloaded(out io.Writer, r admin.Reloaded) error {
	fmt.Fprintf(out, "%s is in force (generation %d)\n", r.File, r.Generation)
	if len(r.Changes)+len(r.NextStart) == 0 {
		fmt.Fprintln(out, "  it changes nothing")
	}
	for _, c := range r.Changes {
		fmt.Fprintf(out, "  %s\n", c)
	}
	for _, c := range r.NextStart {
		fmt.Fprintf(out, "  at the next start: %s\n", c)
	}
	return nil
}
