package e2e

// This file tests TLS and users of the admin interface.

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ringside/internal/testenv"
)

// TestAdminWithTLS runs all commands that use the admin interface against one with TLS, certificates of
// clients and users, and replaces its certificate and its users.
func TestAdminWithTLS(t *testing.T) {
	t.Parallel()
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	ca := testenv.NewCA(t, "ca")
	host := ownHost()
	own, secured, admin := freeAddress(t, host), freeAddress(t, host), freeAddress(t, host)
	cert, key := ca.Named(t, host).Write(t, dir, "admin")
	ops, opsKey := ca.Named(t, "ops").Write(t, dir, "ops")
	roots, users, login := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "users"), filepath.Join(dir, "login")
	testenv.WriteFile(t, roots, ca.PEM)
	testenv.WriteFile(t, users, []byte("ops:s3cret\n"))
	testenv.WriteFile(t, login, []byte("ops:s3cret\n"))
	file, servers := filepath.Join(dir, "ringside.yaml"), startMemcacheds(t, 2)
	server := servers[0].address
	testenv.WriteFile(t, file, fmt.Appendf(nil, "listen: [%s, {address: %q, auth_file: %[3]s, tls: {cert: %[4]s, key: %[5]s, client_ca: %[6]s}}]\n%[7]sadmin: {address: %[8]q, allow_faults: true, auth_file: %[3]s, tls: {cert: %[4]s, key: %[5]s, client_ca: %[6]s}}\n%[9]sengine: {driver: %[10]s}\n",
		own, secured, users, cert, key, roots, front(servers), admin, poolDefaults(t), defaultDriver))
	r := &ringside{address: own, admin: admin, file: file}
	if err := r.serve(t, []string{own}, binary); err != nil {
		t.Fatal(err)
	}

	get := func(path, user, password string, c *testenv.Pair) (status int) {
		t.Helper()
		config := &tls.Config{RootCAs: ca.Pool(), ServerName: host}
		if c != nil {
			config.Certificates = []tls.Certificate{c.Certificate(t)}
		}
		client := http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
		q, _ := http.NewRequest("GET", "https://"+admin+path, nil)
		if user != "" {
			q.SetBasicAuth(user, password)
		}
		answer, err := client.Do(q)
		if err != nil {
			return 0
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	good, stranger := ca.Named(t, "ops"), testenv.NewCA(t, "other").Named(t, "ops")
	for _, c := range []struct {
		path, user, password string
		cert                 *testenv.Pair
		want                 int
	}{
		{"/healthz", "", "", nil, 200},
		{"/readyz", "", "", nil, 200},
		{"/metrics", "", "", nil, 403},
		{"/metrics", "ops", "s3cret", nil, 403},
		{"/metrics", "", "", good, 401},
		{"/metrics", "ops", "wrong", good, 401},
		{"/metrics", "other", "s3cret", good, 401},
		{"/", "", "", good, 401},
		{"/api/now", "", "", good, 401},
		{"/control/config", "", "", good, 401},
		{"/debug/pprof/", "", "", good, 401},
		{"/nowhere", "", "", good, 401},
		{"/metrics", "ops", "s3cret", stranger, 403},
		{"/metrics", "ops", "s3cret", good, 200},
		{"/", "ops", "s3cret", good, 200},
		{"/control/servers", "ops", "s3cret", good, 200},
	} {
		if got := get(c.path, c.user, c.password, c.cert); got != c.want {
			t.Errorf("GET %s as %q with password %q, a certificate: %v: %d, want %d", c.path, c.user, c.password, c.cert != nil, got, c.want)
		}
	}
	if got, err := http.Get("http://" + admin + "/healthz"); err != nil || got.StatusCode != 400 {
		t.Errorf("plain HTTP: %v, %v", got, err)
	}

	run := func(env string, args ...string) (string, error) {
		cmd := exec.Command(binary, args...)
		cmd.Env = append(os.Environ(), env)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	flags := []string{"--ca", roots, "--cert", ops, "--key", opsKey}
	at := append([]string{"--admin", admin}, flags...)
	mustRun(t, run, append([]string{"server", "list", "--json", "--login", login}, at...))
	for _, args := range [][]string{
		{"health"}, {"reload"}, {"top", "--once"}, {"server", "drain", server}, {"server", "restore", server}, {"clients"}, {"plan", file},
		{"drill", "--to", own, "--server", server, "--fault", "refuse", "--for", "100ms", "--before", "100ms", "--settle", "100ms", "--max-failed", "60000"},
	} {
		out, err := run("RINGSIDE_ADMIN_LOGIN=ops:s3cret", append(args, at...)...)
		if err != nil && args[0] != "drill" && args[0] != "top" || strings.Contains(out, "needs a") || strings.Contains(out, "admin interface at") {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
	r.logged(t, `operator command.*POST /control/servers/.*drain.* user=ops`)
	for want, args := range map[string][]string{
		"needs a login: use --login, or RINGSIDE_ADMIN_LOGIN": append([]string{"server", "list"}, at...),
		"needs a certificate: use --cert and --key":           {"server", "list", "--admin", admin, "--ca", roots, "--login", login},
		"if it uses TLS, name its CA with --ca":               {"server", "list", "--admin", admin},
		"certificate signed by unknown authority":             {"server", "list", "--admin", admin, "--ca", "system"},
		"--cert and --key go together":                        {"server", "list", "--admin", admin, "--cert", ops},
	} {
		if out, err := run("", args...); err == nil || !strings.Contains(out, want) {
			t.Errorf("%v: %v, %s; want %q", args, err, out, want)
		}
	}
	// The clients of a drill use TLS and a login, too.
	drill := []string{"drill", "--to", secured, "--server", server, "--fault", "refuse", "--for", "100ms", "--before", "100ms", "--settle", "100ms"}
	drillFlags := []string{"--to-ca", roots, "--to-cert", ops, "--to-key", opsKey, "--to-login", login}
	for n, want := range map[int]string{
		0: "this port speaks TLS: name its CA with --to-ca, or its configuration with -c",
		2: "certificate required: use --to-cert and --to-key",
		6: "unauthenticated: use --to-login",
		8: "refuse on " + server + ": done",
	} {
		if out, _ := run("RINGSIDE_ADMIN_LOGIN=ops:s3cret", slices.Concat(drill, at, drillFlags[:n])...); !strings.Contains(out, want) {
			t.Errorf("drill with %v: %s; want %q", drillFlags[:n], out, want)
		}
	}
	if out, _ := run("", slices.Concat(drill, []string{"-c", file, "--cert", ops, "--key", opsKey}, drillFlags[2:6])...); !strings.Contains(out, "refuse on "+server+": done") {
		t.Errorf("drill with -c: %s", out)
	}

	// With the configuration file, certificate and login are those of the file.
	if out, err := run("", "server", "list", "-c", file, "--cert", ops, "--key", opsKey); err != nil {
		t.Errorf("with -c: %v\n%s", err, out)
	}
	if out, err := run("", "health", "-c", file); err != nil {
		t.Errorf("health with -c: %v\n%s", err, out)
	}

	// A reload changes the certificate and the users.
	ca.Named(t, host).Write(t, dir, "admin")
	testenv.WriteFile(t, users, []byte("ops:s3cret\nmore:s3cret\n"))
	if out, err := run("", "server", "list", "-c", file, "--cert", ops, "--key", opsKey); err == nil || !strings.Contains(out, "its certificate is not that of the configuration file") {
		t.Errorf("with -c and another certificate: %v\n%s", err, out)
	}
	out := mustRun(t, run, append([]string{"reload", "--login", login}, at...))
	if !strings.Contains(out, "the admin interface has another certificate, valid until") || !strings.Contains(out, "users of the admin interface changed: 1 added") {
		t.Errorf("reload: %s", out)
	}
	if got := get("/metrics", "more", "s3cret", good); got != 200 {
		t.Errorf("a new user: %d", got)
	}

	next := start(t, binary, "serve", "--take-over", "-c", file, "--cert", ops, "--key", opsKey)
	r.logged(t, "take-over complete")
	next.signal(t, 15)
	if code := next.wait(t); code != 0 {
		t.Errorf("the new one ends with %d", code)
	}
}

func mustRun(t *testing.T, run func(env string, args ...string) (string, error), args []string) string {
	t.Helper()
	out, err := run("", args...)
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return out
}
