package item

// In which words servers are asked.

import (
	"encoding/base64"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"ringside/proxy/routing"
)

// Lease is how long a rebuild may take, in seconds.
func Lease(rt *routing.Guard) int64 {
	return int64((rt.Learned.Lease(rt.Lease) + time.Second - 1) / time.Second)
}

// Early is how long before its expiry a value is due.
func Early(rt *routing.Guard) time.Duration {
	if rt.Auto {
		if slow := rt.Learned.Slow(); slow > 0 {
			return min(max(2*slow, 2*time.Second), time.Minute)
		}
		return 0
	}
	return rt.Early
}

// AppendFlags appends the flags of a guarded read; fresh: of one that may not meet an old
// value. chance keeps keys that were set together from being due together.
func AppendFlags(dst []byte, rt *routing.Guard, fresh, hide bool, chance *rand.Rand) []byte {
	if hide {
		return append(dst, " R0"...)
	}
	early := int64(Early(rt) / time.Second)
	if early > 0 || rt.Stale > 0 {
		dst = append(dst, " t"...)
	}
	dst = strconv.AppendInt(append(dst, " N"...), Lease(rt), 10)
	due := int64(0)
	if rt.Stale > 0 { // an expired value is due to everybody; the server compares strictly
		due = int64(rt.Stale/time.Second) + 1
	}
	if early > 1 && !fresh {
		due += early - int64(chance.Uint64()%uint64(early/2+1))
	}
	if due > 0 {
		dst = strconv.AppendInt(append(dst, " R"...), due, 10)
	}
	return dst
}

// Hiding is a guard as it is on a server without cas: it only hides what there may
// be of others.
func Hiding(rt *routing.Guard) *routing.Guard {
	how := *rt.Guard
	how.Hide, how.Stale, how.Early, how.Auto = true, 0, 0, false
	return &routing.Guard{Guard: &how, Learned: rt.Learned}
}

// Spelled is a meta command on a key, which may not be a word.
func Spelled(command, name, flags string) string {
	if strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c == 127 }) {
		name = base64.StdEncoding.EncodeToString([]byte(name)) + " b"
	}
	return command + name + flags + "\r\n"
}

// maxRelative is the longest exptime that memcached takes as a time from now.
const maxRelative = 30 * 24 * 60 * 60

// Longer is the time for which a value is kept whose client says n, so that it can
// be served while it is rebuilt. A value that lives short must not be due from the
// beginning; where its time can't be longer, it is sealed: nobody is to refresh it.
func Longer(rt *routing.Guard, n, now int64) (kept int64, sealed bool) {
	stale, early := int64(rt.Stale/time.Second), int64(Early(rt)/time.Second)
	left := n
	if n > maxRelative {
		left = n - now
	}
	if left <= 0 {
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
		return n + more, false
	case n+more > maxRelative:
		return now + n + more, false
	}
	return n + more, false
}
