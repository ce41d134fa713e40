package main

// ringside demo

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

	"github.com/spf13/cobra"

	"ringside/config"
	"ringside/internal/memnode"
)

const (
	demoAddress = "127.0.0.1:11211"
	demoAdmin   = "127.0.0.1:9151"
	demoMemory  = 32 << 20 // of each server
)

func newDemo() *cobra.Command {
	var listen, adminAddr string
	var verbose, herd, tags, asJSON bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a whole cluster in this process, to try",
		Long: `Run three small memcached servers in this process and Ringside in front of
them. Nothing is written to disk, and nothing is left when it ends. Faults are
allowed: ringside drill shows what they do.`,
		Example: "  ringside demo\n  ringside demo --herd\n  ringside demo --tags",
		Args:    wantArgs(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if herd && tags {
				return &usageError{errors.New("--herd or --tags, one at a time")}
			}
			signals := catch()
			level := slog.LevelWarn
			if verbose {
				level = slog.LevelInfo
			}
			logging := config.Log{Level: level}
			if asJSON {
				logging.Format = "json"
			}
			log, _ := newLogger(logging, cmd.ErrOrStderr())
			d, err := startDemo(listen, adminAddr, log)
			if err != nil {
				return err
			}
			defer d.close()
			if herd || tags {
				show := showHerds
				if tags {
					show = showTags
				}
				shown := make(chan error, 1)
				go func() { shown <- show(d.driver.Addrs()[0].String(), cmd.OutOrStdout(), asJSON) }()
				select {
				case err = <-shown:
				case <-signals:
				}
				return errors.Join(err, d.stop(signals, 0))
			}
			if asJSON {
				err = newEncoder(cmd.OutOrStdout()).Encode(d.greeting())
			} else {
				d.hello(cmd.OutOrStdout())
			}
			if err != nil {
				return errors.Join(err, d.stop(signals, 0))
			}
			return d.serve(signals)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", demoAddress, "the `address` for clients; another port if it is taken")
	cmd.Flags().StringVar(&adminAddr, "admin", demoAdmin, "the `address` of the admin interface; another port if it is taken")
	cmd.Flags().BoolVar(&herd, "herd", false, "show what a guard saves: 50 clients that read one page, without and with it, for 8 s")
	cmd.Flags().BoolVar(&tags, "tags", false, "show what tags do: 1,000 pages of ten users, of whom one changes his name")
	jsonFlag(cmd, &asJSON, oneJSON)
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "log what happens, not only what goes wrong")
	return cmd
}

// demo is a cluster in this process.
type demo struct {
	*instance
	nodes []*memnode.Node
}

func startDemo(listen, adminAddr string, log *slog.Logger) (*demo, error) {
	d := &demo{}
	if err := d.start(listen, adminAddr, log); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

func (d *demo) start(listen, adminAddr string, log *slog.Logger) error {
	listen, err := freeAddress(listen)
	if err != nil {
		return err
	}
	adminAddr, err = freeAddress(adminAddr)
	if err != nil {
		return err
	}
	servers, err := d.startNodes(3)
	if err != nil {
		return err
	}
	d.instance, err = startText(listen, adminAddr, "pools: {main: {distribution: ketama-points, servers: ["+servers+"]}}\nroutes:\n"+herdRoute+tagRoute+"  - {pool: main}\n", log)
	return err
}

// startNodes runs n servers, and returns them as a configuration lists them.
func (d *demo) startNodes(n int) (list string, err error) {
	var servers []string
	for i := range n {
		n, err := memnode.Start(memnode.Options{MemoryLimit: demoMemory})
		if err != nil {
			return "", fmt.Errorf("demo server %d: %w", i+1, err)
		}
		d.nodes = append(d.nodes, n)
		servers = append(servers, fmt.Sprintf("{name: demo%d, address: %q}", i+1, n.Addr()))
	}
	return strings.Join(servers, ", "), nil
}

// startText serves a configuration, in which faults are allowed.
func startText(listen, adminAddr, text string, log *slog.Logger) (*instance, error) {
	f, err := config.Parse("demo", []byte(fmt.Sprintf("listen: %q\nadmin: {address: %q, allow_faults: true}\n%s\n", listen, adminAddr, text)))
	if err != nil {
		return nil, err
	}
	return start(f, fileWatch{}, log, nil, nil)
}

// freeAddress returns address, or one with another port if that is taken.
func freeAddress(address string) (string, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		host, _, bad := net.SplitHostPort(address)
		if bad != nil {
			return "", &usageError{bad}
		}
		if l, err = net.Listen("tcp", net.JoinHostPort(host, "0")); err != nil {
			return "", err
		}
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func (d *demo) close() {
	for _, n := range d.nodes {
		n.Close()
	}
}

// flags is what other commands must be told to find d; nothing where it is at
// home.
func (d *demo) flags() (s string) {
	if a := d.driver.Addrs()[0].String(); a != demoAddress {
		s += " --to " + a
	}
	if a := d.adminAddr.String(); a != demoAdmin {
		s += " --admin " + a
	}
	return s
}

// calledAs is what a person types to run this program again.
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

// greeting is where everything of a demo is.
type greeting struct {
	Clients string   `json:"clients"` // connect here
	Admin   string   `json:"admin"`
	Servers []string `json:"servers"`
	Drill   string   `json:"drill"` // a command that shows what clients see when a server hangs
}

func (d *demo) greeting() greeting {
	g := greeting{Clients: d.driver.Addrs()[0].String(), Admin: d.adminAddr.String(), Drill: calledAs() + " drill --fault hang" + d.flags()}
	for _, n := range d.nodes {
		g.Servers = append(g.Servers, n.Addr().String())
	}
	return g
}

func (d *demo) hello(out io.Writer) {
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
