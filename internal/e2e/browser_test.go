package e2e

// This file drives a headless Chromium that opens the page of a Ringside instance. It
// uses the WebDriver protocol, which is HTTP and JSON, so it needs no library.

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// browser is one browser tab.
type browser struct {
	session string // URL of the session at chromedriver
	client  http.Client
}

// object is a JSON object.
type object = map[string]any

// startBrowser runs Chromium until the test ends. The test fails if the page threw an
// error, violated its content security policy, or sent a request to a host other than
// 127.0.0.0/8 or localhost.
func startBrowser(t *testing.T, width, height int) *browser {
	t.Helper()
	browsers <- struct{}{}
	t.Cleanup(func() { <-browsers })
	b := &browser{client: http.Client{Timeout: 6 * patience}}
	for b.session == "" { // chromedriver gets a free port for IPv6, and ends if it is not free for IPv4
		driver := start(t, need(t, "chromedriver"), "--port=0")
		port := regexp.MustCompile(`started successfully on port (\d+)|port not available`)
		driver.logged(t, port.String())
		if found := port.FindStringSubmatch(driver.Output())[1]; found != "" {
			b.session = "http://127.0.0.1:" + found
		}
	}
	launcher := filepath.Join(t.TempDir(), "chromium")
	if err := os.WriteFile(launcher, fmt.Appendf(nil, "#!/bin/sh\nexec %s \"$@\" about:blank\n", need(t, chromium)), 0o755); err != nil {
		t.Fatal(err)
	}
	for try := 1; ; try++ { // chromedriver allows Chromium one minute to start
		err := b.begin(t.TempDir(), launcher)
		if err == nil {
			break
		}
		if try == 5 || !strings.Contains(err.Error(), "session not created") {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		b.judge(t)
		b.ask(t, "DELETE", "", nil, nil)
	})
	b.tool(t, "Page.addScriptToEvaluateOnNewDocument", object{"source": `window.RINGSIDE_SHIFT = 0
		new PerformanceObserver(l => { for (const e of l.getEntries()) if (!e.hadRecentInput) window.RINGSIDE_SHIFT += e.value }).observe({type: "layout-shift", buffered: true})`}, nil)
	b.size(t, width, height)
	return b
}

// browsers limits how many browsers run at a time: each is about ten processes.
var browsers = make(chan struct{}, 2)

// chromium is Chromium without its own windows, menus and extensions. It needs a sixth of the CPU
// time of Chromium. It opens a tab only if its last argument is an address, and chromedriver waits for one.
const chromium = "/usr/lib/chromium/chromium-headless-shell"

// begin starts Chromium and opens the session.
func (b *browser) begin(dir, launcher string) error {
	var is struct{ SessionID string }
	err := b.try("POST", "/session", object{"capabilities": object{"alwaysMatch": object{
		"timeouts":          object{"script": (4 * patience).Milliseconds(), "pageLoad": (4 * patience).Milliseconds()},
		"goog:loggingPrefs": object{"browser": "ALL"},
		"goog:chromeOptions": object{"binary": launcher, "args": []string{
			"--no-sandbox", "--disable-gpu", "--user-data-dir=" + dir, "--no-proxy-server", "--no-first-run",
			"--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars",
		}},
	}}}, &is)
	if err == nil {
		b.session += "/session/" + is.SessionID
	}
	return err
}

// judge fails the test if the page sent a request to another host or logged an error
// since it was opened.
func (b *browser) judge(t *testing.T) {
	t.Helper()
	for _, address := range eval[[]string](t, b, `performance.getEntriesByType("resource").map(x => x.name)`) {
		if !strings.HasPrefix(address, "http://127.") && !strings.HasPrefix(address, "http://localhost:") && !strings.HasPrefix(address, "data:") {
			t.Errorf("the page asks %s", address)
		}
	}
	var said []struct{ Level, Source, Message string }
	b.ask(t, "POST", "/se/log", object{"type": "browser"}, &said)
	for _, one := range said {
		if one.Level == "SEVERE" && one.Source != "network" {
			t.Errorf("the browser complains: %s: %s", one.Source, one.Message)
		}
	}
}

// ask sends a request to chromedriver and fails the test on error.
func (b *browser) ask(t *testing.T, method, path string, body, to any) {
	t.Helper()
	if err := b.try(method, path, body, to); err != nil {
		t.Fatal(err)
	}
}

// try sends a request to chromedriver and returns its error, if any.
func (b *browser) try(method, path string, body, to any) error {
	var send io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		send = bytes.NewReader(text)
	}
	r, err := http.NewRequest(method, b.session+path, send)
	if err != nil {
		return err
	}
	w, err := b.client.Do(r)
	if err != nil {
		return fmt.Errorf("the browser: %w", err)
	}
	defer w.Body.Close()
	var answer struct{ Value json.RawMessage }
	if err := json.NewDecoder(w.Body).Decode(&answer); err != nil || w.StatusCode != 200 {
		return fmt.Errorf("the browser answers %s %s: %d %.1000s %v", method, path, w.StatusCode, answer.Value, err)
	}
	if to != nil {
		if err := json.Unmarshal(answer.Value, to); err != nil {
			return fmt.Errorf("the browser answers %s %s: %s: %w", method, path, answer.Value, err)
		}
	}
	return nil
}

// tool sends a DevTools command to Chromium, bypassing WebDriver.
func (b *browser) tool(t *testing.T, command string, of object, to any) {
	t.Helper()
	b.ask(t, "POST", "/goog/cdp/execute", object{"cmd": command, "params": of}, to)
}

func (b *browser) size(t *testing.T, width, height int) {
	t.Helper()
	b.tool(t, "Emulation.setDeviceMetricsOverride", object{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
}

// media overrides a CSS media feature of the page, such as prefers-color-scheme.
func (b *browser) media(t *testing.T, feature, value string) {
	t.Helper()
	b.tool(t, "Emulation.setEmulatedMedia", object{"features": []object{{"name": feature, "value": value}}}, nil)
}

func (b *browser) open(t *testing.T, address string) {
	t.Helper()
	b.ask(t, "POST", "/url", object{"url": address}, nil)
}

// eval returns the value of a JavaScript expression in the page.
func eval[T any](t *testing.T, b *browser, expression string) (v T) {
	t.Helper()
	b.ask(t, "POST", "/execute/sync", object{"script": "return " + expression, "args": []any{}}, &v)
	return v
}

// do runs a JavaScript statement in the page.
func (b *browser) do(t *testing.T, statement string) {
	t.Helper()
	b.ask(t, "POST", "/execute/sync", object{"script": statement, "args": []any{}}, nil)
}

// base64Of encodes a key for commands that accept arbitrary bytes as base64.
func base64Of(key string) string { return base64.StdEncoding.EncodeToString([]byte(key)) }

// until waits until a JavaScript expression in the page is true.
func (b *browser) until(t *testing.T, expression string) {
	t.Helper()
	for end := time.Now().Add(2 * patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if eval[bool](t, b, "!!("+expression+")") {
			return
		}
	}
	b.shot(t, "failed-"+strings.ReplaceAll(t.Name(), "/", "-"))
	t.Fatalf("waited in vain until the page has: %s; it says:\n%s", expression, eval[string](t, b, "document.body.innerText"))
}

// says waits until the element that matches selector contains text.
func (b *browser) says(t *testing.T, selector, text string) {
	t.Helper()
	b.until(t, fmt.Sprintf("document.querySelector(%q).textContent.includes(%q)", selector, text))
}

// keys types into the focused element.
func (b *browser) keys(t *testing.T, keys string) {
	t.Helper()
	var actions []object
	for _, k := range keys {
		actions = append(actions, object{"type": "keyDown", "value": string(k)}, object{"type": "keyUp", "value": string(k)})
	}
	b.ask(t, "POST", "/actions", object{"actions": []object{{"type": "key", "id": "keyboard", "actions": actions}}}, nil)
}

// Codes of keys that produce no character.
const (
	keyEnter  = "\ue007"
	keyEscape = "\ue00c"
	keyTab    = "\ue004"
)

// shot saves a screenshot of the whole page if RINGSIDE_SHOTS names a directory. It is
// meant for people.
func (b *browser) shot(t *testing.T, name string) {
	t.Helper()
	dir := os.Getenv("RINGSIDE_SHOTS")
	if dir == "" {
		return
	}
	var is struct{ Data string }
	b.tool(t, "Page.captureScreenshot", object{"captureBeyondViewport": true}, &is)
	picture, err := base64.StdEncoding.DecodeString(is.Data)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o644); err != nil {
		t.Fatal(err)
	}
}
