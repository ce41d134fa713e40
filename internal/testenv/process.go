package testenv

// This file starts programs, and waits until they are ready.

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"ringside/internal/ports"
)

// Patience is the time limit for every wait of a test. Only a failing test waits that long.
const Patience = Hang

// Eventually calls done repeatedly until it returns true. After the time Patience it fails the
// test; what is the condition, for the message.
func Eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(Patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if done() {
			return
		}
	}
	t.Fatalf("waited %v in vain: %s", Patience, what)
}

// Need returns the path of a program. It fails the test if the program is not installed.
func Need(t testing.TB, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatalf("%v; `make deps` installs what is missing", err)
	}
	return path
}

// OwnHost returns a random loopback address, which no other server is likely to use. On a shared
// address, a server of another test could get the port of a killed server and answer in its
// place. Outside Linux there is only 127.0.0.1.
func OwnHost() string {
	if runtime.GOOS != "linux" {
		return "127.0.0.1"
	}
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
}

// FreeAddress returns an address of host with a port on which no process listens at any address. Until
// the test ends, no other test gets this port. Other programs may still take it, so the caller must
// check that its server has started.
func FreeAddress(t testing.TB, host string) string {
	t.Helper()
	free, release, err := ports.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return net.JoinHostPort(host, strconv.Itoa(free[0]))
}

// withTLS has the addresses at which a memcached of this process speaks TLS, and the settings of clients.
var withTLS sync.Map // of *tls.Config, by address

// logins has the requests with which connections to memcacheds of this process begin.
var logins sync.Map // of string, by address

// LogInAt makes Dial log in at an address, as a user of a memcached with -Y.
func LogInAt(address, user, password string) {
	logins.Store(address, fmt.Sprintf("set auth x x %d\r\n%s %s\r\n", len(user)+1+len(password), user, password))
}

// Dial connects to host:port, or to the unix socket at an absolute path. Every use of the connection
// fails after the time Patience.
func Dial(address string) (net.Conn, error) {
	network := "tcp"
	if strings.HasPrefix(address, "/") {
		network = "unix"
	}
	c, err := net.DialTimeout(network, address, Patience)
	if config, ok := withTLS.Load(address); ok && err == nil {
		c = tlsConn{tls.Client(c, config.(*tls.Config))}
	}
	if err == nil {
		c.SetDeadline(time.Now().Add(Patience))
	}
	if login, ok := logins.Load(address); ok && err == nil {
		io.WriteString(c, login.(string))
		answer := make([]byte, len("STORED\r\n"))
		if _, err = io.ReadFull(c, answer); err != nil || string(answer) != "STORED\r\n" {
			c.Close()
			return nil, fmt.Errorf("login at %s: %q, %w", address, answer, err)
		}
	}
	return c, err
}

// tlsConn is a connection to a memcached with TLS. It sends the last byte in a record of its own, because
// memcached may stop in the middle of a record: see secure.Conn.WriteToServer.
type tlsConn struct{ *tls.Conn }

func (c tlsConn) Write(b []byte) (int, error) {
	cut := max(len(b)-1, 0)
	n, err := c.Conn.Write(b[:cut])
	if err == nil {
		m, also := c.Conn.Write(b[cut:])
		n, err = n+m, also
	}
	return n, err
}

// Output collects what a process or a log writes.
type Output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// Reset removes what was collected.
func (o *Output) Reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.b.Reset()
}

// Process is a running program.
type Process struct {
	Name   string
	Cmd    *exec.Cmd
	Exited chan struct{} // closed when the process has ended
	Ended  time.Time     // when it ended; set before Exited is closed
	out    Output
}

// Start starts a program, and kills it at the end of the test.
func Start(t testing.TB, program string, args ...string) *Process {
	t.Helper()
	return Run(t, program, exec.Command(Need(t, program), args...))
}

// Run starts cmd, and kills it at the end of the test. If the test failed, it logs the output.
func Run(t testing.TB, name string, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{Name: name, Cmd: cmd, Exited: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.out, &p.out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		cmd.Wait() // the outcome is read from ProcessState
		p.Ended = time.Now()
		close(p.Exited)
	}()
	t.Cleanup(func() {
		p.Kill()
		if out := p.Output(); t.Failed() && out != "" {
			t.Logf("%s (pid %d) wrote:\n%s", p.Name, cmd.Process.Pid, out)
		}
	})
	return p
}

// Output returns what the process has written so far.
func (p *Process) Output() string { return p.out.String() }

// Crashed returns the sign of a data race or a panic in the output, or "".
func (p *Process) Crashed() string {
	for _, sign := range []string{"DATA RACE", "panic:", "fatal error:"} {
		if strings.Contains(p.Output(), sign) {
			return sign
		}
	}
	return ""
}

// Kill sends SIGKILL, which also ends a paused process, and waits for the end.
func (p *Process) Kill() {
	p.Cmd.Process.Kill()
	<-p.Exited
}

// Running reports whether the process has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.Exited:
		return false
	default:
		return true
	}
}

// Ready waits until the process replies to a version command at address. It returns an error if
// the process ends.
func (p *Process) Ready(address string) error {
	for end := time.Now().Add(Patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if !p.Running() {
			return fmt.Errorf("%s ended with status %d before it was ready:\n%s", p.Name, p.Cmd.ProcessState.ExitCode(), p.Output())
		}
		c, err := Dial(address)
		if err != nil {
			continue
		}
		io.WriteString(c, "version\r\n")
		answer := make([]byte, len("VERSION "))
		_, err = io.ReadFull(c, answer)
		c.Close()
		if err == nil && (string(answer) == "VERSION " || string(answer) == "CLIENT_E") { // CLIENT_ERROR if it requires a login
			return nil
		}
	}
	return fmt.Errorf("%s did not answer at %s:\n%s", p.Name, address, p.Output())
}

// Build compiles the ringside binary into dir, with the race detector if race is set. It returns
// the path of the binary. For speed, the binary has no debug information (-w).
func Build(dir string, race bool) (path string, err error) {
	path = filepath.Join(dir, fmt.Sprintf("ringside-race-%v", race))
	out, err := exec.Command("go", "build", fmt.Sprintf("-race=%v", race), "-ldflags=-w", "-o", path, "ringside/cmd/ringside").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build ringside/cmd/ringside: %w\n%s", err, out)
	}
	return path, nil
}

// Memcached is a real memcached process. After Kill and Restart, it has the same address as
// before.
type Memcached struct {
	Address string // host:port, or the path of a unix socket
	program string
	args    []string
	*Process
}

// StartMemcached starts a memcached on a loopback address of its own, with additional arguments.
func StartMemcached(t testing.TB, args ...string) *Memcached {
	t.Helper()
	return StartRelease(t, "memcached", OwnHost(), args...)
}

// StartRelease starts the memcached program at a path, on an address of host, or on a unix socket if
// host is a path. It tries up to six addresses, because another process may have taken the port.
func StartRelease(t testing.TB, program, host string, args ...string) *Memcached {
	t.Helper()
	for try := 0; ; try++ {
		m := &Memcached{Address: host, program: program, args: args}
		if !strings.HasPrefix(host, "/") {
			m.Address = FreeAddress(t, host)
		}
		if err := m.start(t); err == nil {
			return m
		} else if try == 5 {
			t.Fatal(err)
		}
	}
}

// StartTLS starts a memcached with TLS on an address of host. Its certificate is of ca and for that address.
// Clients need a certificate of ca.
func StartTLS(t testing.TB, ca *CA, host string, args ...string) *Memcached {
	t.Helper()
	dir := t.TempDir()
	cert, key := ca.Named(t, host).Write(t, dir, "memcached")
	roots := filepath.Join(dir, "ca.crt")
	WriteFile(t, roots, ca.PEM)
	address := FreeAddress(t, host)
	withTLS.Store(address, &tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{ca.Named(t, "test").Certificate(t)}, ServerName: host})
	m := &Memcached{Address: address, program: "memcached", args: append([]string{"-Z", "-o", "ssl_chain_cert=" + cert + ",ssl_key=" + key + ",ssl_ca_cert=" + roots + ",ssl_verify_mode=2"}, args...)}
	if err := m.start(t); err != nil {
		t.Fatal(err)
	}
	return m
}

// start starts the process at m.Address and waits until it replies.
func (m *Memcached) start(t testing.TB) error {
	args := []string{"-u", "root", "-U", "0", "-t", "2"}
	if strings.HasPrefix(m.Address, "/") {
		args = append(args, "-s", m.Address)
	} else {
		host, port, _ := net.SplitHostPort(m.Address)
		args = append(args, "-l", host, "-p", port)
	}
	if slices.Contains(m.args, "-Z") {
		withTLS.LoadOrStore(m.Address, &tls.Config{InsecureSkipVerify: true})
	}
	m.Process = Start(t, m.program, append(args, m.args...)...)
	return m.Ready(m.Address)
}

// Restart starts the memcached again at the same address, after its process has ended. It has no
// items.
func (m *Memcached) Restart(t testing.TB) {
	t.Helper()
	if err := m.start(t); err != nil {
		t.Fatal(err)
	}
}

// Serve starts a server on a free port of host, and returns its address. For each connection, it calls serve and then
// closes the connection.
func Serve(t testing.TB, host string, serve func(c net.Conn)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	ServeOn(t, l, serve)
	return l.Addr().String()
}

// ServeOn is Serve for a listener. It ends when the listener is closed, at the latest with the test.
func ServeOn(t testing.TB, l net.Listener, serve func(c net.Conn)) {
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
}
