// Command ringside is a memcached proxy: it makes a pool of memcached servers
// look like one.
package main

// The command line: one root, a file for each command.

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"ringside/config"
)

// version is set by the build (-ldflags "-X main.version=…"); else it is what
// Go knows of the module.
var version string

// Exit codes: 0, done; 1, it failed; 2, the command line or the configuration
// is wrong.
const (
	exitFailed = 1
	exitUsage  = 2
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
	switch e := (*usageError)(nil); {
	case err == nil:
		return 0
	case errors.As(err, &e):
		fmt.Fprintf(errs, "ringside: %v\nTry 'ringside --help'.\n", err)
		return exitUsage
	case isConfig(err), errors.As(err, new(*refusedError)):
		fmt.Fprintln(errs, err) // file:line:column first, as editors want it
		return exitUsage
	default:
		fmt.Fprintf(errs, "ringside: %v\n", err)
		return exitFailed
	}
}

// usageError is a mistake on the command line.
type usageError struct{ error }

func isConfig(err error) bool {
	var e config.Errors
	return errors.As(err, &e)
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
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	root.AddCommand(newServe(), newReload(), newCheck(), newRoute(), newDistributions(), newImport(), newServer(), newDrill(), newDemo(), newVersion())
	return root
}

func unknownCommand(cmd *cobra.Command, name string) error {
	err := fmt.Errorf("unknown command %q", name)
	if near := cmd.SuggestionsFor(name); len(near) > 0 {
		err = fmt.Errorf("%w; did you mean %q?", err, near[0])
	}
	return &usageError{err}
}

// noFile refuses arguments of a command that takes its file by -c.
func noFile(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return &usageError{fmt.Errorf("%q is one word too many; a configuration file goes behind -c: ringside %s -c %s", args[0], cmd.Name(), args[0])}
	}
	return nil
}

// wantArgs turns cobra's complaints about arguments into usage errors.
func wantArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return &usageError{err}
		}
		return nil
	}
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  ringside version",
		Args:    wantArgs(cobra.NoArgs),
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprintf(cmd.OutOrStdout(), "ringside %s %s %s/%s\n", versionText(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
		},
	}
}

func versionText() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// configFlag adds -c to a command.
func configFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVarP(path, "config", "c", "ringside.yaml", "the configuration `file`")
	cmd.MarkFlagFilename("config", "yaml", "yml")
}
