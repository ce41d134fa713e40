//go:build linux

package bench

// This part of the package starts the programs that are compared, each in its usual configuration, their
// memcached servers, and the programs that count system calls.

// This file has the list of the peers, their configuration and their start.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Peer is one of the compared setups: a proxy, plain memcached, or the load generator that connects
// to the servers itself.
type Peer struct {
	Name         string
	binary       string
	Version      string
	Note         string // what a reader of the report must know about the figures of this peer
	SpeaksMeta   bool
	SpeaksBinary bool // the peer supports the binary protocol
	Proxy        bool // the peer is a proxy in front of the servers; false for plain memcached and for direct
	Direct       bool // there is no program: the load connects to the servers
	Sockets      bool // the peer can also listen on a unix socket

	// Configure writes the configuration files of the peer and returns its arguments.
	Configure func(Place) ([]string, error)
}

// Binaries are the names or paths of the programs.
type Binaries struct {
	Ringside       string // path of Ringside's binary; empty: Ringside is not measured
	Nutcracker     string
	Also           []Variant // other variants of Ringside to measure
	Haproxy        string    // path of haproxy's binary; haproxy is not measured if the file does not exist
	Memcached      string
	MemcachedProxy string // path of a memcached that was built with its proxy; empty: the proxy is not measured
}

// Variant is another Ringside that is measured to see the effect of a change: another build, or
// other settings.
type Variant struct {
	Name   string
	Binary string
	Engine string // settings of the section engine of Ringside's configuration, in YAML's flow style; empty: none
}

// Place is the environment of a peer: its files, ports, servers and settings.
type Place struct {
	Dir     string
	port    int
	admin   int // port of the peer's metrics and statistics
	Servers []string
	Loops   int           // number of Ringside's loops
	Timeout time.Duration // request timeout of Ringside; 0: its default
	Routes  string        // routes of Ringside's configuration; empty: one route without settings
	socket  string        // path of an additional unix socket, for peers that support it; empty: none

	engine, AdminMore string // additional settings of Ringside's sections engine and admin, in YAML's flow style
}

// replyTimeout is the time after which a reply counts as lost. It is long, so that a busy machine
// does not look like a fault of the proxy.
const replyTimeout = 30 * time.Second

// ringsideNote is the note on Ringside's figures in the report.
const ringsideNote = "least configuration, ketama, and nutcracker's timeout: a machine that stands still for half a second is no fault of either"

// candidate is a peer, together with how to find out its version and whether it must be installed.
type candidate struct {
	Peer
	versionFlag string
	needed      bool
}

// findPeers returns the installed peers with the given names, or all installed peers if there are
// no names. They are in the order of the report. findPeers also returns the version of memcached.
func findPeers(c Binaries, names []string) (found []*Peer, server string, err error) {
	all := []candidate{
		{Peer{Name: "ringside", binary: c.Ringside, SpeaksMeta: true, SpeaksBinary: true, Proxy: true, Sockets: true, Configure: ringsideArgs, Note: ringsideNote}, "version", false},
		{Peer{Name: "nutcracker", binary: c.Nutcracker, Proxy: true, Sockets: true, Configure: nutcrackerArgs,
			Note: "-v 4, ketama over md5, one connection a server, timeout 30 s"}, "-V", true},
		{Peer{Name: "haproxy", binary: c.Haproxy, SpeaksMeta: true, SpeaksBinary: true, Proxy: true, Configure: haproxyArgs,
			Note: "tcp mode, one thread: cannot split keys, forwards each client to one server over a connection of its own"}, "-v", false},
		{Peer{Name: "memcached proxy", binary: c.MemcachedProxy, SpeaksMeta: true, Proxy: true, Configure: memcachedProxyArgs,
			Note: "one worker thread, its own placement"}, "-V", false},
		{Peer{Name: "memcached", binary: c.Memcached, SpeaksMeta: true, SpeaksBinary: true, Configure: floorArgs,
			Note: "the floor: no proxy, the load directly on one server with one worker thread, where the others' proxy is"}, "-V", true},
		{Peer{Name: Direct, binary: c.Memcached, Direct: true,
			Note: "no proxy: clients that place keys by the same ketama, each with a connection to each of three servers, which are where the others' proxy is"}, "-V", false},
	}
	for _, v := range c.Also {
		note := ringsideNote
		if v.Engine != "" {
			note += "; engine: {" + v.Engine + "}"
		}
		all = slices.Insert(all, 1, candidate{Peer{Name: v.Name, binary: v.Binary, SpeaksMeta: true, SpeaksBinary: true, Proxy: true, Sockets: true, Note: note,
			Configure: func(at Place) ([]string, error) { at.engine = v.Engine; return ringsideArgs(at) }}, "version", true})
	}
	for _, p := range all {
		wanted := len(names) == 0 || slices.Contains(names, p.Name)
		if !wanted && p.Name != "memcached" {
			continue
		}
		path, err := lookPath(p.binary)
		if err != nil {
			if p.needed || p.binary != "" && p.Name != "haproxy" {
				return nil, "", fmt.Errorf("%s: %w", p.Name, err)
			}
			continue
		}
		p.Peer.binary = path
		if p.Version, err = firstLine(path, p.versionFlag); err != nil {
			return nil, "", fmt.Errorf("%s: %w", p.Name, err)
		}
		if p.Name == "memcached" {
			server = p.Version
		}
		if wanted {
			found = append(found, &p.Peer)
		}
	}
	return found, server, nil
}

// lookPath finds a program. It also searches /usr/sbin, where Debian installs daemons and which is
// not in a user's PATH.
func lookPath(name string) (string, error) {
	if name == "" {
		return "", errors.New("no program is named")
	}
	path, err := exec.LookPath(name)
	if err != nil && !strings.Contains(name, "/") {
		if path, e := exec.LookPath("/usr/sbin/" + name); e == nil {
			return path, nil
		}
	}
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// firstLine returns the first line that a program prints when it is called with flag. It also reads
// standard error, because some programs print their version there.
func firstLine(path, flag string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	text, err := exec.CommandContext(ctx, path, flag).CombinedOutput()
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	if line == "" {
		return "", fmt.Errorf("%s %s printed nothing: %w", path, flag, err)
	}
	return strings.TrimPrefix(line, "This is "), nil
}

func ringsideArgs(at Place) ([]string, error) {
	sections := "" // parts of the configuration that only some scenarios need
	if at.Timeout > 0 {
		sections = fmt.Sprintf("defaults: {timeouts: {request: %[1]v, deadline: %[1]v}}\n", at.Timeout)
	}
	if at.Routes != "" {
		sections += fmt.Sprintf("routes: [%s]\n", at.Routes)
	}
	listen := fmt.Sprintf("127.0.0.1:%d", at.port)
	if at.socket != "" {
		listen = fmt.Sprintf("[%s, 'unix:%s']", listen, at.socket)
	}
	file, err := write(at.Dir, "ringside.yaml", fmt.Sprintf(`listen: %s
admin: {address: "127.0.0.1:%d", %s}
pools:
  main:
    distribution: ketama
    servers:
      - %s
engine: {loops: %d, %s}
%s`, listen, at.admin, at.AdminMore, strings.Join(at.Servers, "\n      - "), at.Loops, at.engine, sections))
	return []string{"serve", "-c", file}, err
}

// nutcrackerArgs returns the usual configuration of nutcracker.
func nutcrackerArgs(at Place) ([]string, error) {
	pools := nutcrackerPool("bench", fmt.Sprintf("127.0.0.1:%d", at.port), at.Servers)
	if at.socket != "" { // a pool of nutcracker can listen on only one address
		pools += nutcrackerPool("socket", at.socket, at.Servers)
	}
	file, err := write(at.Dir, "nutcracker.yml", pools)
	return []string{"-c", file, "-v", "4", "-o", filepath.Join(at.Dir, "nutcracker.log"), "-p", filepath.Join(at.Dir, "nutcracker.pid"),
		"-a", "127.0.0.1", "-s", strconv.Itoa(at.admin)}, err
}

func nutcrackerPool(name, listen string, servers []string) string {
	return fmt.Sprintf(`%s:
  listen: %s
  hash: md5
  distribution: ketama
  backlog: 4096
  timeout: %d
  server_connections: 1
  auto_eject_hosts: false
  servers:
   - %s:1
`, name, listen, replyTimeout.Milliseconds(), strings.Join(servers, ":1\n   - "))
}

func haproxyArgs(at Place) ([]string, error) {
	file, err := write(at.Dir, "haproxy.cfg", fmt.Sprintf(`global
  nbthread 1
  maxconn 6000
defaults
  mode tcp
  timeout connect 5s
  timeout client 1h
  timeout server 1h
frontend bench
  bind 127.0.0.1:%d backlog 4096
  default_backend one
backend one
  server one %s
`, at.port, at.Servers[0]))
	return []string{"-db", "-f", file}, err
}

// memcachedProxyArgs configures memcached's proxy to serve its server connections on the worker
// thread, not on a separate thread.
func memcachedProxyArgs(at Place) ([]string, error) {
	var lua strings.Builder
	lua.WriteString("function mcp_config_pools()\n  return mcp.pool({\n")
	for i, server := range at.Servers {
		host, port, err := net.SplitHostPort(server)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&lua, "    mcp.backend(%q, %q, %s),\n", fmt.Sprintf("server%d", i+1), host, port)
	}
	lua.WriteString(`  }, { iothread = false })
end

function mcp_config_routes(pool)
  local route = mcp.funcgen_new()
  local handle = route:new_handle(pool)
  route:ready({ n = "bench", f = function(context)
    return function(request)
      return context:enqueue_and_wait(request, handle)
    end
  end })
  mcp.attach(mcp.CMD_ANY_STORAGE, route)
end
`)
	file, err := write(at.Dir, "proxy.lua", lua.String())
	return append(memcachedArgs(at.port), "-o", "proxy_config="+file), err
}

func floorArgs(at Place) ([]string, error) { return memcachedArgs(at.port), nil }

// memcachedArgs returns the arguments of a memcached that listens on the given ports.
func memcachedArgs(ports ...int) []string {
	var listen []string
	for _, port := range ports {
		listen = append(listen, fmt.Sprintf("127.0.0.1:%d", port))
	}
	args := []string{"-l", strings.Join(listen, ","), "-U", "0", "-t", "1", "-m", "1024", "-I", "2m", "-c", "12000", "-b", "4096"}
	if os.Getuid() == 0 {
		args = append(args, "-u", "root")
	}
	return args
}

func write(dir, name, text string) (string, error) {
	path := filepath.Join(dir, name)
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// freePorts returns ports on which no process listens. Another process may use one before the child
// does; the child's start then reports it. The ports are below those that the kernel assigns to
// clients. Otherwise a client of a dead server could get the server's port as its own, connect to
// itself, and prevent the server's restart.
func freePorts(n int) ([]int, error) {
	const lowest = 20000
	below := 32768 // the kernel's default for the lowest port that it assigns to clients
	if text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		if _, err := fmt.Sscan(string(text), &below); err != nil {
			return nil, fmt.Errorf("the ports of clients: %w", err)
		}
	}
	if below < lowest+1000 {
		return nil, fmt.Errorf("clients have the ports from %d on, and nearly none are left above %d for servers: see ip_local_port_range", below, lowest)
	}
	var ports []int
	for tries := 0; len(ports) < n; tries++ {
		port := lowest + rand.IntN(below-lowest)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			if tries > 100*n {
				return nil, err
			}
			continue
		}
		defer l.Close() // closed only when all ports are chosen, so that no port is chosen twice
		ports = append(ports, port)
	}
	return ports, nil
}

// StartPeer starts the peer p in the environment `at` and waits until it listens. If socket is
// true, the peer also listens on a unix socket.
func (s *Starter) StartPeer(ctx context.Context, p *Peer, at Place, socket bool, cpus []int) (*child, error) {
	dir, err := os.MkdirTemp(s.dir, "peer")
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	at.Dir, at.port, at.admin = dir, ports[0], ports[1]
	if socket {
		at.socket = filepath.Join(dir, "socket")
	}
	args, err := p.Configure(at)
	if err != nil {
		return nil, err
	}
	c, err := s.Spawn(ctx, p.Name, p.binary, args, ports[0], cpus)
	if err != nil {
		return nil, err
	}
	c.admin, c.Socket = ports[1], at.socket
	return c, nil
}

// Spawn starts a program and waits until it listens on the given port.
func (s *Starter) Spawn(ctx context.Context, name, binary string, args []string, port int, cpus []int) (*child, error) {
	c := &child{Name: name, Port: port, Cmd: exec.Command(binary, args...), Ended: make(chan struct{})}
	c.Cmd.Stdout, c.Cmd.Stderr = &c.output, &c.output
	if err := s.Start(c.Cmd, cpus); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = c.Cmd.Wait() // the error is not returned here: Blame reports how the process ended
		close(c.Ended)
	}()
	limit := time.After(10 * time.Second)
	for {
		conn, err := net.DialTimeout("tcp", c.Addr(), time.Second)
		if err == nil {
			conn.Close()
			return c, nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-c.Ended:
			return nil, fmt.Errorf("%s ended at its start; %s", name, &c.output)
		case <-limit:
			c.Stop()
			return nil, fmt.Errorf("%s does not listen on %s after 10 s; %s", name, c.Addr(), &c.output)
		case <-ctx.Done():
			c.Stop()
			return nil, ctx.Err()
		}
	}
}
