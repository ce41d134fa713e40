package inspect

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"ringside/internal/cli"
	"ringside/internal/discover"
)

// runWith runs a command of this package, with the files of sources in by.
func runWith(t *testing.T, files map[string]string, args ...string) (code int, out, errs string) {
	t.Helper()
	before := asker
	defer func() { asker = before }()
	asker = &discover.Asker{ReadFile: func(path string) ([]byte, error) {
		text, ok := files[path]
		if !ok {
			return nil, errors.New("no such file")
		}
		return []byte(text), nil
	}}
	root := &cobra.Command{Use: "ringside"}
	root.AddCommand(Commands()...)
	var o, e bytes.Buffer
	code = cli.Run(root, args, nil, &o, &e)
	return code, o.String(), e.String()
}

// wantsAll checks that text contains the parts, in this order.
func wantsAll(t *testing.T, text string, parts ...string) {
	t.Helper()
	rest := text
	for _, part := range parts {
		_, after, ok := strings.Cut(rest, part)
		if !ok {
			t.Errorf("it lacks %q:\n%s", part, text)
			return
		}
		rest = after
	}
}

const discovering = `listen: 127.0.0.1:11211
pools:
  main: {distribution: ketama-points, max_move: 10%, servers: [10.0.0.9, file+/a]}
routes: [{pool: main, replicas: 2}]
`

func TestCheckResolves(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.yaml")
	if err := os.WriteFile(path, []byte(discovering), 0o600); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"/a": "10.0.0.10\n10.0.0.2 name=b weight=2\n"}
	code, out, errs := runWith(t, files, "check", path)
	if code != 0 || errs != "" {
		t.Error(code, errs)
	}
	wantsAll(t, out, "pool main: ketama-points, 0 servers", "  source: file+/a\n", "the servers of a source are not known here; --resolve asks the sources", "the servers of its pool are not known here")
	code, out, errs = runWith(t, files, "check", path, "--resolve")
	if code != 0 || errs != "" {
		t.Error(code, errs)
	}
	wantsAll(t, out, "pool main: ketama-points, 3 servers", "  source: file+/a\n", "10.0.0.9:11211", "10.0.0.10:11211", "b ", "2 ", "replicas 2")
	code, out, _ = runWith(t, files, "check", path, "--resolve", "--json")
	if code != 0 {
		t.Error(code)
	}
	wantsAll(t, out, `"sources":["file+/a"]`, `"address":"10.0.0.10:11211"`)
	code, _, errs = runWith(t, nil, "check", path, "--resolve")
	if code != 0 || !strings.Contains(errs, "pools.main: the source file+/a gives no servers: no such file") {
		t.Error(code, errs)
	}
	code, _, errs = runWith(t, map[string]string{"/a": "10.0.0.9"}, "check", path, "--resolve")
	if code != 78 || !strings.Contains(errs, `pools.main has the server "10.0.0.9:11211" twice`) {
		t.Error(code, errs)
	}
}

func TestDiscoverCommand(t *testing.T) {
	files := map[string]string{"/a": "10.0.0.10\n10.0.0.2:7 name=b weight=2\n10.0.0.3\n"}
	code, out, errs := runWith(t, files, "discover", "file+/a")
	if want := "file+/a: 3 servers\n  10.0.0.3:11211\n  10.0.0.10:11211\n  b  10.0.0.2:7  weight 2\n"; code != 0 || out != want {
		t.Errorf("%d %s%s, want %s", code, out, errs, want)
	}
	_, out, _ = runWith(t, files, "discover", "file+/a", "--json")
	wantsAll(t, out, `"source":"file+/a"`, `{"name":"10.0.0.3:11211","address":"10.0.0.3:11211","weight":1}`, `{"name":"b","address":"10.0.0.2:7","weight":2}`)
	for source, want := range map[string]string{"file+/nosuch": "file+/nosuch: no such file", "file+/empty": "file+/empty: it has no servers"} {
		if code, _, errs = runWith(t, map[string]string{"/empty": "# nothing"}, "discover", source); code != 1 || !strings.Contains(errs, want) {
			t.Errorf("%d %s, want %s", code, errs, want)
		}
	}
	if code, _, errs = runWith(t, files, "discover", "dns+x"); code != 64 || !strings.Contains(errs, "the port is missing; write dns+HOST:PORT") {
		t.Error(code, errs)
	}
	if code, _, errs = runWith(t, files, "discover", "dnsrv+mc"); code != 64 || !strings.Contains(errs, `has the scheme "dnsrv" (did you mean "dnssrv"?)`) {
		t.Error(code, errs)
	}
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"file":"x.yaml","text":%q,"sources":[{"pool":"main","source":"file+/a","max_change":50,"servers":[
			{"name":"b","address":"10.0.0.1:7","weight":2},{"name":"10.0.0.3:11211","address":"10.0.0.3:11211","weight":1},{"name":"10.0.0.4:11211","address":"10.0.0.4:11211","weight":1}]},
			{"pool":"other","source":"file+/b","max_change":50,"servers":[],"problem":"pools.main and pools.other share the server b"}]}`, discovering)
	}))
	defer admin.Close()
	at := strings.TrimPrefix(admin.URL, "http://")
	_, out, errs = runWith(t, files, "discover", "file+/a", "--admin", at)
	wantsAll(t, out+errs, "pool main\n  +server 10.0.0.10:11211\n  -server 10.0.0.4:11211, after keep\n  server b from 10.0.0.1:7 to 10.0.0.2:7\n")
	_, out, errs = runWith(t, map[string]string{"/a": "10.0.0.8"}, "discover", "file+/a", "--admin", at)
	wantsAll(t, out+errs, "+server 10.0.0.8:11211", "this is held: it would add 1 and remove 3 of 3 servers; max_change allows 1.")
	_, out, errs = runWith(t, map[string]string{"/a": "10.0.0.1:7 name=b weight=2\n10.0.0.3\n10.0.0.4"}, "discover", "file+/a", "--admin", at)
	wantsAll(t, out+errs, "pool main\n  no change\n")
	const rejected = "pools.main and pools.other share the server b"
	_, out, errs = runWith(t, map[string]string{"/b": "10.0.0.1:7 name=b"}, "discover", "file+/b", "--admin", at)
	wantsAll(t, out+errs, "pool other\n  +server b\n  the instance does not use the last answer that it has got: "+rejected+"\n")
	_, out, errs = runWith(t, map[string]string{"/b": "10.0.0.1:7 name=b"}, "discover", "file+/b", "--admin", at, "--json")
	wantsAll(t, out+errs, `"problem":"`+rejected+`"`)
	if code, _, errs = runWith(t, files, "discover", "file+/c", "--admin", at); code == 0 {
		t.Error(errs)
	}

	// plan uses the servers that the instance has, and asks new sources.
	path := filepath.Join(t.TempDir(), "new.yaml")
	if err := os.WriteFile(path, []byte(strings.Replace(discovering, "file+/a]", "file+/a, file+/new]", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs = runWith(t, map[string]string{"/new": "10.0.0.77"}, "plan", path, "--admin", at)
	wantsAll(t, out, "pool main: +source file+/new", "pool main: +server 10.0.0.77:11211", "pool main: 1", "of the keys move")
	if code != 1 || !strings.Contains(errs, "its max_move is 10%") {
		t.Error(code, out, errs)
	}
}
