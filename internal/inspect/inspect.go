// Package inspect implements the commands that read configuration files: check, route, plan,
// distributions, import and discover. Only plan and discover contact a running instance.
package inspect

// This file contains the list of the commands of this package.

import "github.com/spf13/cobra"

// Commands returns the commands check, route, plan, distributions, import and discover.
func Commands() []*cobra.Command {
	return []*cobra.Command{newCheck(), newRoute(), newPlan(), newDistributions(), newImport(), newDiscover()}
}
