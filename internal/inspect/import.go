package inspect

// This file implements the command `ringside import`.

import (
	"io"

	"github.com/spf13/cobra"

	"ringside/config"
	"ringside/internal/cli"
)

func newImport() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import nutcracker.yml",
		Short: "Convert a twemproxy file to a Ringside file with the same placement",
		Long: `Print a Ringside configuration that places every key like this twemproxy
(nutcracker) configuration. Settings without an equivalent are listed in comments of
the file and on standard error. With - the file is read from standard input.`,
		Example: "  ringside import /etc/nutcracker/nutcracker.yml > ringside.yaml",
		Args:    cli.WantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := args[0]
			var data []byte
			var err error
			if name == "-" {
				name = "standard input"
				data, err = io.ReadAll(cmd.InOrStdin())
			} else {
				data, err = config.ReadFile(name, 1<<20)
			}
			if err != nil {
				return cli.Unreadable(err, "name a twemproxy file, or - for standard input")
			}
			out, warnings, err := config.ImportNutcracker(name, data)
			if err != nil {
				return err
			}
			if cli.AsJSON(cmd) {
				return cli.NewEncoder(cmd.OutOrStdout()).Encode(struct {
					Configuration string   `json:"configuration"`
					Warnings      []string `json:"warnings,omitempty"`
				}{string(out), warnings})
			}
			for _, w := range warnings {
				cli.RemarksOf(cmd).Warn(w)
			}
			_, err = cmd.OutOrStdout().Write(out)
			return err
		},
	}
	cli.JSONFlag(cmd, "print one JSON object, with the file in it")
	return cmd
}
