package twin

// Every command on a key that a client has missed, through instances with a guard. The server then has an
// item of the guard. Clients must get what memcached returns if there is no item.

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"ringside/internal/testenv"
)

// missingState is a way in which a guarded key can be missing for clients.
type missingState struct {
	name   string
	before []string // requests of the first client, with K for the key
	same   bool     // the first client sends the command, too; otherwise another client does
}

var missingStates = []missingState{
	{"another client has missed the key", []string{"get K\r\n"}, false},
	{"the client itself has missed the key", []string{"get K\r\n"}, true},
	{"the value was deleted", []string{"set K 0 0 3\r\nold\r\n", "delete K\r\n"}, false},
}

// missingFronts are the instances of TestGuardedMissing: one of each kind of guard.
var missingFronts = []*variant{crews[0].fronts[0], crews[2].fronts[1], crews[3].fronts[0], crews[4].fronts[0], crews[5].fronts[0]}

// missingCommands returns text and meta commands, with K for the key. Meta commands have every combination
// of the flags that decide what they do. It leaves out mg with N, with which a client runs the guard
// itself.
func missingCommands() (commands []string) {
	for _, word := range []string{"set", "add", "replace", "append", "prepend"} {
		for _, value := range []string{"", "7"} {
			commands = append(commands, fmt.Sprintf("%s K 0 0 %d\r\n%s\r\n", word, len(value), value))
		}
	}
	commands = append(commands, "cas K 0 0 1 1\r\n7\r\n", "cas K 0 0 1 "+never+"\r\n7\r\n", "incr K 1\r\n", "decr K 1\r\n", "touch K 60\r\n", "delete K\r\n", "get K\r\n", "gets K\r\n", "gat 60 K\r\n", "gats 60 K\r\n")
	add := func(command, data string, flags ...string) {
		for _, f := range combine(flags) {
			commands = append(commands, command+f+"\r\n"+data)
		}
	}
	for _, mode := range []string{"", " MS", " ME", " MR", " MA", " MP"} {
		add("ms K 1"+mode, "7\r\n", " I", " C1| C"+never, " N60", " T60 F5 k Oab c", " q")
	}
	add("md K", "", " I", " C1| C"+never, " T60 k Oab", " q")
	for _, mode := range []string{"", " MD"} { // without q, to which memcached pays no attention if the command creates its item
		add("ma K"+mode, "", " C1| C"+never, " N60", " J5", " T60 D2 v k Oab t")
	}
	add("mg K", "", " v", " T60", " R30", " C1", " k Oab c t", " q")
	return commands
}

// combine returns all combinations of flags. Each is left out or used; alternatives are separated by |.
func combine(flags []string) []string {
	if len(flags) == 0 {
		return []string{""}
	}
	var list []string
	for _, f := range append([]string{""}, strings.Split(flags[0], "|")...) {
		for _, rest := range combine(flags[1:]) {
			list = append(list, f+rest)
		}
	}
	return list
}

// TestGuardedMissing sends every command on a missing key of a guarded route, and the same to memcached.
// The reply, and the value that the command leaves, must be the same.
func TestGuardedMissing(t *testing.T) {
	servers.once.Do(startServers)
	if servers.err != nil {
		t.Fatal(servers.err)
	}
	commands := missingCommands()
	var adjusted, look, sets []string
	for _, c := range commands {
		sets = append(sets, "set K 0 0 1\r\n1\r\n")
		adjusted = append(adjusted, testenv.For1618(c))
		look = append(look, "mg K v f\r\n")
	}
	prefix := fmt.Sprintf("m%x:", time.Now().UnixNano()) // a repeated test does not find its own keys
	plain := newAsker(t, nil, servers.plain)
	defer plain.Close()
	want, left := plain.pipeline(t, prefix, adjusted, false), plain.pipeline(t, prefix, look, false)
	for _, v := range missingFronts {
		v.start(t)
		if v.casless { // Ringside learns from the first reply that the server has no cas
			newAsker(t, v, v.address).pipeline(t, prefix, []string{"get K\r\n"}, true)
		}
		newAsker(t, v, v.address).pipeline(t, prefix+"used:", sets, false) // so no item of the guard has the cas 1, which commands name
		misses := v                                                        // the instance through which the first client reads
		if v.guard == guardHide {
			misses = crews[2].fronts[0]
			misses.start(t)
		}
		for i, state := range missingStates {
			if state.same && misses != v {
				continue
			}
			prefix := fmt.Sprintf("%s%d%s", v.name, i, prefix)
			first, other := newAsker(t, misses, misses.address), newAsker(t, v, v.address)
			defer first.Close()
			defer other.Close()
			for _, request := range state.before {
				var all []string
				for range commands {
					all = append(all, request)
				}
				first.pipeline(t, prefix, all, state.same)
			}
			by := other
			if state.same {
				by = first
			}
			got, gotLeft := by.pipeline(t, prefix, commands, state.same), other.pipeline(t, prefix, look, false)
			for n, c := range commands {
				if v.guard == guardStale && gotLeft[n] == "VA 3 f0\r\nold\r\n" { // the deleted value is served until a client has rebuilt it
					gotLeft[n] = "EN\r\n"
				}
				if v.guard == guardStale && strings.Contains(c, " R30") { // the client runs the guard itself, and may see a deleted value
					continue
				}
				if got[n] != want[n] || gotLeft[n] != left[n] {
					t.Errorf("%s %s, %s: %q: got %q, and then %q is left; want %q, and then %q", v.name, v.guard, state.name, c, got[n], gotLeft[n], want[n], left[n])
				}
			}
		}
	}
}

// unstored matches the cas in the reply to an ms that is not stored. Ringside may leave it out.
var unstored = regexp.MustCompile(`(?m)^((?:NS|NF|EX).*?) c\d+`)

// pipeline sends the requests, with a key of its own for K in each of them, and returns the replies, also
// with K. With alone it waits for each reply before it sends the next request.
func (a *asker) pipeline(t *testing.T, prefix string, requests []string, alone bool) (replies []string) {
	t.Helper()
	key := func(i int) string { return fmt.Sprintf("%s%d-", prefix, i) }
	reply := func(i int) {
		for all := ""; ; {
			more, err := a.ask("")
			if err != nil {
				t.Fatalf("%q: %q, %v", requests[i], all, err)
			}
			if more == "MN\r\n" {
				all = strings.Join(normal([]byte(unstored.ReplaceAllString(all, "$1")), false), "")
				replies = append(replies, strings.ReplaceAll(all, key(i), "K"))
				return
			}
			all += more
		}
	}
	var text strings.Builder
	for i, r := range requests {
		fmt.Fprint(&text, strings.ReplaceAll(r, "K", key(i)))
		if alone {
			io.WriteString(a.Conn, text.String()+"mn\r\n") // an error shows in the reply
			text.Reset()
			reply(i)
		} else {
			text.WriteString("mn\r\n")
		}
	}
	io.WriteString(a.Conn, text.String())
	for i := range requests {
		if !alone {
			reply(i)
		}
	}
	return replies
}
