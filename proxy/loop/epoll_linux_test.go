package loop

// What only the epoll driver can get wrong.

import (
	"io"
	"log/slog"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ringside/proxy"
	"ringside/proxy/link"
)

// TestStaleWake: a loop that was awake already may have run a posted function
// before its poster wrote to the eventfd. The write must not keep it awake.
func TestStaleWake(t *testing.T) {
	p := proxy.NewProxy(tableOf("127.0.0.1:1"), "test", slog.New(slog.NewTextHandler(io.Discard, nil)))
	d, err := startEpoll(p.NewEngine(link.DefaultTune), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.stop()
	unix.Write(d.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	for range 1000 {
		if n, _ := unix.Poll([]unix.PollFd{{Fd: int32(d.wake), Events: unix.POLLIN}}, 0); n == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the eventfd stays readable: the loop spins")
}
