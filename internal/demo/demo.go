// Package demo runs a cluster in this process: memcached servers with Ringside in front. It is used
// to try Ringside, and in tests.
package demo

// This file implements ringside demo.

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
	"github.com/spf13/cobra"

	"ringside/config"
	"ringside/internal/cli"
	"ringside/internal/instance"
	"ringside/internal/memnode"
)

const demoMemory = 32 << 20 // memory limit of each memcached server, in bytes

// Command returns the demo command. version is the version of Ringside that the demo shows.
func Command(version string) *cobra.Command {
	var listen, adminAddr string
	var verbose, herd, tags bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a cluster in this process, to try Ringside",
		Long: `Run three small memcached servers in this process, and Ringside in front of them.
Nothing is written to disk. Fault injection is enabled: try ringside drill.`,
		Example: "  ringside demo\n  ringside demo --herd\n  ringside demo --tags",
		Args:    cli.WantArgs(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var show func(address string, out io.Writer, asJSON bool) error // nil: the cluster runs until a signal
			switch {
			case herd && tags:
				return cli.Usage(errors.New("--herd or --tags, one at a time"))
			case herd:
				show = showHerds
			case tags:
				show = showTags
			}
			signals := instance.Catch()
			level := slog.LevelWarn
			if verbose {
				level = slog.LevelInfo
			}
			logging := config.Log{Level: level}
			if cli.AsJSON(cmd) {
				logging.Format = "json"
			}
			log, _ := instance.NewLogger(&config.File{Log: logging}, cmd.ErrOrStderr())
			d, err := Start(listen, adminAddr, version, log)
			if err != nil {
				return err
			}
			defer d.Close()
			if show != nil {
				shown := make(chan error, 1)
				go func() { shown <- show(d.Address(), cmd.OutOrStdout(), cli.AsJSON(cmd)) }()
				select {
				case err = <-shown:
				case <-signals:
				}
				return errors.Join(err, d.Stop(signals, 0))
			}
			if cli.AsJSON(cmd) {
				err = cli.NewEncoder(cmd.OutOrStdout()).Encode(d.greeting())
			} else {
				d.hello(cmd.OutOrStdout())
			}
			if err != nil {
				return errors.Join(err, d.Stop(signals, 0))
			}
			return d.Serve(signals)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", cli.DefaultAddress, "the `address` for clients; another port if this one is taken")
	cmd.Flags().StringVar(&adminAddr, "admin", cli.DefaultAdmin, "the `address` of the admin interface; another port if this one is taken")
	cmd.Flags().BoolVar(&herd, "herd", false, "show what the guard saves: 50 clients read one page for 8 s, without and with it")
	cmd.Flags().BoolVar(&tags, "tags", false, "show what tags do: 1,000 pages of ten users, one of whom changes his name")
	cli.JSONFlag(cmd, cli.OneJSON)
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "log all events, not only problems")
	return cmd
}

// Cluster is a set of memcached servers and one Ringside instance, which all run in this process.
type Cluster struct {
	*instance.Instance
	nodes    []*memnode.Node
	defaults string // YAML text in front of the pools in the configuration; used only by tests, which set long timeouts
}

// Start runs three servers and an instance in front of them.
func Start(listen, adminAddr, version string, log *slog.Logger) (*Cluster, error) {
	d := &Cluster{}
	if err := d.start(listen, adminAddr, version, log); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

func (d *Cluster) start(listen, adminAddr, version string, log *slog.Logger) error {
	var servers []string
	for i := range 3 { // the servers start first, so that they do not use a port that is chosen for the instance below
		n, err := memnode.Start(memnode.Options{MemoryLimit: demoMemory})
		if err != nil {
			return fmt.Errorf("demo server %d: %w", i+1, err)
		}
		d.nodes = append(d.nodes, n)
		servers = append(servers, fmt.Sprintf("{name: demo%d, address: %q}", i+1, n.Addr()))
	}
	free, err := freeAddresses(listen, adminAddr)
	if err != nil {
		return err
	}
	f, err := config.Parse("demo", fmt.Appendf(nil, `listen: %q
admin: {address: %q, allow_faults: true}
%spools: {main: {distribution: ketama-points, servers: [%s]}}
routes:
%s%s  - {pool: main}
`, free[0], free[1], d.defaults, strings.Join(servers, ", "), herdRoute, tagRoute))
	if err != nil {
		return err
	}
	d.Instance, err = instance.Start(f, version, log)
	return err
}

// freeAddresses returns the given addresses. If the port of an address is in use, the result has a
// free port instead. All results are different.
func freeAddresses(addresses ...string) (free []string, err error) {
	for _, address := range addresses {
		l, err := net.Listen("tcp", address)
		if err != nil {
			host, _, bad := net.SplitHostPort(address)
			if bad != nil {
				return nil, cli.Usage(bad)
			}
			if l, err = net.Listen("tcp", net.JoinHostPort(host, "0")); err != nil {
				return nil, err
			}
		}
		defer l.Close() // closed only when all ports are chosen, so that the results differ
		free = append(free, l.Addr().String())
	}
	return free, nil
}

// Close stops the memcached servers of the cluster.
func (d *Cluster) Close() {
	for _, n := range d.nodes {
		n.Close()
	}
}

// Flags returns the flags with which other ringside commands reach this cluster. The result is
// empty if the cluster uses the default addresses.
func (d *Cluster) Flags() (s string) {
	if a := d.Address(); a != cli.DefaultAddress {
		s += " --to " + a
	}
	if a := d.AdminAddress(); a != cli.DefaultAdmin {
		s += " --admin " + a
	}
	return s
}

// calledAs returns the command with which a user runs this program again.
func calledAs() string {
	name := os.Args[0]
	switch {
	case strings.Contains(name, "/go-build"):
		return "go run ./cmd/ringside"
	case strings.HasPrefix(name, "/") && filepath.Base(name) == "ringside":
		if found, err := exec.LookPath("ringside"); err == nil && found == name {
			return "ringside"
		}
	}
	return name
}

// Servers returns the addresses of the memcached servers.
func (d *Cluster) Servers() (list []string) {
	for _, n := range d.nodes {
		list = append(list, n.Addr().String())
	}
	return list
}

// greeting is what the demo prints when it has started: its addresses, and a command to try.
type greeting struct {
	Clients string   `json:"clients"` // address for clients
	Admin   string   `json:"admin"`
	Servers []string `json:"servers"`
	Drill   string   `json:"drill"` // command that shows what clients see when a server hangs
}

func (d *Cluster) greeting() greeting {
	return greeting{Clients: d.Address(), Admin: d.AdminAddress(), Drill: calledAs() + " drill --fault hang" + d.Flags(), Servers: d.Servers()}
}

func (d *Cluster) hello(out io.Writer) {
	is := d.greeting()
	host, port, _ := net.SplitHostPort(is.Clients)
	fmt.Fprintf(out, `Ringside serves three memcached servers (%s) as one.

  clients   %s
  page      http://%s/ (numbers for machines: /metrics)

Try, in a second bash:

  (printf 'set hello 0 0 5\r\nworld\r\nget hello\r\nquit\r\n' >&3; cat <&3) 3<>/dev/tcp/%s/%s
  (printf 'stats servers\r\nquit\r\n' >&3; cat <&3) 3<>/dev/tcp/%s/%s

And see what clients see when a server hangs (or every kind of trouble, without
--fault):

  %s

Ctrl-C ends it; nothing is left behind.
`, strings.Join(is.Servers, ", "), is.Clients, is.Admin, host, port, host, port, is.Drill)
}

// newClient returns a client of the cluster. Its timeout is longer than any wait of Ringside.
func newClient(address string) *memcache.Client {
	c := memcache.New(address)
	c.Timeout = time.Minute
	return c
}
