package main

// What an order means for keys that have several copies.

import (
	"context"
	"fmt"
	"time"

	"ringside/proxy/admin"
	"ringside/proxy/live"
)

// filling says that a server lacks copies; empty if it doesn't.
func filling(s *live.ServerState) string {
	if s.Copies != nil && s.Copies.Filling {
		return "is being filled: some keys have a copy less"
	}
	return ""
}

// warnOfCopies says how many copies are left of keys that have one on a server which
// is to be out.
func warnOfCopies(ctx context.Context, c *admin.Client, say remarks, out *live.ServerState) error {
	list, err := c.Servers(ctx)
	if err != nil {
		return err
	}
	left := out.Copies.Of - 1
	for i := range list {
		if s := &list[i]; s.Pool == out.Pool && s.Server != out.Server && (s.State != live.Up || filling(s) != "") {
			left--
		}
	}
	copies := fmt.Sprintf("%d copies", left)
	switch {
	case left <= 0:
		copies = "no copy that is in use"
	case left == 1:
		copies = "one copy"
	}
	say.warn(fmt.Sprintf("keys of pool %s that have one of their %d copies on %s may be left with %s, until it is restored and filled",
		out.Pool, out.Copies.Of, out.Server, copies))
	return nil
}

// waitForCopies waits until a server that was restored has its copies again.
func waitForCopies(ctx context.Context, c *admin.Client, say remarks, back *live.ServerState) error {
	if !back.Copies.Repair {
		say.note(back.Server + " comes back empty, and repair is off: a key has its copy there again when it is written")
		return nil
	}
	say.note(back.Server + " comes back empty and is filled from the others; until then some keys have a copy less")
	for {
		list, err := c.Servers(ctx)
		if err != nil {
			return err
		}
		found := false
		for i := range list {
			s := &list[i]
			if s.Pool != back.Pool || s.Server != back.Server {
				continue
			}
			found = true
			switch {
			case s.Order != "":
				return fmt.Errorf("%s is not filled: a person has ordered %s", s.Server, s.Order)
			case s.State == live.Up && filling(s) == "":
				say.note(fmt.Sprintf("%s is filled: its keys have %d copies again", s.Server, s.Copies.Of))
				return nil
			}
		}
		if !found {
			return fmt.Errorf("there is no server %q in pool %s any more", back.Server, back.Pool)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}
