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
// The tests run each fuzz test with its seeds. `make fuzz` searches for further inputs.
//
// The package contains only tests. Ringside runs in the process of the test, so
// that the fuzzer sees the coverage. The memcached servers are real processes.
//
// Each byte of the fuzzer's input is one choice in a stream. A stream is sent in
// rounds, and each round in pieces of random size. A round ends when Ringside and
// memcached have replied. Later rounds use cas tokens from earlier replies. After the last
// round, the client closes its half of the connection.
//
// # Where the replies may differ
//
//   - Cas uniques may differ, and values that change every second (t and l of mg, exp
//     and la of me).
//   - With several servers, the replies to a multi-get may have another order.
//   - To some malformed input Ringside replies as memcached 1.6.45 does. The tests
//     rewrite such input for the installed release (testenv.For1618).
//   - If a server is out and its keys have no replicas, a read of its keys misses, and
//     every other command gets a SERVER_ERROR.
//   - The command me reports the counters of one server, so it is sent only if there is
//     one server.
//   - With replicas, Ringside hides items that the flag N has created, and replaces cas
//     uniques. The streams then use neither N nor an I with an invented unique.
//   - If N or an append has created an item, memcached forgets that its key was in
//     base64. With the flags k and b, memcached then replies with the bytes of the key.
//     Ringside replies with base64.
//   - If a stream ends inside a data block, memcached does not send the replies that
//     are still pending.
//
// The streams do not contain commands to which memcached itself replies
// inconsistently:
//
//   - memcached pads a number that becomes shorter, unless a pending reply refers to the
//     item. Increments and decrements are therefore always first in a round.
//   - To increment an item that is empty, all spaces or near 2^64, memcached also reads
//     the memory after the item.
//   - Up to 1.6.39, an ma that creates its item sends a reply despite the flag q.
//
// No item expires during a stream (but some are stored with an expiry in the past), and
// no server dies. Packages fleet and e2e test these cases.
package twin
