package main

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"

	"ringside/proxy/admin"
)

// TestClients checks that the clients of a demo are listed. For the client that has sent
// half a command, the list must show that Ringside waits for the rest.
func TestClients(t *testing.T) {
	d, flags := demoForTests(t)
	to := flags[2:] // --admin and its value
	served, err := net.Dial("tcp", d.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer served.Close()
	fmt.Fprint(served, "nonsense\r\nset k 0 0 5000\r\nxyz")
	if _, err := served.Read(make([]byte, 100)); err != nil { // ERROR; Ringside reads the next command too
		t.Fatal(err)
	}
	code, out, errs := typed(append([]string{"clients", "--sort", "in-flight", "--json"}, to...)...)
	var c admin.ClientState
	if err := json.Unmarshal([]byte(out), &c); err != nil || code != 0 {
		t.Fatalf("%d %s%s: %v", code, out, errs, err)
	}
	if c.Address != served.LocalAddr().String() || c.Requests != 1 || c.In != 29 || c.Out != 7 || c.Waits == nil || c.Waits.Phase != "command" {
		t.Errorf("%+v", c)
	}
	code, out, _ = typed(append([]string{"clients"}, to...)...)
	if code != 0 || !strings.Contains(out, "the rest of a command: 19 of 5018 bytes have arrived") || !strings.Contains(out, "29 B") {
		t.Errorf("%d %s", code, out)
	}
	for _, bad := range []string{"--sort size", "--limit 0", "extra"} {
		if code, out, errs := typed(append([]string{"clients"}, strings.Fields(bad)...)...); code != 64 {
			t.Errorf("%s: %d %s%s", bad, code, out, errs)
		}
	}
}
