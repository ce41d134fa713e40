// Package stamp says which tags a value has, and by their versions whether it still
// stands.
//
// A tag is a name. On every server that keeps values with it there is one empty item
// for it, and that item's cas id is the tag's version there. A value is stored behind
// a head that has its tags and the versions that these had at its server; it stands
// as long as all of them are the same still.
//
//	head   magic 1 | its length 2 | the client's flags 4 | count 1 | count × (tag 8, version 8) | crc32c 4
//
// All numbers have their high byte first. A value with a head has the client flags
// Flags on the server.
//
//	__rs_t:ID   a tag: ID is a hash of namespace and name, in base64url
//	__rs_b:N    a bucket: its cas id is above that of all that has changed there since
//
// A memcached gives no cas id twice in its life, so a tag that is lost, evicted or
// deleted has another version when it is made anew: what was stamped before does not
// stand again. Two names with one hash invalidate each other's values, which is too
// much and never too little.
package stamp

// The package's manual.
