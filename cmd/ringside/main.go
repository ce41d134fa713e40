// Command ringside is a memcached proxy: it makes a pool of memcached servers
// look like one.
package main

// The root of the command line. Each package below it has commands of one kind.

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"ringside/internal/cli"
	"ringside/internal/demo"
	"ringside/internal/drill"
	"ringside/internal/inspect"
	"ringside/internal/instance"
	"ringside/internal/remote"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run is main with its surroundings handed in.
func run(args []string, in io.Reader, out, errs io.Writer) int {
	return cli.Run(newRoot(), args, in, out, errs)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "ringside",
		Short: "A memcached proxy that makes a pool of memcached servers look like one",
		Long: `Ringside runs beside an application, speaks the memcached protocol to it, and
makes a pool of memcached servers look like one: every key stays where the old
client put it.

  ringside demo                        a working cluster in this process, to try
  ringside check -c ringside.yaml      is the file right, and who gets how much
  ringside serve -c ringside.yaml      serve it
  ringside reload                      let it read its file again
  ringside server list                 how its servers are; drain one, restore it
  ringside clients                     who is connected, and what each waits for
  ringside top                         what it does, second by second
  ringside drill                       break one on purpose and see what clients see`,
		Version: versionText(),
		Args:    cobra.ArbitraryArgs,
		RunE:    cli.Group,
	}
	root.AddCommand(instance.Command(versionText()), drill.Command(versionText()), demo.Command(versionText()), newVersion())
	root.AddCommand(inspect.Commands()...)
	root.AddCommand(remote.Commands()...)
	return root
}
