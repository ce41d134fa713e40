// Package counters creates missing counters, and buffers increments so that one request carries
// many.
//
// A route may have autocreate. An incr or decr of a missing key then creates it, as ma does
// with N and J. So the first view of a page needs no add, and there is no race between the
// first clients. The command consists of steps (Task.Step). Each step is sent to the servers
// that the state of the key's servers or replicas requires:
//
//	count   the client's own command                 if the key exists, this is all
//	create  ma k N<ttl> J<initial + delta> D<delta>  if it is missing: creates it, or counts if another client has created it
//	add     add k 0 ttl                              instead of create, if the server has no meta commands; NOT_STORED: count again
//
// The first step does not create an item. So only commands that find no key have the risks of a
// creating command without a reply. All others cost as much as without autocreate.
//
// # Buffered increments
//
// A route may have a buffer. One loop then handles all commands on a key, and keeps the sum of
// the increments since they were last sent to the server:
//
//	cold      there is no reply of the server younger than the interval: incr is sent to it
//	warm      incr is added to the sum, and answered from the known value
//	in flight the sum is being sent; new increments start the next sum
//
// Reads may run together. Everything else runs alone: the request that sends the sum, or a
// command that needs the exact number. A sum that was sent and has no reply may have counted. So
// it is only sent again if no server has received a byte of the request (Result.Unsent). A command
// that follows the sum then fails, because it would not find these increments.
//
// While the key of a counter moves to another server (package health/resize), the increment is the last
// of several requests. If one before it fails, for example at the deadline because writes wait, the
// increment was not sent (Task.SetPreparing), and the sum waits for the next interval. If a
// stage begins before the reply to the increment, the sum counts as lost although the server has it: the
// reply may come from a server that other proxies do not use any more for the key, and memcached does
// not record which client has incremented.
//
// Both rules, that of buffered increments (buffered) and that of missing counters (making), are pure
// functions in rule.go. explore_test.go runs them in all orders of events, and checks:
//
//   - B1: no increment is counted twice.
//   - B2: an increment that was answered is counted, waits, or was reported as lost. It is lost to a set
//     or delete only if that may have been executed.
//   - B3: a read returns all increments that were answered before it, and each once.
//   - B4: a set or delete removes the increments that were answered before it.
//   - B5: the number in the reply to a buffered increment has all increments that were answered before.
//   - B6: increments that wait are sent at some time, and no command waits for ever.
//   - B7: a command that needs the exact number runs after all increments that were answered before it.
//   - M1: an increment that was answered with a number has counted once, others at most once.
//   - M2: an increment fails only if its first request fails, or a request gets no reply.
//
// Not covered: a request that runs after its timeout.
//
// # Guarantees
//
//   - N concurrent increments of a missing key that were answered count N times.
//   - An increment without a reply may have counted, at most once.
//   - A decr of a missing key creates it with initial.
//   - If a client says itself how to create the counter (N or J of ma), or which version it
//     must have (C), its command is sent unchanged.
//   - A repair of replicas replaces a value by an empty item for a moment. This item
//     is not incremented: the command waits for the value, until its deadline.
//
// # Limits
//
// A counter that a server has lost starts again at initial; the number of replicas is set by
// the route. A value that is not a number is kept, and the client gets the server's error.
package counters
