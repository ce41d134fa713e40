// Package counters makes counters that are missing, lets increments wait so that one request carries many.
//
// A route may say autocreate: then incr and decr of a key that is not there make it,
// as ma does with N and J, so that the first view of a page needs no add and no race
// between those who see it first. The command is made of steps (Task.Step), each of
// which goes where the phases of the key's servers or its copies want it:
//
//	count   the client's own command                 it is there: that was all
//	create  ma k N<ttl> J<initial + delta> D<delta>  it is not: this makes it, or counts if somebody has made it meanwhile
//	add     add k 0 ttl                              in place of create, at a server of before the meta commands; NOT_STORED: count again
//
// The first step makes nothing. So only the commands that find nothing are exposed to
// what follows when a command that makes an item gets no answer, and all others cost
// what they cost without autocreate.
//
// # Increments that wait
//
// A route may have a buffer. Then one loop leads all commands on a key, and holds a sum
// of what was counted since its server was told:
//
//	cold      no answer of the server is younger than the interval: incr goes there
//	warm      incr is added here, and answered from what is known
//	in flight the server is being told; what comes meanwhile is the next sum
//
// Reads are at work together, and everything else alone: a flush, or a command that must
// see the true number. The server is told once: a flush without an answer may have
// counted, one that no server got a byte of (Result.Unsent) is tried again.
//
// # What it promises
//
//   - N concurrent increments of a missing key that were answered count N times.
//   - What got no answer may have counted, once.
//   - decr of a missing key makes it with initial.
//   - A client that says itself what is to be made (N or J of ma), or of which version
//     the counter must be (C), gets what it says.
//   - A repair of copies puts an empty item in the place of a value for a moment. It is
//     not counted on: the command waits for the value, until its deadline.
//
// # What it does not do
//
// A counter that a server has lost begins again at initial: how many copies there are
// is the route's business. What is no number stays, and the client gets the server's
// error.
package counters
