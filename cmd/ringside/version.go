package main

// This file implements the command `ringside version`.

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"ringside/internal/cli"
)

// version is the version that the build sets (-ldflags "-X main.version=…"). If it is empty,
// versionText uses the version of the module in the build info.
var version string

func newVersion() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  ringside version",
		Args:    cli.WantArgs(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				return cli.NewEncoder(cmd.OutOrStdout()).Encode(map[string]string{
					"version": versionText(), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH})
			}
			fmt.Fprintf(cmd.OutOrStdout(), "ringside %s %s %s/%s\n", versionText(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return nil
		},
	}
	cli.JSONFlag(cmd, &asJSON, cli.OneJSON)
	return cmd
}

func versionText() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
