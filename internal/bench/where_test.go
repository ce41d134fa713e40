//go:build linux

package bench

import (
	"testing"
)

func TestPerRequest(t *testing.T) {
	got := perRequest(map[string]int64{"read": 1500, "write": 1000, "accept4": 1, "epoll_wait": 1000}, 2000)
	want := []Calls{{Name: "read", Each: 0.75}, {Name: "epoll_wait", Each: 0.5}, {Name: "write", Each: 0.5}}
	if len(got) != 3 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("%v, want %v", got, want)
	}
}
