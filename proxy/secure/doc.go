// Package secure runs TLS inside an event loop, and checks certificates and keys.
//
// A Conn is a TLS connection without a socket. The driver of the connection (package loop) moves
// encrypted bytes between it and the socket, and plain bytes between it and the engine. The engine
// does not know about TLS.
//
//	socket ─► Feed ─► Read  ─► engine
//	socket ◄─ Out  ◄─ Write ◄─ engine
//
// # Method
//
// A Conn contains a tls.Conn over a net.Conn in memory (type pipe). When the pipe is empty, its Read
// returns an error whose method Temporary returns true. crypto/tls then keeps a record of which it
// has only a part, and can be called again. crypto/tls does not document this. TestPartialRecords
// checks it, for each version of Go with which the tests run.
//
// Errors of a handshake are permanent in crypto/tls. So the handshake runs in a goroutine, in which
// the Read of the pipe waits. A handshake waits for its turn to compute (type Turns), because a
// handshake costs as much CPU time as hundreds of requests. It does not keep its turn while it waits
// for the other end. After the handshake only the goroutine of the driver uses the Conn.
//
// # Guarantees
//
//   - Read reports the end of the input without an error only if the other end has sent
//     close_notify. If the connection ended without it, the error is io.ErrUnexpectedEOF: somebody may
//     have cut the connection.
//   - The bytes of one Write leave in one piece. Records are as large as possible, also at the
//     start of a connection.
//   - Data that a client sends before the handshake is complete (early data) is not accepted.
//   - The versions are TLS 1.2 and TLS 1.3.
//
// # Limits of the package
//
// It opens no file and no socket. Package config reads the files. It does not use kernel TLS.
package secure
