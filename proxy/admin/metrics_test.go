package admin

// A proxy serves requests and is scraped. The metrics must match the requests.

import (
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"ringside/proxy"
	"ringside/proxy/health"
	"ringside/proxy/live"
	"ringside/proxy/stats"
	"ringside/proxy/table"

	dto "github.com/prometheus/client_model/go"
)

// get requests path from h, as a scraper on another machine.
func get(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w
}

// scrape returns the samples of /metrics, by name and labels.
func scrape(t *testing.T, h http.Handler) map[string]float64 {
	t.Helper()
	w := get(h, "/metrics")
	if w.Code != 200 {
		t.Fatalf("/metrics answers %d: %s", w.Code, w.Body)
	}
	samples := map[string]float64{}
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, value, _ := cutLast(strings.TrimSpace(line), " ")
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if _, twice := samples[name]; twice {
			t.Errorf("%s is there twice", name)
		}
		samples[name] = v
	}
	return samples
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// busy returns a proxy of two loops after many kinds of events: server a replies, b refuses
// connections, and a third client exceeded the limit.
func busy(t *testing.T) *proxy.Proxy {
	t.Helper()
	second := pool("second")
	second.Servers[0].Weight = 7
	p := newProxy(pool("first"), second)
	l1, l2 := newLoop(p), newLoop(p)
	for _, l := range []*loop{l1, l2} {
		l.answer["get a1"] = "VALUE a1 0 2\r\nhi\r\nEND\r\n"
		l.answer["get a2"] = "END\r\n"
		l.answer["get a1 a2"] = "VALUE a1 0 2\r\nhi\r\nEND\r\n"
		l.answer["set a1 0 0 2"] = "STORED\r\n"
		l.answer["incr a9 1"] = "NOT_FOUND\r\n"
		l.dead[beta] = true
	}
	c1, c2 := l1.client(), l2.client()
	l1.mustSay(t, c1, "get a1\r\n", "VALUE a1 0 2\r\nhi\r\nEND\r\n")
	l1.mustSay(t, c1, "get a2\r\n", "END\r\n")
	l1.mustSay(t, c1, "get a1 a2\r\n", "VALUE a1 0 2\r\nhi\r\nEND\r\n")
	l1.mustSay(t, c1, "get b1\r\n", "END\r\n")    // the dial fails
	l1.mustSay(t, c1, "get b1 b2\r\n", "END\r\n") // it is down
	l2.mustSay(t, c2, "set a1 0 0 2\r\nhi\r\n", "STORED\r\n")
	l2.mustSay(t, c2, "incr a9 1\r\n", "NOT_FOUND\r\n")
	l2.mustSay(t, c2, "nonsense\r\n", "ERROR\r\n")
	if got := l2.says(l2.client(), ""); got != "" && !strings.Contains(got, "Too many") {
		t.Fatalf("the third client gets %q", got)
	}
	return p
}

// moving returns a proxy with a pool that moves keys. Its servers do not answer pings.
func moving(t *testing.T) *proxy.Proxy {
	t.Helper()
	p := pool("moving")
	p.Failover.Mode, p.Resize = table.Rehash, table.ResizeFlush
	made := newProxy(p)
	made.Name = "host/1" // so it has a roll
	l := newLoop(made)
	for range 20 {
		l.now += 300e6
		l.wakeup(func() {})
	}
	return made
}

// withGuard returns a proxy of guarded routes that differ only in their labels.
func withGuard() *proxy.Proxy {
	of := tableOf(pool("guarded"))
	guard := &table.GuardSettings{Lease: time.Second}
	of.Listeners[0].Routes = []table.Route{{Prefix: "page:", Pool: of.Pools[0], Guard: guard, Tags: &table.TagSettings{}}, {Match: "page:", Pool: of.Pools[0], Guard: guard}, {Match: "*:page", Pool: of.Pools[0], Near: &table.NearSettings{TTL: time.Second, Memory: 1 << 20}}}
	p := proxy.NewProxy(of, "1", slog.New(slog.DiscardHandler))
	newLoop(p)
	return p
}

// forgotten returns a proxy with one connection, which a ping has found dead.
func forgotten(t *testing.T) *proxy.Proxy {
	t.Helper()
	main := pool("main")
	main.Keepalive = 30 * time.Second
	p := proxy.NewProxy(tableOf(main), "1", slog.New(slog.DiscardHandler))
	l := newLoop(p)
	l.answer["get a1"] = "END\r\n"
	l.mustSay(t, l.client(), "get a1\r\n", "END\r\n")
	delete(l.answer, "version")
	for range 2 { // the ping, and its timeout
		l.now += 30e9
		l.wakeup(func() {})
	}
	got := scrape(t, New(p, Options{}).Handler())
	for name, want := range map[string]float64{
		`ringside_server_connections_dead_total{address="10.0.0.1:11211",found_by="ping",server="a"}`:    1,
		`ringside_server_connections_dead_total{address="10.0.0.1:11211",found_by="request",server="a"}`: 0,
		`ringside_server_reads_resent_total{address="10.0.0.1:11211",server="a"}`:                        0,
	} {
		if is, ok := got[name]; !ok || is != want {
			t.Errorf("%s is %v, want %v", name, is, want)
		}
	}
	return p
}

// judged returns a proxy after a miss and the set that follows it.
func judged(t *testing.T) *proxy.Proxy {
	t.Helper()
	of := tableOf(pool("main"))
	of.Misses = true
	p := proxy.NewProxy(of, "1", slog.New(slog.DiscardHandler))
	l := newLoop(p)
	l.answer["get a1"], l.answer["set a1 0 0 2"] = "END\r\n", "STORED\r\n"
	c := l.client()
	l.mustSay(t, c, "get a1\r\n", "END\r\n")
	l.now += 300e6 // each wakeup adds a millisecond
	l.mustSay(t, c, "set a1 0 0 2\r\nhi\r\n", "STORED\r\n")
	got := scrape(t, New(p, Options{}).Handler())
	for name, want := range map[string]float64{
		`ringside_miss_reasons_total{reason="never",route=""}`: 1, `ringside_rebuilds_total{route=""}`: 1,
		`ringside_rebuilds_seconds_total{route=""}`: .301, `ringside_rebuild_seconds{percentile="99",route=""}`: .301, `ringside_miss_reasons_sampled_ratio`: 1,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	return p
}

// allFamilies lists every metric.
func allFamilies(t *testing.T) (all []*dto.MetricFamily) {
	t.Helper()
	ordered := busy(t)
	ordered.CountRejected("app")
	if err := ordered.Override("second", "a", health.Drain); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*proxy.Proxy{ordered, moving(t), withGuard(), judged(t), forgotten(t), withTLS(), filling()} {
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(get(New(p, Options{Sources: oneSource}).Handler(), "/metrics").Body)
		if err != nil {
			t.Fatal(err)
		}
		all = slices.AppendSeq(all, maps.Values(families))
	}
	return all
}

// oneSource returns the state of a source of servers that fails.
func oneSource() []live.Source {
	return []live.Source{{Pool: "main", Source: "dns+mc:11211", Servers: 3, State: "failing", Problem: "no such host", At: time.Unix(1_700_000_000, 0), Succeeded: 7, Failed: 2, Held: 1}}
}

// withTLS returns a proxy that has a listener and a pool with TLS.
func withTLS() *proxy.Proxy {
	t := tableOf(pool("tls"))
	t.Listeners[0].TLS = &table.ListenerTLS{Expires: time.Unix(2_000_000_000, 0)}
	t.Pools[0].TLS = table.Secure(table.ServerTLS{Expires: 2_000_000_000})
	p := newProxyOf(t)
	newLoop(p)
	return p
}

// filling returns a proxy with a pool that fills from another one.
func filling() *proxy.Proxy {
	t := tableOf(pool("filling"))
	t.Pools[0].Fill = &table.Fill{From: pool("source"), Rate: 1, Remember: time.Hour}
	p := newProxyOf(t)
	newLoop(p)
	return p
}

func TestScrape(t *testing.T) {
	p := busy(t)
	at := time.Unix(1_700_000_000, 500e6)
	h := New(p, Options{Reload: func() live.Reload {
		return live.Reload{Err: errors.New("line 3: no"), At: at, Succeeded: 4, Failed: 2, Generation: 5}
	}, Sources: oneSource}).Handler()
	got := scrape(t, h)
	server := func(name, addr, more string) string {
		return fmt.Sprintf(`{address=%q%s,server=%q}`, addr, more, name)
	}
	a, b := server("a", alpha, ""), server(beta, beta, "")
	want := map[string]float64{
		`ringside_requests_total{command="get",outcome="hit"}`:                                 2,
		`ringside_requests_total{command="get",outcome="miss"}`:                                1,
		`ringside_requests_total{command="get",outcome="unavailable"}`:                         2,
		`ringside_requests_total{command="get",outcome="timeout"}`:                             0, // the command is in use, so its failures have series
		`ringside_requests_total{command="set",outcome="stored"}`:                              1,
		`ringside_requests_total{command="incr",outcome="not_found"}`:                          1,
		`ringside_requests_total{command="bad",outcome="client_error"}`:                        1,
		`ringside_requests_total{command="delete",outcome="ok"}`:                               0, // common: has a series from the start
		`ringside_request_duration_seconds_count{command="get"}`:                               5,
		`ringside_request_duration_seconds_bucket{command="get",le="+Inf"}`:                    5,
		`ringside_keys_total{result="hit"}`:                                                    2,
		`ringside_keys_total{result="miss"}`:                                                   2,
		`ringside_keys_total{result="failed"}`:                                                 3,
		`ringside_discovery_success{pool="main",source="dns+mc:11211"}`:                        0,
		`ringside_discovery_servers{pool="main",source="dns+mc:11211"}`:                        3,
		`ringside_discovery_lookups_total{pool="main",result="success",source="dns+mc:11211"}`: 7,
		`ringside_discovery_lookups_total{pool="main",result="failure",source="dns+mc:11211"}`: 2,
		`ringside_discovery_lookups_total{pool="main",result="held",source="dns+mc:11211"}`:    1,
		`ringside_discovery_last_answer_timestamp_seconds{pool="main",source="dns+mc:11211"}`:  1_700_000_000,
		`ringside_requests_in_flight`:                                                          0,

		`ringside_route_keys_total{listener="l",pool="first",result="hit",route=""}`:                       2,
		`ringside_route_keys_total{listener="l",pool="first",result="failed",route=""}`:                    3,
		`ringside_route_keys_total{listener="l",pool="second",result="miss",route="s:"}`:                   0,
		`ringside_route_requests_total{command="set",listener="l",outcome="stored",pool="first",route=""}`: 1,

		`ringside_client_connections`:                                2,
		`ringside_client_connections_limit`:                          2,
		`ringside_client_connections_accepted_total`:                 3,
		`ringside_client_connections_refused_total{reason="limit"}`:  1,
		`ringside_client_connections_closed_total{reason="idle"}`:    0,
		`ringside_client_connections_closed_total{reason="output"}`:  0,
		`ringside_client_connections_closed_total{reason="memory"}`:  0,
		`ringside_client_connections_closed_total{reason="cut_off"}`: 0,
		`ringside_client_received_bytes_total`: float64(len("get a1\r\n" + "get a2\r\n" + "get a1 a2\r\n" + "get b1\r\n" + "get b1 b2\r\n" +
			"set a1 0 0 2\r\nhi\r\n" + "incr a9 1\r\n" + "nonsense\r\n")),
		`ringside_client_sent_bytes_total`: float64(len("VALUE a1 0 2\r\nhi\r\nEND\r\n"+"END\r\n"+"VALUE a1 0 2\r\nhi\r\nEND\r\n"+"END\r\n"+"END\r\n"+
			"STORED\r\n"+"NOT_FOUND\r\n"+"ERROR\r\n") + len("ERROR Too many open connections\r\n")),
		`ringside_buffer_limit_bytes`:                      1 << 26,
		`ringside_values_refused_total`:                    0,
		`ringside_values_over_limit_total`:                 0,
		`ringside_counters_created_total`:                  0,
		`ringside_buffer_increments_total`:                 0,
		`ringside_buffer_flushes_total`:                    0,
		`ringside_buffer_flushed_total`:                    0,
		`ringside_buffer_lost_total{reason="missing"}`:     0,
		`ringside_buffer_lost_total{reason="unreachable"}`: 0,
		`ringside_buffer_lost_total{reason="unsure"}`:      0,
		`ringside_buffer_lost_total{reason="overwritten"}`: 0,
		`ringside_buffer_keys`:                             0,
		`ringside_buffer_pending`:                          0,
		`ringside_desyncs_total`:                           0,
		`ringside_reply_faults_total`:                      0,

		"ringside_server_up" + a:                                                        1,
		"ringside_server_up" + b:                                                        0,
		"ringside_server_connections" + a:                                               2,
		"ringside_server_connections" + b:                                               0,
		"ringside_server_queue_depth" + a:                                               0,
		"ringside_server_requests_total" + a:                                            5,
		"ringside_server_requests_failed_total" + a:                                     0,
		"ringside_server_requests_failed_total" + b:                                     1,
		"ringside_server_requests_timed_out_total" + b:                                  0,
		"ringside_server_zombie_connections" + b:                                        0,
		"ringside_server_late_deletes_total" + b:                                        0,
		"ringside_server_late_deletes_lost_total" + b:                                   0,
		"ringside_server_requests_refused_total" + server(beta, beta, `,reason="down"`): 2,
		"ringside_server_dials_total" + a:                                               2,
		"ringside_server_dials_total" + b:                                               1,
		"ringside_server_outages_total" + b:                                             1,
		"ringside_server_sent_bytes_total" + b:                                          0,
		"ringside_server_sent_bytes_total" + a: float64(2*len("version\r\n") +
			len("get a1\r\n"+"get a2\r\n"+"get a1 a2\r\n"+"set a1 0 0 2\r\nhi\r\n"+"incr a9 1\r\n")),
		"ringside_server_received_bytes_total" + a: float64(2*len("VERSION 1.6.18\r\n") +
			len("VALUE a1 0 2\r\nhi\r\nEND\r\n"+"END\r\n"+"VALUE a1 0 2\r\nhi\r\nEND\r\n"+"STORED\r\n"+"NOT_FOUND\r\n")),
		fmt.Sprintf(`ringside_server_version_info{address=%q,server="a",version="1.6.18"}`, alpha):     1,
		fmt.Sprintf(`ringside_pool_server{address=%q,pool="first",server="a",weight="1"}`, alpha):      1,
		fmt.Sprintf(`ringside_pool_server{address=%q,pool="second",server="a",weight="7"}`, alpha):     1,
		fmt.Sprintf(`ringside_pool_server{address=%q,pool="second",server=%q,weight="2"}`, beta, beta): 1,

		`ringside_config_reload_success`:                                                          0,
		`ringside_config_last_reload_timestamp_seconds`:                                           1_700_000_000.5,
		`ringside_config_reloads_total{result="success"}`:                                         4,
		`ringside_config_reloads_total{result="failure"}`:                                         2,
		`ringside_config_generation`:                                                              5,
		fmt.Sprintf(`ringside_build_info{goversion=%q,version=%q}`, runtime.Version(), p.Version): 1,
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if v, ok := got[name]; !ok {
			t.Errorf("%s is missing", name)
		} else if v != want[name] {
			t.Errorf("%s = %v, want %v", name, v, want[name])
		}
	}
	for _, name := range []string{"go_goroutines", "process_start_time_seconds", "ringside_buffer_bytes"} {
		if got[name] <= 0 {
			t.Errorf("%s = %v, want more than 0", name, got[name])
		}
	}
	for name := range got {
		if strings.Contains(name, `command="touch"`) {
			t.Errorf("%s is there, but nobody has sent touch", name)
		}
	}
}

// A new proxy has the metrics that dashboards and alerts need.
func TestScrapeAtStart(t *testing.T) {
	p := newProxy(pool("main"))
	newLoop(p)
	got := scrape(t, New(p, Options{}).Handler())
	for name, want := range map[string]float64{
		`ringside_requests_total{command="get",outcome="unavailable"}`: 0,
		`ringside_requests_total{command="set",outcome="stored"}`:      0,
		`ringside_request_duration_seconds_count{command="get"}`:       0,
		`ringside_config_reload_success`:                               1,
		`ringside_config_generation`:                                   1,
		`ringside_config_last_reload_timestamp_seconds`:                float64(p.Started.UnixMilli()) / 1e3,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s = %v (there: %v), want %v", name, v, ok, want)
		}
	}
	if v, ok := got[`ringside_server_up{address="10.0.0.2:11211",server="10.0.0.2:11211"}`]; ok {
		t.Errorf("a server that has not answered yet is %v", v)
	}
}

// A scrape is complete and current, or it fails.
func TestScrapeOfAHungLoop(t *testing.T) {
	t.Parallel()
	p := newProxy(pool("main"))
	newLoop(p)
	newLoop(p).e.Post = func(func(*proxy.Engine)) {}
	w := get(New(p, Options{}).Handler(), "/metrics")
	if w.Code != 500 || !strings.Contains(w.Body.String(), "did not report") || strings.Contains(w.Body.String(), "go_goroutines") {
		t.Errorf("/metrics answers %d: %s", w.Code, w.Body)
	}
}

// A scrape is compressed if the client accepts that, and rejected if too many are in progress.
func TestScrapeCompressed(t *testing.T) {
	s := New(busy(t), Options{})
	ask := func(encoding string) *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/metrics", nil)
		r.Header.Set("Accept-Encoding", encoding)
		s.Handler().ServeHTTP(w, r)
		return w
	}
	for range 2 { // the second one with a reused compressor
		w := ask("deflate;q=0.5, gzip")
		z, err := gzip.NewReader(w.Body)
		if err != nil || w.Header().Get("Content-Encoding") != "gzip" {
			t.Fatalf("%v, %v", w.Header(), err)
		}
		if text, err := io.ReadAll(z); err != nil || !strings.Contains(string(text), "\nringside_config_generation 1\n") {
			t.Errorf("%v: %s", err, text)
		}
	}
	for _, encoding := range []string{"", "identity", "gzip; q=0", "gzip;q=0.000", "x-gzip"} {
		if w := ask(encoding); w.Code != 200 || w.Header().Get("Content-Encoding") != "" || !strings.Contains(w.Body.String(), "\nringside_config_generation 1\n") {
			t.Errorf("%q: %d %v", encoding, w.Code, w.Header())
		}
	}
}

// TestScrapesShareATextThatIsCreated checks that scrapes are not rejected, however many arrive at the same time, and that few
// texts are created for them.
func TestScrapesShareATextThatIsCreated(t *testing.T) {
	var s scrapes
	var all sync.WaitGroup
	created, begun, goOn := 0, make(chan bool, 1), make(chan bool)
	join := func() {
		text, err := s.join(func() ([]byte, error) {
			if created++; created == 1 {
				begun <- true
				<-goOn
			}
			return []byte("text"), nil
		})
		if err != nil || string(text) != "text" {
			t.Errorf("%q, %v", text, err)
		}
	}
	all.Go(join)
	<-begun
	all.Go(join)
	for waits := false; !waits; runtime.Gosched() { // until the second one waits for the first
		s.mu.Lock()
		waits = s.next != nil
		s.mu.Unlock()
	}
	next := s.next
	var joined sync.WaitGroup
	for range 600 {
		joined.Add(1)
		all.Go(func() {
			joined.Done()
			join()
		})
	}
	joined.Wait()
	close(goOn)
	all.Wait()
	if created < 2 || created > 20 || string(next.text) != "text" { // some of the 600 may arrive after the second text is begun
		t.Errorf("%d texts are created", created)
	}
}

// TestSlowScrapersKeepNobodyAway checks that clients that do not read their metrics delay no other
// client, and that only a limited number of replies wait for their clients.
func TestSlowScrapersKeepNobodyAway(t *testing.T) {
	s := New(busy(t), Options{})
	var all sync.WaitGroup
	slow := make([]*stuck, 3*maxSending)
	for i := range slow {
		w := &stuck{ResponseRecorder: httptest.NewRecorder(), writing: make(chan bool), ended: make(chan bool)}
		all.Go(func() { s.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil)) })
		<-w.writing
		slow[i] = w
		if w := get(s.Handler(), "/metrics"); w.Code != 200 || !strings.Contains(w.Body.String(), "\nringside_config_generation 1\n") {
			t.Fatalf("with %d slow clients: %d %s", i+1, w.Code, w.Body)
		}
	}
	open := 0
	for _, w := range slow {
		select {
		case <-w.ended:
		default:
			open++
			close(w.ended)
		}
	}
	all.Wait()
	if open >= maxSending || open == 0 {
		t.Errorf("%d replies wait for their clients", open)
	}
	if n := len(s.sending.open); n != 0 {
		t.Errorf("%d replies are still recorded", n)
	}
}

// stuck is a client that reads nothing until a deadline ends the write.
type stuck struct {
	*httptest.ResponseRecorder
	writing, ended chan bool
}

func (w *stuck) Write([]byte) (int, error) {
	w.writing <- true
	<-w.ended
	return 0, os.ErrDeadlineExceeded
}

func (w *stuck) SetWriteDeadline(time.Time) error {
	close(w.ended)
	return nil
}

// TestScrapeOfOddNames checks that a server that a pool lists twice does not break the metrics. A
// name that is not valid in a label is an error.
func TestScrapeOfOddNames(t *testing.T) {
	twice := pool("main")
	twice.Servers = append(twice.Servers, twice.Servers[0],
		table.Target{Name: "/s", Network: "unix", Address: "/s", Weight: 1})
	p := newProxy(twice)
	newLoop(p)
	got := scrape(t, New(p, Options{}).Handler())
	if v := got[`ringside_pool_server{address="unix:/s",pool="main",server="/s",weight="1"}`]; v != 1 {
		t.Errorf("the server on a unix socket is not there: %v", v)
	}

	changes := pool("main") // its servers change: the new ones can be down, too
	joins := table.Target{Name: "n", Network: "tcp", Address: "n:1", Weight: 3}
	changes.Next = &table.List{Servers: append([]table.Target{joins}, changes.Servers...), Place: changes.Place}
	changes.Later = &table.List{Servers: append([]table.Target{{Name: "third", Network: "tcp", Address: "t:1", Weight: 1}}, changes.Servers...), Place: changes.Place}
	p = newProxy(changes)
	newLoop(p)
	rows := 0
	for series := range scrape(t, New(p, Options{}).Handler()) {
		if strings.HasPrefix(series, "ringside_pool_server{") {
			rows++
		}
	}
	if rows != len(changes.Servers)+2 {
		t.Errorf("%d servers while a new one joins, and another one waits", rows)
	}

	fills := pool("main") // the servers from which it fills can be down, too
	fills.Fill = &table.Fill{From: &table.Pool{Name: "far", Servers: []table.Target{joins}}, Rate: 1}
	p = newProxy(fills)
	newLoop(p)
	if v := scrape(t, New(p, Options{}).Handler())[`ringside_pool_server{address="n:1",pool="far",server="n",weight="3"}`]; v != 1 {
		t.Error("no row for a server from which the pool fills")
	}

	bad := pool("main")
	bad.Servers[0].Name = "\xff"
	p = newProxy(bad)
	newLoop(p)
	if w := get(New(p, Options{}).Handler(), "/metrics"); w.Code != 500 || !strings.Contains(w.Body.String(), "UTF-8") {
		t.Errorf("/metrics answers %d: %s", w.Code, w.Body)
	}
}

// Prometheus gets every fourth bucket of the engine: bounds that double.
func TestHistogramBuckets(t *testing.T) {
	p := newProxy(pool("main"))
	l := newLoop(p)
	l.answer["get a1"] = "END\r\n"
	c := l.client()
	l.mustSay(t, c, "get a1\r\n", "END\r\n")
	got := scrape(t, New(p, Options{}).Handler())
	bound, n := 16.384e-6, 0
	for ; ; n++ {
		if _, ok := got[fmt.Sprintf(`ringside_request_duration_seconds_bucket{command="get",le="%v"}`, bound)]; !ok {
			break
		}
		bound *= 2
	}
	if n != 20 || bound < 17 || bound > 17.2 {
		t.Errorf("%d buckets before %v, want 20 before 17.18", n, bound)
	}
}

func TestLint(t *testing.T) {
	problems, err := promlint.New(get(New(busy(t), Options{}).Handler(), "/metrics").Body).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

var update = flag.Bool("update", false, "rewrite the table in docs/metrics.md")

// The table in docs/metrics.md must have the same text as /metrics.
func TestMetricsPage(t *testing.T) {
	families := map[string]*dto.MetricFamily{}
	for _, f := range allFamilies(t) {
		families[f.GetName()] = f
	}
	var shown int
	var table strings.Builder
	table.WriteString("| metric | labels | type | meaning |\n|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(families)) {
		f := families[name]
		if !strings.HasPrefix(name, "ringside_") {
			continue
		}
		shown++
		var labels []string
		for _, l := range f.Metric[0].Label {
			labels = append(labels, l.GetName())
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", name, strings.Join(labels, ", "), strings.ToLower(f.GetType().String()), f.GetHelp())
	}

	if all := stats.Metrics(); shown != len(all) {
		t.Errorf("%d of %d metrics are shown", shown, len(all))
	}

	const file, heading = "../../docs/metrics.md", "## All metrics\n\n"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text, committed, found := strings.Cut(string(page), heading)
	if !found {
		t.Fatalf("%s has no heading %q", file, heading)
	}
	if *update {
		committed = table.String()
		if err := os.WriteFile(file, []byte(text+heading+committed), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if committed != table.String() {
		t.Errorf("%s differs from /metrics: run go test ./proxy/admin -run MetricsPage -update", file)
	}
}
