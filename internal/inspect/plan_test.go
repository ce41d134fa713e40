package inspect

// Tests of the command plan.

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"ringside/internal/cli"
	"ringside/proxy/admin"
)

const planFile = `listen: 127.0.0.1:0
pools:
  main: {distribution: ketama-points, servers: [a1, a2, a3]}
  sess: {distribution: ketama-points, servers: [b1, b2, b3]}
  old: {distribution: jump, servers: [c1]}
routes:
  - {prefix: "s:", pool: sess, preset: sessions}
  - {prefix: "o:", pool: old}
  - {pool: main}
`

// runPlan writes the two files and some keys, and runs plan on them.
func runPlan(t *testing.T, from, to, keys string, args ...string) (out, errs string, code int) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"from.yaml": from, "to.yaml": to} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var stdout, stderr bytes.Buffer
	root := &cobra.Command{Use: "ringside"}
	root.AddCommand(Commands()...)
	args = append([]string{"plan", filepath.Join(dir, "to.yaml"), "--from", filepath.Join(dir, "from.yaml")}, args...)
	code = cli.Run(root, args, strings.NewReader(keys), &stdout, &stderr)
	return stdout.String(), stderr.String(), code
}

func TestPlan(t *testing.T) {
	next := strings.NewReplacer("a3]", "a3, a4]", "sess", "logins", "b3]", "b3, b4]", "preset: logins", "preset: sessions", "  old: {distribution: jump, servers: [c1]}\n", "  new: {distribution: jump, servers: [d1, d2]}\n", "pool: old", "pool: new").Replace(planFile)
	next = strings.Replace(next, "preset: loginsions", "preset: sessions", 1)
	out, errs, code := runPlan(t, planFile, next, "")
	for _, want := range []string{
		"+pool logins", "pool main: +server a4",
		"pool main: 2", "a1:11211  a4:11211  ", "a4:11211  0.0%      0.0%   2",
		"Moved keys with one copy move with their values",
		"pool logins, which was sess: 2",
		"Replicated keys move with their values when all instances have loaded the file.",
		"pool new is new", "d1:11211  -         -      ",
		"pool old is removed",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in:\n%s%s", want, out, errs)
		}
	}
	if code != 0 {
		t.Errorf("exit status %d: %s", code, errs)
	}
}

// TestPlanRoutes checks that a plan says that a route changes the replicas in a pool, and otherwise does not.
func TestPlanRoutes(t *testing.T) {
	const remark = "Routes keep other replicas here than before."
	for route, want := range map[string]int{
		"{prefix: \"s:\", pool: sess, preset: sessions}": 0,
		"{prefix: \"s:\", pool: sess}":                   1,
		"{prefix: \"s:\", pool: main, preset: sessions}": 2,
		"{prefix: \"t:\", pool: sess, preset: sessions}": 1,
	} {
		next := strings.Replace(planFile, "{prefix: \"s:\", pool: sess, preset: sessions}", route, 1)
		if out, errs, _ := runPlan(t, planFile, next, ""); strings.Count(out, remark) != want {
			t.Errorf("route %s: want %d times %q in:\n%s%s", route, want, remark, out, errs)
		}
	}
}

// TestPlanFills checks that a pool that fills from another one gets a warning: its new servers do not know which keys
// were written or deleted.
func TestPlanFills(t *testing.T) {
	const file = "pools:\n  main: {distribution: ketama, servers: [a1, a2], fill_from: far}\n  far: {distribution: ketama, servers: [b1]}\nroutes: [{pool: main}]\nlisten: 127.0.0.1:0\n"
	out, errs, code := runPlan(t, file, strings.Replace(file, "a2]", "a2, a3]", 1), "")
	if code != 0 || !strings.Contains(out, "are read from pool far again, with old values") || strings.Contains(out, "miss until they are set again") {
		t.Errorf("exit status %d: %s%s", code, out, errs)
	}
}

func TestPlanLimit(t *testing.T) {
	next := strings.Replace(planFile, "a3]", "a3, a4]", 1)
	for _, c := range []struct {
		limit string
		code  int
		says  string
	}{
		{"50%", 0, ""},
		{"0.5%", 1, "more than --max-move 0.5% move: 2"},
		{"50", 64, "want a share from 0% to 100%"},
		{"NaN%", 64, "want a share from 0% to 100%"},
		{"", 64, "want a share from 0% to 100%"},
		{"1e1%", 64, "want a share from 0% to 100%"},
		{"101%", 64, "want a share from 0% to 100%"},
	} {
		if _, errs, code := runPlan(t, planFile, next, "", "--max-move", c.limit); code != c.code || !strings.Contains(errs, c.says) {
			t.Errorf("--max-move %s: exit status %d, %s", c.limit, code, errs)
		}
	}
	// All keys of the file move, although few keys of the pool do.
	if _, errs, code := runPlan(t, planFile, strings.Replace(planFile, `prefix: "o:", pool: old`, `prefix: "o:", pool: main`, 1), "o:1\no:2\n", "--keys", "-", "--max-move", "50%"); code != 1 || !strings.Contains(errs, "2 of the 2 keys") {
		t.Errorf("exit status %d, %s", code, errs)
	}
	// Keys that no server has do not move.
	if out, errs, code := runPlan(t, planFile, next, "a b\nc\x01d\n", "--keys", "-", "--max-move", "50%"); code != 0 || !strings.Contains(out, "of 2 keys, 0 move\n  2 keys have no server") {
		t.Errorf("keys without a server: exit status %d, %s%s", code, out, errs)
	}
	const says = "cannot read the keys: line 2 has more than 1048575 bytes: write one key on each line"
	if _, errs, code := runPlan(t, planFile, next, "k\n"+strings.Repeat("x", longestLine)+"\n", "--keys", "-"); code != 1 || !strings.Contains(errs, says) {
		t.Errorf("a long line: exit status %d, %s", code, errs)
	}
}

// TestPlanMaxMove checks that max_move in the new file is the limit, unless --max-move is given.
func TestPlanMaxMove(t *testing.T) {
	next := strings.NewReplacer("a3]", "a3, a4], max_move: 0.5%", "b3]", "b3, b4]").Replace(planFile)
	const says = "of its keys move to other servers, and its max_move is 0.5%: a reload rejects the file, unless ringside reload --accept is used"
	if out, errs, code := runPlan(t, planFile, next, ""); code != 1 || !strings.Contains(errs, "pool main: 2") || !strings.Contains(errs, says) || strings.Contains(errs, "sess") || !strings.Contains(out, "a4:11211") {
		t.Errorf("exit status %d, %s%s", code, out, errs)
	}
	if _, errs, code := runPlan(t, planFile, next, "", "--max-move", "60%"); code != 0 {
		t.Errorf("exit status %d, %s", code, errs)
	}
	if out, errs, code := runPlan(t, next, next, ""); code != 0 {
		t.Errorf("nothing moves: exit status %d, %s%s", code, out, errs)
	}
}

// TestPlanOfWaitingChange compares files with an instance whose servers are changing. It serves by another list than that of its file.
func TestPlanOfWaitingChange(t *testing.T) {
	file := func(servers string) string {
		return "listen: 127.0.0.1:0\npools:\n  main: {distribution: ketama-points, max_move: 40%, servers: [" + servers + "]}\nroutes: [{pool: main}]\n"
	}
	plan := func(next, running, servers string, args ...string) (out, errs string, code int) {
		t.Helper()
		list := `{"distribution":"ketama-points","options":{},"servers":[` + servers + `]}`
		instance := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/control/config" {
				json.NewEncoder(w).Encode(admin.ConfigAnswer{File: "x.yaml", Text: running, Lists: []admin.ListInUse{{Pool: "main", Text: list}}})
				return
			}
			http.NotFound(w, r)
		}))
		defer instance.Close()
		path := filepath.Join(t.TempDir(), "new.yaml")
		if err := os.WriteFile(path, []byte(next), 0o600); err != nil {
			t.Fatal(err)
		}
		code, out, errs = runWith(t, nil, append([]string{"plan", path, "--admin", strings.TrimPrefix(instance.URL, "http://")}, args...)...)
		return out, errs, code
	}
	const ab = `{"network":"tcp","address":"a:11211","weight":1},{"network":"tcp","address":"b:11211","weight":1}`
	const abc = ab + `,{"network":"tcp","address":"c:11211","weight":1}`
	two, three, four := file("a, b"), file("a, b, c"), file("a, b, c, d")
	for _, c := range []struct {
		name, next, says, list string
		code                   int
		servers                []string
	}{
		{"the file that is loaded", three, "3", ab, 0, []string{`a:11211  4[0-9.]+%  +1[0-9.]+%  +3`, `c:11211  0\.0%  +0\.0%  +3`}},
		{"the file that is loaded, at the end of the change", three, "0.0% of the keys move", abc, 0, []string{`a:11211  3[0-9.]+%  +0\.0%  +3`}},
		{"taken back", two, "0.0% of the keys move", ab, 0, []string{`a:11211  4[0-9.]+%  +0\.0%  +4`}},
		{"a third list", four, "49.7%", ab, 1, []string{`d:11211  0\.0%  +0\.0%  +2`, `c:11211  0\.0%  +0\.0%  +2`}},
		{"a third list, at the end of the change", four, "2", abc, 0, []string{`d:11211  0\.0%  +0\.0%  +2`, `c:11211  3[0-9.]+%`}},
	} {
		out, errs, code := plan(c.next, three, c.list)
		if code != c.code || !strings.Contains(out, "\npool main: "+c.says) {
			t.Errorf("%s: exit status %d\n%s%s", c.name, code, out, errs)
		}
		for _, s := range c.servers {
			if !regexp.MustCompile("\n  " + s).MatchString(out) {
				t.Errorf("%s: want %q in\n%s", c.name, s, out)
			}
		}
	}
	if out, errs, code := plan(three, three, ab, "--max-move", "1%", "--json"); code != 0 || !strings.Contains(out, `"due":true`) {
		t.Errorf("exit status %d: %s%s", code, out, errs)
	}
}

func TestPlanJSON(t *testing.T) {
	out, errs, code := runPlan(t, planFile, strings.NewReplacer("a3]", "a3, a4]", "[c1]", "[{address: c1, name: first}]").Replace(planFile), "o:1\ns:1\nk1\nk2\nk3\nk4\n"+strings.Repeat("x", 300)+"\n", "--keys", "-", "--json")
	var got struct {
		Pools []struct {
			Pool    string
			Share   float64
			Moves   []struct{ From, To string }
			Servers []struct {
				Server               string
				Before, After, Leave float64
			}
			Modes   []string
			MaxMove float64 `json:"max_move"`
		}
		Gone []string
		Keys struct{ Read, Moved, Nowhere int }
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 || len(got.Pools) != 3 || got.Gone == nil {
		t.Fatalf("%d %v\n%s%s", code, err, out, errs)
	}
	main := got.Pools[0]
	if main.Share < .1 || main.Share > .4 || len(main.Servers) != 4 || main.Servers[2].Before < .1 {
		t.Errorf("%+v", main)
	}
	for _, m := range main.Moves {
		if m.To != "a4:11211" {
			t.Errorf("keys move from %s to %s", m.From, m.To)
		}
	}
	if leave := main.Servers[0].Leave + main.Servers[1].Leave + main.Servers[2].Leave; main.Servers[3].Leave != 0 || leave < main.Share-1e-9 || leave > main.Share+1e-9 || main.MaxMove != 1 {
		t.Errorf("of the share %v, %v leaves the old servers: %+v", main.Share, leave, main)
	}
	if one, several := main.Modes, got.Pools[1].Modes; strings.Join(one, " ") != "moved" || strings.Join(several, " ") != "copied" {
		t.Errorf("modes %q and %q", one, several)
	}
	// A server that has another name is the same server.
	if old := got.Pools[2]; old.Share != 0 || len(old.Servers) != 1 || old.Servers[0].Server != "first" || old.Servers[0].Before != 1 {
		t.Errorf("%+v", old)
	}
	if got.Pools[1].Share != 0 || len(got.Pools[1].Moves) != 0 || got.Keys.Read != 7 || got.Keys.Nowhere != 1 {
		t.Errorf("%+v", got)
	}
}

// TestVariables checks that check and plan take variables from --env, and hide secrets.
func TestVariables(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"secret": "srv-hunter22\n", "env": "HOST=10.0.0.1\n", "wrong": "HOST\n",
		"a.yaml": "listen: :0\npools: {main: {distribution: jump, servers: [\"${HOST}\", {address: b, name: \"${file:" + dir + "/secret}\"}]}}\n",
		"b.yaml": "listen: :0\npools: {main: {distribution: jump, servers: [\"${HOST}\", c]}}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a, b, env := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml"), filepath.Join(dir, "env")
	hidden := "${file:" + dir + "/secret}"
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"check", a, "--env", env}, 0, "\n  " + hidden + "  "},
		{[]string{"check", a, "--env", env, "--json"}, 0, `"name":"` + hidden + `"`},
		{[]string{"check", a}, 78, a + ":2:46: the environment variable HOST is not set"},
		{[]string{"check", a, "--allow-unset"}, 0, "unset-HOST:11211"},
		{[]string{"check", a, "--env", filepath.Join(dir, "wrong")}, 78, "wrong:1:1: a line is NAME=value"},
		{[]string{"check", a, "--env", filepath.Join(dir, "none")}, 78, "no such file"},
		{[]string{"plan", a, "--from", b, "--env", env}, 0, "+server " + hidden + " (b:11211)"},
		{[]string{"plan", a, "--from", b, "--env", env, "--json"}, 0, "+server " + hidden},
		{[]string{"route", "key", "-c", a, "--env", env}, 0, "main"},
	} {
		var out bytes.Buffer
		root := &cobra.Command{Use: "ringside"}
		root.AddCommand(Commands()...)
		if code := cli.Run(root, c.args, strings.NewReader(""), &out, &out); code != c.code || !strings.Contains(out.String(), c.want) {
			t.Errorf("%v: exit status %d, want %d and %q:\n%s", c.args, code, c.code, c.want, out.String())
		}
		if strings.Contains(out.String(), "hunter22") && c.args[0] != "route" {
			t.Errorf("%v shows a secret:\n%s", c.args, out.String())
		}
	}
}
