// Package remote implements the commands that query and control a running instance
// through its admin interface.
package remote

// This file contains the list of the commands of this package.

import "github.com/spf13/cobra"

// Commands returns the commands that query and control a running instance.
func Commands() []*cobra.Command {
	return []*cobra.Command{newReload(), newHealth(), newServer(), newTag(), newClients(), newTop(), newTrace()}
}
