package instance

// Tests of pools with discovered servers.

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/bradfitz/gomemcache/memcache"

	"ringside/config"
	"ringside/internal/discover"
	"ringside/internal/memnode"
	"ringside/internal/testenv"
	"ringside/proxy"
)

// source is the content of the files of sources, which a test changes.
type source struct {
	mu   sync.Mutex
	text string
	err  error
	hang chan struct{} // a lookup waits until it is closed; nil: it does not wait
}

func (s *source) read(string) ([]byte, error) {
	s.mu.Lock()
	hang := s.hang
	s.mu.Unlock()
	if hang != nil {
		<-hang
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return []byte(s.text), s.err
}

// set changes the servers, and makes the instance ask for them.
func (s *source) set(i *served, err error, servers ...string) {
	s.mu.Lock()
	s.text, s.err = strings.Join(servers, "\n"), err
	s.mu.Unlock()
	if i != nil {
		i.sources.Refused(func(string, string) bool { return true })
	}
}

func startSource(t *testing.T, err error, servers ...string) *source {
	s := &source{text: strings.Join(servers, "\n"), err: err}
	before := asker
	asker = &discover.Asker{ReadFile: s.read}
	t.Cleanup(func() { asker = before })
	return s
}

func startNode(t *testing.T) *memnode.Node {
	t.Helper()
	n, err := memnode.Start(memnode.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

const discovering = `listen: "127.0.0.1:0"
admin: {address: "127.0.0.1:0"}
pools:
  main:
    distribution: modulo-crc32
    resize: {mode: plain}
    max_move: 60%%
    servers: {discover: file+/servers, every: 1h, keep: %s}
`

func (s *served) names() string {
	var names []string
	for _, t := range s.proxy.Table().Pools[0].Servers {
		names = append(names, t.Name)
	}
	return strings.Join(names, " ")
}

func (s *served) gets(path string) (int, string) {
	s.t.Helper()
	r, err := http.Get("http://" + s.admin + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer r.Body.Close()
	text, _ := io.ReadAll(r.Body)
	return r.StatusCode, string(text)
}

// TestServersAreNotKnown checks an instance that starts while its source does not answer.
func TestServersAreNotKnown(t *testing.T) {
	node := startNode(t)
	from := startSource(t, errors.New("no such host"))
	s := serveFile(t, filepath.Join(t.TempDir(), "ringside.yaml"), fmt.Sprintf(discovering, "off"))
	if code, text := s.gets("/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(text, "the servers of pool main are not known: file+/servers: no such host") {
		t.Errorf("ready: %d %s", code, text)
	}
	if code, _ := s.gets("/healthz"); code != http.StatusOK {
		t.Errorf("health: %d", code)
	}
	c := testenv.Client(t, s.Address())
	const rejected = "SERVER_ERROR the servers of this pool are not known yet"
	if _, err := c.Get("key"); err == nil || !strings.Contains(err.Error(), rejected) {
		t.Errorf("get: %v", err)
	}
	if err := c.Set(&memcache.Item{Key: "key", Value: []byte("v")}); err == nil || !strings.Contains(err.Error(), rejected) {
		t.Errorf("set: %v", err)
	}
	s.reloads(0)
	wants(t, s.journal.String(), "the servers of a pool are not known: the instance is not ready and rejects commands", "no such host")
	from.set(s, nil, node.Addr().String()+" name=a")
	eventually(t, "it is ready", func() bool { code, _ := s.gets("/readyz"); return code == http.StatusOK })
	if err := c.Set(&memcache.Item{Key: "key", Value: []byte("v")}); err != nil {
		t.Error(err)
	}
	if _, text := s.gets("/control/servers"); !strings.Contains(text, `"at": "`+node.Addr().String()+`"`) && !strings.Contains(text, `"at":"`+node.Addr().String()+`"`) {
		t.Errorf("the list of servers lacks the present address: %s", text)
	}
	from.set(s, nil) // an empty answer
	eventually(t, "the source fails", func() bool { return s.sources.States()[0].State == "failing" })
	if s.names() != "a" {
		t.Error(s.names())
	}
}

// TestConfigWhileServersMove checks, with -race, that the admin interface can read the configuration while
// servers move.
func TestConfigWhileServersMove(t *testing.T) {
	f, err := config.Parse("f", []byte("listen: :1\npools: {main: {distribution: ketama, servers: [a]}}"))
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	table, err := f.Build()
	if err != nil {
		t.Fatal(err)
	}
	r := &Instance{file: f, proxy: proxy.NewProxy(table, "test", quiet), sources: discover.NewWatch(asker, quiet)}
	ended := make(chan bool)
	go func() {
		for range 20 {
			r.relist()
		}
		close(ended)
	}()
	for {
		select {
		case <-ended:
			return
		default:
			r.config()
		}
	}
}

// TestPodsRestart restarts servers at other addresses. No key moves, and the first refused connection
// makes Ringside look for them.
func TestPodsRestart(t *testing.T) {
	a, b, c := startNode(t), startNode(t), startNode(t)
	from := startSource(t, nil, a.Addr().String()+" name=mc-0", b.Addr().String()+" name=mc-1", c.Addr().String()+" name=mc-2")
	s := serveFile(t, filepath.Join(t.TempDir(), "ringside.yaml"), fmt.Sprintf(discovering, "1h"))
	client := testenv.Client(t, s.Address())
	owners := func() (list []string) {
		table := s.proxy.Table()
		for i := range 1000 {
			_, _, at := table.Pools[0].Place.Locate(fmt.Appendf(nil, "key:%d", i))
			list = append(list, table.Pools[0].Servers[at].Name)
		}
		return list
	}
	before, generation := owners(), s.reloaded().Generation
	for i := range 30 {
		if err := client.Set(&memcache.Item{Key: fmt.Sprint("key", i), Value: []byte("v")}); err != nil {
			t.Fatal(err)
		}
	}
	b.Close()
	again := startNode(t)
	from.mu.Lock()
	from.text = strings.Join([]string{a.Addr().String() + " name=mc-0", again.Addr().String() + " name=mc-1", c.Addr().String() + " name=mc-2"}, "\n")
	from.mu.Unlock()
	// No request for a lookup here: the refused connection causes it.
	// On a busy machine, the other servers may have its keys before the lookup.
	eventually(t, "all keys can be written, some on the pod that has restarted", func() bool {
		for i := range 30 {
			if client.Set(&memcache.Item{Key: fmt.Sprint("key", i), Value: []byte("w")}) != nil {
				return false
			}
		}
		return len(again.Keys()) > 0
	})
	if is := owners(); !slices.Equal(is, before) {
		t.Error("keys have moved")
	}
	if s.reloaded().Generation != generation || s.names() != "mc-0 mc-1 mc-2" {
		t.Errorf("generation %d, servers %s", s.reloaded().Generation, s.names())
	}
	wants(t, s.journal.String(), "servers have other addresses", "mc-1@main:0 from "+b.Addr().String()+" to "+again.Addr().String())

	// The address of a server that still runs changes: Ringside leaves the old one.
	third := startNode(t)
	from.set(s, nil, a.Addr().String()+" name=mc-0", again.Addr().String()+" name=mc-1", third.Addr().String()+" name=mc-2")
	eventually(t, "the new address is used", func() bool {
		for i := range 30 {
			client.Set(&memcache.Item{Key: fmt.Sprint("key", i), Value: []byte("x")})
		}
		return len(third.Keys()) > 0
	})
	if is := owners(); !slices.Equal(is, before) {
		t.Error("keys have moved")
	}
}

// TestServersVanish ends a server that its source then leaves out. It counts as a failed server: others take its
// keys, and placement does not change. After keep, it is removed.
func TestServersVanish(t *testing.T) {
	a, b, c := startNode(t), startNode(t), startNode(t)
	of := func(n *memnode.Node, name string) string { return n.Addr().String() + " name=" + name }
	from := startSource(t, nil, of(a, "a"), of(b, "b"), of(c, "c"))
	text := strings.Replace(fmt.Sprintf(discovering, "1h"), "max_move: 60%", "failover: {eject_after: 100ms, ping: 50ms, lease: 300ms}", 1)
	s := serveFile(t, filepath.Join(t.TempDir(), "ringside.yaml"), text)
	client := testenv.Client(t, s.Address())
	stored := func() bool {
		for i := range 30 {
			if client.Set(&memcache.Item{Key: fmt.Sprint("key", i), Value: []byte("v")}) != nil {
				return false
			}
		}
		return true
	}
	eventually(t, "the servers are known", stored)
	b.Close()
	from.set(s, nil, of(a, "a"), of(c, "c"))
	eventually(t, "other servers take the keys", stored)
	eventually(t, "it is left out", func() bool { return len(s.sources.Save()[0].List.Gone) == 1 })
	if is := s.names(); is != "a b c" {
		t.Errorf("before keep ends: %s", is)
	}
	s.write(strings.Replace(text, "1h, keep: 1h", "1s, keep: off", 1)) // keep ends
	s.reloads(0)
	from.set(s, nil, of(a, "a"), of(c, "c"))
	eventually(t, "it is removed", func() bool { return s.names() == "a c" })
	if !stored() {
		t.Error("after its end, not all keys can be written")
	}
}

// TestMaxMoveHoldsOnePool checks that a list that moves too many keys of one pool does not hold up those of others, and that
// it comes into force with --accept.
func TestMaxMoveHoldsOnePool(t *testing.T) {
	startSource(t, nil)
	lists := map[string]string{"/modulo": "127.0.0.1:9 name=a\n127.0.0.2:9 name=b", "/ketama": "127.0.0.3:9 name=c\n127.0.0.4:9 name=d"}
	var mu sync.Mutex
	asker.ReadFile = func(path string) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		return []byte(lists[path]), nil
	}
	s := serveFile(t, filepath.Join(t.TempDir(), "ringside.yaml"), `listen: "127.0.0.1:0"
admin: {address: "127.0.0.1:0"}
pools:
  modulo: {distribution: modulo-crc32, resize: {mode: plain}, max_move: 40%, servers: {discover: file+/modulo, every: 1h}}
  ketama: {distribution: ketama, max_move: 60%, servers: {discover: file+/ketama, every: 1h}}
routes: [{prefix: m, pool: modulo}, {pool: ketama}]
`)
	names := func() (list [2]string) {
		for i, p := range s.proxy.Table().Pools {
			for _, server := range p.Servers {
				list[i] += server.Name
			}
		}
		return list
	}
	add := func(modulo, ketama string) {
		mu.Lock()
		lists["/modulo"] += modulo
		lists["/ketama"] += ketama
		mu.Unlock()
		s.sources.Refused(func(string, string) bool { return true })
	}
	states := func() string { return s.sources.States()[0].State + " " + s.sources.States()[1].State }
	generation := s.reloaded().Generation
	add("\n127.0.0.5:9 name=e", "\n127.0.0.6:9 name=f")
	eventually(t, "one list is in force", func() bool { return names() == [2]string{"ab", "cdf"} && states() == "held ok" })
	add("\n", "\n127.0.0.7:9 name=g")
	eventually(t, "a further change is in force", func() bool { return names() == [2]string{"ab", "cdfg"} && states() == "held ok" })
	eventually(t, "both changes are reported", func() bool { r := s.reloaded(); return r.Err == nil && r.Generation == generation+2 })
	eventually(t, "the list is held again", func() bool { return states() == "held ok" })
	s.reloads(0) // a reload of the file does not accept the list
	if is := names(); is != [2]string{"ab", "cdfg"} || states() != "held ok" {
		t.Error(is, states())
	}
	s.reloads(0, "--accept")
	eventually(t, "the list is accepted", func() bool { return names() == [2]string{"abe", "cdfg"} && states() == "ok ok" })
	if n := strings.Count(s.journal.String(), "the servers of a source stay as they are"); n != 1 {
		t.Errorf("%d warnings: %s", n, s.journal.String())
	}
}

// TestServersAreTheSame checks that a server that a source knows by a name is reported once if another server of the pool
// is at the same address.
func TestServersAreTheSame(t *testing.T) {
	from := startSource(t, nil, "127.0.0.1:9 name=a", "127.0.0.2:9 name=b", "127.0.0.3:9 name=c")
	s := serveFile(t, filepath.Join(t.TempDir(), "ringside.yaml"), fmt.Sprintf(discovering, "off"))
	const says = "pool main: the servers a and b are both at 127.0.0.1:9"
	for _, c := range []string{"127.0.0.4:9", "127.0.0.5:9"} {
		from.set(s, nil, "127.0.0.1:9 name=a", "127.0.0.1:9 name=b", c+" name=c")
		eventually(t, "c is followed", func() bool { return s.locate("c@main:0") == c })
		eventually(t, "it is reported", func() bool { return strings.Contains(s.journal.String(), says) })
	}
	if n := strings.Count(s.journal.String(), says); n != 1 {
		t.Errorf("%d warnings", n)
	}
}

// TestListsChange changes the servers of a source: all limits of a reload hold, and the file on disk
// does not matter.
func TestListsChange(t *testing.T) {
	from := startSource(t, nil, "127.0.0.1:9 name=a", "127.0.0.2:9 name=b", "127.0.0.3:9 name=c", "127.0.0.4:9 name=d")
	s := serveFile(t, filepath.Join(t.TempDir(), "ringside.yaml"), fmt.Sprintf(discovering, "off"))
	state := func() string { return s.sources.States()[0].State }
	s.write("this is no configuration")
	// modulo-crc32 moves most keys if a server is added: more than max_move of the pool.
	from.set(s, nil, "127.0.0.1:9 name=a", "127.0.0.2:9 name=b", "127.0.0.3:9 name=c", "127.0.0.4:9 name=d", "127.0.0.5:9 name=e")
	eventually(t, "max_move holds it", func() bool { return state() == "held" })
	wants(t, s.sources.States()[0].Problem, "of its keys move to other servers, and its max_move is 60%; ringside reload --accept accepts it")
	// A server that stays is still followed to another address.
	from.set(s, nil, "127.0.0.1:9 name=a", "127.0.0.22:9 name=b", "127.0.0.3:9 name=c", "127.0.0.4:9 name=d", "127.0.0.5:9 name=e")
	eventually(t, "it is followed", func() bool { return s.locate("b@main:0") == "127.0.0.22:9" })
	if is := s.locate("e@main:0"); is != "e@main:0" {
		t.Errorf("a server that is not in force is at %s", is)
	}
	from.set(s, nil, "127.0.0.1:9 name=a", "127.0.0.2:9 name=b", "127.0.0.3:9 name=c", "127.0.0.4:9 name=d")
	eventually(t, "nothing is held any more", func() bool { return state() == "ok" })
	from.set(s, nil, "127.0.0.1:9 name=a")
	eventually(t, "it is held", func() bool { return state() == "held" })
	if s.names() != "a b c d" {
		t.Error(s.names())
	}
	_, errs := s.reloads(78, "--accept") // the file is wrong
	wants(t, errs, "the file must be a mapping")
	if s.names() != "a b c d" || state() != "held" {
		t.Error(s.names(), state())
	}
	s.write(fmt.Sprintf(discovering, "off"))
	out, _ := s.reloads(0, "--accept")
	wants(t, out, "-server b", "-server c", "-server d")
	if s.names() != "a" || state() != "ok" {
		t.Error(s.names(), state())
	}

	// A reload with another source waits for its answer, and needs one.
	from.set(nil, errors.New("no such host"))
	s.write(strings.Replace(fmt.Sprintf(discovering, "off"), "file+/servers", "file+/others", 1))
	_, errs = s.reloads(78)
	wants(t, errs, "pools.main: the servers are not known: file+/others: no such host")
	if s.names() != "a" || len(s.sources.States()) != 1 {
		t.Error(s.names(), s.sources.States())
	}
	from.set(nil, nil, "127.0.0.8:9 name=x") // it does not fit the rest of the file
	s.write(strings.Replace(fmt.Sprintf(discovering, "off"), "file+/servers", "file+/fewer", 1) + "routes: [{pool: main, replicas: 2}]\n")
	_, errs = s.reloads(78)
	wants(t, errs, "pools.main: the servers are not known: file+/fewer: ", "replicas")
	from.set(nil, errors.New("no such host"))
	s.write(strings.Replace(fmt.Sprintf(discovering, "off"), "file+/servers", "file+/others", 1))
	hang := make(chan struct{})
	from.set(nil, nil, "127.0.0.8:9 name=x", "127.0.0.9:9 name=y")
	from.mu.Lock()
	from.hang = hang
	from.mu.Unlock()
	go func() {
		eventually(t, "the reload waits", func() bool {
			return strings.Contains(s.journal.String(), "reload delayed: new sources of servers are asked first")
		})
		if code, _ := s.gets("/readyz"); code != http.StatusOK {
			t.Errorf("while a lookup hangs: %d", code)
		}
		close(hang)
	}()
	out, _ = s.reloads(0, "--accept")
	wants(t, out, "-source file+/servers", "+source file+/others", "-server a", "+server x", "+server y")
	if s.names() != "x y" {
		t.Error(s.names())
	}
}
