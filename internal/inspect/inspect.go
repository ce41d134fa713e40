// Package inspect implements the commands that read configuration files: check, route,
// distributions and import. They do not contact a running instance.
package inspect

// The list of the commands.

import "github.com/spf13/cobra"

// Commands returns the commands of this package.
func Commands() []*cobra.Command {
	return []*cobra.Command{newCheck(), newRoute(), newDistributions(), newImport()}
}
