package e2e

// This file implements one client of a load: it sends requests and judges the replies.

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"time"
)

// loadClient is one connection, which is reopened whenever it is cut.
type loadClient struct {
	*load
	address  string
	name     string
	textOnly bool // send no meta commands
	dice     *rand.Rand
	c        net.Conn
	r        *bufio.Reader
}

func (c *loadClient) work() {
	defer c.clients.Done()
	defer c.drop()
	for {
		select {
		case <-c.stop:
			return
		case <-time.After(loadPause/2 + time.Duration(c.dice.Int64N(int64(loadPause)))):
		}
		k := c.keys[c.dice.IntN(len(c.keys))]
		what := c.dice.IntN(20)
		if c.textOnly && (what >= 2 && what <= 6 || what == 12) {
			what = 7
		}
		switch what {
		case 0, 1:
			c.getMany()
		case 2, 3, 4:
			c.get(k, "mg %s v", "")
		case 5, 6:
			c.mutate(k, "ms %s %d", "HD")
		case 7, 8, 9:
			c.mutate(k, "set %s 0 0 %d", "STORED")
		case 10:
			c.mutate(k, "add %s 0 0 %d", "STORED")
		case 11:
			c.remove(k, "delete %s", "DELETED", "NOT_FOUND")
		case 12:
			c.remove(k, "md %s", "HD", "NF")
		case 13, 14:
			if token := c.get(k, "gets %s", "cas"); token != "" {
				c.mutate(k, "cas %s 0 0 %d "+token, "STORED")
			}
		default:
			c.get(k, "get %s", "")
		}
	}
}

// valueOfWrite returns the value that write id stores. Some values are too large to be
// forwarded in one piece.
func valueOfWrite(key string, id int64) string {
	size := 40
	switch {
	case id%64 == 7:
		size = 90_000
	case id%16 == 3:
		size = 6_000
	}
	return fmt.Sprintf("%s %d %s", key, id, loadFiller[id%10:][:size])
}

var loadFiller = strings.Repeat("0123456789", 10_000)

// mutate stores a value that no other write stores.
func (c *loadClient) mutate(k *loadKey, command, done string) {
	id := c.lastID.Add(1)
	value := valueOfWrite(k.name, id)
	k.mu.Lock()
	k.writes[id] = 0
	k.mu.Unlock()
	answer := c.change(k, id, fmt.Sprintf(command, k.name, len(value))+"\r\n"+value, done)
	k.mu.Lock()
	k.writes[id] = c.clock.Add(1)
	k.mu.Unlock()
	c.judge(k, answer, command)
}

// remove deletes a key. A key that does not exist counts as deleted.
func (c *loadClient) remove(k *loadKey, command string, done ...string) {
	c.judge(k, c.change(k, 0, fmt.Sprintf(command, k.name), done...), command)
}

// change sends a mutation and returns the reply line, or "" if there was none.
func (c *loadClient) change(k *loadKey, id int64, request string, done ...string) string {
	sent := c.clock.Add(1)
	change := k.begin()
	answer := ""
	if c.send(request) {
		answer, _ = c.line()
	}
	k.finish(sent, id, change, slices.Contains(done, answer))
	return answer
}

func (c *loadClient) judge(k *loadKey, answer, command string) {
	c.load.count(k, func(y *tally) {
		switch answer {
		case "":
			y.cut++
		case "HD", "NF", "EX", "NS", "STORED", "NOT_STORED", "DELETED", "EXISTS", "NOT_FOUND":
		default:
			y.writes++
		}
	}, fmt.Sprintf("%s, %s: %q", c.name, command, answer))
}

// reading is a read in progress, with what was known about the key when it was sent.
type reading struct {
	k       *loadKey
	sent    int64
	newest  int64
	changes int
	sure    bool
}

func (c *loadClient) read(k *loadKey) reading {
	k.mu.Lock()
	defer k.mu.Unlock()
	return reading{k, c.clock.Add(1), k.newest, k.changes, k.sure}
}

// get reads one key. If wants is set, it returns the cas token of a gets.
func (c *loadClient) get(k *loadKey, command, wants string) (token string) {
	is := c.read(k)
	if !c.send(fmt.Sprintf(command, k.name)) {
		c.missed(is, "", command)
		return ""
	}
	meta := strings.HasPrefix(command, "mg")
	end := ""
	found := false
	for {
		line, ok := c.line()
		if !ok {
			c.missed(is, "", command)
			return ""
		}
		f := strings.Fields(line)
		switch {
		case meta && len(f) >= 2 && f[0] == "VA":
			c.value(is, k.name, f[1], command)
			return ""
		case !meta && len(f) >= 4 && f[0] == "VALUE":
			found = c.value(is, f[1], f[3], command)
			if wants != "" && len(f) == 5 {
				token = f[4]
			}
			if c.c == nil {
				return ""
			}
			continue
		}
		end = line
		break
	}
	if !found || end != "END" {
		c.missed(is, end, command)
		return ""
	}
	return token
}

// getMany reads several keys in one command.
func (c *loadClient) getMany() {
	var names []string
	wanted := map[string]reading{}
	for range 6 {
		k := c.keys[c.dice.IntN(len(c.keys))]
		if _, twice := wanted[k.name]; !twice {
			wanted[k.name] = c.read(k)
			names = append(names, k.name)
		}
	}
	end := ""
	if c.send("get " + strings.Join(names, " ")) {
		for {
			line, ok := c.line()
			f := strings.Fields(line)
			if !ok {
				break
			}
			if len(f) < 4 || f[0] != "VALUE" {
				end = line
				break
			}
			is, asked := wanted[f[1]]
			if !asked {
				c.load.blame("wrong: %s got %s, which it had not asked for or had got already", c.name, f[1])
				c.drop()
				return
			}
			delete(wanted, f[1])
			c.value(is, f[1], f[3], "get of many")
			if c.c == nil {
				break
			}
		}
	}
	for _, is := range wanted {
		if end != "END" && end != "" { // one error line for all keys does not say which server failed
			is.sure = false
			c.missed(is, "END", "get of many")
			continue
		}
		c.missed(is, end, "get of many")
	}
}

// missed judges a reply without a value.
func (c *loadClient) missed(is reading, end, command string) {
	is.k.mu.Lock()
	lost := is.sure && is.k.sure && is.k.changes == is.changes && (end == "END" || end == "EN")
	is.k.note("read sent at %d: %q, lost %t", is.sent, end, lost)
	is.k.mu.Unlock()
	c.load.count(is.k, func(y *tally) {
		switch {
		case end == "":
			y.cut++
		case end != "END" && end != "EN":
			y.reads++
		case lost:
			y.lost++
		}
	}, fmt.Sprintf("%s, %s: %q%s", c.name, command, end, map[bool]string{true: is.k.story()}[lost]))
}

// value reads a value of the given size and judges it.
func (c *loadClient) value(is reading, key, size, command string) (ok bool) {
	n := 0
	fmt.Sscan(size, &n)
	got := make([]byte, n+2)
	if _, err := io.ReadFull(c.r, got); err != nil {
		c.broken(err)
		c.missed(is, "", command)
		return false
	}
	value := string(got[:n])
	k := is.k
	var id int64
	var named string
	fmt.Sscan(value, &named, &id)
	k.mu.Lock()
	answered, written := k.writes[id]
	k.note("read sent at %d: write %d", is.sent, id)
	k.mu.Unlock()
	at := time.Now().Format(time.StampMilli)
	switch {
	case key != k.name || !written || value != valueOfWrite(k.name, id) || string(got[n:]) != "\r\n":
		c.load.blame("wrong: at %s, %s: %s of %s brought %s under the name %s", at, c.name, command, k.name, brief(value), key)
		c.load.count(k, func(y *tally) { y.wrong++ }, "wrong")
	case answered != 0 && answered < is.newest:
		c.load.blame("stale: at %s, %s: %s of %s (group %d), sent at %d, brought write %d, answered at %d; since then a mutation sent at %d has been acknowledged%s",
			at, c.name, command, k.name, k.group, is.sent, id, answered, is.newest, k.story())
		c.load.count(k, func(y *tally) { y.stale++ }, "stale")
	default:
		c.load.count(k, func(y *tally) { y.hits++ }, "")
	}
	return true
}

func (c *loadClient) send(request string) bool {
	for c.c == nil {
		conn, err := dialError(c.address)
		if err == nil {
			c.c, c.r = conn, bufio.NewReaderSize(conn, 16<<10)
			break
		}
		select {
		case <-c.stop:
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
	c.c.SetDeadline(time.Now().Add(patience))
	_, err := io.WriteString(c.c, request+"\r\n")
	if err != nil {
		c.broken(err)
	}
	return err == nil
}

func (c *loadClient) line() (string, bool) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		c.broken(err)
		return "", false
	}
	return strings.TrimSuffix(line, "\r\n"), true
}

// broken drops the connection. A timeout is an error of Ringside: every request has a
// deadline far below this client's patience.
func (c *loadClient) broken(err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.load.blame("stuck: %s got no answer within %v", c.name, patience)
	}
	c.drop()
}

func (c *loadClient) drop() {
	if c.c != nil {
		c.c.Close()
		c.c = nil
	}
}
