// Package link buffers the bytes of connections between an engine and its driver.
//
// A Link is one connection, to a client or to a server. The driver moves its bytes and does not
// parse them. Its End (a client's Session, a server's Conn) parses them and has no access to the
// socket. An IO is what all links of one loop share: the time, timers, buffers, and the effects
// that the driver must perform.
//
//	driver calls            what happens                            effects that may follow
//	Space, Filled           End.Came, then End.Parse                Pause, Resume
//	Up (after a Dial)       Dialer.Up                               Write
//	Wrote                   Out drops the bytes, then End.Sent
//	Closed                  End.Lost                                Close (a client that still waits)
//	end of the wakeup       Flush: End.Flush of each marked link    Write, Dial, Close, Abort
//
// # Buffers
//
// Bytes are stored in chunks of a few sizes, which are reused. A Chunk has one owner at any time:
//
//	pool ──► scratch ──► In of a link ──► pool          input: one scratch for all
//	  │         │ Take        │ Take                    reads of links without input
//	  │         ▼             ▼
//	  └─────► Queue, of a link or of a waiting reply ──► pool
//
// Input is parsed in the buffer into which it was read. An incomplete request or reply at its end
// is kept in the link's In. Need is the length that In must have before parsing again is
// worthwhile. Take passes on a large value with its chunk, without copying it.
//
// # Timers
//
// There is one timer for each kind of work that a loop does without an event (Timer). Its time is a
// lower bound: the work then checks what is due. So setting a timer costs one comparison, and no
// timer is ever cancelled.
//
// # Non-goals
//
// The package makes no decisions: not what is sent, and not which connection is closed. It only
// counts the memory of a loop against limits.memory, and reports when the limit is reached
// (memory.go). Package proxy decides which connection then loses data.
package link
