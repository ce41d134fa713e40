package cli

// How the program prints an error, and its exit status.

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/spf13/cobra"

	"ringside/config"
	"ringside/internal/top"
)

// Exit statuses; 0 is success. Ringside never exits with 2 on purpose: the Go runtime
// exits with 2 after a panic or a fatal error, and a supervisor must restart a process
// that crashed, but not one with a wrong configuration or command line.
const (
	exitFailed = 1
	exitNotUp  = 3  // ringside top --once: a server is not up
	exitUsage  = 64 // the command line is wrong; EX_USAGE of sysexits.h
	exitConfig = 78 // the configuration is wrong or cannot be read; EX_CONFIG
)

// exitError is an error with its own exit code and output format.
type exitError struct {
	error
	code     int
	help     bool // print a hint to try --help
	position bool // the text begins with file:line:column, so it is printed without "ringside: ", as editors expect
}

// Usage marks err as a mistake on the command line.
func Usage(err error) error { return &exitError{error: err, code: exitUsage, help: true} }

// Refused marks err as the reason why a running instance rejected a configuration.
func Refused(err error) error { return &exitError{error: err, code: exitConfig, position: true} }

// NotUp marks err as a report of ringside top --once that a server is not up.
func NotUp(err error) error { return &exitError{error: err, code: exitNotUp} }

// Unreadable returns the error for a configuration file that cannot be read. remedy says what
// to do about it.
func Unreadable(err error, remedy string) error {
	return &exitError{error: fmt.Errorf("cannot read the configuration: %w: %s", err, remedy), code: exitConfig}
}

// unread adds a remedy to err, an error from reading a configuration file.
func unread(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Unreadable(err, "name your file with -c FILE, or write a first one (docs/quickstart.md)")
	case errors.Is(err, fs.ErrPermission):
		return Unreadable(err, "let this user read it, or name another with -c FILE")
	}
	return Unreadable(err, "name another with -c FILE")
}

func isConfig(err error) bool { return errors.As(err, new(config.Errors)) }

// Run executes the command of root that args select, prints its error, and returns the exit
// code.
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
	err := root.Execute()
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
	if slices.Contains(args, "--json") { // not the parsed flag, because parsing may have failed
		printErrorJSON(errs, err)
	} else {
		fmt.Fprintln(errs, Paint(errs, top.Bad, text))
		if end.help {
			fmt.Fprintln(errs, "Try 'ringside --help'.")
		}
	}
	return end.code
}

// printErrorJSON prints one JSON object for each mistake of a configuration, or one for any
// other error.
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
