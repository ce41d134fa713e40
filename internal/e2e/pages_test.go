package e2e

// This file runs the commands in the pages of docs/ word for word. It does so in a
// network namespace, where the ports of the pages are free.

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// passage is a code block of a page.
type passage struct {
	heading  string // heading above the block
	language string // empty: an indented block, which is the output of a command
	text     string
}

// passages returns the code blocks of a page in docs/.
func passages(t *testing.T, page string) (all []passage) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	heading, inside, indented := "", false, false
	for line := range strings.Lines(string(data)) {
		language, fence := strings.CutPrefix(line, "```")
		printed, indent := strings.CutPrefix(line, "    ")
		switch last := len(all) - 1; {
		case fence && inside:
			inside = false
		case fence:
			inside = true
			all = append(all, passage{heading: heading, language: strings.TrimSpace(language)})
		case inside:
			all[last].text += line
		case indent && indented:
			all[last].text += printed
		case indent:
			all = append(all, passage{heading: heading, text: printed})
		case strings.HasPrefix(line, "#"):
			heading = strings.TrimSpace(strings.TrimLeft(line, "#"))
		}
		indented = indent && !inside
	}
	return all
}

// fits reports whether printed matches the text of a page, in which … stands for any text
// within a line.
func fits(page, printed string) bool {
	pattern := strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(page)), "…", ".*")
	return regexp.MustCompile(`^` + pattern + `$`).MatchString(strings.TrimSpace(printed))
}

// interpreters are the commands that run a program file, by language.
var interpreters = map[string]struct {
	file string
	run  []string
}{
	"go":         {"main.go", []string{"go", "run"}},
	"java":       {"Hello.java", []string{"java", "-XX:TieredStopAtLevel=1", "-cp", "/usr/share/java/spymemcached.jar"}},
	"javascript": {"hello.js", []string{"env", "NODE_PATH=testdata/clients/node/node_modules", "node"}},
	"perl":       {"hello.pl", []string{"perl"}},
	"php":        {"hello.php", []string{"php"}},
	"python":     {"hello.py", []string{"/usr/bin/python3"}},
	"ruby":       {"hello.rb", []string{"ruby"}},
}

// TestPagesClients checks that each program of docs/clients.md reads what it has written.
// Once the servers are down, it must print the text that the page shows below it.
func TestPagesClients(t *testing.T) {
	t.Parallel()
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	n, _ := startFirstNamespace(t)
	inside := func(args ...string) []string { return append(append([]string{}, n.enter...), args...) }
	ports := []string{"11311", "11312", "11313"}
	var servers []*process
	for _, port := range ports {
		m := start(t, n.enter[0], inside("memcached", "-u", "root", "-U", "0", "-l", "127.0.0.1", "-p", port)[1:]...)
		servers = append(servers, m)
	}
	r := &ringside{address: "127.0.0.1:11211", admin: "127.0.0.1:9151", file: filepath.Join(t.TempDir(), "ringside.yaml"), driver: drivers()[0]}
	own := filepath.Join(shortDir(t), "ringside")
	r.write(t, "listen: [127.0.0.1:11211, \"unix:"+own+"\"]\npools:\n  main:\n    distribution: ketama\n    servers: [127.0.0.1:11311, 127.0.0.1:11312, 127.0.0.1:11313]\n")
	if err := r.serve(t, []string{own}, inside(binary)...); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the servers are up", func() bool {
		out, err := exec.Command(n.enter[0], inside(binary, "server", "list", "--json")[1:]...).Output()
		return err == nil && strings.Count(string(out), `"state":"up"`) == len(servers)
	})

	all := passages(t, "clients.md")
	programs := map[string]string{} // file of the program, by heading
	for _, p := range all {
		if i, ok := interpreters[p.language]; ok {
			file := filepath.Join(t.TempDir(), i.file)
			if err := os.WriteFile(file, []byte(p.text), 0o644); err != nil {
				t.Fatal(err)
			}
			programs[p.heading] = file
		} else if p.language != "" {
			t.Errorf("%s: no interpreter for %s", p.heading, p.language)
		}
	}
	round := func(name string, of func(p passage) (language, want string)) {
		t.Run(name, func(t *testing.T) {
			for _, p := range all {
				language, want := of(p)
				if language == "" {
					continue
				}
				t.Run(p.heading, func(t *testing.T) { // sequential: they share a key, and some write values that others can't read
					ctx, cancel := context.WithTimeout(context.Background(), 5*patience) // the program may compile, on a busy machine
					defer cancel()
					args := inside(append(append([]string{}, interpreters[language].run...), programs[p.heading])...)
					cmd := exec.CommandContext(ctx, need(t, args[0]), args[1:]...)
					var complaints strings.Builder
					cmd.Stderr = &complaints
					if out, err := cmd.Output(); err != nil || !fits(want, string(out)) {
						t.Errorf("printed:\n%s\nwant:\n%s\n%v\n%s", out, want, err, complaints.String())
					}
				})
			}
		})
	}
	round("served", func(p passage) (string, string) { return p.language, "hello" })
	for _, m := range servers {
		m.Kill()
	}
	for _, port := range ports {
		r.logged(t, `msg="server down" server=127.0.0.1:`+port+` .*why="connection refused"`)
	}
	said := map[string]passage{}
	for _, p := range all {
		if p.language == "" {
			said[p.heading] = p
		}
	}
	round("refused", func(p passage) (string, string) { return p.language, said[p.heading].text })
}

// TestPagesDistributions checks that the distributions named in backquotes in table
// columns of the pages exist.
func TestPagesDistributions(t *testing.T) {
	t.Parallel()
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	d := json.NewDecoder(strings.NewReader(tool(t, binary, "distributions", "--json")))
	for d.More() {
		var rule struct {
			Name    string   `json:"name"`
			Aliases []string `json:"aliases"`
		}
		if err := d.Decode(&rule); err != nil {
			t.Fatal(err)
		}
		known[rule.Name] = true
		for _, alias := range rule.Aliases {
			known[alias] = true
		}
	}
	for _, page := range []string{"docs/clients.md", "docs/from-mcrouter.md", "README.md"} {
		data, err := os.ReadFile(filepath.Join("..", "..", page))
		if err != nil {
			t.Fatal(err)
		}
		named, last := 0, -1 // index of the distribution column; -1: not in a table
		for line := range strings.Lines(string(data)) {
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
			if !strings.HasPrefix(line, "|") {
				last = -1
				continue
			}
			if last < 0 {
				last = len(cells) - 1
				if strings.TrimSpace(cells[last]) != "distribution" {
					last = len(cells) // a table without that column
				}
				continue
			}
			if last >= len(cells) {
				continue
			}
			for _, word := range regexp.MustCompile("`([a-z0-9-]+)`").FindAllStringSubmatch(cells[last], -1) {
				if named++; !known[word[1]] {
					t.Errorf("%s: %q is no distribution", page, word[1])
				}
			}
		}
		if named == 0 {
			t.Errorf("%s names no distribution", page)
		}
	}
}

// followed executes a page. It runs all blocks of sh in one bash, and creates files from
// the blocks of yaml, whose first line is the name. In sections with commands, the output
// must contain the indented blocks. changes are pairs of a text of the page and its
// replacement.
func followed(t *testing.T, page, before string, changes ...string) {
	t.Helper()
	t.Parallel()
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	n, _ := startFirstNamespace(t)
	dir := t.TempDir()
	if err := os.Symlink(binary, filepath.Join(dir, "ringside")); err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	script.WriteString("set -eu -o pipefail\n")
	if os.Getuid() != 0 { // in a user namespace, root is the only user
		script.WriteString(`memcached() { exec memcached "${@/nobody/root}"; }` + "\n")
	}
	script.WriteString(before)
	var printed []string
	typed := ""
	change := strings.NewReplacer(changes...)
	for _, p := range passages(t, page) {
		p.text = change.Replace(p.text)
		switch p.language {
		case "yaml":
			name := strings.TrimPrefix(strings.SplitN(p.text, "\n", 2)[0], "# ")
			script.WriteString("cat > " + name + " <<'END OF FILE'\n" + p.text + "END OF FILE\n")
		case "sh":
			script.WriteString(p.text)
			typed = p.heading
		case "":
			if p.heading == typed {
				printed = append(printed, p.text)
			}
		}
	}
	// The shell is the first process of a PID namespace, so processes that the page
	// starts end with it.
	shell := []string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-xc", script.String()}
	ctx, cancel := context.WithTimeout(context.Background(), 5*patience) // the page may compile programs, on a busy machine
	defer cancel()
	cmd := exec.CommandContext(ctx, need(t, n.enter[0]), append(n.enter[1:], shell...)...)
	cmd.Dir = dir
	cmd.WaitDelay = time.Second
	var said, complaints strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &complaints
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, said.String(), complaints.String())
	}
	rest := strings.ReplaceAll(said.String(), "\r", "")
	for _, want := range printed {
		_, after, ok := strings.Cut(rest, want)
		if !ok {
			t.Fatalf("did not print\n%s\nbut\n%s\n%s", want, rest, complaints.String())
		}
		rest = after
	}
}

func TestPagesQuickstart(t *testing.T) { followed(t, "quickstart.md", "") }

func TestPagesUpgrade(t *testing.T) { followed(t, "upgrade.md", "") }

func TestPagesMcrouter(t *testing.T) { followed(t, "from-mcrouter.md", "") }

// TestPagesTwemproxy starts the servers first, because the page expects them to run. It
// uses a longer timeout for nutcracker and Ringside than the page, because a server may
// get no CPU for two seconds.
func TestPagesTwemproxy(t *testing.T) {
	followed(t, "from-twemproxy.md", `for port in 11311 11312 11313; do
	memcached -u nobody -l 127.0.0.1 -p $port &
	until (: > /dev/tcp/127.0.0.1/$port) 2> /dev/null; do sleep 0.05; done
done
disown -a
`, "timeout: 2000", "timeout: 60000")
}
