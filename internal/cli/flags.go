package cli

// This file contains flags and arguments of commands, and reads the configuration file that they
// name.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ringside/config"
	"ringside/internal/top"
)

// JSONFlag adds the flag --json to a command; what is its description. With that flag, errors are
// printed as JSON too: see Run.
func JSONFlag(cmd *cobra.Command, what string) { cmd.Flags().Bool("json", false, what) }

// AsJSON reports whether the command line has the flag --json.
func AsJSON(cmd *cobra.Command) bool {
	is, _ := cmd.Flags().GetBool("json") // false if the command has no such flag
	return is
}

const (
	OneJSON  = "print one JSON object"
	EachJSON = "print one JSON object per line"
)

// Counted returns a number with a noun, such as "1 key" or "2 keys". what is the noun in the
// singular.
func Counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Remarks prints warnings and notes to standard error, separate from the output of a command.
type Remarks struct {
	to     io.Writer
	asJSON bool
}

// RemarksOf returns the Remarks of the command cmd. With the flag --json, they are printed as JSON
// objects.
func RemarksOf(cmd *cobra.Command) Remarks { return Remarks{cmd.ErrOrStderr(), AsJSON(cmd)} }

// Warn prints a warning about something that is valid, but probably not intended.
func (r Remarks) Warn(text string) {
	r.say("warning", Paint(r.to, top.Warn, "warning:")+" "+text, text)
}

// Note prints a text about an effect of the command that is not part of its output.
func (r Remarks) Note(text string) { r.say("note", text, text) }

func (r Remarks) say(kind, line, text string) {
	if r.asJSON {
		NewEncoder(r.to).Encode(map[string]string{kind: text})
		return
	}
	fmt.Fprintln(r.to, line)
}

// NewEncoder returns a JSON encoder that does not escape <, > and &, so that people can read its
// output.
func NewEncoder(out io.Writer) *json.Encoder {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	return e
}

// PrintEach prints the elements of list as JSON, one per line.
func PrintEach[T any](out io.Writer, list []T) error {
	e := NewEncoder(out)
	for i := range list {
		if err := e.Encode(&list[i]); err != nil {
			return err
		}
	}
	return nil
}

// Table returns a writer that aligns columns, which tabs separate, and writes their heads. The caller must call Flush.
func Table(out io.Writer, heads string) *tabwriter.Writer {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, heads)
	return w
}

// wrongFlag converts an error of the flag parser to one that says which values the flag can have.
// If the command line names an unknown subcommand, the result reports that instead, because the
// flags of an unknown subcommand are unknown too.
func wrongFlag(cmd *cobra.Command, err error) error {
	if words := cmd.Flags().Args(); cmd.HasSubCommands() && len(words) > 0 {
		return unknownCommand(cmd, words[0])
	}
	if v := (*pflag.InvalidValueError)(nil); errors.As(err, &v) {
		want := map[string]string{"bool": "true or false", "int": "a whole number", "duration": "a time, such as 500ms or 3s"}[v.GetFlag().Value.Type()]
		err = fmt.Errorf("--%s=%s: want %s", v.GetFlag().Name, v.GetValue(), want)
	}
	return Usage(err)
}

// Group is the function RunE for a command that only has subcommands. It prints the help of the
// command. For an argument that is not a subcommand, it returns an error.
func Group(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return unknownCommand(cmd, args[0])
	}
	return cmd.Help()
}

func unknownCommand(cmd *cobra.Command, name string) error {
	err := fmt.Errorf("unknown command %q", name)
	cmd.SuggestionsMinimumDistance = 2 // maximum edit distance of a suggested command; with 0, cobra would only suggest commands that begin with name
	if near := cmd.SuggestionsFor(name); len(near) > 0 {
		err = fmt.Errorf("%w; did you mean %q?", err, near[0])
	}
	return Usage(err)
}

// NoFile rejects all arguments of a command. The configuration file of that command is the value
// of the flag -c.
func NoFile(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usage(fmt.Errorf("%q is one word too many; a configuration file goes behind -c: ringside %s -c %s", args[0], cmd.Name(), args[0]))
	}
	return nil
}

// WantArgs returns a check that accepts any number of arguments from least to most.
func WantArgs(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		form := cmd.Parent().CommandPath() + " " + cmd.Use
		switch {
		case len(args) < least:
			return Usage(fmt.Errorf("something is missing: %s", form))
		case len(args) > most:
			return Usage(fmt.Errorf("%q is one word too many: %s", args[most], form))
		}
		return nil
	}
}

// OrFile returns a check that accepts a configuration file as the only argument, in place of the
// flag -c. The check stores the argument in *path.
func OrFile(path *string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > 1:
			return Usage(fmt.Errorf("%q is one word too many; one configuration file at a time", args[1]))
		case len(args) == 1 && cmd.Flags().Changed("config"):
			return Usage(fmt.Errorf("two configuration files: %s and %s", *path, args[0]))
		case len(args) == 1:
			*path = args[0]
		}
		return nil
	}
}

// ReadConfig reads the configuration file at path, which the flag -c can name, with the given variables. If path is -, it reads
// the configuration from standard input.
func ReadConfig(cmd *cobra.Command, path string, from config.Variables) (*config.File, error) {
	return readConfig(cmd, path, from, false)
}

// ReadArgument does the same with a file that the flag -c can't name.
func ReadArgument(cmd *cobra.Command, path string, from config.Variables) (*config.File, error) {
	return readConfig(cmd, path, from, true)
}

func readConfig(cmd *cobra.Command, path string, from config.Variables, argument bool) (*config.File, error) {
	if path != "-" {
		return loadConfig(path, from, argument)
	}
	text, err := io.ReadAll(cmd.InOrStdin())
	if err != nil {
		return nil, fmt.Errorf("read standard input: %w", err)
	}
	return config.ParseWith("standard input", text, from)
}

// loadConfig reads the configuration file at path. The error for a file that cannot be read has
// the same exit status as the error for a file with a mistake. argument is as in unread.
func loadConfig(path string, from config.Variables, argument bool) (*config.File, error) {
	f, err := config.Load(path, from)
	if err != nil && !isConfig(err) {
		return nil, unread(err, argument)
	}
	return f, err
}

// EnvFlag adds the flag --env to a command. The function that EnvFlag returns gives the variables
// for configuration files: those of the file that the flag names, or those of this process.
func EnvFlag(cmd *cobra.Command) func() (config.Variables, error) {
	var path string
	cmd.Flags().StringVar(&path, "env", "", "a `file` with NAME=value lines, instead of the environment, for ${NAME} in the configuration")
	cmd.MarkFlagFilename("env")
	return func() (config.Variables, error) {
		from := config.Environment()
		if path == "" {
			return from, nil
		}
		data, err := config.ReadFile(path, 1<<20)
		if err != nil {
			return from, unread(err, true)
		}
		values, err := config.ParseEnv(path, data)
		from.Lookup = config.From(values)
		return from, err
	}
}

// ConfigFlag adds the flag -c, which names a configuration file, to a command.
func ConfigFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVarP(path, "config", "c", "ringside.yaml", "the configuration `file`; - is standard input")
	cmd.MarkFlagFilename("config", "yaml", "yml")
}
