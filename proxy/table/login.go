package table

// This file defines the login to servers.

import (
	"fmt"
	"strings"
)

// Login is the user with which Ringside authenticates to the servers of a pool. The zero Login is none.
type Login struct {
	User     string
	Password string // without spaces and control characters
}

// On reports whether connections begin with the login.
func (l Login) On() bool { return l.User != "" }

// AppendRequest appends the request for memcached's text authentication (-Y). A server without -Y
// rejects it because of its flags. So the password never becomes a value.
func (l Login) AppendRequest(b []byte) []byte {
	return fmt.Appendf(b, "set auth x x %d\r\n%s %s\r\n", len(l.User)+1+len(l.Password), l.User, l.Password)
}

// Refusal explains the reply of a server that has not accepted the login. The text does not have the
// password, also if the server sends it back.
func (l Login) Refusal(reply string) string {
	if reply == "CLIENT_ERROR bad command line format" {
		return "it does not ask for a login: start it with -Y, or remove auth from its pool"
	}
	return fmt.Sprintf("it rejects the login of user %s: %s", l.User, strings.ReplaceAll(reply, l.Password, "…"))
}

// String returns the user without the password.
func (l Login) String() string { return l.User }
