// Command ringside is a memcached proxy: it makes a pool of memcached servers
// look like one.
package main

// This file builds the command line of ringside. Each package that it imports contains the
// commands of one kind.

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

// run executes the command that args select and returns the exit status. The streams are
// parameters, so that tests can replace them.
func run(args []string, in io.Reader, out, errs io.Writer) int {
	return cli.Run(newRoot(), args, in, out, errs)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "ringside",
		Short: "A memcached proxy that makes a pool of memcached servers look like one",
		Long: `Ringside is a memcached proxy. It runs next to an application and makes a pool of
memcached servers look like one server. Every key stays where the old client put it.

  ringside demo                        try it: a cluster in this process
  ringside check -c ringside.yaml      validate a file, show the share of each server
  ringside serve -c ringside.yaml      start the proxy
  ringside reload                      apply a changed file
  ringside server list                 show the state of the servers
  ringside clients                     show the clients and what they wait for
  ringside top                         show traffic, errors and memory, live
  ringside drill                       inject a fault and report what clients see`,
		Version: versionText(),
		Args:    cobra.ArbitraryArgs,
		RunE:    cli.Group,
	}
	root.AddCommand(instance.Command(versionText()), drill.Command(versionText()), demo.Command(versionText()), newVersion())
	root.AddCommand(inspect.Commands()...)
	root.AddCommand(remote.Commands()...)
	return root
}
