package watch

import (
	"testing"

	"ringside/proxy/client"
	"ringside/proxy/upstream"
)

// TestTakesBack checks that only a sampled read of an exchange is sent again on another connection.
// The receiver of a read that is sent to one replica can't do that.
func TestTakesBack(t *testing.T) {
	var s upstream.Taker = &SampleReceiver{Receiver: &client.Exchange{}}
	if !s.TakesBack() {
		t.Error("the read of an exchange is not sent again")
	}
	s = &SampleReceiver{Receiver: struct{ upstream.Receiver }{}}
	if s.TakesBack() {
		t.Error("the read of another receiver is sent again")
	}
}
