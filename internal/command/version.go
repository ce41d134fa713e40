package command

// This file implements the command `ringside version`.

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"ringside/internal/cli"
)

func newVersion(version string) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  ringside version",
		Args:    cli.WantArgs(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cli.AsJSON(cmd) {
				return cli.NewEncoder(cmd.OutOrStdout()).Encode(map[string]string{
					"version": version, "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH})
			}
			fmt.Fprintf(cmd.OutOrStdout(), "ringside %s %s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return nil
		},
	}
	cli.JSONFlag(cmd, cli.OneJSON)
	return cmd
}

// builtVersion returns the version of the module in the build info.
func builtVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
