package conversation

// This file simulates a memcached release that is older than the meta commands.

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// OldServer behaves like memcached 1.4.25. It replies to an unknown command with one ERROR, and
// parses the next line as the next command. So it parses the data block of an ms as commands,
// as the real server does.
type OldServer struct {
	input    []byte
	Items    map[string]OldItem
	cas      int
	Flushed  int
	Unknown  []string       // the lines with unknown commands that the server has received
	Commands map[string]int // number of commands that the server has received, by name of the command
}

// OldItem is an item of an OldServer.
type OldItem struct {
	flags, value string
	cas          int
}

// NewOldServer returns an OldServer without items.
func NewOldServer() *OldServer {
	return &OldServer{Items: map[string]OldItem{}, Commands: map[string]int{}}
}

// Serve handles more input and returns the replies.
func (o *OldServer) Serve(more []byte) (out []byte) {
	o.input = append(o.input, more...)
	for {
		end := bytes.Index(o.input, []byte("\r\n"))
		if end < 0 {
			return out
		}
		line := string(o.input[:end])
		f := strings.Fields(line)
		rest := o.input[end+2:]
		var block []byte
		stores := len(f) > 4 && slices.Contains([]string{"set", "add", "replace", "append", "prepend", "cas"}, f[0])
		if stores {
			n, _ := strconv.Atoi(f[4])
			if len(rest) < n+2 {
				return out
			}
			block, rest = rest[:n], rest[n+2:]
		}
		out = append(out, o.command(f, string(block), line)...)
		o.input = rest
	}
}

func (o *OldServer) command(f []string, block, line string) string {
	if len(f) == 0 {
		return "ERROR\r\n"
	}
	o.Commands[f[0]]++
	key := ""
	if len(f) > 1 {
		key = f[1]
	}
	item, there := o.Items[key]
	put := func(value string) string {
		o.cas++
		o.Items[key] = OldItem{f[2], value, o.cas}
		return "STORED\r\n"
	}
	switch f[0] {
	case "get", "gets":
		var b strings.Builder
		for _, k := range f[1:] {
			if it, ok := o.Items[k]; ok {
				fmt.Fprintf(&b, "VALUE %s %s %d", k, it.flags, len(it.value))
				if f[0] == "gets" {
					fmt.Fprintf(&b, " %d", it.cas)
				}
				fmt.Fprintf(&b, "\r\n%s\r\n", it.value)
			}
		}
		return b.String() + "END\r\n"
	case "set":
		return put(block)
	case "add", "replace", "append", "prepend":
		if there != (f[0] != "add") {
			return "NOT_STORED\r\n"
		}
		if f[0] == "append" || f[0] == "prepend" {
			f[2] = item.flags
			block = map[string]string{"append": item.value + block, "prepend": block + item.value}[f[0]]
		}
		return put(block)
	case "cas":
		switch {
		case !there:
			return "NOT_FOUND\r\n"
		case strconv.Itoa(item.cas) != f[5]:
			return "EXISTS\r\n"
		}
		return put(block)
	case "delete":
		delete(o.Items, key)
		return map[bool]string{true: "DELETED\r\n", false: "NOT_FOUND\r\n"}[there]
	case "incr", "decr":
		n, err := strconv.ParseUint(item.value, 10, 64)
		by, _ := strconv.ParseUint(f[2], 10, 64)
		switch {
		case !there:
			return "NOT_FOUND\r\n"
		case err != nil:
			return "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"
		case f[0] == "incr":
			n += by
		default:
			n -= min(n, by)
		}
		value := strconv.FormatUint(n, 10)
		f[2] = item.flags
		put(value)
		return value + "\r\n"
	case "touch":
		return map[bool]string{true: "TOUCHED\r\n", false: "NOT_FOUND\r\n"}[there]
	case "flush_all":
		clear(o.Items)
		o.Flushed++
		return "OK\r\n"
	case "version":
		return "VERSION 1.4.25\r\n"
	case "stats":
		return "STAT pid 1\r\nSTAT uptime 5\r\nSTAT time 1000\r\nEND\r\n"
	}
	o.Unknown = append(o.Unknown, line)
	return "ERROR\r\n"
}
