package twin

// Instances with a guard. Their placeholder items must be invisible to clients.

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// crew is a set of guarded instances with the same servers, and the number of
// clients that are spread over them. If old values may be served, there is one
// client: it is the one that rebuilds, so it does not get an old value.
type crew struct {
	fronts  []*variant
	clients int
}

const guardPlain, guardHide, guardStale = "{wait: off, clients: connection}", "hide", "{wait: off, stale: 1m}"

var crews = []crew{
	{[]*variant{{name: "ga", servers: 3, driver: "auto", guard: guardPlain}}, 3},
	{[]*variant{{name: "gb", servers: 3, driver: "portable", guard: guardPlain}, {name: "gc", servers: 3, driver: "auto", guard: guardPlain}}, 4},
	{[]*variant{{name: "gd", servers: 3, driver: "auto", guard: guardPlain}, {name: "ge", servers: 3, driver: "auto", guard: guardHide}}, 4},
	{[]*variant{{name: "gf", servers: 3, driver: "auto", guard: guardStale}}, 1},
	{[]*variant{{name: "gg", driver: "auto", guard: "true", casless: true}}, 3},
	{[]*variant{{name: "gi", servers: 3, driver: "auto", guard: guardPlain, copies: true}, {name: "gj", servers: 3, driver: "portable", guard: guardPlain, copies: true}}, 4},
}

// FuzzGuarded sends the commands of several clients, one at a time, through
// guarded instances, and to a memcached without a guard. The replies must be the
// same with one exception. After a client has missed a key and another one has
// changed it, the first client's store is rejected.
func FuzzGuarded(f *testing.F) {
	addStreams(f, rand.NewPCG(3, 13), 6, len(crews), 200, 1000)
	f.Fuzz(runGuarded)
}

// asker is a client that waits for each reply.
type asker struct {
	net.Conn
	*bufio.Reader
	front  *variant          // nil for memcached
	missed map[string]int    // keys that it missed and should rebuild, and how often each had been changed at that time
	tokens map[string]string // last cas unique returned to it, by key
	plain  map[string]string // memcached's cas unique at that time, by key
}

func newAsker(t *testing.T, front *variant, address string) *asker {
	c := connect(t, "", address).Conn
	return &asker{Conn: c, Reader: bufio.NewReader(c), front: front, missed: map[string]int{}, tokens: map[string]string{}, plain: map[string]string{}}
}

// ask sends a command and returns the whole reply.
func (a *asker) ask(text string) (string, error) {
	a.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(a.Conn, text); err != nil {
		return "", err
	}
	all := ""
	for {
		line, err := a.ReadString('\n')
		if all += line; err != nil {
			return all, err
		}
		m := block.FindStringSubmatch(line)
		if m == nil {
			return all, nil
		}
		n, _ := strconv.Atoi(m[1])
		data := make([]byte, n+2)
		_, err = io.ReadFull(a.Reader, data)
		if all += string(data); err != nil || line[:3] == "VA " {
			return all, err
		}
		if words := strings.Fields(line); len(words) == 5 {
			a.tokens[words[1]] = words[4]
		}
	}
}

// runGuarded uses data to choose a crew and the commands of its clients.
func runGuarded(t *testing.T, data []byte) {
	c := choice{rest: data}
	crew := crews[c.n(len(crews))]
	for _, v := range crew.fronts {
		v.start(t)
	}
	prefix := fmt.Sprintf("%s%x:", crew.fronts[0].name, time.Now().UnixNano()) // a repeated stream does not find its own keys
	plain := newAsker(t, nil, servers.plain)
	defer plain.Close()
	var clients []*asker
	for i := range crew.clients {
		v := crew.fronts[i%len(crew.fronts)]
		clients = append(clients, newAsker(t, v, v.address))
		defer clients[i].Close()
	}
	changes := map[string]int{}
	var story []string
	for len(c.rest) > 0 {
		who := c.n(len(clients))
		a := clients[who]
		o := c.guarded(prefix)
		change, missed := a.missed[o.keys[0]]
		if missed && o.builds {
			continue // it would use up the client's lease; then this or another client may get the old value
		}
		if a.front.casless && o.compares {
			continue // cas does nothing without cas support
		}
		late := missed && o.stores && change != changes[o.keys[0]]
		given, said := o.text, o.text
		if o.compares {
			given, said = strings.Replace(given, casMark, known(a.plain, o.keys[0]), 1), strings.Replace(said, casMark, known(a.tokens, o.keys[0]), 1)
		}
		got, err := a.ask(said)
		story = append(story, fmt.Sprintf("%d %q: %q", who, said, got))
		want := o.late
		if err == nil && !late {
			if want, err = plain.ask(given); o.reads {
				for key := range a.tokens {
					if token, told := plain.tokens[key]; told {
						a.plain[key] = token
					}
				}
				clear(plain.tokens)
			}
		}
		if g, w := strings.Join(normal([]byte(got), true), ""), strings.Join(normal([]byte(want), true), ""); err != nil || g != w {
			t.Fatalf("%s\n%v, got  %q\nwant %q", strings.Join(story[max(0, len(story)-40):], "\n"), err, g, w)
		}
		if o.stores || o.removes {
			delete(a.missed, o.keys[0])
		}
		if !late && o.changes(want) {
			changes[o.keys[0]]++
			delete(a.missed, o.keys[0]) // a client's own change ends its miss
		}
		for _, key := range o.keys {
			hit := strings.Contains(want, "VALUE "+key+" ") || strings.HasPrefix(want, "VA ") || strings.HasPrefix(want, "HD")
			if o.reads && hit {
				delete(a.missed, key)
			}
			if o.reads && !hit && a.front.guard != guardHide && !a.front.casless {
				a.missed[key] = changes[key]
			}
		}
	}
}

// known returns the token of a key, or never.
func known(tokens map[string]string, key string) string {
	if token := tokens[key]; token != "" {
		return token
	}
	return never
}

// operation is one command to a guarded instance.
type operation struct {
	text     string
	keys     []string
	late     string // expected reply if it is rejected because it is too late
	stores   bool   // it stores an item whatever exists
	builds   bool   // it stores an item that depends on the existing one
	compares bool
	removes  bool
	reads    bool
}

// changes reports whether the command with this reply has stored or removed an
// item.
func (o *operation) changes(answer string) bool {
	switch {
	case o.removes:
		return true
	case o.reads:
		return false
	}
	word, _, _ := strings.Cut(strings.TrimSpace(answer), " ")
	_, err := strconv.ParseUint(word, 10, 64)
	return err == nil || word == "STORED" || word == "HD" || word == "VA"
}

// guarded returns the next command. Values are empty, numbers, or neither.
func (c *choice) guarded(prefix string) operation {
	key := prefix + c.of("a", "b", "c")
	value := c.of("", "", "7", "100", "v", "some text")
	store := func(word string) string {
		return fmt.Sprintf("%s %s %s %s %d\r\n%s\r\n", word, key, c.of("0", "0", "5", "+5"), c.of("0", "1000", "+1000"), len(value), value)
	}
	meta := func(flags string) string {
		return fmt.Sprintf("ms %s %d%s\r\n%s\r\n", key, len(value), flags, value)
	}
	one := []string{key}
	switch c.n(24) {
	case 0, 1, 2, 3:
		return operation{text: "get " + key + "\r\n", keys: one, reads: true}
	case 4:
		return operation{text: "gets " + key + "\r\n", keys: one, reads: true}
	case 5:
		all := []string{prefix + "a", prefix + "b", prefix + "c"}
		return operation{text: c.of("get ", "gets ") + strings.Join(all, " ") + "\r\n", keys: all, reads: true}
	case 6:
		return operation{text: c.of("gat ", "gats ") + "1000 " + key + "\r\n", keys: one, reads: true}
	case 7, 8:
		return operation{text: "mg " + key + c.of(" v", " v f s k Oxy", " s", "", " v T1000", " v c") + "\r\n", keys: one, reads: true}
	case 9, 10:
		return operation{text: "delete " + key + "\r\n", keys: one, removes: true}
	case 11:
		return operation{text: "md " + key + c.of("", " Oq k") + "\r\n", keys: one, removes: true}
	case 12, 13:
		return operation{text: store("set"), keys: one, stores: true, late: "NOT_STORED\r\n"}
	case 14:
		return operation{text: store("add"), keys: one, stores: true, late: "NOT_STORED\r\n"}
	case 15:
		return operation{text: meta(" k Oab"), keys: one, stores: true, late: "NS k" + key + " Oab\r\n"}
	case 16:
		return operation{text: meta(" ME F5"), keys: one, stores: true, late: "NS\r\n"}
	case 17:
		value = c.of("", "v", "some text") // no number, because appends could make it longer than 64 bits
		return operation{text: store(c.of("append", "prepend", "replace")), keys: one, builds: true}
	case 18:
		value = c.of("", "v", "some text")
		return operation{text: meta(c.of(" MA", " MP", " MR")), keys: one, builds: true}
	case 19:
		return operation{text: fmt.Sprintf("cas %s 3 0 %d %s\r\n%s\r\n", key, len(value), casMark, value), keys: one, compares: true}
	case 20:
		return operation{text: c.of("incr ", "decr ") + key + c.of(" 1", " 9") + "\r\n", keys: one}
	case 21:
		return operation{text: "ma " + key + c.of("", " v", " MD v D10") + "\r\n", keys: one}
	case 22:
		return operation{text: "ma " + key + " N100 J7 v\r\n", keys: one}
	}
	return operation{text: "touch " + key + " 1000\r\n", keys: one}
}
