package discover

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ringside/config"
	"ringside/internal/testenv"
)

// endpointOf starts a server that replies to config get cluster as the function says, and returns its
// address.
func endpointOf(t *testing.T, reply func() string) string {
	t.Helper()
	return testenv.Serve(t, "127.0.0.1", func(c net.Conn) {
		if line, _ := bufio.NewReader(c).ReadString('\n'); line == "config get cluster\r\n" {
			fmt.Fprint(c, reply())
		}
	})
}

// clusterReply returns a reply as an ElastiCache endpoint sends it.
func clusterReply(version int, nodes string) string {
	data := fmt.Sprintf("%d\n%s\n", version, nodes)
	return fmt.Sprintf("CONFIG cluster 0 %d\r\n%s\r\nEND\r\n", len(data), data)
}

func TestElastiCache(t *testing.T) {
	var mu sync.Mutex
	said := map[string]string{}
	say := func(who, reply string) {
		mu.Lock()
		defer mu.Unlock()
		said[who] = reply
	}
	replyOf := func(who string) func() string {
		return func() string {
			mu.Lock()
			defer mu.Unlock()
			return said[who]
		}
	}
	endpoint, node := endpointOf(t, replyOf("endpoint")), endpointOf(t, replyOf("node"))
	_, port, _ := net.SplitHostPort(node)
	source := mustParse(t, "elasticache+"+endpoint)
	now := time.Unix(1000, 0)
	m := newMemory(time.Minute)
	m.now = func() time.Time { return now }
	nodes := "mc.0001.use1.cache.amazonaws.com|127.0.0.1|" + port + " mc.0002.use1.cache.amazonaws.com|10.0.0.2|11211 mc.0003.use1.cache.amazonaws.com||11211"
	const both = "mc.0001.use1.cache.amazonaws.com:PORT=127.0.0.1:PORT mc.0002.use1.cache.amazonaws.com:11211=10.0.0.2:11211"
	for i, c := range []struct {
		endpoint, node string
		want           string
	}{
		{clusterReply(12, nodes), "", both + " mc.0003.use1.cache.amazonaws.com:11211"},
		{"", clusterReply(13, "mc.0001|127.0.0.1|"+port), "mc.0001:PORT=127.0.0.1:PORT"}, // the endpoint is silent, and a node answers
		{clusterReply(12, nodes), "", "error: its list has the version 12, which is lower than the version 13 before; it counts when it has been repeated for 1m0s"},
		{clusterReply(12, nodes), "", "error: its list has the version 12"},
		{clusterReply(12, nodes), "", both}, // after a minute
		{"ERROR\r\n", "", `error: it is not a configuration endpoint: its reply to config get cluster is "ERROR"`},
		{"CONFIG cluster 0 99999999\r\n", "", "error: the size in"},
		{"CONFIG cluster 0 10\r\n1\nx\n", "", "error: the reply to config get cluster is not complete: unexpected EOF"},
		{"10.0.0.1:11211", "", "error: the reply to config get cluster has no complete first line: EOF"},
		{"CONFIG cluster 0 5\r\nx\na|\n\r\nEND\r\n", "", `error: the version "x" is not a number`},
		{clusterReply(14, "a|b"), "", `error: "a|b" is not host|ip|port`},
		{clusterReply(14, "a|b|0"), "", `error: "a|b|0": a port is a number between 1 and 65535`},
		{strings.Replace(clusterReply(14, "a|b|1"), "END", "ENX", 1), "", "error: the reply does not end with END"},
		{clusterReply(14, ""), "", ""},
	} {
		say("endpoint", c.endpoint)
		say("node", c.node)
		if i == 4 {
			now = now.Add(time.Minute)
		}
		list, err := (&Asker{}).ask(t.Context(), source, m)
		is := strings.ReplaceAll(inForce(list), ":"+port, ":PORT")
		if err != nil {
			is = err.Error()
		}
		want, fails := strings.CutPrefix(c.want, "error: ")
		if fails != (err != nil) || !strings.Contains(is, want) {
			t.Errorf("step %d: %s, want %s", i, is, c.want)
		}
	}
}

// kubernetes is a server of the Kubernetes API. It serves the EndpointSlices in items, and ends watches
// with an event when they change.
type kubernetes struct {
	mu      sync.Mutex
	items   []string      // the slices, as JSON
	version int           // resource version
	changed chan struct{} // closed when items change
	seen    []string      // the requests
	token   string        // the token that is accepted
	page    int           // slices per page; 0: all
	watches int           // watches since the start
}

func (k *kubernetes) set(items ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.items = items
	k.version++
	if k.changed != nil {
		close(k.changed)
	}
	k.changed = make(chan struct{})
}

func (k *kubernetes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	q := r.URL.Query()
	k.seen = append(k.seen, r.URL.Path+" "+q.Get("labelSelector"))
	if r.Header.Get("Authorization") != "Bearer "+k.token {
		http.Error(w, `{"kind":"Status","code":403}`, http.StatusForbidden)
		return
	}
	if q.Get("watch") == "true" {
		k.watches++
		changed := k.changed
		if q.Get("resourceVersion") != fmt.Sprint(k.version) {
			changed = nil
		}
		k.mu.Unlock()
		w.(http.Flusher).Flush()
		if changed != nil {
			select {
			case <-changed:
			case <-r.Context().Done():
			}
		}
		fmt.Fprintln(w, `{"type":"MODIFIED","object":{"kind":"EndpointSlice"}}`)
		k.mu.Lock()
		return
	}
	from, more := 0, ""
	fmt.Sscan(q.Get("continue"), &from)
	to := len(k.items)
	if k.page > 0 && from+k.page < to {
		to = from + k.page
		more = fmt.Sprint(to)
	}
	reply := map[string]any{"kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1", "metadata": map[string]any{"resourceVersion": fmt.Sprint(k.version), "continue": more}}
	items := []json.RawMessage{}
	for _, i := range k.items[from:to] {
		items = append(items, json.RawMessage(i))
	}
	reply["items"] = items
	json.NewEncoder(w).Encode(reply)
}

// slice returns an EndpointSlice as the API sends it. Each endpoint is "pod address [conditions]".
func slice(family, port string, endpoints ...string) string {
	var list []string
	for _, e := range endpoints {
		f := strings.Fields(e)
		ready, serving, terminating := true, true, false
		for _, c := range f[2:] {
			switch c {
			case "starting":
				ready, serving = false, false
			case "ending":
				ready, terminating = false, true
			case "gone":
				ready, serving, terminating = false, false, true
			}
		}
		list = append(list, fmt.Sprintf(`{"addresses":[%q],"conditions":{"ready":%t,"serving":%t,"terminating":%t},"hostname":%q,"targetRef":{"kind":"Pod","namespace":"prod","name":%q,"uid":"u"},"nodeName":"n","zone":"z"}`,
			f[1], ready, serving, terminating, f[0], f[0]))
	}
	return fmt.Sprintf(`{"metadata":{"name":"mc-x1","namespace":"prod","labels":{"kubernetes.io/service-name":"mc"}},"addressType":%q,"endpoints":[%s],"ports":[{"name":"metrics","protocol":"TCP","port":9150},{"name":"memcached","protocol":"TCP","port":%s}]}`,
		family, strings.Join(list, ","), port)
}

func startKubernetes(t *testing.T) (*kubernetes, *Cluster) {
	t.Helper()
	k := &kubernetes{token: "secret"}
	s := httptest.NewServer(k)
	t.Cleanup(s.Close)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return k, &Cluster{URL: s.URL, TokenFile: token}
}

func TestKubernetes(t *testing.T) {
	k, c := startKubernetes(t)
	a := &Asker{Cluster: c}
	const pods = "mc-1.mc.prod:11211=10.0.0.2:11211 mc-2.mc.prod:11211=10.0.0.3:11211 mc-10.mc.prod:11211=10.0.0.11:11211"
	for i, x := range []struct {
		source string
		items  []string
		want   string
	}{
		{"k8s+prod/mc:memcached", []string{slice("IPv4", "11211", "mc-10 10.0.0.11", "mc-2 10.0.0.3"), slice("IPv4", "11211", "mc-1 10.0.0.2")}, pods},
		{"k8s+prod/mc:memcached", []string{slice("IPv6", "11211", "mc-10 fd00::10", "mc-2 fd00::3"), slice("IPv4", "11211", "mc-1 10.0.0.2", "mc-10 10.0.0.11", "mc-2 10.0.0.3"), slice("IPv6", "11211", "mc-1 fd00::2")}, pods},
		{"k8s+prod/mc:7", []string{slice("IPv4", "11211", "mc-1 10.0.0.2", "mc-2 10.0.0.3 starting", "mc-3 10.0.0.4 ending", "mc-4 10.0.0.5 gone")}, "mc-1.mc.prod:7=10.0.0.2:7 mc-3.mc.prod:7=10.0.0.4:7"},
		{"k8s+prod/mc:metrics", []string{slice("IPv4", "11211", "mc-1 10.0.0.2")}, "mc-1.mc.prod:9150=10.0.0.2:9150"},
		{"k8s+prod/mc:nosuch", []string{slice("IPv4", "11211", "mc-1 10.0.0.2")}, ""},
		{"k8s+prod/mc:memcached", []string{`{"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.7"],"conditions":{}}],"ports":[{"name":"memcached","port":11211}]}`, `{"addressType":"FQDN","endpoints":[{"addresses":["x.example"]}],"ports":[{"name":"memcached","port":1}]}`, `{"addressType":"IPv4","endpoints":null,"ports":null}`}, "10.0.0.7:11211"},
		{"k8s+prod/mc:memcached", nil, ""},
	} {
		for k.page = range 2 {
			k.set(x.items...)
			list, err := a.Ask(t.Context(), mustParse(t, x.source))
			if is := inForce(list); err != nil || is != x.want {
				t.Errorf("%d: %s, %v; want %s", i, is, err, x.want)
			}
			for _, s := range list {
				if s.Ending != strings.HasPrefix(s.Name, "mc-3") {
					t.Errorf("%s ends: %v", s.Name, s.Ending)
				}
			}
		}
	}
	if k.seen[0] != "/apis/discovery.k8s.io/v1/namespaces/prod/endpointslices kubernetes.io/service-name=mc" {
		t.Errorf("request %s", k.seen[0])
	}
	k.token = "other"
	if _, err := a.Ask(t.Context(), mustParse(t, "k8s+prod/mc:1")); err == nil || !strings.HasPrefix(err.Error(), "the Kubernetes API replied 403 Forbidden: the service account may not list") {
		t.Error(err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := (&Asker{}).Ask(t.Context(), mustParse(t, "k8s+prod/mc:1")); err == nil || !strings.Contains(err.Error(), "runs in no Kubernetes pod") {
		t.Error(err)
	}
}

// TestKubernetesFiles checks that the token and the CA are read for each request. So an error of them is not
// final, and a renewed CA counts. A pipe or a device in their place is an error at once.
func TestKubernetesFiles(t *testing.T) {
	k := &kubernetes{token: "secret"}
	k.set(slice("IPv4", "11211", "mc-1 10.0.0.2"))
	before, after := testenv.NewCA(t, "before"), testenv.NewCA(t, "after")
	var shown atomic.Pointer[tls.Certificate]
	show := func(ca *testenv.CA) {
		is := ca.Named(t, "127.0.0.1").Certificate(t)
		shown.Store(&is)
	}
	show(before)
	s := httptest.NewUnstartedServer(k)
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // rejected handshakes
	s.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: []tls.Certificate{*shown.Load()}}, nil
	}}
	s.StartTLS()
	defer s.Close()
	dir := t.TempDir()
	token, ca := filepath.Join(dir, "token"), filepath.Join(dir, "ca.crt")
	link := func(to, path string) func() {
		return func() {
			os.Remove(path)
			if err := os.Symlink(to, path); err != nil {
				t.Fatal(err)
			}
		}
	}
	write := func(path, text string) func() {
		return func() {
			os.Remove(path)
			testenv.WriteFile(t, path, []byte(text))
		}
	}
	a := &Asker{Cluster: &Cluster{URL: s.URL, TokenFile: token, CAFile: ca}}
	pipe := fifo(t)
	for i, c := range []struct {
		change func()
		wrong  string // a part of the error; empty: none
	}{
		{func() {}, "no such file"},
		{write(ca, ""), "ca.crt has no certificate"},
		{link(pipe, ca), "it is not a regular file"},
		{link("/dev/zero", ca), "it is not a regular file"},
		{write(ca, strings.Repeat("a", mostBytes+1)), "has more than"},
		{write(ca, string(before.PEM)), "token: no such file"},
		{link(pipe, token), "it is not a regular file"},
		{link("/dev/zero", token), "it is not a regular file"},
		{write(token, strings.Repeat("a", mostBytes+1)), "has more than"},
		{write(token, "secret\n"), ""},
		{func() { show(after); s.CloseClientConnections() }, "signed by unknown authority"},
		{write(ca, string(after.PEM)), ""},
		{write(ca, "none"), "ca.crt has no certificate"},
		{write(ca, string(after.PEM)), ""},
	} {
		c.change()
		list, err := a.Ask(t.Context(), mustParse(t, "k8s+prod/mc:memcached"))
		switch {
		case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
			t.Errorf("%d: %v, want %q", i, err, c.wrong)
		case c.wrong == "" && (err != nil || inForce(list) != "mc-1.mc.prod:11211=10.0.0.2:11211"):
			t.Errorf("%d: %s, %v", i, inForce(list), err)
		}
	}
}

// measured is a reply of a given size. It records how much memory is in use while it is read.
type measured struct {
	start, middle, end string // the reply: middle is repeated
	size, given        int
	most               uint64
}

func (m *measured) Read(b []byte) (int, error) {
	if m.given%(256<<10) < 4<<10 {
		m.most = max(m.most, heapInUse())
	}
	text := m.middle
	switch {
	case m.given == 0:
		text = m.start
	case m.given >= m.size && text == "":
		return 0, io.EOF
	case m.given >= m.size:
		text, m.middle = m.end, ""
	default:
		text = strings.Repeat(text, 4096/len(text))
	}
	n := copy(b, text)
	if n < len(text) {
		n -= n % max(1, len(m.middle))
	}
	m.given += n
	return n, nil
}

func heapInUse() uint64 {
	var is runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&is)
	return is.HeapAlloc
}

// TestKubernetesLargeReply checks that a large reply is not kept in memory as a whole.
func TestKubernetesLargeReply(t *testing.T) {
	s := mustParse(t, "k8s+prod/mc:memcached")
	const end = `,"addressType":"IPv4","ports":[{"name":"memcached","port":1}]}]}`
	for _, c := range []struct{ start, middle, end string }{
		{`{"items":[{"endpoints":[{"addresses":["10.0.0.1"]}`, `,{}`, `]` + end},
		{`{"items":[{"endpoints":[{"addresses":["10.0.0.1"]}`, `,{"addresses":["x"],"conditions":{"ready":false}}`, `]` + end},
		{`{"items":[{"x":[1`, `,[{}]`, `],"endpoints":[{"addresses":["10.0.0.1"]}]` + end},
		{`{"items":[{}`, `,{}`, `,{"endpoints":[{"addresses":["10.0.0.1"]}]` + end},
	} {
		const size = 1 << 20
		m := &measured{start: c.start, middle: c.middle, end: c.end, size: size}
		before := heapInUse()
		p, err := readPage(m, s)
		if err != nil || inForce(p.servers) != "10.0.0.1:1" {
			t.Errorf("%q: %s, %v", c.middle, inForce(p.servers), err)
		}
		if m.given < size || m.most > before+size/2 {
			t.Errorf("%q: %d bytes were read, and %d were in use", c.middle, m.given, m.most-before)
		}
	}
}

// awaitList waits until a source of pool m has the servers want, as inForce prints them.
func awaitList(t *testing.T, w *Watch, source, want string) {
	t.Helper()
	is := ""
	for end := time.Now().Add(hang); time.Now().Before(end); time.Sleep(time.Millisecond) {
		list, _ := w.Servers("m", source)
		if is = inForce(list); is == want {
			return
		}
	}
	t.Fatalf("the servers of %s are %s, not %s", source, is, want)
}

const hang = testenv.Hang

func fileOf(t *testing.T, servers string) *config.File {
	t.Helper()
	f, err := config.Parse("x.yaml", []byte("listen: 127.0.0.1:1\npools: {m: {distribution: ketama-points, servers: "+servers+"}}"))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestKubernetesWatch checks that a change of the endpoints is seen long before the next lookup.
func TestKubernetesWatch(t *testing.T) {
	k, c := startKubernetes(t)
	k.set(slice("IPv4", "11211", "mc-0 10.0.0.1"))
	w := NewWatch(&Asker{Cluster: c}, quiet)
	defer w.Stop()
	const source = "k8s+prod/mc:memcached"
	w.Use(fileOf(t, `{discover: "`+source+`", every: 1h}`), true)
	awaitList(t, w, source, "mc-0.mc.prod:11211=10.0.0.1:11211")
	for end := time.Now().Add(hang); time.Now().Before(end); time.Sleep(time.Millisecond) {
		k.mu.Lock()
		n := k.watches
		k.mu.Unlock()
		if n > 0 {
			break
		}
	}
	k.set(slice("IPv4", "11211", "mc-0 10.0.0.9", "mc-1 10.0.0.2")) // the pod has restarted, and another one was added
	awaitList(t, w, source, "mc-0.mc.prod:11211=10.0.0.9:11211 mc-1.mc.prod:11211=10.0.0.2:11211")
}
