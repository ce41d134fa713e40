package cli

// This file prints the error of a command and determines the exit status of the program.

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"ringside/config"
	"ringside/internal/top"
)

// These are the exit statuses of the program; 0 is success. Ringside never exits with 2 on
// purpose, because the Go runtime exits with 2 after a panic or a fatal error. A supervisor must
// restart a process that crashed, but not a process with a wrong configuration or command line.
const (
	exitFailed = 1
	exitNotUp  = 3  // ringside top --once has found a problem, such as a server that is not up
	exitUsage  = 64 // the command line is wrong (EX_USAGE in sysexits.h)
	exitConfig = 78 // the configuration is wrong or cannot be read (EX_CONFIG in sysexits.h)
)

// exitError is an error with its own exit status and its own form of output.
type exitError struct {
	error
	code     int
	help     bool // also print the hint to try --help
	position bool // print the text without "ringside: " in front, because it begins with file:line:column, as editors expect
}

// Usage converts err to the error for a wrong command line, with its exit status.
func Usage(err error) error { return &exitError{error: err, code: exitUsage, help: true} }

// Refused converts err to the error for a configuration that a running instance has rejected.
func Refused(err error) error { return &exitError{error: err, code: exitConfig, position: true} }

// NotUp converts err to the error with which `ringside top --once` reports a problem of the
// pools.
func NotUp(err error) error { return &exitError{error: err, code: exitNotUp} }

// Unreadable returns the error for a configuration file that cannot be read. remedy says what the
// user can do.
func Unreadable(err error, remedy string) error {
	return &exitError{error: fmt.Errorf("cannot read the configuration: %w: %s", err, remedy), code: exitConfig}
}

// unread converts err, an error from reading a configuration file, to an error that says what the
// user can do. argument means that the flag -c does not name the file.
func unread(err error, argument bool) error {
	another, none := "name another with -c FILE", "name your file with -c FILE, or write a first one (docs/quickstart.md)"
	if argument {
		another, none = "name another", "check its name"
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Unreadable(err, none)
	case errors.Is(err, fs.ErrPermission):
		return Unreadable(err, "let this user read it, or "+another)
	}
	return Unreadable(err, another)
}

func isConfig(err error) bool { return errors.As(err, new(config.Errors)) }

// Run executes the command of root that args select. It prints the command's error and returns
// the exit status.
func Run(root *cobra.Command, args []string, in io.Reader, out, errs io.Writer) int {
	root.SetFlagErrorFunc(wrongFlag)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetArgs(args)
	root.SetIn(in)
	cleanOut, cleanErrs := &sanitizer{to: out}, &sanitizer{to: errs}
	defer cleanOut.flush()
	defer cleanErrs.flush()
	root.SetOut(cleanOut)
	root.SetErr(cleanErrs)
	checkWords(root)
	used, err := root.ExecuteC()
	if err == nil {
		return 0
	}
	end := &exitError{code: exitFailed}
	if isConfig(err) {
		end = &exitError{code: exitConfig, position: true}
	} else {
		errors.As(err, &end)
	}
	text := "ringside: " + err.Error()
	if end.position {
		text = err.Error()
	}
	errs = cleanErrs
	printed := make(chan struct{})
	go func() {
		defer close(printed)
		printError(errs, used, args, err, text, end.help)
	}()
	select {
	case <-printed:
	case <-time.After(printTime):
	}
	return end.code
}

// printError prints the error of the command used. text is the error as a line.
func printError(errs io.Writer, used *cobra.Command, args []string, err error, text string, help bool) {
	if slices.Contains(args, "--json") { // look at the arguments and not at the parsed flag, because parsing the flags may have failed
		printErrorJSON(errs, err)
	} else {
		fmt.Fprintln(errs, Paint(errs, top.Bad, text))
		if help {
			fmt.Fprintf(errs, "Try '%s --help'.\n", used.CommandPath())
		}
	}
}

// printTime is how long the program waits at its end for the reader of its error, which may have stopped.
const printTime = time.Second

// checkWords makes cobra's own commands of root, help and completion, return an error for an unknown word.
// Cobra's exit with 0. The streams of root must be set before, because completion keeps them.
func checkWords(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "completion":
			c.Args, c.RunE = cobra.ArbitraryArgs, Group
		case "help":
			c.Run, c.RunE = nil, help
		}
	}
}

// help prints the help of the command that args name.
func help(cmd *cobra.Command, args []string) error {
	found, rest, err := cmd.Root().Find(args)
	if err != nil || len(rest) > 0 && found.HasSubCommands() {
		return Group(found, rest)
	}
	found.InitDefaultHelpFlag()
	return found.Help()
}

// printErrorJSON prints err as JSON: one object for each mistake in a configuration, or one
// object for any other error.
func printErrorJSON(out io.Writer, err error) {
	e := NewEncoder(out)
	var list config.Errors
	if !errors.As(err, &list) {
		e.Encode(struct {
			Error string `json:"error"`
		}{err.Error()})
		return
	}
	for _, one := range list {
		e.Encode(struct {
			Error  string `json:"error"`
			File   string `json:"file"`
			Line   int    `json:"line"`
			Column int    `json:"column"`
		}{one.Message, one.File, one.Line, one.Column})
	}
}
