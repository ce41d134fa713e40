package instance

// ringside serve

import (
	"github.com/spf13/cobra"

	"ringside/internal/cli"
)

// Command makes the command of a Ringside of this version.
func Command(version string) *cobra.Command {
	var path string
	var over bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve a configuration",
		Long: `Serve the pools of a configuration file.

ringside reload, SIGHUP and, with watch: on, a change of the file make it read the
file again: a correct one is put in force as a whole, and connections of
listeners and servers that stand in both files live on; a wrong one changes
nothing and is logged and counted. Changes of engine wait for the next start.
SIGTERM or SIGINT stops accepting, lets clients have the answers to what they
have asked, for at most limits.drain, and exits 0; a second one ends at once and
exits 1.

With --take-over it starts beside the Ringside that has the admin interface of
the same file, gets its listening sockets, and when it is ready tells it to stop
accepting: no client is refused. The old one keeps the clients that it has until
they leave, for at most its limits.drain, and ends. Where there is none it starts
as usual. Both must be processes of the same user; each checks the other.`,
		Example: `  ringside serve -c /etc/ringside/ringside.yaml
  kill -HUP $(pidof ringside)`,
		Args: cli.NoFile,
		RunE: func(cmd *cobra.Command, _ []string) error {
			signals := Catch()
			w := fileWatch{path: path}
			if path == "-" {
				w.path = "" // what has been read is gone
			}
			w.reading()
			f, err := cli.ReadConfig(cmd, path)
			if err != nil {
				return err
			}
			log, logging := NewLogger(f.Log, cmd.ErrOrStderr())
			var taken *takeover
			if over {
				if taken, err = takeOver(cmd.Context(), f); err != nil {
					return err
				}
			}
			r, err := start(f, w, version, log, logging, taken)
			if taken != nil {
				if err == nil {
					err = taken.ready()
				}
				taken.close()
			}
			if err != nil {
				return err
			}
			return r.Serve(signals)
		},
	}
	cli.ConfigFlag(cmd, &path)
	cmd.Flags().BoolVar(&over, "take-over", false, "take the place of the Ringside that runs with this file")
	return cmd
}
