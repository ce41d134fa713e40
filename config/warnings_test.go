package config

// Tests of warnings about settings that are valid but probably not intended.

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestWarnings(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"nothing", "listen: localhost:1\nadmin: 127.0.0.1:2\npools: {main: {distribution: ketama, servers: [a]}}", nil},
		{"admin for all", "listen: localhost:1\nadmin: 0.0.0.0:2\npools: {main: {distribution: ketama, servers: [a]}}", []string{
			"f:2:8: admin listens on every address: any host that reaches it can read metrics; name one address, or use a firewall"}},
		{"clients for all", "listen: 0.0.0.0:1\npools: {main: {distribution: ketama, servers: [a]}}", []string{
			"f:1:9: listen: every address of this machine, without authentication: any host that reaches it can read, change and delete all values; name one address, set auth_file, or use a firewall"}},
		{"paths in another spelling", "listen: \"unix:/run/./a\"\nadmin: unix:/run/b\npools: {main: {distribution: ketama, servers: [\"unix:/run//c\"]}}", []string{
			"f:1:9: listen: the path is read as unix:/run/a",
			"f:3:48: pools.main.servers[0]: the path is read as unix:/run/c"}},
		{"clients of all, with a password", "listen: {address: \":1\", auth_file: /users, allow_plaintext: true}\npools: {main: {distribution: ketama, servers: [a]}}", nil},
		{"patterns that are none", `listen: localhost:1
pools: {main: {distribution: ketama, servers: [a]}}
routes: [{prefix: "user:*", pool: main}, {match: "^home:", pool: main}, {match: "page:[0-9]+:*", pool: main}, {match: "a.*", pool: main}, {match: "(x|y)$", pool: main}, {match: "v[1]:(a)*", pool: main}, {pool: main}]`, []string{
			"f:3:19: a * in prefix is an ordinary character: for any bytes, write match: \"user:*\"", noExpression(50), noExpression(81), noExpression(119), noExpression(147)}},
		{"admin for all, open", "listen: localhost:1\nadmin: {address: \":2\", control: on}\npools: {main: {distribution: ketama, servers: [a]}}", []string{
			"f:2:18: admin listens on every address, so every host that reaches it can control this instance, take profiles or see keys"}},
		{"servers that are probably the instance itself", `listen: [{address: ":1", auth_file: /users, allow_plaintext: true}, {address: "0.0.0.0:2", auth_file: /users, allow_plaintext: true}, localhost:3]
admin: ":9"
pools: {main: {distribution: ketama, servers: ["Here:1", "there:1", "here:3", "10.9.9.9:2", "10.9.9.8:2", "[fd00::9]:2", "[fd00::9]:1", "here:9"]}}`, []string{
			"f:2:8: admin listens on every address: any host that reaches it can read metrics; name one address, or use a firewall",
			own(48, "Here:1", ":1"), own(79, "10.9.9.9:2", "0.0.0.0:2"), own(122, "[fd00::9]:1", ":1"), own(137, "here:9", ":9")}},
	} {
		f, err := ParseWith("f", []byte(c.text), Variables{OwnHost: func(host string) bool {
			return slices.Contains([]string{"Here", "here", "10.9.9.9", "fd00::9"}, host)
		}})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if !slices.Equal(f.Warnings, c.want) {
			t.Errorf("%s: %q, want %q", c.name, f.Warnings, c.want)
		}
	}
}

// own returns the warning about a server in column c of the third line, at which the instance probably listens.
func own(c int, server, listener string) string {
	return fmt.Sprintf("f:3:%d: pools.main: the server %s is on this machine, and Ringside listens on %s, so the server is probably this instance itself: its keys fail", c, server, listener)
}

// TestOwnHost checks that this machine knows its name and its addresses.
func TestOwnHost(t *testing.T) {
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	own := Environment().OwnHost
	for host, want := range map[string]bool{strings.ToUpper(name): true, "127.0.0.1": true, "::ffff:127.0.0.1": true, "192.0.2.1": false, "other.example": false, "": false} {
		if own(host) != want {
			t.Errorf("%q: %v, want %v", host, !want, want)
		}
	}
}

// noExpression returns the warning about a regular expression in column c of the third line.
func noExpression(c int) string {
	return fmt.Sprintf("f:3:%d: match is not a regular expression: in it, only * has a meaning, which is any bytes; all other characters are ordinary", c)
}

// TestRemedies checks that the error for a common mistake says what to write.
func TestRemedies(t *testing.T) {
	const front = "listen: localhost:1\npools:\n  main:\n    distribution: ketama\n"
	crowd := front + "    servers: [a]\n"
	for i := range 5000 {
		crowd += fmt.Sprintf("    key%d: 1\n", i)
	}
	for _, c := range []struct {
		name, text string
		want       []string
		lines      int
	}{
		{"several servers in one text", front + "    servers: \"a:1, b:2 c\"\n", []string{"write a list, such as [a:1, b:2, c]"}, 1},
		{"the same in a list", front + "    servers: [\"a:1 b:2\"]\n", []string{"write a list, such as [a:1, b:2]"}, 1},
		{"a non-breaking space", "listen:\u00a0localhost:1\npools:\n  main: {distribution: ketama, servers: [a]}\n", []string{"column 8 has a non-breaking space: replace it with a space"}, 0},
		{"no space after a dash", front + "    servers:\n      -a:1\n", []string{"a dash needs a space after it: write - a:1"}, 0},
		{"keys of twemproxy", front + "    auto_eject_hosts: true\n    timeout: 400\n    server_failure_limit: 3\n    servers: [a]\n",
			[]string{"failover: {mode: rehash}", "timeouts: {connect: 400ms", "after_failures: N"}, 3},
		{"random", strings.Replace(front, "ketama", "random", 1) + "    servers: [a]\n", []string{"write ketama-points"}, 1},
		{"many unknown keys", crowd, []string{"unknown key \"key9\"", "f:16:5: and 4990 more unknown keys"}, 11},
	} {
		_, err := Parse("f", []byte(c.text))
		if err == nil {
			t.Errorf("%s: no error", c.name)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: no %q in\n%.600s", c.name, want, err)
			}
		}
		if n := strings.Count(err.Error(), "\n") + 1; c.lines > 0 && n != c.lines {
			t.Errorf("%s: %d lines", c.name, n)
		}
	}
}
