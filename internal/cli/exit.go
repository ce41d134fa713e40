package cli

// How the program ends: what it says of an error, and its exit status.

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
// that crashed, but not one whose configuration or command line is wrong.
const (
	exitFailed = 1
	exitNotUp  = 3  // ringside top --once: a server is not up
	exitUsage  = 64 // the command line is wrong; EX_USAGE of sysexits.h
	exitConfig = 78 // the configuration is wrong or cannot be read; EX_CONFIG
)

// exitError is an error that has an exit code, and is printed in its own way.
type exitError struct {
	error
	code     int
	help     bool // --help has what it should have been
	position bool // it begins with file:line:column, as editors want it
}

// Usage is a mistake on the command line.
func Usage(err error) error { return &exitError{error: err, code: exitUsage, help: true} }

// Refused is a configuration that a running Ringside has refused.
func Refused(err error) error { return &exitError{error: err, code: exitConfig, position: true} }

// NotUp is what ringside top --once was told.
func NotUp(err error) error { return &exitError{error: err, code: exitNotUp} }

// Unreadable is a configuration file that can't be read, with what to do about it.
func Unreadable(err error, remedy string) error {
	return &exitError{error: fmt.Errorf("cannot read the configuration: %w: %s", err, remedy), code: exitConfig}
}

// unread is err, which reading a configuration file gave, with its remedy.
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

// Run runs what args say of the commands below root, and returns the exit code.
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
	if slices.Contains(args, "--json") { // also where the command line could not be read
		printErrorJSON(errs, err)
	} else {
		fmt.Fprintln(errs, Paint(errs, top.Bad, text))
		if end.help {
			fmt.Fprintln(errs, "Try 'ringside --help'.")
		}
	}
	return end.code
}

// printErrorJSON prints one JSON object for each thing that is wrong.
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
