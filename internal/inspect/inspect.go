// Package inspect has the commands that look at a configuration file, and ask nobody.
package inspect

// Which they are.

import "github.com/spf13/cobra"

// Commands are all of them.
func Commands() []*cobra.Command {
	return []*cobra.Command{newCheck(), newRoute(), newDistributions(), newImport()}
}
