// Package dskit compares the DNS sources of Ringside, and the placement of jump-dskit, with Grafana's dskit:
// both ask the same DNS server. It is a separate module, so that a build of Ringside does not need dskit.
package dskit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-kit/log"
	"github.com/grafana/dskit/cache"
	provider "github.com/grafana/dskit/dns"
	"github.com/miekg/dns"

	"ringside/config"
	"ringside/internal/discover"
	"ringside/proxy/serverlist"
)

const hang = time.Minute // the time limit of a lookup that must give an answer

// nameserver is a DNS server. Its zone has lines "NAME TYPE VALUE".
type nameserver struct {
	mu    sync.Mutex
	zone  []string
	fault string // SERVFAIL, silent or garbage; empty: none
	tcp   int    // number of queries over TCP
}

func (ns *nameserver) set(fault string, zone ...string) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	ns.zone, ns.fault = zone, fault
}

func (ns *nameserver) answer(w dns.ResponseWriter, q *dns.Msg) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	udp := w.LocalAddr().Network() == "udp"
	if !udp {
		ns.tcp++
	}
	m := new(dns.Msg)
	m.SetReply(q)
	m.RecursionAvailable, m.Rcode = true, dns.RcodeNameError
	switch ns.fault {
	case "silent":
		return
	case "garbage":
		w.Write([]byte("this is no DNS message"))
		return
	case "SERVFAIL":
		m.Rcode = dns.RcodeServerFailure
	}
	for _, line := range ns.zone {
		f := strings.SplitN(line, " ", 3)
		if f[0] != q.Question[0].Name || ns.fault != "" {
			continue
		}
		m.Rcode = dns.RcodeSuccess
		r, err := dns.NewRR(fmt.Sprintf("%s 5 IN %s %s", f[0], f[1], f[2]))
		if err != nil {
			panic(err)
		}
		if f[1] == dns.TypeToString[q.Question[0].Qtype] {
			m.Answer = append(m.Answer, r)
		}
	}
	if udp {
		m.Truncate(dns.MinMsgSize)
	}
	w.WriteMsg(m)
}

// startDNS makes a DNS server the resolver of this process.
func startDNS(t *testing.T) *nameserver {
	t.Helper()
	ns := &nameserver{}
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	streams, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*dns.Server{{PacketConn: packets}, {Listener: streams}} {
		s.Handler = dns.HandlerFunc(ns.answer)
		go s.ActivateAndServe()
		t.Cleanup(func() { s.Shutdown() })
	}
	before := net.DefaultResolver
	t.Cleanup(func() { net.DefaultResolver = before })
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		if network == "tcp" {
			return d.DialContext(ctx, network, streams.Addr().String())
		}
		return d.DialContext(ctx, network, packets.LocalAddr().String())
	}}
	return ns
}

// stateful returns the zone of a headless service with these pods. Each pod "NAME" or "NAME:PORT" has an
// address of its own.
func stateful(pods ...string) (zone []string) {
	for i, pod := range pods {
		name, port, _ := strings.Cut(pod, ":")
		if port == "" {
			port = "11211"
		}
		zone = append(zone, fmt.Sprintf("_memcached._tcp.mc. SRV %d %d %s %s.mc.", i%3, i%5, port, name),
			fmt.Sprintf("%s.mc. A 10.0.%d.%d", name, len(name), i+1),
			fmt.Sprintf("mc. A 10.0.%d.%d", len(name), i+1),
			fmt.Sprintf("_metrics._tcp.mc. SRV 0 0 9150 %s.mc.", name))
	}
	return zone
}

// both follows one source with dskit and with Ringside.
type both struct {
	source string
	dskit  *provider.Provider
	list   serverlist.List
	file   *config.File
	at     time.Time
}

// look asks the source with both, and returns the errors of both. Each has a time limit.
func (b *both) look(t *testing.T, limit time.Duration) (dskit, ringside error) {
	t.Helper()
	ask := func(f func(ctx context.Context) error) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		return f(ctx)
	}
	dskit = ask(func(ctx context.Context) error { return b.dskit.Resolve(ctx, []string{b.source}) })
	ringside = ask(func(ctx context.Context) error {
		s := b.file.Pools[0].Sources[0]
		servers, err := (&discover.Asker{}).Ask(ctx, s.Source)
		b.at = b.at.Add(time.Second)
		if err != nil {
			b.list.Fail(err)
			return err
		}
		b.list.Answer(b.at, servers, s.Settings)
		return nil
	})
	return dskit, ringside
}

// same compares the servers of both, and the server of each of many keys.
func (b *both) same(t *testing.T, when string) {
	t.Helper()
	servers, _ := b.list.Servers()
	var names []string
	for _, s := range servers {
		names = append(names, s.Name)
	}
	theirs := b.dskit.Addresses()
	slices.Sort(theirs)
	if mine := slices.Sorted(slices.Values(names)); !slices.Equal(mine, theirs) {
		t.Errorf("%s: %s: Ringside has %v, dskit has %v", when, b.source, mine, theirs)
		return
	}
	rand.Shuffle(len(theirs), func(i, j int) { theirs[i], theirs[j] = theirs[j], theirs[i] })
	var selector cache.MemcachedJumpHashSelector
	if err := selector.SetServers(theirs...); err != nil {
		t.Fatal(err)
	}
	f, err := b.file.With(func(string, string) ([]serverlist.Server, bool) { return servers, true })
	if err != nil {
		t.Fatal(err)
	}
	table, err := f.Build()
	if err != nil {
		t.Fatal(err)
	}
	resolved := map[string]string{}
	for _, name := range names {
		at, err := net.ResolveTCPAddr("tcp", name)
		if err != nil {
			t.Fatal(err)
		}
		resolved[name] = at.String()
	}
	for i := range 2000 {
		key := fmt.Sprintf("key:%d", i)
		want, err := selector.PickServer(key)
		if err != nil {
			t.Fatal(err)
		}
		_, _, at := table.Pools[0].Place.Locate([]byte(key))
		if is := names[at]; resolved[is] != want.String() {
			t.Fatalf("%s: %s: %s is on %s (%s), with dskit on %s", when, b.source, key, is, resolved[is], want)
		}
	}
}

// TestSameServers plays one script to dskit and to Ringside. Both have the same servers after each step, and
// place each key on the same one.
func TestSameServers(t *testing.T) {
	ns := startDNS(t)
	var sources []*both
	for _, source := range []string{"dnssrvnoa+_memcached._tcp.mc", "dnssrvnoa+_memcached._tcp.mc.", "dnssrv+_memcached._tcp.mc", "dns+mc.:11211"} {
		f, err := config.Parse("x.yaml", []byte("listen: 127.0.0.1:1\npools: {m: {distribution: jump-dskit, servers: {discover: \""+source+"\", keep: off, max_change: 100%}}}"))
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, &both{source: source, dskit: provider.NewProvider(provider.GolangResolverType, 0, log.NewNopLogger(), nil), file: f, at: time.Unix(1000, 0)})
	}
	var hundred []string
	for i := range 100 {
		hundred = append(hundred, fmt.Sprint("mc-", i))
	}
	reordered := stateful(hundred...)
	rand.Shuffle(len(reordered), func(i, j int) { reordered[i], reordered[j] = reordered[j], reordered[i] })
	for _, step := range []struct {
		name  string
		fault string
		fails bool // for both; they keep the servers that they have
		zone  []string
	}{
		{"three pods", "", false, stateful("mc-0", "mc-1", "mc-2")},
		{"a pod more", "", false, stateful("mc-0", "mc-1", "mc-2", "mc-3")},
		{"order", "", false, stateful("mc-10", "mc-2", "mc-1", "mc-9", "mc-0", "mc-20")},
		// dskit does not order names that differ in leading zeros only: they are placed as DNS returns them.
		{"names with several numbers", "", false, stateful("a10-mc-1", "a9-mc-2", "a9-mc-10", "b-1x", "b-1", "b", "a9-mc-03")},
		{"failure", "SERVFAIL", true, nil},
		{"silence", "silent", true, nil},
		{"wrong data", "garbage", true, nil},
		{"two ports", "", false, stateful("mc-0:11212", "mc-1:11211", "mc-2:11311")},
		{"100 pods", "", false, stateful(hundred...)},
		{"100 pods in another order", "", false, reordered},
		{"one pod", "", false, stateful("mc-7")},
	} {
		ns.set(step.fault, step.zone...)
		limit := hang
		if step.fails {
			limit = 100 * time.Millisecond
		}
		for _, b := range sources {
			theirs, mine := b.look(t, limit)
			if (theirs != nil) != step.fails || (mine != nil) != step.fails {
				t.Errorf("%s: %s: dskit: %v; Ringside: %v", step.name, b.source, theirs, mine)
			}
			if step.fails {
				ns.set("", stateful("a10-mc-1", "a9-mc-2", "a9-mc-10", "b-1x", "b-1", "b", "a9-mc-03")...) // the addresses of names, for the comparison
			}
			b.same(t, step.name)
			ns.set(step.fault, step.zone...)
		}
	}
	if ns.tcp == 0 {
		t.Error("no answer was truncated")
	}
	// Ringside differs here, on purpose: dskit has no servers after an answer without any.
	ns.set("")
	for _, b := range sources {
		if theirs, mine := b.look(t, hang); theirs != nil || mine == nil {
			t.Errorf("%s: a name that does not exist: dskit: %v; Ringside: %v", b.source, theirs, mine)
		}
		if servers, _ := b.list.Servers(); len(b.dskit.Addresses()) != 0 || len(servers) != 1 {
			t.Errorf("%s: a name that does not exist: dskit has %v, Ringside %v", b.source, b.dskit.Addresses(), servers)
		}
	}
}
