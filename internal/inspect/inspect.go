// Package inspect implements the commands that read configuration files: check, route,
// distributions and import. They do not contact a running instance.
package inspect

// This file contains the list of the commands of this package.

import "github.com/spf13/cobra"

// Commands returns the commands check, route, distributions and import.
func Commands() []*cobra.Command {
	return []*cobra.Command{newCheck(), newRoute(), newDistributions(), newImport()}
}
