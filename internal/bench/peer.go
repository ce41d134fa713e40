//go:build linux

package bench

// The peers: which there are, how each is configured and started.

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

// peer is a program that the load can be put on.
type peer struct {
	name         string
	binary       string
	version      string
	note         string // what a reader of its figures must know
	speaksMeta   bool
	speaksBinary bool // the binary protocol
	proxy        bool // it stands before the servers; if not, it is the floor or nobody
	direct       bool // it is no program: the load asks the servers itself
	sockets      bool // it can be asked over a unix socket, too

	// configure writes what the peer reads into dir and returns its arguments.
	configure func(place) ([]string, error)
}

// place is where and before what a peer is to run.
type place struct {
	dir     string
	port    int
	admin   int // for what is no load: metrics, statistics
	servers []string
	loops   int           // of Ringside
	timeout time.Duration // of Ringside's requests; 0 is its default
	routes  string        // of Ringside; empty: one without settings
	socket  string        // a path to listen on too, for those that can

	engine, adminMore string // more settings of Ringside's engine and of its admin interface, in YAML's flow style
}

// direct is the name of the peer that is none: the load asks the servers itself.
const direct = "direct"

// ringsideNote is what a reader must know of Ringside's figures.
const ringsideNote = "least configuration, ketama, and nutcracker's timeout: a machine that stands still for half a second is no fault of either"

// candidate is a peer that may be here.
type candidate struct {
	peer
	versionFlag string
	needed      bool
}

// findPeers returns the peers of these names, or all, that are here, in the order
// of the report, and the version of the servers.
func findPeers(c Config, names []string) (found []*peer, server string, err error) {
	all := []candidate{
		{peer{name: "ringside", binary: c.Ringside, speaksMeta: true, speaksBinary: true, proxy: true, sockets: true, configure: ringsideArgs, note: ringsideNote}, "version", false},
		{peer{name: "nutcracker", binary: c.Nutcracker, proxy: true, sockets: true, configure: nutcrackerArgs,
			note: "-v 4, ketama over md5, one connection a server, timeout 30 s"}, "-V", true},
		{peer{name: "haproxy", binary: c.Haproxy, speaksMeta: true, speaksBinary: true, proxy: true, configure: haproxyArgs,
			note: "tcp mode, one thread: cannot split keys, forwards each client to one server over a connection of its own"}, "-v", false},
		{peer{name: "memcached proxy", binary: c.MemcachedProxy, speaksMeta: true, proxy: true, configure: memcachedProxyArgs,
			note: "one worker thread, its own placement"}, "-V", false},
		{peer{name: "memcached", binary: c.Memcached, speaksMeta: true, speaksBinary: true, configure: floorArgs,
			note: "the floor: no proxy, the load directly on one server with one worker thread, where the others' proxy is"}, "-V", true},
		{peer{name: direct, binary: c.Memcached, direct: true,
			note: "no proxy: clients that place keys by the same ketama, each with a connection to each of three servers, which are where the others' proxy is"}, "-V", false},
	}
	for _, v := range c.Also {
		note := ringsideNote
		if v.Engine != "" {
			note += "; engine: {" + v.Engine + "}"
		}
		all = slices.Insert(all, 1, candidate{peer{name: v.Name, binary: v.Binary, speaksMeta: true, speaksBinary: true, proxy: true, sockets: true, note: note,
			configure: func(at place) ([]string, error) { at.engine = v.Engine; return ringsideArgs(at) }}, "version", true})
	}
	for _, p := range all {
		wanted := len(names) == 0 || slices.Contains(names, p.name)
		if !wanted && p.name != "memcached" {
			continue
		}
		path, err := lookPath(p.binary)
		if err != nil {
			if p.needed || p.binary != "" && p.name != "haproxy" {
				return nil, "", fmt.Errorf("%s: %w", p.name, err)
			}
			continue
		}
		p.peer.binary = path
		if p.version, err = firstLine(path, p.versionFlag); err != nil {
			return nil, "", fmt.Errorf("%s: %w", p.name, err)
		}
		if p.name == "memcached" {
			server = p.version
		}
		if wanted {
			found = append(found, &p.peer)
		}
	}
	return found, server, nil
}

// lookPath also looks where Debian puts daemons, which a user's PATH lacks.
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

// firstLine runs a program that prints its version; some use standard error.
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

func ringsideArgs(at place) ([]string, error) {
	sections := "" // that only some scenarios have
	if at.timeout > 0 {
		sections = fmt.Sprintf("defaults: {timeouts: {request: %[1]v, deadline: %[1]v}}\n", at.timeout)
	}
	if at.routes != "" {
		sections += fmt.Sprintf("routes: [%s]\n", at.routes)
	}
	listen := fmt.Sprintf("127.0.0.1:%d", at.port)
	if at.socket != "" {
		listen = fmt.Sprintf("[%s, 'unix:%s']", listen, at.socket)
	}
	file, err := write(at.dir, "ringside.yaml", fmt.Sprintf(`listen: %s
admin: {address: "127.0.0.1:%d", %s}
pools:
  main:
    distribution: ketama
    servers:
      - %s
engine: {loops: %d, %s}
%s`, listen, at.admin, at.adminMore, strings.Join(at.servers, "\n      - "), at.loops, at.engine, sections))
	return []string{"serve", "-c", file}, err
}

func nutcrackerArgs(at place) ([]string, error) {
	pools := nutcrackerPool("bench", fmt.Sprintf("127.0.0.1:%d", at.port), at.servers)
	if at.socket != "" { // a pool listens in one place
		pools += nutcrackerPool("socket", at.socket, at.servers)
	}
	file, err := write(at.dir, "nutcracker.yml", pools)
	return []string{"-c", file, "-v", "4", "-o", filepath.Join(at.dir, "nutcracker.log"), "-p", filepath.Join(at.dir, "nutcracker.pid"),
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

func haproxyArgs(at place) ([]string, error) {
	file, err := write(at.dir, "haproxy.cfg", fmt.Sprintf(`global
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
`, at.port, at.servers[0]))
	return []string{"-db", "-f", file}, err
}

// memcachedProxyArgs sets memcached's proxy to serve its connections to the
// servers on the worker thread, not on one of their own.
func memcachedProxyArgs(at place) ([]string, error) {
	var lua strings.Builder
	lua.WriteString("function mcp_config_pools()\n  return mcp.pool({\n")
	for i, server := range at.servers {
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
	file, err := write(at.dir, "proxy.lua", lua.String())
	return append(memcachedArgs(at.port), "-o", "proxy_config="+file), err
}

func floorArgs(at place) ([]string, error) { return memcachedArgs(at.port), nil }

// memcachedArgs serve for the servers, the floor and memcached's proxy alike.
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

// freePorts returns ports that nothing listens on; one may be taken before it is
// used, which the start of the child then says. They lie below those that the
// kernel gives to clients: a client of a dead server whose own port becomes the
// server's would be connected with itself, and the server could not come back.
func freePorts(n int) ([]int, error) {
	const lowest = 20000
	below := 32768 // the kernel's default
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
		defer l.Close() // only when all are found, so that none comes twice
		ports = append(ports, port)
	}
	return ports, nil
}

// start starts a peer on the proxy's CPUs, before the pool, and waits until it
// listens.
func (b *bench) start(ctx context.Context, p *peer, s scenario) (*child, error) {
	dir, err := os.MkdirTemp(b.dir, "peer")
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	at := place{dir: dir, port: ports[0], admin: ports[1], servers: b.pool.addrs, loops: b.loops, timeout: b.timeout, routes: s.routes, adminMore: s.admin}
	if s.socket {
		at.socket = filepath.Join(dir, "socket")
	}
	args, err := p.configure(at)
	if err != nil {
		return nil, err
	}
	c, err := b.spawn(ctx, p.name, p.binary, args, ports[0], b.proxyCPUs)
	if err != nil {
		return nil, err
	}
	c.admin, c.socket = ports[1], at.socket
	return c, nil
}

// spawn starts a program and waits until it listens on port.
func (b *bench) spawn(ctx context.Context, name, binary string, args []string, port int, cpus []int) (*child, error) {
	c := &child{name: name, port: port, cmd: exec.Command(binary, args...), ended: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr = &c.output, &c.output
	if err := b.starter.start(c.cmd, cpus); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = c.cmd.Wait() // killed or ended: whoever needed it says what that means
		close(c.ended)
	}()
	limit := time.After(10 * time.Second)
	for {
		conn, err := net.DialTimeout("tcp", c.addr(), time.Second)
		if err == nil {
			conn.Close()
			return c, nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-c.ended:
			return nil, fmt.Errorf("%s ended at its start; %s", name, &c.output)
		case <-limit:
			c.stop()
			return nil, fmt.Errorf("%s does not listen on %s after 10 s; %s", name, c.addr(), &c.output)
		case <-ctx.Done():
			c.stop()
			return nil, ctx.Err()
		}
	}
}
