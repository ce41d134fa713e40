//go:build linux

package bench

// The output formats of the tracers, and the system calls of this process if a tracer can be used.

import (
	"maps"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestTracerCountsCalls(t *testing.T) {
	s := newStarter(t.TempDir())
	defer s.Close()
	how, note := s.FindTracer([]int{0})
	if how == nil {
		if !strings.HasPrefix(note, "not counted, for want of") {
			t.Errorf("no tracer, and no reason: %s", note)
		}
		return
	}
	counts, err := how.Trace(os.Getpid(), func() error {
		for range 5000 {
			if _, err := unix.Getpgid(0); err != nil {
				return err
			}
		}
		return nil
	})
	total := int64(0)
	for _, n := range counts {
		total += n
	}
	if err != nil || total < 4900 {
		t.Errorf("%s counts %v for 5000 calls, error %v", how.name, counts, err)
	}
}

func TestParseTracers(t *testing.T) {
	for _, c := range []struct {
		parse func(string) (map[string]int64, error)
		text  string
		want  map[string]int64
	}{
		{parsePerf, "# started\n\n30;;raw_syscalls:sys_enter;1;100.00;;\n20;;syscalls:sys_enter_read;1;100.00;;\n0;;syscalls:sys_enter_close;1;100.00;;\n",
			map[string]int64{"read": 20, "others": 10}},
		{parsePerf, "<not counted>;;syscalls:sys_enter_read;0;0.00;;\n", nil},
		{parsePerf, "# started\n", nil},
		{parseStrace, "    calls syscall\n--------- ----------------\n       20 read\n        3 futex\n--------- ----------------\n       23 total\n",
			map[string]int64{"read": 20, "futex": 3}},
		{parseStrace, "", nil},
	} {
		got, err := c.parse(c.text)
		if !maps.Equal(got, c.want) || (err == nil) != (c.want != nil) {
			t.Errorf("%q: %v, error %v", c.text, got, err)
		}
	}
}
