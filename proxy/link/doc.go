// Package link holds the bytes of one connection between an engine and its driver.
//
// A Link is one connection, to a client or to a server. The driver moves its
// bytes and knows nothing of what they mean; its End (a client's Session, a
// server's Conn) knows what they mean and sees no socket. An IO is what all
// links of one loop share: the time, timers, buffers, what the driver is to do.
//
//	driver says            what happens                            IO may ask the driver for
//	Space, Filled          End.Came, then End.Parse                Pause, Resume
//	Up (of a Dial)         Dialer.Up                               Write
//	Wrote                  the bytes leave Out, then End.Sent
//	Closed                 End.Lost                                Close (a client that still waits)
//	the wakeup ends        Flush: each marked End decides          Write, Dial, Close, Abort
//
// # Buffers
//
// Bytes are in chunks of a few sizes, which are used again. A Chunk has one owner
// at any time:
//
//	pool ──► scratch ──► In of a link ──► pool          input: one scratch for all
//	  │         │ Take        │ Take                    reads that continue nothing
//	  │         ▼             ▼
//	  └─────► Queue, of a link or of an answer that waits ──► pool
//
// What a read brings is parsed where it lies. What is left, because it is not a
// whole request or reply yet, is kept in the link's In; Need says how much there
// must be before another look pays. A large value is handed over by Take, chunk
// and all, and never copied.
//
// # Timers
//
// There is one moment per kind of thing that a loop does by itself (Timer). Each
// is a lower bound: whoever is called looks at what is due, so setting one costs
// a comparison and nothing is ever taken out.
//
// # What it does not do
//
// It decides nothing: not what is sent, not who is closed. It only counts what a
// loop holds against limits.memory, and says when that is reached (memory.go);
// who loses what then is decided in package proxy.
package link
