package e2e

// This file tests serve --take-over while processes of another user interfere, and when another
// process than the old instance listens at the admin address.

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"ringside/internal/testenv"
)

// intruder is a Python script that attacks a take-over. If the tests run as root, they run it as
// another user. Otherwise they run it as the same user, and skip the checks that need two users.
const intruder = `
import array, http.server, json, os, socket, sys, threading, urllib.request
what, admin, more = sys.argv[1], sys.argv[2], sys.argv[3]

def answer(reply):
    class H(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = reply()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        def log_message(self, *a):
            pass
    host, port = admin.rsplit(":", 1)
    s = http.server.ThreadingHTTPServer((host, int(port)), H)
    print("ready", flush=True)
    s.serve_forever()

def ask(at):
    r = urllib.request.Request("http://%s/control/hand-over" % at, data=b"", method="POST", headers={"Ringside-Control": "1"})
    return json.load(urllib.request.urlopen(r))["socket"]

if what == "give":  # it hands over sockets of its own
    name = "ringside-" + os.urandom(8).hex()
    l = socket.socket(socket.AF_UNIX)
    l.bind("\0" + name)
    l.listen(8)
    def give():
        while True:
            c, _ = l.accept()
            own = socket.socket()
            own.bind(("127.0.0.1", 0))
            own.listen(8)
            names = json.dumps(more.split(",")).encode() + b"\n"
            c.sendmsg([names], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [own.fileno()] * len(more.split(","))))])
            print("gave", c.recv(100), flush=True)
    threading.Thread(target=give, daemon=True).start()
    answer(lambda: json.dumps({"socket": "@" + name}).encode())
elif what == "name":  # it names a socket that is not its own
    answer(lambda: json.dumps({"socket": more}).encode())
elif what == "other":  # it names the socket of another instance
    answer(lambda: json.dumps({"socket": ask(more)}).encode())
elif what == "text":
    answer(lambda: b"hello")
elif what == "flood":  # it connects before the process that is to have the sockets
    held = []
    first = True
    while True:
        try:
            name = ask(admin)
        except OSError:
            continue  # it is over for the old one
        for _ in range(200):
            c = socket.socket(socket.AF_UNIX)
            c.setblocking(False)
            try:
                c.connect("\0" + name[1:])
                held.append(c)
            except OSError:
                pass
        for c in held:
            try:
                got = c.recv(100)
                if got:
                    print("got", got, flush=True)
            except OSError:
                pass
        held = held[-300:]
        if first:
            print("ready", flush=True)
            first = False
`

// intrude starts the intruder, and waits until it is ready.
func intrude(t *testing.T, what, admin, more string) *process {
	t.Helper()
	cmd := exec.Command("/usr/bin/python3", "-c", intruder, what, admin, more)
	cmd.Dir = "/"
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	p := &process{testenv.Run(t, "intruder", cmd)}
	eventually(t, "the intruder is ready", func() bool { return strings.Contains(p.Output(), "ready") })
	return p
}

// TestTakeOverFromStranger starts a new instance while a process of another user listens at the
// admin address in place of an old instance. The new instance must end with an error that
// names the address. It must not use the sockets of that process. The instances that run must
// continue to serve.
func TestTakeOverFromStranger(t *testing.T) {
	t.Parallel()
	other := startRingside(t, "auto", front(startMemcacheds(t, 1)))
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ what, more, root, user string }{
		{what: "give", more: "tcp LISTEN,admin tcp ADMIN", root: "of user 65534, not of user 0: both must be of the same user"},
		{what: "give", more: "tcp LISTEN", root: "of user 65534, not of user 0: both must be of the same user", user: "are not of this address"},
		{what: "name", more: "/run/dbus/system_bus_socket", root: "which is not of a Ringside instance"},
		{what: "name", more: "@ringside-nothing", root: "connection refused"},
		{what: "other", more: other.admin, root: "are not of this address"},
		{what: "text", root: "not JSON"},
	} {
		t.Run(c.what+" "+c.more, func(t *testing.T) {
			want := c.root
			if os.Geteuid() != 0 {
				if c.what == "give" && c.user == "" {
					return // of the same user, so the new instance cannot distinguish it from an old instance
				}
				if c.user != "" {
					want = c.user
				}
			}
			address, admin := freeAddress(t, ownHost()), freeAddress(t, ownHost())
			c.more = strings.NewReplacer("LISTEN", address, "ADMIN", admin).Replace(c.more)
			i := intrude(t, c.what, admin, c.more)
			next := &ringside{address: address, admin: admin, file: t.TempDir() + "/ringside.yaml", driver: "auto"}
			next.write(t, fmt.Sprintf("listen: %s\n%s", address, front(startMemcacheds(t, 1))))
			p := start(t, binary, "serve", "--take-over", "-c", next.file)
			if code := p.wait(t); code != 1 {
				t.Errorf("it ends with %d", code)
			}
			if out := p.Output(); !strings.Contains(out, "take over from the process at the admin address "+admin+": ") || !strings.Contains(out, want) {
				t.Errorf("it says %q, want %q", out, want)
			}
			if strings.Contains(i.Output(), "gave b'ready") {
				t.Errorf("the intruder's sockets were taken: %s", i.Output())
			}
			if _, err := net.Dial("tcp", address); err == nil {
				t.Error("somebody serves the listener")
			}
			if !i.Running() {
				t.Errorf("the intruder ended: %s", i.Output())
			}
		})
	}
	if c := dial(t, other.address); !other.Running() {
		t.Error("the other instance ended")
	} else {
		c.store("a", "b")
		c.holds("a", "b")
	}
}

// TestTakeOverUnderAttack checks that another user cannot disturb a take-over. A process of that
// user connects to the hand-over socket before the new instance, many times. It must not receive
// a socket, prevent the take-over, or exhaust the descriptors of the old instance.
func TestTakeOverUnderAttack(t *testing.T) {
	t.Parallel()
	old := startRingside(t, "auto", front(startMemcacheds(t, 1))+"limits: {drain: 10m}\n")
	stay := dial(t, old.address)
	stay.store("a", "b")
	if os.Geteuid() != 0 {
		return // all processes of this user may take the sockets
	}
	i := intrude(t, "flood", old.admin, "")
	before := openDescriptors(t, old.Cmd.Process.Pid)
	next := start(t, old.Cmd.Path, "serve", "--take-over", "-c", old.file)
	old.logged(t, "take-over complete")
	if n := openDescriptors(t, old.Cmd.Process.Pid); n > before+300 {
		t.Errorf("the old instance has %d descriptors, %d before", n, before)
	}
	stay.holds("a", "b")
	dial(t, old.address).holds("a", "b")
	if strings.Contains(i.Output(), "got") {
		t.Errorf("the intruder: %s", i.Output())
	}
	stay.Close()
	if code := old.wait(t); code != 0 {
		t.Errorf("the old one ends with %d", code)
	}
	if !next.Running() {
		t.Error("the new one has ended")
	}
}

// TestTakeOverThatFails checks that the old instance continues to serve if the new one has
// received the sockets and then fails to start.
func TestTakeOverThatFails(t *testing.T) {
	t.Parallel()
	old := startRingside(t, "auto", front(startMemcacheds(t, 1)))
	taken, err := net.Listen("tcp", freeAddress(t, ownHost()))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	c := dial(t, old.address)
	c.store("a", "b")
	old.write(t, fmt.Sprintf("listen: [%q, %q]\n%s", old.address, taken.Addr(), front(startMemcacheds(t, 1))))
	next := start(t, old.Cmd.Path, "serve", "--take-over", "-c", old.file)
	if code := next.wait(t); code != 1 || !strings.Contains(next.Output(), "cannot listen on "+taken.Addr().String()) {
		t.Errorf("the new one ends with %d: %s", code, next.Output())
	}
	c.holds("a", "b")
	dial(t, old.address).holds("a", "b")
	if status, _ := old.page(t, "/healthz"); status != http.StatusOK || !old.Running() {
		t.Errorf("the old one: %d", status)
	}
}

// openDescriptors returns the number of open file descriptors of a process.
func openDescriptors(t *testing.T, pid int) int {
	t.Helper()
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}
