package e2e

// This file tests the page in a browser, with real servers and real traffic.

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ringside/internal/memnode"
	"ringside/internal/testenv"
)

// pageFront configures a pool of named servers that moves keys on failover. Its timeouts
// allow for a busy machine, but a server that refuses connections is ejected soon.
func pageFront(addresses ...string) string {
	var b strings.Builder
	b.WriteString("pools:\n  main:\n    distribution: ketama-points\n    failover: {mode: rehash, eject_after: {refused: 1s, silent: 1m}, ping: 500ms, lease: 10s}\n    servers:\n")
	for i, a := range addresses {
		fmt.Fprintf(&b, "      - {address: %q, name: %s}\n", a, serverName(i))
	}
	return b.String()
}

// ringParts is the share of the ring that the page has drawn in each of three colours. It
// is sampled at the middle of the band.
const ringParts = `(() => {
	const c = document.getElementById("ringcanvas"), g = c.getContext("2d"), r = (Math.min(c.width, c.height) / 2 - 18) - 15, parts = Array(3).fill(0)
	const hues = [0, 1, 2].map(i => getComputedStyle(document.documentElement).getPropertyValue("--s" + i).trim().match(/[0-9a-f]{2}/g).map(x => parseInt(x, 16)))
	for (let k = 0; k < 7200; k++) {
		const a = k / 7200 * 2 * Math.PI, p = g.getImageData(Math.round(c.width / 2 + r * Math.cos(a)), Math.round(c.height / 2 + r * Math.sin(a)), 1, 1).data
		const far = hues.map(h => h.reduce((d, v, i) => d + (v - p[i]) ** 2, 0)), best = far.indexOf(Math.min(...far))
		if (far[best] < 6000) parts[best]++
	}
	const all = parts.reduce((a, b) => a + b); return parts.map(v => v / all)
})()`

func TestPage(t *testing.T) {
	t.Parallel()
	servers := []*memcached{startMemcached(t, "-m", "16"), startMemcached(t, "-m", "16"), startMemcached(t, "-m", "16")}
	var addresses []string
	for _, s := range servers {
		addresses = append(addresses, s.address)
	}
	r := startRingside(t, "epoll", pageFront(addresses...))
	b := startBrowser(t, 1440, 900)
	b.open(t, "http://"+r.admin+"/")
	b.says(t, "#health h1", "3 servers are ready")
	b.shot(t, "empty")

	someLoad(t, r.address, 6)
	b.says(t, "#health h1", "All 3 servers serve")
	b.until(t, `document.querySelectorAll("#slabbig svg g").length > 0`)
	b.until(t, `document.querySelectorAll("#stable .memcell").length === 3`)
	b.shot(t, "desktop-light")
	if low := eval[float64](t, b, "document.querySelector('.deck').getBoundingClientRect().bottom"); low > 900 {
		t.Errorf("ring, servers, traffic and what happened lately end at %v: below the first screen", low)
	}

	// The ring is drawn with the shares of the servers.
	parts, shares := eval[[]float64](t, b, ringParts), shares(t, r)
	for i, share := range shares {
		if math.Abs(parts[i]-share) > .05 {
			t.Errorf("the ring is drawn with %.3v, the shares are %.3v", parts, shares)
		}
	}

	still := func() {
		t.Helper()
		if moved := eval[float64](t, b, "window.RINGSIDE_SHIFT || 0"); moved > .02 {
			t.Errorf("things move by themselves: %v", moved)
		}
	}
	still()

	// The charts show three or fifteen minutes. A click pins a point in time, and the address of the
	// page then shows that point again.
	b.do(t, `document.querySelector("#span [value='15']").click()`)
	b.until(t, `location.search === "?minutes=15"`)
	b.do(t, `document.querySelector("#charts canvas").dispatchEvent(new MouseEvent("click", {clientX: 9999, bubbles: true}))`)
	b.until(t, `/at=\d{4}-/.test(location.search) && !document.getElementById("pinned").hidden`)
	at := eval[string](t, b, "document.getElementById('pinnedat').textContent")
	b.open(t, eval[string](t, b, "location.href"))
	b.says(t, "#pinnedat", at)
	b.until(t, `document.querySelector("#span [value='15']").getAttribute("aria-pressed") === "true"`)
	b.until(t, `[...document.querySelectorAll("#charts h3 span")].every(x => x.textContent !== "")`)
	b.do(t, `document.getElementById("unpin").click(); document.querySelector("#span [value='3']").click()`)
	b.until(t, `location.search === "" && document.getElementById("pinned").hidden`)

	// The page shows the same owner of a key as ringside route, also for malicious keys.
	for _, key := range []string{"user:17", "<img src=x onerror=alert(1)>\u202e", "ключ"} {
		b.do(t, "document.getElementById('key').value = ''")
		b.do(t, "document.getElementById('key').focus()")
		b.keys(t, key+keyEnter)
		var is struct{ Hash, Point, Owner string }
		route := append([]string{"route", "-c", r.file, "--json", "--base64"}, base64Of(key))
		binary, err := build()
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(tool(t, binary, route...)), &is); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{is.Hash, is.Point, is.Owner} {
			b.says(t, "#reason", want)
		}
	}
	b.do(t, "document.getElementById('key').value = ''")
	b.do(t, "document.getElementById('key').focus()")
	b.keys(t, "<b>\u202ex"+keyEnter)
	b.says(t, "#reason", `<b>\xe2\x80\xaex hashes`)
	if n := eval[int](t, b, "document.images.length + document.querySelectorAll('#reason b b').length"); n != 0 {
		t.Error("a key has become a part of the page")
	}
	b.shot(t, "route")
	b.keys(t, keyEscape)

	// An override shows its consequence and asks for confirmation. It works by keyboard
	// alone.
	menu := func(server int) {
		b.do(t, fmt.Sprintf("document.querySelectorAll('#stable .dots')[%d].focus()", server))
		b.keys(t, keyEnter)
		b.until(t, "!document.getElementById('menu').hidden")
	}
	menu(0)
	b.keys(t, keyEscape)
	b.until(t, "document.getElementById('menu').hidden && document.activeElement.className === 'dots'")
	menu(0)
	b.keys(t, keyEnter)
	b.says(t, "#ask p", "of the keys, now")
	b.until(t, "document.activeElement.value === 'no'")
	b.shot(t, "drain-dialog")
	b.keys(t, keyTab+keyEnter)
	b.says(t, "#health h1", "s0 is drained")
	menu(0)
	b.says(t, "#menu", "Restore")
	b.keys(t, keyEnter)
	b.until(t, "document.getElementById('ask').open")
	b.keys(t, keyTab+keyEnter)
	b.until(t, `/s0 is rejoining|All 3 servers serve/.test(document.querySelector("#health h1").textContent)`) // the first text is only shown for a short time
	b.says(t, "#log", "Operator drained s0")

	// A server dies. Layout shifts shortly after a key press or click do not count,
	// because the browser marks them. So the test sends no more input until still is
	// called again.
	b.says(t, "#health h1", "All 3 servers serve")
	b.do(t, "window.RINGSIDE_SHIFT = 0")
	servers[1].Kill()
	b.says(t, "#health h1", "s1 is out")
	b.says(t, "#health p", "of the keys are on s0 and s2")
	b.says(t, "#log", "s1 is out: its keys are on other servers now")
	b.shot(t, "one-server-out")
	b.media(t, "prefers-color-scheme", "dark")
	b.until(t, "document.documentElement.dataset.theme === 'dark'")
	b.shot(t, "dark")
	b.media(t, "prefers-reduced-motion", "reduce")
	b.until(t, "getComputedStyle(document.getElementById('linkdot')).animationName === 'none'")
	still()
	b.size(t, 390, 844)
	b.until(t, "document.documentElement.scrollWidth <= 390")
	b.shot(t, "phone")
	b.do(t, "document.getElementById('memory').scrollIntoView()")
	b.until(t, "document.querySelector('#slabbig svg').viewBox.baseVal.width < 390") // parts out of sight are drawn once they are visible
	b.size(t, 1440, 900)
	b.keys(t, "3")
	b.until(t, "document.activeElement.id === 'traffic'")

	// Ringside hangs, and goes on. The tab is hidden, so the browser draws no frames.
	b.do(t, `window.RINGSIDE_DRAW = window.requestAnimationFrame; window.requestAnimationFrame = f => { window.RINGSIDE_HELD = f; return 1 }
		Object.defineProperty(document, "hidden", {value: true, configurable: true})`)
	title, icon := eval[string](t, b, "document.title"), eval[string](t, b, `document.getElementById("icon").href`)
	r.pause(t)
	b.says(t, "#health h1", "No connection to Ringside")
	b.says(t, "#health p", "It has sent nothing for more than 8")
	b.says(t, "#health p", "old, from ")
	b.says(t, "#linktext", "no connection")
	b.until(t, `document.title === "? No connection to Ringside · Ringside"`)
	b.until(t, fmt.Sprintf(`document.getElementById("icon").href !== %q`, icon))
	b.shot(t, "hangs")
	r.resume(t)
	b.says(t, "#linktext", "live")
	b.until(t, fmt.Sprintf(`document.title === %q && document.getElementById("icon").href === %q`, title, icon))
	b.do(t, `delete document.hidden; window.requestAnimationFrame = window.RINGSIDE_DRAW; requestAnimationFrame(window.RINGSIDE_HELD)`)

	// Ringside itself stops and starts again.
	r.Kill()
	b.says(t, "#health h1", "No connection to Ringside")
	b.shot(t, "disconnected")
	if err := r.serve(t, []string{r.address}, r.Cmd.Path); err != nil {
		t.Fatal(err)
	}
	b.until(t, `!document.querySelector("#health h1").textContent.includes("No connection") && document.body.dataset.link === "live"`)
}

// TestPageLoading checks that the page says what it waits for while it has no data.
func TestPageLoading(t *testing.T) {
	testenv.OnlyFull(t, "TestPage covers the page")
	t.Parallel()
	servers := startMemcacheds(t, 3)
	r := startRingside(t, "epoll", pageFront(servers[0].address, servers[1].address, servers[2].address))
	to := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: r.admin})
	wait := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.HasPrefix(req.URL.Path, "/api/") {
			<-wait
		}
		req.Host = r.admin
		to.ServeHTTP(w, req)
	}))
	t.Cleanup(slow.Close)
	b := startBrowser(t, 1440, 900)
	b.open(t, slow.URL+"/")
	b.says(t, "#linktext", "connecting")
	b.says(t, "#health h1", "Looking")
	b.shot(t, "loading")
	close(wait)
	b.says(t, "#linktext", "live")
	b.until(t, `!document.querySelector("#health h1").textContent.includes("Looking")`)
}

// TestPageDuringReload checks that the page draws without an error while the list of servers and what belongs to
// it are from different configurations: a reload removes or adds servers, and the ring and the place of a key
// arrive late, or early.
func TestPageDuringReload(t *testing.T) {
	t.Parallel()
	servers := startMemcacheds(t, 3)
	file := func(n int) string {
		text := "pools:\n  main:\n    distribution: ketama\n    servers:\n"
		for i, s := range servers[:n] {
			text += fmt.Sprintf("      - {address: %q, name: %s}\n", s.address, serverName(i))
		}
		return text
	}
	r := startRingside(t, "epoll", file(3))
	b := startBrowser(t, 1440, 900)
	b.open(t, "http://"+r.admin+"/")
	b.until(t, `/point/.test(document.getElementById("ringwhat").textContent)`)
	b.do(t, `const real = window.fetch; window.RINGSIDE_HELD = []
		window.fetch = (...of) => window.RINGSIDE_HOLD && /api\/(ring|route)/.test(of[0]) ? new Promise(go => window.RINGSIDE_HELD.push(() => real(...of).then(go))) : real(...of)`)
	for _, n := range []int{1, 3, 2} {
		// A key whose place is known has all servers in its order of failover.
		b.do(t, `document.getElementById("key").value = ""; document.getElementById("key").focus()`)
		b.keys(t, "user:17"+keyEnter)
		b.says(t, "#reason", "user:17 hashes to")
		b.do(t, "window.RINGSIDE_HOLD = true")
		r.reload(t, file(n))
		b.until(t, fmt.Sprintf(`document.querySelectorAll("#stable .memcell").length === %d && window.RINGSIDE_HELD.length >= 2`, n))
		b.do(t, `window.RINGSIDE_FRAMES = 0; const count = () => { window.RINGSIDE_FRAMES++; requestAnimationFrame(count) }; count()`)
		b.until(t, "window.RINGSIDE_FRAMES > 3")
		b.do(t, "window.RINGSIDE_HOLD = false; window.RINGSIDE_HELD.splice(0).forEach(go => go())")
		b.until(t, fmt.Sprintf(`document.getElementById("ringcanvas").getAttribute("aria-label").split("; ").length === %d`, n))
	}
}

// someLoad sends sets and gets until the test ends. It ignores errors.
func someLoad(t *testing.T, address string, clients int) {
	stop := make(chan struct{})
	var all sync.WaitGroup
	t.Cleanup(func() { close(stop); all.Wait() })
	client := func(n int) {
		c, err := dialError(address)
		if err != nil {
			time.Sleep(50 * time.Millisecond)
			return
		}
		defer c.Close()
		answers := bufio.NewReader(c)
		for i := n; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			c.SetDeadline(time.Now().Add(patience))
			if i%4 == 0 {
				fmt.Fprintf(c, "set key:%d 0 0 %d\r\n%s\r\n", i%700, i%900, strings.Repeat("x", i%900))
			} else {
				fmt.Fprintf(c, "get key:%d\r\n", i*7%700)
			}
			for line := ""; line == "" || strings.HasPrefix(line, "VALUE") || strings.HasPrefix(line, "x") || line == "\r\n"; {
				if line, err = answers.ReadString('\n'); err != nil {
					return
				}
			}
		}
	}
	for n := range clients {
		all.Add(1)
		go func() {
			defer all.Done()
			for {
				select {
				case <-stop:
					return
				default:
					client(n * 1000)
				}
			}
		}()
	}
}

// shares returns the servers' shares of all keys, according to ringside check.
func shares(t *testing.T, r *ringside) (list []float64) {
	t.Helper()
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	var is struct{ Servers []struct{ Share float64 } }
	if err := json.Unmarshal([]byte(tool(t, binary, "check", "-c", r.file, "--json")), &is); err != nil {
		t.Fatal(err)
	}
	for _, s := range is.Servers {
		list = append(list, s.Share)
	}
	return list
}

// TestPageOfSeveralPools checks that the page opens on the pool with a problem. If
// another pool is selected, the status line, the tab and the pool menu still name that
// pool. The command line must agree.
func TestPageOfSeveralPools(t *testing.T) {
	t.Parallel()
	servers := []*memcached{startMemcached(t), startMemcached(t), startMemcached(t)}
	r := startRingside(t, "epoll", fmt.Sprintf(`pools:
  main:
    distribution: ketama-points
    servers: [%q]
  sessions:
    distribution: ketama-points
    servers: [{address: %q, name: session-a}, {address: %q, name: session-b}]
routes:
  - {prefix: "s:", pool: sessions}
  - {pool: main}
`, servers[0].address, servers[1].address, servers[2].address))
	b := startBrowser(t, 1280, 800)
	b.open(t, "http://"+r.admin+"/")
	b.says(t, "#health h1", "3 servers of 2 pools are ready")
	b.until(t, `document.getElementById("pool").value === "main" && document.title === "Ringside"`)
	b.says(t, "#ringwhat", "points")
	servers[2].signal(t, syscall.SIGKILL)
	const state = "Pool sessions: session-b refuses connections"
	b.says(t, "#health h1", state)
	b.says(t, "#health p", "Start memcached there")
	b.says(t, "#show", "Show pool sessions")
	b.until(t, `document.title.includes("`+state+`")`)
	b.until(t, `document.getElementById("pool").options[1].textContent.startsWith("✗ ")`)
	b.until(t, `document.getElementById("icon").href.includes("d55e00")`)
	b.shot(t, "several-pools")
	b.do(t, `document.getElementById("show").click()`)
	b.says(t, "#stable", "session-b")
	b.until(t, `document.getElementById("show").hidden`)
	b.open(t, "http://"+r.admin+"/")
	b.says(t, "#stable", "session-b") // the page opens on that pool
	b.says(t, "#ringwhat", "points")
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	for _, pool := range []string{"", "main", "sessions"} {
		out, err := exec.Command(binary, "top", "--once", "--for", "100ms", "--pool", pool, "--admin", r.admin).Output()
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 3 || !strings.HasPrefix(string(out), state) {
			t.Errorf("top --once --pool %q: %v\n%s", pool, err, out)
		}
	}
	if out := tool(t, binary, "server", "list", "--admin", r.admin); !strings.Contains(out, "✗ "+state+". ") {
		t.Errorf("server list says nothing of it:\n%s", out)
	}
}

// TestPageOfManyServers checks the page of 200 servers: a strip shows all of them, rows
// are created only for what is in view, and a filter finds one server.
func TestPageOfManyServers(t *testing.T) {
	testenv.OnlyFull(t, "TestPage covers the page")
	t.Parallel()
	var addresses []string
	for range 200 {
		n, err := memnode.Start(memnode.Options{MemoryLimit: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { n.Close() })
		addresses = append(addresses, n.Addr().String())
	}
	r := startRingside(t, "epoll", pageFront(addresses...))
	someLoad(t, r.address, 4)
	b := startBrowser(t, 1440, 900)
	b.open(t, "http://"+r.admin+"/")
	b.says(t, "#health h1", "All 200 servers serve")
	b.says(t, "#serverswhat", "200 of 200 up")
	b.until(t, "document.querySelectorAll('#sgrid i').length === 200")
	if n := eval[int](t, b, "document.querySelectorAll('#stable .srow').length"); n > 40 {
		t.Errorf("%d rows are made for what one can see", n)
	}
	b.shot(t, "servers-200")
	b.do(t, "document.getElementById('sfilter').focus()")
	b.keys(t, "s137")
	b.until(t, "[...document.querySelectorAll('#stable .sbody .srow')].filter(x => x.style.display !== 'none').length === 1")
	b.says(t, "#stable .sbody", "s137")
}
