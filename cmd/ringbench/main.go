//go:build linux

// Command ringbench compares Ringside with other memcached proxies.
//
//	ringbench load -addr HOST:PORT   sends a checked load to one address
//	ringbench run -ringside PATH     measures Ringside and its peers in turn
//	ringbench curves -ringside PATH  measures how cost grows with load, keys, servers and servers that are down
//	ringbench where -ringside PATH   shows where CPU time is spent: kernel, system calls, functions
//	ringbench soak -ringside PATH    runs a long load on Ringside, kills servers, and checks whether memory grows
//	ringbench outages -ringside PATH measures what clients get while one of three servers is down
//	ringbench tails -ringside PATH   measures how one server with some slow replies affects all reads
//	ringbench slow -listen ADDR -to ADDR  forwards to a memcached and delays some of its replies
//	ringbench page -page FILE -from DIR  fills a page with the saved results of other commands
//	ringbench wakeups                measures the cost of a wakeup on this machine
//	ringbench instructions           counts the instructions of the engine alone, and compares with an earlier count
//
// The exit code is 0; 1 if a reply was wrong or lost or a program could not be started; 2 for an
// invalid command line.
package main

// This file selects the command that the command line names.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

const usage = `ringbench measures Ringside beside its peers.

  ringbench load -addr HOST:PORT [flags]   put a checked load on one address
  ringbench run [flags]                    measure Ringside and its peers in turn
  ringbench curves [flags]                 measure how cost grows
  ringbench where [flags]                  tell where time goes
  ringbench soak [flags]                   load Ringside for long and see whether it grows
  ringbench outages [flags]                let a server go, and count what clients get
  ringbench tails [flags]                  let a server be slow now and then, and measure all reads
  ringbench slow -listen ADDR -to ADDR     be before a memcached, and hold back some of its answers
  ringbench page -page FILE -from DIR      put what others have saved as JSON into a page
  ringbench wakeups [flags]                tell what a wakeup costs here
  ringbench instructions [flags]           count what the engine alone executes

"ringbench COMMAND -h" lists the flags of a command.
`

var errUsage = errors.New("usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, os.Args[1:])
	stop()
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "ringbench:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string) error {
	if len(args) == 0 {
		args = []string{""}
	}
	switch args[0] {
	case "load":
		return loadCommand(ctx, args[1:])
	case "run":
		return runCommand(ctx, args[1:])
	case "curves":
		return curvesCommand(ctx, args[1:])
	case "where":
		return whereCommand(ctx, args[1:])
	case "soak":
		return soakCommand(ctx, args[1:])
	case "outages":
		return outagesCommand(ctx, args[1:])
	case "tails":
		return tailsCommand(ctx, args[1:])
	case "slow":
		return slowCommand(ctx, args[1:])
	case "page":
		return pageCommand(args[1:])
	case "wakeups":
		return wakeupsCommand(args[1:])
	case "instructions":
		return instructionsCommand(ctx, args[1:])
	case "-h", "--help", "help":
		fmt.Print(usage)
		return nil
	}
	fmt.Fprint(os.Stderr, usage)
	return errUsage
}

// parse parses the flags of a command. If it returns an error, the reason is already printed.
func parse(flags *flag.FlagSet, args []string) error {
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return err
	case err != nil:
		return errUsage
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(flags.Output(), "%s takes flags only, what is %q?\n", flags.Name(), flags.Arg(0))
		return errUsage
	}
	return nil
}
