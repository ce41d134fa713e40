// Package inspect implements the commands that read configuration files: check, route, plan,
// distributions and import. Only plan contacts a running instance, to get its configuration.
package inspect

// This file contains the list of the commands of this package.

import "github.com/spf13/cobra"

// Commands returns the commands check, route, plan, distributions and import.
func Commands() []*cobra.Command {
	return []*cobra.Command{newCheck(), newRoute(), newPlan(), newDistributions(), newImport()}
}
