// Package meta lets recipes use clients that speak memcached's meta protocol.
//
// Client translates the methods that recipes call into meta commands. A Doer sends
// these commands, so a few lines of code adapt the meta client that an application
// already has. Server is a simple Doer for applications without one.
//
// The meta protocol returns the size of a value without the value. A recipe can
// therefore find out cheaply that a log or a list is full.
package meta

// This file contains a recipes.Client that sends meta commands.

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/bradfitz/gomemcache/memcache"
)

// Command is one meta command: its name (mg, ms, md or ma), its key, its flags with
// their tokens, and the value of an ms.
type Command struct {
	Name, Key string
	Flags     []string
	Value     []byte
}

// Reply is the reply to a Command: its status, its flags with their tokens, and its
// value. Status is the first word of the reply: HD, VA, EN, NF, NS or EX. An error is
// returned by Do, or its whole line is in Status.
type Reply struct {
	Status string
	Flags  []string
	Value  []byte
}

// Doer sends commands, all at once if it can. It returns one reply per command, in the
// order of the commands. After an error it is unknown which commands the server has
// executed.
type Doer interface {
	Do(commands ...Command) ([]Reply, error)
}

// Client implements recipes.Client and recipes.Sizer with a Doer.
type Client struct{ d Doer }

// New returns a Client that sends its commands with the Doer d.
func New(d Doer) *Client { return &Client{d} }

// do sends one command. It returns an error if the server rejects the command: errs has
// the error for each status.
func (c *Client) do(cmd Command, errs map[string]error) (Reply, error) {
	replies, err := c.d.Do(cmd)
	if err != nil {
		return Reply{}, err
	}
	if len(replies) != 1 {
		return Reply{}, fmt.Errorf("meta: %d replies to one command", len(replies))
	}
	return replies[0], refusal(cmd, replies[0], errs)
}

func refusal(cmd Command, r Reply, errs map[string]error) error {
	switch r.Status {
	case "HD", "VA":
		return nil
	}
	if err := errs[r.Status]; err != nil {
		return err
	}
	return fmt.Errorf("meta: %s %s: %s", cmd.Name, cmd.Key, r.Status)
}

var (
	ofReads  = map[string]error{"EN": memcache.ErrCacheMiss}
	ofStores = map[string]error{"NS": memcache.ErrNotStored, "EX": memcache.ErrCASConflict, "NF": memcache.ErrCacheMiss}
	ofOthers = map[string]error{"NF": memcache.ErrCacheMiss}
)

func read(key string) Command {
	return Command{Name: "mg", Key: key, Flags: []string{"v", "c", "f"}}
}

func item(key string, r Reply) (*memcache.Item, error) {
	i := &memcache.Item{Key: key, Value: r.Value}
	for _, f := range r.Flags {
		var err error
		switch f[0] {
		case 'c':
			i.CasID, err = strconv.ParseUint(f[1:], 10, 64)
		case 'f':
			var flags uint64
			flags, err = strconv.ParseUint(f[1:], 10, 32)
			i.Flags = uint32(flags)
		}
		if err != nil {
			return nil, fmt.Errorf("meta: mg %s: flag %q: %w", key, f, err)
		}
	}
	return i, nil
}

// Get sends mg with the flags v, c and f, and returns the item.
func (c *Client) Get(key string) (*memcache.Item, error) {
	r, err := c.do(read(key), ofReads)
	if err != nil {
		return nil, err
	}
	return item(key, r)
}

// GetMulti sends one mg per key, all at once, and returns the items that exist.
func (c *Client) GetMulti(keys []string) (map[string]*memcache.Item, error) {
	commands := make([]Command, len(keys))
	for i, k := range keys {
		commands[i] = read(k)
	}
	replies, err := c.d.Do(commands...)
	if err != nil {
		return nil, err
	}
	if len(replies) != len(keys) {
		return nil, fmt.Errorf("meta: %d replies to %d commands", len(replies), len(keys))
	}
	items := map[string]*memcache.Item{}
	for i, r := range replies {
		if err := refusal(commands[i], r, ofReads); errors.Is(err, memcache.ErrCacheMiss) {
			continue
		} else if err != nil {
			return nil, err
		}
		if items[keys[i]], err = item(keys[i], r); err != nil {
			return nil, err
		}
	}
	return items, nil
}

func (c *Client) store(i *memcache.Item, flags ...string) error {
	flags = append(flags, fmt.Sprintf("T%d", i.Expiration), fmt.Sprintf("F%d", i.Flags))
	_, err := c.do(Command{Name: "ms", Key: i.Key, Flags: flags, Value: i.Value}, ofStores)
	return err
}

// Set stores the item with ms.
func (c *Client) Set(i *memcache.Item) error { return c.store(i) }

// Add stores the item with ms in mode E (add).
func (c *Client) Add(i *memcache.Item) error { return c.store(i, "ME") }

// Append appends the value with ms in mode A (append).
func (c *Client) Append(i *memcache.Item) error { return c.store(i, "MA") }

// CompareAndSwap stores the item with ms and the flag C, which carries the cas token.
func (c *Client) CompareAndSwap(i *memcache.Item) error {
	return c.store(i, fmt.Sprintf("C%d", i.CasID))
}

// Increment adds delta to a counter with ma, and returns the new number.
func (c *Client) Increment(key string, delta uint64) (uint64, error) {
	r, err := c.do(Command{Name: "ma", Key: key, Flags: []string{"v", fmt.Sprintf("D%d", delta)}}, ofOthers)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimRight(string(r.Value), " "), 10, 64)
}

// Delete deletes the key with md.
func (c *Client) Delete(key string) error {
	_, err := c.do(Command{Name: "md", Key: key}, ofOthers)
	return err
}

// Size returns the size of a value in bytes. It sends mg with the flag s.
func (c *Client) Size(key string) (int, error) {
	r, err := c.do(Command{Name: "mg", Key: key, Flags: []string{"s"}}, ofReads)
	if err != nil {
		return 0, err
	}
	for _, f := range r.Flags {
		if f[0] == 's' {
			return strconv.Atoi(f[1:])
		}
	}
	return 0, fmt.Errorf("meta: mg %s: no size in %q", key, r.Flags)
}
