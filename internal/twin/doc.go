// Package twin holds a Ringside against one memcached: both get the same random
// streams of commands, and what they answer must be the same, byte for byte.
//
// There are three kinds of streams. FuzzTwin sends text and meta commands, FuzzFrames the
// binary protocol, and FuzzGuarded several clients' commands one after the other through
// Ringsides with a guard, of which memcached knows nothing. The seeds of each run with the
// tests; `make fuzz` looks further.
//
// It holds only tests. The Ringside runs in the test's process, so that the
// fuzzer sees which way a stream takes through it; the memcacheds are real ones.
// A stream is made of the fuzzer's bytes: each is a choice. It comes in rounds,
// cut in pieces as the bytes say. After a round both have answered, and cas
// uniques that a side has told are used in its next; behind the last one the
// client closes its half of the connection.
//
// # Where the answers may differ
//
//   - Cas uniques, and what changes from second to second (t and l of mg, exp and
//     la of me).
//   - The order of a multi-get's answers, where there are several servers.
//   - Malformed input that Ringside answers as memcached 1.6.45: package older
//     spells it for the installed release.
//   - Where a server is out and keys have no copies: a read of its keys misses, and
//     everything else is a SERVER_ERROR.
//   - me, which tells what a server counts, is asked of a single server only.
//   - With copies what N makes is hidden, and a cas unique is sealed: neither N nor
//     an I with a unique that nobody has told is asked there.
//   - The key of what N or an append made, under flags k and b: memcached forgets
//     that it was spelled in base64 and answers the bytes, Ringside never does.
//   - A stream that ends in the middle of a data block: memcached keeps back
//     answers that it would have sent behind it.
//
// What memcached itself answers now one way and now another is not asked. It
// pads a number that becomes shorter, unless an answer that waits to be sent still
// holds the item, so arithmetic begins a round. It finds a number, or a minus, in
// the memory behind an item that is empty, all space or near 2^64. Up to 1.6.39 an ma
// that creates its item says so under q.
//
// Nothing expires while a stream runs (what has expired already is stored, too), and no
// server dies in one: packages fleet and e2e have that.
package twin
