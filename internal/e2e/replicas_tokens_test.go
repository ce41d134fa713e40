package e2e

// This file tests cas tokens of keys with replicas at other instances than the one that
// issued them.

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestTokensAreGoodElsewhere gets tokens from one instance and uses them at another one,
// and at the same one after a restart. A cas may be the first command that a restarted
// instance receives for a key, before it knows any server of the key.
func TestTokensAreGoodElsewhere(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		servers := startMemcacheds(t, 3)
		config := copied(servers, "") + fmt.Sprintf("engine: {driver: %s, loops: 2}\n", driver)
		one := startRingside(t, driver, config)
		other := startRingside(t, driver, config)
		keys := names("token", 20)
		give := func(r *ringside, value string) map[string]string {
			tokens := map[string]string{}
			c := dial(t, r.address)
			for _, key := range keys {
				c.store(key, value)
				c.send("gets " + key + "\r\n")
				line := strings.Fields(c.line())
				if len(line) != 5 {
					t.Fatalf("gets %s: %q", key, line)
				}
				tokens[key] = line[4]
				c.expect(value + "\r\nEND\r\n")
			}
			return tokens
		}
		fits := func(r *ringside, what string, tokens map[string]string, value, want string) {
			t.Helper()
			c := dial(t, r.address)
			for _, key := range keys {
				request := fmt.Sprintf("cas %s 0 0 %d %s\r\n%s", key, len(value), tokens[key], value)
				got := c.question(request)
				end := time.Now().Add(patience)
				for want == "EXISTS" && strings.HasPrefix(got, "SERVER_ERROR") && time.Now().Before(end) { // a server has not rejoined yet and may have the only newer value
					got = c.question(request)
				}
				if got == "NOT_FOUND" { // the late delete that follows a failed set removed it: at worst a miss
					c.store(key, "again")
					got = c.question(request)
				}
				if got != want {
					t.Errorf("%s: cas %s: %s, want %s", what, key, got, want)
				}
			}
		}

		tokens := give(one, "a")
		fits(other, "at the other", tokens, "b", "STORED")
		fits(one, "used before", tokens, "c", "EXISTS")
		dial(t, one.address).holds(keys[0], "b")

		tokens = give(other, "d")
		one.Kill()
		binary, err := build()
		if err != nil {
			t.Fatal(err)
		}
		if err := one.serve(t, []string{one.address}, binary); err != nil {
			t.Fatal(err)
		}
		fits(one, "after a restart", tokens, "e", "STORED")

		// A token is only valid for its own key.
		tokens = give(one, "f")
		first := tokens[keys[0]]
		for i := range keys[1:] {
			tokens[keys[i]] = tokens[keys[i+1]]
		}
		tokens[keys[len(keys)-1]] = first
		fits(other, "of another key", tokens, "g", "EXISTS")

		// A token is only valid during the lifetime of the server process that issued it.
		tokens = give(one, "h")
		for _, s := range servers {
			s.Kill()
			s.restart(t)
		}
		for _, r := range []*ringside{one, other} {
			eventually(t, "all keys can be written again", func() bool {
				c := dial(t, r.address)
				for _, key := range keys {
					if c.set(key, "i") != "STORED" {
						return false
					}
				}
				return true
			})
		}
		fits(one, "of a server that is no more", tokens, "j", "EXISTS")
		fits(other, "of a server that is no more", tokens, "j", "EXISTS")
	})
}
