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

ringside reload, SIGHUP and, with watch: on, a change of the file make it read the
file again: a correct one is put in force as a whole, and connections of
listeners and servers that stand in both files live on; a wrong one changes
nothing and is logged and counted. Changes of engine wait for the next start. SIGTERM or SIGINT stops accepting, lets clients have the answers
to what they have asked, for at most limits.drain, and exits 0; a second one
ends at once and exits 1.`,
		Example: `  ringside serve -c /etc/ringside/ringside.yaml
  kill -HUP $(pidof ringside)`,
		Args: noFile,
		RunE: func(cmd *cobra.Command, _ []string) error {
			signals := catch()
			w := fileWatch{path: path}
			w.reading()
			f, err := config.Load(path)
			if err != nil {
				return err
			}
			log, logging := newLogger(f.Log, cmd.ErrOrStderr())
			r, err := start(f, w, log, logging)
			if err != nil {
				return err
			}
			return r.serve(signals)
		},
	}
	configFlag(cmd, &path)
	return cmd
}
