package loop

// Tests of errors that only the portable driver can have.

import (
	"log/slog"
	"slices"
	"sync"
	"testing"

	"ringside/proxy"
	"ringside/proxy/link"
)

// TestPostedInOrder checks that the functions posted by each of two goroutines run in order. A
// function posted by a running function must run after all that were posted before.
func TestPostedInOrder(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		tab := tableOf("127.0.0.1:1")
		p := proxy.NewProxy(tab, "test", slog.New(slog.DiscardHandler))
		d, err := New(p, o)
		if err != nil {
			t.Fatal(err)
		}
		defer d.close()
		const posts = 1000
		var ran [2][]int // on the engine's goroutine
		var posting, running sync.WaitGroup
		for who := range ran {
			running.Add(2 * posts)
			posting.Go(func() {
				for i := range posts {
					p.Engines()[0].Post(func(e *proxy.Engine) {
						ran[who] = append(ran[who], 2*i)
						e.Post(func(*proxy.Engine) {
							ran[who] = append(ran[who], 2*i+1)
							running.Done()
						})
						running.Done()
					})
				}
			})
		}
		posting.Wait()
		running.Wait()
		for who, all := range ran {
			var direct, posted []int
			for _, n := range all {
				if n%2 == 0 {
					direct = append(direct, n)
				} else {
					posted = append(posted, n)
				}
			}
			if !slices.IsSorted(direct) || !slices.IsSorted(posted) {
				t.Errorf("goroutine %d: ran in the order %v", who, all)
			}
		}
	})
}

// TestPostedAfterStop checks that posted functions neither run nor accumulate after the driver has
// stopped.
func TestPostedAfterStop(t *testing.T) {
	p := proxy.NewProxy(tableOf("127.0.0.1:1"), "test", slog.New(slog.DiscardHandler))
	made, err := newPortable(p.NewEngine(link.DefaultTune), Options{})
	if err != nil {
		t.Fatal(err)
	}
	made.stop()
	d := made.(*portable)
	for range 1000 {
		made.post(func(*proxy.Engine) { t.Error("it runs after the end") })
	}
	d.posting.Lock()
	defer d.posting.Unlock()
	if n := len(d.posted); n > 0 {
		t.Errorf("%d posted functions are kept", n)
	}
}
