//go:build linux

package bench

// This file measures what TLS costs: of clients, of servers, and in a tunnel in front of Ringside.

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"ringside/internal/bench/load"
)

// way is one of the setups that Secured compares.
type way struct {
	name             string
	clients, servers bool // clients, servers use TLS
	tunnel           bool // the TLS of clients ends in the tunnel, and Ringside has none
}

// Secured measures scenarios with TLS of the clients, of the servers and of both, and with TLS of clients that a
// tunnel ends in front of a Ringside without TLS. tunnel is the program of the tunnel, stunnel or ghostunnel; empty:
// none is measured. Ringside and the tunnel share the CPU of the proxy.
func Secured(ctx context.Context, c Config, tunnel string) (*Report, error) {
	c.Nutcracker, c.Also = "", nil
	picked, err := pickScenarios(c.Scenarios, 0)
	if err != nil {
		return nil, err
	}
	for _, s := range picked {
		if s.socket || s.work.Rate > 0 || s.replicas {
			return nil, fmt.Errorf("scenario %s is not for TLS: use letters such as acfp", s.id)
		}
	}
	b, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	defer b.close()
	ways := []way{{name: "plain"}, {name: "clients", clients: true}, {name: "servers", servers: true}, {name: "both", clients: true, servers: true}}
	version := ""
	if tunnel != "" {
		if b.tunnel, err = lookPath(tunnel); err != nil {
			return nil, fmt.Errorf("%s: %w", tunnel, err)
		}
		if version, err = tunnelVersion(ctx, b.tunnel); err != nil {
			return nil, err
		}
		ways = append(ways, way{name: filepath.Base(b.tunnel) + " and Ringside without TLS", clients: true, tunnel: true})
	}
	if b.cert, b.key, err = writeCertificate(b.dir); err != nil {
		return nil, err
	}
	if b.secured, err = b.startServers(ctx, b.LoadCPUs, "-Z", "-o", "ssl_chain_cert="+b.cert+",ssl_key="+b.key); err != nil {
		return nil, err
	}
	defer func() { stop(b.secured) }()
	t := &Table{ID: "tls", Title: "TLS", Note: "CPU in µs per request, latencies in µs: medians of the rounds. \"to plain\" compares runs of the same round. Each handshake is complete: no session is resumed. " +
		"The CPU and the memory of a tunnel are those of the tunnel and of Ringside together.",
		Header: []string{"scenario", "TLS of", "CPU", "to plain", "CPU of servers", "requests/s", "p50", "p99", "memory"}}
	r := b.newReport()
	if version != "" {
		r.Head += "; " + version
	}
	for _, s := range picked {
		all := make([]*measured, len(ways))
		for i := range all {
			all[i] = &measured{peer: b.peers[0]}
		}
		for round := range b.Rounds {
			for n := range ways {
				i := (n + round) % len(ways)
				s.way = ways[i]
				x, err := b.undisturbed(ctx, b.peers[0], s)
				if err != nil {
					return nil, errors.Join(ctx.Err(), fmt.Errorf("scenario %s, %s: %w", s.id, ways[i].name, err))
				}
				x.round = round
				all[i].runs = append(all[i].runs, x)
				b.Log.Info("ran", "scenario", s.id, "round", round+1, "tls", ways[i].name, "cpu_us", two(x.cpu), "rate", whole(x.rate), "p50_us", whole(x.p50), "other", percent(x.other))
			}
		}
		cpu := func(x run) float64 { return x.cpu }
		for i, m := range all {
			t.Rows = append(t.Rows, []string{s.id + ", " + s.name, ways[i].name, two(m.median(cpu)), m.ratio(all[0], cpu), two(m.median(func(x run) float64 { return x.servers })),
				whole(m.median(func(x run) float64 { return x.rate })), whole(m.median(func(x run) float64 { return x.p50 })), whole(m.median(func(x run) float64 { return x.p99 })),
				whole(m.median(func(x run) float64 { return x.memory }))})
		}
	}
	r.Tables = []*Table{t}
	return r, nil
}

// tunnelVersion returns the name and the version of a tunnel. stunnel prints them in the middle of other lines.
func tunnelVersion(ctx context.Context, path string) (string, error) {
	flag := "--version"
	if isStunnel(path) {
		flag = "-version"
	}
	text, err := exec.CommandContext(ctx, path, flag).CombinedOutput()
	found := regexp.MustCompile(`(?m)^(?:stunnel|version) ?([0-9][^ \n]*)`).FindSubmatch(text)
	if found == nil {
		return "", fmt.Errorf("%s %s printed no version: %w", path, flag, err)
	}
	return fmt.Sprintf("%s %s", filepath.Base(path), found[1]), nil
}

func isStunnel(path string) bool { return strings.HasPrefix(filepath.Base(path), "stunnel") }

// startTunnel starts the tunnel in front of the Ringside behind.
func (b *bench) startTunnel(ctx context.Context, behind *process) (*process, error) {
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	at := fmt.Sprintf("127.0.0.1:%d", ports[0])
	args := []string{"server", "--listen", at, "--target", behind.addr(), "--cert", b.cert, "--key", b.key, "--disable-authentication", "--quiet", "all"}
	if isStunnel(b.tunnel) {
		file, err := write(b.dir, "stunnel.conf", fmt.Sprintf("foreground = yes\npid =\ndebug = err\nsocket = l:TCP_NODELAY=1\nsocket = r:TCP_NODELAY=1\n[memcached]\naccept = %s\nconnect = %s\ncert = %s\nkey = %s\n",
			at, behind.addr(), b.cert, b.key))
		if err != nil {
			return nil, err
		}
		args = []string{file}
	}
	c, err := b.spawn(ctx, "tunnel", exec.Command(b.tunnel, args...), ports[0], b.ProxyCPUs)
	if err != nil {
		return nil, err
	}
	c.behind = behind
	return c, nil
}

// together adds the usage of the process behind a tunnel to that of the tunnel.
func together(tunnel, behind load.Process) load.Process {
	tunnel.CPU += behind.CPU
	tunnel.Kernel += behind.Kernel
	tunnel.Sleeps += behind.Sleeps
	tunnel.Memory += behind.Memory
	return tunnel
}

// writeCertificate writes a certificate for 127.0.0.1, which signs itself and is valid for a day, and its key.
func writeCertificate(dir string) (cert, key string, err error) {
	pair, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ringbench"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &pair.PublicKey, pair)
	if err != nil {
		return "", "", err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(pair)
	if err != nil {
		return "", "", err
	}
	cert, err = write(dir, "tls.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	if err != nil {
		return "", "", err
	}
	key, err = write(dir, "tls.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
	return cert, key, err
}
