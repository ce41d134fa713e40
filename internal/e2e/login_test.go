package e2e

// This file tests listeners with an auth_file.

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"ringside/internal/testenv"
)

// TestLogin checks that Ringside gives the same replies as memcached -Y, to clients with
// and without a login. Wrong passwords must be counted and logged with the client's
// address.
func TestLogin(t *testing.T) {
	users := filepath.Join(shortDir(t), "users")
	if err := os.WriteFile(users, []byte("alice:secret\nbob:hidden\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	plain := startMemcached(t, "-Y", users)
	hashes := filepath.Join(shortDir(t), "hashes")
	sum := sha256.Sum256([]byte("secret" + "salt"))
	if err := os.WriteFile(hashes, []byte("bob:hidden\nalice:{SSHA256}"+base64.StdEncoding.EncodeToString(append(sum[:], "salt"...))+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	eachDriver(t, func(t *testing.T, driver string) {
		address := freeAddress(t, ownHost())
		config := fmt.Sprintf("listen: [{address: %q, auth_file: %q}]\n", address, hashes) + front(startMemcacheds(t, 1))
		r, err := tryRingside(t, driver, []string{address}, config)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct{ said, want string }{
			{"get a\r\n", "CLIENT_ERROR unauthenticated\r\n"},
			{"set a 0 0 12\r\nalice secret\r\n", "STORED\r\n"},
			{"set a 0 0 12\r\nalice hidden\r\n", "CLIENT_ERROR authentication failure\r\n"},
			{"set a 0 0 5\r\nalice\r\n", "CLIENT_ERROR bad authentication token format\r\n"},
			{"set a 0 0 10\r\nbob hidden\r\nmn\r\n", "STORED\r\nMN\r\n"},
		} {
			for name, at := range map[string]string{"memcached": plain.address, "ringside": address} {
				if got := saidTo(t, at, c.said, len(c.want)); got != c.want {
					t.Errorf("%s answers %q to %q, want %q", name, got, c.said, c.want)
				}
			}
		}
		out := tool(t, "/usr/bin/python3", "-c", `
import bmemcached, sys
good = bmemcached.Client([sys.argv[1]], "alice", "secret", socket_timeout=120)
print(good.set("k", "v"), good.get("k"))
try:
    print(bmemcached.Client([sys.argv[1]], "alice", "hidden", socket_timeout=120).set("k", "w"))
except Exception as e:
    print(type(e).__name__)
print(good.get("k"))
`, address)
		if want := "True v\nMemcachedException\nv\n"; out != want {
			t.Errorf("python-binary-memcached with passwords: %q, want %q", out, want)
		}
		failure := regexp.MustCompile(`client rejected: wrong user or password.* client=127\.0\.0\.1:\d+`)
		eventually(t, "each wrong password, at least one of each protocol, is counted, and logged once in a while", func() bool {
			return failure.MatchString(r.Output()) && r.metric(t, "ringside_client_logins_failed_total") >= 2
		})
		if strings.Contains(r.Output(), "hidden") {
			t.Error("the log has a password")
		}
	})
}

// saidTo sends text to a server and returns the first n bytes of its reply.
func saidTo(t *testing.T, address, text string, n int) string {
	t.Helper()
	c, err := testenv.Dial(address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	if _, err := io.Copy(c, strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, n)
	got, _ := io.ReadFull(c, answer)
	return string(answer[:got])
}

// asks sends a request on the connection c, and fails the test at another reply than want.
func asks(t *testing.T, c net.Conn, request, want string) {
	t.Helper()
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("%.60q: %.60q, %v; want %.60q", request, got[:n], err, want)
	}
}
