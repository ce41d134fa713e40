package link

// What a loop holds for clients and servers, and whether that is too much.

import (
	"sync/atomic"
)

// accounts count what a loop holds, against limits.memory. Counted is what grows
// with what clients and servers do: buffers, by their capacity and also while they
// are kept for reuse; requests in flight; tasks and the answers that they keep;
// answers that are gathered or wait for their order; memos of owners. It is counted
// where it is made and where it is given to the garbage collector, so that what is
// only reused costs nothing.
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
	all         *atomic.Int64 // bytes that all loops have booked
	Booked      atomic.Int64  // of Buffers.Held, what all knows of
	MemoryLimit int64         // that all is to stay under: limits.memory

	MemoryShort bool   // something was refused for want of memory since the last look
	MemoryFull  bool   // all is over the limit, and clients' requests are refused
	TrimMore    func() // gives up what else is kept for reuse; set by the engine
	Relieve     func() // makes room, here or at another loop; set by the engine
}

// memoryStep is how much a loop may take before it looks at the bound, in the
// middle of a wakeup.
const memoryStep = 1 << 20

// OutOfMemory is why a request is refused at limits.memory.
const OutOfMemory = "out of memory: limits.memory is reached"

// Hold counts n more bytes, or fewer.
func (p *Buffers) Hold(n int) { p.Held += int64(n) }

// Book tells the other loops what io holds now.
func (io *IO) Book() {
	if d := io.Buffers.Held - io.Booked.Load(); d != 0 {
		io.Booked.Store(io.Buffers.Held)
		io.all.Add(d)
	}
}

// Account books, and looks at the bound.
func (io *IO) Account() {
	io.Book()
	if io.MemoryShort || io.all.Load() > io.MemoryLimit {
		io.Relieve()
	}
	io.MemoryFull = io.MemoryFull && io.all.Load() > io.MemoryLimit
}

// Scarce says that limits.memory has no room for n bytes more.
func (io *IO) Scarce(n int) bool {
	if io.FreeMemory() >= int64(n) {
		return false
	}
	io.Trim()
	io.MemoryShort = io.MemoryShort || io.FreeMemory() < int64(n)
	return io.FreeMemory() < int64(n)
}

// FreeMemory is what limits.memory leaves to all loops, as this one knows it.
func (io *IO) FreeMemory() int64 {
	return io.MemoryLimit - io.all.Load() - (io.Buffers.Held - io.Booked.Load())
}

// Trim gives up all that is kept for reuse.
func (io *IO) Trim() {
	io.Buffers.trim()
	io.TrimMore()
}
