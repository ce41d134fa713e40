package e2e

// This file tests what users may do, with real connections.

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ringside/internal/testenv"
)

// TestUsers checks the permissions of a user, of the owner of a certificate, also after its session was
// resumed, and of users of the admin interface.
func TestUsers(t *testing.T) {
	bothDrivers(t, func(t *testing.T, driver string) {
		dir := t.TempDir()
		host := ownHost()
		ca := testenv.NewCA(t, "ca")
		cert, key := ca.Named(t, host).Write(t, dir, "tls")
		roots, users := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "users")
		testenv.WriteFile(t, roots, ca.PEM)
		testenv.WriteFile(t, users, []byte("app:s3cret\nops:s3cret\n"))
		plain, secured := freeAddress(t, host), freeAddress(t, host)
		r := &ringside{address: plain, admin: freeAddress(t, host), file: filepath.Join(dir, "ringside.yaml"), driver: driver}
		r.put(t, fmt.Sprintf(`listen: [{address: %q, auth_file: %s}, {address: %q, tls: {cert: %s, key: %s, client_ca: %s}}]
%sroutes: [{prefix: "sess:", pool: main}, {pool: main}]
users: {app: {routes: ["sess:"], may: [read, write]}, "cert:spiffe://prod/app-*": {may: [read]}, ops: {may: [admin]}}
admin: {address: %q, auth_file: %s}
engine: {driver: %s}
`, plain, users, secured, cert, key, roots, front(startMemcacheds(t, 1))+poolDefaults(t), r.admin, users, driver))
		binary, err := build()
		if err != nil {
			t.Fatal(err)
		}
		if err := r.serve(t, []string{plain}, binary); err != nil {
			t.Fatal(err)
		}
		const login = "set a 0 0 10\r\napp s3cret\r\n"
		said, want := login+"set sess:1 0 0 1\r\n1\r\nset k 0 0 3\r\nabc\r\nget sess:1 k\r\nmn\r\n", "STORED\r\nSTORED\r\nCLIENT_ERROR not allowed\r\nCLIENT_ERROR not allowed\r\nMN\r\n"
		if got := saidTo(t, plain, said, len(want)); got != want {
			t.Errorf("as app: %q, want %q", got, want)
		}

		spiffe, err := url.Parse("spiffe://prod/app-7")
		if err != nil {
			t.Fatal(err)
		}
		pair := ca.Issue(t, &x509.Certificate{URIs: []*url.URL{spiffe}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		config := &tls.Config{RootCAs: ca.Pool(), ServerName: host, Certificates: []tls.Certificate{pair.Certificate(t)}, ClientSessionCache: tls.NewLRUClientSessionCache(1)}
		for _, resumed := range []bool{false, true} {
			c, err := tls.Dial("tcp", secured, config)
			if err != nil {
				t.Fatal(err)
			}
			c.SetDeadline(time.Now().Add(patience))
			want := "VALUE sess:1 0 1\r\n1\r\nEND\r\nCLIENT_ERROR not allowed\r\nCLIENT_ERROR not allowed\r\n"
			io.WriteString(c, "get sess:1\r\nset sess:1 0 0 1\r\n2\r\nstats\r\n")
			got := make([]byte, len(want))
			if io.ReadFull(c, got); string(got) != want || c.ConnectionState().DidResume != resumed {
				t.Errorf("with a certificate: %q, resumed: %v", got, c.ConnectionState().DidResume)
			}
			c.Close()
		}

		get := func(path, user string) (int, string) {
			t.Helper()
			q, _ := http.NewRequest("GET", "http://"+r.admin+path, nil)
			q.SetBasicAuth(user, "s3cret")
			answer, err := http.DefaultClient.Do(q)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			text, _ := io.ReadAll(answer.Body)
			return answer.StatusCode, string(text)
		}
		for _, c := range []struct {
			path, user string
			want       int
		}{{"/control/servers", "app", 403}, {"/", "app", 403}, {"/metrics", "app", 200}, {"/control/servers", "ops", 200}, {"/", "ops", 200}} {
			if got, text := get(c.path, c.user); got != c.want {
				t.Errorf("GET %s as %s: %d, want %d: %.200s", c.path, c.user, got, c.want, text)
			}
		}
		_, text := get("/metrics", "ops")
		for _, line := range []string{`ringside_user_commands_rejected_total{user="app"} 2`, `ringside_user_commands_rejected_total{user="cert:spiffe://prod/app-*"} 4`} {
			if !strings.Contains(text, "\n"+line+"\n") {
				t.Errorf("/metrics has no %s", line)
			}
		}
		r.logged(t, `command rejected: users does not allow it.*user=app`)
	})
}
