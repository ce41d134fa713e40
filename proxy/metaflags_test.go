package proxy_test

// Meta commands with any flags, valid or not, on every kind of route: each request that a server gets must be
// exactly one, and the client must get exactly one reply.

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"ringside/internal/memnode"
	"ringside/proxy/conversation"
	"ringside/proxy/wire"
)

func TestMetaFlags(t *testing.T) {
	routes := []string{
		"", "strip", "near=10s", "autocreate=1:0", "guard=wait:0s", "guard=wait:0s,stale:60s", "tags=suffix guard=wait:0s",
		"tags=suffix,t:{x}>x", "copies=2", "copies=2 guard=wait:0s",
	}
	for i, route := range routes {
		for _, phase := range []string{"", "s1 is LEAVING\ns1 is OUT", "list warms"} {
			if phase == "s1 is LEAVING\ns1 is OUT" && strings.Contains(route, "copies") {
				continue
			}
			t.Run(strings.ReplaceAll(route+" "+phase, "\n", " "), func(t *testing.T) {
				for seed := range uint64(20) {
					playFlags(t, rand.New(rand.NewPCG(seed, uint64(i))), route, phase)
				}
			})
		}
	}
}

// anyFlags are words of requests: flags of memcached, unknown ones, and flags with wrong arguments.
var anyFlags = strings.Fields("b c f h k l s t v q x I S O7 N30 R30 T60 J5 D1 C5 E9 F5 MS ME MA MR MI MD M+ Tx T Fx F Nx N Rx Cx C Dx Jx Ex Mx M MXY w w1 y Y Zz L P p g O T-1 F0 F1381191169")

// goodFlags are flags of memcached and unknown ones, each without a fault.
var goodFlags = strings.Fields("c f h k l s t v q x I S O7 N30 R30 T60 J5 D1 C5 E9 F5 w y Z L P p g u")

func playFlags(t *testing.T, rng *rand.Rand, route, phase string) {
	w := conversation.New(t)
	w.Quiet, w.ShowOpaques = true, true
	nodes := map[string]*memnode.Line{}
	for _, line := range []string{"pool main servers=s1,s2 next=s2,s1 failover=rehash resize=warm", "route - main " + route} {
		if strings.Contains(route, "copies") {
			line = strings.Replace(line, " next=s2,s1 failover=rehash resize=warm", "", 1)
		}
		w.Line(line)
	}
	w.Begin()
	if phase != "" && !strings.Contains(route, "copies") {
		for line := range strings.Lines(phase) {
			w.Line(strings.TrimSpace(line))
		}
	}
	limits := wire.Limits{}
	last := ""
	serve := func() {
		for busy, rounds := true, 0; busy; rounds++ {
			busy = false
			if rounds > 100 {
				t.Fatalf("%q does not end", last)
			}
			for _, a := range w.Endpoints {
				if a.Name[0] == 'c' || a.Link == nil || a.Got.Len() == 0 {
					continue
				}
				var r wire.Request
				b := a.Got.Bytes()
				n, err := limits.Next(b, &r)
				if err != nil || r.Op == wire.Bad {
					t.Fatalf("after %q, %s has got %q, which is no request", last, a.Name, b)
				}
				name := a.Name[:2]
				if nodes[name] == nil {
					node, err := memnode.New(memnode.Options{Now: func() time.Time { return time.Unix(conversation.Wall(w.Now), 0) }})
					if err != nil {
						t.Fatal(err)
					}
					nodes[name] = node.Line()
				}
				reply := bytes.Clone(nodes[name].Do(a.Got.Next(n)))
				w.Wakeup(func() { w.Engine.Bytes(a.Link, reply) })
				busy = true
			}
		}
	}
	for range 150 {
		key := fmt.Sprintf("t:%d%d", rng.IntN(3), 1+rng.IntN(2))
		if rng.IntN(5) == 0 {
			key = []string{"Zmx1c2hfYWxsDQo=", "dDox", "t:x;tags=v"}[rng.IntN(3)]
		}
		verb := []string{"mg", "ms", "ms", "md", "ma"}[rng.IntN(5)]
		last = verb + " " + key
		body := ""
		if verb == "ms" {
			body = []string{"\r\n", "8\r\n", "abc\r\n"}[rng.IntN(3)]
			last += fmt.Sprintf(" %d", len(body)-2)
		}
		flags, count := anyFlags, rng.IntN(6)
		if rng.IntN(2) == 0 { // about as many as memcached accepts
			flags, count = goodFlags, 12+rng.IntN(7)
		}
		seen := map[byte]bool{}
		for range count {
			f := flags[rng.IntN(len(flags))]
			for seen[f[0]] && rng.IntN(100) > 0 {
				f = flags[rng.IntN(len(flags))]
			}
			seen[f[0]] = true
			last += " " + f
		}
		last += "\r\n" + body
		c := w.Endpoint("c1")
		w.Wakeup(func() { w.Engine.Bytes(c.Link, []byte(last+"mn\r\n")) })
		for range 40 {
			if serve(); bytes.HasSuffix(c.Got.Bytes(), []byte("MN\r\n")) {
				break
			}
			w.Line("wait 500ms")
		}
		got := c.Got.String()
		c.Got.Reset()
		head, ended := strings.CutSuffix(got, "MN\r\n")
		lines := strings.Count(head, "\r\n")
		if strings.HasPrefix(head, "VA ") {
			lines--
		}
		quiet := seen['q'] && lines == 0
		if !ended || lines != 1 && !quiet {
			t.Fatalf("the client has got %q in reply to %q", got, last)
		}
	}
	if n := w.Engine.Count.Desyncs; n > 0 {
		t.Fatalf("%d replies could not be matched to a request", n)
	}
}
