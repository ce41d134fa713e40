// Command ringside is a memcached proxy: it makes a pool of memcached servers
// look like one.
package main

import (
	"io"
	"os"

	"ringside/internal/cli"
	"ringside/internal/command"
)

// version is the version that the build sets (-ldflags "-X main.version=…"). If it is empty,
// the version of the module in the build info counts.
var version string

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run executes the command that args select and returns the exit status. The streams are
// parameters, so that tests can replace them.
func run(args []string, in io.Reader, out, errs io.Writer) int {
	return cli.Run(command.Root(version), args, in, out, errs)
}
