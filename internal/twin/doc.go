// Package twin tests Ringside against memcached: both receive the same random
// streams of commands, and their replies must be equal byte for byte.
//
// There are three kinds of streams:
//
//   - FuzzTwin sends text and meta commands.
//   - FuzzFrames sends the binary protocol.
//   - FuzzGuarded sends commands of several clients, one at a time, through
//     instances with a guard, and to a memcached without one.
//
// The seeds of each run with the tests. `make fuzz` searches further.
//
// The package contains only tests. Ringside runs in the process of the test, so
// that the fuzzer sees the coverage. The memcached servers are real processes.
//
// Each byte of the fuzzer's input is one choice in a stream. A stream is sent in
// rounds, and each round in pieces of random size. A round ends when both sides
// have replied. Later rounds use cas tokens from earlier replies. After the last
// round, the client closes its half of the connection.
//
// # Where the replies may differ
//
//   - Cas uniques, and values that change every second (t and l of mg, exp and la
//     of me).
//   - The order of the replies to a multi-get, if there are several servers.
//   - Malformed input for which Ringside replies as memcached 1.6.45 does. Package
//     older translates it for the installed release.
//   - A server is out and its keys have no copies: a read of its keys misses, and
//     every other command gets a SERVER_ERROR.
//   - me reports the counters of one server, so it is sent only if there is one
//     server.
//   - With copies, Ringside hides items created by N and replaces cas uniques. So
//     the streams then use neither N nor an I with an invented unique.
//   - The key of an item created by N or an append, with flags k and b: memcached
//     forgets that the key was in base64 and replies with its bytes. Ringside does
//     not.
//   - A stream that ends inside a data block: memcached does not send pending
//     replies that follow it.
//
// The streams do not contain commands to which memcached itself replies
// inconsistently:
//
//   - It pads a number that becomes shorter, unless a pending reply references the
//     item. So arithmetic is always first in a round.
//   - It finds a number, or a minus, in the memory after an item that is empty,
//     all space or near 2^64.
//   - Up to 1.6.39, an ma that creates its item replies despite q.
//
// No item expires during a stream (but some are stored with an expiry in the
// past), and no server dies. Packages fleet and e2e test that.
package twin
