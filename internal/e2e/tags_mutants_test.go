package e2e

// What the rules of stamping are for: without one, an old value is read as fresh.

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// stamping is where values get the versions of their tags.
const stamping = "proxy/guard/tagged.go"

// lateRebuilds lets clients set what they have read from the database before an
// invalidation, and returns which of the values are read.
func lateRebuilds(t *testing.T, binary string) (read string) {
	t.Helper()
	address := freeAddress(t, ownHost())
	config := fmt.Sprintf("listen: %s\n%s", address, tagRoute(startMemcacheds(t, 1), `tags: {patterns: [{match: "p{n}", tags: ["t{n}"]}]}`))
	if _, err := runRingside(t, "auto", []string{address}, config, binary); err != nil {
		t.Fatal(err)
	}
	c, other := dial(t, address), dial(t, address)
	other.ask("delete tag:t1", "DELETED") // makes the buckets, before which nobody knows what was invalidated
	other.ask("delete tag:u1", "DELETED")
	c.misses("in-time")
	c.store("in-time;tags=u1", "fresh")
	for _, late := range []struct{ key, named, tag string }{{"p1", "", "t1"}, {"n1", ";tags=u1", "u1"}} {
		c.misses(late.key)
		other.ask("delete tag:"+late.tag, "DELETED")
		c.store(late.key+late.named, "old")
	}
	c.misses("in-time") // u1 was invalidated since
	c.misses("now")
	c.store("now;tags=u1", "fresh")
	for _, key := range []string{"p1", "n1", "now"} {
		if got, _ := c.get(key); got[key] != "" {
			read += " " + key
		}
	}
	return strings.TrimSpace(read)
}

// TestTagsMutants leaves out what keeps a late rebuild from being read as fresh.
func TestTagsMutants(t *testing.T) {
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	if read := lateRebuilds(t, binary); read != "now" {
		t.Errorf("%q are read, and p1 and n1 are from before an invalidation", read)
	}
	known := [2]string{"cas, ok := g.bound.Known.Of(tag); ok && cas != 0", "cas, ok := g.bound.Known.Of(tag); ok && cas == 0"}
	order := [2]string{"late = late || made && cas >= c0", "late = late || made && cas == 0"}
	for _, m := range []struct {
		name, read string
		changes    [][2]string
	}{
		{"the set stamps with what it reads", "p1 n1 now", [][2]string{known, order}},
		{"the order of tag and miss is not looked at", "n1 now", [][2]string{order}},
	} {
		t.Run(m.name, func(t *testing.T) {
			if read := lateRebuilds(t, mutant(t, stamping, m.changes)); read != m.read {
				t.Errorf("%q are read, want %q: nothing shows what the rule is for", read, m.read)
			}
		})
	}
}

// mutant builds ringside with changes to one of its files.
func mutant(t *testing.T, file string, changes [][2]string) (binary string) {
	t.Helper()
	original, err := filepath.Abs("../../" + file)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(original)
	if err != nil {
		t.Fatal(err)
	}
	text, dir := string(b), t.TempDir()
	for _, c := range changes {
		if strings.Count(text, c[0]) != 1 {
			t.Fatalf("%s has not %q once", file, c[0])
		}
		text = strings.Replace(text, c[0], c[1], 1)
	}
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{original: changed}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{changed: []byte(text), overlay: list} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	binary, err = compileWith(filepath.Join(dir, "ringside"), false, "-overlay", overlay)
	if err != nil {
		t.Fatal(err)
	}
	return binary
}
