package e2e

// This file tests tags: clients that know only get, set and delete invalidate values in
// groups.

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// tagRoute returns front's configuration with one route, which has these settings.
func tagRoute(servers []*memcached, settings string) string {
	return front(servers) + "routes:\n  - {pool: main, " + settings + "}\n"
}

// TestTagsArticle runs the example of the articles in docs/recipes.md: a value is stored
// with several tags and becomes invalid when one of them is invalidated.
func TestTagsArticle(t *testing.T) {
	t.Parallel()
	servers := startMemcacheds(t, 2)
	config := tagRoute(servers, `tags: {patterns: [{match: "blog:{id}:*", tags: ["blog:{id}"]}]}`)
	a, b := startRingside(t, "auto", config), startRingside(t, "auto", config)
	ca, cb := dial(t, a.address), dial(t, b.address)
	for _, tag := range []string{"blog:7", "user:25"} {
		for rebuilds := 0; ; rebuilds++ {
			if got, _ := ca.get("blog:7:page"); got["blog:7:page"] != "" {
				break
			}
			if rebuilds == 2 { // the first rebuild creates the buckets of the tags; earlier invalidations are unknown
				t.Fatalf("it is missing after %d rebuilds", rebuilds)
			}
			if answer := ca.set("blog:7:page;tags=user:25,top", "made of both"); answer != "STORED" && answer != "NOT_STORED" {
				t.Fatalf("the rebuild got %s", answer)
			}
		}
		ca.holds("blog:7:page", "made of both")
		cb.holds("blog:7:page", "made of both")
		cb.ask("delete tag:"+tag, "DELETED")
		ca.misses("blog:7:page")
	}
	ca.misses("blog:7:page")
	ca.store("blog:7:page", "made anew")
	cb.holds("blog:7:page", "made anew")
	cb.ask("delete tag:user:25", "DELETED") // the new value does not have this tag
	ca.holds("blog:7:page", "made anew")
	cb.ask("delete tag:other", "DELETED")
	ca.holds("blog:7:page", "made anew")
}

// TestTagsByPeople invalidates tags with the command and checks the metrics.
func TestTagsByPeople(t *testing.T) {
	t.Parallel()
	servers := startMemcacheds(t, 2)
	r := startRingside(t, "auto", tagRoute(servers, "tags: true"))
	c := dial(t, r.address)
	c.store("k;tags=a", "v")
	c.holds("k", "v")
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	invalidate := func(names ...string) (string, error) {
		out, err := exec.Command(binary, append([]string{"tag", "invalidate", "--admin", r.admin}, names...)...).CombinedOutput()
		return string(out), err
	}
	if out, err := invalidate("b", "a"); err != nil || strings.Count(out, "yes") != 2 {
		t.Errorf("%v: %s", err, out)
	}
	c.misses("k")
	if out, err := invalidate("a b"); err == nil || !strings.Contains(out, "comma, blank") {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := invalidate("a", "--pool", "other"); err == nil || !strings.Contains(out, "other") {
		t.Errorf("%v: %s", err, out)
	}
	for metric, want := range map[string]int{"hits_total": 1, "invalid_total": 1, "second_round_total": 1, "broken_total": 0, "learned_keys": 1, "invalidation_errors_total": 0} {
		if got := r.count(t, "ringside_tags_"+metric); got != want {
			t.Errorf("%s is %d, want %d", metric, got, want)
		}
	}
	servers[1].Kill()
	eventually(t, "an invalidation says which server has it not", func() bool {
		out, err := invalidate("a")
		return err != nil && strings.Contains(out, "no ") && strings.Contains(out, servers[1].address)
	})
	servers[1].restart(t)
	eventually(t, "repeated when the server is back it succeeds", func() bool {
		_, err := invalidate("a")
		return err == nil
	})
	c.ask("delete tag:a", "DELETED")
	r.logged(t, `msg="tag invalidated" tag=a servers=2`)
}

// TestTagsNamed tests the ways to add tags to a value. The key alone can do it, by a
// pattern or by the prefix of its route. A client can append tags to the key of a set.
func TestTagsNamed(t *testing.T) {
	t.Parallel()
	r := startRingside(t, "auto", front(startMemcacheds(t, 2))+`routes:
  - {prefix: "post:", pool: main, tags: {prefix_tag: true, patterns: [{match: "post:{id}:*", tags: ["post:{id}"]}]}}
  - {match: "*:alloptions", pool: main, tags: {suffix: off, patterns: [{match: "{blog}:*", tags: ["blog:{blog}"]}]}}
  - {prefix: "bare:", pool: main, tags: {suffix: off, prefix_tag: true}}
  - {pool: main, tags: {suffix: "#"}}
`)
	c := dial(t, r.address)
	all := []string{"post:1:a", "post:1:b", "post:2:a", "3:options:alloptions", "4:options:alloptions", "bare:x;tags=9", "any"}
	for _, x := range []struct {
		tag   string
		falls []string
	}{
		{"post:1", all[:2]},
		{"post:", all[:3]},
		{"user:7", []string{"post:2:a", "any"}},
		{"blog:3", all[3:4]},
		{"bare:", all[5:6]},
		{"nobody", nil},
	} {
		for _, store := range []func(key, value string){func(key, value string) { c.set(key, value) }, c.store} { // the first set with a tag creates its bucket
			store("post:1:a", "v")
			store("post:1:b", "v")
			store("post:2:a;tags=user:7,user:8", "v")
			store("3:options:alloptions", "v")
			store("4:options:alloptions", "v")
			store("bare:x;tags=9", "v")
			store("any#user:7", "v")
		}
		for _, key := range all {
			c.holds(key, "v")
		}
		c.ask("delete tag:"+x.tag, "DELETED")
		for _, key := range all {
			if slices.Contains(x.falls, key) {
				c.misses(key)
			} else {
				c.holds(key, "v")
			}
		}
	}
	c.ask("set any#a,,b 0 0 1\r\nx", "CLIENT_ERROR a tag has no name")
}

// TestTagsCommands checks that all commands see a value with tags as if it had none.
func TestTagsCommands(t *testing.T) {
	t.Parallel()
	r := startRingside(t, "auto", tagRoute(startMemcacheds(t, 2), "tags: true"))
	c := dial(t, r.address)
	c.ask("set n;tags=a 7 0 2\r\n10", "STORED")
	c.ask("get n", "VALUE n 7 2")
	c.expect("10\r\nEND\r\n")
	c.ask("incr n 5", "15")
	c.ask("decr n 20", "0")
	c.ask("append n 0 0 1\r\n1", "STORED")
	c.ask("prepend n 0 0 1\r\n2", "STORED")
	c.holds("n", "201")
	c.ask("mg n f v s k", "VA 3 f7 s3 kn")
	c.expect("201\r\n")
	c.ask("mg n s f", "HD s3 f7")
	c.ask("ma n v", "VA 3")
	c.expect("202\r\n")
	c.ask("touch n 100", "TOUCHED")
	c.ask("gat 100 n", "VALUE n 7 3")
	c.expect("202\r\nEND\r\n")
	c.ask("add n;tags=b 0 0 1\r\nx", "NOT_STORED")
	c.ask("replace n;tags=b 0 0 1\r\nx", "STORED")
	c.ask("incr n 1", "CLIENT_ERROR cannot increment or decrement non-numeric value")
	token := strings.Fields(c.question("gets n"))[4]
	c.expect("x\r\nEND\r\n")
	c.ask("cas n;tags=b 3 0 1 "+token+"\r\ny", "STORED")
	c.ask("cas n;tags=b 3 0 1 "+token+"\r\nz", "EXISTS")
	c.ask("ms n;tags=c 2 F9\r\nok", "HD")
	c.ask("mg n f v", "VA 2 f9")
	c.expect("ok\r\n")
	c.ask("ms bjt0YWdzPWE= 2 b F1\r\nb6", "HD") // n;tags=a
	c.ask("mg bg== b f v k", "VA 2 f1 kbg== b")
	c.expect("b6\r\n")
	c.ask("set e;tags=a 0 0 0\r\n", "STORED")
	c.ask("get e", "VALUE e 0 0")
	c.expect("\r\nEND\r\n")
	c.send("get n e;tags=a missing\r\n")
	if got, _ := c.values(); len(got) != 2 || got["n"] != "b6" {
		t.Errorf("a multi-get finds %q", got)
	}
	big := strings.Repeat("v", 300_000)
	c.store("big;tags=a", big)
	c.holds("big", big)
	c.ask("delete tag:a", "DELETED")
	for _, key := range []string{"n", "e", "big"} {
		for _, command := range []string{"incr %s 1", "touch %s 1"} {
			c.ask(fmt.Sprintf(command, key), "NOT_FOUND")
		}
		c.ask("append "+key+" 0 0 1\r\n1", "NOT_STORED")
		c.ask("replace "+key+" 0 0 1\r\n1", "NOT_STORED")
		c.misses(key)
		c.ask("add "+key+" 0 0 1\r\n1", "STORED")
		c.holds(key, "1")
	}
	c.ask("mg n N30 v", "CLIENT_ERROR flags N, R and I control the guard, which is not possible on a route with tags: leave them out")
}

// django is an application that uses tags only in its deletes.
const django = `
import sys
from django.conf import settings
settings.configure(CACHES={"default": {"BACKEND": "django.core.cache.backends.memcached.PyMemcacheCache", "LOCATION": sys.argv[1]}})
from django.core.cache import cache
def check(what, got, want):
    if got != want:
        sys.exit("%s: got %r, want %r" % (what, got, want))
made = 0
def make():
    global made
    made += 1
    return {"made": made}
for i in (1, 2):
    check("get_or_set", cache.get_or_set("post:42", make), {"made": made})
    check("get_or_set again", cache.get_or_set("post:42", make), {"made": made})
    check("made", made, i)
    check("set", cache.set("post:42:comments", ["a", "b"], 60), None)
    check("add", cache.add("post:43", "other"), i == 1)
    check("set_many", cache.set_many({"post:44": 1, "page": "x"}), [])
    check("incr", cache.incr("post:44"), 2)
    check("touch", cache.touch("post:44", 100), True)
    check("get_many", cache.get_many(["post:42:comments", "post:43", "post:44", "page", "none"]),
        {"post:42:comments": ["a", "b"], "post:43": "other", "post:44": 2, "page": "x"})
    check("invalidate", cache.delete("tag:post:42"), True)
    check("get", cache.get("post:42"), None)
    check("get_many", cache.get_many(["post:42:comments", "post:43", "page"]), {"post:43": "other", "page": "x"})
cache.delete("tag:posts")
check("get_many", cache.get_many(["post:42", "post:43", "post:44", "page"]), {"page": "x"})
print("fine")
`

// TestTagsDjango runs an application with tags that are derived from its keys. It
// invalidates tags, and is otherwise unchanged.
func TestTagsDjango(t *testing.T) {
	t.Parallel()
	r := startRingside(t, "auto", `tags: {command: ":1:tag:"}
`+tagRoute(startMemcacheds(t, 3), `tags: {patterns: [{match: ":1:post:{id}", tags: ["post:{id}", posts]}, {match: ":1:post:{id}:*", tags: ["post:{id}", posts]}]}`))
	out, err := exec.Command(need(t, "/usr/bin/python3"), "-c", django, r.address).CombinedOutput()
	if err != nil || string(out) != "fine\n" {
		t.Errorf("%v: %s", err, out)
	}
}
