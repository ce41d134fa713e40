// Package command builds the command line of ringside. Each package that it imports contains the
// commands of one kind.
package command

import (
	"github.com/spf13/cobra"

	"ringside/internal/cli"
	"ringside/internal/demo"
	"ringside/internal/drill"
	"ringside/internal/inspect"
	"ringside/internal/instance"
	"ringside/internal/remote"
)

// Root returns the command line of ringside. version is the version that the build has set; if it is
// empty, the version of the module in the build info counts.
func Root(version string) *cobra.Command {
	if version == "" {
		version = builtVersion()
	}
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
		Version: version,
		Args:    cobra.ArbitraryArgs,
		RunE:    cli.Group,
	}
	root.AddCommand(instance.Command(version), drill.Command(), demo.Command(version), newVersion(version))
	root.AddCommand(inspect.Commands()...)
	root.AddCommand(remote.Commands()...)
	return root
}
