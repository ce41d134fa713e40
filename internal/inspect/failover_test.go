package inspect

// Tests of what check and route print about failover and replicas.

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"ringside/internal/cli"
)

const failoverFile = `listen: 127.0.0.1:0
zone: z9
pools:
  three: {distribution: jump, servers: [a1, a2, a3]}
  two: {distribution: ketama, servers: [{address: b1, zone: z1}, b2]}
  rebuilt: {distribution: ketama, servers: [c1, c2, c3, c4, c5], failover: {mode: rehash, consistency: strict}}
  spared: {distribution: ketama, servers: [d1, d2], failover: {mode: gutter, gutter: spare}}
  spare: {distribution: ketama, servers: [e1, e2]}
  extra: {distribution: ketama, servers: [f1, f2]}
routes:
  - {prefix: "sess:", pool: three, preset: sessions}
  - {prefix: "pair:", pool: two, preset: sessions, repair: off, read: nearest}
  - {prefix: "all:", pool: three, replicas: all, read: fastest}
  - {prefix: "both:", pools: [two, extra], prefer: extra}
  - {prefix: "rebuilt:", pool: rebuilt}
  - {prefix: "spared:", pool: spared}
  - {pool: three}
`

func runFile(t *testing.T, file string, args ...string) (string, int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f.yaml")
	if err := os.WriteFile(path, []byte(file), 0o644); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	root := &cobra.Command{Use: "ringside"}
	root.AddCommand(Commands()...)
	code := cli.Run(root, append(args, "-c", path), strings.NewReader(""), &out, &errs)
	if code == 2 {
		t.Fatal(errs.String())
	}
	return out.String(), code
}

func TestCheckSaysFailoverAndCopies(t *testing.T) {
	out, _ := runFile(t, failoverFile, "check")
	for _, want := range []string{
		"pool three: jump, 3 servers\n  failover: rehash (the default of jump from three servers on)\n  a server that returns is flushed before it serves again\n  consistency: strict (by preset sessions, with 3 view servers)\n",
		"pool two: ketama, 2 servers\n  failover: fail_fast (the default of ketama, which is that of an existing client), but servers are ejected because keys are replicated\n  a server that returns is flushed before it serves again\n  consistency: relaxed (preset sessions is strict from three view servers on; here: 2)\n",
		"pool rebuilt: ketama, 5 servers\n  failover: rehash (as the file says)\n  a server that returns is flushed before it serves again\n  consistency: strict (as the file says)\n",
		"pool spared: ketama, 2 servers\n  failover: gutter spare (as the file says)\n  a server that returns is flushed before it serves again\n  consistency: relaxed (the default)\n",
		"pool extra: ketama, 2 servers\n  failover: fail_fast (the default of ketama, which is that of an existing client), but",
		`"sess:": pool three, 2 replicas on different hosts, read first, ack all` + "\n",
		`"pair:": pool two, 2 replicas on different hosts, read nearest (which is first here: no server is in zone z9), ack all, no repair`,
		`"all:": pool three, a replica on every server, read fastest, ack all` + "\n",
		`"both:": a replica in each of the pools two, extra (extra read first), read first, ack all` + "\n",
		"all other keys: pool three\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("check lacks %q:\n%s", want, out)
		}
	}
	out, _ = runFile(t, failoverFile, "check", "--json")
	type pool struct {
		Pool       string
		Failover   struct{ Mode, Why, Consistency, Lease, Gutter string }
		Replicated []struct {
			Prefix   string
			Pools    []string
			Replicas int
		}
	}
	got := map[string]pool{}
	for line := range strings.Lines(out) {
		var p pool
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			t.Fatal(err)
		}
		got[p.Pool] = p
	}
	three, two, spared := got["three"], got["two"], got["spared"]
	if three.Failover.Mode != "rehash" || three.Failover.Consistency != "strict" || three.Failover.Lease != "1s" || len(three.Replicated) != 2 || three.Replicated[1].Replicas != -1 {
		t.Errorf("three: %+v", three)
	}
	if two.Failover.Mode != "fail_fast" || two.Failover.Consistency != "relaxed" || len(two.Replicated) != 2 || len(two.Replicated[1].Pools) != 2 {
		t.Errorf("two: %+v", two)
	}
	if spared.Failover.Gutter != "spare" || len(spared.Replicated) != 0 {
		t.Errorf("spared: %+v", spared)
	}
}

func TestRouteSaysCopiesAndStandIns(t *testing.T) {
	for _, c := range []struct {
		key             string
		copies, interim int
		pools           string // pools of these servers
	}{
		{"sess:1", 2, 0, "three"},
		{"all:1", 3, 0, "three"},
		{"both:1", 2, 0, "two extra"},
		{"rebuilt:1", 0, 3, "rebuilt"},
		{"spared:1", 0, 2, "spare"},
		{"plain", 0, 2, "three"},
	} {
		out, _ := runFile(t, failoverFile, "route", "--json", c.key)
		type member struct{ Pool, Server, Host string }
		var got struct {
			Owner                 string
			Replicas, Substitutes []member
		}
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Replicas) != c.copies || len(got.Substitutes) != c.interim {
			t.Errorf("%s: %s", c.key, out)
		}
		if c.copies > 0 && got.Replicas[0].Server != got.Owner {
			t.Errorf("%s: not the owner %s decides: %s", c.key, got.Owner, out)
		}
		seen := map[string]bool{}
		text, _ := runFile(t, failoverFile, "route", c.key)
		for _, m := range append(got.Replicas, got.Substitutes...) {
			if seen[m.Server] || !strings.Contains(" "+c.pools+" ", " "+m.Pool+" ") || m.Host == "" {
				t.Errorf("%s: %s stands wrong in %s", c.key, m.Server, out)
			}
			seen[m.Server] = true
			if !strings.Contains(text, m.Server) {
				t.Errorf("%s: %s is missing in\n%s", c.key, m.Server, text)
			}
		}
	}
	text, _ := runFile(t, failoverFile, "route", "spared:1")
	if !strings.Contains(text, "\n  substitute  ") || !strings.Contains(text, " of pool spare\n") {
		t.Error(text)
	}
	text, code := runFile(t, failoverFile, "route", "__rs_view__:three")
	if code != 1 || !strings.Contains(text, "clients can't use keys that begin with __rs") {
		t.Errorf("%d: %s", code, text)
	}
}
