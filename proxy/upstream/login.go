package upstream

// This file logs in to servers that were started with -Y.
//
// The login is the first request on each connection. All other requests wait until the server has
// accepted it. So no request was sent if the server rejects the login, and it can't run later.
//
//	set auth x x 10 ► version ► get k ► …
//	                  held: nothing is sent from here on

import "ringside/proxy/wire"

// logIn puts the login before all other requests in the queue of c, which has just been connected.
func (c *Conn) logIn() {
	a := c.Server.e.NewAttempt(nil)
	a.Op, a.Probe = wire.Set, true
	c.putFirst(a, int64(c.Server.Greeting), c.Server.login.AppendRequest(nil))
	c.login = a
	c.findHeld()
}

// loggedIn is called when the server has accepted the login.
func (c *Conn) loggedIn() {
	c.login = nil
	c.findHeld()
	c.Server.e.Mark(&c.Link)
}

// findHeld finds the first request that can't be sent yet.
func (c *Conn) findHeld() {
	if c.login != nil {
		c.held = c.login.Next
		return
	}
	c.held = c.find(func(a *Attempt) bool { return a.needs&^c.Features != 0 })
}

// refusal says why the server can't be used: its reply to the login or to the greeting a is line.
func (c *Conn) refusal(a *Attempt, line string) string {
	switch {
	case a == c.login:
		c.login, c.held = nil, nil
		return c.Server.login.Refusal(line)
	case line == "CLIENT_ERROR unauthenticated":
		return "its first reply is " + line + ": it was started with -Y, so its pool needs auth"
	}
	return "its first reply is " + line
}
