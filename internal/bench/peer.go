//go:build linux

package bench

// This file has the list of the peers, and the configuration of each.

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Names of peers that the tables of the report use.
const (
	ringside   = "ringside"
	nutcracker = "nutcracker"
	direct     = "direct" // no proxy: the load connects to the servers itself
)

// peer is one of the compared setups: a proxy, or clients without a proxy.
type peer struct {
	name, binary, version string

	// configure writes the configuration files of the peer and returns its arguments. nil: there is
	// no program, because the load connects to the servers.
	configure func(place) ([]string, error)
}

// place is the environment of a proxy: its files, ports, servers and settings.
type place struct {
	dir         string
	port, admin int
	servers     []*process
	socket      string // path of an additional unix socket; empty: none
	replicas    bool   // Ringside keeps two replicas of each key
	patient     bool   // the proxy waits for a server as long as the load does; otherwise it gives up soon, and so survives the failure of a server
}

// replyTimeout is the time after which a reply counts as lost. It is long, so that a busy machine
// does not look like a fault of the proxy.
const replyTimeout = 30 * time.Second

// findPeers finds the programs that the configuration names, and their versions.
func (b *bench) findPeers() (err error) {
	b.peers = []*peer{{name: ringside, binary: b.Ringside, configure: ringsideArgs("")}}
	for _, v := range b.Also {
		b.peers = append(b.peers, &peer{name: v.Name, binary: v.Binary, configure: ringsideArgs(v.More)})
	}
	if b.Nutcracker != "" {
		b.peers = append(b.peers, &peer{name: nutcracker, binary: b.Nutcracker, configure: nutcrackerArgs})
	}
	b.peers = append(b.peers, &peer{name: direct, binary: b.Memcached})
	for _, p := range b.peers {
		flag := "-V"
		if p.name != nutcracker && p.configure != nil {
			flag = "version"
		}
		if p.binary, err = lookPath(p.binary); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		if p.version, err = firstLine(p.binary, flag); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	last := b.peers[len(b.peers)-1]
	b.Memcached, b.version = last.binary, last.version
	return nil
}

// lookPath finds a program. It also searches /usr/sbin, where Debian installs daemons and which is
// not in a user's PATH.
func lookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil && !strings.Contains(name, "/") {
		path, err = exec.LookPath("/usr/sbin/" + name)
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

// ringsideArgs returns a function that configures Ringside with ketama, as few other settings as
// possible, and the text `more`.
func ringsideArgs(more string) func(place) ([]string, error) {
	return func(at place) ([]string, error) {
		listen := fmt.Sprintf("127.0.0.1:%d", at.port)
		if at.socket != "" {
			listen = fmt.Sprintf("[%s, 'unix:%s']", listen, at.socket)
		}
		text := fmt.Sprintf("listen: %s\nadmin: {address: \"127.0.0.1:%d\"}\npools:\n  main:\n    distribution: ketama\n    servers: [%s]\n",
			listen, at.admin, strings.Join(addrs(at.servers), ", "))
		if at.replicas {
			text += "routes: [{pool: main, replicas: 2, replicas_on: server}]\n"
		}
		if at.patient {
			text += fmt.Sprintf("defaults: {timeouts: {request: %[1]v, deadline: %[1]v}}\n", replyTimeout)
		}
		file, err := write(at.dir, "ringside.yaml", text+more+"\n")
		return []string{"serve", "-c", file}, err
	}
}

// nutcrackerArgs configures nutcracker. If it is not patient, it ejects servers.
func nutcrackerArgs(at place) ([]string, error) {
	timeout, eject := replyTimeout, "auto_eject_hosts: false"
	if !at.patient {
		timeout, eject = 400*time.Millisecond, "auto_eject_hosts: true\n  server_failure_limit: 3\n  server_retry_timeout: 2000"
	}
	pools := ""
	for i, listen := range []string{fmt.Sprintf("127.0.0.1:%d", at.port), at.socket} { // a pool of nutcracker can listen on only one address
		if listen != "" {
			pools += fmt.Sprintf("pool%d:\n  listen: %s\n  hash: md5\n  distribution: ketama\n  backlog: 4096\n  timeout: %d\n  server_connections: 1\n  %s\n  servers:\n   - %s:1\n",
				i, listen, timeout.Milliseconds(), eject, strings.Join(addrs(at.servers), ":1\n   - "))
		}
	}
	file, err := write(at.dir, "nutcracker.yml", pools)
	return []string{"-c", file, "-v", "4", "-o", filepath.Join(at.dir, "nutcracker.log"), "-p", filepath.Join(at.dir, "nutcracker.pid"),
		"-a", "127.0.0.1", "-s", strconv.Itoa(at.admin)}, err
}

func write(dir, name, text string) (string, error) {
	path := filepath.Join(dir, name)
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// startPeer starts a proxy with the servers of b, and waits until it listens.
func (b *bench) startPeer(ctx context.Context, p *peer, s scenario, patient bool) (*process, error) {
	dir, err := os.MkdirTemp(b.dir, "peer")
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	at := place{dir: dir, port: ports[0], admin: ports[1], servers: b.servers, replicas: s.replicas, patient: patient}
	if s.socket {
		at.socket = filepath.Join(dir, "socket")
	}
	args, err := p.configure(at)
	if err != nil {
		return nil, err
	}
	c, err := b.spawn(ctx, p.name, exec.Command(p.binary, args...), at.port, b.ProxyCPUs)
	if err != nil {
		return nil, err
	}
	c.admin, c.socket = at.admin, at.socket
	return c, nil
}

// startServers starts serverCount memcached servers on the given CPUs.
func (b *bench) startServers(ctx context.Context, cpus []int) (servers []*process, err error) {
	ports, err := freePorts(serverCount)
	for i := 0; i < len(ports) && err == nil; i++ {
		var server *process
		if server, err = b.startServer(ctx, ports[i], cpus); err == nil {
			servers = append(servers, server)
		}
	}
	if err != nil {
		stop(servers)
	}
	return servers, err
}

// startServer starts a memcached with one worker thread.
func (b *bench) startServer(ctx context.Context, port int, cpus []int) (*process, error) {
	args := []string{"-l", "127.0.0.1", "-p", strconv.Itoa(port), "-U", "0", "-t", "1", "-m", "1024", "-I", "2m", "-c", "12000", "-b", "4096"}
	if os.Getuid() == 0 {
		args = append(args, "-u", "root")
	}
	return b.spawn(ctx, "memcached", exec.Command(b.Memcached, args...), port, cpus)
}

// proxies returns the peers that are proxies.
func (b *bench) proxies() []*peer {
	return slices.DeleteFunc(slices.Clone(b.peers), func(p *peer) bool { return p.configure == nil })
}
