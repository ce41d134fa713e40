package cli

import (
	"strings"
	"testing"
)

// TestLoginNeedsTLS checks that no password is sent in plain text to another machine.
func TestLoginNeedsTLS(t *testing.T) {
	t.Setenv(LoginVariable, "ops:s")
	for address, local := range map[string]bool{"127.0.0.1:9151": true, "[::1]:9151": true, "localhost:9151": true, "192.0.2.1:9151": false, "ringside.example:9151": false} {
		_, err := new(Login).Client("tcp", address, nil)
		if local != (err == nil) || err != nil && !strings.Contains(err.Error(), LoginVariable+" is not sent to "+address+" without TLS") {
			t.Errorf("%s: %v", address, err)
		}
	}
	if _, err := new(Login).Client("unix", "/run/ringside.sock", nil); err != nil {
		t.Error(err)
	}
}
