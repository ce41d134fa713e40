package proxy_test

// Tests of the description of waiting clients, over several loops.

import (
	"strings"
	"testing"

	"ringside/proxy"
	"ringside/proxy/stats"
	"ringside/proxy/upstream"
)

func TestClients(t *testing.T) {
	mute := func(command string) string {
		if command == "get answered1" {
			return "END\r\n"
		}
		if command == "version" {
			return "VERSION 1.6.18\r\n"
		}
		return ""
	}
	h := newHive(t, 2, mute, "a")
	first, second, half, line := h.client(0, "192.0.2.1:1000"), h.client(1, "192.0.2.1:2000"), h.client(1, "192.0.2.1:3000"), h.client(0, "192.0.2.1:4000")
	h.ask(0, first, "get answered1", "END\r\n")
	send := func(loop int, b *bee, text string) {
		h.on(loop, func(e *proxy.Engine) { e.Bytes(b.link, []byte(text)) })
	}
	send(0, first, "get j1\r\n")
	send(0, line, "get k1\r\nget l1\r\nget h")
	send(1, half, "set k 0 0 9000\r\n"+strings.Repeat("x", 5000))
	h.on(1, func(e *proxy.Engine) { // its socket has accepted part of an answer and is full
		second.link.Out.Append(&e.Buffers, make([]byte, 100))
		e.Wrote(second.link, 10, true)
		for s := range e.Sessions {
			s.ID |= upstream.Bulky // large replies use separate connections
		}
	})

	list, err := h.proxy.Clients(stats.ClientOrders["id"], 0)
	if err != nil || list.All != 4 || len(list.List) != 4 {
		t.Fatalf("%+v, %v", list, err)
	}
	type said struct {
		address, phase, server, why string
		requests                    uint64
		inFlight                    int
	}
	for i, want := range []said{
		{"192.0.2.1:1000", stats.Answer, "a (a:11211)", "the server's answer", 2, 1},
		{"192.0.2.1:2000", stats.Client, "", "the client to read 90 bytes of its replies", 0, 0},
		{"192.0.2.1:3000", stats.Command, "", "the rest of a command: 5016 of 9018 bytes have arrived", 0, 0},
		{"192.0.2.1:4000", stats.Queue, "a (a:11211)", "the server to answer earlier requests (1)", 2, 2},
	} {
		c := list.List[i]
		got := said{c.Address, c.Waits.Phase, c.Waits.Server, c.Waits.Why, c.Requests, c.InFlight}
		if got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		if c.Listener != "tcp [::]:11211" {
			t.Errorf("listener %q", c.Listener)
		}
	}
	if list, _ = h.proxy.Clients(stats.ClientOrders["held"], 1); list.All != 4 || len(list.List) != 1 || list.List[0].Address != "192.0.2.1:3000" || list.List[0].Held < 5000 {
		t.Errorf("who holds most: %+v", list)
	}
	if list, _ = h.proxy.Clients(stats.ClientOrders["in_flight"], 1); list.List[0].Address != "192.0.2.1:4000" {
		t.Errorf("who waits for most: %+v", list)
	}
}
