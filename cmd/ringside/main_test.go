package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"ringside/internal/command"
)

const goodFile = `listen: 127.0.0.1:0
pools:
  main:
    distribution: ketama
    servers:
      - 127.0.0.1:31001
      - {address: "127.0.0.1:31002", name: b, weight: 2}
`

// TestCommands runs command lines and checks their output, and their exit status.
func TestCommands(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("good.yaml", goodFile)
	bad := write("bad.yaml", strings.Replace(strings.Replace(goodFile, "ketama", "ketma", 1), "weight: 2", "wait: 2", 1))
	nut := write("nutcracker.yml", "alpha:\n  listen: 127.0.0.1:22121\n  hash: md5\n  distribution: ketama\n  servers:\n   - 127.0.0.1:31001:1 one\n   - 127.0.0.1:31002:2 two\n")
	for _, c := range []struct {
		args   string
		in     string
		code   int
		out    []string // substrings of standard output
		errors []string // substrings of standard error
	}{
		{"", "", 0, []string{"ringside demo", "Available Commands"}, nil},
		{"--help", "", 0, []string{"Available Commands"}, nil},
		{"serve --help", "", 0, []string{"Examples:", "SIGHUP"}, nil},
		{"distributions", "", 0, []string{"ketama-points", "dalli", "Cache::Memcached"}, nil},
		{"version", "", 0, []string{"ringside ", "go1."}, nil},
		{"version --json", "", 0, []string{`"go":"go1.`}, nil},
		{"distributions --json", "", 0, []string{`{"name":"ketama-points",`}, nil},
		{"check --json -c " + bad, "", 78, nil, []string{`"file":"` + bad + `","line":4,"column":19}`, `{"error":"unknown key \"wait\"`, `"line":7,"column":47}`}},
		{"check --json -c " + dir + "/none.yaml", "", 78, nil, []string{`{"error":"cannot read the configuration: open `}},
		{"check --json --nope", "", 64, nil, []string{`{"error":"unknown flag: --nope"}`}},
		{"serv --json", "", 64, nil, []string{`{"error":"`}},
		{"completion bash", "", 0, []string{"bash completion"}, nil},
		{"serv", "", 64, nil, []string{`unknown command "serv"; did you mean "serve"?`}},
		{"help nosuch", "", 64, nil, []string{`unknown command "nosuch"`}},
		{"help serve", "", 0, []string{"Examples:", "SIGHUP"}, nil},
		{"completion ksh", "", 64, nil, []string{`unknown command "ksh"`, "Try 'ringside completion --help'."}},
		{"chek", "", 64, nil, []string{`unknown command "chek"; did you mean "check"?`}},
		{"server drian x", "", 64, nil, []string{`unknown command "drian"; did you mean "drain"?`}},
		{"check --nope", "", 64, nil, []string{"unknown flag: --nope"}},
		{"reload extra", "", 64, nil, []string{"a configuration file goes behind -c: ringside reload -c extra"}},
		{"serve -c " + dir + "/none.yaml", "", 78, nil, []string{"cannot read the configuration: open ", "no such file"}},
		{"reload -c " + dir + "/none.yaml", "", 78, nil, []string{"cannot read the configuration: open "}},
		{"serve -c " + dir + "/none.yaml", "", 78, nil, []string{"no such file or directory: name your file with -c FILE, or write a first one"}},
		{"plan " + dir + "/none.yaml", "", 78, nil, []string{"no such file or directory: check its name\n"}},
		{"plan " + good + " --from " + dir, "", 78, nil, []string{"is a directory: name another\n"}},
		{"check -c " + dir, "", 78, nil, []string{"is a directory: name another with -c FILE\n"}},
		{"health --admin 127.0.0.1:1", "", 1, nil, []string{"no answer from the admin interface at 127.0.0.1:1"}},
		{"check " + good, "", 0, []string{"is correct", "pool main: ketama, 2 servers"}, nil},
		{"check -c - ", goodFile, 0, []string{"- is correct", "pool main: ketama, 2 servers"}, nil},
		{"check -", "listen: 1\n", 78, nil, []string{"standard input:1:9: "}},
		{"check a b", "", 64, nil, []string{`"b" is one word too many`}},
		{"check a -c b", "", 64, nil, []string{"two configuration files: b and a"}},
		{"check -c " + dir + "/none.yaml", "", 78, nil, []string{"no such file"}},
		{"check -c " + good, "", 0, []string{"is correct", "pool main: ketama, 2 servers", "127.0.0.1:31001", "SHARE"}, nil},
		{"check --json -c " + good, "", 0, []string{`"pool":"main"`, `"name":"b"`}, nil},
		{"check -c " + bad, "", 78, nil, []string{"bad.yaml:4:19: ", `did you mean "ketama"?`, "bad.yaml:7:47: ", `unknown key "wait"`, "known here: address, name, weight"}},
		{"serve -c " + bad, "", 78, nil, []string{"bad.yaml:4:19: "}},
		{"route -c " + good, "", 64, nil, []string{"which keys?"}},
		{"route -c " + good + " user:17", "", 0, []string{"pool        main", "hash        05e8e214", "hits        point ", "owner       "}, nil},
		{"route -c " + good + " --listener nowhere k", "", 64, nil, []string{`no listener "nowhere"`}},
		{"route --json -c " + good + " -", "a\nb c\r\n\n", 1, []string{`{"key":"a",`, `{"key":"b c","error":"only meta commands can send this key, in base64`}, []string{"keys that go nowhere: 1"}},
		{"route -c " + good + " " + strings.Repeat("k", 251), "", 1, []string{"it has 251 bytes, at most 250 are allowed"}, []string{"keys that go nowhere: 1"}},
		{"route -c " + good + " - k", "", 64, nil, []string{"use it alone"}},
		{"--version", "", 0, []string{"ringside version"}, nil},
		{"import " + nut, "", 0, []string{"distribution: twemproxy", "hash: md5", "name: two", "weight: 2"}, nil},
		{"import -", "alpha:\n  listen: nonsense\n", 78, nil, []string{"standard input:"}},
		{"import --json " + nut, "", 0, []string{`{"configuration":"`, `distribution: twemproxy`}, nil},
		{"import --json -", "alpha:\n  listen: nonsense\n", 78, nil, []string{`"file":"standard input","line":2,`}},
		{"check --json -", goodFile + "admin: :9151\n", 0, []string{`"pool":"main"`}, []string{`{"warning":"standard input:8:8: admin listens on every address`}},
		{"demo --json --listen nonsense", "", 64, nil, []string{`{"error":"`, "nonsense"}},
		{"demo --listen nonsense", "", 64, nil, []string{"nonsense"}},
		{"serve --take-over=maybe", "", 64, nil, []string{"ringside: --take-over=maybe: want true or false\n"}},
		{"clients --limit x", "", 64, nil, []string{"ringside: --limit=x: want a whole number\n"}},
		{"top --once --for x", "", 64, nil, []string{"ringside: --for=x: want a time, such as 500ms or 3s\n"}},
		{"server explode a --admin 127.0.0.1:1", "", 64, nil, []string{`unknown command "explode"`}},
		{"bogus --admin 127.0.0.1:1", "", 64, nil, []string{`unknown command "bogus"`}},
		{"health --admin 127.0.0.1:99999", "", 64, nil, []string{"--admin 127.0.0.1:99999: want host:port or unix:/path, with a port from 1 to 65535"}},
		{"health --admin :0", "", 64, nil, []string{"--admin :0: want host:port"}},
		{"health --admin unix:", "", 64, nil, []string{"--admin unix:: want host:port or unix:/path"}},
		{"health --admin http://127.0.0.1:1", "", 64, nil, []string{"--admin http://127.0.0.1:1: want host:port"}},
		{"distributions x", "", 64, nil, []string{`ringside: "x" is one word too many: ringside distributions` + "\n"}},
		{"drill x", "", 64, nil, []string{`"x" is one word too many: ringside drill` + "\n"}},
		{"server list x", "", 64, nil, []string{`"x" is one word too many: ringside server list` + "\n"}},
		{"server drain", "", 64, nil, []string{"ringside: something is missing: ringside server drain NAME\n"}},
		{"server drain a b", "", 64, nil, []string{`"b" is one word too many: ringside server drain NAME` + "\n"}},
		{"tag invalidate", "", 64, nil, []string{"something is missing: ringside tag invalidate NAME…\n"}},
		{"import", "", 64, nil, []string{"something is missing: ringside import nutcracker.yml\n"}},
		{"import a b", "", 64, nil, []string{`"b" is one word too many: ringside import nutcracker.yml` + "\n"}},
		{"import " + dir + "/none.yml", "", 78, nil, []string{"cannot read the configuration: open ", "none.yml: no such file or directory: name a twemproxy file"}},
		{"import " + good, "", 78, nil, []string{"good.yaml:1:1: this is a file of Ringside already"}},
		{"serve -c " + dir, "", 78, nil, []string{"ringside: cannot read the configuration: read " + dir + ": is a directory: name another"}},
		{"trace", "", 64, nil, []string{"which keys? give 1 to 8 patterns, or --any"}},
		{"trace k[z-a]", "", 64, nil, []string{`pattern "k[z-a]": z-a has nothing in it: a range begins with its least byte`}},
		{"drill --fault melt", "", 64, nil, []string{"--fault melt: unknown kind of fault \"melt\": it is one of refuse, hang, delay, drop, reset, partition, or all"}},
		{"demo --herd --tags", "", 64, nil, []string{"ringside: --herd or --tags, one at a time\n"}},
	} {
		t.Run(c.args, func(t *testing.T) {
			var out, errs bytes.Buffer
			if code := run(strings.Fields(c.args), strings.NewReader(c.in), &out, &errs); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			for _, want := range c.out {
				if !strings.Contains(out.String(), want) {
					t.Errorf("standard output lacks %q:\n%s", want, out.String())
				}
			}
			for _, want := range c.errors {
				if !strings.Contains(errs.String(), want) {
					t.Errorf("standard error lacks %q:\n%s", want, errs.String())
				}
			}
			if c.code == 0 && errs.Len() > 0 && c.errors == nil && !strings.HasPrefix(c.args, "import") {
				t.Errorf("standard error has %q", errs.String())
			}
		})
	}
}

// TestEmptyWords checks that empty arguments are not ignored.
func TestEmptyWords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.yaml")
	os.WriteFile(path, []byte(goodFile), 0o644)
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"route", "-c", path, ""}, 1, "no server will see this key: it is empty"},
		{[]string{"server", "drain", ""}, 64, "which server?"},
		{[]string{"serve", "-c", ""}, 78, "name your file with -c FILE"},
	} {
		if code, out, errs := typed(c.args...); code != c.code || !strings.Contains(out+errs, c.says) {
			t.Errorf("%q: %d %q %q", c.args, code, out, errs)
		}
	}
}

// TestEveryCommandHasJSON checks that every command with output can print JSON.
func TestEveryCommandHasJSON(t *testing.T) {
	without := map[string]bool{"serve": true} // it prints only its log, in the format of the configuration
	var look func(c *cobra.Command)
	look = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			look(sub)
		}
		if has := c.Flags().Lookup("json") != nil; !c.HasSubCommands() && has == without[c.Name()] {
			t.Errorf("%s has --json: %v", c.CommandPath(), has)
		}
	}
	look(command.Root(version))
}

// TestRouteJSON checks that `route --json` prints one JSON object per line.
func TestRouteJSON(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.yaml")
	os.WriteFile(path, []byte(goodFile), 0o644)
	var out, errs bytes.Buffer
	if code := run([]string{"route", "--json", "-c", path, "user:17", "user:18"}, nil, &out, &errs); code != 0 {
		t.Fatal(errs.String())
	}
	n := 0
	for line := range strings.Lines(out.String()) {
		var got struct {
			Key, Pool, Owner, Address, Hits, Point string
			Index, Of                              int
		}
		if err := json.Unmarshal([]byte(line), &got); err != nil || got.Pool != "main" || got.Owner == "" || got.Address == "" || got.Hits != "point" || len(got.Point) != 8 || got.Index == 0 || got.Of != 316 {
			t.Errorf("%s: %+v, %v", line, got, err)
		}
		n++
	}
	if n != 2 {
		t.Errorf("%d lines, want 2", n)
	}
}
