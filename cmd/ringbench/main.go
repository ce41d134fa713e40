//go:build linux

// Command ringbench measures Ringside beside its peers.
//
//	ringbench load -addr HOST:PORT   puts a checked load on one address
//	ringbench run -ringside PATH     measures Ringside and its peers in turn
//	ringbench curves -ringside PATH  measures how cost grows with load, keys, servers and their outages
//	ringbench where -ringside PATH   tells where time goes: kernel, system calls, functions
//	ringbench soak -ringside PATH    loads Ringside for long, kills servers, and sees whether it grows
//	ringbench outages -ringside PATH tells what clients get while one of three servers is gone
//	ringbench tails -ringside PATH   tells what one server that is slow now and then does to all reads
//	ringbench slow -listen ADDR -to ADDR  stands before a memcached and holds back some of its answers
//	ringbench page -page FILE -from DIR  puts what other commands have saved into a page
//	ringbench wakeups                tells what a wakeup costs on this machine
//	ringbench instructions           counts the instructions of the engine alone, and compares with an earlier count
//
// Its exit code is 0, or 1 when a reply was wrong or lost or something could not
// be started, or 2 for a command line it does not understand.
package main

// The commands.

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

// parse reads flags; what is wrong with them has been said when it returns.
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
