package health

import "testing"

func TestParse(t *testing.T) {
	for answer, want := range map[string]Process{
		"STAT pid 7\r\nSTAT uptime 12\r\nSTAT time 1000\r\nSTAT version 1.6.18\r\nEND\r\n": {PID: 7, Started: 988, Uptime: 12},
		"STAT uptime x\r\nSTAT time 5\r\nEND\r\n":                                          {Started: 5},
	} {
		if got, ok := ParseProcess([]byte(answer)); !ok || got != want {
			t.Errorf("%q: %+v %t", answer, got, ok)
		}
	}
	for _, answer := range []string{"", "END\r\n", "ERROR\r\n", "STAT time\r\nEND\r\n"} {
		if p, ok := ParseProcess([]byte(answer)); ok {
			t.Errorf("%q: %+v", answer, p)
		}
	}
}

// TestIs checks that start times within two seconds are the same process.
func TestIs(t *testing.T) {
	p := Process{PID: 7, Started: 1000}
	for q, want := range map[Process]bool{
		p:                                  true,
		{PID: 7, Started: 1002}:            true,
		{PID: 7, Started: 998}:             true,
		{PID: 7, Started: 1003}:            false,
		{PID: 7, Started: 997}:             false,
		{PID: 8, Started: 1000}:            false,
		{PID: 7, Started: 1000, Uptime: 5}: true,
	} {
		if p.Is(q) != want {
			t.Errorf("%+v is %+v: %t", p, q, !want)
		}
	}
}
