package e2e

// This file tests traces of keys, by ringside trace and on the page.

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"ringside/internal/testenv"
	"ringside/proxy/watch"
)

// caller is a client that sends one request at a time.
type caller struct {
	t *testing.T
	c net.Conn
	r *bufio.Reader
}

func newCaller(t *testing.T, address string) *caller {
	t.Helper()
	c, err := dialError(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &caller{t, c, bufio.NewReader(c)}
}

// gets sends ask and checks that the reply begins with want. If the reply has values, it
// reads up to the last line.
func (c *caller) gets(ask, want string) {
	c.t.Helper()
	c.c.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(c.c, "%s\r\n", ask)
	line, err := c.r.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, want) {
		c.t.Fatalf("%q is answered %q, %v; want %q", ask, line, err, want)
	}
	for strings.HasPrefix(line, "VALUE") || strings.HasPrefix(line, "v") {
		if line, err = c.r.ReadString('\n'); err != nil {
			c.t.Fatal(err)
		}
	}
}

// TestTrace runs two clients through the two typical stories of a cache. In the first, a
// client fills the cache under a lock. In the second, the value disappears and one client
// gets the lock, but the other one finds a value that was set by another way. The trace
// is checked on the command line, on the page, in a terminal and in a file.
func TestTrace(t *testing.T) {
	t.Parallel()
	server := startMemcached(t)
	file := filepath.Join(t.TempDir(), "home.trace")
	r := startRingside(t, "epoll", fmt.Sprintf("pools: {main: {distribution: ketama-points, failover: {mode: fail_fast}, servers: [%q]}}\ntraces: [{keys: \"home:*\", file: %q}]\n", server.address, file))
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "trace", "--admin", r.admin, "--json", "--for", "10m", "home:*", "page:?")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop := func() { cmd.Process.Signal(syscall.SIGINT) }
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	type event struct {
		Key []byte
		L   string
		N   int
		C   int
		S   string
		X   string
		Why string
	}
	events := make(chan event, 1000)
	go func() {
		for d := json.NewDecoder(out); ; {
			var ev event
			if d.Decode(&ev) != nil {
				close(events)
				return
			}
			events <- ev
		}
	}()
	b := startBrowser(t, 1440, 900)
	b.open(t, "http://"+r.admin+"/")
	b.do(t, "document.getElementById('pattern').value = 'home:*'; document.getElementById('trace').scrollIntoView(); document.querySelector('#follow button').click()")

	x := startTerminal(t, 120, 40, nil, binary, "top", "--admin", r.admin, "--trace", "home:*")
	one, two, elsewhere := newCaller(t, r.address), newCaller(t, r.address), newCaller(t, server.address)
	eventually(t, "both follow", func() bool {
		one.gets("get home:ready", "END")
		return len(events) > 0 && strings.Contains(x.screen(), "home:ready M") && eval[bool](t, b, "document.querySelectorAll('#rows .l').length > 0")
	})
	const harm = "home:<img/src=x/onerror=alert(1)>\u202e\x00\xff"
	const shown = `home:<img/src=x/onerror=alert(1)>\xe2\x80\xae\x00\xff`
	one.gets("get home:top", "END")                            // M
	one.gets("add lock:home:top 0 9999 1\r\n1", "STORED")      // L
	one.gets("set home:top 0 9999 5\r\nvalue", "STORED")       // W
	one.gets("delete lock:home:top", "DELETED")                // U
	two.gets("get home:top", "VALUE")                          // H
	two.gets("get home:top home:none other", "VALUE")          // H
	one.gets("get home:top", "VALUE")                          // H
	two.gets("set other:key 0 0 5\r\nvalue", "STORED")         // not traced
	one.gets("set home:old 0 9999 5\r\nvalue", "STORED")       // W
	two.gets("get home:old", "VALUE")                          // H
	elsewhere.gets("delete home:old", "DELETED")               // Ringside does not see this, so it is not traced
	one.gets("get home:old", "END")                            // M
	one.gets("add lock:home:old 0 9999 1\r\n1", "STORED")      // L
	two.gets("add lock:home:old 0 9999 1\r\n1", "NOT_STORED")  // l
	elsewhere.gets("set home:old 0 9999 5\r\nvalue", "STORED") //
	two.gets("get home:old", "VALUE")                          // H
	one.gets("set home:gone 0 0 1\r\nx", "STORED")             // W
	one.gets("flush_all", "OK")                                //
	two.gets("get home:gone", "END")                           // M, with its reason
	elsewhere.gets("set home:old 0 9999 5\r\nvalue", "STORED") //
	two.gets("mg "+base64Of(harm)+" v b", "EN")                // M; a text command can't contain NUL
	one.gets("incr page:1 1", "NOT_FOUND")                     // I
	one.gets("touch home:old 8888", "TOUCHED")                 // T
	one.gets("cas home:old 0 9999 5 1\r\nvalue", "EXISTS")     // w
	one.gets("delete page:9", "NOT_FOUND")                     // d
	server.Kill()
	one.gets("set page:2 0 0 5\r\nvalue", "SERVER_ERROR") // E

	stories, clients, why := map[string]string{}, map[int]bool{}, map[string]string{}
	for stories["page:2"] == "" {
		select {
		case ev, ok := <-events:
			if !ok {
				t.Fatalf("the trace has ended after %v", stories)
			}
			key := strings.TrimPrefix(string(ev.Key), "lock:")
			stories[key] += strings.Repeat(ev.L, ev.N)
			if ev.L == "M" {
				why[key] = strings.TrimSpace(ev.X + " " + ev.Why)
			}
			if key == "home:top" {
				clients[ev.C] = true
			}
		case <-time.After(patience):
			t.Fatalf("so far: %v", stories)
		}
	}
	for key, want := range map[string]string{"home:top": "MLWUHHH", "home:none": "M", "home:old": "WHMLlHTw", "page:1": "I", "page:9": "d", "page:2": "E", "other:key": "", "home:gone": "WM", harm: "M"} {
		if stories[key] != want {
			t.Errorf("of %s is told %s, want %s", key, stories[key], want)
		}
	}
	for key, want := range map[string]string{"home:top": "never", "home:old": "", "home:gone": "F flushed"} {
		if why[key] != want {
			t.Errorf("%s is said to miss for %q, want %q", key, why[key], want)
		}
	}
	x.shows(t, "TRACE home:*", "home:top   M L W U H3", "home:old   W H M L l H T w", "home:gone  W MF", shown[:19])
	eventually(t, "the file tells it", func() bool {
		told := map[string]string{}
		text, _ := os.ReadFile(file)
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 2 {
				told[f[1]] += strings.Join(f[2:], "")
			}
		}
		// Where a quarter of a second ends is random, so H2 H and H3 are equal.
		top := regexp.MustCompile(`^MLWU(HHH|H2H|HH2|H3)$`)
		return top.MatchString(told["home:top"]) && told["home:old"] == "WHMLlHTw" && told["home:gone"] == "WMF" && told["page:1"] == "" && told[shown] == "M"
	})
	if is, err := os.Stat(file); err != nil || is.Mode().Perm() != 0o600 {
		t.Errorf("the file has %v, %v", is, err)
	}
	if len(clients) != 2 {
		t.Errorf("home:top is said to be of clients %v", clients)
	}
	const letters = `[...document.querySelectorAll("#rows .trow")].filter(r => r.querySelector(".k").textContent === "home:top").map(r => [...r.querySelectorAll(".l")].map(l => l.textContent).join(" ")).join()`
	b.until(t, letters+` === "M L W U H3" || `+letters+`.replace(/ H(?=2| H|$)/g, "").startsWith("M L W U")`)
	b.until(t, `[...document.querySelectorAll("#rows .trow")].some(r => r.querySelector(".k").textContent === "home:gone" && r.querySelector(".l-F"))`)
	b.until(t, fmt.Sprintf(`[...document.querySelectorAll("#rows .k")].some(k => k.textContent === %q)`, shown))
	if n := eval[int](t, b, "document.images.length + document.querySelectorAll('#rows img').length"); n != 0 {
		t.Error("a key has become a part of the page")
	}
	b.says(t, "#log", "Trace of home:* started")
	b.shot(t, "trace")
	stop()
	if err := cmd.Wait(); err != nil {
		t.Errorf("ringside trace ends with %v", err)
	}
}

// TestTraceForms tests the forms of output. They are a line per event with a summary each
// second, a line per key that a terminal rewrites, the same appended to a pipe, and a
// sample of all keys.
func TestTraceForms(t *testing.T) {
	t.Parallel()
	server := startMemcached(t)
	r := startRingside(t, "epoll", fmt.Sprintf("pools: {main: {distribution: ketama-points, servers: [%q]}}\n", server.address))
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	follow := func(args ...string) (out *testenv.Output, end func()) {
		out = &testenv.Output{}
		cmd := exec.Command(binary, append([]string{"trace", "--admin", r.admin}, args...)...)
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill() })
		return out, func() {
			cmd.Process.Signal(syscall.SIGINT)
			if err := cmd.Wait(); err != nil {
				t.Errorf("trace %s ends with %v: %s", args, err, out)
			}
		}
	}
	long, endLong := follow("home:*")
	lines, endLines := follow("-1", "home:*")
	sampled, endSampled := follow("-1", "--any", "--sample", "10")
	x := startTerminal(t, 40, 6, nil, binary, "trace", "--admin", r.admin, "-1", "home:*")
	c := newCaller(t, r.address)
	eventually(t, "all follow", func() bool {
		c.gets("get home:ready", "END")
		c.gets("get "+inSample, "END")
		return strings.Contains(long.String(), "home:ready") && strings.Contains(lines.String(), "home:ready") && strings.Contains(sampled.String(), inSample) && strings.Contains(x.screen(), "home:ready M")
	})
	for i := range 8 {
		c.gets(fmt.Sprintf("get home:%d", i), "END")
	}
	c.gets("set home:top 0 9999 5\r\nvalue", "STORED")
	c.gets("get home:top", "VALUE")
	x.shows(t, "home:top W H\n", "home:7 M\n", "events/s, 10 keys")
	if strings.Contains(x.screen(), "home:1 ") {
		t.Errorf("more keys than there is room for:\n%s", x.screen())
	}
	eventually(t, "each tells it", func() bool {
		return strings.Contains(long.String(), "set stored") && strings.Contains(long.String(), "events/s, ") &&
			regexp.MustCompile(`home:top W( H\n|\n.* home:top H\n)`).MatchString(lines.String())
	})
	for _, end := range []func(){endLong, endLines, endSampled} {
		end()
	}
	x.cmd.Process.Signal(syscall.SIGINT)
	x.ends(t)
	if !strings.HasSuffix(long.String(), " 10 keys, 0 dropped\n") {
		t.Errorf("the last line is not the sum:\n%s", long)
	}
	if n := strings.Count(sampled.String(), " home:"); n > 8 {
		t.Errorf("of 10 keys %d are one in ten:\n%s", n, sampled)
	}
	for _, args := range [][]string{{}, {"--any", "home:*"}, {"--any", "--sample", "0"}, {"--any", "--sample", "1000001"}, {"--sample", "5", "home:*"}, {"-1", "--json", "home:*"}} {
		out, err := exec.Command(binary, append([]string{"trace", "--admin", r.admin}, args...)...).CombinedOutput()
		if code := new(exec.ExitError); !errors.As(err, &code) || code.ExitCode() != 64 {
			t.Errorf("trace %s ends with %v: %s", args, err, out)
		}
	}
}

// inSample is a key in the sample of one in ten keys.
var inSample = func() string {
	for i := 0; ; i++ {
		if key := fmt.Sprint("some:", i); watch.Sample(10).Fits([]byte(key)) {
			return key
		}
	}
}()

// TestTraceFiles uses reloads to start a trace to a file, to change the file, to name a
// file that can't be written, and to end the trace.
func TestTraceFiles(t *testing.T) {
	t.Parallel()
	server := startMemcached(t)
	dir := t.TempDir()
	pools := fmt.Sprintf("pools: {main: {distribution: ketama-points, failover: {mode: fail_fast}, servers: [%q]}}\n", server.address)
	r := startRingside(t, "epoll", pools)
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(r.file)
	if err != nil {
		t.Fatal(err)
	}
	reload := func(traces string) (said string, status int) {
		t.Helper()
		if err := os.WriteFile(r.file, []byte(string(config)+traces), 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(binary, "reload", "--admin", r.admin)
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	to := func(name string) string {
		return fmt.Sprintf("traces: [{keys: \"home:*\", file: %q}]\n", filepath.Join(dir, name))
	}
	c := newCaller(t, r.address)
	told := func(name, key string) {
		t.Helper()
		eventually(t, key+" is in "+name, func() bool {
			c.gets("get "+key, "END") // repeated, because a loop starts to trace a moment after the reload
			text, _ := os.ReadFile(filepath.Join(dir, name))
			return strings.Contains(string(text), " "+key+" M")
		})
	}
	if said, status := reload(to("one")); status != 0 || !strings.Contains(said, "+trace") {
		t.Fatal(status, said)
	}
	told("one", "home:1")
	if said, status := reload(to("none/at/all")); status != 78 || !strings.Contains(said, "cannot write the trace of home:*: ") || !strings.Contains(said, "see that its directory is there") {
		t.Errorf("a file that can't be: %d %s", status, said)
	}
	told("one", "home:2")
	if said, status := reload(to("two")); status != 0 {
		t.Fatal(status, said)
	}
	told("two", "home:3")
	if said, status := reload(""); status != 0 {
		t.Fatal(status, said)
	}
	eventually(t, "nobody looks any more", func() bool {
		before, _ := os.ReadFile(filepath.Join(dir, "two"))
		for range 5 {
			c.gets("get home:4", "END")
			time.Sleep(100 * time.Millisecond)
		}
		after, _ := os.ReadFile(filepath.Join(dir, "two"))
		return len(before) == len(after)
	})
	if text, _ := os.ReadFile(filepath.Join(dir, "one")); strings.Contains(string(text), "home:3") {
		t.Errorf("the old file is written, too:\n%s", text)
	}
}

// TestTraceBounds opens one more follower than allowed and sends invalid patterns. It
// then traces more events than fit in the buffers, while only one follower reads.
func TestTraceBounds(t *testing.T) {
	t.Parallel()
	server := startMemcached(t)
	r := startRingside(t, "epoll", "pools: {main: {distribution: ketama-points, failover: {mode: fail_fast}, servers: [\""+server.address+"\"]}}\n")
	for query, want := range map[string]string{"pattern=*": "fits every key", "pattern=[a": "without its ]", "": "say 1 to 8", "pattern=a&for=2h": "from 1s to 1h", "pattern=a&x=1": "unknown parameter"} {
		if status, text := r.page(t, "/api/trace?"+query); status != 400 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", query, status, text)
		}
	}
	var followers []*bufio.Reader
	for range 4 {
		w, err := http.Get("http://" + r.admin + "/api/trace?pattern=many:*")
		if err != nil || w.StatusCode != 200 {
			t.Fatal(err, w)
		}
		defer w.Body.Close()
		followers = append(followers, bufio.NewReader(w.Body)) // only the first is read
	}
	if status, text := r.page(t, "/api/trace?pattern=a"); status != 503 || !strings.Contains(text, "already follow") {
		t.Errorf("a fifth follower: %d %s", status, text)
	}
	c := newCaller(t, r.address)
	const keys = 10_000
	var ask strings.Builder
	for n := range keys {
		fmt.Fprintf(&ask, "set many:%d 0 0 1\r\n1\r\n", n)
	}
	go c.c.Write([]byte(ask.String()))
	c.c.SetDeadline(time.Now().Add(patience))
	for range keys {
		if line, err := c.r.ReadString('\n'); line != "STORED\r\n" {
			t.Fatal(line, err)
		}
	}
	told := 0
	for told < keys {
		line, err := followers[0].ReadString('\n')
		if err != nil {
			t.Fatalf("%v: %d of %d are told or said to be dropped", err, told, keys)
		}
		var is struct {
			Rows    []struct{ N int }
			Dropped int
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			if err := json.Unmarshal([]byte(data), &is); err != nil {
				t.Fatal(err)
			}
			told += is.Dropped
			for _, row := range is.Rows {
				told += row.N
			}
			if len(is.Rows) > 2000 {
				t.Errorf("%d rows at once", len(is.Rows))
			}
		}
	}
	if told != keys {
		t.Errorf("%d events are told or said to be dropped, of %d", told, keys)
	}
}
