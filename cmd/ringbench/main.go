//go:build linux

// Command ringbench measures Ringside beside nutcracker and beside clients without a proxy.
//
//	ringbench run           measures cost and speed of the peers in turn
//	ringbench outages       measures what clients get while one of three servers is down
//	ringbench soak          runs a long load on Ringside, kills servers, and checks whether memory grows
//	ringbench instructions  counts the instructions of the engine alone, and compares with an earlier count
//	ringbench load          sends a checked load to one address
//
// The exit code is 0; 1 if a reply was wrong or lost, a program could not be started, or a cost
// rose; 2 for an invalid command line.
package main

// This file selects the command that the command line names.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
)

const usage = `ringbench measures Ringside beside nutcracker and beside clients without a proxy.

  ringbench run [flags]            measure cost and speed of the peers in turn
  ringbench outages [flags]        let a server go, and count what clients get
  ringbench soak [flags]           load Ringside for long, kill servers, and see whether its memory grows
  ringbench instructions [flags]   count what the engine alone executes
  ringbench load [flags]           put a checked load on one address

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
	commands := map[string]func(context.Context, []string) error{
		"run": runCommand, "outages": outagesCommand, "soak": soakCommand, "instructions": instructionsCommand, "load": loadCommand,
	}
	if len(args) > 0 && commands[args[0]] != nil {
		return commands[args[0]](ctx, args[1:])
	}
	fmt.Fprint(os.Stderr, usage)
	if len(args) > 0 && (args[0] == "-h" || args[0] == "--help" || args[0] == "help") {
		return nil
	}
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

// numbers defines a flag that is a list of integers with commas.
func numbers(flags *flag.FlagSet, list *[]int, name, usage string) {
	flags.Func(name, usage, func(text string) error {
		var ids []int
		for word := range strings.SplitSeq(text, ",") {
			id, err := strconv.Atoi(word)
			if err != nil {
				return errors.New("use numbers, with commas")
			}
			ids = append(ids, id)
		}
		*list = ids
		return nil
	})
}
