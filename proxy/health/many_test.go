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
