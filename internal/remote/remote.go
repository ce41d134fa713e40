// Package remote has the commands that ask a running Ringside, and tell it what to do, by its
// admin interface.
package remote

// Which they are.

import "github.com/spf13/cobra"

// Commands are all of them.
func Commands() []*cobra.Command {
	return []*cobra.Command{newReload(), newHealth(), newServer(), newTag(), newClients(), newTop(), newTrace()}
}
