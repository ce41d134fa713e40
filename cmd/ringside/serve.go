package main

// ringside serve

import (
	"github.com/spf13/cobra"

	"ringside/config"
)

func newServe() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve a configuration",
		Long: `Serve the pools of a configuration file.

SIGHUP reads the file again: a correct one is put in force as a whole, without
closing a connection that both name; a wrong one changes nothing and is logged
and counted. SIGTERM or SIGINT stops accepting, lets clients have the answers
to what they have asked, for at most limits.drain, and exits 0; a second one
ends at once and exits 1.`,
		Example: `  ringside serve -c /etc/ringside/ringside.yaml
  kill -HUP $(pidof ringside)`,
		Args: wantArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			signals := catch()
			f, err := config.Load(path)
			if err != nil {
				return err
			}
			log := newLogger(f.Log, cmd.ErrOrStderr())
			r, err := start(f, path, log)
			if err != nil {
				return err
			}
			for _, a := range r.driver.Addrs() {
				log.Info("listening", "address", a.String())
			}
			if r.adminAddr != nil {
				log.Info("admin interface", "address", r.adminAddr.String())
			}
			return r.serve(signals)
		},
	}
	configFlag(cmd, &path)
	return cmd
}
