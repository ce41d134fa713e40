package cli

// This file contains the flags that select a running instance, and the errors that an instance
// returns.

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

// These addresses are defaults of commands, which flags or a configuration file replace.
// `ringside demo` listens on them.
const (
	DefaultAddress = "127.0.0.1:11211"
	DefaultAdmin   = "127.0.0.1:9151"
)

// Admin holds the flags --admin and -c, which select a running instance, and those of its Login.
type Admin struct {
	address, path string
	login         Login
}

// Add adds the flags to a command.
func (f *Admin) Add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.address, "admin", "", "the `address` of the admin interface: host:port or unix:/path (default "+DefaultAdmin+")")
	cmd.Flags().StringVarP(&f.path, "config", "c", "", "the configuration `file` of the instance, instead of addresses")
	cmd.MarkFlagFilename("config", "yaml", "yml")
	f.login.Add(cmd.Flags())
}

// Load reads the configuration file that the flag -c names. Without that flag it returns nil.
func (f *Admin) Load() (*config.File, error) {
	if f.path == "" {
		return nil, nil
	}
	from := config.Environment()
	from.AllowUnset = true // the variables of the instance may be missing in an operator's shell, and only the addresses are needed
	return loadConfig(f.path, from, false)
}

// Endpoint returns the address of the selected instance's admin interface. It is the address in
// the flag --admin, else the address in the configuration file, else the default. The parameter
// file is nil if there is no configuration file. A configuration file without an admin interface
// is an error.
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

// SplitAddress parses text, the value of an address flag: host:port or unix:/path. flag is the
// name of the flag, for the error.
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

// Client returns a client for the admin interface of the selected instance.
func (f *Admin) Client() (*admin.Client, error) {
	file, err := f.Load()
	if err != nil {
		return nil, err
	}
	network, address, err := f.Endpoint(file)
	if err != nil {
		return nil, err
	}
	return f.ClientAt(network, address, file)
}

// ClientAt returns a client for the admin interface at an address, with the login of the flags. file is
// nil if there is no configuration file.
func (f *Admin) ClientAt(network, address string, file *config.File) (*admin.Client, error) {
	return f.login.Client(network, address, file)
}

// Ask returns a function for the field RunE of a command. That function calls do with a client
// for the admin interface of the selected instance.
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

// CompletePool adds shell completion for the flag --pool of cmd.
func (f *Admin) CompletePool(cmd *cobra.Command) {
	cmd.RegisterFlagCompletionFunc("pool", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return f.Complete(cmd, func(s *live.ServerState) string { return s.Pool })
	})
}

// Complete returns words for shell completion: the result of the function name for each server of
// the selected instance, without duplicates. It returns no words if the instance does not reply.
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

// AsUsage converts err to the error for a wrong command line if an instance has rejected the
// request with status 400, 404 or 409. It returns all other errors unchanged.
func AsUsage(err error) error {
	if s := (*admin.StatusError)(nil); errors.As(err, &s) && (s.Status == 400 || s.Status == 404 || s.Status == 409) {
		return Usage(err)
	}
	return err
}

// NoPool returns the error for the name of a pool that does not exist. The error names the pools
// of the servers in list.
func NoPool(pool string, list []live.ServerState) error {
	var have []string
	for i := range list {
		if name := list[i].Pool; !slices.Contains(have, name) {
			have = append(have, name)
		}
	}
	return Usage(fmt.Errorf("no pool %q; there are %s", pool, strings.Join(have, ", ")))
}
