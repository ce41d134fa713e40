package link

// This file counts the memory that a loop uses for clients and servers, and checks
// limits.memory.

import (
	"sync/atomic"
)

// accounts count the memory of a loop against limits.memory. They count what grows with the
// activity of clients and servers:
//
//   - buffers, by capacity, including free ones kept for reuse
//   - requests in flight
//   - tasks and the replies that they keep
//   - replies that are assembled or wait for their turn
//   - caches of the owners of keys
//
// Memory is counted where it is allocated and where it is left to the garbage collector, so reusing
// memory costs nothing.
//
// At the limit, the following happens in this order:
//
//  1. Free memory kept for reuse is released.
//  2. A storage command of 16 KiB or more whose data does not fit gets SERVER_ERROR out of memory storing object.
//  3. The connections that waste the most memory lose it until an eighth of the limit is free: their memory, multiplied
//     by the time for which Ringside has waited for them to send or to read, is the largest. A client
//     is closed. On a server connection, the requests not sent yet get SERVER_ERROR out of memory.
//  4. If that is not enough, all requests of clients to servers get SERVER_ERROR out of memory, and all storage
//     commands the error of 2.
//
// Requests already sent to servers cannot be released: timeouts limit them. A value in the reply to one is discarded as
// it arrives if no client gets it any more.
type accounts struct {
	all         *atomic.Int64 // memory of all loops, in bytes
	Booked      atomic.Int64  // this loop's part of all: the value of Buffers.Held when all was last updated
	MemoryLimit int64         // maximum memory of all loops together, in bytes: limits.memory

	MemoryShort bool   // a request was rejected for lack of memory since the last check
	MemoryFull  bool   // the memory of all loops exceeds limits.memory, and clients' requests are rejected
	TrimMore    func() // releases other memory kept for reuse; set by the engine
	Relieve     func() // frees memory, in this loop or another one; set by the engine
}

// memoryStep is how many bytes a loop may use in the middle of a wakeup before it checks the limit.
const memoryStep = 1 << 20

// OutOfMemory is the error of a request that is rejected at limits.memory.
const OutOfMemory = "out of memory: limits.memory is reached"

// Hold adds n bytes to the memory of the loop; n may be negative.
func (p *Buffers) Hold(n int) { p.Held += int64(n) }

// Book publishes the memory of io to the other loops.
func (io *IO) Book() {
	if d := io.Buffers.Held - io.Booked.Load(); d != 0 {
		io.Booked.Store(io.Buffers.Held)
		io.all.Add(d)
	}
}

// Account publishes the memory of io and checks the limit.
func (io *IO) Account() {
	io.Book()
	if io.MemoryShort || io.all.Load() > io.MemoryLimit {
		io.Relieve()
	}
	io.MemoryFull = io.MemoryFull && io.all.Load() > io.MemoryLimit
}

// Scarce reports whether limits.memory has no room for n more bytes. It releases memory kept for
// reuse if that is needed.
func (io *IO) Scarce(n int) bool {
	if io.FreeMemory() >= int64(n) {
		return false
	}
	io.Trim()
	io.MemoryShort = io.MemoryShort || io.FreeMemory() < int64(n)
	return io.FreeMemory() < int64(n)
}

// FreeMemory returns how many bytes limits.memory leaves to all loops, as far as this loop knows.
func (io *IO) FreeMemory() int64 {
	return io.MemoryLimit - io.all.Load() - (io.Buffers.Held - io.Booked.Load())
}

// Trim releases all memory kept for reuse.
func (io *IO) Trim() {
	io.Buffers.trim()
	io.TrimMore()
}
