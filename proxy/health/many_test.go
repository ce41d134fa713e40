package health

import "testing"

// TestManyServersGone checks that the requests of a keeper are few if all servers of a large pool
// refuse connections: at the start, or together after they have served.
func TestManyServersGone(t *testing.T) {
	const servers = 100
	for _, begin := range []string{"at the start", "after they have served"} {
		w := newWorld(t, scenario{proxies: 0, pool: servers})
		k := New("p", w.members(), Settings{}, 1)
		now, asked := sec, 0
		// answer handles all requests of the keeper in one wakeup.
		answer := func(gone bool) {
			k.Tick(now)
			for list := k.Requests(); len(list) > 0; list = k.Requests() {
				asked += len(list)
				for _, r := range list {
					if gone {
						k.ServerFailed(r.Server, true, "refused", now)
						k.Unanswered(r.ID, true, "refused", now)
					} else {
						k.Answered(r.ID, []byte(w.nodes[r.Server].do(r.Line)), now)
					}
				}
			}
			k.Events()
			now = max(now+ms, k.Next())
		}
		for begin == "after they have served" && now < 5*sec {
			answer(false)
		}
		asked = 0
		for end := now + 5*sec; now < end; {
			answer(true)
		}
		// A ping of each server every 125 ms, and little else.
		if limit := servers * 5 * 10; asked > limit {
			t.Errorf("%s: %d requests in 5 s, more than %d", begin, asked, limit)
		}
	}
}

// TestManyServersReturn checks that a keeper of a large pool does not look at all servers after each reply when
// half of the servers return: a reply to each vote about each of them arrives then.
func TestManyServersReturn(t *testing.T) {
	const servers = 120
	w := newWorld(t, scenario{proxies: 0, pool: servers})
	k := New("p", w.members(), Settings{}, 1)
	now, steps, replies := sec, 0, 0
	did := func(f func()) { // counts a step also if the one before was at the same time
		k.stepped--
		before := k.stepped
		if f(); k.stepped != before {
			steps++
		} else {
			k.stepped++
		}
	}
	// until runs the keeper until the function `is` returns true for all servers. The first half of them replies only if up.
	until := func(what string, up bool, is func(i int) bool) {
		steps, replies = 0, 0
		for end := now + 60*sec; ; now = max(now+ms/10, min(now+20*ms, k.Next())) {
			w.now = now
			did(func() {
				if k.Next() <= now {
					k.Tick(now)
				}
			})
			for list := k.Requests(); len(list) > 0; list = k.Requests() {
				for _, r := range list {
					replies++
					did(func() {
						if up || r.Server >= servers/2 {
							k.Answered(r.ID, []byte(w.nodes[r.Server].do(r.Line)), now)
						} else {
							k.Unanswered(r.ID, true, "refused", now)
						}
					})
				}
			}
			k.Events()
			done := true
			for i := range k.servers {
				done = done && is(i)
			}
			switch {
			case now >= end:
				t.Fatalf("%s: not after a minute", what)
			case done:
				t.Logf("%s: %d replies, %d steps", what, replies, steps)
				return
			}
		}
	}
	all := func(p Phase) func(i int) bool {
		return func(i int) bool { return i >= servers/2 || PhaseOf(k.servers[i].n) == p }
	}
	until("the start", true, func(i int) bool { return k.servers[i].good > 9 })
	until("an outage", false, all(Out))
	until("the return", true, all(In))
	if replies < 10_000 || steps > replies/4 {
		t.Errorf("%d replies and %d steps", replies, steps)
	}
}
