package cli

// Which running Ringside is meant, and what it says of mistakes.

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"ringside/config"
	"ringside/proxy/admin"
	"ringside/proxy/live"
)

// Where a Ringside is that nobody has told where to be: the demo's addresses.
const (
	DefaultAddress = "127.0.0.1:11211"
	DefaultAdmin   = "127.0.0.1:9151"
)

// Admin is the flags that say which Ringside is meant.
type Admin struct{ address, path string }

// Add adds them to a command.
func (f *Admin) Add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.address, "admin", "", "the `address` of the admin interface: host:port or unix:/path (default "+DefaultAdmin+")")
	cmd.Flags().StringVarP(&f.path, "config", "c", "", "the configuration `file` of the instance, instead of addresses")
	cmd.MarkFlagFilename("config", "yaml", "yml")
}

// Load reads the file, if one was named.
func (f *Admin) Load() (*config.File, error) {
	if f.path == "" {
		return nil, nil
	}
	return loadConfig(f.path)
}

// Endpoint is the admin interface that is meant; file may be nil.
func (f *Admin) Endpoint(file *config.File) (network, address string, err error) {
	switch {
	case f.address != "":
		return SplitAddress("admin", f.address)
	case file == nil:
		return "tcp", DefaultAdmin, nil
	case file.Admin.Address.Network == "":
		return "", "", Usage(fmt.Errorf("%s has no admin interface: set admin, or say --admin", f.path))
	}
	return file.Admin.Address.Network, file.Admin.Address.Address, nil
}

// SplitAddress reads the value of an address flag.
func SplitAddress(flag, text string) (network, address string, err error) {
	if path, ok := strings.CutPrefix(text, "unix:"); ok && path != "" {
		return "unix", path, nil
	}
	_, port, err := net.SplitHostPort(text)
	if n, wrong := strconv.ParseUint(port, 10, 16); err != nil || wrong != nil || n == 0 {
		return "", "", Usage(fmt.Errorf("--%s %s: want host:port or unix:/path, with a port from 1 to 65535", flag, text))
	}
	return "tcp", text, nil
}

// Client connects to the admin interface that is meant.
func (f *Admin) Client() (*admin.Client, error) {
	file, err := f.Load()
	if err != nil {
		return nil, err
	}
	network, address, err := f.Endpoint(file)
	if err != nil {
		return nil, err
	}
	return admin.NewClient(network, address), nil
}

// Ask is a command's RunE that gives do a client of the admin interface that is meant.
func (f *Admin) Ask(do func(cmd *cobra.Command, c *admin.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := f.Client()
		if err != nil {
			return err
		}
		defer c.Close()
		return do(cmd, c, args)
	}
}

// CompletePool lets a shell complete the flag --pool.
func (f *Admin) CompletePool(cmd *cobra.Command) {
	cmd.RegisterFlagCompletionFunc("pool", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return f.Complete(cmd, func(s *live.ServerState) string { return s.Pool })
	})
}

// Complete is what a shell is told that a word may be: what name says of the servers
// of the Ringside that is meant. A shell that gets no answer has nothing to offer.
func (f *Admin) Complete(cmd *cobra.Command, name func(*live.ServerState) string) (words []string, _ cobra.ShellCompDirective) {
	const offerNoFiles = cobra.ShellCompDirectiveNoFileComp
	c, err := f.Client()
	if err != nil {
		return nil, offerNoFiles
	}
	defer c.Close()
	list, err := c.Servers(cmd.Context())
	if err != nil {
		return nil, offerNoFiles
	}
	for i := range list {
		if word := name(&list[i]); word != "" && !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	return words, offerNoFiles
}

// AsUsage turns the answer of a Ringside that finds fault with what was asked into a mistake
// on the command line; other errors stay what they are.
func AsUsage(err error) error {
	if s := (*admin.StatusError)(nil); errors.As(err, &s) && (s.Status == 400 || s.Status == 404 || s.Status == 409) {
		return Usage(err)
	}
	return err
}

// NoPool says which pools there are, of which one was meant.
func NoPool(pool string, list []live.ServerState) error {
	var have []string
	for i := range list {
		if name := list[i].Pool; !slices.Contains(have, name) {
			have = append(have, name)
		}
	}
	return Usage(fmt.Errorf("no pool %q; there are %s", pool, strings.Join(have, ", ")))
}
