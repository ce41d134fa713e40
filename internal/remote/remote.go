// Package remote implements the commands that query and control a running instance
// through its admin interface.
package remote

// This file lists the commands.

import "github.com/spf13/cobra"

// Commands returns all commands of this package.
func Commands() []*cobra.Command {
	return []*cobra.Command{newReload(), newHealth(), newServer(), newTag(), newClients(), newTop(), newTrace()}
}
