package inspect

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"ringside/internal/testenv"
	"ringside/proxy/table"
	"ringside/replicate"
)

// TestItemSizes checks which servers are reported: one that stores more than limits.value,
// one that stores less than that and less than memcached's default, and different sizes of servers with
// replicas of the same keys.
func TestItemSizes(t *testing.T) {
	const limit = 8 << 20
	sizes := map[string]int{"larger": 32 << 20, "equal": limit, "usual": 1 << 20, "smaller": 512 << 10}
	var servers []table.Target
	for _, name := range []string{"larger", "equal", "usual", "smaller", "gone", "larger"} {
		servers = append(servers, table.Target{Network: "tcp", Address: name})
	}
	pool := &table.Pool{Name: "main", Servers: servers}
	routes := []table.Route{{Pool: pool, Copies: replicate.Policy{Copies: 2}}, {Pool: pool, Copies: replicate.Policy{Copies: 3}}, {Pool: pool}}
	list := itemSizes(t.Context(), &table.Table{Limits: table.Limits{Value: limit}, Pools: []*table.Pool{pool}, Listeners: []table.Listener{{Routes: routes}}}, func(_ context.Context, s table.Target, _ *table.Pool) (settings, error) {
		if size, ok := sizes[s.Address]; ok {
			return settings{itemSize: size}, nil
		}
		return settings{}, errors.New("refused")
	}, false)
	const unequal = "servers of pool main keep replicas of the same keys, but server smaller stores items of up to 524288 bytes (item_size_max) and server larger of up to 33554432 bytes; start them with the same -I"
	if len(list) != 3 || list[2] != unequal || !strings.HasPrefix(list[0], "server larger stores items of up to 33554432 bytes") || !strings.HasPrefix(list[1], "server smaller stores items of up to 524288 bytes only") {
		t.Errorf("warnings: %q", list)
	}
}

// TestServersWithoutCas checks that each server without cas is named once, if its pool or a route needs a cas.
func TestServersWithoutCas(t *testing.T) {
	pool := &table.Pool{Name: "main", Servers: []table.Target{{Address: "with"}, {Address: "without"}, {Address: "without"}}}
	const warning = "server without of pool main has no cas, which failover, replicas, tags and the guard need: start memcached without -C"
	for _, c := range []struct {
		mode   table.Mode
		route  table.Route
		needed bool
	}{
		{table.FailFast, table.Route{Pool: pool}, false},
		{table.Rehash, table.Route{Pool: pool}, true},
		{table.FailFast, table.Route{Pool: pool, Copies: replicate.Policy{Copies: 2}}, true},
		{table.FailFast, table.Route{Pool: &table.Pool{}, Also: []*table.Pool{pool}, Copies: replicate.Policy{Copies: 2}}, true},
		{table.FailFast, table.Route{Pool: pool, Tags: new(table.TagSettings)}, true},
		{table.FailFast, table.Route{Pool: pool, Guard: new(table.GuardSettings)}, true},
	} {
		pool.Failover.Mode = c.mode
		list := itemSizes(t.Context(), &table.Table{Limits: table.Limits{Value: 1 << 20}, Pools: []*table.Pool{pool}, Listeners: []table.Listener{{Routes: []table.Route{c.route, c.route}}}}, func(_ context.Context, s table.Target, _ *table.Pool) (settings, error) {
			return settings{itemSize: 1 << 20, noCas: s.Address == "without"}, nil
		}, false)
		if want := map[bool]string{true: warning}[c.needed]; strings.Join(list, "\n") != want {
			t.Errorf("%+v: %q, want %q", c, list, want)
		}
	}
}

// TestConnect checks that a server which does not answer is named, and one that lacks what resize.mode needs.
func TestConnect(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	answers := map[string]error{"refused": refused, "silent": context.DeadlineExceeded, "closes": io.EOF, "unknown": &net.OpError{Op: "dial", Err: errors.New("no such host")}, "other": errors.New("odd")}
	for mode, wants := range map[table.ResizeMode]string{
		table.ResizePlain: "",
		table.ResizeWarm:  "server lacks of pool main can't list its keys, which resize.mode: warm needs: start memcached without no_lru_crawler, or send it the command lru_crawler enable",
		table.ResizeFlush: "server lacks of pool main rejects flush_all, which resize.mode: flush needs: start memcached without -F",
	} {
		pool := &table.Pool{Name: "main", Resize: mode}
		for _, name := range []string{"refused", "silent", "closes", "unknown", "other", "lacks", "lacks"} {
			pool.Servers = append(pool.Servers, table.Target{Network: "tcp", Address: name})
		}
		want := []string{"server refused can't be asked from here: connection refused", "server silent can't be asked from here: no answer within 2s",
			"server closes can't be asked from here: it closes the connection", "server unknown can't be asked from here: no such host", "server other can't be asked from here: odd"}
		if wants != "" {
			want = append(want, wants)
		}
		list := itemSizes(t.Context(), &table.Table{Limits: table.Limits{Value: 1 << 20}, Pools: []*table.Pool{pool}}, func(_ context.Context, s table.Target, _ *table.Pool) (settings, error) {
			return settings{itemSize: 1 << 20, noCrawler: true, noFlush: true}, answers[s.Address]
		}, true)
		if !slices.Equal(list, want) {
			t.Errorf("%v: %q, want %q", mode, list, want)
		}
	}
}

// TestAskItemSize checks what is read from a server that reports its size, and from one that
// does not know the command.
func TestAskItemSize(t *testing.T) {
	for _, c := range []struct {
		answer string
		want   settings
	}{
		{"STAT maxbytes 67108864\r\nSTAT item_size_max 33554432\r\nEND\r\n", settings{itemSize: 32 << 20}},
		{"STAT cas_enabled yes\r\nSTAT item_size_max 1024\r\nEND\r\n", settings{itemSize: 1024}},
		{"STAT cas_enabled no\r\nSTAT item_size_max 1024\r\nEND\r\n", settings{itemSize: 1024, noCas: true}},
		{"STAT item_size_max 1024\r\nSTAT cas_enabled no\r\nEND\r\n", settings{itemSize: 1024, noCas: true}},
		{"STAT item_size_max 1024\r\nSTAT lru_crawler no\r\nSTAT flush_enabled no\r\nEND\r\n", settings{itemSize: 1024, noCrawler: true, noFlush: true}},
		{"STAT maxbytes 67108864\r\nEND\r\n", settings{}},
		{"ERROR\r\n", settings{}},
		{"ERROR Too many open connections\r\n", settings{}},
	} {
		at := testenv.Serve(t, "127.0.0.1", func(conn net.Conn) {
			if line, _ := bufio.NewReader(conn).ReadString('\n'); line == "stats settings\r\n" {
				io.WriteString(conn, c.answer)
			}
		})
		got, err := askSettings(t.Context(), table.Target{Network: "tcp", Address: at}, new(table.Pool), at, false)
		if got != c.want || (err == nil) != (c.want.itemSize > 0) {
			t.Errorf("%q gives %v, %v; want %v", c.answer, got, err, c.want)
		}
		if reply := strings.TrimSpace(c.answer); strings.HasPrefix(reply, "ERROR") && !strings.Contains(fmt.Sprint(err), reply) {
			t.Errorf("%q gives %v", c.answer, err)
		}
	}
}

// TestAskItemSizeWithLogin asks a memcached that needs a login.
func TestAskItemSizeWithLogin(t *testing.T) {
	users := filepath.Join(t.TempDir(), "users")
	testenv.WriteFile(t, users, []byte("app:s3cret\n"))
	guarded, open := testenv.StartMemcached(t, "-Y", users, "-I", "2m"), testenv.StartMemcached(t)
	closes := testenv.Serve(t, "127.0.0.1", func(c net.Conn) { bufio.NewReader(c).ReadString('\n') }) // as a memcached with -S, which accepts only the binary protocol
	for _, c := range []struct{ at, password, want string }{
		{guarded.Address, "s3cret", "stores items of up to 2097152 bytes"},
		{guarded.Address, "wrong", "login: it rejects the login of user app: CLIENT_ERROR authentication failure"},
		{open.Address, "s3cret", "login: it does not ask for a login: start it with -Y"},
		{closes, "s3cret", "login: the server closes the connection. If it was started with -S (SASL), it speaks only the binary protocol"},
	} {
		list := ItemSizes(t.Context(), &table.Table{Limits: table.Limits{Value: 1 << 20}, Pools: []*table.Pool{{
			Servers: []table.Target{{Network: "tcp", Address: c.at}}, Login: table.Login{User: "app", Password: c.password}}}}, nil)
		if len(list) != 1 || !strings.Contains(list[0], c.want) {
			t.Errorf("password %s at %s: %q, want %q", c.password, c.at, list, c.want)
		}
	}
}

// TestAskItemSizeOverTLS asks a memcached with TLS that needs a certificate of its clients, and one without TLS. A
// refused certificate is named, with its names.
func TestAskItemSizeOverTLS(t *testing.T) {
	ca, other := testenv.NewCA(t, "ca"), testenv.NewCA(t, "other")
	app, stranger := ca.Named(t, "app"), other.Named(t, "app")
	secured, open := testenv.StartTLS(t, ca, "127.0.0.1", "-I", "2m"), testenv.StartMemcached(t)
	for _, c := range []struct {
		at   string
		tls  table.ServerTLS
		want string
	}{
		{secured.Address, table.ServerTLS{CA: string(ca.PEM), Cert: string(app.CertPEM), Key: string(app.KeyPEM)}, "stores items of up to 2097152 bytes"},
		{secured.Address, table.ServerTLS{CA: string(ca.PEM), Name: "cache.example", Cert: string(app.CertPEM), Key: string(app.KeyPEM)}, "certificate is not valid for any names, but wanted to match cache.example"},
		{secured.Address, table.ServerTLS{CA: string(other.PEM), Cert: string(app.CertPEM), Key: string(app.KeyPEM)}, "certificate signed by unknown authority"},
		{secured.Address, table.ServerTLS{CA: string(ca.PEM)}, "may refuse the certificate of the pool (tls.cert), or need one"},
		{secured.Address, table.ServerTLS{CA: string(ca.PEM), Cert: string(stranger.CertPEM), Key: string(stranger.KeyPEM)}, "may refuse the certificate of the pool (tls.cert), or need one"},
		{open.Address, table.ServerTLS{CA: string(ca.PEM)}, "it does not speak TLS"},
	} {
		list := ItemSizes(t.Context(), &table.Table{Limits: table.Limits{Value: 1 << 20}, Pools: []*table.Pool{{
			Servers: []table.Target{{Network: "tcp", Address: c.at}}, TLS: table.Secure(c.tls)}}}, nil)
		if len(list) != 1 || !strings.Contains(list[0], c.want) {
			t.Errorf("%q, want %q", list, c.want)
		}
	}
}
