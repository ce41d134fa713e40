// Command ringside is a memcached proxy: it makes a pool of memcached servers
// look like one.
package main

// The command line: one root, a file for each command.

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"ringside/internal/top"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run is main with its surroundings handed in.
func run(args []string, in io.Reader, out, errs io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	err := root.Execute()
	if err == nil {
		return 0
	}
	fromFile := isConfig(err) || errors.As(err, new(*refusedError))
	unread := errors.As(err, new(*unreadError))
	wrong := errors.As(err, new(*usageError))
	switch {
	case slices.Contains(args, "--json"): // also where the command line could not be read
		printErrorJSON(errs, err)
	case wrong:
		fmt.Fprintf(errs, "%s\nTry 'ringside --help'.\n", paint(errs, top.Bad, fmt.Sprintf("ringside: %v", err)))
	case fromFile:
		fmt.Fprintln(errs, paint(errs, top.Bad, err.Error())) // file:line:column first, as editors want it
	default:
		fmt.Fprintln(errs, paint(errs, top.Bad, fmt.Sprintf("ringside: %v", err)))
	}
	switch {
	case wrong || fromFile || unread:
		return exitUsage
	case errors.As(err, new(*notUpError)):
		return exitNotUp
	}
	return exitFailed
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
		Version:       versionText(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return cmd.Help()
		},
	}
	root.SetFlagErrorFunc(wrongFlag)
	root.AddCommand(newServe(), newReload(), newHealth(), newCheck(), newRoute(), newDistributions(), newImport(), newServer(), newTag(), newClients(), newTop(), newTrace(), newDrill(), newDemo(), newVersion())
	return root
}
