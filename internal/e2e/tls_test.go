package e2e

// This file tests TLS with real clients: openssl, pymemcache and Go.

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ringside/internal/testenv"
)

// TestTLSPage runs the commands of docs/tls.md, with the configuration of that page.
func TestTLSPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/tls.md")
	if err != nil {
		t.Fatal(err)
	}
	var commands []string
	for _, line := range strings.Split(string(page), "\n") {
		if command, ok := strings.CutPrefix(line, "    "); ok && strings.Contains(command, "openssl ") {
			commands = append(commands, command)
		}
	}
	if len(commands) != 8 {
		t.Fatalf("the page has %d commands, want 8", len(commands))
	}
	dir := t.TempDir()
	run := func(command string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, "sh", "-ec", command)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
		return string(out)
	}
	for _, command := range commands[:5] {
		run(command)
	}
	if out := run(commands[5]); !strings.Contains(out, "cache.example") || !strings.Contains(out, "notAfter") {
		t.Errorf("%s prints %s", commands[5], out)
	}
	block := func(first string) string {
		rest := string(page[strings.Index(string(page), first):])
		return rest[:strings.Index(rest, "\n\n")+1]
	}
	config := block("    listen:")
	testenv.WriteFile(t, filepath.Join(dir, "users"), []byte("a:b\n"))
	server := freeAddress(t, "127.0.0.1")
	_, port, _ := net.SplitHostPort(server)
	words := strings.Fields(strings.ReplaceAll(block("    memcached -l"), "11211", port))
	memcached := exec.Command(words[0], append(words[1:], "-u", "root")...)
	memcached.Dir = dir
	testenv.Run(t, words[0], memcached)
	toServer := strings.ReplaceAll(commands[7], "127.0.0.1:11211", server)
	eventually(t, "memcached is ready", func() bool {
		c, err := net.Dial("tcp", server)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	if out := run(toServer); !strings.Contains(out, "VERSION ") {
		t.Errorf("%s prints %s", toServer, out)
	}
	servers := strings.NewReplacer("127.0.0.1:11211", server, "/etc/ringside", dir).Replace(block("    pools:"))
	servers = strings.ReplaceAll(strings.TrimPrefix(servers, "    "), "\n    ", "\n")
	eachDriver(t, func(t *testing.T, driver string) {
		at, plain := freeAddress(t, "127.0.0.1"), freeAddress(t, "127.0.0.1")
		text := strings.NewReplacer("    listen:", "listen:\n      - "+plain, "/etc/ringside", dir, "0.0.0.0:11212", at).Replace(config)
		text = regexp.MustCompile(`(?m)^ *auth_file.*\n`).ReplaceAllString(text, "")
		if _, err := tryRingside(t, driver, []string{plain}, text+servers); err != nil {
			t.Fatal(err)
		}
		if out := run(strings.ReplaceAll(commands[6], "127.0.0.1:11212", at)); !strings.Contains(out, "VERSION ") {
			t.Errorf("%s prints %s", commands[6], out)
		}
		if out := saidTo(t, plain, "set a 0 0 1\r\n1\r\n", 8); out != "STORED\r\n" {
			t.Errorf("a set on a server with TLS: %q", out)
		}
		if out := saidTo(t, at, "get a\r\n", 100); out != "CLIENT_ERROR this port speaks TLS\r\n" {
			t.Errorf("a plain client gets %q", out)
		}
	})
}

// TestTLSClients checks pymemcache, with a password beyond loopback, and Go's client of all protocols.
func TestTLSClients(t *testing.T) {
	dir := t.TempDir()
	ca := testenv.NewCA(t, "ca")
	cert, key := ca.Named(t, "127.0.0.1", "localhost").Write(t, dir, "tls")
	roots, users := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "users")
	testenv.WriteFile(t, roots, ca.PEM)
	testenv.WriteFile(t, users, []byte("alice:secret\n"))
	eachDriver(t, func(t *testing.T, driver string) {
		servers := front(startMemcacheds(t, 2))
		at := freeAddress(t, "127.0.0.1")
		_, port, _ := net.SplitHostPort(at)
		login, plain := freeAddress(t, "127.0.0.1"), freeAddress(t, "127.0.0.1")
		_, loginPort, _ := net.SplitHostPort(login)
		config := fmt.Sprintf("listen: [%q, {address: %q, tls: {cert: %s, key: %s}}, {address: \"0.0.0.0:%s\", auth_file: %s, tls: {cert: %s, key: %s}}]\n", plain, at, cert, key, loginPort, users, cert, key)
		if _, err := tryRingside(t, driver, []string{plain}, config+servers); err != nil {
			t.Fatal(err)
		}
		out := tool(t, "/usr/bin/python3", "-c", `
import pymemcache, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[1])
c = pymemcache.Client(("127.0.0.1", int(sys.argv[2])), tls_context=context, timeout=60)
big = b"x" * 1000000
print(c.set("a", b"1", noreply=False), c.get("a"), c.set("big", big, noreply=False), c.get("big") == big, c.incr("a", 5))
print(sorted(c.get_many(["a", "big", "c"])), c.delete("a", noreply=False), c.get("a"))
print(c.set_many({"k%d" % i: b"v" * i for i in range(1000)}, noreply=False), len(c.get_many(["k%d" % i for i in range(1000)])))
`, roots, port)
		if want := "True b'1' True True 6\n['a', 'big'] True None\n[] 1000\n"; out != want {
			t.Errorf("pymemcache prints %q, want %q", out, want)
		}
		c, err := tls.Dial("tcp", login, ca.Client())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		asks(t, c, "get a\r\nset a 0 0 12\r\nalice secret\r\nmn\r\n", "CLIENT_ERROR unauthenticated\r\nSTORED\r\nMN\r\n")
	})
}

// TestCertificateRenewal changes the certificate ten times under load, by a symbolic link to another
// directory, as Kubernetes does. No request may fail. A wrong pair is rejected.
func TestCertificateRenewal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := testenv.NewCA(t, "ca")
	n := 0
	renew := func(pair *testenv.Pair) {
		t.Helper()
		n++
		version := filepath.Join(dir, fmt.Sprint("v", n))
		if err := os.Mkdir(version, 0o700); err != nil {
			t.Fatal(err)
		}
		pair.Write(t, version, "tls")
		link := filepath.Join(dir, "new")
		if err := os.Symlink(version, link); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(link, filepath.Join(dir, "now")); err != nil {
			t.Fatal(err)
		}
	}
	pair := ca.Named(t, "127.0.0.1")
	renew(pair)
	now := filepath.Join(dir, "now", "tls")
	at, plain := freeAddress(t, "127.0.0.1"), freeAddress(t, "127.0.0.1")
	config := fmt.Sprintf("watch: on\nlisten: [%q, {address: %q, tls: {cert: %s.crt, key: %s.key}}]\n", plain, at, now, now) + front(startMemcacheds(t, 1))
	r, err := tryRingside(t, "auto", []string{plain}, config)
	if err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	var running sync.WaitGroup
	for i := range 2 {
		running.Add(1)
		go func() {
			defer running.Done()
			var c *tls.Conn
			for n := 0; !stop.Load(); n++ {
				if n%50 == 0 && (i%2 == 0 || c == nil) { // half of the clients connect again and again
					if c != nil {
						c.Close()
					}
					var err error
					if c, err = tls.Dial("tcp", at, ca.Client()); err != nil {
						t.Error(err)
						return
					}
					c.SetDeadline(time.Now().Add(patience))
				}
				b := make([]byte, 4)
				if _, err := fmt.Fprint(c, "mn\r\n"); err != nil {
					t.Error(err)
					return
				}
				if _, err := c.Read(b); err != nil {
					t.Error(err)
					return
				}
			}
			c.Close()
		}()
	}
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	serves := func(pair *testenv.Pair) bool {
		c, err := tls.Dial("tcp", at, ca.Client())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return string(c.ConnectionState().PeerCertificates[0].Raw) == string(pair.Certificate(t).Certificate[0])
	}
	for i := range 10 {
		pair = ca.Named(t, "127.0.0.1")
		renew(pair)
		if i < 9 { // by a reload, unless the next look at the files comes first
			if out, err := exec.Command(binary, "reload", "--admin", r.admin).CombinedOutput(); err != nil {
				t.Fatalf("%s %v", out, err)
			}
		}
		eventually(t, "the new certificate is in force", func() bool { return serves(pair) })
	}
	r.logged(t, "has another certificate")
	failed := r.metric(t, reloadsFailed)
	renew(&testenv.Pair{CertPEM: ca.Named(t, "127.0.0.1").CertPEM, KeyPEM: pair.KeyPEM})
	r.reloaded(t, reloadsFailed, failed)
	r.logged(t, "new configuration rejected.*is not that of the certificate")
	if !serves(pair) {
		t.Error("a rejected certificate is in force")
	}
	stop.Store(true)
	running.Wait()
	if got := r.metric(t, `ringside_listener_certificate_expiry_seconds{listener="`+at+`"}`); time.Until(time.Unix(int64(got), 0)) > time.Hour {
		t.Errorf("the certificate expires at %v", got)
	}
}

// TestServersWithLogin changes the password for servers, with replicas, and then ends a server and starts
// it again. No request may fail. A wrong password makes the servers down, with the reason in the log.
func TestServersWithLogin(t *testing.T) {
	testenv.OnlyFull(t, "the conversation login covers the protocol")
	t.Parallel()
	dir := t.TempDir()
	users, password := filepath.Join(dir, "users"), filepath.Join(dir, "password")
	testenv.WriteFile(t, users, []byte("app:old\napp:new\n"))
	testenv.WriteFile(t, password, []byte("old\n"))
	servers := []*memcached{startMemcached(t, "-Y", users), startMemcached(t, "-Y", users)}
	for _, m := range servers {
		testenv.LogInAt(m.address, "app", "old")
	}
	r := startRingside(t, "auto", front(servers, "auth: {user: app, password_file: "+password+"}")+"routes: [{pool: main, replicas: 2, replicas_on: server}]\nwatch: on\n")
	c, err := testenv.Dial(r.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	asks := func(request, want string) { t.Helper(); asks(t, c, request, want) }
	asks("set k 0 0 1\r\n1\r\n", "STORED\r\n")
	if got := saidTo(t, r.address, "\x80\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00k", 29); !strings.HasSuffix(got, "\x00\x00\x00\x001") {
		t.Errorf("a binary get: %q", got)
	}
	for _, m := range servers { // each server has a replica
		if got := saidTo(t, m.address, "get k\r\n", 11); got != "VALUE k 0 1" {
			t.Errorf("the replica on %s: %q", m.address, got)
		}
	}
	done := r.metric(t, reloadsDone)
	testenv.WriteFile(t, password, []byte("new\n"))
	r.reloaded(t, reloadsDone, done)
	r.logged(t, "pool main has another password for servers")
	asks("set k 0 0 1\r\n2\r\n", "STORED\r\n")
	servers[0].Kill()
	asks("get k\r\n", "VALUE k 0 1\r\n2\r\nEND\r\n")
	testenv.WriteFile(t, users, []byte("app:new\n"))
	testenv.LogInAt(servers[0].address, "app", "new")
	servers[0].restart(t)
	eventually(t, "the restarted server stores values again", func() bool {
		asks("set k 0 0 1\r\n2\r\n", "STORED\r\n")
		return saidTo(t, servers[0].address, "get k\r\n", 5) == "VALUE"
	})

	done = r.metric(t, reloadsDone)
	testenv.WriteFile(t, password, []byte("wrong\n"))
	r.reloaded(t, reloadsDone, done)
	asks("get k\r\n", "VALUE k 0 1\r\n2\r\nEND\r\n") // on the connections with the last password
	servers[0].Kill()
	servers[0].restart(t)
	eventually(t, "the server is down, because it rejects the login", func() bool { // the log has the reason only if no dial was refused before
		_, text := r.page(t, "/control/servers")
		return strings.Contains(text, "it rejects the login of user app: CLIENT_ERROR authentication failure") && r.metric(t, fmt.Sprintf(`ringside_server_up{address=%q,server=%q}`, servers[0].address, servers[0].address)) == 0
	})
	if strings.Contains(r.Output(), "wrong") {
		t.Error("the log has a password")
	}
}

// TestServersWithTLS changes the certificate for servers ten times under load, with replicas, and then ends
// a server. No request may fail.
func TestServersWithTLS(t *testing.T) {
	dir := t.TempDir()
	ca := testenv.NewCA(t, "ca")
	roots := filepath.Join(dir, "ca.crt")
	testenv.WriteFile(t, roots, ca.PEM)
	cert, key := ca.Named(t, "app").Write(t, dir, "app")
	a, b := testenv.StartTLS(t, ca, "127.0.0.1"), testenv.StartTLS(t, ca, "127.0.0.2")
	r := startRingside(t, "auto", fmt.Sprintf("pools: {main: {distribution: ketama, tls: {ca: %s, cert: %s, key: %s}, servers: [%q, %q]}}\nroutes: [{pool: main, replicas: 2, replicas_on: server}]\n",
		roots, cert, key, a.Address, b.Address))
	c, err := testenv.Dial(r.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	value := strings.Repeat("v", 100_000)
	asks := func(request, want string) { t.Helper(); asks(t, c, request, want) }
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		ca.Named(t, "app").Write(t, dir, "app")
		if out, err := exec.Command(binary, "reload", "--admin", r.admin).CombinedOutput(); err != nil || !strings.Contains(string(out), "pool main shows servers another certificate") {
			t.Fatalf("%s %v", out, err)
		}
		asks("set k 0 0 100000\r\n"+value+"\r\n", "STORED\r\n")
		asks("get k\r\n", "VALUE k 0 100000\r\n"+value+"\r\nEND\r\n")
	}
	for _, m := range []*testenv.Memcached{a, b} { // each server has a replica
		if got := saidTo(t, m.Address, "get k\r\n", 16); !strings.HasPrefix(got, "VALUE k 0 100000") {
			t.Errorf("the replica on %s: %q", m.Address, got)
		}
	}
	testenv.WriteFile(t, key, ca.Named(t, "other").KeyPEM)
	if out, err := exec.Command(binary, "reload", "--admin", r.admin).CombinedOutput(); err == nil || !strings.Contains(string(out), "is not that of the certificate") {
		t.Errorf("a wrong key: %s, %v", out, err)
	}
	if got := r.metric(t, `ringside_pool_certificate_expiry_seconds{pool="main"}`); time.Until(time.Unix(int64(got), 0)) > time.Hour {
		t.Errorf("the certificate expires at %v", got)
	}
	a.Kill()
	asks("get k\r\n", "VALUE k 0 100000\r\n"+value+"\r\nEND\r\n")
}

// secured starts a Ringside that listens with TLS, and without it at another address.
func secured(t *testing.T, driver string, ca *testenv.CA) (r *ringside, at string) {
	t.Helper()
	cert, key := ca.Named(t, "127.0.0.1").Write(t, t.TempDir(), "tls")
	at = freeAddress(t, "127.0.0.1")
	plain := freeAddress(t, "127.0.0.1")
	config := fmt.Sprintf("listen: [%q, {address: %q, tls: {cert: %s, key: %s}}]\n", plain, at, cert, key) + front(startMemcacheds(t, 1))
	r, err := tryRingside(t, driver, []string{plain}, config)
	if err != nil {
		t.Fatal(err)
	}
	return r, at
}

// TestKeyUpdate checks that a client can change the keys of its connection, and that a session ticket does
// not allow early data.
func TestKeyUpdate(t *testing.T) {
	ca := testenv.NewCA(t, "ca")
	roots := filepath.Join(t.TempDir(), "ca.crt")
	testenv.WriteFile(t, roots, ca.PEM)
	eachDriver(t, func(t *testing.T, driver string) {
		_, at := secured(t, driver, ca)
		cmd := exec.Command(need(t, "openssl"), "s_client", "-tls1_3", "-connect", at, "-CAfile", roots, "-verify_return_error")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		client := testenv.Run(t, "openssl", cmd)
		said := func(text, want string) { // one more time than before: openssl takes a letter for a command only at the start of what it reads
			t.Helper()
			before := strings.Count(client.Output(), want)
			if _, err := in.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
			eventually(t, "openssl prints "+want, func() bool { return strings.Count(client.Output(), want) > before })
		}
		said("set a 0 0 1\r\n1\r\n", "STORED")
		said("K\n", "KEYUPDATE")
		said("get a\r\n", "VALUE a 0 1")
		said("k\n", "KEYUPDATE")
		said("version\r\n", "VERSION ")
		if _, err := in.Write([]byte("quit\r\n")); err != nil {
			t.Fatal(err)
		}
		eventually(t, "openssl prints the tickets", func() bool { return strings.Contains(client.Output(), "Max Early Data: 0") })
	})
}

// TestEarlyData checks that data that a client sends before the handshake is complete is refused, and not run.
// The client has the ticket of another server, which allows early data.
func TestEarlyData(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := testenv.NewCA(t, "ca")
	_, at := secured(t, "auto", ca)
	cert, key := ca.Named(t, "127.0.0.1").Write(t, dir, "other")
	openssl, other, ticket, early := need(t, "openssl"), freeAddress(t, "127.0.0.1"), filepath.Join(dir, "ticket"), filepath.Join(dir, "early")
	testenv.WriteFile(t, early, []byte("set a 0 0 1\r\n1\r\n"))
	testenv.Run(t, "openssl", exec.Command(openssl, "s_server", "-accept", other, "-cert", cert, "-key", key, "-tls1_3", "-early_data", "-max_early_data", "1000", "-quiet"))
	eventually(t, "a client has a ticket", func() bool {
		exec.Command("timeout", "1", openssl, "s_client", "-connect", other, "-tls1_3", "-sess_out", ticket).Run()
		_, err := os.Stat(ticket)
		return err == nil
	})
	out, err := exec.Command("timeout", "60", openssl, "s_client", "-connect", at, "-tls1_3", "-sess_in", ticket, "-early_data", early).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "unsupported extension") {
		t.Errorf("a client with early data: %v\n%s", err, out)
	}
	c, err := tls.Dial("tcp", at, ca.Client())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	asks(t, c, "get a\r\n", "END\r\n")
}

// TestTakeOverResumesSessions checks that clients resume their TLS sessions with a process that has taken
// over, and that connected clients are served by the old one.
func TestTakeOverResumesSessions(t *testing.T) {
	ca := testenv.NewCA(t, "ca")
	old, at := secured(t, "auto", ca)
	config := ca.Client()
	config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	dial := func() *tls.Conn {
		t.Helper()
		c, err := tls.Dial("tcp", at, config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(patience))
		return c
	}
	first := dial()
	asks(t, first, "mn\r\n", "MN\r\n") // reads a session ticket, too
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	next := start(t, binary, "serve", "-c", old.file, "--take-over")
	old.logged(t, "take-over complete")
	eventually(t, "a session of the old process is resumed by the new one", func() bool {
		c := dial()
		asks(t, c, "mn\r\n", "MN\r\n")
		return c.ConnectionState().DidResume
	})
	asks(t, first, "mn\r\n", "MN\r\n")
	first.Close()
	old.wait(t)
	asks(t, dial(), "mn\r\n", "MN\r\n")
	if !next.Running() {
		t.Error("the new process has ended")
	}
}
