package main

// What commands have in common: exit codes, mistakes on the command line, flags.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ringside/config"
	"ringside/internal/top"
)

// Exit codes: 0, done; 1, it failed; 2, the command line or the configuration
// is wrong; 3, ringside top has been told that a server is not up.
const (
	exitFailed = 1
	exitUsage  = 2
	exitNotUp  = 3
)

// notUpError is what ringside top --once was told.
type notUpError struct{ error }

// usageError is a mistake on the command line.
type usageError struct{ error }

func isConfig(err error) bool {
	var e config.Errors
	return errors.As(err, &e)
}

// unreadError is a configuration file that can't be read, with what to do about it.
type unreadError struct {
	error
	remedy string
}

func (e *unreadError) Error() string {
	return fmt.Sprintf("cannot read the configuration: %v: %s", e.error, e.remedy)
}

// unread is err, which reading a configuration file gave, with its remedy.
func unread(err error) *unreadError {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &unreadError{err, "name your file with -c FILE, or write a first one (docs/quickstart.md)"}
	case errors.Is(err, fs.ErrPermission):
		return &unreadError{err, "let this user read it, or name another with -c FILE"}
	}
	return &unreadError{err, "name another with -c FILE"}
}

// refusedError is a configuration that a running Ringside has refused.
type refusedError struct{ error }

// jsonFlag adds --json to a command. Errors are JSON then too: see run.
func jsonFlag(cmd *cobra.Command, asJSON *bool, what string) {
	cmd.Flags().BoolVar(asJSON, "json", false, what)
}

const (
	oneJSON  = "print one JSON object"
	eachJSON = "print one JSON object a line"
)

// counted is "1 what", or "n whats".
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// remarks are what is said on standard error beside an answer.
type remarks struct {
	to     io.Writer
	asJSON bool
}

func remarksOf(cmd *cobra.Command, asJSON bool) remarks { return remarks{cmd.ErrOrStderr(), asJSON} }

// warn says what is right, but hardly what is wanted.
func (r remarks) warn(text string) {
	r.say("warning", paint(r.to, top.Warn, "warning:")+" "+text, text)
}

// note says what comes of something meanwhile.
func (r remarks) note(text string) { r.say("note", text, text) }

func (r remarks) say(kind, line, text string) {
	if r.asJSON {
		newEncoder(r.to).Encode(map[string]string{kind: text})
		return
	}
	fmt.Fprintln(r.to, line)
}

// newEncoder writes JSON as people want to read it.
func newEncoder(out io.Writer) *json.Encoder {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	return e
}

// printErrorJSON prints one JSON object for each thing that is wrong.
func printErrorJSON(out io.Writer, err error) {
	e := newEncoder(out)
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

// wrongFlag says of a flag that can't be read what it may be. A command that there is
// not has flags that there are not: then the command is what is wrong.
func wrongFlag(cmd *cobra.Command, err error) error {
	if words := cmd.Flags().Args(); cmd.HasSubCommands() && len(words) > 0 {
		return unknownCommand(cmd, words[0])
	}
	if v := (*pflag.InvalidValueError)(nil); errors.As(err, &v) {
		want := map[string]string{"bool": "true or false", "int": "a whole number", "duration": "a time, such as 500ms or 3s"}[v.GetFlag().Value.Type()]
		err = fmt.Errorf("--%s=%s: want %s", v.GetFlag().Name, v.GetValue(), want)
	}
	return &usageError{err}
}

// besides are the flags that were typed, without those named.
func besides(cmd *cobra.Command, names ...string) (others []string) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !slices.Contains(names, f.Name) {
			others = append(others, "--"+f.Name)
		}
	})
	return others
}

func unknownCommand(cmd *cobra.Command, name string) error {
	err := fmt.Errorf("unknown command %q", name)
	cmd.SuggestionsMinimumDistance = 2 // letters; with none, only the beginning of a command is near it
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

// wantArgs takes so many words behind a command.
func wantArgs(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		form := cmd.Parent().CommandPath() + " " + cmd.Use
		switch {
		case len(args) < least:
			return &usageError{fmt.Errorf("something is missing: %s", form)}
		case len(args) > most:
			return &usageError{fmt.Errorf("%q is one word too many: %s", args[most], form)}
		}
		return nil
	}
}

// orFile takes a configuration file as the only argument, instead of behind -c.
func orFile(path *string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > 1:
			return &usageError{fmt.Errorf("%q is one word too many; one configuration file at a time", args[1])}
		case len(args) == 1 && cmd.Flags().Changed("config"):
			return &usageError{fmt.Errorf("two configuration files: %s and %s", *path, args[0])}
		case len(args) == 1:
			*path = args[0]
		}
		return nil
	}
}

// readConfig reads the configuration at path; - is standard input.
func readConfig(cmd *cobra.Command, path string) (*config.File, error) {
	if path != "-" {
		return loadConfig(path)
	}
	text, err := io.ReadAll(cmd.InOrStdin())
	if err != nil {
		return nil, fmt.Errorf("read standard input: %w", err)
	}
	return config.Parse("standard input", text)
}

// loadConfig reads the configuration file at path. One that can't be read is as
// wrong as one with a mistake.
func loadConfig(path string) (*config.File, error) {
	f, err := config.Load(path)
	if err != nil && !isConfig(err) {
		return nil, unread(err)
	}
	return f, err
}

// configFlag adds -c to a command.
func configFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVarP(path, "config", "c", "ringside.yaml", "the configuration `file`; - is standard input")
	cmd.MarkFlagFilename("config", "yaml", "yml")
}
