package proxy

// What a loop holds for clients and servers, and whether that is too much.

import "sync/atomic"

// accounts count what a loop holds. Counted is what grows with what clients and servers do: buffers, by their
// capacity and also while they are kept for reuse; requests in flight; tasks and
// the answers that they keep; answers that are gathered or wait for their order;
// memos of owners. It is counted where it is made and where it is given to the
// garbage collector, so that what is only reused costs nothing.
//
// At the bound, in this order:
//
//	what is kept for reuse is given up
//	a storage command whose data has no room gets SERVER_ERROR out of memory storing object
//	who holds most loses it, until an eighth is free: a client is closed; of a server's
//	  connection, what the server has not been sent gets SERVER_ERROR out of memory
//	if that is not enough, no client's request goes to a server: SERVER_ERROR out of memory
//
// What servers have been sent and owe can't be given up: timeouts bound it.
type accounts struct {
	all    *atomic.Int64 // bytes held by all loops
	booked atomic.Int64  // of pool.held, what all knows of
	most   int64         // that all should be: limits.memory

	pressed  bool   // something was refused for want of memory
	full     bool   // so that clients' requests are refused
	trimMore func() // gives up what else is kept for reuse
	relieve  func() // makes room, here or at another loop
}

// memoryStep is how much a loop may take before it looks at the bound, in the
// middle of a wakeup.
const memoryStep = 1 << 20

const outOfMemory = "out of memory: limits.memory is reached"

// hold counts n more bytes, or fewer.
func (p *pool) hold(n int) { p.held += int64(n) }

// book tells the other loops what io holds now.
func (io *IO) book() {
	if d := io.pool.held - io.booked.Load(); d != 0 {
		io.booked.Store(io.pool.held)
		io.all.Add(d)
	}
}

// account books, and looks at the bound.
func (io *IO) account() {
	io.book()
	if io.pressed || io.all.Load() > io.most {
		io.relieve()
	}
	io.full = io.full && io.all.Load() > io.most
}

// scarce says that limits.memory has no room for n bytes more.
func (io *IO) scarce(n int) bool {
	if io.free() >= int64(n) {
		return false
	}
	io.trim()
	io.pressed = io.pressed || io.free() < int64(n)
	return io.free() < int64(n)
}

func (io *IO) free() int64 { return io.most - io.all.Load() - (io.pool.held - io.booked.Load()) }

// trim gives up what is kept for reuse.
func (io *IO) trim() {
	io.pool.trim()
	io.trimMore()
}
