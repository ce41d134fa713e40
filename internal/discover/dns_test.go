package discover

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"ringside/proxy/serverlist"
)

// nameserver is a DNS server. Tests change its answers.
type nameserver struct {
	mu      sync.Mutex
	records map[string][]string // by name and type, such as "mc. A": records as text
	rcode   int                 // the result of all queries; 0: success, or NXDOMAIN for a name without records
	silent  bool                // it answers nothing
	garbage bool                // it answers with bytes that are no message
	short   bool                // it truncates all answers over UDP
	over    map[string]int      // number of queries, by network
	address string
}

func startDNS(t *testing.T) (*nameserver, *net.Resolver) {
	t.Helper()
	ns := &nameserver{records: map[string][]string{}, over: map[string]int{}}
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ns.address = packets.LocalAddr().String()
	streams, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*dns.Server{{PacketConn: packets}, {Listener: streams}} {
		s.Handler = dns.HandlerFunc(ns.answer)
		go s.ActivateAndServe()
		t.Cleanup(func() { s.Shutdown() })
	}
	return ns, &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		if network == "tcp" {
			return d.DialContext(ctx, network, streams.Addr().String())
		}
		return d.DialContext(ctx, network, ns.address)
	}}
}

func (ns *nameserver) answer(w dns.ResponseWriter, q *dns.Msg) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	network := w.LocalAddr().Network()
	ns.over[network]++
	if ns.silent {
		return
	}
	if ns.garbage {
		w.Write([]byte("this is no DNS message"))
		return
	}
	m := new(dns.Msg)
	m.SetReply(q)
	m.Rcode, m.RecursionAvailable = ns.rcode, true
	known := false
	for key, texts := range ns.records {
		name, kind, _ := strings.Cut(key, " ")
		if !strings.EqualFold(name, q.Question[0].Name) {
			continue
		}
		known = true
		if kind != dns.TypeToString[q.Question[0].Qtype] {
			continue
		}
		for _, text := range texts {
			r, err := dns.NewRR(fmt.Sprintf("%s 5 IN %s %s", name, kind, text))
			if err != nil {
				panic(err)
			}
			m.Answer = append(m.Answer, r)
		}
		if kind == "SRV" { // an additional record, which must be ignored
			r, _ := dns.NewRR("mc-0.mc. 5 IN A 10.9.9.9")
			m.Extra = append(m.Extra, r)
		}
	}
	if m.Rcode == 0 && !known {
		m.Rcode = dns.RcodeNameError
	}
	if network == "udp" {
		if m.Truncate(dns.MinMsgSize); ns.short {
			m.Answer, m.Extra, m.Truncated = nil, nil, true
		}
	}
	w.WriteMsg(m)
}

func (ns *nameserver) set(key string, records ...string) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	ns.records[key] = records
}

func mustParse(t *testing.T, text string) serverlist.Source {
	t.Helper()
	s, err := serverlist.ParseSource(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// inForce returns the names of the servers that a new list has after the answer, in their order.
func inForce(servers []serverlist.Server) string {
	var l serverlist.List
	l.Answer(time.Unix(1, 0), servers, serverlist.Settings{})
	var names []string
	list, _ := l.Servers()
	for _, s := range list {
		names = append(names, s.Name)
		if s.Address != s.Name {
			names[len(names)-1] += "=" + s.Address
		}
	}
	return strings.Join(names, " ")
}

// TestDNS checks that DNS sources yield the texts of dskit, in natural order.
func TestDNS(t *testing.T) {
	ns, resolver := startDNS(t)
	a := &Asker{Resolver: resolver}
	ns.set("mc.example. A", "10.0.0.10", "10.0.0.9", "10.0.0.2")
	ns.set("mc.example. AAAA", "fd00::1")
	ns.set("_memcached._tcp.mc.example. SRV", "0 5 11211 mc-10.mc.", "9 1 11211 mc-2.mc.", "0 0 11212 mc-0.mc.")
	ns.set("_case._tcp.mc.example. SRV", "0 5 11211 MC-0.Mc.", "0 0 11211 mc-1.mc.")
	ns.set("_metrics._tcp.mc.example. SRV", "0 5 9150 mc-10.mc.", "0 5 9150 mc-2.mc.")
	ns.set("mc-0.mc. A", "10.0.0.1")
	ns.set("mc-2.mc. A", "10.0.0.3")
	ns.set("mc-10.mc. A", "10.0.0.22")
	ns.set("Upper.Example. A", "10.0.0.1")
	ns.set("alias.example. CNAME", "mc-0.mc.")
	ns.set("half._tcp.example. SRV", "0 0 11211 mc-0.mc.", "0 0 11211 gone.mc.")
	for _, c := range []struct{ source, want string }{
		{"dns+mc.example:11211", "10.0.0.2:11211 10.0.0.9:11211 10.0.0.10:11211 [fd00::1]:11211"},
		{"dns+mc.example.:7", "10.0.0.2:7 10.0.0.9:7 10.0.0.10:7 [fd00::1]:7"},
		{"dns+upper.example:1", "10.0.0.1:1"},
		{"dnssrv+_memcached._tcp.mc.example", "10.0.0.1:11212 10.0.0.3:11211 10.0.0.22:11211"},
		{"dnssrvnoa+_memcached._tcp.mc.example", "mc-0.mc.:11212 mc-2.mc.:11211 mc-10.mc.:11211"},
		{"dnssrv+half._tcp.example.", "10.0.0.1:11211"},
		{"dnssrvnoa+_case._tcp.mc.example", "mc-0.mc.:11211 mc-1.mc.:11211"},
		{"dnssrvnoa+_memcached._tcp.mc.example.", "mc-0.mc.:11212 mc-2.mc.:11211 mc-10.mc.:11211"},
	} {
		list, err := a.Ask(t.Context(), mustParse(t, c.source))
		if is := inForce(list); err != nil || is != c.want {
			t.Errorf("%s: %s, %v; want %s", c.source, is, err, c.want)
		}
	}
}

func TestDNSWithManyRecords(t *testing.T) {
	ns, resolver := startDNS(t)
	var records []string
	for i := range 100 {
		records = append(records, fmt.Sprintf("0 0 11211 mc-%d.mc.prod.svc.cluster.local.", i))
		ns.set(fmt.Sprintf("mc-%d.mc.prod.svc.cluster.local. A", i), fmt.Sprintf("10.0.%d.%d", i/50, i))
	}
	ns.set("_memcached._tcp.mc. SRV", records...)
	for source, want := range map[string]string{"dnssrvnoa+_memcached._tcp.mc": "mc-99.mc.prod.svc.cluster.local.:11211", "dnssrv+_memcached._tcp.mc": "10.0.1.99:11211"} {
		list, err := (&Asker{Resolver: resolver}).Ask(t.Context(), mustParse(t, source))
		names := strings.Fields(inForce(list))
		if err != nil || len(names) != 100 || names[99] != want {
			t.Errorf("%s: %d servers, %v: %v", source, len(names), err, names)
		}
	}
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if ns.over["tcp"] == 0 {
		t.Error("no query over TCP after a truncated answer")
	}
}

func TestDNSFailures(t *testing.T) {
	ns, resolver := startDNS(t)
	a := &Asker{Resolver: resolver}
	ns.set("empty. TXT", `"x"`)
	ns.set("_x._tcp.none. SRV", "0 0 1 .")
	ns.set("_x._tcp.port. SRV", "0 0 1 mc-0.mc.", "0 0 0 mc-1.mc.")
	for _, c := range []struct {
		source, want string
		set          func()
	}{
		{"dns+nosuch.:1", "no such host", func() {}},
		{"dns+empty.:1", "no such host", func() {}},
		{"dnssrv+nosuch.", "no such host", func() {}},
		{"dnssrvnoa+_x._tcp.none.", "it has a record without a server: target ., port 1", func() {}},
		{"dnssrv+_x._tcp.port.", "it has a record without a server: target mc-1.mc., port 0", func() {}},
		{"dns+mc.:1", "server misbehaving", func() { ns.rcode = dns.RcodeServerFailure }},
		{"dnssrvnoa+mc.", "server misbehaving", func() {}},
		{"dns+mc.:1", "server misbehaving", func() { ns.rcode = dns.RcodeRefused }},
	} {
		ns.mu.Lock()
		c.set()
		ns.mu.Unlock()
		list, err := a.Ask(t.Context(), mustParse(t, c.source))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), ns.address) || len(list) > 0 {
			t.Errorf("%s: %v, %v; want %s", c.source, list, err, c.want)
		}
	}
	ns.mu.Lock()
	ns.rcode, ns.silent = 0, true
	ns.mu.Unlock()
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		_, err := a.Ask(ctx, mustParse(t, "dns+mc.:1"))
		if cancel(); err == nil {
			t.Error("a silent or wrong server: no error")
		}
		ns.mu.Lock()
		ns.silent, ns.garbage = false, true
		ns.mu.Unlock()
	}
}

func TestFile(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1\n\n# old: 10.0.0.9\n  10.0.0.2:11212  name=b weight=3\n[fd00::1]:1\n[fd00::2]\nmc.example:7": "10.0.0.1:11211 10.0.0.2:11212=b*3 [fd00::1]:1 [fd00::2]:11211 mc.example:7",
		"a:1 weight=1": "a:1",
		"":             "",
		"\n\na:1 b:1":  `error: x:3: after the address come name=NAME and weight=N, not "b:1"`,
		"a:0":          `error: x:1: a port is a number between 1 and 65535, not "0"`,
		"a:1 weight=0": `error: x:1: a weight is a whole number from 1, not "0"`,
		"a:1 name=":    `error: x:1: a name is not empty, and has neither : nor /, not ""`,
		"a:1 name=x:1": `error: x:1: a name is not empty, and has neither : nor /, not "x:1"`,
		":1":           `error: x:1: ":1" is not an address: write host:port or [ipv6]:port`,
		"fd00::1":      `error: x:1: "fd00::1" is not an address: write host:port or [ipv6]:port`,
		"<html>/x":     `error: x:1: "<html>/x" is not an address: write host:port or [ipv6]:port`,
	} {
		list, err := parseList("x", []byte(text))
		var words []string
		for _, s := range list {
			word := s.Address
			if s.Name != s.Address {
				word += "=" + s.Name
			}
			if s.Weight > 1 {
				word += fmt.Sprint("*", s.Weight)
			}
			words = append(words, word)
		}
		is := strings.Join(words, " ")
		if err != nil {
			is = "error: " + err.Error()
		}
		if is != want {
			t.Errorf("%q: %s, want %s", text, is, want)
		}
	}
	long := strings.Repeat("x", 1<<19)
	for _, text := range []string{"a:1 " + long, "a:1 weight=" + long, "a:1 name=:" + long, "a:" + long, long + "/", long + "::1"} {
		if _, err := parseList("x", []byte(text)); err == nil || len(err.Error()) > 200 {
			t.Errorf("%.20s: no short error", text)
		}
	}
	if _, err := (&Asker{}).Ask(t.Context(), mustParse(t, "file+/dev/zero")); err == nil || err.Error() != "read /dev/zero: it is not a regular file" {
		t.Error(err)
	}
	if _, err := (&Asker{}).Ask(t.Context(), mustParse(t, "file+/nosuch/file")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestForms checks that each form of a source is known to the function that asks it.
func TestForms(t *testing.T) {
	if len(serverlist.Forms()) != len(serverlist.Schemes) || !slices.IsSorted(serverlist.Schemes) {
		t.Error("the schemes are not complete, or not sorted")
	}
	for _, scheme := range serverlist.Schemes {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := (&Asker{Cluster: &Cluster{}}).Ask(ctx, serverlist.Source{Scheme: scheme, Text: scheme}); err == nil || strings.Contains(err.Error(), "is not a source") {
			t.Errorf("%s: %v", scheme, err)
		}
	}
}
