package instance

// Tests of reloads, by each way to trigger one.

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"ringside/internal/cli"
	"ringside/internal/inspect"
	"ringside/internal/remote"
	"ringside/internal/testenv"
	"ringside/proxy/health/resize"
)

// served is an instance that serves a file in a temporary directory until the test
// ends.
type served struct {
	*Instance
	t       *testing.T
	path    string
	admin   string // address of the admin interface
	journal testenv.Output
	signals chan os.Signal
	hurried bool // it has received a signal already
}

func serveFile(t *testing.T, path, text string) *served {
	t.Helper()
	return serveAfter(t, path, text, nil)
}

// serveAfter is serveFile in a process that takes over from another one.
func serveAfter(t *testing.T, path, text string, taken *takeover) *served {
	t.Helper()
	s := &served{t: t, path: path, signals: make(chan os.Signal, 1)}
	s.write(text)
	w := fileWatch{path: path}
	f, err := w.load()
	if err != nil {
		t.Fatal(err)
	}
	log, logging := NewLogger(f, &s.journal)
	if s.Instance, err = start(f, w, "", log, logging, taken); err != nil {
		t.Fatal(err)
	}
	if taken != nil {
		if err := s.confirm(s.signals); err != nil {
			t.Fatal(err)
		}
	}
	s.admin = s.AdminAddress()
	done := make(chan error)
	go func() { done <- s.Serve(s.signals) }()
	t.Cleanup(func() {
		s.signals <- syscall.SIGTERM
		if err := <-done; (err != nil) != s.hurried {
			t.Errorf("serve: %v", err)
		}
		if t.Failed() {
			t.Log(s.journal.String())
		}
	})
	return s
}

func (s *served) write(text string) {
	s.t.Helper()
	if err := os.WriteFile(s.path, []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// reloads runs ringside reload and returns its output and its errors.
func (s *served) reloads(code int, more ...string) (out, errs string) {
	s.t.Helper()
	got, out, errs := typed(append([]string{"reload", "--admin", s.admin}, more...)...)
	if got != code {
		s.t.Errorf("exit code %d, want %d: %s%s", got, code, out, errs)
	}
	return out, errs
}

// typed runs a command against a running instance and returns its output. It repeats a
// command to which a loop without a processor has not replied in time.
func typed(args ...string) (code int, out, errs string) {
	for end := time.Now().Add(testenv.Hang); ; {
		if code, out, errs = typedOnce(args); !strings.Contains(errs, "did not answer within 1s") || time.Now().After(end) {
			return code, out, errs
		}
	}
}

func typedOnce(args []string) (code int, out, errs string) {
	root := &cobra.Command{Use: "ringside"}
	root.AddCommand(append(remote.Commands(), inspect.Commands()...)...)
	var o, e bytes.Buffer
	code = cli.Run(root, args, nil, &o, &e)
	return code, o.String(), e.String()
}

var eventually = testenv.Eventually

func wants(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("it lacks %q:\n%s", part, text)
		}
	}
}

const reloadable = `listen: ["127.0.0.1:0"%s]
admin: {address: "127.0.0.1:0"}
pools:
  main:
    distribution: ketama
    servers: [{address: "127.0.0.1:9", name: a}, {address: "127.0.0.2:9", name: b%s}]
%s`

func TestReloadCommand(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	s := serveFile(t, filepath.Join(t.TempDir(), "ringside.yaml"), fmt.Sprintf(reloadable, ", unix:"+socket, "", ""))

	out, _ := s.reloads(0)
	wants(t, out, "is in force (generation 2)", "it changes nothing")

	// The reply arrives when the change is in force.
	s.write(fmt.Sprintf(reloadable, "", `, weight: 3}, {address: "127.0.0.3:9", name: c`, "limits: {clients: 17}\nengine: {loops: 2}\n"))
	out, _ = s.reloads(0)
	wants(t, out, "generation 3", "  -listener unix:"+socket+": its clients are closed after the replies to requests in flight\n", "  pool main: server b: weight 1 to 3\n", "  pool main: +server c (127.0.0.3:9)\n",
		"  limits.clients 10000 to 17\n", "  at the next start: engine.loops 1 to 2\n")
	if c, err := net.Dial("unix", socket); err == nil {
		c.Close()
		t.Error("the listener that was removed accepts")
	}
	wants(t, s.journal.String(), "+server c (127.0.0.3:9)", "engine.loops 1 to 2")

	// Changes that wait for the next start are compared with the running configuration.
	out, _ = s.reloads(0, "--json")
	var done struct {
		Changes   []string
		NextStart []string `json:"next_start"`
	}
	if err := json.Unmarshal([]byte(out), &done); err != nil || len(done.Changes) != 0 || len(done.NextStart) != 1 {
		t.Errorf("%+v, %v", done, err)
	}

	s.write("listen: :1\npools: {main: {distribution: ketma, servers: [a]}}\n")
	_, errs := s.reloads(78)
	if want := s.path + `:2:30: `; !strings.HasPrefix(errs, want) {
		t.Errorf("it says %q, want it to begin with %q", errs, want)
	}
	if len(s.proxy.Table().Pools[0].Servers) != 3 {
		t.Error("a refused file has changed the pool")
	}
	s.admin = "127.0.0.1:1"
	_, errs = s.reloads(1)
	wants(t, errs, "no answer from the admin interface")
}

// TestReloadCreatesSockets removes the files of unix sockets. The state of the instance says so, and a
// reload creates the files again.
func TestReloadCreatesSockets(t *testing.T) {
	dir, err := os.MkdirTemp("", "ringside") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	clients, admin := filepath.Join(dir, "clients"), filepath.Join(dir, "admin")
	text := func(mode string) string {
		return fmt.Sprintf("listen: {address: \"unix:%s\", mode: %s}\nadmin: unix:%s\npools: {main: {distribution: ketama, servers: [127.0.0.1:9]}}\n", clients, mode, admin)
	}
	s := serveFile(t, filepath.Join(t.TempDir(), "ringside.yaml"), text("0600"))
	s.admin = "unix:" + admin
	s.reloads(0)

	if err := os.Remove(clients); err != nil {
		t.Fatal(err)
	}
	_, list, _ := typed("server", "list", "--admin", s.admin)
	wants(t, list, "No client can connect to unix:"+clients+": its file was removed. ringside reload creates it again.")
	if code, _, errs := typed("health", "--admin", s.admin); code != 1 || !strings.Contains(errs, "no client can connect, because the files of all unix sockets were removed: ringside reload creates them again") {
		t.Errorf("health: exit code %d, %s", code, errs)
	}
	s.write(text("0660"))
	out, _ := s.reloads(0)
	wants(t, out, "  listener unix:"+clients+": mode 0600 to 0660\n", "  the file of unix:"+clients+" was removed, and is created again\n")
	wants(t, s.journal.String(), "the file of unix:"+clients+" was removed, and is created again")
	if info, err := os.Stat(clients); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("%v, %v", info, err)
	}
	if code, _, errs := typed("health", "--admin", s.admin); code != 0 {
		t.Errorf("health: %s", errs)
	}
	out, _ = s.reloads(0)
	wants(t, out, "it changes nothing")

	if err := os.Remove(admin); err != nil {
		t.Fatal(err)
	}
	s.signals <- syscall.SIGHUP
	eventually(t, "the admin interface has its file again", func() bool {
		_, err := os.Stat(admin)
		return err == nil
	})
	s.reloads(0)
	wants(t, s.journal.String(), "the file of unix:"+admin+" was removed, and is created again")
}

// TestMaxMove checks that max_move rejects a reload, however it is triggered, unless an operator
// accepts it. The limit of the new file counts.
func TestMaxMove(t *testing.T) {
	text := func(more, settings string) string {
		return strings.Replace(fmt.Sprintf(reloadable, "", more, settings), "distribution: ketama", "distribution: ketama\n    max_move: 20.5%", 1)
	}
	const third = `}, {address: "127.0.0.3:9", name: c`
	s := serveFile(t, filepath.Join(t.TempDir(), "ringside.yaml"), text("", "watch: on\n"))
	servers := func() int { return len(s.proxy.Table().Pools[0].Servers) }

	s.write(text(third, ""))
	eventually(t, "watch: on: it is rejected", func() bool { return s.reloaded().Failed > 0 })
	const says = "of its keys move to other servers, and its max_move is 20.5%: ringside plan shows the moves; to move the keys, use ringside reload --accept"
	failed := s.reloaded()
	wants(t, failed.Err.Error(), s.path+": pool main: 3", says)
	wants(t, s.journal.String(), "new configuration rejected; the old one stays in force", says)
	_, errs := s.reloads(78)
	wants(t, errs, says)
	s.signals <- syscall.SIGHUP
	eventually(t, "SIGHUP: it is rejected", func() bool { return s.reloaded().Failed == failed.Failed+2 })
	if n := servers(); n != 2 {
		t.Errorf("rejected, but there are %d servers", n)
	}

	s.write(strings.Replace(text(third, ""), "20.5%", "50%", 1))
	s.reloads(0)
	s.write(text("", ""))
	s.reloads(78)
	if n := servers(); n != 3 {
		t.Errorf("rejected, but there are %d servers", n)
	}
	out, _ := s.reloads(0, "--accept")
	wants(t, out, "pool main: -server c")
	s.reloads(0) // nothing moves any more
}

// TestReloadOfLogAndAdmin checks that changes of log and admin do not need a restart.
func TestReloadOfLogAndAdmin(t *testing.T) {
	s := serveFile(t, filepath.Join(t.TempDir(), "ringside.yaml"), fmt.Sprintf(reloadable, "", "", ""))
	s.write(fmt.Sprintf(reloadable, "", "", "log: {level: warn, format: json}\n"))
	eventually(t, "the servers are down", func() bool { return strings.Count(s.journal.String(), "server down") == 2 })
	before := s.journal.String()
	s.reloads(0)
	s.write("nothing")
	s.reloads(78)
	after := strings.TrimPrefix(s.journal.String(), before)
	if !strings.HasPrefix(after, `{"time":`) || strings.Contains(after, "INFO") || !strings.Contains(after, `"level":"ERROR"`) {
		t.Errorf("logged behind the reload:\n%s", after)
	}

	// The admin interface moves while it answers the request for the reload.
	socket := filepath.Join(t.TempDir(), "admin")
	moved := strings.Replace(fmt.Sprintf(reloadable, "", "", ""), `{address: "127.0.0.1:0"}`, `{address: "unix:`+socket+`", allow_faults: true, pprof: off}`, 1)
	s.write(moved)
	old := s.admin
	out, _ := s.reloads(0)
	wants(t, out, "admin.address 127.0.0.1:0 to unix:"+socket, "admin.allow_faults false to true", "admin.pprof loopback to off")
	eventually(t, "the old address is closed", func() bool {
		c, err := net.Dial("tcp", old)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	s.admin = "unix:" + socket
	client := s.client()
	defer client.CloseIdleConnections()
	fault := func() int {
		r, _ := http.NewRequest("POST", "http://localhost/control/faults", strings.NewReader(`{"server":"a","kind":"hang"}`))
		r.Header.Set("Ringside-Control", "1")
		r.Header.Set("Content-Type", "application/json")
		w, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		w.Body.Close()
		return w.StatusCode
	}
	if code := fault(); code != http.StatusCreated {
		t.Errorf("a fault that is allowed now: %d", code)
	}
	s.write(strings.Replace(moved, "allow_faults: true", "allow_faults: false", 1))
	s.reloads(0)
	if code := fault(); code != http.StatusForbidden || len(s.faults.List()) > 0 {
		t.Errorf("a fault that is allowed no more: %d; left over: %v", code, s.faults.List())
	}

	// A file with an address that is in use is rejected as a whole.
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	s.write(strings.Replace(moved, "unix:"+socket, taken.Addr().String(), 1))
	_, errs := s.reloads(78)
	wants(t, errs, "cannot listen for admin on "+taken.Addr().String())
}

func (s *served) client() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", strings.TrimPrefix(s.admin, "unix:"))
	}}}
}

// TestWatch checks that watch: on detects three kinds of change: a written file, a file
// that replaces it, and a swapped link of its directory, as in Kubernetes.
func TestWatch(t *testing.T) {
	dir := t.TempDir()
	version := func(n int, text string) string {
		name := fmt.Sprintf("..v%d", n)
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "ringside.yaml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return name
	}
	swap := func(name string) {
		if err := os.Symlink(name, filepath.Join(dir, "..tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	text := func(clients int, watch string) string {
		return fmt.Sprintf(reloadable, "", "", fmt.Sprintf("watch: %s\nlimits: {clients: %d}\n", watch, clients))
	}
	swap(version(1, text(101, "on")))
	path := filepath.Join(dir, "ringside.yaml")
	if err := os.Symlink("..data/ringside.yaml", path); err != nil {
		t.Fatal(err)
	}
	s := serveFile(t, path, text(101, "on"))
	inForce := func(clients int) {
		t.Helper()
		eventually(t, fmt.Sprint(clients, " clients"), func() bool { return s.proxy.Table().Limits.Clients == clients })
	}
	swap(version(2, text(102, "on")))
	inForce(102)
	s.write(text(103, "on"))
	inForce(103)
	if err := os.WriteFile(path+".new", []byte(text(104, "on")), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	inForce(104)

	// A wrong file is rejected once, and the next version is read.
	s.write("nothing")
	eventually(t, "a wrong file is refused", func() bool { return s.reloaded().Failed == 1 })
	s.write(text(105, "off"))
	inForce(105)
	eventually(t, "one is refused and four are taken", func() bool { n := s.reloaded(); return n.Failed == 1 && n.Succeeded == 4 })
}

// TestWatchOfSecrets checks that watch: on detects changes of the files of variables, also
// if the configuration was rejected because of them, and that no answer shows a secret.
func TestWatchOfSecrets(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("RINGSIDE_TEST_CLIENTS", "101")
	secret := filepath.Join(dir, "secret")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(secret, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("hunter22")
	s := serveFile(t, filepath.Join(dir, "f"), fmt.Sprintf(reloadable, "", "", fmt.Sprintf("watch: on\nlimits: {clients: \"${RINGSIDE_TEST_CLIENTS}\"}\nzone: ${file:%s}\n", secret)))
	write("hunter23")
	eventually(t, "a new secret", func() bool { return s.reloaded().Succeeded == 1 })
	write("has spaces")
	eventually(t, "a wrong secret", func() bool { return s.reloaded().Failed == 1 })
	write("hunter24")
	eventually(t, "a right secret", func() bool { return s.reloaded().Succeeded == 2 })
	if f := s.config(); f.Variables["RINGSIDE_TEST_CLIENTS"] != "101" || len(f.Variables) != 1 || strings.Contains(f.Text, "hunter") {
		t.Errorf("config: %+v", f)
	}
	if log := s.journal.String(); strings.Contains(log, "hunter") || strings.Contains(log, "has spaces") || !strings.Contains(log, "${file:"+secret+"}") {
		t.Errorf("the log: %s", log)
	}
}

// TestWatchOfNamedFiles checks that watch: on follows the files that a rejected configuration names, also if
// they do not exist yet.
func TestWatchOfNamedFiles(t *testing.T) {
	dir := t.TempDir()
	users := filepath.Join(dir, "users")
	text := func(listen string) string {
		return "watch: on\nlisten: [127.0.0.1:0" + listen + "]\nadmin: {address: \"127.0.0.1:0\"}\npools: {main: {distribution: ketama, servers: [\"127.0.0.1:9\"]}}\n"
	}
	s := serveFile(t, filepath.Join(dir, "ringside.yaml"), text(""))
	s.write(text(", {address: \"127.0.0.2:0\", auth_file: " + users + "}"))
	eventually(t, "it names a file that does not exist", func() bool { return s.reloaded().Failed == 1 })
	testenv.WriteFile(t, users, []byte("nonsense"))
	eventually(t, "the file is wrong", func() bool { return s.reloaded().Failed == 2 })
	testenv.WriteFile(t, users, []byte("app:s3cret\n"))
	eventually(t, "the file is right", func() bool { return s.reloaded().Succeeded == 1 })
	testenv.WriteFile(t, users, []byte("app:other\n"))
	eventually(t, "the file in force changes", func() bool { n := s.reloaded(); return n.Succeeded == 2 && n.Failed == 2 })
}

// TestFileWatchSettles checks that a file is ignored while it is being written.
func TestFileWatchSettles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	w := fileWatch{path: path}
	w.reading()
	for i := range 5 {
		if err := os.WriteFile(path, bytes.Repeat([]byte("x"), i+1), 0o644); err != nil {
			t.Fatal(err)
		}
		if w.changed() {
			t.Errorf("read in the middle of writing, at look %d", i)
		}
	}
	if !w.changed() {
		t.Error("what has settled is not seen")
	}
	w.reading()
	if w.changed() {
		t.Error("what was read is seen again")
	}
	os.Remove(path)
	for range 2 {
		if w.changed() {
			t.Error("no file is read")
		}
	}
}

// TestFileWatchMissing checks that a file that stays missing delays no change of another file.
func TestFileWatchMissing(t *testing.T) {
	dir := t.TempDir()
	path, named := filepath.Join(dir, "f"), filepath.Join(dir, "users")
	testenv.WriteFile(t, path, []byte("1"))
	testenv.WriteFile(t, named, []byte("1"))
	w := fileWatch{path: path}
	w.reading()
	w.read[named] = stateOf(named)
	w.changed()
	os.Remove(named)
	testenv.WriteFile(t, path, []byte("12"))
	if w.changed() {
		t.Error("changed while a file is being replaced")
	}
	if !w.changed() {
		t.Error("a missing file delays a change")
	}
}

// TestReloadMovesKeys checks that reload reports that replicated keys move, until they
// have moved. It also checks that a reload waits while instances may be between two
// server lists.
func TestReloadMovesKeys(t *testing.T) {
	var at []any
	for i := range 3 {
		socket := filepath.Join(t.TempDir(), "s")
		cmd := exec.Command("memcached", "-s", socket, "-u", "root", "-m", "64")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		eventually(t, fmt.Sprint("server ", i, " listens"), func() bool {
			c, err := net.Dial("unix", socket)
			if err == nil {
				c.Close()
			}
			return err == nil
		})
		at = append(at, "unix:"+socket)
	}
	text := func(weight int) string {
		return fmt.Sprintf("listen: [\"127.0.0.1:0\"]\nadmin: {address: \"127.0.0.1:0\"}\npools: {main: {distribution: ketama, timeouts: {deadline: 1s}, failover: {ping: 50ms, lease: 500ms}, servers: [{address: \"%[1]s\", weight: %[4]d}, \"%[2]s\", \"%[3]s\"]}}\nroutes: [{pool: main, replicas: 2, replicas_on: server}]\n",
			append(at[:3:3], weight)...)
	}
	s := serveFile(t, filepath.Join(t.TempDir(), "ringside.yaml"), text(1))
	const moves = "replicated keys move to other servers when all instances have this configuration"
	for weight := 2; weight < 5; weight++ {
		s.write(text(weight))
		out, _ := s.reloads(0)
		wants(t, out, moves)
	}
	weight := 5
	eventually(t, "a reload waits", func() bool {
		if out, _ := s.reloads(0); !strings.Contains(out, moves) { // the move ended before the reload
			s.write(text(weight))
			weight++
		}
		return strings.Contains(s.journal.String(), "reload delayed")
	})
	eventually(t, "all keys are where they are to be", func() bool {
		out, _ := s.reloads(0)
		return !strings.Contains(out, moves)
	})
	if log := s.journal.String(); !strings.Contains(log, "replicated keys have all moved") {
		t.Error(log)
	}
}

// TestServersDead reloads an instance that is cut off from all servers in use. The consent to the moves of keys must not be a consent to
// go on without these servers.
func TestServersDead(t *testing.T) {
	silent := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l.Addr().String()
	}
	text := fmt.Sprintf(`listen: "127.0.0.1:0"
admin: {address: "127.0.0.1:0"}
pools:
  main:
    distribution: ketama-points
    max_move: 20%%
    failover: {mode: rehash, ping: 100ms, lease: 1s, eject_after: 1s}
    timeouts: {request: 100ms}
    servers: [{address: %q, name: a}, {address: %q, name: b}`, silent(), silent())
	s := serveFile(t, filepath.Join(t.TempDir(), "ringside.yaml"), text+"]\n")
	is := func() resize.Status {
		pool := s.proxy.Table().Pools[0]
		return s.proxy.Agents()[pool].View.Resize()
	}
	eventually(t, "a list is in force", func() bool { return is().N != 0 })
	says := func(text string) bool {
		_, out, _ := typed("server", "list", "--admin", s.admin)
		return strings.Contains(out, text)
	}
	const told = "If the servers are dead, give all instances the same file, and use ringside reload --servers-dead on each."

	s.write(text + fmt.Sprintf(", {address: %q, name: c}]\n", silent()))
	_, errs := s.reloads(78)
	wants(t, errs, "use ringside reload --accept")
	_, errs = s.reloads(64, "--servers-dead")
	wants(t, errs, "--servers-dead is not needed: no change of servers waits")
	s.reloads(0, "--accept")
	eventually(t, "the operator learns that it is cut off", func() bool { return says(told) })
	_, planned, _ := typed("plan", s.path, "--admin", s.admin)
	wants(t, planned, "is loaded already", "of the keys move, by the change that has not ended\n", "\n  c       0.0%      0.0%   3")
	s.reloads(0, "--accept")
	if !says(told) || !is().Opposed {
		t.Error("--accept ends the wait for the servers in use")
	}
	out, _ := s.reloads(0, "--servers-dead")
	wants(t, out, "pool main: its servers in use count as dead, so the change of servers goes on when they have not answered for a minute")
	wants(t, s.journal.String(), "an operator says that the servers in use are dead")
	eventually(t, "it does not wait for an operator any more", func() bool { return !is().Opposed && !is().Cut && !says(told) })
	s.reloads(64, "--servers-dead")

	s.write(text + "]\n")
	out, _ = s.reloads(0)
	wants(t, out, "pool main: the change of its servers is taken back; keys that have moved already move back when all instances have this configuration")
}
