package e2e

// This file starts the two servers of these tests: Debian's memcached, and ringside.

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ringside/internal/testenv"
)

// memcached is a real memcached process. Its address stays the same after kill and restart.
type memcached struct {
	address string // host:port, or the path of a unix socket
	server  *testenv.Memcached
	*process
}

// startMemcached starts a memcached on a loopback address.
func startMemcached(t testing.TB, args ...string) *memcached {
	t.Helper()
	return startMemcachedAt(t, ownHost(), args...)
}

// startMemcachedAt starts a memcached on an address of host, or on a unix socket if host is a
// path.
func startMemcachedAt(t testing.TB, host string, args ...string) *memcached {
	t.Helper()
	return startRelease(t, "memcached", host, args...)
}

// startRelease starts the memcached program at a path.
func startRelease(t testing.TB, binary, host string, args ...string) *memcached {
	t.Helper()
	args = append([]string{"-m", "256", "-I", "4m"}, args...)
	if !strings.HasPrefix(host, "/") {
		args = append(securing(t), args...)
	}
	m := testenv.StartRelease(t, binary, host, args...)
	if overTLS {
		testenv.LogInAt(m.Address, "app", "s3cret")
	}
	return &memcached{m.Address, m, &process{m.Process}}
}

// overTLS makes all memcacheds of this package speak TLS and need a login, so that its tests can run a
// second time. A test that reads what a server receives, or whose pool has unix sockets, fails then.
var overTLS = os.Getenv("RINGSIDE_E2E_TLS") != ""

var tlsOnce sync.Once
var tlsPath string

// tlsOfAll returns the path of the certificate and of its key, without .crt and .key, with which all
// memcacheds speak TLS; empty: they do not.
func tlsOfAll(t testing.TB) string {
	if overTLS {
		tlsOnce.Do(func() {
			dir, err := os.MkdirTemp("", "ringside-tls")
			if err != nil {
				t.Fatal(err)
			}
			ca := testenv.NewCA(t, "ca")
			ca.Named(t, "memcached.example").Write(t, dir, "tls")
			testenv.WriteFile(t, filepath.Join(dir, "ca.crt"), ca.PEM)
			testenv.WriteFile(t, filepath.Join(dir, "tls.users"), []byte("app:s3cret\n"))
			testenv.WriteFile(t, filepath.Join(dir, "tls.password"), []byte("s3cret\n"))
			tlsPath = filepath.Join(dir, "tls")
		})
	}
	return tlsPath
}

// securing returns the arguments with which a memcached speaks TLS and needs a login, if all do.
func securing(t testing.TB) []string {
	files := tlsOfAll(t)
	if files == "" {
		return nil
	}
	return []string{"-Z", "-o", fmt.Sprintf("ssl_chain_cert=%s.crt,ssl_key=%s.key", files, files), "-Y", files + ".users"}
}

// startMemcacheds starts n servers on loopback addresses.
func startMemcacheds(t testing.TB, n int) []*memcached {
	t.Helper()
	all := make([]*memcached, n)
	for i := range all {
		all[i] = startMemcached(t)
	}
	return all
}

// restart starts the server again at the same address, after its process has ended.
func (m *memcached) restart(t testing.TB) {
	t.Helper()
	m.server.Restart(t)
	m.process = &process{m.server.Process}
}

// allDrivers returns the drivers that ringside has on this system, the default first. A driver
// reads and writes the sockets.
func allDrivers() []string {
	if runtime.GOOS == "linux" {
		return []string{"epoll", "portable"}
	}
	return []string{"portable"}
}

// defaultDriver is the driver of tests that don't choose one.
var defaultDriver = cmp.Or(os.Getenv("RINGSIDE_E2E_DRIVER"), "auto")

// drivers returns the drivers that a test of this tier runs with: all of them in the full tier,
// otherwise the default of the system.
func drivers() []string {
	if testenv.Full() {
		return allDrivers()
	}
	return allDrivers()[:1]
}

// eachDriver runs a test once with every driver of this tier. Use it unless the test
// covers code that differs by driver.
func eachDriver(t *testing.T, test func(t *testing.T, driver string)) {
	t.Helper()
	withDrivers(t, drivers(), test)
}

// bothDrivers runs a test with every driver in every tier. It is for the few tests that
// cover what a driver does: partial reads and writes, full buffers, closed connections.
func bothDrivers(t *testing.T, test func(t *testing.T, driver string)) {
	t.Helper()
	withDrivers(t, allDrivers(), test)
}

func withDrivers(t *testing.T, drivers []string, test func(t *testing.T, driver string)) {
	t.Helper()
	t.Parallel()
	for _, driver := range drivers {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			test(t, driver)
		})
	}
}

// scratch is the directory of the compiled binaries, which all tests share.
var scratch string

func TestMain(m *testing.M) {
	// These tests mostly wait for other processes. So 8 of them run in parallel, even on fewer
	// processors, unless the command line has -parallel.
	flag.Parse()
	if zone := os.Getenv(dnsZone); zone != "" {
		fmt.Fprintln(os.Stderr, serveDNS(zone))
		os.Exit(1)
	}
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		flag.Set("test.parallel", "8")
	}
	dir, err := os.MkdirTemp("", "ringside-e2e")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	scratch = dir
	status := m.Run()
	os.RemoveAll(dir)
	os.Exit(status)
}

// build compiles the binary once, with the race detector if the tests have it. buildPlain compiles
// it without, for tests that measure memory: the race detector needs additional memory.
var (
	build = sync.OnceValues(func() (string, error) {
		if !raceDetector {
			return buildPlain()
		}
		return testenv.Build(scratch, true)
	})
	buildPlain = sync.OnceValues(func() (string, error) { return testenv.Build(scratch, false) })
)

// ringside is an instance under test.
type ringside struct {
	address string // of its first listener
	admin   string // host:port of the admin interface
	file    string // path of the configuration
	driver  string
	*process
}

// front returns the configuration of the pool main with these servers. more are further lines of
// the pool, such as "get_errors: error".
func front(servers []*memcached, more ...string) string {
	var b strings.Builder
	b.WriteString("pools:\n  main:\n    distribution: ketama\n")
	for _, line := range more {
		fmt.Fprintf(&b, "    %s\n", line)
	}
	b.WriteString("    servers:\n")
	for _, s := range servers {
		fmt.Fprintf(&b, "      - %q\n", listenText(s.address))
	}
	return b.String()
}

// listenText returns an address in the format of the configuration.
func listenText(address string) string {
	if strings.HasPrefix(address, "/") {
		return "unix:" + address
	}
	return address
}

// startRingside starts ringside with one TCP listener, and waits until it replies. It tries
// another address if another process has taken the port.
func startRingside(t testing.TB, driver, config string) *ringside {
	t.Helper()
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return startBinary(t, driver, config, binary)
}

// startBinary starts another binary as startRingside does.
func startBinary(t testing.TB, driver, config, binary string) *ringside {
	t.Helper()
	for try := 0; ; try++ {
		address := freeAddress(t, ownHost())
		r, err := runRingside(t, driver, []string{address}, fmt.Sprintf("listen: %s\n%s", address, config), binary)
		if err == nil {
			return r
		} else if try == 3 || !strings.Contains(err.Error(), "address already in use") {
			t.Fatal(err)
		}
	}
}

// tryRingside starts ringside, and waits until all listeners reply. config is the whole
// configuration except the driver and the admin address.
func tryRingside(t testing.TB, driver string, listeners []string, config string) (*ringside, error) {
	t.Helper()
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return runRingside(t, driver, listeners, config, binary)
}

func runRingside(t testing.TB, driver string, listeners []string, config, binary string) (*ringside, error) {
	t.Helper()
	r := &ringside{address: listeners[0], admin: freeAddress(t, ownHost()), file: filepath.Join(t.TempDir(), "ringside.yaml"), driver: driver}
	r.write(t, config)
	return r, r.serve(t, listeners, binary)
}

// serve starts r, and waits until all listeners reply. The last word of command is the binary; the
// words before it are a program that starts the binary.
func (r *ringside) serve(t testing.TB, listeners []string, command ...string) error {
	t.Helper()
	r.process = start(t, command[0], append(command[1:], "serve", "-c", r.file)...)
	p := r.process
	t.Cleanup(func() {
		if sign := p.Crashed(); sign != "" {
			certain(t)
			t.Errorf("ringside wrote %q:\n%s", sign, p.Output())
		}
	})
	for _, address := range listeners {
		if err := r.Ready(address); err != nil {
			return err
		}
	}
	return nil
}

// unhurriedDefaults are timeouts that a server on a busy machine does not exceed. A pool can
// override them.
const unhurriedDefaults = "defaults: {timeouts: {connect: 20s, request: 20s, deadline: 20s}}\n"

// poolDefaults returns the configuration's defaults: unhurriedDefaults, and tls and auth if all
// memcacheds speak TLS.
func poolDefaults(t testing.TB) string {
	files := tlsOfAll(t)
	if files == "" {
		return unhurriedDefaults
	}
	return strings.TrimSuffix(unhurriedDefaults, "}\n") + fmt.Sprintf(", tls: {ca: %s, name: memcached.example}, auth: {user: app, password_file: %s.password}}\n", filepath.Join(filepath.Dir(files), "ca.crt"), files)
}

// write replaces the configuration file atomically. It adds default timeouts, the admin address
// and the driver to config.
func (r *ringside) write(t testing.TB, config string) {
	t.Helper()
	driver, more, _ := strings.Cut(r.driver, ",") // more: further settings of the engine
	if driver == "auto" {
		driver = defaultDriver
	}
	if more != "" {
		driver += "," + more
	}
	config += fmt.Sprintf("%sadmin: {address: %q, allow_faults: true}\n", poolDefaults(t), r.admin)
	if !strings.Contains(config, "\nengine:") {
		config += fmt.Sprintf("engine: {driver: %s}\n", driver)
	}
	r.put(t, config)
}

// put replaces the configuration file atomically.
func (r *ringside) put(t testing.TB, config string) {
	t.Helper()
	if err := os.WriteFile(r.file+".new", []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(r.file+".new", r.file); err != nil {
		t.Fatal(err)
	}
}

// reload writes a configuration with r's TCP listener, and sends SIGHUP. It does not wait for the
// reload.
func (r *ringside) reload(t testing.TB, config string) {
	t.Helper()
	r.write(t, fmt.Sprintf("listen: %s\n%s", r.address, config))
	r.signal(t, syscall.SIGHUP)
}

// page requests a page of the admin interface. It repeats a request that failed because a loop did
// not report in time, which happens if the loop gets no CPU.
func (r *ringside) page(t testing.TB, path string) (status int, text string) {
	t.Helper()
	client := http.Client{Timeout: patience}
	for end := time.Now().Add(patience); ; {
		answer, err := client.Get("http://" + r.admin + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if answer.StatusCode != http.StatusInternalServerError || !strings.Contains(string(body), "did not report") || time.Now().After(end) {
			return answer.StatusCode, string(body)
		}
	}
}

// owners reads the keys from each server, and returns the index of the server that has each key.
func owners(t testing.TB, servers []*memcached, keys []string) map[string]int {
	t.Helper()
	at := map[string]int{}
	for i, s := range servers {
		found, _ := dial(t, s.address).get(keys...)
		for key := range found {
			if other, twice := at[key]; twice {
				t.Fatalf("%s is on %s and on %s", key, servers[other].address, s.address)
			}
			at[key] = i
		}
	}
	return at
}

// names returns n keys: the prefix with the numbers from 0.
func names(prefix string, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return keys
}
