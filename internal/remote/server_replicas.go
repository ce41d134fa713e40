package remote

// This file reports what an operator's order for a server means for replicated keys.

import (
	"context"
	"fmt"
	"slices"
	"time"

	"ringside/internal/cli"
	"ringside/proxy/admin"
	"ringside/proxy/health"
	"ringside/proxy/live"
)

// warnOfCopies warns about the keys that have a replica on the server out, which will be out. It
// says how many replicas of these keys remain.
func warnOfCopies(say cli.Remarks, out *live.ServerState) {
	left := out.Replicas.Left
	copies := fmt.Sprintf("%d replicas", left)
	switch {
	case left == 0:
		copies = "no usable replica"
	case left == 1:
		copies = "one replica"
	}
	text := fmt.Sprintf("keys of pool %s that have one of their %d replicas on %s may be left with %s, until it is restored and filled",
		out.Pool, out.Replicas.Of, out.Server, copies)
	if why := out.Replicas.Lacking; why != "" {
		text += ": " + why
	}
	say.Warn(text)
}

// lookTime is the time between two polls of a server's state. Tests shorten it.
var lookTime = 100 * time.Millisecond

// `ringside server restore` waits as long as the server makes progress, because copying its keys
// may take long. A server without progress could be waited for without end. After looksUntilSaid
// polls without progress, the command prints what the server waits for. After looksUntilOver
// polls it returns an error.
const (
	looksUntilSaid = 20
	looksUntilOver = 300
)

// waitForCopies waits until the restored server back has all its replicas again.
func waitForCopies(ctx context.Context, c *admin.Client, say cli.Remarks, back *live.ServerState) error {
	if !back.Replicas.Repair {
		say.Note(back.Server + " returns empty, and repair is off: a key has its replica there again when it is written")
		return nil
	}
	if back.Failover == nil || back.Failover.Phase != health.In.String() { // the server was out and returns empty; a server in phase IN has kept its items
		say.Note(back.Server + " returns empty and is filled from the others; until then some keys have one replica less")
	}
	stuck, before := 0, [2]string{}
	for {
		list, err := c.Servers(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(list, func(s live.ServerState) bool { return s.Pool == back.Pool && s.Server == back.Server })
		if i < 0 {
			return fmt.Errorf("there is no server %q in pool %s any more", back.Server, back.Pool)
		}
		s := &list[i]
		waits, step := waitsFor(s)
		if stuck++; waits == "" || step != before {
			stuck, before = 0, step
		}
		switch {
		case stuck == looksUntilSaid:
			say.Note(waits)
		case stuck == looksUntilOver:
			return fmt.Errorf("%s. The order is in force: it is filled once it serves, see ringside server list", waits)
		case s.Order != "":
			return fmt.Errorf("%s is not filled: an operator has ordered %s", s.Server, s.Order)
		case s.Replicas == nil:
			say.Note(s.Server + " has nothing to wait for: since a reload no route keeps replicas in pool " + s.Pool + " any more")
			return nil
		case s.Whole() && s.Replicas.Left < s.Replicas.Of-1:
			say.Note(s.Server + " is filled; but other servers are not up, or lack replicas, so some keys have fewer replicas")
			return nil
		case s.Whole():
			say.Note(fmt.Sprintf("%s is filled: its keys have %d replicas again", s.Server, s.Replicas.Of))
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lookTime):
		}
	}
}

// waitsFor returns a text about what a server waits for before it serves. The text is empty if
// the server serves, or if its next phase begins at a known time. step is compared with that of
// the previous poll: a difference means progress.
func waitsFor(s *live.ServerState) (text string, step [2]string) {
	if s.State == live.Up || s.Failover == nil || s.Failover.NextMS > 0 {
		return "", step
	}
	text = s.Server + " is " + s.State
	if s.Why != "" {
		text += ": " + s.Why
	}
	if s.Failover.Next != "" {
		text += "; " + s.Failover.Next
	}
	return text, [2]string{s.State, s.Failover.Next}
}
