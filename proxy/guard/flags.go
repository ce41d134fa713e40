package guard

// This file has the guard's requests to servers, and computes leases and expiry times for them.

import (
	"encoding/base64"
	"strconv"
	"time"

	"ringside/proxy/routing"
	"ringside/proxy/task"
	"ringside/proxy/wire"
)

// leaseSeconds returns the length of a lease in seconds: how long one client may take for a
// rebuild.
func leaseSeconds(rt *routing.RouteGuard) int64 {
	return int64((rt.Learned.Lease(rt.Lease) + time.Second - 1) / time.Second)
}

// earlyTime returns how long before its expiry a value is due for a rebuild.
func earlyTime(rt *routing.RouteGuard) time.Duration {
	if rt.Auto {
		if slow := rt.Learned.Slow(); slow > 0 {
			return min(max(2*slow, 2*time.Second), time.Minute)
		}
		return 0
	}
	return rt.Early
}

// appendFlags appends the meta flags of a guarded read to dst. If fresh is set, the read must not
// return an old value. If hide is set, the read must not start a rebuild. The numbers are partly
// random, so that keys that were set together are not due together.
func (g *Guard) appendFlags(dst []byte, rt *routing.RouteGuard, fresh, hide bool) []byte {
	if hide {
		return append(dst, " R0"...)
	}
	early := int64(earlyTime(rt) / time.Second)
	if early > 0 || rt.Stale > 0 {
		dst = append(dst, " t"...)
	}
	dst = strconv.AppendUint(append(dst, " N"...), uint64(leaseSeconds(rt)), 10)
	due := int64(0)
	if rt.Stale > 0 { // R makes a value due if TTL < R: the server keeps an expired value for the time Stale, and every read finds it due
		due = int64(rt.Stale/time.Second) + 1
	}
	if early > 1 && !fresh {
		due += early - int64(g.chance.Uint64()%uint64(early/2+1))
	}
	if due > 0 {
		dst = strconv.AppendInt(append(dst, " R"...), due, 10)
	}
	return dst
}

// hidingRoute returns the guard settings for a server without cas. With these settings the guard
// does not protect rebuilds: it only hides the items of other instances from clients.
func hidingRoute(rt *routing.RouteGuard) *routing.RouteGuard {
	how := *rt.GuardSettings
	how.Hide, how.Stale, how.Early, how.Auto = true, 0, 0, false
	return &routing.RouteGuard{GuardSettings: &how, Learned: rt.Learned}
}

// plainLine returns a request line of a meta command on the key `name`. The key is encoded in
// base64 if that is necessary.
func plainLine(command, name, flags string) string {
	if wire.NeedsBase64([]byte(name)) {
		name = base64.StdEncoding.EncodeToString([]byte(name)) + " b"
	}
	return command + name + flags + "\r\n"
}

const (
	maxRelative = task.MaxRelative
	maxExptime  = task.MaxExptime
)

// storedTTL returns the exptime with which to store a value, if its client wants the exptime n.
// now is the Unix time. On a route that serves stale values the exptime is longer, so that the
// value can be served during its rebuild. A value with a short TTL must not be due for a rebuild
// from its first second on. On a route without stale values, storedTTL sets sealed for such a
// value: no client may rebuild it before it expires.
func storedTTL(rt *routing.RouteGuard, n, now int64) (kept int64, sealed bool) {
	stale, early := int64(rt.Stale/time.Second), int64(earlyTime(rt)/time.Second)
	left := n
	if n > maxRelative {
		left = n - now
	}
	if left <= 0 || n > maxExptime {
		return n, false
	}
	more := stale
	if left < 4*early {
		if stale == 0 {
			return n, true
		}
		more += early - left/4
	}
	switch {
	case n > maxRelative:
		return min(n+more, maxExptime), false
	case n+more > maxRelative:
		return now + n + more, false
	}
	return n + more, false
}
