package e2e

// This file checks that each command gets exactly one reply, also while servers hang.

import (
	"encoding/binary"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"
)

// frameOf returns a binary request for a key.
func frameOf(opcode byte, opaque uint32, extras []byte, key, value string) string {
	b := []byte{0x80, opcode, 0, byte(len(key)), byte(len(extras)), 0, 0, 0}
	b = binary.BigEndian.AppendUint32(b, uint32(len(extras)+len(key)+len(value)))
	b = binary.BigEndian.AppendUint32(b, opaque)
	b = binary.BigEndian.AppendUint64(b, 0)
	return string(b) + string(extras) + key + value
}

// counting are the extras of a binary incr or decr by 1 that does not create the counter.
var counting = append(binary.BigEndian.AppendUint64(nil, 1), 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff)

// frame reads a binary reply.
func (c *conn) frame() (opcode byte, opaque uint32, status uint16) {
	c.t.Helper()
	c.SetReadDeadline(time.Now().Add(patience))
	head := make([]byte, 24)
	if _, err := io.ReadFull(c.r, head); err != nil {
		c.t.Fatalf("read a frame: %v", err)
	}
	if _, err := io.CopyN(io.Discard, c.r, int64(binary.BigEndian.Uint32(head[8:]))); err != nil {
		c.t.Fatalf("read the body of a frame: %v", err)
	}
	return head[1], binary.BigEndian.Uint32(head[12:]), binary.BigEndian.Uint16(head[6:])
}

// TestRepliesWhileServersHang stops all servers while an increment is buffered, so that a
// decr waits for its flush. The client must get one reply to the decr and one to the
// following version, in this order. It must get nothing more when the servers resume.
func TestRepliesWhileServersHang(t *testing.T) {
	t.Parallel()
	const short = "timeouts: {connect: 500ms, request: 500ms, deadline: 500ms}"
	const defaults = "timeouts: {connect: 1200ms, request: 500ms, deadline: 2s}"
	for _, c := range []struct {
		name, route, timeouts string
		servers               int
		command               string        // replaces decr; "binary": a binary decr
		hang                  time.Duration // minimum duration of the hang; it also lasts until both replies are there
	}{
		{name: "buffer", route: "buffer: {every: 5s}", timeouts: short},
		{name: "plain", timeouts: short},
		{name: "copies", route: "replicas: 2, replicas_on: server", timeouts: short, servers: 2},
		{name: "copies and buffer", route: "replicas: 2, replicas_on: server, buffer: {every: 5s}", timeouts: short, servers: 2},
		{name: "binary", route: "buffer: {every: 5s}", timeouts: short, command: "binary"},
		{name: "meta", route: "buffer: {every: 5s}", timeouts: short, command: "ma n MD v"},
		{name: "default timeouts", route: "buffer: {every: 5s}", timeouts: defaults, hang: 3500 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			servers := startMemcacheds(t, max(c.servers, 1))
			route := "pool: main"
			if c.route != "" {
				route += ", " + c.route
			}
			front := startRingside(t, "auto", front(servers, c.timeouts)+"routes: [{"+route+"}]\n")
			number := regexp.MustCompile(`^[0-9]+$`)
			text := dial(t, front.address)
			// A busy machine may exceed the timeouts.
			eventually(t, "n is counted twice", func() bool {
				return text.set("n", "5") == "STORED" && number.MatchString(text.question("incr n 1")) && number.MatchString(text.question("incr n 1"))
			})
			for _, s := range servers {
				s.pause(t)
			}
			goOn := func() {
				for _, s := range servers {
					s.resume(t)
				}
			}
			if c.command == "binary" {
				client := dial(t, front.address)
				client.send(frameOf(0x06, 1, counting, "n", "") + frameOf(0x0b, 2, nil, "", ""))
				for want, opcode := range []byte{0x06, 0x0b} {
					if got, opaque, status := client.frame(); got != opcode || opaque != uint32(want+1) {
						t.Fatalf("got opcode %#x, opaque %d, status %#x as reply %d", got, opaque, status, want+1)
					}
				}
				goOn()
				client.send(frameOf(0x0a, 3, nil, "", ""))
				if got, opaque, _ := client.frame(); got != 0x0a || opaque != 3 {
					t.Fatalf("got opcode %#x, opaque %d as the reply to noop", got, opaque)
				}
				return
			}
			command, replies := c.command, `^([0-9]+ *|SERVER_ERROR .+)$`
			if command == "" {
				command = "decr n 1"
			} else {
				replies = `^(VA [0-9]+|SERVER_ERROR .+)$`
			}
			hung := time.After(c.hang)
			text.send(command + "\r\nversion\r\n")
			first := text.line()
			if !regexp.MustCompile(replies).MatchString(first) {
				t.Fatalf("%s got %q", command, first)
			}
			if first[:2] == "VA" {
				if value := text.line(); !number.MatchString(value) {
					t.Fatalf("%s got the value %q", command, value)
				}
			}
			if second := text.line(); !regexp.MustCompile(`^(VERSION|SERVER_ERROR) .+$`).MatchString(second) {
				t.Fatalf("version got %q", second)
			}
			<-hung
			goOn()
			eventually(t, "n is read", func() bool { // waits for late replies of the servers
				values, _ := text.get("n")
				return number.MatchString(strings.TrimSpace(values["n"]))
			})
			text.ask("mn", "MN")
		})
	}
}
