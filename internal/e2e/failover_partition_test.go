package e2e

// This file tests network partitions by the kernel: instances and servers run in network
// namespaces, and the links between them lose packets.

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// namespace is a network namespace. A process that sleeps in it keeps it alive.
type namespace struct {
	enter []string // first words of a command that runs in it
	pid   int
}

// lab is a set of network namespaces: one that contains all servers, and one for each
// ringside, with a link to each server.
//
//	ringside p  10.p.s.1 ── link rpss ── 10.p.s.2  servers, server s at 10.9.9.s
//
// It needs root, or a kernel that allows unprivileged user namespaces.
type lab struct {
	servers   namespace
	ringsides []namespace
}

func startLab(t testing.TB, ringsides, servers int) *lab {
	t.Helper()
	first, inside := startFirstNamespace(t)
	l := &lab{servers: *first}
	for s := range servers {
		l.servers.ip(t, fmt.Sprintf("addr add 10.9.9.%d/32 dev lo", s+1))
	}
	for p := range ringsides {
		n := startNamespace(t, inside)
		if n == nil {
			t.Fatal("the second network namespace can't be made, although the first could")
		}
		if len(inside) > 2 {
			n.enter = append(append([]string{}, inside[:5]...), "nsenter", "--target", fmt.Sprint(n.pid), "--net")
		}
		l.ringsides = append(l.ringsides, *n)
		n.ip(t, "link set lo up")
		for s := range servers {
			link := linkName(p, s)
			n.ip(t,
				fmt.Sprintf("link add %s type veth peer name %s netns %d", link, link, l.servers.pid),
				fmt.Sprintf("addr add 10.%d.%d.1/30 dev %s", p+1, s, link),
				fmt.Sprintf("link set %s up", link))
			l.servers.ip(t,
				fmt.Sprintf("addr add 10.%d.%d.2/30 dev %s", p+1, s, link),
				fmt.Sprintf("link set %s up", link))
			n.ip(t, routeTo(p, s))
		}
	}
	return l
}

func linkName(p, s int) string { return fmt.Sprintf("r%ds%d", p, s) }

func routeTo(p, s int) string {
	return fmt.Sprintf("route replace 10.9.9.%d via 10.%d.%d.2", s+1, p+1, s)
}

// startFirstNamespace creates a namespace and activates its loopback. inside is the
// command that creates further namespaces with the same user.
func startFirstNamespace(t testing.TB) (first *namespace, inside []string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Fatal("network namespaces are Linux's")
	}
	need(t, "ip")
	first = startNamespace(t, []string{"unshare", "--net"})
	inside = []string{"unshare", "--net"}
	if first == nil {
		if first = startNamespace(t, []string{"unshare", "--user", "--map-root-user", "--net"}); first == nil {
			t.Fatal("this test makes network namespaces, and this machine lets it make none: run it as root with CAP_SYS_ADMIN, or allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0)")
		}
		user := []string{"nsenter", "--target", fmt.Sprint(first.pid), "--user", "--preserve-credentials"}
		first.enter = append(user, "--net")
		inside = append(user, inside...)
	}
	first.ip(t, "link set lo up")
	return first, inside
}

// startNamespace creates a namespace with command, which runs its arguments in it. It
// returns nil if that is not permitted.
func startNamespace(t testing.TB, command []string) *namespace {
	t.Helper()
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, command[0], append(command[1:], "sleep", "1h")...)
	n := &namespace{pid: p.Cmd.Process.Pid}
	eventually(t, "a namespace is made", func() bool {
		name, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", n.pid))
		comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", n.pid))
		return !p.Running() || err == nil && name != own && string(comm) == "sleep\n"
	})
	if !p.Running() {
		return nil
	}
	n.enter = []string{"nsenter", "--target", fmt.Sprint(n.pid), "--net"}
	return n
}

// ip runs commands of ip in n.
func (n *namespace) ip(t testing.TB, commands ...string) {
	t.Helper()
	args := append(append([]string{}, n.enter[1:]...), "ip", "-batch", "-")
	run := exec.Command(need(t, n.enter[0]), args...)
	run.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v\n%s", strings.Join(commands, "; "), err, out)
	}
}

// nowhere is the link address of a neighbour that does not exist: packets to it are lost,
// as on a broken path.
const nowhere = "02:00:00:00:00:99"

// cut breaks the link between a ringside and a server in one of three ways, and returns a
// function that repairs it.
func (l *lab) cut(t testing.TB, how string, p, s int) (mend func()) {
	t.Helper()
	a, b, link := &l.ringsides[p], &l.servers, linkName(p, s)
	lose := func(n *namespace, neighbour string) func() {
		n.ip(t, fmt.Sprintf("neigh replace %s lladdr %s dev %s nud permanent", neighbour, nowhere, link))
		return func() { n.ip(t, fmt.Sprintf("neigh del %s dev %s", neighbour, link)) }
	}
	switch how {
	case "requests are lost":
		return lose(a, fmt.Sprintf("10.%d.%d.2", p+1, s))
	case "answers are lost":
		return lose(b, fmt.Sprintf("10.%d.%d.1", p+1, s))
	}
	a.ip(t, "link set "+link+" down")
	return func() { a.ip(t, "link set "+link+" up", routeTo(p, s)) }
}

// startPartition runs servers and ringsides in a lab. Clients connect through unix
// sockets, which are reachable from every network namespace.
func startPartition(t testing.TB, driver string, ringsides int, k kind) (*lab, *outing) {
	t.Helper()
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	l := startLab(t, ringsides, 3)
	dir := shortDir(t)
	o := &outing{}
	for s := range 3 {
		address := fmt.Sprintf("10.9.9.%d", s+1)
		command := append(append([]string{}, l.servers.enter...), need(t, "memcached"), "-u", "root", "-U", "0", "-m", "64", "-I", "4m", "-t", "2", "-l", address, "-p", "11211")
		command = append(command, securing(t)...)
		o.servers = append(o.servers, &memcached{address: address + ":11211", process: start(t, command[0], command[1:]...)})
	}
	for p := range ringsides {
		socket := filepath.Join(dir, fmt.Sprint("socket", p))
		r := &ringside{address: socket, admin: "127.0.0.1:9151", file: filepath.Join(t.TempDir(), "ringside.yaml"), driver: driver}
		r.write(t, fmt.Sprintf("listen: %s\n%s", listenText(socket), k.config(o.servers)))
		if err := r.serve(t, []string{socket}, append(l.ringsides[p].enter, binary)...); err != nil {
			t.Fatal(err)
		}
		o.ringsides = append(o.ringsides, r)
	}
	client := dial(t, o.ringsides[0].address)
	loaded := names("key", 60)
	var addresses []string
	for _, r := range o.ringsides {
		addresses = append(addresses, r.address)
	}
	for _, key := range loaded {
		eventually(t, "writes are taken", func() bool {
			answer := client.question("delete " + key)
			return answer == "NOT_FOUND" || answer == "DELETED"
		})
	}
	o.load = startLoad(t, loaded, func(string) int { return 0 }, loadClients, false, addresses...)
	o.calm(t, 100)
	return l, o
}

func TestFailoverPartition(t *testing.T) {
	eachKind(t, moving, func(t testing.TB, driver string, k kind) {
		l, o := startPartition(t, driver, 2, k)
		const gone = 1
		for _, partition := range []struct {
			how  string
			from []int // indexes of ringsides
		}{
			{"requests are lost", []int{0, 1}},
			{"answers are lost", []int{0}},
			{"answers are lost", []int{0, 1}},
			{"link is down", []int{0, 1}},
		} {
			name := fmt.Sprintf("%s from ringsides %v", partition.how, partition.from)
			was := o.total()
			var mend []func()
			for _, p := range partition.from {
				mend = append(mend, l.cut(t, partition.how, p, gone))
			}
			o.troubled(t, 0)
			if len(partition.from) == 2 {
				o.allSay(t, serverName(gone), "OUT")
				o.calm(t, 200)
			} else {
				o.more(t, 800)
			}
			for _, m := range mend {
				m()
			}
			o.settled(t)
			if stale := 0; k.consistency == "relaxed" {
				stale = o.forgive()
				t.Logf("%s: %d stale values while they disagreed", name, stale)
			}
			o.sound(t)
			t.Logf("%s: %v", name, o.total().minus(was))
		}
		o.more(t, 500)
		o.end(t)
	})
}
