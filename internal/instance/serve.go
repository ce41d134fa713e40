package instance

// This file implements the command `ringside serve`.

import (
	"log/slog"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"ringside/internal/cli"
)

// Command returns the command `ringside serve`. version is the version of this program.
func Command(version string) *cobra.Command {
	var path string
	var over bool
	var login cli.Login
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Start the proxy",
		Long: `Start the proxy with a configuration file.

ringside reload, SIGHUP and, with watch: on, a change of the file reload it. A valid
file is applied as a whole; connections of listeners and servers that are in both
files stay open. An invalid file changes nothing, and is logged and counted. Changes
of engine take effect at the next start. After SIGTERM or SIGINT the process accepts
no new clients, finishes the requests in flight for at most limits.drain, and exits
with 0. A second signal ends it at once with 1.

With --take-over, the new process takes the listening sockets of the instance that
has the admin interface of the same file. When it is ready, the old one stops
accepting, so no client is refused. The old process keeps its clients until they
disconnect, for at most its limits.drain, and ends. If there is no old process, the
new one starts as usual. Both must run as the same user; each verifies the other. --ca
and the flags after it are for the admin interface of the old one.`,
		Example: `  ringside serve -c /etc/ringside/ringside.yaml
  kill -HUP $(pidof ringside)`,
		Args: cli.NoFile,
		RunE: func(cmd *cobra.Command, _ []string) error {
			signals := Catch()
			signal.Ignore(syscall.SIGPIPE) // the reader of the log may end before this process
			w := fileWatch{path: path}
			if path == "-" {
				w.path = "" // standard input cannot be read again, so there is no file for a reload
			}
			w.reading()
			f, err := cli.ReadConfig(cmd, path, w.variables())
			if err != nil {
				return err
			}
			var log *slog.Logger
			lines := newLineQueue(cmd.ErrOrStderr(), func(n uint64) {
				log.Warn("log lines were dropped, because nothing has read the log", "count", n)
			})
			defer lines.close()
			log, logging := NewLogger(f, lines)
			var taken *takeover
			if over {
				stopping := func() {
					log.Info("the old process is stopping; this one starts when it has ended", "admin", f.Admin.Address.Address)
				}
				if taken, err = takeOver(cmd.Context(), f, &login, signals, stopping); err != nil {
					return err
				}
			}
			r, err := start(f, w, version, log, logging, taken)
			if taken != nil {
				if err == nil {
					if err = r.confirm(signals); err != nil {
						err = takeOverError(f, err)
						taken.conn.Close()
						r.Stop(signals, 0) // send the remaining replies to the clients that this process has already accepted
					}
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
	login.Add(cmd.Flags())
	cmd.Flags().BoolVar(&over, "take-over", false, "replace the running instance that uses this file")
	return cmd
}
