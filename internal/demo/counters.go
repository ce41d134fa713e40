package demo

// This file implements ringside demo --counters. It shows that clients that count with get and set
// lose updates, and that incr loses none.

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"ringside/internal/cli"
)

const (
	countClients = 8
	countEach    = 200
	countPause   = time.Millisecond // how long a client of get and set computes the new number
)

// countResult has the counts of one way to count.
type countResult struct {
	Added   int `json:"added"`   // how often clients have added one
	Counter int `json:"counter"` // the number that the counter has in the end
	Lost    int `json:"lost"`
}

// showCounters counts in two ways, with clients that all use one counter, and prints the results.
func showCounters(address string, out io.Writer, asJSON bool) error {
	text := out
	if asJSON {
		text = io.Discard
	}
	fmt.Fprintf(text, "%d clients add 1 to a counter, %d times each. With get and set, a client reads the\nnumber, adds 1 in %v, and stores it. With incr, the server adds.\n\n", countClients, countEach, countPause)
	byset, err := count(address, "count:set", func(c *counting, key string) error {
		n, err := c.get(key)
		if err != nil {
			return err
		}
		time.Sleep(countPause)
		return c.ask(fmt.Sprintf("set %s 0 0 %d\r\n%d", key, len(strconv.Itoa(n+1)), n+1), "STORED")
	})
	if err != nil {
		return err
	}
	byincr, err := count(address, "count:incr", func(c *counting, key string) error { return c.ask("incr "+key+" 1", "") })
	if err != nil {
		return err
	}
	if asJSON {
		return cli.NewEncoder(out).Encode(map[string]countResult{"get_and_set": byset, "incr": byincr})
	}
	fmt.Fprintf(out, "                     get and set       incr\n")
	for _, row := range []struct {
		name      string
		set, incr int
	}{{"added", byset.Added, byincr.Added}, {"counter", byset.Counter, byincr.Counter}, {"lost", byset.Lost, byincr.Lost}} {
		fmt.Fprintf(out, "%-16s %15d %10d\n", row.name, row.set, row.incr)
	}
	fmt.Fprint(out, "\nIf the counter may be missing: ringside creates it with autocreate, see docs/counters.md.\n")
	return nil
}

// count creates a counter and lets all clients add to it. add adds one.
func count(address, key string, add func(c *counting, key string) error) (is countResult, err error) {
	first, err := startCounting(address)
	if err != nil {
		return is, err
	}
	defer first.Close()
	if err := first.ask("set "+key+" 0 0 1\r\n0", "STORED"); err != nil {
		return is, err
	}
	failed := make([]error, countClients)
	var all sync.WaitGroup
	for i := range failed {
		all.Go(func() {
			c, err := startCounting(address)
			for n := 0; n < countEach && err == nil; n++ {
				err = add(c, key)
			}
			if c != nil {
				c.Close()
			}
			failed[i] = err
		})
	}
	all.Wait()
	if err := errors.Join(failed...); err != nil {
		return is, err
	}
	is.Added = countClients * countEach
	is.Counter, err = first.get(key)
	is.Lost = is.Added - is.Counter
	return is, err
}

// counting is a client that counts.
type counting struct {
	net.Conn
	answers *bufio.Reader
}

func startCounting(address string) (*counting, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return &counting{c, bufio.NewReader(c)}, nil
}

// ask sends a command with a reply of one line. want is the reply; empty: any number.
func (c *counting) ask(command, want string) error {
	fmt.Fprintf(c, "%s\r\n", command)
	line, err := c.answers.ReadString('\n')
	line = strings.TrimSpace(line)
	if _, bad := strconv.Atoi(line); err != nil || line != want && (want != "" || bad != nil) {
		return fmt.Errorf("%q was answered %q, %v", command, line, err)
	}
	return nil
}

// get returns the number of a counter.
func (c *counting) get(key string) (n int, err error) {
	fmt.Fprintf(c, "get %s\r\n", key)
	var lines [3]string // VALUE, the number, END
	for i := range lines {
		if lines[i], err = c.answers.ReadString('\n'); err != nil || strings.HasPrefix(lines[0], "END") {
			return 0, fmt.Errorf("get %s was answered %q, %v", key, lines, err)
		}
	}
	return strconv.Atoi(strings.TrimSpace(lines[1]))
}
