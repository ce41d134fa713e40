package e2e

// This file tests clients that send slowly, read slowly, or disconnect.

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"
)

func TestClientThatSendsByteByByte(t *testing.T) {
	bothDrivers(t, func(t *testing.T, driver string) {
		r := startRingside(t, driver, front(startMemcacheds(t, 3)))
		f := startTraffic(t, r.address, 4, tolerance{})
		client := dial(t, r.address)
		value := strings.Repeat("0123456789", 100)
		commands := fmt.Sprintf("set slow 0 0 %d\r\n%s\r\nget slow\r\nget slow absent slow2\r\nms slow2 3\r\nabc\r\nmg slow2 v\r\nincr slow 1\r\ndelete slow\r\n", len(value), value)
		for i := range len(commands) {
			client.send(commands[i : i+1])
		}
		hit := fmt.Sprintf("VALUE slow 0 %d\r\n%s\r\nEND\r\n", len(value), value)
		client.expect("STORED\r\n" + hit + hit + "HD\r\nVA 3\r\nabc\r\n" +
			"CLIENT_ERROR cannot increment or decrement non-numeric value\r\nDELETED\r\n")
		f.halt(t)
	})
}

// TestClientThatStopsWithinARequest has clients stop within a request. They must not
// delay others.
func TestClientThatStopsWithinARequest(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		servers := startMemcacheds(t, 1)
		r := startRingside(t, driver, front(servers))
		for _, part := range []string{"g", "get a", "set a 0 0 100000\r\n", "set a 0 0 100000\r\nabc", "ms a 5\r\nabcde", "get a\r\nset b 0 0 3\r\nab"} {
			dial(t, r.address).send(part)
			gone := dial(t, r.address)
			gone.send(part)
			gone.Close()
		}
		client := dial(t, r.address)
		client.store("a", "1")
		client.holds("a", "1")
		client.misses("b")
	})
}

// TestClientThatStopsReading has a client request far more than sockets hold, without
// reading. Other clients must continue. When it reads at last, it gets all replies.
func TestClientThatStopsReading(t *testing.T) {
	bothDrivers(t, func(t *testing.T, driver string) {
		r := startRingside(t, driver, front(startMemcacheds(t, 1)))
		big := strings.Repeat("0123456789abcdef", 1<<16)
		client := dial(t, r.address)
		client.store("big", big)
		const times = 40 // 40 MiB, below limits.output_hard
		client.send(strings.Repeat("get big\r\n", times))
		f := startTraffic(t, r.address, 4, tolerance{})
		f.more(t, 5000)
		f.halt(t)
		for range times {
			client.expect(fmt.Sprintf("VALUE big 0 %d\r\n%s\r\nEND\r\n", len(big), big))
		}
		client.ask("mn", "MN")
	})
}

// TestClientThatNeverReads checks that a client above limits.output_hard is disconnected,
// and only that one.
func TestClientThatNeverReads(t *testing.T) {
	bothDrivers(t, func(t *testing.T, driver string) {
		r := startRingside(t, driver, front(startMemcacheds(t, 1))+"limits: {output_hard: 8MiB}\n")
		big := strings.Repeat("0123456789abcdef", 1<<16)
		client := dial(t, r.address)
		client.store("big", big)
		client.send(strings.Repeat("get big\r\n", 100))
		f := startTraffic(t, r.address, 4, tolerance{})
		eventually(t, "the client is closed", func() bool {
			return r.metric(t, `ringside_client_connections_closed_total{reason="output"}`) == 1
		})
		f.more(t, 2000)
		f.halt(t)
		whole := strings.Repeat(fmt.Sprintf("VALUE big 0 %d\r\n%s\r\nEND\r\n", len(big), big), 100)
		if got := client.closed(); len(got) == len(whole) || !strings.HasPrefix(whole, got) {
			t.Errorf("the client got %d bytes, wrong ones or all", len(got))
		}
	})
}

// TestClientThatLeaves has clients disconnect while replies to them are in flight.
func TestClientThatLeaves(t *testing.T) {
	bothDrivers(t, func(t *testing.T, driver string) {
		c := startCluster(t, driver)
		f := startTraffic(t, c.address, 4, tolerance{})
		for i := range 200 {
			leaver := dial(t, c.address)
			leaver.send(strings.Repeat("get "+strings.Join(c.keys[:50], " ")+"\r\n", 20))
			if i%2 == 0 {
				leaver.Conn.(*net.TCPConn).SetLinger(0) // closes with a reset
			}
			leaver.Close()
		}
		f.halt(t)
		c.serves(t, c.keys)
		eventually(t, "nothing stays in flight", func() bool { return c.metric(t, "ringside_requests_in_flight") == 0 })
		if got := c.metric(t, "ringside_desyncs_total"); got != 0 {
			t.Errorf("%v pairing doubts", got)
		}
	})
}

// TestPipelinesCutAtRandom sends pipelines of many commands, cut at random places.
// Replies must stay in order.
func TestPipelinesCutAtRandom(t *testing.T) {
	bothDrivers(t, func(t *testing.T, driver string) {
		c := startCluster(t, driver)
		for round := range 20 {
			random := rand.New(rand.NewPCG(uint64(round), 7))
			var sent, want strings.Builder
			for i := range 300 {
				key := c.keys[random.IntN(len(c.keys))]
				value := valueOf(key)
				switch random.IntN(7) {
				case 0:
					fmt.Fprintf(&sent, "set %s 0 0 %d\r\n%s\r\n", key, len(value), value)
					want.WriteString("STORED\r\n")
				case 1:
					fmt.Fprintf(&sent, "set %s 0 0 %d noreply\r\n%s\r\n", key, len(value), value)
				case 2:
					fmt.Fprintf(&sent, "add %s 0 0 1\r\nx\r\n", key)
					want.WriteString("NOT_STORED\r\n")
				case 3:
					fmt.Fprintf(&sent, "mg %s v k O%d\r\n", key, i)
					fmt.Fprintf(&want, "VA %d k%s O%d\r\n%s\r\n", len(value), key, i, value)
				case 4:
					fmt.Fprintf(&sent, "mg absent v q\r\nmg %s v q\r\nmn\r\n", key)
					fmt.Fprintf(&want, "VA %d\r\n%s\r\nMN\r\n", len(value), value)
				case 5:
					sent.WriteString("nonsense\r\n")
					want.WriteString("ERROR\r\n")
				default:
					fmt.Fprintf(&sent, "get %s\r\n", key)
					fmt.Fprintf(&want, "VALUE %s 0 %d\r\n%s\r\nEND\r\n", key, len(value), value)
				}
			}
			client := dial(t, c.address)
			go func() {
				for rest := sent.String(); rest != ""; {
					n := 1 + random.IntN(min(len(rest), 700))
					if _, err := io.WriteString(client, rest[:n]); err != nil {
						return // a failed write shows as a missing reply below
					}
					rest = rest[n:]
					if n%5 == 0 {
						time.Sleep(50 * time.Microsecond) // so that the parts are received separately
					}
				}
			}()
			client.expect(want.String())
			client.Close()
		}
	})
}
